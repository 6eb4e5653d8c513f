//! The settings of experts, equal on every rank.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::group::{Determinism, MAX_WORLD_SIZE};
use crate::kernel::args;
use crate::settings::{as_text, named, setters};
use crate::types::Dtype;

/// The settings of [`Experts`](super::Experts), equal on every rank of the group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExpertConfig {
    /// The number of experts of the model's layer: 1 to 65,534.
    pub experts: usize,
    /// The number of experts of a token: 1 to 64.
    pub top_k: usize,
    /// Elements of a row: 1 to 65,536.
    pub hidden: usize,
    /// Most tokens of a rank in a dispatch.
    pub max_tokens: usize,
    /// The type of the caller's rows and results: f32, f16 or bf16. Default bf16.
    pub dtype: Dtype,
    /// How rows travel to experts. Default [`Wire::Same`].
    pub wire: Wire,
    /// The order of received rows. Default [`Layout::ByRank`].
    pub layout: Layout,
    /// How ranks exchange rows. Default [`Method::Auto`].
    pub method: Method,
    /// The ranks of the experts. Default [`Placement::Blocks`].
    pub placement: Placement,
    /// The determinism of a combine; `None`: the group's. [`Determinism::Exact`]: each result is sent separately, and the sum is
    /// in the order of a token's experts, independent of the world size and the placement.
    /// [`Determinism::PerAlgorithm`]: a rank sums the results of its own experts first.
    pub determinism: Option<Determinism>,
    /// Most rows that a rank may receive, including unused rows of the alignment; `None`: the worst case.
    /// [`Layout::Padded`] has its own limit, and [`Layout::BySource`] always has room for all rows.
    pub capacity: Option<usize>,
    /// Most dispatches between dispatch and combine at the same time, and most combines that are begun and not received: 1 to 3.
    /// Default 1. Dispatches use `in_flight` slots in turn, so that a dispatch has the same slot on all ranks. At most
    /// `in_flight - 1` dispatches may be made between a dispatch and the drop of its handle.
    pub in_flight: usize,
    /// Most blocks of a kernel; `None`: the best number.
    pub blocks: Option<u32>,
}

setters! { ExpertConfig {
    experts: usize, top_k: usize, hidden: usize, max_tokens: usize, dtype: Dtype, wire: Wire, layout: Layout,
    method: Method, placement: Placement, determinism: Option<Determinism>, capacity: Option<usize>,
    in_flight: usize, blocks: Option<u32>,
} }

/// How rows travel from tokens to experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// Unchanged, bit for bit.
    Same,
    /// As e4m3 values, with a scale for each 128 elements of a row. With `most` the largest magnitude of a group, at least
    /// 1e-4: `scale = most / 448`, and a value is `x (448 / most)`, rounded to nearest, ties to even.
    F8(Scales),
    /// As e4m3 values and f32 scales, one for each 128 elements, which the caller provides.
    GivenF8,
    /// As this many bytes a row, bit for bit: 1 to 2^20.
    Bytes(usize),
}

/// `same`, `f8:` and the name of the scales, `given-f8`, or `bytes:` and a number.
impl fmt::Display for Wire {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => out.write_str("same"),
            Self::F8(scales) => write!(out, "f8:{scales}"),
            Self::GivenF8 => out.write_str("given-f8"),
            Self::Bytes(bytes) => write!(out, "bytes:{bytes}"),
        }
    }
}

impl FromStr for Wire {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes. `f8` alone is `f8:f32`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other text.
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest))) {
            ("same", None) => Self::Same,
            ("f8", scales) => Self::F8(scales.map_or(Ok(Scales::F32), str::parse)?),
            ("given-f8", None) => Self::GivenF8,
            ("bytes", Some(bytes)) => Self::Bytes(number("the bytes of a row", bytes)?),
            _ => {
                let limit = "it must be same, f8:f32, f8:powers-of-two, f8:e8m0, given-f8 or bytes:N";
                return Err(Error::invalid("the wire", text, limit));
            }
        })
    }
}

as_text!(Wire);

/// The scales of [`Wire::F8`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scales {
    /// f32.
    F32,
    /// f32: the least power of two for which no value saturates.
    PowersOfTwo,
    /// [`PowersOfTwo`](Self::PowersOfTwo) as the byte of an e8m0.
    E8M0,
}

impl Scales {
    /// Every kind of scales.
    pub const ALL: [Self; 3] = [Self::F32, Self::PowersOfTwo, Self::E8M0];

    /// The name used in settings and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::PowersOfTwo => "powers-of-two",
            Self::E8M0 => "e8m0",
        }
    }
}

named!(Scales, "the scales", Self::ALL);

