//! The method of experts with [`Method::Auto`]: a pure function of device kind, world size, settings and tuning, so that all
//! ranks choose equally. [`Experts::explain`](super::Experts::explain) names the table of the choice.

use super::config::{ExpertConfig, Method, without_own_kernels};
use super::form::ExpertForm;
use super::packets::PacketForm;
use crate::choice::{Range, Ranges};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::{Config, Determinism, Tuning};

const MEASURED: &str = "built-in, measured with 2 ranks on a CPU of two cores";
const CONFIRMED: &str = "built-in, from predicted times, confirmed by measurements on two H100";
const ESTIMATED: &str = "built-in, from predicted times: this number of GPUs was not measured";
const TUNED: &str = "measured on this machine by `symmetra tune`";

/// Predicted time of a dispatch: nanoseconds of a dispatch without rows, and of each megabyte of rows.
struct Predicted {
    start_ns: u64,
    megabyte_ns: u64,
}

/// Predicted times of uniform routing to 256 experts, 8 for each token, on GPUs with 350 GB/s between them: with packets, which
/// move each row through the region twice, and with direct access, which begins with a count, an all-gather and two barriers.
const fn predicted(world: usize) -> [Predicted; 2] {
    let times = match world {
        0..=2 => [[3_600, 5_500], [14_000, 2_840]],
        3..=4 => [[3_800, 11_840], [16_000, 7_920]],
        _ => [[4_200, 18_810], [18_000, 14_130]],
    };
    let [packets, direct] = times;
    [
        Predicted { start_ns: packets[0], megabyte_ns: packets[1] },
        Predicted { start_ns: direct[0], megabyte_ns: direct[1] },
    ]
}

/// Most bytes of rows that are sent in packets without a tuning. On GPUs an estimate: the bytes for which both predicted times are
/// equal, (start of direct access - start of packets) / (time of a byte by packets - by direct access).
pub(super) const fn packets_up_to_bytes(kind: DeviceKind, world: usize) -> u64 {
    match kind {
        DeviceKind::Host => 16 << 10,
        DeviceKind::Cuda | DeviceKind::Hip => {
            let [packets, direct] = predicted(world);
            (direct.start_ns - packets.start_ns) * 1_000_000 / (packets.megabyte_ns - direct.megabyte_ns)
        }
    }
}

/// The method for each range of the bytes of the rows that a rank sends in a dispatch, on devices of this `kind`, if symmetra
/// kernels serve the group and packets support the settings: from the tuning if it has ranges for this world size, else built
/// in. The bytes are those of [`max_tokens`](ExpertConfig::max_tokens) rows in their wire format, with scales. The methods are
/// [`Method::Packets`] and [`Method::Direct`].
///
/// # Errors
/// [`Error::InvalidArgument`] if the tuning names another method than packets and direct access.
pub fn explain_experts(kind: DeviceKind, world_size: usize, tuning: Option<&Tuning>) -> Result<Ranges<Method>> {
    let tuned = tuning.filter(|tuning| tuning.serves(kind)).and_then(|tuning| tuning.expert_rows(world_size));
    if let Some(rows) = tuned {
        return Ranges::tuned(rows, |name| Ok((named(name)?, TUNED)));
    }
    let reason = match kind {
        DeviceKind::Host => MEASURED,
        DeviceKind::Cuda if world_size <= 2 => CONFIRMED,
        DeviceKind::Cuda | DeviceKind::Hip => ESTIMATED,
    };
    let packets = Range::new(packets_up_to_bytes(kind, world_size), Method::Packets, reason);
    Ok(Ranges::new([packets, Range::new(u64::MAX, Method::Direct, reason)]))
}

/// The method that a tuning names.
fn named(name: &str) -> Result<Method> {
    let known = [Method::Packets, Method::Direct];
    let found = known.into_iter().find(|method| method.name() == name);
    found.ok_or_else(|| Error::invalid("a tuned method of experts", name, "it must be packets or direct"))
}

/// The facts, other than the settings of experts, that decide the method. Equal on every rank.
#[derive(Clone, Copy)]
pub(super) struct MethodFacts<'a> {
    pub(super) kind: DeviceKind,
    /// Whether symmetra kernels serve the group.
    pub(super) own_kernels: bool,
    /// The settings of the group.
    pub(super) group: &'a Config,
}

