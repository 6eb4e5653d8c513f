//! The operands and settings of a norm.

use super::form::form_of;
use super::{Held, Quantised};
use crate::settings::setters;

/// The root mean square norm of a row: y = x (weight + weight_offset) / sqrt(mean(x x) + epsilon).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RmsNorm {
    /// Added to the mean of the squares; at least 0. With 0, a row of zeros becomes NaN.
    pub epsilon: f32,
    /// Added to every weight.
    pub weight_offset: f32,
}

setters! { RmsNorm { epsilon: f32, weight_offset: f32 } }

impl RmsNorm {
    /// The norm with the weights as they are.
    pub const fn new(epsilon: f32) -> Self {
        Self { epsilon, weight_offset: 0.0 }
    }

    /// The norm of Gemma models, whose weights lie around 0: 1 is added to each.
    pub const fn gemma(epsilon: f32) -> Self {
        Self { epsilon, weight_offset: 1.0 }
    }
}

/// The layer norm of a row: y = (x - mean(x)) (weight + weight_offset) / sqrt(variance(x) + epsilon), plus
/// [`RowNorm::bias`](crate::RowNorm::bias) if given. The variance is the mean of (x - mean(x)) (x - mean(x)).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerNorm {
    /// Added to the variance; at least 0. With 0, a row of equal values becomes NaN.
    pub epsilon: f32,
    /// Added to every weight; 1 in Nemotron models.
    pub weight_offset: f32,
}

setters! { LayerNorm { epsilon: f32, weight_offset: f32 } }

impl LayerNorm {
    /// The norm with the weights as they are.
    pub const fn new(epsilon: f32) -> Self {
        Self { epsilon, weight_offset: 0.0 }
    }
}

/// The norm of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Norm {
    /// The root mean square norm.
    Rms(RmsNorm),
    /// The layer norm.
    Layer(LayerNorm),
}

impl From<RmsNorm> for Norm {
    fn from(norm: RmsNorm) -> Self {
        Self::Rms(norm)
    }
}

impl From<LayerNorm> for Norm {
    fn from(norm: LayerNorm) -> Self {
        Self::Layer(norm)
    }
}

impl Norm {
    /// The number that is added to the mean of the squares or to the variance.
    pub const fn epsilon(self) -> f32 {
        match self {
            Self::Rms(norm) => norm.epsilon,
            Self::Layer(norm) => norm.epsilon,
        }
    }

    /// The number that is added to every weight.
    pub const fn weight_offset(self) -> f32 {
        match self {
            Self::Rms(norm) => norm.weight_offset,
            Self::Layer(norm) => norm.weight_offset,
        }
    }
}

/// The settings of a norm, and its operands other than input and output.
pub(crate) struct NormRows {
    pub(crate) norm: Norm,
    pub(crate) weight: Held,
    /// Of a layer norm.
    pub(crate) bias: Option<Held>,
    pub(crate) residual: Option<Held>,
    pub(crate) residual_out: Option<Held>,
    pub(crate) quantised: Option<Quantised>,
    /// The factor of the scales of NVFP4.
    pub(crate) global_scale: Option<Held>,
    /// Elements of an output row, if their number differs from the weight's.
    pub(crate) width: Option<usize>,
}

impl NormRows {
    /// Rows as long as the weight, without further operands.
    pub(crate) fn new(norm: impl Into<Norm>, weight: Held) -> Self {
        let norm = norm.into();
        Self {
            norm,
            weight,
            bias: None,
            residual: None,
            residual_out: None,
            quantised: None,
            global_scale: None,
            width: None,
        }
    }

    /// Elements of a row.
    pub(crate) fn hidden(&self) -> usize {
        self.weight.elems
    }

    /// Elements of an output row.
    pub(crate) fn width(&self) -> usize {
        self.width.unwrap_or(self.hidden())
    }

    /// Whether x is written over the residual.
    pub(super) fn is_over_residual(&self) -> bool {
        let address = |held: &Option<Held>| held.as_ref().map(|held| held.view().address);
        self.residual_out.is_some() && address(&self.residual_out) == address(&self.residual)
    }

    /// A hash of the settings on which ranks must agree.
    pub(super) fn form(&self, has_output: bool) -> u64 {
        // The sum goes to an unpadded output, so the use of the residual's memory does not matter then.
        let placed = has_output && self.width() == self.hidden();
        let over = u64::from(!placed && self.is_over_residual()) << 3;
        let kind = u64::from(matches!(self.norm, Norm::Layer(_))) << 5 | u64::from(self.bias.is_some()) << 4;
        let outputs = kind | over | u64::from(has_output) << 2 | u64::from(self.residual_out.is_some()) << 1;
        let operands = (outputs | u64::from(self.residual.is_some())) << 8 | self.weight.dtype as u64;
        let settings = [self.norm.epsilon(), self.norm.weight_offset()].map(|number| u64::from(number.to_bits()));
        let format = self.quantised.as_ref().map_or([0; 2], |Quantised { format, .. }| {
            let [scaling, to, layout] = [format.scaling as u64, format.to as u64, format.layout as u64];
            [(scaling << 8 | to) << 8 | layout | 1 << 32, format.elems as u64]
        });
        form_of([self.hidden() as u64, self.width() as u64, operands, settings[0], settings[1], format[0], format[1]])
    }
}

#[cfg(test)]
#[path = "../../tests/unit/op/norm_rows.rs"]
mod tests;
