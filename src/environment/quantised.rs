//! The setting of quantised all-reduces: from the program, else from AITER's variables.

use crate::backend::QuantisedAllReduce;
use crate::error::{Error, Result};
use crate::op::Codec;
use crate::variables::{Lookup, QUICK_REDUCE, SettingSource, number, text};

/// The setting as text; `off` without one.
pub(super) fn shown(setting: Option<QuantisedAllReduce>) -> String {
    setting.map_or_else(|| "off".to_owned(), |setting| setting.to_string())
}

/// The program's setting, else that of the variables. A setting without a codec counts as none.
pub(super) fn resolve(
    set: Option<QuantisedAllReduce>,
    lookup: &impl Lookup,
) -> Result<(Option<QuantisedAllReduce>, SettingSource)> {
    let (setting, source) = match set {
        Some(set) => (set, SettingSource::Program),
        None => match text(lookup, None, QUICK_REDUCE.regime)? {
            None => return Ok((None, SettingSource::Default)),
            Some((regime, source)) => (of_variables(regime.trim(), lookup)?, source),
        },
    };
    setting.validate()?;
    Ok(((setting.codec != Codec::None).then_some(setting), source))
}

/// The setting for the value of the regime variable.
fn of_variables(regime: &str, lookup: &impl Lookup) -> Result<QuantisedAllReduce> {
    let codec = match regime {
        // Full precision uses symmetra kernels, as without the variable.
        "NONE" | "FP" => return Ok(QuantisedAllReduce::new(Codec::None)),
        "FP8" => Codec::Fp8,
        "INT8" => Codec::Int8,
        "INT6" => Codec::Int6,
        "INT4" => Codec::Int4,
        other => {
            let limit = "it must be one of NONE, FP, FP8, INT8, INT6, INT4";
            return Err(Error::invalid(QUICK_REDUCE.regime, format_args!("`{other}`"), limit));
        }
    };
    let max_bytes = match number(lookup, None, QUICK_REDUCE.most_mib)? {
        None | Some((0, _)) => None,
        Some((mib, _)) => {
            let bytes = (mib as u64).checked_mul(1 << 20);
            Some(bytes.ok_or_else(|| Error::invalid(QUICK_REDUCE.most_mib, mib, "its bytes must fit 64 bits"))?)
        }
    };
    Ok(QuantisedAllReduce { max_bytes, ..QuantisedAllReduce::new(codec) })
}

#[cfg(test)]
#[path = "../../tests/unit/environment/quantised.rs"]
mod tests;
