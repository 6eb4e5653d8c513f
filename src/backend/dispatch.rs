//! The choice of a backend: a pure function of the facts that a group's ranks agreed on and of the properties of a call
//! that are equal on every rank, so that all ranks choose alike.
//!
//! The size of an all-reduce, with or without a norm, is an input, because it is equal on all ranks. Other sizes are
//! not inputs: they may differ between ranks, as in an all-to-all of variable counts, and no backend limits them.
//! Addresses are not inputs either.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::explain::{Backend, Explanation, Served};
use super::quantised::QuantisedAllReduce;
use crate::error::Operation;
use crate::op::{AllReduceOptions, Call, Codec, Op};
use crate::types::{Dtype, Reduction};

/// Facts that the ranks of a group agreed on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The group's hosts by name, each with its number of ranks.
    pub(crate) hosts: Vec<(String, usize)>,
    /// The only backend that may serve, if set.
    pub(crate) forced: Option<Backend>,
    /// Whether floating types must be reduced in rank order.
    pub(crate) exact: bool,
    /// The all-reduces that use a codec. `Err`: why none does.
    pub(crate) quantised: Result<QuantisedAllReduce, String>,
    /// `Err`: why NCCL cannot be used.
    pub(crate) nccl: Result<(), String>,
    /// `Err`: why NCCL cannot reduce 8-bit floats.
    pub(crate) nccl_f8: Result<(), String>,
    /// `Err`: why there is no engine between hosts.
    pub(crate) host: Result<(), String>,
}

/// The properties of a call that are equal on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// The reduction, if the operation reduces.
    pub(crate) reduction: Option<Reduction>,
    pub(crate) dtype: Dtype,
    /// Whether the call names an algorithm or a codec.
    pub(crate) named: bool,
    /// Bytes of an all-reduce, or of the sum of an all-reduce and norm; 0 for other operations.
    pub(crate) bytes: u64,
    pub(crate) captured: bool,
}

impl Request {
    /// The request of a call. `captured`: whether its queue is captured.
    pub(crate) fn of(call: &Call<'_>, captured: bool) -> Self {
        let (operation, dtype) = (call.op.operation, call.common_dtype());
        let elems = match (operation, &call.input) {
            (Operation::AllReduce, _) => call.elems(),
            (Operation::AllReduceNorm, Some(input)) => input.elems,
            _ => 0,
        };
        let bytes = (elems * dtype.bytes()) as u64;
        Self { operation, reduction: call.reduction(), dtype, named: call.names_way(), bytes, captured }
    }

    /// The request of messages between pairs, of any type.
    pub(crate) fn of_pairs(captured: bool) -> Self {
        let (operation, dtype) = (Operation::Pairs, Dtype::U8);
        Self { operation, reduction: None, dtype, named: false, bytes: 0, captured }
    }
}

impl Facts {
    pub(crate) fn world_size(&self) -> usize {
        self.hosts.iter().map(|(_, ranks)| ranks).sum()
    }

    /// The first backend that serves the request. Allocates nothing on success.
    ///
    /// # Errors
    /// All backends, each with the reason why it does not serve the request.
    pub(crate) fn select(&self, request: &Request) -> Result<Backend, String> {
        let serves = |backend: &Backend| self.refusal(*backend, request).is_none();
        Backend::ALL.into_iter().find(serves).ok_or_else(|| {
            let reason = |backend: Backend| Some(format!("{backend}: {}", self.refusal(backend, request)?));
            Backend::ALL.into_iter().filter_map(reason).collect::<Vec<_>>().join("; ")
        })
    }

