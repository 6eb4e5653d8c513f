//! The version of NCCL that programs see.

use std::ffi::c_int;

use crate::error::{CallFailure, Result};
use crate::real;
use crate::settings::{FrontSettings, settings};
use crate::variables::own;

/// The newest version whose semantics the tests cover: 2.28.9.
const TESTED: c_int = 22_809;

/// A version such as `2.27.5` as NCCL's number.
fn number(text: &str) -> Option<c_int> {
    let parts: Vec<c_int> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts[..] {
        [major @ 2..=99, minor @ 0..=99, patch @ 0..=99] => Some(major * 10_000 + minor * 100 + patch),
        _ => None,
    }
}

/// The number of `ncclGetVersion`: the version of the real library, at most the tested one unless the real library serves all
/// communicators. `SYMMETRA_NCCL_VERSION` names another, above the tested one with `force:` before the version.
///
/// # Errors
/// A value of the variable that is no version, or above the tested one.
pub(crate) fn reported() -> Result<c_int> {
    let Some(value) = own("VERSION") else {
        let most = if settings().is_ok_and(FrontSettings::is_off) { c_int::MAX } else { TESTED };
        return Ok(real::version().map_or(TESTED, |version| version.min(most)));
    };
    let (forced, text) = match value.strip_prefix("force:") {
        Some(text) => (true, text),
        None => (false, value.as_str()),
    };
    number(text).filter(|number| forced || *number <= TESTED).ok_or_else(|| {
        let limit = "versions are like 2.27.5, at most 2.28.9; force:2.30.1 names a later one";
        CallFailure::usage(format!("SYMMETRA_NCCL_VERSION is {value}: {limit}"))
    })
}
