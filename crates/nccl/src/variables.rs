//! The variables of the environment, as text.

/// The start of the names of this library's variables.
pub(crate) const PREFIX: &str = "SYMMETRA_NCCL_";

/// The value of a variable, unless the variable is empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// The value of one of this library's variables.
pub(crate) fn own(name: &str) -> Option<String> {
    variable(&format!("{PREFIX}{name}"))
}

/// The names of all variables.
pub(crate) fn names() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}
