//! Macros for settings, and their names in messages, on the command line and in files.

use std::borrow::Cow;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use crate::error::{Error, Result};

/// JSON that was written from a value. Every value of this crate has a JSON form.
pub(crate) fn written<T>(json: serde_json::Result<T>) -> Result<T> {
    json.map_err(|error| Error::internal(error.to_string()))
}

/// Adds a method for each field of a settings struct, which returns the settings with another value. Other crates
/// cannot write such structs as literals, because later versions may add fields. Not part of the public interface: for
/// packages of this repository.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($settings:ident $(<$life:lifetime>)? { $($field:ident: $value:ty),+ $(,)? }) => {
        impl $(<$life>)? $settings $(<$life>)? {
            $(
                #[doc = concat!("These settings with this `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $value) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
pub(crate) use setters;

/// Implements `Display`, `FromStr` and serde for a setting with a fixed set of values, by its `name()`. `$what` is the
/// noun of the setting in the error for an unknown name.
macro_rules! named {
    ($setting:ident, $what:literal, $values:expr) => {
        impl std::fmt::Display for $setting {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(self.name())
            }
        }

        impl std::str::FromStr for $setting {
            type Err = crate::error::Error;

            /// # Errors
            /// `Error::InvalidArgument` for an unknown name, with the known names.
            fn from_str(name: &str) -> crate::error::Result<Self> {
                crate::settings::by_name($what, name, $values, Self::name)
            }
        }

        crate::settings::as_text!($setting);
    };
}
pub(crate) use named;

/// Implements serde by the text of a type that is `Display` and `FromStr`.
macro_rules! as_text {
    ($setting:ident) => {
        impl serde::Serialize for $setting {
            fn serialize<S: serde::Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $setting {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
                crate::settings::from_text(input)
            }
        }
    };
}
pub(crate) use as_text;

/// Reads a value from its text.
pub(crate) fn from_text<'de, T: FromStr<Err = Error>, D: Deserializer<'de>>(
    input: D,
) -> std::result::Result<T, D::Error> {
    Cow::<'de, str>::deserialize(input)?.parse().map_err(de::Error::custom)
}

/// The value with this name.
pub(crate) fn by_name<T: Copy>(
    what: &'static str,
    name: &str,
    values: impl IntoIterator<Item = T>,
    name_of: impl Fn(T) -> &'static str,
) -> Result<T> {
    let mut names = Vec::new();
    for value in values {
        if name_of(value) == name {
            return Ok(value);
        }
        names.push(name_of(value));
    }
    Err(Error::invalid(what, name, format!("it must be one of {}", names.join(", "))))
}

/// A duration as a number of seconds, for `#[serde(with)]`.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(duration.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(input)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
#[path = "../tests/unit/settings.rs"]
mod tests;
