//! Layers of experts: their shapes, and how rows travel and lie.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::Determinism;
use symmetra::experts::{self, ExpertConfig, Method, Scales};

/// The sizes of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertShape {
    pub experts: usize,
    /// Experts of a token.
    pub top_k: usize,
    /// Elements of a row.
    pub hidden: usize,
}

/// Shapes that have names.
const NAMED: [(&str, ExpertShape); 2] = [
    ("deepseek", ExpertShape { experts: 256, top_k: 8, hidden: 7168 }),
    ("mixtral", ExpertShape { experts: 8, top_k: 2, hidden: 4096 }),
];

impl FromStr for ExpertShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, shape)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*shape);
        }
        let numbers: Option<Vec<usize>> = text.split(',').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[experts, top_k, hidden]) => Ok(Self { experts, top_k, hidden }),
            _ => {
                let names: Vec<_> = NAMED.iter().map(|(name, _)| *name).collect();
                let numbers = "experts, experts of a token and elements of a row, like 256,8,7168";
                Err(format!("it must be {}, or {numbers}", names.join(", ")))
            }
        }
    }
}

impl fmt::Display for ExpertShape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{},{},{}", self.experts, self.top_k, self.hidden)
    }
}

impl ExpertShape {
    /// The settings of experts of this shape, for `tokens` tokens of a rank. Each rank sums its own results first.
    pub fn config(self, tokens: usize) -> ExpertConfig {
        let mut config = ExpertConfig::new(self.experts, self.top_k, self.hidden, tokens);
        config.determinism = Some(Determinism::PerAlgorithm);
        config
    }
}

/// How rows travel to experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowWire {
    /// As e4m3 codes that a dispatch computes from rows of bf16, with an f32 scale for each 128 elements
    F8,
    /// Unchanged, rows of bf16
    Same,
    /// As e4m3 codes and scales that were made before
    GivenF8,
}

impl RowWire {
    /// The formats for rows of bf16.
    pub const OF_BF16: [Self; 2] = [Self::F8, Self::Same];

    pub const fn name(self) -> &'static str {
        match self {
            Self::F8 => "f8",
            Self::Same => "same",
            Self::GivenF8 => "given-f8",
        }
    }

    pub const fn setting(self) -> experts::Wire {
        match self {
            Self::F8 => experts::Wire::F8(Scales::F32),
            Self::Same => experts::Wire::Same,
            Self::GivenF8 => experts::Wire::GivenF8,
        }
    }

    /// The format in which a caller passes rows.
    pub const fn given(self) -> Self {
        match self {
            Self::F8 | Self::Same => Self::Same,
            Self::GivenF8 => Self::GivenF8,
        }
    }

    /// Bytes of a row of `hidden` elements in this format.
    pub fn row_bytes(self, hidden: usize) -> usize {
        match self {
            Self::F8 | Self::GivenF8 => hidden + 4 * groups(hidden),
            Self::Same => 2 * hidden,
        }
    }
}

/// Elements that have a scale together.
pub const GROUP: usize = 128;

/// Scales of a row.
pub fn groups(hidden: usize) -> usize {
    hidden.div_ceil(GROUP)
}

/// The order of received rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowOrder {
    /// A row for each token with an expert on the rank, by source rank and token
    ByRank,
    /// A row for each pair of a token and an expert on the rank, by expert, source rank and token
    ByExpert,
    /// By expert, with equal room for every expert
    Padded,
    /// Room for a row of each token of each rank, by source rank and token
    BySource,
}

impl RowOrder {
    pub const fn name(self) -> &'static str {
        match self {
            Self::ByRank => "by-rank",
            Self::ByExpert => "by-expert",
            Self::Padded => "padded",
            Self::BySource => "by-source",
        }
    }

    /// Whether a token has one row on a rank, so that the sum over its experts on that rank is returned.
    pub const fn is_by_token(self) -> bool {
        matches!(self, Self::ByRank | Self::BySource)
    }

    /// The library's layout. `rows` is the capacity of each expert where capacities are equal.
    pub const fn setting(self, rows: usize) -> experts::Layout {
        match self {
            Self::ByRank => experts::Layout::ByRank,
            Self::ByExpert => experts::Layout::ByExpert { align: 1 },
            Self::Padded => experts::Layout::Padded { rows },
            Self::BySource => experts::Layout::BySource,
        }
    }
}

/// How ranks exchange rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum RowExchange {
    /// The library's choice
    Auto,
    /// Packets that prove their own arrival, for few tokens
    Packets,
    /// Each row into the memory of the ranks of its experts, results read where they are
    Direct,
    /// All-gather of all ranks' rows, all-to-all of the results
    Gather,
    /// Broadcast of each rank's rows, all-to-all of the results
    Broadcast,
}

impl RowExchange {
    pub const fn name(self) -> &'static str {
        self.setting().name()
    }

    pub const fn setting(self) -> Method {
        match self {
            Self::Auto => Method::Auto,
            Self::Packets => Method::Packets,
            Self::Direct => Method::Direct,
            Self::Gather => Method::Gather,
            Self::Broadcast => Method::Broadcast,
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/experts.rs"]
mod tests;
