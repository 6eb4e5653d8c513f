//! Settings in the bridges: each has one form there, and one conversion each way.

use std::time::Duration;

use super::bridge::{DeadlinesMs, GroupSettings, MaybeSize, MaybeText, Settings};
use crate::environment::{Backend, GroupConfig};
use crate::error::{Error, Result};
use crate::experts::{Method, Scales};
use crate::fused::Way;
use crate::group::{Config, Deadlines, Determinism, Multicast, Tuning};
use crate::matmul::{F8, Order};
use crate::mixed::{MixedMode, MixedOperation};
use crate::op::{Algorithm, Codec, Narrow, ScaleGroup, ScaleLayout};
use crate::types::{Dtype, Reduction, Transport};

/// A setting that crosses a bridge.
pub(super) trait Mirrored: Sized {
    /// The form of the setting in the bridge.
    type Mirror;

    fn mirror(&self) -> Self::Mirror;

    /// # Errors
    /// [`Error::InvalidArgument`] for a number that no value has.
    fn of_mirror(mirror: &Self::Mirror) -> Result<Self>;
}

/// The setting with this number.
pub(super) fn value<T: Mirrored<Mirror = u32>>(number: u32) -> Result<T> {
    T::of_mirror(&number)
}

/// The element of `values` at position `number`, which messages call `what`. Allocates only for an error.
pub(super) fn nth<T>(what: &str, values: impl IntoIterator<Item = T> + Clone, number: u32) -> Result<T> {
    let limit = || format!("it must be less than {}", values.clone().into_iter().count());
    values.clone().into_iter().nth(number as usize).ok_or_else(|| Error::invalid(what, number, limit()))
}

/// Settings that are numbers in the headers: the positions of their values in these lists.
macro_rules! numbered {
    ($($setting:ty, $what:literal, $values:expr;)+) => {
        $(
            impl Mirrored for $setting {
                type Mirror = u32;

                fn mirror(&self) -> u32 {
                    $values.into_iter().position(|value| value == *self).map_or(0, |number| number as u32)
                }

                fn of_mirror(number: &u32) -> Result<Self> {
                    nth($what, $values, *number)
                }
            }
        )+
    };
}

numbered! {
    Dtype, "the number of a Dtype", Dtype::ALL;
    Reduction, "the number of a Reduction", Reduction::ALL;
    Algorithm, "the number of an Algorithm", Algorithm::every();
    Codec, "the number of a Codec", Codec::ALL;
    Determinism, "the number of a Determinism", Determinism::ALL;
    Transport, "the number of a Transport", Transport::EVERY;
    Multicast, "the number of a Multicast", Multicast::ALL;
    Backend, "the number of a Backend", Backend::ALL;
    ScaleGroup, "the scaling of quantised rows", ScaleGroup::ALL;
    Narrow, "the format of quantised values", Narrow::ALL;
    ScaleLayout, "the layout of scales", ScaleLayout::ALL;
    Way, "the number of a Way", Way::ALL;
    Order, "the number of a Product::Order", [Order::Rows, Order::Columns];
    F8, "the number of an F8", [F8::E4M3, F8::E5M2];
    Scales, "the number of Scales", Scales::ALL;
    Method, "the number of a Method", [Method::Auto, Method::Direct, Method::Gather, Method::Broadcast, Method::Packets];
    MixedOperation, "the number of a MixedOperation", MixedOperation::ALL;
    MixedMode, "the number of a MixedMode", [MixedMode::Auto].into_iter().chain(MixedMode::ALL);
}

/// Settings that cross as they are.
macro_rules! plain {
    ($($setting:ty),+) => {
        $(
            impl Mirrored for $setting {
                type Mirror = Self;

                fn mirror(&self) -> Self {
                    *self
                }

                fn of_mirror(mirror: &Self) -> Result<Self> {
                    Ok(*mirror)
                }
            }
        )+
    };
}

plain! { bool, usize, u32, u64 }

/// Milliseconds.
impl Mirrored for Duration {
    type Mirror = u64;

    fn mirror(&self) -> u64 {
        self.as_millis() as u64
    }

    fn of_mirror(mirror: &u64) -> Result<Self> {
        Ok(Self::from_millis(*mirror))
    }
}

impl<T: Mirrored<Mirror: Copy + TryFrom<usize> + TryInto<usize>>> Mirrored for Option<T> {
    type Mirror = MaybeSize;

    fn mirror(&self) -> MaybeSize {
        let value = self.as_ref().and_then(|value| value.mirror().try_into().ok());
        MaybeSize { set: value.is_some(), value: value.unwrap_or(0) }
    }

    fn of_mirror(mirror: &MaybeSize) -> Result<Self> {
        let limit = || Error::invalid("a setting", mirror.value, "it must fit 32 bits");
        let value = || T::of_mirror(&T::Mirror::try_from(mirror.value).map_err(|_| limit())?);
        mirror.set.then(value).transpose()
    }
}

impl Mirrored for Option<String> {
    type Mirror = MaybeText;

    fn mirror(&self) -> MaybeText {
        MaybeText { set: self.is_some(), value: self.clone().unwrap_or_default() }
    }

    fn of_mirror(mirror: &MaybeText) -> Result<Self> {
        Ok(mirror.set.then(|| mirror.value.clone()))
    }
}

/// The path of a file; empty for none. C++ receives no tuning.
impl Mirrored for Option<Tuning> {
    type Mirror = String;

    fn mirror(&self) -> String {
        String::new()
    }

    fn of_mirror(path: &String) -> Result<Self> {
        (!path.is_empty()).then(|| Tuning::load(path)).transpose()
    }
}

/// Structs of settings, and their mirrors with fields of the same names.
macro_rules! fields {
    ($($settings:ident as $mirror:ident { $($field:ident),+ $(,)? })+) => {
        $(
            impl Mirrored for $settings {
                type Mirror = $mirror;

                fn mirror(&self) -> $mirror {
                    $mirror { $($field: self.$field.mirror()),+ }
                }

                fn of_mirror(mirror: &$mirror) -> Result<Self> {
                    Ok(Self { $($field: Mirrored::of_mirror(&mirror.$field)?),+ })
                }
            }
        )+
    };
}

fields! {
    Deadlines as DeadlinesMs { open, first_use, steady }

    Config as Settings {
        deadlines, heap_bytes, heap_channels, one_shot_ll_bytes, one_shot_sentinel_bytes, two_shot_ll_bytes,
        two_shot_sentinel_bytes, ring_bytes, recursive_doubling_bytes, pair_bytes, determinism, transport, multicast,
        registrations, most_blocks, check_calls, guard_bytes, silence, hold_after_failure, graph_mixing, timing,
        tuning,
    }

    GroupConfig as GroupSettings { communicator, host, interface, backend }
}
