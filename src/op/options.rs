//! The options of an all-reduce.

use serde::{Deserialize, Serialize};

use super::{Algorithm, Codec};
use crate::error::{Error, Result};
use crate::group::Determinism;
use crate::settings::setters;
use crate::types::{Dtype, Reduction};

/// The reduction, algorithm and codec of an all-reduce. A [`Reduction`], an [`Algorithm`] or a [`Codec`] alone converts
/// into options with the defaults for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AllReduceOptions {
    /// How the values of all ranks are combined.
    pub reduction: Reduction,
    /// How the data move.
    pub algorithm: Algorithm,
    /// How values are sent.
    pub codec: Codec,
}

setters! { AllReduceOptions { reduction: Reduction, algorithm: Algorithm, codec: Codec } }

impl From<Reduction> for AllReduceOptions {
    fn from(reduction: Reduction) -> Self {
        Self { reduction, ..Self::default() }
    }
}

impl From<Algorithm> for AllReduceOptions {
    fn from(algorithm: Algorithm) -> Self {
        Self { algorithm, ..Self::default() }
    }
}

impl From<Codec> for AllReduceOptions {
    fn from(codec: Codec) -> Self {
        Self { codec, ..Self::default() }
    }
}

impl AllReduceOptions {
    /// Checks that the codec supports the other options.
    pub(crate) fn check_codec(&self, dtype: Dtype, determinism: Determinism) -> Result<()> {
        let Self { reduction, algorithm, codec } = *self;
        let refuse = |what: String, reason: &str| Err(Error::unsupported(what, reason));
        if !codec.carries(dtype, reduction) {
            let reason = "a codec carries sums and averages of f16 and bf16";
            return refuse(format!("the codec {codec} of the {reduction} of {dtype}"), reason);
        }
        if determinism == Determinism::Exact {
            let reason = "the configuration asks for exact determinism, and a codec rounds what it sends";
            return refuse(format!("the codec {codec}"), reason);
        }
        if !matches!(algorithm, Algorithm::Auto | Algorithm::OneShotSentinel | Algorithm::TwoShotSentinel) {
            let reason = "codecs go by one-shot-sentinel, two-shot-sentinel or auto";
            return refuse(format!("the codec {codec} by {algorithm}"), reason);
        }
        Ok(())
    }
}
