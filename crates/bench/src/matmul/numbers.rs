//! The types of factors and results.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use symmetra::float8::F8E4M3;
use symmetra::half::{bf16, f16};
use symmetra::matmul::{F8, Numeric, Scaling};

use reference::element::Real;

/// The type of the factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Precision {
    Bf16,
    F16,
    F32,
    /// e4m3; the result is bf16
    F8,
}

impl Precision {
    pub(super) const fn numeric(self) -> Numeric {
        match self {
            Self::Bf16 => bf16::NUMERIC,
            Self::F16 => f16::NUMERIC,
            Self::F32 => f32::NUMERIC,
            Self::F8 => F8E4M3::NUMERIC,
        }
    }
}

/// The scales by which 8-bit floats are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FactorScales {
    None,
    /// A scale for each factor
    Tensor,
    /// A scale for each row of the left factor and each column of the right factor
    Rows,
}

impl FactorScales {
    pub(super) const fn scaling(self) -> Scaling {
        match self {
            Self::None => Scaling::None,
            Self::Tensor => Scaling::Tensor,
            Self::Rows => Scaling::Rows,
        }
    }
}

/// A type of factors.
pub(super) trait GemmElement: Real {
    /// The type of the result.
    type Result: Real;
    const NUMERIC: Numeric;
}

impl GemmElement for f32 {
    type Result = Self;
    const NUMERIC: Numeric = Numeric::F32;
}

impl GemmElement for f16 {
    type Result = Self;
    const NUMERIC: Numeric = Numeric::F16;
}

impl GemmElement for bf16 {
    type Result = Self;
    const NUMERIC: Numeric = Numeric::BF16;
}

impl GemmElement for F8E4M3 {
    type Result = bf16;
    const NUMERIC: Numeric = Numeric::F8 { left: F8::E4M3, right: F8::E4M3 };
}
