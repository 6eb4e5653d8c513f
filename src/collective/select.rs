//! Which algorithm serves which message: a pure table of world, bytes, type and reach, so that
//! every rank picks alike. The built-in crossovers were measured on 2 and 4 H200 (NVLink 4, no multicast) and,
//! for the host, on a CPU of two cores; those for more GPUs are carried over. A tuning measured on the
//! machine at hand replaces them. `explain` prints what is in force.

use std::fmt;
use std::str::FromStr;

use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::{Capabilities, TunedRow, Tuning};
use crate::kernel::args;
use crate::types::Dtype;

/// An all-reduce algorithm, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// The table's choice.
    #[default]
    Auto,
    /// Everyone sends everything to everyone, 8 data bytes and two epochs a packet (the LL
    /// protocol of NCCL). Any type. Lowest latency for the smallest messages.
    OneShotLL,
    /// The same with 16 data bytes a packet; a packet that has not arrived is a NaN pattern no
    /// sender sends (Lamport style, as in TensorRT-LLM). Floating types.
    OneShotSentinel,
    /// Reduce-scatter and all-gather, both pushed without a barrier, LL packets. Any type.
    TwoShotLL,
    /// The same with sentinel packets. Floating types.
    TwoShotSentinel,
    /// Each rank reads its share from all inputs and writes the sum into all outputs, between two
    /// barriers. Symmetric or adopted memory; any type.
    TwoShotZeroCopy,
}

impl Algorithm {
    /// Every algorithm that runs, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::OneShotLL, Self::OneShotSentinel, Self::TwoShotLL, Self::TwoShotSentinel, Self::TwoShotZeroCopy];

    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::OneShotLL => "one-shot-ll",
            Self::OneShotSentinel => "one-shot-sentinel",
            Self::TwoShotLL => "two-shot-ll",
            Self::TwoShotSentinel => "two-shot-sentinel",
            Self::TwoShotZeroCopy => "two-shot-zero-copy",
        }
    }

    /// Whether it can carry this type.
    pub const fn carries(self, dtype: Dtype) -> bool {
        match self {
            Self::OneShotSentinel | Self::TwoShotSentinel => dtype.is_float(),
            _ => true,
        }
    }

    /// Whether peers must be able to address the operands.
    pub const fn needs_reach(self) -> bool {
        matches!(self, Self::TwoShotZeroCopy)
    }

    /// Its number in the argument blocks.
    pub(crate) const fn number(self) -> u32 {
        match self {
            // Never reaches a kernel: selection replaces it.
            Self::Auto => u32::MAX,
            Self::OneShotLL => args::kOneShotLL,
            Self::OneShotSentinel => args::kOneShotSentinel,
            Self::TwoShotLL => args::kTwoShotLL,
            Self::TwoShotSentinel => args::kTwoShotSentinel,
            Self::TwoShotZeroCopy => args::kTwoShotZeroCopy,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let all = || [Self::Auto].into_iter().chain(Self::ALL);
        all().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            let names: Vec<_> = all().map(Self::name).collect();
            Error::invalid("the algorithm", name, format!("it must be one of {}", names.join(", ")))
        })
    }
}

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

/// Up to which size one-shot LL, one-shot sentinel and the pushed two-shot are fastest.
#[derive(Clone, Copy)]
struct Crossovers {
    ll: u64,
    one_shot: u64,
    two_shot: u64,
    reason: &'static str,
}

const MEASURED: &str = "built-in, measured on H200";

