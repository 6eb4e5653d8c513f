//! The choice of an all-reduce algorithm: a pure table of world size, bytes, type and reach, so that all ranks choose
//! equally. The built-in crossovers were measured on 2, 4 and 8 H200 (NVLink 4, no multicast) and, for the host device, on a
//! CPU of two cores. Values for integers on more than 4 GPUs are estimates. A tuning replaces them. `explain` prints the
//! table.

use crate::choice::{Range, Ranges};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::{Capabilities, Determinism, Tuning};
use crate::op::Algorithm;
use crate::types::{Dtype, Reduction};

/// Whether peers can address both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Symmetric or registered memory: zero-copy.
    Direct,
    /// Plain memory: data goes through scratch.
    Pushed,
}

/// Largest message of each algorithm, in order of size. One-shot LL is fastest only on a CPU: on GPUs sentinel packets
/// are never slower. Integers have no sentinel packets, so their one-shot uses LL packets.
#[derive(Clone, Copy)]
struct Crossovers {
    ll: u64,
    one_shot: u64,
    two_shot: u64,
    /// One-shot again, between two ranks, where it moves no more bytes than the two-shot.
    one_shot_again: u64,
    /// The zero-copy two-shot, if peers can address the operands.
    zero_copy: u64,
    /// The last push algorithm, in several launches, if peers cannot address the operands. The ring serves larger messages.
    several: u64,
    reason: &'static str,
}

const MEASURED: &str = "built-in, measured on H200";
const TUNED: &str = "measured on this machine by `symmetra tune`";
/// A tuning of another kind of device is used, and `explain` prints this reason.
const TUNED_ELSEWHERE: &str = "measured by `symmetra tune`, but on another kind of device";

/// The built-in crossovers: measured on 2, 4 and 8 H200, and used for all GPUs of that generation or later. Latencies
/// differ little between generations, but links do: on slower links, moving fewer bytes pays off at smaller messages.
fn crossovers(kind: DeviceKind, devices: Option<&Capabilities>, world: usize, floating: bool) -> Crossovers {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    if kind == DeviceKind::Host {
        // A CPU hides no latency: fewer copies are always faster.
        let reason = "built-in, measured on a CPU of two cores";
        let (pushed, never) = (if floating { 4 * KIB } else { 2 * KIB }, u64::MAX);
        let (one_shot, two_shot) = (pushed, pushed);
        return Crossovers { ll: KIB, one_shot, two_shot, one_shot_again: 0, zero_copy: never, several: never, reason };
    }
    // Integers have only LL packets, which are half payload, and a slower zero-copy reduction.
    let (one_shot, two_shot, one_shot_again, zero_copy, several) = match (world, floating) {
        (0..=2, true) => (896 * KIB, 2 * MIB, 4 * MIB, 24 * MIB, 12 * MIB),
        (0..=2, false) => (256 * KIB, MIB, 0, 12 * MIB, 2 * MIB),
        (3..=4, true) => (128 * KIB, 4 * MIB, 0, 24 * MIB, 16 * MIB),
        (3..=4, false) => (64 * KIB, MIB, 0, 12 * MIB, 3 * MIB),
        (_, true) => (52 * KIB, 4 * MIB, 0, 36 * MIB, 26 * MIB),
        (_, false) => (16 * KIB, MIB, 0, 24 * MIB, 6 * MIB),
    };
    let (slower, reason) = match devices.map(|devices| devices.compute_capability) {
        _ if kind == DeviceKind::Hip => (1, "built-in, those of NVIDIA GPUs: nothing was measured on AMD GPUs"),
        None | Some((9.., _)) if world <= 4 || (world <= 8 && floating) => (1, MEASURED),
        None | Some((9.., _)) => (1, "built-in, estimated from what 4 and 8 H200 measured"),
        // NVLink 3 has half the bandwidth.
        Some((8, 0)) => (2, "built-in, estimated from the compute capability"),
        // Most of these GPUs have no NVLink.
        Some(_) => (8, "built-in, estimated from the compute capability"),
    };
    let [one_shot, two_shot, one_shot_again] = [one_shot, two_shot, one_shot_again].map(|bytes| bytes / slower);
    Crossovers { ll: 0, one_shot, two_shot, one_shot_again, zero_copy, several, reason }
}

/// The choices of a communicator, computed when it opens.
pub(super) struct AlgorithmTable {
    /// By `[floating][direct]`.
    ranges: [[Ranges<Algorithm>; 2]; 2],
}

