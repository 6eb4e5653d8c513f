//! Which algorithm serves which message: a pure table of world, bytes, type and reach, so that
//! every rank picks alike. The built-in crossovers were measured on 2 and 4 H200 (NVLink 4, no multicast) and,
//! for the host, on a CPU of two cores; those for more GPUs are carried over. A tuning measured on the
//! machine at hand replaces them. `explain` prints what is in force.

use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::{Capabilities, Determinism, TunedRow, Tuning};
use crate::op::Algorithm;
use crate::types::{Dtype, Reduction};

/// Whether peers can address both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Symmetric or registered.
    Direct,
    /// Plain: everything is pushed.
    Pushed,
}

/// One range of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Largest message of the range, in bytes.
    pub up_to_bytes: u64,
    /// What serves it.
    pub algorithm: Algorithm,
    /// Why.
    pub reason: &'static str,
}

/// Up to which size what is fastest, in this order. One-shot LL wins on a CPU alone: on GPUs sentinel packets are never
/// slower, and integers have nothing else, up to the limit of one-shot.
#[derive(Clone, Copy)]
struct Crossovers {
    ll: u64,
    one_shot: u64,
    two_shot: u64,
    /// One-shot once more, where it moves no more than the two-shot does: between two ranks.
    one_shot_again: u64,
    /// Then, where peers reach the operands, the zero-copy two-shot;
    zero_copy: u64,
    /// where they do not, what pushed last, in several calls. The ring beyond.
    several: u64,
    reason: &'static str,
}

const MEASURED: &str = "built-in, measured on H200";
const TUNED: &str = "measured on this machine by `symmetra tune`";
/// Obeyed, since somebody chose it: but whoever asks why is told.
const TUNED_ELSEWHERE: &str = "measured by `symmetra tune`, but on another kind of device";

/// The built-in crossovers: measured on 2 and 4 H200 and taken for all GPUs of their generation
/// or a later one. Latencies differ little between generations, links do: where they are slower,
/// moving less pays at smaller messages.
fn crossovers(kind: DeviceKind, devices: Option<&Capabilities>, world: usize, floating: bool) -> Crossovers {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    if kind == DeviceKind::Host {
        // A CPU has no latency to hide: the fewer copies the better.
        let reason = "built-in, measured on a CPU of two cores";
        let (pushed, never) = (if floating { 4 * KIB } else { 2 * KIB }, u64::MAX);
        let (one_shot, two_shot) = (pushed, pushed);
        return Crossovers { ll: KIB, one_shot, two_shot, one_shot_again: 0, zero_copy: never, several: never, reason };
    }
    // LL packets, which are all that integers have, are half empty; and they take longer to reduce without a copy.
    let (one_shot, two_shot, one_shot_again, zero_copy, several) = match (world, floating) {
        (0..=2, true) => (896 * KIB, 2 * MIB, 4 * MIB, 24 * MIB, 12 * MIB),
        (0..=2, false) => (256 * KIB, MIB, 0, 12 * MIB, 2 * MIB),
        (3..=4, true) => (128 * KIB, 4 * MIB, 0, 24 * MIB, 16 * MIB),
        (3..=4, false) => (64 * KIB, MIB, 0, 12 * MIB, 3 * MIB),
        (_, true) => (32 * KIB, 4 * MIB, 0, 48 * MIB, 16 * MIB),
        (_, false) => (16 * KIB, MIB, 0, 24 * MIB, 6 * MIB),
    };
    let (slower, reason) = match devices.map(|devices| devices.compute_capability) {
        _ if kind == DeviceKind::Hip => (1, "built-in, those of NVIDIA GPUs: nothing was measured on AMD GPUs"),
        None | Some((9.., _)) if world <= 4 => (1, MEASURED),
        None | Some((9.., _)) => (1, "built-in, estimated from what 4 H200 measured"),
        // NVLink 3 has half the bandwidth.
        Some((8, 0)) => (2, "built-in, estimated from the compute capability"),
        // Most of these have no NVLink at all.
        Some(_) => (8, "built-in, estimated from the compute capability"),
    };
    let [one_shot, two_shot, one_shot_again] = [one_shot, two_shot, one_shot_again].map(|bytes| bytes / slower);
    Crossovers { ll: 0, one_shot, two_shot, one_shot_again, zero_copy, several, reason }
}

/// What serves which message of a communicator: computed when it opens, pure from there.
pub(super) struct Table {
    /// By `[floating][direct]`.
    ranges: [[Vec<Range>; 2]; 2],
}

