//! The choice between fused kernels, which both sum and norm, and an all-reduce followed by a norm. The choice is a pure
//! function of device kind, world size, scratch, type, length and bytes of rows, and whether the outputs have a place for
//! the sum, so ranks with equal calls choose equally. The built-in limits of two GPUs were measured on H200, those of four
//! on H100 and H200. The limits of more GPUs are estimates from measured all-reduces of these algorithms. A tuning replaces
//! the limits, but rows for which [`is_slow`] holds always use an all-reduce followed by a norm.

use crate::choice::{Range, Ranges};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::Tuning;
use crate::kernel::PACKET_BYTES;
use crate::kernel::args::{
    kLinePackets as LINE_PACKETS, kMostClusteredTiles as MOST_CLUSTERED_TILES, kNormColumns as NORM_COLUMNS,
};
use crate::op::{ALL_REDUCE_NORM, Algorithm, RowFormat, check_lengths};
use crate::types::Dtype;

/// The name, in a tuning, of an all-reduce followed by a norm.
const APART: &str = "apart";

/// Largest message of the fused one-shot and of the fused two-shot, in bytes; 0: serves none. At two ranks both move the
/// same number of bytes, and the two-shot was slower at every size.
fn limits(kind: DeviceKind, world: usize) -> [u64; 2] {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match (kind, world) {
        // A CPU hides no latency: fewer copies are always faster.
        (DeviceKind::Host, _) => [4 * KIB, 8 * MIB],
        (_, 0..=2) => [16 * MIB, 0],
        (_, 3..=4) => [224 * KIB, 16 * MIB],
        _ => [64 * KIB, 8 * MIB],
    }
}

const TOGETHER: &str = "one kernel sums and norms";
const SEPARATE: &str = "an all-reduce, then a kernel norms";

/// The choices of a communicator, computed when it opens.
pub(in crate::collective) struct NormTable {
    /// The kernel that sums and norms. `None`: an all-reduce followed by a norm.
    rows: Ranges<Option<Algorithm>>,
    /// Whether the group has several ranks, so that calls sum.
    sums: bool,
}

impl NormTable {
    /// The ranges of the tuning if it has any for this world size, else the built-in ranges.
    pub(in crate::collective) fn new(kind: DeviceKind, world: usize, tuning: Option<&Tuning>) -> Result<Self> {
        let tuned = tuning.filter(|tuning| tuning.serves(kind)).and_then(|tuning| tuning.norm_rows(world));
        let rows = match tuned {
            Some(rows) => Ranges::tuned(rows, |name| {
                let fused = fused_by(name)?;
                let [together, separate] = [
                    "one kernel sums and norms, measured by `symmetra tune`",
                    "an all-reduce, then a kernel norms, measured by `symmetra tune`",
                ];
                Ok((fused, if fused.is_some() { together } else { separate }))
            })?,
            None => {
                let [one_shot, two_shot] = limits(kind, world);
                Ranges::new([
                    Range::new(one_shot, Some(Algorithm::OneShotSentinel), TOGETHER),
                    Range::new(two_shot, Some(Algorithm::TwoShotSentinel), TOGETHER),
                    Range::new(u64::MAX, None, SEPARATE),
                ])
            }
        };
        Ok(Self { rows, sums: world > 1 })
    }

    /// The fused algorithm for all rows of a call; `None`: an all-reduce followed by a norm.
    pub(super) fn choice(&self, bytes: u64) -> Option<Algorithm> {
        self.rows.at(bytes)?.choice
    }

    /// The fused algorithm that serves all rows of a call: the table's algorithm if a row fits, else the two-shot if the
    /// outputs have no place for the sum of all rows. `None`: an all-reduce followed by a norm.
    pub(super) fn fused(
        &self,
        bytes: u64,
        is_placed: impl Fn() -> bool,
        fits: impl Fn(&Algorithm) -> bool,
    ) -> Option<Algorithm> {
        let two_shot = || Some(Algorithm::TwoShotSentinel).filter(|_| !is_placed()).filter(&fits);
        self.choice(bytes).filter(&fits).or_else(two_shot)
    }

