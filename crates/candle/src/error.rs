//! Errors of symmetra inside errors of candle.

use std::fmt;

use candle_core::Error;

/// An error of symmetra in the box of one of candle's. Candle displays a box by its `Debug`, so `Debug` is the message.
struct Failure(symmetra::Error);

impl fmt::Debug for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

impl std::error::Error for Failure {}

/// The error of candle that holds this error.
pub(crate) fn wrap(error: symmetra::Error) -> Error {
    Error::WrappedContext { wrapped: Box::new(Failure(error)), context: "symmetra".to_owned() }.bt()
}

/// The error for a value outside its limit.
pub(crate) fn invalid(message: String) -> Error {
    wrap(symmetra::Error::InvalidArgument { message })
}

/// Refuses a length that the ranks cannot share equally. `what` names the dimension and its tensor.
pub(crate) fn check_divides(what: impl fmt::Display, length: usize, ranks: usize) -> Result<(), Error> {
    match length.is_multiple_of(ranks) {
        true => Ok(()),
        false => Err(invalid(format!("{what} is {length}, but the world size {ranks} must divide it"))),
    }
}

/// The error of symmetra inside an error of candle, under any contexts, paths and backtraces. `None` for other errors, and
/// for a text that [`Error::wrap`] or [`Error::msg`] made of an error.
///
/// ```
/// use symmetra_candle::failure;
///
/// /// The rank that an engine has to replace.
/// fn lost(error: &candle_core::Error) -> Option<usize> {
///     match failure(error) {
///         Some(symmetra::Error::PeerLost { rank, .. }) => Some(*rank),
///         _ => None,
///     }
/// }
/// assert_eq!(lost(&candle_core::Error::UnwrapNone), None);
/// ```
pub fn failure(error: &Error) -> Option<&symmetra::Error> {
    match error {
        Error::Context { inner, .. } | Error::WithPath { inner, .. } | Error::WithBacktrace { inner, .. } => {
            failure(inner)
        }
        Error::WrappedContext { wrapped: boxed, .. } | Error::Cuda(boxed) => match boxed.downcast_ref::<Failure>() {
            Some(Failure(error)) => Some(error),
            None => boxed.downcast_ref::<symmetra::Error>().or_else(|| failure(boxed.downcast_ref::<Error>()?)),
        },
        _ => None,
    }
}