    /// The reason why a backend does not serve a request; `None` if it does.
    fn refusal(&self, backend: Backend, request: &Request) -> Option<Cow<'_, str>> {
        let world_size = self.world_size();
        if world_size == 1 {
            return (backend != Backend::Own).then_some("a group of one rank answers by itself".into());
        }
        if let Some(forced) = self.forced.filter(|forced| *forced != backend) {
            return Some(format!("{forced} is forced").into());
        }
        if request.named && backend != Backend::Own {
            return Some("the call names an algorithm or a codec of the own kernels".into());
        }
        match backend {
            Backend::Quantised => match &self.quantised {
                Err(reason) => Some(reason.as_str().into()),
                Ok(setting) => self.beside_quantised(setting, request),
            },
            Backend::Own if self.hosts.len() > 1 => Some(format!("its ranks are on {}", self.places()).into()),
            Backend::Own => None,
            Backend::Nccl => match &self.nccl {
                Err(reason) => Some(reason.as_str().into()),
                Ok(()) => self.broken_by_nccl(request).map(Cow::from),
            },
            Backend::Host => match &self.host {
                Err(reason) => Some(reason.as_str().into()),
                Ok(()) if request.operation == Operation::Pairs => {
                    Some("every rank takes part in each of its calls: in a batch all do".into())
                }
                Ok(_) if request.captured => Some("it blocks the caller and cannot be captured".into()),
                Ok(()) => None,
            },
        }
    }

    /// The reason why a call does not use the configured codec.
    fn beside_quantised(&self, setting: &QuantisedAllReduce, request: &Request) -> Option<Cow<'_, str>> {
        let carried = |reduction| setting.codec.carries(request.dtype, reduction);
        if self.hosts.len() > 1 {
            return Some(format!("its ranks are on {}", self.places()).into());
        }
        if self.exact {
            return Some("determinism is exact, and a codec rounds what it sends".into());
        }
        let summed = match request.operation {
            Operation::AllReduce | Operation::AllReduceNorm => request.reduction,
            _ => None,
        };
        if !summed.is_some_and(carried) {
            return Some("codecs carry all-reduces, sums and averages, of f16 and bf16, with a norm or without".into());
        }
        (!setting.bytes().contains(&request.bytes)).then(|| format!("it is set to {setting}").into())
    }

    /// A call as the configured codec runs it.
    pub(crate) fn by_codec<'v>(&self, call: &Call<'v>) -> Call<'v> {
        let codec = self.quantised.as_ref().map_or(Codec::None, |setting| setting.codec);
        call.clone().options(AllReduceOptions { codec, ..call.options })
    }

    /// The ranges of sizes whose all-reduces, with or without a norm, may have different backends.
    fn sizes(&self) -> Vec<RangeInclusive<u64>> {
        let Ok(setting) = &self.quantised else { return vec![0..=u64::MAX] };
        let (first, last) = setting.bytes().into_inner();
        let below = first.checked_sub(1).map(|end| 0..=end);
        let above = last.checked_add(1).map(|start| start..=u64::MAX);
        below.into_iter().chain([first..=last]).chain(above).collect()
    }

    /// Every request for an operation of all ranks without a named algorithm or codec, with the sizes of the calls that
    /// the request represents.
    fn requests(&self) -> Vec<(Request, RangeInclusive<u64>)> {
        let mut requests = Vec::new();
        for op in Op::all() {
            let operation = op.operation;
            let reductions = match op.reductions() {
                [] => vec![None],
                reductions => reductions.iter().copied().map(Some).collect(),
            };
            let sizes = match operation {
                Operation::AllReduce | Operation::AllReduceNorm => self.sizes(),
                _ => vec![0..=u64::MAX],
            };
            for (reduction, dtype) in
                reductions.iter().flat_map(|reduction| op.dtypes().iter().map(|dtype| (*reduction, *dtype)))
            {
                for (captured, size) in
                    [false, true].into_iter().flat_map(|captured| sizes.iter().map(move |size| (captured, size)))
                {
                    let bytes = *size.start();
                    let request = Request { operation, reduction, dtype, named: false, bytes, captured };
                    requests.push((request, size.clone()));
                }
            }
        }
        requests
    }

    /// The reason why NCCL cannot reduce, or the guarantee that it would break. NCCL's minima and maxima are `fminf`
    /// and `fmaxf`; its averages of floating types sum values that each rank has divided and rounded.
    fn broken_by_nccl(&self, request: &Request) -> Option<&str> {
        let reduction = request.reduction?;
        if let (true, Err(reason)) = (request.dtype.is_f8(), &self.nccl_f8) {
            return Some(reason);
        }
        match (reduction, request.dtype.is_float()) {
            (Reduction::Average, false) => Some("its averages of integers wrap in the sum"),
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

    /// Whether a backend serves any request that an engine may make.
    pub(crate) fn needs(&self, backend: Backend) -> bool {
        self.requests().iter().any(|(request, _)| self.select(request) == Ok(backend))
    }

    /// The backends in order, with the requests that each serves, and the reasons why it refuses those that reached it.
    pub(crate) fn explain(&self) -> Vec<Explanation> {
        Backend::ALL.map(|backend| self.explanation(backend)).into()
    }

    fn explanation(&self, backend: Backend) -> Explanation {
        let (mut serves, mut refuses): (Vec<Served>, Vec<String>) = (Vec::new(), Vec::new());
        let later = |served: &Backend| *served as usize >= backend as usize;
        let requests = self.requests();
        for (request, bytes) in requests.iter().filter(|(request, _)| self.select(request).as_ref().map_or(true, later))
        {
            match self.refusal(backend, request) {
                None => add(&mut serves, request, bytes),
                Some(reason) if refuses.iter().any(|known| **known == *reason) => {}
                Some(reason) => refuses.push(reason.into_owned()),
            }
        }
        merge(&mut serves);
        Explanation { backend, serves, refuses }
    }
}

/// Adds a request to the entry of its operation, reduction and sizes.
fn add(serves: &mut Vec<Served>, request: &Request, bytes: &RangeInclusive<u64>) {
    let Request { operation, reduction, dtype, captured, .. } = *request;
    let reductions: Vec<Reduction> = reduction.into_iter().collect();
    let (from_bytes, up_to_bytes) = (*bytes.start(), *bytes.end());
    let alike = |served: &&mut Served| {
        (served.operation, served.captured, served.from_bytes) == (operation, captured, from_bytes)
            && served.reductions == reductions
    };
    match serves.iter_mut().find(alike) {
        Some(served) => served.dtypes.push(dtype),
        None => serves.push(Served { operation, reductions, dtypes: vec![dtype], captured, from_bytes, up_to_bytes }),
    }
}

/// Merges entries of one operation that serve equal types: first adjacent sizes, then reductions.
fn merge(serves: &mut Vec<Served>) {
    let alike = |one: &Served, other: &Served| {
        (one.operation, one.captured, &one.dtypes) == (other.operation, other.captured, &other.dtypes)
    };
    let mut of_sizes: Vec<Served> = Vec::new();
    for entry in serves.drain(..) {
        let follows = |served: &&mut Served| {
            let next = served.up_to_bytes.checked_add(1) == Some(entry.from_bytes);
            next && alike(served, &entry) && served.reductions == entry.reductions
        };
        match of_sizes.iter_mut().find(follows) {
            Some(served) => served.up_to_bytes = entry.up_to_bytes,
            None => of_sizes.push(entry),
        }
    }
    for entry in of_sizes {
        let sizes = |served: &Served| (served.from_bytes, served.up_to_bytes);
        let joins = |served: &&mut Served| alike(served, &entry) && sizes(served) == sizes(&entry);
        match serves.iter_mut().find(joins) {
            Some(served) => served.reductions.extend(entry.reductions),
            None => serves.push(entry),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/backend/dispatch.rs"]
mod tests;
