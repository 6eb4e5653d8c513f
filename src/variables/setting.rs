//! What holds, and who said so.

use std::fmt;

/// Who decided a setting. A program's word beats a variable's, a variable's beats the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The program, in [`EnvConfig`](crate::environment::EnvConfig).
    Program,
    /// The environment variable of this name.
    Variable(&'static str),
    /// The layout, from other settings.
    Derived,
    /// Nobody: the default.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => out.write_str("program"),
            Self::Variable(name) => out.write_str(name),
            Self::Derived => out.write_str("derived"),
            Self::Default => out.write_str("default"),
        }
    }
}

/// An effective setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name in [`EnvConfig`](crate::environment::EnvConfig).
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Who decided it.
    pub source: Source,
}
