//! Why a method serves experts, and others do not.

use std::fmt;

use super::config::Method;
use super::{Experts, chosen};
use crate::error::Error;

/// A method, and whether it serves experts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodExplanation {
    /// The method; not [`Method::Auto`].
    pub method: Method,
    /// Why the method does not serve; `None`: it does.
    pub refusal: Option<String>,
}

impl Experts {
    /// Every method, and why it serves or not: one does. Equal on every rank.
    pub fn explain(&self) -> Vec<MethodExplanation> {
        let inner = &self.0;
        let own_kernels = inner.over.own().is_some();
        let refusal = |method: Method| match chosen(own_kernels, method, &inner.form) {
            _ if method == inner.method => None,
            Err(Error::Unsupported { reason, .. }) => Some(reason),
            Err(error) => Some(error.to_string()),
            Ok(found) if found != method => Some("a rank alone has nobody to reach".to_owned()),
            Ok(_) if inner.config.method == Method::Auto => Some(format!("Auto takes {:?} here", inner.method)),
            Ok(_) => Some(format!("the settings name {:?}", inner.config.method)),
        };
        let explanation = |method| MethodExplanation { method, refusal: refusal(method) };
        [Method::Packets, Method::Direct, Method::Gather, Method::Broadcast].map(explanation).into()
    }
}

impl fmt::Display for MethodExplanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            None => write!(out, "{:?}: serves", self.method),
            Some(reason) => write!(out, "{:?}: {reason}", self.method),
        }
    }
}