impl AlgorithmTable {
    /// The ranges of the tuning if there is one, else the built-in ranges.
    pub(super) fn new(
        kind: DeviceKind,
        devices: Option<&Capabilities>,
        world: usize,
        determinism: Determinism,
        tuning: Option<&Tuning>,
    ) -> Result<Self> {
        let tuned = tuning.filter(|tuning| tuning.serves(kind));
        let here = |tuning: &Tuning| devices.is_none_or(|devices| devices.name == tuning.device);
        let reason = if tuned.is_none_or(here) { TUNED } else { TUNED_ELSEWHERE };
        let exact = determinism == Determinism::Exact;
        let ranges = |floating, direct| {
            let dtype = if floating { Dtype::F32 } else { Dtype::I32 };
            let allowed = |algorithm: Algorithm| !exact || algorithm.is_exact(dtype, world);
            match tuned.and_then(|tuning| tuning.rows(world, floating, direct, exact)) {
                Some(rows) => Ranges::tuned(rows, |name| Ok((named(name, floating, direct, allowed)?, reason))),
                None => {
                    let crossovers = crossovers(kind, devices, world, floating);
                    Ok(Ranges::new(builtin(&crossovers, floating, direct, allowed(Algorithm::Ring))))
                }
            }
        };
        let of_types = |floating| Ok::<_, Error>([ranges(floating, false)?, ranges(floating, true)?]);
        Ok(Self { ranges: [of_types(false)?, of_types(true)?] })
    }

    /// The ranges, smallest messages first. The last ends with `u64::MAX`.
    pub(super) fn ranges(&self, dtype: Dtype, reach: Reach) -> &Ranges<Algorithm> {
        &self.ranges[usize::from(dtype.is_float())][usize::from(reach == Reach::Direct)]
    }

    /// The algorithm for one message: that of its range, or of an earlier range if the algorithm does not support the
    /// reduction. Allocates nothing.
    pub(super) fn select(&self, dtype: Dtype, reduction: Reduction, reach: Reach, bytes: u64) -> Algorithm {
        let range = self.ranges(dtype, reach).able_at(bytes, |algorithm| algorithm.reduces(dtype, reduction));
        range.map_or(Algorithm::TwoShotLL, |range| range.choice)
    }
}

/// The built-in rows for one kind of call. A row serves no message if its limit is not above the previous row's.
fn builtin(crossovers: &Crossovers, floating: bool, direct: bool, ring: bool) -> [Range<Algorithm>; 6] {
    let Crossovers { ll, one_shot, two_shot, one_shot_again, zero_copy, several, reason } = *crossovers;
    let until_ring = |bytes| if ring { bytes } else { u64::MAX };
    let row = |up_to_bytes, algorithm| Range::new(up_to_bytes, algorithm, reason);
    let (one, two) = match floating {
        true => (Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel),
        false => (Algorithm::OneShotLL, Algorithm::TwoShotLL),
    };
    let large = match direct {
        true => row(until_ring(zero_copy), Algorithm::TwoShotZeroCopy),
        false => row(until_ring(several), if one_shot_again > two_shot { one } else { two }),
    };
    let [one_shot, again] = [one_shot, one_shot_again].map(|bytes| row(bytes, one));
    [row(ll, Algorithm::OneShotLL), one_shot, row(two_shot, two), again, large, row(u64::MAX, Algorithm::Ring)]
}

/// Ranges for memory that peers can address, with a last range for sums of symmetric buffers by multicast. Other reductions
/// and registered memory keep the given ranges.
pub(super) fn with_multicast(ranges: &Ranges<Algorithm>, from_bytes: u64) -> Ranges<Algorithm> {
    let reason = "built-in, estimated: sums of symmetric buffers; multicast was never measured";
    let by_multicast = Range::new(u64::MAX, Algorithm::MulticastTwoShot, reason);
    Ranges::new(ranges.between(0, from_bytes - 1).chain([by_multicast]))
}

/// The algorithm that a tuning names, if the algorithm can serve these calls.
fn named(name: &str, floating: bool, direct: bool, allowed: impl Fn(Algorithm) -> bool) -> Result<Algorithm> {
    let algorithm: Algorithm = name.parse()?;
    let able = algorithm != Algorithm::Auto
        && (floating || algorithm.carries(Dtype::I32))
        && (direct || !algorithm.needs_reach());
    if !able {
        let calls = format!("{} in {}", kind_of(floating), if direct { "shared memory" } else { "plain memory" });
        return Err(Error::invalid("a tuned algorithm", name, format!("it must serve {calls}")));
    }
    if !allowed(algorithm) {
        let limit = "the configuration asks for exact determinism";
        return Err(Error::invalid("a tuned algorithm", name, limit));
    }
    Ok(algorithm)
}

const fn kind_of(floating: bool) -> &'static str {
    if floating { "floating types" } else { "integers" }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/select.rs"]
mod tests;