    /// The choice for every size. `sums`: the algorithms of unfused all-reduces; `is_placed`: whether the outputs have a
    /// place for the sum of all rows; `fits`: whether a row fits the scratch of a fused algorithm.
    pub(super) fn ranges(
        &self,
        sums: &Ranges<Algorithm>,
        is_placed: bool,
        fits: impl Fn(&Algorithm) -> bool,
    ) -> Ranges<Algorithm> {
        let mut ranges: Vec<Range<Algorithm>> = Vec::new();
        let mut from_bytes = 0;
        for Range { up_to_bytes, choice, reason } in self.rows.iter().copied() {
            match self.fused(up_to_bytes, || is_placed, &fits).filter(|_| self.sums) {
                Some(algorithm) => {
                    let reason = if choice == Some(algorithm) { reason } else { TOGETHER };
                    // Neighbours with equal algorithms are one range.
                    ranges.pop_if(|last| (last.choice, last.reason) == (algorithm, reason));
                    ranges.push(Range::new(up_to_bytes, algorithm, reason));
                }
                None => {
                    let reason = if choice.is_none() { reason } else { SEPARATE };
                    let sums = sums.between(from_bytes, up_to_bytes).map(|sum| Range { reason, ..sum });
                    ranges.extend(Ranges::new(sums));
                }
            }
            from_bytes = up_to_bytes.saturating_add(1);
        }
        Ranges::kept(ranges)
    }

    /// The choice for every size, for rows of `hidden` elements that are written quantised, `width` elements wide.
    pub(super) fn quantised_ranges(
        &self,
        sums: &Ranges<Algorithm>,
        hidden: usize,
        width: usize,
        format: RowFormat,
        is_placed: bool,
        fits: impl Fn(&Algorithm) -> bool,
    ) -> Result<Ranges<Algorithm>> {
        check_lengths(hidden, width)?;
        format.check(width)?;
        // A group of one rank needs no place for a sum.
        if !is_placed && self.sums && !fits(&Algorithm::TwoShotSentinel) {
            let reason = format!("the sum needs a place, because a row of {hidden} elements does not fit the scratch");
            return Err(Error::unsupported("a norm that writes quantised values alone", reason));
        }
        Ok(self.ranges(sums, is_placed, fits))
    }
}

/// Whether every fused kernel may quantise. On AMD GPUs only the two-shot quantises.
pub(super) fn quantises_anywhere(kind: DeviceKind, quantised: bool) -> bool {
    !quantised || kind != DeviceKind::Hip
}

/// Whether an all-reduce followed by a norm is faster than the two-shot for rows of this length. On NVIDIA GPUs that holds for
/// rows that end inside a packet, for rows of more than 4096 packets, and for rows of f32 of more than 1024 packets. For these
/// rows of f32 the two-shot is faster up to some MiB (4 ranks, rows of 32 KiB: the two-shot took 14.6 us and the alternative
/// 18.0 us at 2 MiB, but 60.3 and 54.4 us at 8 MiB).
fn is_slow(kind: DeviceKind, algorithm: Algorithm, dtype: Dtype, hidden: usize) -> bool {
    let tiles = if dtype == Dtype::F32 { 1 } else { MOST_CLUSTERED_TILES };
    let most_bytes = (NORM_COLUMNS * tiles) as usize * PACKET_BYTES;
    let row_bytes = hidden.saturating_mul(dtype.bytes());
    let clusters = row_bytes <= most_bytes && row_bytes.is_multiple_of(PACKET_BYTES);
    kind == DeviceKind::Cuda && algorithm == Algorithm::TwoShotSentinel && !clusters
}

/// Whether a fused algorithm should serve rows of `hidden` elements. A slow algorithm serves only rows whose sum has no place. `fits`: whether the
/// algorithm can serve the rows.
pub(super) fn suits(
    kind: DeviceKind,
    dtype: Dtype,
    hidden: usize,
    placed: impl Fn() -> bool,
    fits: impl Fn(&Algorithm) -> bool,
) -> impl Fn(&Algorithm) -> bool {
    move |algorithm| fits(algorithm) && !(is_slow(kind, *algorithm, dtype, hidden) && placed())
}

