//! Types, reductions, algorithms, codecs and transports by name: on the command line, and in the tasks of rank processes.

use crate::failure::CommandFailure;
use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use symmetra::{Algorithm, Codec, Determinism, Dtype, Multicast, Reduction, Transport};

/// The way in which the data of a collective are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// Kernels, by this transport.
    Kernels(Transport),
    /// The copy engines: the collective's low-contention form.
    CopyEngine,
}

impl Mover {
    const ALL: [Self; 5] = [
        Self::Kernels(Transport::Auto),
        Self::Kernels(Transport::Packets),
        Self::Kernels(Transport::Direct),
        Self::Kernels(Transport::Multicast),
        Self::CopyEngine,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernels(transport) => transport.name(),
            Self::CopyEngine => "copy-engine",
        }
    }
}

impl fmt::Display for Mover {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Mover {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mover| mover.name() == name);
        found.ok_or_else(|| format!("there is no transport {name}"))
    }
}

pub fn parser<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Into<Box<dyn std::error::Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}

pub fn dtype_parser() -> impl TypedValueParser<Value = Dtype> {
    parser(Dtype::ALL.map(Dtype::name))
}

pub fn reduction_parser() -> impl TypedValueParser<Value = Reduction> {
    parser(Reduction::ALL.map(Reduction::name))
}

pub fn mover_parser() -> impl TypedValueParser<Value = Mover> {
    parser(Mover::ALL.map(Mover::name))
}

pub fn algorithm_parser() -> impl TypedValueParser<Value = Algorithm> {
    parser(Algorithm::every().map(Algorithm::name))
}

pub fn multicast_parser() -> impl TypedValueParser<Value = Multicast> {
    parser(Multicast::ALL.map(Multicast::name))
}

pub fn determinism_parser() -> impl TypedValueParser<Value = Determinism> {
    parser(Determinism::ALL.map(Determinism::name))
}

pub fn codec_parser() -> impl TypedValueParser<Value = Codec> {
    parser(Codec::ALL.map(Codec::name))
}

/// `#[serde(with = "by_name")]` for types that display as their name and parse from it.
pub mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<N: Display, S: Serializer>(named: &N, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(named)
    }

    pub fn deserialize<'de, N: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<N, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// `#[serde(with = "by_name_if_any")]` for options of such types.
pub mod by_name_if_any {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<N: Display, S: Serializer>(named: &Option<N>, to: S) -> Result<S::Ok, S::Error> {
        named.as_ref().map(N::to_string).serialize(to)
    }

    pub fn deserialize<'de, N: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<Option<N>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}

/// `#[serde(with = "by_name_each")]` for lists of such types.
pub mod by_name_each {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<N: Display, S: Serializer>(named: &[N], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(named.iter().map(ToString::to_string))
    }

    pub fn deserialize<'de, N: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<Vec<N>, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        names.iter().map(|name| name.parse().map_err(D::Error::custom)).collect()
    }
}

/// The values of an option: each once, in the order they were named, if `check` accepts all.
pub fn distinct<V: Copy + PartialEq>(
    option: &str,
    values: &[V],
    name: fn(V) -> &'static str,
    check: impl Fn(V) -> Result<(), CommandFailure>,
) -> Result<Vec<V>, CommandFailure> {
    for (number, value) in values.iter().enumerate() {
        if values[..number].contains(value) {
            return Err(CommandFailure::usage(format!("{option} names {} twice", name(*value))));
        }
        check(*value)?;
    }
    Ok(values.to_vec())
}