/// The order of the rows that a rank receives, which depends only on the ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// A row for each token that has an expert on this rank, by source rank and token. The caller returns one row for each
    /// received row: the sum over its experts.
    ByRank,
    /// A row for each pair of a token and an expert on this rank, ordered by local expert, source rank, token, and position
    /// among the token's experts. The rows of an expert begin at a multiple of `align`.
    ByExpert {
        /// At least 1.
        align: usize,
    },
    /// The order of [`ByExpert`](Self::ByExpert), with room for `rows` rows of every local expert.
    Padded {
        /// At least 1.
        rows: usize,
    },
    /// Room for a row of each token of each rank: row `source * max_tokens + token`. A row without an expert on this rank is not
    /// written; its [`ids`](super::Received::ids) are -1 and its weights 0, so ids show which rows were received. No place
    /// depends on the tokens of other ranks, so with packets this is the fastest layout. There are no counts, offsets or index.
    /// The caller returns one row for each received row: the sum over its experts.
    BySource,
}

impl Layout {
    /// Whether a token has one row on a rank, whose experts the caller sums, and not one row for each of its experts there.
    pub(super) const fn is_by_token(self) -> bool {
        matches!(self, Self::ByRank | Self::BySource)
    }
}

/// `by-rank`, `by-expert:` and the alignment, `padded:` and the rows, or `by-source`.
impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByRank => out.write_str("by-rank"),
            Self::ByExpert { align } => write!(out, "by-expert:{align}"),
            Self::Padded { rows } => write!(out, "padded:{rows}"),
            Self::BySource => out.write_str("by-source"),
        }
    }
}

impl FromStr for Layout {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes. `by-expert` alone is `by-expert:1`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other text.
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest))) {
            ("by-rank", None) => Self::ByRank,
            ("by-expert", align) => {
                Self::ByExpert { align: align.map_or(Ok(1), |align| number("the alignment", align))? }
            }
            ("padded", Some(rows)) => Self::Padded { rows: number("the rows of an expert", rows)? },
            ("by-source", None) => Self::BySource,
            _ => {
                let limit = "it must be by-rank, by-expert:ALIGN, padded:ROWS or by-source";
                return Err(Error::invalid("the layout", text, limit));
            }
        })
    }
}

as_text!(Layout);

/// A number in the text of a setting.
fn number(what: &'static str, text: &str) -> Result<usize> {
    text.parse().map_err(|_| Error::invalid(what, format_args!("`{text}`"), "it must be a number"))
}

/// The error of a method that needs symmetra kernels.
pub(super) fn without_own_kernels(what: &str) -> Error {
    Error::unsupported(what, "own kernels do not serve the group, so ranks cannot address each other's memory")
}

/// How ranks exchange rows. All methods give equal results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// The library's choice. If symmetra kernels serve the group: [`Packets`](Self::Packets) if packets support the settings,
    /// the heap is as large as their region, and the rows of [`max_tokens`](ExpertConfig::max_tokens) tokens are small enough,
    /// else [`Direct`](Self::Direct). If symmetra kernels do not serve the group: [`Gather`](Self::Gather).
    /// [`explain_experts`](super::explain_experts) returns the table. A program that plans, or dispatches a routing again, must
    /// name a method.
    Auto,
    /// Rows and results are sent in packets that prove their own arrival, without barriers. For small numbers of tokens: at most
    /// 8192 tokens of all ranks and 2048 expert replicas. Routing and rows are sent together, so a plan, and another dispatch of
    /// a routing, are unsupported. A NaN may become another NaN. If all four scales of [`Scales::E8M0`] in one word are NaN, the
    /// last becomes 2^127. Only with symmetra kernels.
    Packets,
    /// A rank writes each row once into the memory of each rank that has an expert of the row's token, and its part of each
    /// token's sum into the memory of the token's rank. By rank and by source, rows are written directly to their places if
    /// received rows are symmetric memory, and results are read directly if they are symmetric memory. Then all ranks must pass
    /// the same symmetric memory. Only with symmetra kernels.
    Direct,
    /// An all-gather of all ranks' rows, and an all-to-all of the results.
    Gather,
    /// A broadcast of each rank's rows, and an all-to-all of the results.
    Broadcast,
}

impl Method {
    /// Every method, `Auto` first.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Packets, Self::Direct, Self::Gather, Self::Broadcast];

    /// The name used on the command line and in tuning files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Packets => "packets",
            Self::Direct => "direct",
            Self::Gather => "gather",
            Self::Broadcast => "broadcast",
        }
    }
}

named!(Method, "the method", Self::ALL);

/// The assignment of experts to ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Placement {
    /// Contiguous blocks: rank r has experts r E / W to (r + 1) E / W, of E experts on W ranks.
    Blocks,
    /// Expert e on rank e modulo the world size.
    RoundRobin,
    /// The experts of every rank, in local order. An expert may be on several ranks: a token uses the expert replica on its own
    /// rank, else replica (rank + token) modulo the number of replicas.
    Table(Vec<Vec<usize>>),
}

impl ExpertConfig {
    /// The default settings of a layer with these numbers of experts, experts a token, elements a row and tokens a rank.
    pub fn new(experts: usize, top_k: usize, hidden: usize, max_tokens: usize) -> Self {
        Self {
            experts,
            top_k,
            hidden,
            max_tokens,
            dtype: Dtype::BF16,
            wire: Wire::Same,
            layout: Layout::ByRank,
            method: Method::Auto,
            placement: Placement::Blocks,
            determinism: None,
            capacity: None,
            in_flight: 1,
            blocks: None,
        }
    }

