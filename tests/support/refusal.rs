//! Errors of refused calls.

use symmetra::{Error, Result};

/// The error of a call, whose message has all of these words.
pub fn refused<T>(result: Result<T>, words: &[&str]) -> Error {
    let error = result.err().unwrap_or_else(|| panic!("{words:?}: the call was taken"));
    says(&error, words);
    error
}

/// An invalid argument, whose message has all of these words.
pub fn invalid<T>(result: Result<T>, words: &[&str]) {
    let error = refused(result, words);
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
}

/// A request that is not served, whose message has all of these words.
pub fn unserved<T>(result: Result<T>, words: &[&str]) {
    let error = refused(result, words);
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

pub fn says(error: &Error, words: &[&str]) {
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}
