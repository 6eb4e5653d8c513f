//! The choice between kernels that sum and norm at once, and an all-reduce and a norm one after the other: a pure function
//! of device kind, world size and bytes, so that every rank chooses alike. On GPUs the limits are estimates from what the
//! all-reduces of these algorithms measured.

use super::select::Range;
use crate::device::DeviceKind;
use crate::op::Algorithm;

/// Largest message of the fused one-shot and of the fused two-shot, in bytes.
fn limits(kind: DeviceKind, world: usize) -> [u64; 2] {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match (kind, world) {
        // A CPU hides no latency: fewer copies are always faster.
        (DeviceKind::Host, _) => [4 * KIB, 8 * MIB],
        (_, 0..=2) => [896 * KIB, 8 * MIB],
        (_, 3..=4) => [128 * KIB, 8 * MIB],
        _ => [64 * KIB, 8 * MIB],
    }
}

/// The fused algorithm for all rows of a call; `None`: an all-reduce and then a norm.
pub(super) fn choice(kind: DeviceKind, world: usize, bytes: u64) -> Option<Algorithm> {
    let [one_shot, two_shot] = limits(kind, world);
    match bytes {
        _ if bytes <= one_shot => Some(Algorithm::OneShotSentinel),
        _ if bytes <= two_shot => Some(Algorithm::TwoShotSentinel),
        _ => None,
    }
}

/// Largest message of the fused two-shot of scattered rows, where peers reach input and output and the zero-copy kernel
/// serves larger ones, and where they do not. Estimates, on every device.
const SCATTERED: [u64; 2] = [1 << 20, 8 << 20];

/// The fused algorithm for all rows of a call whose rows are scattered. `direct`: whether rows are gathered into outputs
/// that peers can address, from inputs that they can address. `None`: a reduce-scatter and so on, one after the other.
pub(super) fn scattered_choice(bytes: u64, direct: bool) -> Option<Algorithm> {
    match (bytes, direct) {
        (bytes, true) if bytes > SCATTERED[0] => Some(Algorithm::TwoShotZeroCopy),
        (bytes, _) if bytes <= SCATTERED[1] => Some(Algorithm::TwoShotSentinel),
        _ => None,
    }
}

/// The choice for every size of scattered rows. `Auto` stands for collectives and kernels one after the other.
pub(super) fn scattered_ranges(world: usize, direct: bool, fits: impl Fn(Algorithm) -> bool) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for up_to_bytes in if direct { [SCATTERED[0], u64::MAX] } else { [SCATTERED[1], u64::MAX] } {
        let fused = scattered_choice(up_to_bytes, direct).filter(|algorithm| world > 1 && fits(*algorithm));
        let range = match fused {
            Some(algorithm) => Range { up_to_bytes, algorithm, reason: "one kernel sums and norms" },
            None => Range { up_to_bytes, algorithm: Algorithm::Auto, reason: "collectives, and kernels that norm" },
        };
        // Neighbours with equal algorithms are one range.
        ranges.pop_if(|last| last.algorithm == range.algorithm);
        ranges.push(range);
    }
    ranges
}

/// The choice for every size. `sums` are the all-reduces of other sizes; `fits`: whether a row fits the scratch of a fused
/// algorithm.
pub(super) fn ranges(kind: DeviceKind, world: usize, sums: &[Range], fits: impl Fn(Algorithm) -> bool) -> Vec<Range> {
    let [one_shot, two_shot] = limits(kind, world);
    let fused = |up_to_bytes, algorithm| Range { up_to_bytes, algorithm, reason: "one kernel sums and norms" };
    let fused = [fused(one_shot, Algorithm::OneShotSentinel), fused(two_shot, Algorithm::TwoShotSentinel)];
    let mut ranges = Vec::new();
    let mut done = None;
    for range in fused {
        if world > 1 && fits(range.algorithm) {
            ranges.push(range);
        } else {
            ranges.extend(apart(sums, done, range.up_to_bytes));
        }
        done = Some(range.up_to_bytes);
    }
    ranges.extend(apart(sums, done, u64::MAX));
    ranges
}

/// All-reduces of messages larger than `from`, up to `to`.
fn apart(sums: &[Range], from: Option<u64>, to: u64) -> impl Iterator<Item = Range> {
    let begins = sums.iter().position(|range| from.is_none_or(|from| range.up_to_bytes > from)).unwrap_or(sums.len());
    let ends = sums.iter().position(|range| range.up_to_bytes >= to).unwrap_or(sums.len().saturating_sub(1));
    sums[begins..=ends.max(begins)].iter().map(move |range| Range {
        up_to_bytes: range.up_to_bytes.min(to),
        reason: "an all-reduce, then a kernel norms",
        ..*range
    })
}

#[cfg(test)]
#[path = "../../tests/unit/collective/norm_choice.rs"]
mod tests;