    /// The method and the layout of a backend by its name in inference engines: `naive`, `allgather_reducescatter`, `mori`,
    /// `deepep_high_throughput` (rows by rank), or `deepep_low_latency` (padded, with room for a row of each token of
    /// `world_size` ranks; an expert that a token names twice takes two rows).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another name.
    pub fn backend(self, name: &str, world_size: usize) -> Result<Self> {
        let (method, layout) = match name {
            "naive" => (Method::Broadcast, Layout::ByRank),
            "allgather_reducescatter" => (Method::Gather, Layout::ByRank),
            "mori" | "deepep_high_throughput" => (Method::Direct, Layout::ByRank),
            "deepep_low_latency" => {
                (Method::Packets, Layout::Padded { rows: self.max_tokens.saturating_mul(world_size) })
            }
            _ => {
                let limit = format!("the backends of experts are {}", BACKENDS.join(", "));
                return Err(Error::invalid("the backend", name, limit));
            }
        };
        Ok(Self { method, layout, ..self })
    }

    /// Refuses settings outside their limits.
    pub(super) fn validate(&self, world_size: usize) -> Result<()> {
        check("the world size", world_size, 1, MAX_WORLD_SIZE)?;
        check("the number of experts", self.experts, 1, args::kMostReplicas as usize)?;
        check("the number of experts of a token", self.top_k, 1, args::kMostTopK as usize)?;
        check("the elements of a row", self.hidden, 1, args::kMostExpertHidden as usize)?;
        check("max_tokens", self.max_tokens, 1, MOST_PAIRS / (world_size * self.top_k))?;
        check("in_flight", self.in_flight, 1, MOST_IN_FLIGHT)?;
        check("blocks", self.blocks.map_or(1, |blocks| blocks as usize), 1, args::kMostNormBlocks as usize)?;
        if let Some(capacity) = self.capacity {
            check("the capacity", capacity, 1, MOST_PAIRS)?;
        }
        match self.layout {
            Layout::ByRank | Layout::BySource => {}
            Layout::ByExpert { align } => check("the alignment of rows", align, 1, MOST_ALIGN)?,
            Layout::Padded { rows } => check("the rows of an expert", rows, 1, MOST_PAIRS / self.experts)?,
        }
        if let Wire::Bytes(bytes) = self.wire {
            check("the bytes of a row", bytes, 1, MOST_ROW_BYTES)?;
        }
        if !matches!(self.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            return Err(Error::invalid("the type of rows", self.dtype, "it must be f32, f16 or bf16"));
        }
        Ok(())
    }
}

impl Placement {
    /// The experts of every rank.
    pub(super) fn lists(&self, experts: usize, world_size: usize) -> Result<Vec<Vec<usize>>> {
        let lists = match self {
            Self::Blocks => {
                let first = |rank: usize| rank * experts / world_size;
                (0..world_size).map(|rank| (first(rank)..first(rank + 1)).collect()).collect()
            }
            Self::RoundRobin => (0..world_size).map(|rank| (rank..experts).step_by(world_size).collect()).collect(),
            Self::Table(lists) => lists.clone(),
        };
        check_lists(&lists, experts, world_size)?;
        Ok(lists)
    }
}

/// Refuses a table that omits an expert, or has an expert twice on a rank.
fn check_lists(lists: &[Vec<usize>], experts: usize, world_size: usize) -> Result<()> {
    if lists.len() != world_size {
        let limit = format!("the world size is {world_size}");
        return Err(Error::invalid("the number of lists of experts", lists.len(), limit));
    }
    let replicas: usize = lists.iter().map(Vec::len).sum();
    let mut homes = vec![None; experts];
    for (rank, list) in lists.iter().enumerate() {
        for expert in list {
            let Some(home) = homes.get_mut(*expert) else {
                let limit = format!("there are {experts}");
                return Err(Error::invalid(&format!("an expert of rank {rank}"), expert, limit));
            };
            if *home == Some(rank) {
                let limit = "a rank has a copy of an expert once";
                return Err(Error::invalid(&format!("an expert of rank {rank}, listed twice,"), expert, limit));
            }
            *home = Some(rank);
        }
    }
    if let Some(expert) = homes.iter().position(Option::is_none) {
        return Err(Error::invalid("an expert that no rank has", expert, "each is on at least one rank"));
    }
    check("the number of expert replicas", replicas, 1, args::kMostReplicas as usize)
}

/// The names that [`ExpertConfig::backend`] accepts.
const BACKENDS: [&str; 5] =
    ["naive", "allgather_reducescatter", "mori", "deepep_high_throughput", "deepep_low_latency"];

const MOST_IN_FLIGHT: usize = 3;
const MOST_ALIGN: usize = 1 << 16;
const MOST_ROW_BYTES: usize = 1 << 20;
/// Kernels count pairs of tokens and experts, and rows, in 32 bits.
const MOST_PAIRS: usize = u32::MAX as usize / 2;

fn check(what: &str, value: usize, least: usize, most: usize) -> Result<()> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(Error::invalid(what, value, format!("it must be {least} to {most}"))),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/experts/config.rs"]
mod tests;
