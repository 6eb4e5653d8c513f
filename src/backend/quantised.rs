//! The setting that makes all-reduces use a codec.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::Tuning;
use crate::op::Codec;
use crate::settings::setters;

/// The all-reduces of a group that use a codec by default: sums and averages of f16 and bf16, with sizes between these
/// limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct QuantisedAllReduce {
    /// The codec. [`Codec::None`] sends every value unchanged.
    pub codec: Codec,
    /// The smallest message, in bytes. `None`: the size from which on the codec is faster according to the tuning, else
    /// 2 MiB. If the tuning found no such size, the codec is not used.
    pub min_bytes: Option<u64>,
    /// The largest message, in bytes. `None`: no limit.
    pub max_bytes: Option<u64>,
}

setters! { QuantisedAllReduce { codec: Codec, min_bytes: Option<u64>, max_bytes: Option<u64> } }

impl QuantisedAllReduce {
    /// A codec with the usual limits.
    pub const fn new(codec: Codec) -> Self {
        Self { codec, min_bytes: None, max_bytes: None }
    }

    /// The sizes of the messages that use the codec.
    pub(crate) fn bytes(&self) -> RangeInclusive<u64> {
        self.min_bytes.unwrap_or(2 << 20)..=self.max_bytes.unwrap_or(u64::MAX)
    }

    /// The setting with the smallest message that a tuning found for a world size, unless one is set.
    ///
    /// # Errors
    /// The reason why no message uses the codec.
    pub(crate) fn tuned(
        self,
        tuning: Option<&Tuning>,
        kind: DeviceKind,
        world_size: usize,
    ) -> std::result::Result<Self, String> {
        let tuned = tuning.filter(|tuning| self.min_bytes.is_none() && tuning.serves(kind));
        let (first, most) = self.bytes().into_inner();
        let Some(tuned) = tuned.and_then(|tuning| tuning.codec(world_size, self.codec.name())) else {
            return match first <= most {
                true => Ok(self),
                false => Err(format!("{} begins at {first} bytes, and it is set to end at {most}", self.codec)),
            };
        };
        match tuned.from_bytes {
            Some(bytes) if bytes <= most => Ok(Self { min_bytes: Some(bytes), ..self }),
            Some(bytes) => {
                Err(format!("the tuning has {} from {bytes} bytes, and it is set to end at {most}", self.codec))
            }
            None => Err(format!("the tuning has no size at which {} was faster", self.codec)),
        }
    }

    /// Refuses limits in the wrong order, if both are set. A tuning may have a smallest message below the default.
    pub(crate) fn validate(&self) -> Result<()> {
        let bytes = self.bytes();
        if self.codec == Codec::None || self.min_bytes.is_none() || bytes.start() <= bytes.end() {
            return Ok(());
        }
        let value = format!("{} to {} bytes", bytes.start(), bytes.end());
        Err(Error::invalid("the range of quantised all-reduces", value, "the largest must not be below the smallest"))
    }
}

impl fmt::Display for QuantisedAllReduce {
    /// `int8 from 2097152 bytes`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        write!(out, "{} from {}", self.codec, bytes.start())?;
        if *bytes.end() < u64::MAX {
            write!(out, " to {}", bytes.end())?;
        }
        out.write_str(" bytes")
    }
}

#[cfg(test)]
#[path = "../../tests/unit/backend/quantised.rs"]
mod tests;
