//! The norms of rows in the programs: their names, settings and operands.

use serde::{Deserialize, Serialize};
use symmetra::{LayerNorm, Norm, RmsNorm};

use reference::data::Data;
use reference::element::Summand;

/// Added to the mean of the squares, or to the variance.
const EPSILON: f32 = 1e-6;

/// The norm of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    Rms,
    Layer,
}

impl NormKind {
    /// The norm with this number added to every weight.
    pub fn norm(self, weight_offset: f32) -> Norm {
        match self {
            Self::Rms => RmsNorm::new(EPSILON).weight_offset(weight_offset).into(),
            Self::Layer => LayerNorm::new(EPSILON).weight_offset(weight_offset).into(),
        }
    }

    /// A bias of this data. RMSNorm has no bias.
    pub fn bias<T: Summand>(self, data: Data) -> Option<Vec<T>> {
        (self == Self::Layer).then(|| data.of(0))
    }
}