/// The built-in crossovers: measured on H100 and H200 and taken for all GPUs of their generation
/// or a later one. Latencies differ little between generations, links do: where they are slower,
/// moving less pays at smaller messages.
fn crossovers(kind: DeviceKind, devices: Option<&Capabilities>, world: usize) -> Crossovers {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    if kind == DeviceKind::Host {
        // A CPU has no latency to hide: the fewer copies the better.
        let reason = "built-in, measured on a CPU of two cores";
        return Crossovers { ll: KIB, one_shot: 4 * KIB, two_shot: 4 * KIB, reason };
    }
    let one_shot = match world {
        0..=2 => 512 * KIB,
        3..=4 => 128 * KIB,
        _ => 32 * KIB,
    };
    let (slower, reason) = match devices.map(|devices| devices.compute_capability) {
        None | Some((9.., _)) => (1, MEASURED),
        // NVLink 3 has half the bandwidth.
        Some((8, 0)) => (2, "built-in, estimated from the compute capability"),
        // Most of these have no NVLink at all.
        Some(_) => (8, "built-in, estimated from the compute capability"),
    };
    Crossovers { ll: 0, one_shot: one_shot / slower, two_shot: 4 * MIB / slower, reason }
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
        tuning: Option<&Tuning>,
    ) -> Result<Self> {
        let mut ranges: [[Vec<Range>; 2]; 2] = Default::default();
        for (floating, reach) in
            [(false, Reach::Pushed), (false, Reach::Direct), (true, Reach::Pushed), (true, Reach::Direct)]
        {
            let direct = reach == Reach::Direct;
            let tuned = tuning.filter(|tuning| tuning.kind == kind.name());
            ranges[usize::from(floating)][usize::from(direct)] =
                match tuned.and_then(|tuning| tuning.rows(world, floating, direct)) {
                    Some(rows) => tuned_ranges(rows, floating, direct)?,
                    None => merged(&builtin(&crossovers(kind, devices, world), floating, reach)),
                };
        }
        Ok(Self { ranges })
    }

    /// The ranges that serve something, smallest messages first. The last ends with `u64::MAX`.
    pub(super) fn ranges(&self, dtype: Dtype, reach: Reach) -> &[Range] {
        &self.ranges[usize::from(dtype.is_float())][usize::from(reach == Reach::Direct)]
    }

    /// The algorithm for one message. Allocates nothing.
    pub(super) fn select(&self, dtype: Dtype, reach: Reach, bytes: u64) -> Algorithm {
        let ranges = self.ranges(dtype, reach);
        ranges.iter().find(|range| bytes <= range.up_to_bytes).map_or(Algorithm::TwoShotLL, |range| range.algorithm)
    }
}

