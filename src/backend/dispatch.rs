//! Which backend serves a call: a pure function of what the ranks of a group agreed on and of what a
//! call is on every rank alike, so that all of them choose the same.
//!
//! Neither size nor address is among the inputs. No backend has a limit in either, and ranks need not
//! have equal ones: in an all-to-all of variable counts each has its own.

use std::borrow::Cow;

use super::explain::{Backend, Explanation, Served};
use crate::error::Operation;
use crate::op::{Call, OPERATIONS};
use crate::types::{Dtype, Reduction};

/// What the ranks of a group agreed on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Its hosts by name, and how many of its ranks each has.
    pub(crate) hosts: Vec<(String, usize)>,
    /// The one backend that may serve.
    pub(crate) forced: Option<Backend>,
    /// Whether floating types must be reduced in rank order.
    pub(crate) exact: bool,
    /// Why NCCL cannot be used, if it cannot.
    pub(crate) nccl: Result<(), String>,
    /// Why there is no engine between hosts, if there is none.
    pub(crate) host: Result<(), String>,
}

/// What a call is on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// Where it reduces.
    pub(crate) reduction: Option<Reduction>,
    pub(crate) dtype: Dtype,
    /// Whether it names an algorithm.
    pub(crate) named: bool,
    pub(crate) captured: bool,
}

impl Request {
    /// What a call is, on a queue that is captured or not.
    pub(crate) fn of(call: &Call<'_>, captured: bool) -> Self {
        let (operation, dtype) = (call.op.operation, call.common_dtype());
        Self { operation, reduction: call.reduction(), dtype, named: call.names_algorithm(), captured }
    }
}

impl Facts {
    pub(crate) fn world_size(&self) -> usize {
        self.hosts.iter().map(|(_, ranks)| ranks).sum()
    }

    /// The first backend that serves. Allocates nothing where one does.
    ///
    /// # Errors
    /// Why none does: every backend with its reason.
    pub(crate) fn select(&self, request: &Request) -> Result<Backend, String> {
        let serves = |backend: &Backend| self.refusal(*backend, request).is_none();
        Backend::ALL.into_iter().find(serves).ok_or_else(|| {
            let reason = |backend: Backend| Some(format!("{backend}: {}", self.refusal(backend, request)?));
            Backend::ALL.into_iter().filter_map(reason).collect::<Vec<_>>().join("; ")
        })
    }

