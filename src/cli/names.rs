//! Types, reductions and algorithms by name: on the command line, and in the jobs of rank processes.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use symmetra::{Algorithm, Dtype, Reduction};

/// The type with this name.
pub(crate) fn dtype(name: &str) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|dtype| dtype.name() == name)
}

/// For clap.
pub(crate) fn dtype_parser() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(Dtype::ALL.map(Dtype::name))
        .try_map(|name| dtype(&name).ok_or_else(|| format!("there is no type {name}")))
}

/// For clap.
pub(crate) fn reduction_parser() -> impl TypedValueParser<Value = Reduction> {
    PossibleValuesParser::new(Reduction::ALL.map(Reduction::name)).try_map(|name| name.parse::<Reduction>())
}

/// For clap.
pub(crate) fn algorithm_parser() -> impl TypedValueParser<Value = Algorithm> {
    let names = [Algorithm::Auto].into_iter().chain(Algorithm::ALL).map(Algorithm::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Algorithm>())
}

/// `#[serde(with = "by_name")]` for [`Dtype`], [`Reduction`] and [`Algorithm`].
pub(crate) mod by_name {
    use super::{Algorithm, Dtype, Reduction};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// What has a name.
    pub(crate) trait Named: Sized {
        fn name(&self) -> &'static str;
        fn from_name(name: &str) -> Option<Self>;
    }

    impl Named for Dtype {
        fn name(&self) -> &'static str {
            (*self).name()
        }
        fn from_name(name: &str) -> Option<Self> {
            super::dtype(name)
        }
    }

    impl Named for Reduction {
        fn name(&self) -> &'static str {
            (*self).name()
        }
        fn from_name(name: &str) -> Option<Self> {
            name.parse().ok()
        }
    }

    impl Named for Algorithm {
        fn name(&self) -> &'static str {
            (*self).name()
        }
        fn from_name(name: &str) -> Option<Self> {
            name.parse().ok()
        }
    }

    pub(crate) fn serialize<N: Named, S: Serializer>(named: &N, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(named.name())
    }

    pub(crate) fn deserialize<'de, N: Named, D: Deserializer<'de>>(from: D) -> Result<N, D::Error> {
        let name = String::deserialize(from)?;
        N::from_name(&name).ok_or_else(|| D::Error::custom(format!("unknown name {name}")))
    }
}
