//! Parses the exception text that `cpp/core/bridge.hpp` writes.

use crate::error::{Error, Result};

/// The outcome of a call of C++. A conversion by `From` would make itself and `cxx` public.
pub(crate) trait Caught<T> {
    /// The error that C++ threw.
    fn caught(self) -> Result<T>;
}

impl<T> Caught<T> for std::result::Result<T, cxx::Exception> {
    fn caught(self) -> Result<T> {
        self.map_err(|exception| thrown(&exception))
    }
}

/// The error of an exception.
pub(super) fn thrown(exception: &cxx::Exception) -> Error {
    let text = exception.what();
    let mut fields = text.splitn(4, '|');
    let mut number = || fields.next().and_then(|field| field.parse::<i64>().ok());
    match (number(), number(), number()) {
        (Some(kind), Some(native_code), Some(rank)) => {
            Error::from_parts(kind, native_code, rank, fields.next().unwrap_or_default())
        }
        _ => Error::internal(text),
    }
}
