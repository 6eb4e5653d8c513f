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
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::memory::{Place, View};
    use crate::op::{Extent, Message, Numbers, Size};
    use proptest::prelude::*;

    const HAVE: Result<(), String> = Ok(());

    fn facts(hosts: &[usize], nccl: bool, host: bool) -> Facts {
        let lacking = || "it is not here".to_owned();
        Facts {
            hosts: hosts.iter().enumerate().map(|(host, ranks)| (format!("host-{host}"), *ranks)).collect(),
            forced: None,
            exact: false,
            nccl: if nccl { HAVE } else { Err(lacking()) },
            host: if host { Ok(()) } else { Err(lacking()) },
        }
    }

    /// A size of any magnitude up to 2^40, a little off a power of two or not.
    fn sizes() -> impl Strategy<Value = usize> {
        (0u32..=40, -3i64..=3, 0u64..1 << 40).prop_map(|(power, off, low)| {
            let size = (1i64 << power) + off + (low & ((1 << power) - 1)) as i64 * (off & 1);
            size.clamp(0, 1 << 40) as usize
        })
    }

    /// What a rank gives to an operation, as far as it is its own: where its operands are, and which it has.
    struct Own<'a> {
        rank: usize,
        world: usize,
        bytes: usize,
        offset: usize,
        device: &'a Device,
        counts: &'a [usize],
        messages: &'a [Message],
    }

    /// The call of a rank; memory is never touched.
    fn call<'v>(own: &'v Own<'_>, op: &'static crate::op::Op, reduction: Reduction, dtype: Dtype) -> Call<'v> {
        let view = |elems: usize| View {
            address: std::ptr::without_provenance_mut((1 << 44) + own.offset * dtype.bytes()),
            elems,
            place: if own.rank.is_multiple_of(2) {
                Place::Plain
            } else {
                Place::Symmetric { group: 1, offset_bytes: 64 }
            },
            device: own.device,
            owner: None,
        };
        let (elems, root) = (own.bytes / dtype.bytes(), own.world - 1);
        let operand = |extent: Extent| {
            let elems = if extent.size == Size::One { elems } else { elems.saturating_mul(own.world) };
            (extent.size != Size::None && (!extent.at_root || own.rank == root)).then(|| view(elems))
        };
        let numbers = match op.input.size {
            Size::Counts => Numbers::Counts([own.counts; 2]),
            Size::Messages => Numbers::Messages(&own.messages[..own.rank % 2]),
            _ => Numbers::None,
        };
        let call = Call::new(op, dtype).options(reduction).parameter(root).numbers(numbers);
        call.input(operand(op.input)).output(operand(op.output))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_call_has_one_backend_which_explain_names(
            hosts in proptest::collection::vec(1usize..=16, 1..5), nccl: bool, exact: bool,
            bytes in sizes(), offset in 0usize..64, captured: bool,
        ) {
            let device = Device::host().unwrap();
            let facts = Facts { exact, ..facts(&hosts, nccl, true) };
            let world = facts.world_size();
            let explained = facts.explain();
            for op in OPERATIONS {
                for (reduction, dtype) in Reduction::ALL.into_iter().flat_map(|r| Dtype::ALL.map(|d| (r, d))) {
                    let chosen: Vec<_> = (0..world.min(5)).map(|rank| {
                        let counts: Vec<usize> = (0..world).map(|peer| peer * rank % 3).collect();
                        let offset = offset * (rank + 1);
                        let view = View {
                            address: std::ptr::without_provenance_mut(64), elems: 1, place: Place::Plain, device: &device,
                            owner: None,
                        };
                        let messages = [Message::new(0, rank % 2 == 0, dtype, &view)];
                        let own = Own {
                            rank, world, bytes, offset, device: &device, counts: &counts, messages: &messages,
                        };
                        let request = Request::of(&call(&own, op, reduction, dtype), captured);
                        (request, facts.select(&request))
                    }).collect();
                    let (request, backend) = &chosen[0];
                    prop_assert!(chosen.iter().all(|other| other.1 == *backend), "{:?}", chosen);
                    let named = |explanation: &&Explanation| {
                        let of = |s: &&Served| s.holds(op.operation, request.reduction, request.dtype, captured);
                        explanation.serves.iter().filter(of).count() > 0
                    };
                    let twice = |explanation: &Explanation| {
                        let of = |s: &&Served| s.holds(op.operation, request.reduction, request.dtype, captured);
                        explanation.serves.iter().filter(of).count() > 1
                    };
                    let names: Vec<_> = explained.iter().filter(named).map(|explanation| explanation.backend).collect();
                    prop_assert!(!explained.iter().any(twice));
                    match backend {
                        Ok(backend) => prop_assert_eq!(&names, &[*backend]),
                        // A graph of GPUs on several hosts has nothing but NCCL.
                        Err(reasons) => {
                            prop_assert!(captured && hosts.len() > 1 && names.is_empty(), "{}", reasons);
                            prop_assert!(reasons.contains("host: it blocks the caller and cannot be captured"));
                        }
                    }
                }
            }
        }

        #[test]
        fn a_forced_backend_serves_or_says_why_not(
            hosts in proptest::collection::vec(1usize..=16, 1..4), nccl: bool, host: bool, exact: bool, forced in 0usize..4,
        ) {
            let forced = Backend::ALL[forced];
            let facts = Facts { forced: Some(forced), exact, ..facts(&hosts, nccl, host) };
            for request in requests() {
                match facts.select(&request) {
                    Ok(backend) => prop_assert!(backend == forced || facts.world_size() == 1),
                    Err(reasons) => {
                        prop_assert!(facts.world_size() > 1);
                        for other in Backend::ALL.into_iter().filter(|other| *other != forced) {
                            let words = format!("{other}: {forced} is forced");
                            prop_assert!(reasons.contains(&words), "{}", reasons);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn groups_on_one_host_are_served_by_the_own_kernels_alone() {
        let lines: Vec<_> = facts(&[4], true, true).explain().iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "quantised: refuses: there is none yet");
        assert_eq!(lines[1], "own: every operation and type, any size; in graphs every operation and type, any size");
        assert_eq!(lines[2], "nccl: nothing comes to it");
        assert_eq!(lines[3], "host: nothing comes to it");
    }

    #[test]
    fn groups_on_several_hosts_go_on_to_others() {
        let lines: Vec<_> = facts(&[2, 1], false, true).explain().iter().map(ToString::to_string).collect();
        assert_eq!(lines[1], "own: refuses: its ranks are on 2 hosts, host-0 (2 ranks), host-1 (1 ranks)");
        assert_eq!(lines[2], "nccl: refuses: it is not here");
        assert_eq!(
            lines[3],
            "host: every operation and type, any size; refuses: it blocks the caller and cannot be captured"
        );
        let lines: Vec<_> = facts(&[2, 1], true, true).explain().iter().map(ToString::to_string).collect();
        let (nccl, host) = (
            "nccl: all-reduce (sum prod) of every type, all-reduce (min max) of i32 i64 i8 u8 u32 u64, \
             all-reduce (avg) of f32 f64 f16 bf16, reduce-scatter",
            "host: all-reduce (min max) of f32 f64 f16 bf16, all-reduce (avg) of i32 i64 i8 u8 u32 u64, reduce-scatter",
        );
        assert!(lines[2].starts_with(nccl), "{}", lines[2]);
        assert!(lines[3].starts_with(host), "{}", lines[3]);
    }

    /// Whether `Determinism::Exact` rules, and how many ranks there are, matter to floating types alone.
    #[test]
    fn nccl_is_given_nothing_that_it_computes_otherwise() {
        let served = |exact: bool, ranks: usize, floats: bool| -> Vec<Reduction> {
            let facts = Facts { exact, ..facts(&[1, ranks - 1], true, true) };
            let by_nccl = |reduction: &Reduction| {
                let backends = requests().filter(|request| {
                    !request.captured && request.reduction == Some(*reduction) && request.dtype.is_float() == floats
                });
                let backends: Vec<_> = backends.map(|request| facts.select(&request)).collect();
                let nccl = backends[0] == Ok(Backend::Nccl);
                let expected = Ok(if nccl { Backend::Nccl } else { Backend::Host });
                assert!(backends.iter().all(|backend| *backend == expected), "{reduction}: {backends:?}");
                nccl
            };
            Reduction::ALL.into_iter().filter(by_nccl).collect()
        };
        use Reduction::{Average, Max, Min, Product, Sum};
        for (exact, ranks) in [(false, 2), (false, 3), (true, 2), (true, 3)] {
            assert_eq!(served(exact, ranks, false), [Sum, Product, Min, Max]);
        }
        for ranks in [2, 3] {
            assert_eq!(served(false, ranks, true), [Sum, Product, Average]);
        }
        assert_eq!(served(true, 2, true), [Sum, Product]);
        assert_eq!(served(true, 3, true), []);
        let captured = Request {
            operation: Operation::AllReduce,
            reduction: Some(Max),
            dtype: Dtype::BF16,
            named: false,
            captured: true,
        };
        let reasons = facts(&[1, 1], true, true).select(&captured).unwrap_err();
        assert!(
            reasons.contains("nccl: its minima and maxima of floating types lose NaN; host: it blocks"),
            "{reasons}"
        );
        let average = Request { reduction: Some(Average), ..captured };
        let reasons = Facts { exact: true, ..facts(&[1, 1], true, true) }.select(&average).unwrap_err();
        assert!(reasons.contains("nccl: determinism is exact, and it divides before it adds; "), "{reasons}");
    }

    #[test]
    fn an_algorithm_by_name_is_for_the_own_kernels() {
        let request = |named| Request {
            operation: Operation::AllReduce,
            reduction: Some(Reduction::Sum),
            dtype: Dtype::F32,
            named,
            captured: false,
        };
        assert_eq!(facts(&[2], true, true).select(&request(true)), Ok(Backend::Own));
        assert_eq!(facts(&[2, 2], true, true).select(&request(false)), Ok(Backend::Nccl));
        let reasons = facts(&[2, 2], true, true).select(&request(true)).unwrap_err();
        assert!(reasons.contains("nccl: the call names an algorithm of the own kernels"), "{reasons}");
    }
}
