//! Explains which method serves experts, and why the others do not.

use std::fmt;

use super::Experts;
use super::choice::{ALONE, able};
use super::config::Method;
use crate::error::Error;

/// A method, and whether it serves experts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodExplanation {
    /// The method; not [`Method::Auto`].
    pub method: Method,
    /// Whether the method serves.
    pub serves: bool,
    /// Why the method serves or not: the settings, a limit, or the table of the choice.
    pub reason: String,
}

impl Experts {
    /// Every method, and why it serves or not. Exactly one method serves. Equal on every rank.
    pub fn explain(&self) -> Vec<MethodExplanation> {
        let inner = &self.0;
        let own_kernels = inner.over.own().is_some();
        let reason = |method: Method| match able(own_kernels, method, &inner.form) {
            _ if method == inner.method => inner.reason.clone(),
            Err(Error::Unsupported { reason, .. }) => reason,
            Err(error) => error.to_string(),
            Ok(found) if found != method => ALONE.to_owned(),
            Ok(_) if inner.config.method == Method::Auto => {
                format!("Auto takes {:?} here: {}", inner.method, inner.reason)
            }
            Ok(_) => inner.reason.clone(),
        };
        let serves = |method| method == inner.method;
        let explanation = |method| MethodExplanation { method, serves: serves(method), reason: reason(method) };
        [Method::Packets, Method::Direct, Method::Gather, Method::Broadcast].map(explanation).into()
    }
}

impl fmt::Display for MethodExplanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, serves, reason } = self;
        write!(out, "{method:?}{}: {reason}", if *serves { " serves" } else { "" })
    }
}
