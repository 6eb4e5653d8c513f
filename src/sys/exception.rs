//! Reads back the exception text that `cpp/core/bridge.hpp` writes.

use crate::error::Error;

impl From<cxx::Exception> for Error {
    fn from(exception: cxx::Exception) -> Self {
        let text = exception.what();
        let mut fields = text.splitn(4, '|');
        let mut number = || fields.next().and_then(|field| field.parse::<i64>().ok());
        match (number(), number(), number()) {
            (Some(kind), Some(native_code), Some(rank)) => {
                Error::from_parts(kind, native_code, rank, fields.next().unwrap_or_default())
            }
            _ => Error::Internal { message: text.to_owned() },
        }
    }
}