impl Table {
    /// The tuning's ranges where it has any, else the built-in ones.
    pub(super) fn new(
        kind: DeviceKind,
        devices: Option<&Capabilities>,
        world: usize,
        determinism: Determinism,
        tuning: Option<&Tuning>,
    ) -> Result<Self> {
        let mut ranges: [[Vec<Range>; 2]; 2] = Default::default();
        let exact = determinism == Determinism::Exact;
        for (floating, reach) in
            [(false, Reach::Pushed), (false, Reach::Direct), (true, Reach::Pushed), (true, Reach::Direct)]
        {
            let direct = reach == Reach::Direct;
            let dtype = if floating { Dtype::F32 } else { Dtype::I32 };
            let allowed = |algorithm: Algorithm| !exact || algorithm.is_exact(dtype, world);
            let tuned = tuning.filter(|tuning| tuning.kind == kind.name());
            let here = |tuning: &Tuning| devices.is_none_or(|devices| devices.name == tuning.device);
            let reason = if tuned.is_none_or(here) { TUNED } else { TUNED_ELSEWHERE };
            ranges[usize::from(floating)][usize::from(direct)] =
                match tuned.and_then(|tuning| tuning.rows(world, floating, direct, exact)) {
                    Some(rows) => tuned_ranges(rows, floating, direct, allowed, reason)?,
                    None => {
                        let ring = allowed(Algorithm::Ring);
                        merged(&builtin(&crossovers(kind, devices, world, floating), floating, reach, ring))
                    }
                };
        }
        Ok(Self { ranges })
    }

    /// The ranges that serve something, smallest messages first. The last ends with `u64::MAX`.
    pub(super) fn ranges(&self, dtype: Dtype, reach: Reach) -> &[Range] {
        &self.ranges[usize::from(dtype.is_float())][usize::from(reach == Reach::Direct)]
    }

    /// The algorithm for one message: of its range, or where that cannot carry the reduction of the one
    /// before. Allocates nothing.
    pub(super) fn select(&self, dtype: Dtype, reduction: Reduction, reach: Reach, bytes: u64) -> Algorithm {
        let able = |range: &&Range| range.algorithm.reduces(dtype, reduction);
        let ranges = self.ranges(dtype, reach);
        let range = ranges.iter().filter(able).find(|range| bytes <= range.up_to_bytes);
        range.or(ranges.iter().rfind(able)).map_or(Algorithm::TwoShotLL, |range| range.algorithm)
    }
}

/// The built-in rows for one kind of call; one no larger than the one before serves nothing.
fn builtin(crossovers: &Crossovers, floating: bool, reach: Reach, ring: bool) -> [Range; 6] {
    let Crossovers { ll, one_shot, two_shot, one_shot_again, zero_copy, several, reason } = *crossovers;
    let until_ring = |bytes| if ring { bytes } else { u64::MAX };
    let row = |up_to_bytes, algorithm| Range { up_to_bytes, algorithm, reason };
    let (one, two) = match floating {
        true => (Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel),
        false => (Algorithm::OneShotLL, Algorithm::TwoShotLL),
    };
    let large = match reach {
        Reach::Direct => row(until_ring(zero_copy), Algorithm::TwoShotZeroCopy),
        Reach::Pushed => row(until_ring(several), if one_shot_again > two_shot { one } else { two }),
    };
    let [one_shot, again] = [one_shot, one_shot_again].map(|bytes| row(bytes, one));
    [row(ll, Algorithm::OneShotLL), one_shot, row(two_shot, two), again, large, row(u64::MAX, Algorithm::Ring)]
}

/// The ranges that serve something, merged where neighbours agree.
fn merged(rows: &[Range]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for row in rows {
        match ranges.last_mut() {
            _ if row.up_to_bytes == 0 => {}
            Some(last) if row.up_to_bytes <= last.up_to_bytes => {}
            Some(last) if row.algorithm == last.algorithm => *last = *row,
            _ => ranges.push(*row),
        }
    }
    ranges
}

/// A tuning's rows, if each can serve what it says.
fn tuned_ranges(
    rows: &[TunedRow],
    floating: bool,
    direct: bool,
    allowed: impl Fn(Algorithm) -> bool,
    reason: &'static str,
) -> Result<Vec<Range>> {
    let range = |row: &TunedRow| {
        let algorithm: Algorithm = row.algorithm.parse()?;
        let able = algorithm != Algorithm::Auto
            && (floating || algorithm.carries(Dtype::I32))
            && (direct || !algorithm.needs_reach());
        if !able {
            let calls = format!("{} in {}", kind_of(floating), if direct { "shared memory" } else { "plain memory" });
            return Err(Error::invalid("a tuned algorithm", &row.algorithm, format!("it must serve {calls}")));
        }
        if !allowed(algorithm) {
            let limit = "the configuration asks for exact determinism";
            return Err(Error::invalid("a tuned algorithm", &row.algorithm, limit));
        }
        let up_to_bytes = row.up_to_bytes.unwrap_or(u64::MAX);
        Ok(Range { up_to_bytes, algorithm, reason })
    };
    rows.iter().map(range).collect()
}

const fn kind_of(floating: bool) -> &'static str {
    if floating { "floating types" } else { "integers" }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/select.rs"]
mod tests;