/// Whether a fused algorithm can serve rows of `row_packets` packets: a row fits its scratch, whose slots have `slot_packets`
/// packets, and the algorithm can quantise if `quantised`.
pub(super) fn fits(
    kind: DeviceKind,
    world: usize,
    row_packets: usize,
    quantised: bool,
    slot_packets: impl Fn(Algorithm) -> u64,
) -> impl Fn(&Algorithm) -> bool {
    let anywhere = quantises_anywhere(kind, quantised);
    move |algorithm| {
        let rows = rows_at_once(*algorithm, world, slot_packets(*algorithm), row_packets);
        rows > 0 && (anywhere || *algorithm == Algorithm::TwoShotSentinel)
    }
}

/// Largest message of the fused two-shot of scattered rows. `gathers`: whether peers can address input and outputs, so that the
/// zero-copy kernel serves larger messages. Measured on 2 and 4 H100; on the CPU an estimate.
fn most_scattered(kind: DeviceKind, gathers: bool) -> u64 {
    if kind == DeviceKind::Host && gathers { 1 << 20 } else { 8 << 20 }
}

/// The fused algorithm for all rows of a call whose rows are scattered. `direct`: whether rows are gathered, and peers can
/// address both inputs and outputs. `None`: separate collectives and norm kernels.
pub(super) fn scattered_choice(kind: DeviceKind, bytes: u64, direct: bool) -> Option<Algorithm> {
    match bytes <= most_scattered(kind, direct) {
        true => Some(Algorithm::TwoShotSentinel),
        false => direct.then_some(Algorithm::TwoShotZeroCopy),
    }
}

/// The choice for every size of scattered rows. `Auto` stands for separate collectives and norm kernels.
pub(super) fn scattered_ranges(
    kind: DeviceKind,
    world: usize,
    direct: bool,
    fits: impl Fn(Algorithm) -> bool,
) -> Ranges<Algorithm> {
    let range = |up_to_bytes| {
        let fused = scattered_choice(kind, up_to_bytes, direct).filter(|algorithm| world > 1 && fits(*algorithm));
        match fused {
            Some(algorithm) => Range::new(up_to_bytes, algorithm, TOGETHER),
            None => Range::new(up_to_bytes, Algorithm::Auto, "collectives, and kernels that norm"),
        }
    };
    Ranges::new([most_scattered(kind, direct), u64::MAX].map(range))
}

/// The fused algorithm that a tuning names, or none.
fn fused_by(name: &str) -> Result<Option<Algorithm>> {
    let fused = if name == APART {
        None
    } else {
        Some(name.parse::<Algorithm>().ok().filter(|named| named.norms(&ALL_REDUCE_NORM)))
    };
    match fused {
        Some(None) => {
            let [one, two] = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel];
            Err(Error::invalid("a tuned norm", name, format!("it must be one of {one}, {two}, {APART}")))
        }
        fused => Ok(fused.flatten()),
    }
}

/// The number of rows of `row_packets` packets that fit the scratch of an algorithm, whose slots have `slot_packets` packets.
pub(super) fn rows_at_once(algorithm: Algorithm, world: usize, slot_packets: u64, row_packets: usize) -> usize {
    let slot = slot_packets as usize;
    match algorithm {
        Algorithm::OneShotSentinel => slot / row_packets.max(1),
        // Kernels count rows in 32 bits.
        Algorithm::TwoShotZeroCopy => u32::MAX as usize,
        _ => slot / row_pitch(row_packets) * world,
    }
}

/// Packets from one row to the next in the slots of a two-shot: whole memory lines, and a line for the scale of the row.
pub(super) fn row_pitch(row_packets: usize) -> usize {
    (row_packets.div_ceil(LINE_PACKETS as usize) + 1) * LINE_PACKETS as usize
}

#[cfg(test)]
#[path = "../../../tests/unit/collective/norm/choice.rs"]
mod tests;
