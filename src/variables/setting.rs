//! Settings in force, and their sources.

use std::fmt;

/// The source of a setting. The program takes precedence over a variable, and a variable over the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingSource {
    /// The program, in [`EnvConfig`](crate::environment::EnvConfig).
    Program,
    /// The environment variable of this name.
    Variable(&'static str),
    /// The layout, from other settings.
    Derived,
    /// The default.
    Default,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => out.write_str("program"),
            Self::Variable(name) => out.write_str(name),
            Self::Derived => out.write_str("derived"),
            Self::Default => out.write_str("default"),
        }
    }
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// The name in [`EnvConfig`](crate::environment::EnvConfig).
    pub name: &'static str,
    /// The value.
    pub value: String,
    /// The source of the value.
    pub source: SettingSource,
}
