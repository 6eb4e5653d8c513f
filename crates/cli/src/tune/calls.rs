//! The kinds of calls that a tuning measures, and the built-in choices for each kind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::experts::{Method, explain_experts};
use symmetra::mixed::MixedOperation;
use symmetra::{Algorithm, Config, Device, Dtype, Range, Ranges, explain, explain_norm};

use crate::grid::GridWorld;
use harness::experts::ExpertShape;
use harness::failure::CommandFailure;
use harness::names::by_name;

/// The name of an unfused all-reduce and norm in a tuning.
pub(super) const APART: &str = "apart";
/// The algorithms that sum and norm in one kernel.
pub(super) const FUSED: [Algorithm; 2] = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel];

/// Calls that one table of the tuning serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum TunedCalls {
    Sums {
        #[serde(with = "by_name")]
        dtype: Dtype,
        /// Whether peers can address the operands.
        direct: bool,
    },
    /// All-reduces and norms of rows in symmetric memory. A size is the bytes of all rows.
    Norms {
        #[serde(with = "by_name")]
        dtype: Dtype,
        /// Elements of a row.
        hidden: usize,
    },
    /// A dispatch of rows of bf16 and its combine. A size is the bytes of the rows that a rank sends in the dispatch.
    Experts(ExpertShape),
    /// An operation over a mesh. A size is the bytes of `x` or of a slice.
    Grid {
        world: GridWorld,
        #[serde(with = "by_name")]
        dtype: Dtype,
        #[serde(with = "by_name")]
        operation: MixedOperation,
        /// Whether peers can address the operands.
        direct: bool,
    },
}

/// One size, agreed among the ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AgreedSize {
    pub(super) calls: TunedCalls,
    pub(super) bytes: u64,
    /// Times of one operation, by the name of the candidate: an algorithm, a codec, a method or a mode.
    pub(super) times_ns: BTreeMap<String, u64>,
}

impl TunedCalls {
    pub(super) const fn dtype(&self) -> Dtype {
        match self {
            Self::Sums { dtype, .. } | Self::Norms { dtype, .. } | Self::Grid { dtype, .. } => *dtype,
            Self::Experts(_) => Dtype::BF16,
        }
    }

    /// The kind of memory of the operands.
    pub(super) const fn memory(&self) -> &'static str {
        match self {
            Self::Sums { direct: true, .. } | Self::Norms { .. } | Self::Grid { direct: true, .. } => "symmetric",
            _ => "plain",
        }
    }

    /// The built-in choice of every size, by name.
    pub(super) fn built_in(&self, device: &Device, ranks: usize) -> Result<Ranges<String>, CommandFailure> {
        let kind = device.kind();
        match self {
            Self::Sums { dtype, direct } => {
                let ranges = explain(kind, Some(device), ranks, None)?(*dtype, *direct);
                by_names(ranges, |algorithm| Ok(Algorithm::name(algorithm)))
            }
            Self::Norms { dtype, hidden } => {
                let ranges = explain_norm(kind, Some(device), ranks, &Config::default())?(*dtype, *hidden, true);
                by_names(ranges, |algorithm| Ok(named(algorithm)))
            }
            Self::Experts(_) => by_names(explain_experts(kind, ranks, None)?, |method| Ok(Method::name(method))),
            Self::Grid { world, operation, direct, .. } => {
                let (config, local, hosts) = (world.config(), world.local(), world.hosts);
                let ranges = config.choices(local, hosts, *operation, kind, *direct, None)?;
                by_names(ranges, |mode| Ok(config.first_alike(local, hosts, *operation, mode)?.name()))
            }
        }
    }
}

/// The names of choices. Neighbours with equal names are one range.
fn by_names<K>(
    ranges: Ranges<K>,
    name: impl Fn(K) -> symmetra::Result<&'static str>,
) -> Result<Ranges<String>, CommandFailure> {
    let named = |range: Range<K>| Ok(Range::new(range.up_to_bytes, name(range.choice)?.to_owned(), ""));
    Ok(Ranges::new(ranges.into_iter().map(named).collect::<symmetra::Result<Vec<_>>>()?))
}

/// The name of a choice for norms in a tuning.
fn named(algorithm: Algorithm) -> &'static str {
    if FUSED.contains(&algorithm) { algorithm.name() } else { APART }
}
