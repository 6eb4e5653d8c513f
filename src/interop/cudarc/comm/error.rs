//! Errors of the class.

use std::fmt;

use crate::error::Error;

/// An error of a call. The field is the error of symmetra, which engines print.
#[derive(Clone, Debug, PartialEq)]
pub struct CommError(pub Error);

/// The result of a call.
pub type Result<T, E = CommError> = std::result::Result<T, E>;

impl fmt::Display for CommError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl std::error::Error for CommError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<Error> for CommError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<CommError> for Error {
    fn from(CommError(error): CommError) -> Self {
        error
    }
}
