//! Types, reductions and algorithms by name: on the command line, and in the jobs of rank processes.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use symmetra::{Algorithm, Dtype, Reduction, Transport};

/// For clap.
pub(crate) fn dtype_parser() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(Dtype::ALL.map(Dtype::name)).try_map(|name| name.parse::<Dtype>())
}

/// For clap.
pub(crate) fn reduction_parser() -> impl TypedValueParser<Value = Reduction> {
    PossibleValuesParser::new(Reduction::ALL.map(Reduction::name)).try_map(|name| name.parse::<Reduction>())
}

/// What moves the data of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// Kernels, in this way.
    Kernels(Transport),
    /// The copy engines: its low-contention form.
    CopyEngine,
}

impl Mover {
    const ALL: [Self; 4] = [
        Self::Kernels(Transport::Auto),
        Self::Kernels(Transport::Packets),
        Self::Kernels(Transport::Direct),
        Self::CopyEngine,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernels(transport) => transport.name(),
            Self::CopyEngine => "copy-engine",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mover| mover.name() == name)
    }
}

/// For clap.
pub(crate) fn mover_parser() -> impl TypedValueParser<Value = Mover> {
    PossibleValuesParser::new(Mover::ALL.map(Mover::name))
        .try_map(|name| Mover::named(&name).ok_or_else(|| format!("there is no transport {name}")))
}

/// For clap.
pub(crate) fn algorithm_parser() -> impl TypedValueParser<Value = Algorithm> {
    let names = [Algorithm::Auto].into_iter().chain(Algorithm::ALL).map(Algorithm::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Algorithm>())
}

/// `#[serde(with = "by_name")]` for [`Dtype`], [`Reduction`], [`Mover`] and [`Algorithm`].
pub(crate) mod by_name {
    use super::{Algorithm, Dtype, Mover, Reduction};
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
            name.parse().ok()
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

    impl Named for Mover {
        fn name(&self) -> &'static str {
            (*self).name()
        }
        fn from_name(name: &str) -> Option<Self> {
            Self::named(name)
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