    /// Why a backend does not serve a call; none if it does.
    fn refusal(&self, backend: Backend, request: &Request) -> Option<Cow<'_, str>> {
        let world_size = self.world_size();
        if world_size == 1 {
            return (backend != Backend::Own).then_some("a group of one rank answers by itself".into());
        }
        if let Some(forced) = self.forced.filter(|forced| *forced != backend) {
            return Some(format!("{forced} is forced").into());
        }
        if request.named && matches!(backend, Backend::Nccl | Backend::Host) {
            return Some("the call names an algorithm of the own kernels".into());
        }
        match backend {
            Backend::Quantised => Some("there is none yet".into()),
            Backend::Own if self.hosts.len() > 1 => Some(format!("its ranks are on {}", self.places()).into()),
            Backend::Own => None,
            Backend::Nccl => match &self.nccl {
                Err(reason) => Some(reason.as_str().into()),
                Ok(()) => self.broken_by_nccl(request).map(Cow::from),
            },
            Backend::Host => match &self.host {
                Err(reason) => Some(reason.as_str().into()),
                Ok(_) if request.captured => Some("it blocks the caller and cannot be captured".into()),
                Ok(()) => None,
            },
        }
    }

    /// What NCCL would not keep of what is promised of a reduction, if anything: its minima and maxima are those of
    /// `fminf` and `fmaxf`, and its averages of floating types sums of what each rank has divided and rounded.
    fn broken_by_nccl(&self, request: &Request) -> Option<&'static str> {
        match (request.reduction?, request.dtype.is_float()) {
            (Reduction::Average, false) => Some("its sums behind averages of integers wrap"),
            (Reduction::Min | Reduction::Max, true) => Some("its minima and maxima of floating types lose NaN"),
            (_, true) if self.exact && self.world_size() > 2 => {
                Some("determinism is exact, and it does not reduce in rank order")
            }
            (Reduction::Average, true) if self.exact => Some("determinism is exact, and it divides before it adds"),
            _ => None,
        }
    }

    /// `2 hosts, a (2 ranks), b (1 ranks)`.
    pub(crate) fn places(&self) -> String {
        let host = |(name, ranks): &(String, usize)| format!("{name} ({ranks} ranks)");
        let hosts: Vec<_> = self.hosts.iter().map(host).collect();
        let plural = if hosts.len() == 1 { "host" } else { "hosts" };
        format!("{} {plural}, {}", hosts.len(), hosts.join(", "))
    }

    /// Whether a backend serves anything of what an engine may call.
    pub(crate) fn needs(&self, backend: Backend) -> bool {
        requests().any(|request| self.select(&request) == Ok(backend))
    }

    /// The backends in order: what each serves, and why it does not serve what came to it.
    pub(crate) fn explain(&self) -> Vec<Explanation> {
        Backend::ALL.map(|backend| self.explanation(backend)).into()
    }

    fn explanation(&self, backend: Backend) -> Explanation {
        let (mut serves, mut refuses): (Vec<Served>, Vec<String>) = (Vec::new(), Vec::new());
        let later = |served: &Backend| *served as usize >= backend as usize;
        for request in requests().filter(|request| self.select(request).as_ref().map_or(true, later)) {
            match self.refusal(backend, &request) {
                None => add(&mut serves, &request),
                Some(reason) if refuses.iter().any(|known| **known == *reason) => {}
                Some(reason) => refuses.push(reason.into_owned()),
            }
        }
        merge(&mut serves);
        Explanation { backend, serves, refuses }
    }
}

/// Every kind of call that names no algorithm.
fn requests() -> impl Iterator<Item = Request> {
    let of = |operation: Operation| -> Vec<Option<Reduction>> {
        if operation.reduces() { Reduction::ALL.map(Some).into() } else { vec![None] }
    };
    let calls = OPERATIONS
        .into_iter()
        .flat_map(move |op| of(op.operation).into_iter().map(move |reduction| (op.operation, reduction)));
    calls.flat_map(|(operation, reduction)| {
        let both = Dtype::ALL.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]);
        both.map(move |(dtype, captured)| Request { operation, reduction, dtype, named: false, captured })
    })
}

/// Adds a call to those of its operation and reduction.
fn add(serves: &mut Vec<Served>, request: &Request) {
    let Request { operation, reduction, dtype, captured, .. } = *request;
    let reductions: Vec<Reduction> = reduction.into_iter().collect();
    let alike = |served: &&mut Served| {
        served.operation == operation && served.captured == captured && served.reductions == reductions
    };
    match serves.iter_mut().find(alike) {
        Some(served) => served.dtypes.push(dtype),
        None => serves.push(Served { operation, reductions, dtypes: vec![dtype], captured }),
    }
}

/// Joins the reductions of an operation that are served for the same types.
fn merge(serves: &mut Vec<Served>) {
    let mut merged: Vec<Served> = Vec::new();
    for entry in serves.drain(..) {
        let alike = |served: &&mut Served| {
            (served.operation, served.captured, &served.dtypes) == (entry.operation, entry.captured, &entry.dtypes)
        };
        match merged.iter_mut().find(alike) {
            Some(served) => served.reductions.extend(entry.reductions),
            None => merged.push(entry),
        }
    }
    *serves = merged;
}

#[cfg(test)]
#[path = "../../tests/unit/backend/dispatch.rs"]
mod tests;
