//! Names and defaults of settings.

use super::Report;
use super::bridge::Settings;
use super::mirror::{Mirrored, value};
use super::report::guard;
use crate::error::Result;
use crate::group::Config;
use crate::op::{Algorithm, Codec};
use crate::types::{Dtype, Reduction};

pub(super) fn dtype_bytes(number: u32) -> Result<usize, Report> {
    guard(|| value(number).map(Dtype::bytes))
}

pub(super) fn dtype_name(number: u32) -> Result<&'static str, Report> {
    guard(|| value(number).map(Dtype::name))
}

pub(super) fn reduction_name(number: u32) -> Result<&'static str, Report> {
    guard(|| value(number).map(Reduction::name))
}

pub(super) fn reduction_named(name: &cxx::CxxString) -> Result<u32, Report> {
    guard(|| name.to_string_lossy().parse().map(|reduction: Reduction| reduction.mirror()))
}

pub(super) fn algorithm_name(number: u32) -> Result<&'static str, Report> {
    guard(|| value(number).map(Algorithm::name))
}

pub(super) fn algorithm_named(name: &cxx::CxxString) -> Result<u32, Report> {
    guard(|| name.to_string_lossy().parse().map(|algorithm: Algorithm| algorithm.mirror()))
}

pub(super) fn codec_name(number: u32) -> Result<&'static str, Report> {
    guard(|| value(number).map(Codec::name))
}

pub(super) fn codec_named(name: &cxx::CxxString) -> Result<u32, Report> {
    guard(|| name.to_string_lossy().parse().map(|codec: Codec| codec.mirror()))
}

pub(super) fn required_bytes(world_size: usize, settings: &Settings) -> Result<u64, Report> {
    guard(|| crate::memory::required_bytes(world_size, &Config::of_mirror(settings)?))
}

pub(super) fn settings_default() -> Settings {
    Config::default().mirror()
}

pub(super) fn settings_small() -> Settings {
    Config::small().mirror()
}

#[cfg(test)]
#[path = "../../tests/unit/capi/config.rs"]
mod tests;