/// The method that serves, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MethodChoice {
    pub(super) method: Method,
    pub(super) reason: String,
}

/// Whether sums are in the order of a token's experts. False for layouts with one row for each token, where the caller sums.
pub(super) fn is_exact(group: &Config, config: &ExpertConfig) -> bool {
    config.determinism.unwrap_or(group.determinism) == Determinism::Exact && !config.layout.is_by_token()
}

/// The method that serves experts with these settings.
pub(super) fn chosen(facts: MethodFacts<'_>, config: &ExpertConfig, form: &ExpertForm) -> Result<MethodChoice> {
    if config.method != Method::Auto {
        let reason = format!("the settings name {:?}", config.method);
        return Ok(MethodChoice { method: able(facts.own_kernels, config.method, form)?, reason });
    }
    let choice = |method, reason: &str| Ok(MethodChoice { method, reason: reason.to_owned() });
    match facts.own_kernels {
        false => return choice(Method::Gather, "own kernels do not serve the group"),
        true if form.world == 1 => return choice(Method::Gather, ALONE),
        true => {}
    }
    let refused = match PacketForm::check(form) {
        Err(Error::Unsupported { reason, .. }) => Some(reason),
        Err(error) => return Err(error),
        Ok(()) => {
            let region = PacketForm::new(config, form, is_exact(facts.group, config)).region_bytes as u64;
            let heap = facts.group.heap_bytes;
            let words = || format!("packets take {region} bytes of the heap, which has {heap} in all");
            (region > heap).then(words)
        }
    };
    if let Some(reason) = refused {
        return Ok(MethodChoice { method: Method::Direct, reason });
    }
    let bytes = dispatched_bytes(form);
    let Range { choice: method, reason, .. } = range_of(facts.kind, facts.group, form)?;
    Ok(MethodChoice { method, reason: format!("the rows of a dispatch have at most {bytes} bytes: {reason}") })
}

/// The range that serves these experts if packets can serve them.
fn range_of(kind: DeviceKind, group: &Config, form: &ExpertForm) -> Result<Range<Method>> {
    let ranges = explain_experts(kind, form.world, group.tuning.as_ref())?;
    let range = ranges.at(dispatched_bytes(form));
    let limit = "the last row must have no limit";
    range.copied().ok_or_else(|| Error::invalid("the tuned methods of experts", "a table without rows", limit))
}

/// Most bytes of the rows that a rank sends in a dispatch.
fn dispatched_bytes(form: &ExpertForm) -> u64 {
    (form.max_tokens * form.row_bytes) as u64
}

/// Why direct access does not serve a group of one.
pub(super) const ALONE: &str = "a group of one rank has no peers";

/// The method that serves if the settings name a method.
///
/// # Errors
/// [`Error::Unsupported`] for a method that cannot serve.
pub(super) fn able(own_kernels: bool, asked: Method, form: &ExpertForm) -> Result<Method> {
    match asked {
        Method::Direct if !own_kernels => Err(without_own_kernels("experts by direct access")),
        Method::Packets if !own_kernels => Err(without_own_kernels("experts by packets")),
        Method::Packets => PacketForm::check(form).map(|()| Method::Packets),
        // A group of one rank has no peers to access.
        Method::Direct if form.world == 1 => Ok(Method::Gather),
        named => Ok(named),
    }
}

/// Whether the library may choose packets for these settings, on any kind of device. If so, [`expert_bytes`](super::expert_bytes)
/// returns the bytes of the larger method.
pub(super) fn may_be_packets(config: &ExpertConfig, form: &ExpertForm, group: &Config) -> Result<bool> {
    if config.method != Method::Auto {
        return Ok(config.method == Method::Packets);
    }
    let mut any = false;
    for kind in [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip] {
        any |= range_of(kind, group, form)?.choice == Method::Packets;
    }
    Ok(any && form.world > 1 && PacketForm::check(form).is_ok())
}

#[cfg(test)]
#[path = "../../tests/unit/experts/choice.rs"]
mod tests;
