//! Conversion of numbers and settings.

use std::fmt;
use std::time::Duration;

use super::Report;
use super::bridge::Settings;
use super::report::guard;
use crate::error::{Error, Result};
use crate::group::{Config, Deadlines, Determinism, Multicast, Tuning};
use crate::op::{Algorithm, Codec};
use crate::types::{Dtype, Reduction, Transport};

/// The type with this number.
pub(super) fn dtype(number: u32) -> Result<Dtype> {
    Dtype::from_number(number).ok_or_else(|| {
        let limit = format!("it must be less than {}", Dtype::ALL.len());
        Error::invalid("the number of a Dtype", number, limit)
    })
}

/// The reduction with this number.
pub(super) fn reduction(number: u32) -> Result<Reduction> {
    Reduction::from_number(number).ok_or_else(|| {
        let limit = format!("it must be less than {}", Reduction::ALL.len());
        Error::invalid("the number of a Reduction", number, limit)
    })
}

/// The element of `all` at index `number`.
pub(super) fn numbered<T: Copy>(what: &str, all: &[T], number: u32) -> Result<T> {
    element(format_args!("the number of {what}"), all, number)
}

/// The element of `all` at index `number`, which messages call `what`. Allocates only for an error.
pub(super) fn element<T: Copy>(what: impl fmt::Display, all: &[T], number: u32) -> Result<T> {
    let limit = || format!("it must be less than {}", all.len());
    all.get(number as usize).copied().ok_or_else(|| Error::invalid(&what.to_string(), number, limit()))
}

/// The algorithm with this number.
pub(super) fn algorithm(number: u32) -> Result<Algorithm> {
    let limit = || format!("it must be less than {}", Algorithm::every().count());
    let found = Algorithm::every().nth(number as usize);
    found.ok_or_else(|| Error::invalid("the number of an Algorithm", number, limit()))
}

/// The codec with this number.
pub(super) fn codec(number: u32) -> Result<Codec> {
    numbered("a Codec", &Codec::ALL, number)
}

/// The inverse of [`algorithm`].
pub(super) fn algorithm_number(algorithm: Algorithm) -> u32 {
    Algorithm::every().position(|known| known == algorithm).map_or(0, |number| number as u32)
}

pub(super) fn dtype_bytes(number: u32) -> Result<usize, Report> {
    guard(|| dtype(number).map(Dtype::bytes))
}

pub(super) fn dtype_name(number: u32) -> Result<&'static str, Report> {
    guard(|| dtype(number).map(Dtype::name))
}

pub(super) fn reduction_name(number: u32) -> Result<&'static str, Report> {
    guard(|| reduction(number).map(Reduction::name))
}

pub(super) fn reduction_named(name: &cxx::CxxString) -> Result<u32, Report> {
    guard(|| name.to_string_lossy().parse().map(|reduction: Reduction| reduction as u32))
}

pub(super) fn algorithm_name(number: u32) -> Result<&'static str, Report> {
    guard(|| algorithm(number).map(Algorithm::name))
}

pub(super) fn algorithm_named(name: &cxx::CxxString) -> Result<u32, Report> {
    guard(|| name.to_string_lossy().parse().map(algorithm_number))
}

pub(super) fn codec_name(number: u32) -> Result<&'static str, Report> {
    guard(|| codec(number).map(Codec::name))
}

pub(super) fn codec_named(name: &cxx::CxxString) -> Result<u32, Report> {
    guard(|| name.to_string_lossy().parse().map(Codec::number))
}

pub(super) fn required_bytes(world_size: usize, settings: &Settings) -> Result<u64, Report> {
    guard(|| crate::memory::required_bytes(world_size, &Config::try_from(settings)?))
}

pub(super) fn settings_default() -> Settings {
    settings_of(Config::default())
}

pub(super) fn settings_small() -> Settings {
    settings_of(Config::small())
}

/// The settings for C++, without the tuning.
fn settings_of(config: Config) -> Settings {
    let Config {
        deadlines: Deadlines { open, first_use, steady },
        heap_bytes,
        heap_channels,
        one_shot_ll_bytes,
        one_shot_sentinel_bytes,
        two_shot_ll_bytes,
        two_shot_sentinel_bytes,
        ring_bytes,
        recursive_doubling_bytes,
        pair_bytes,
        determinism,
        transport,
        multicast,
        registrations,
        most_blocks,
        check_calls,
        guard_bytes,
        tuning: _,
    } = config;
    let [open_ms, first_use_ms, steady_ms] = [open, first_use, steady].map(|limit| limit.as_millis() as u64);
    Settings {
        open_ms,
        first_use_ms,
        steady_ms,
        heap_bytes,
        heap_channels,
        one_shot_ll_bytes,
        one_shot_sentinel_bytes: one_shot_sentinel_bytes.unwrap_or(0),
        one_shot_sentinel_set: one_shot_sentinel_bytes.is_some(),
        two_shot_ll_bytes,
        two_shot_sentinel_bytes,
        ring_bytes,
        recursive_doubling_bytes,
        pair_bytes,
        determinism: determinism as u32,
        transport: transport as u32,
        multicast: multicast as u32,
        registrations,
        most_blocks: most_blocks.unwrap_or(0),
        most_blocks_set: most_blocks.is_some(),
        check_calls,
        guard_bytes,
        tuning: String::new(),
    }
}

impl TryFrom<&Settings> for Config {
    type Error = Error;

    fn try_from(settings: &Settings) -> Result<Self> {
        Ok(Self {
            deadlines: Deadlines {
                open: Duration::from_millis(settings.open_ms),
                first_use: Duration::from_millis(settings.first_use_ms),
                steady: Duration::from_millis(settings.steady_ms),
            },
            heap_bytes: settings.heap_bytes,
            heap_channels: settings.heap_channels,
            one_shot_ll_bytes: settings.one_shot_ll_bytes,
            one_shot_sentinel_bytes: settings.one_shot_sentinel_set.then_some(settings.one_shot_sentinel_bytes),
            two_shot_ll_bytes: settings.two_shot_ll_bytes,
            two_shot_sentinel_bytes: settings.two_shot_sentinel_bytes,
            ring_bytes: settings.ring_bytes,
            recursive_doubling_bytes: settings.recursive_doubling_bytes,
            pair_bytes: settings.pair_bytes,
            determinism: numbered("a Determinism", &Determinism::ALL, settings.determinism)?,
            transport: numbered("a Transport", &Transport::EVERY, settings.transport)?,
            multicast: numbered("a Multicast", &Multicast::ALL, settings.multicast)?,
            registrations: settings.registrations,
            most_blocks: settings.most_blocks_set.then_some(settings.most_blocks),
            check_calls: settings.check_calls,
            guard_bytes: settings.guard_bytes,
            tuning: (!settings.tuning.is_empty()).then(|| Tuning::load(&settings.tuning)).transpose()?,
        })
    }
}

#[cfg(test)]
#[path = "../../tests/unit/capi/config.rs"]
mod tests;