/// The built-in rows for one kind of call; one no larger than the one before serves nothing.
fn builtin(crossovers: &Crossovers, floating: bool, reach: Reach) -> [Range; 4] {
    let Crossovers { ll, one_shot, two_shot, reason } = *crossovers;
    let row = |up_to_bytes, algorithm| Range { up_to_bytes, algorithm, reason };
    let (one, two) = match floating {
        true => (Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel),
        false => (Algorithm::OneShotLL, Algorithm::TwoShotLL),
    };
    // LL packets are half empty: the crossovers come at half the size.
    let half = if floating { 1 } else { 2 };
    let last = match reach {
        Reach::Direct => Algorithm::TwoShotZeroCopy,
        Reach::Pushed => two,
    };
    [row(ll, Algorithm::OneShotLL), row(one_shot / half, one), row(two_shot / half, two), row(u64::MAX, last)]
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
fn tuned_ranges(rows: &[TunedRow], floating: bool, direct: bool) -> Result<Vec<Range>> {
    let range = |row: &TunedRow| {
        let algorithm: Algorithm = row.algorithm.parse()?;
        let able = algorithm != Algorithm::Auto
            && (floating || algorithm.carries(Dtype::I32))
            && (direct || !algorithm.needs_reach());
        if !able {
            let calls = format!("{} in {}", kind_of(floating), if direct { "shared memory" } else { "plain memory" });
            return Err(Error::invalid("a tuned algorithm", &row.algorithm, format!("it must serve {calls}")));
        }
        let up_to_bytes = row.up_to_bytes.unwrap_or(u64::MAX);
        Ok(Range { up_to_bytes, algorithm, reason: "measured on this machine by `symmetra tune`" })
    };
    rows.iter().map(range).collect()
}

const fn kind_of(floating: bool) -> &'static str {
    if floating { "floating types" } else { "integers" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::TunedTable;
    use proptest::prelude::*;

    fn devices(major: u32) -> Capabilities {
        Capabilities { name: String::new(), compute_capability: (major, 0), multiprocessors: 100 }
    }

    proptest! {
        #[test]
        fn every_message_has_an_algorithm_that_carries_it(
            world in 2usize..=16, bytes in 0u64..1 << 40, direct: bool, major in 6u32..13,
        ) {
            let reach = if direct { Reach::Direct } else { Reach::Pushed };
            for kind in [DeviceKind::Host, DeviceKind::Cuda] {
                let table = Table::new(kind, Some(&devices(major)), world, None).unwrap();
                for dtype in Dtype::ALL {
                    let algorithm = table.select(dtype, reach, bytes);
                    prop_assert!(algorithm.carries(dtype));
                    prop_assert!(direct || !algorithm.needs_reach());
                    let rows = table.ranges(dtype, reach);
                    prop_assert!(rows.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes));
                    prop_assert_eq!(rows.last().unwrap().up_to_bytes, u64::MAX);
                    let row = rows.iter().find(|row| bytes <= row.up_to_bytes).unwrap();
                    prop_assert_eq!(row.algorithm, algorithm);
                }
            }
        }
    }

    fn tuning(algorithm: &str, floating: bool, direct: bool) -> Tuning {
        let row = |up_to_bytes, algorithm: &str| TunedRow { up_to_bytes, algorithm: algorithm.to_owned() };
        let rows = vec![row(Some(100), "one-shot-ll"), row(None, algorithm)];
        Tuning {
            version: Tuning::VERSION,
            library: String::new(),
            device: String::new(),
            kind: "cuda".to_owned(),
            tables: vec![TunedTable { world_size: 3, floating, direct, rows }],
        }
    }

    #[test]
    fn a_tuning_beats_the_table_where_it_has_measured() {
        let tuning = tuning("two-shot-ll", true, true);
        let table = |kind, world| Table::new(kind, None, world, Some(&tuning)).unwrap();
        let tuned = table(DeviceKind::Cuda, 3);
        assert_eq!(tuned.select(Dtype::F32, Reach::Direct, 100), Algorithm::OneShotLL);
        assert_eq!(tuned.select(Dtype::F32, Reach::Direct, 101), Algorithm::TwoShotLL);
        assert!(tuned.ranges(Dtype::F32, Reach::Direct)[0].reason.contains("symmetra tune"));
        for (table, dtype, reach) in [
            (&tuned, Dtype::I32, Reach::Direct),
            (&tuned, Dtype::F32, Reach::Pushed),
            (&table(DeviceKind::Cuda, 4), Dtype::F32, Reach::Direct),
            (&table(DeviceKind::Host, 3), Dtype::F32, Reach::Direct),
        ] {
            assert!(table.ranges(dtype, reach)[0].reason.contains("built-in"));
        }
    }

    #[test]
    fn a_tuning_that_cannot_serve_is_refused() {
        let refused = |algorithm, floating, direct| {
            Table::new(DeviceKind::Cuda, None, 3, Some(&tuning(algorithm, floating, direct))).is_err()
        };
        assert!(refused("two-shot-sentinel", false, true));
        assert!(refused("two-shot-zero-copy", true, false));
        assert!(refused("auto", true, true));
        assert!(refused("fastest", true, true));
        assert!(!refused("two-shot-zero-copy", true, true));
    }

    #[test]
    fn slower_links_move_less_sooner() {
        let limit = |major| {
            let table = Table::new(DeviceKind::Cuda, Some(&devices(major)), 8, None).unwrap();
            table.ranges(Dtype::F16, Reach::Direct)[0].up_to_bytes
        };
        assert!(limit(7) < limit(8) && limit(8) < limit(9));
        assert_eq!(limit(9), limit(10));
    }

    #[test]
    fn names_read_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse::<Algorithm>().unwrap(), algorithm);
        }
        assert!("fastest".parse::<Algorithm>().is_err());
    }
}
