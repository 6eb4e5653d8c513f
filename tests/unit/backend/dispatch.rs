//! Tests of `src/backend/dispatch.rs`, whose module they are.

use super::*;
use crate::device::Device;
use crate::memory::{Place, View};
use crate::op::{Extent, Held, NormRows, Numbers, PartCounts, RankMessage, RmsNorm, Size};
use proptest::prelude::*;

const HAVE: Result<(), String> = Ok(());

fn facts(hosts: &[usize], nccl: bool, host: bool) -> Facts {
    let lacking = || "it is not here".to_owned();
    Facts {
        hosts: hosts.iter().enumerate().map(|(host, ranks)| (format!("host-{host}"), *ranks)).collect(),
        forced: None,
        exact: false,
        quantised: Err("no codec is set".to_owned()),
        nccl: if nccl { HAVE } else { Err(lacking()) },
        nccl_f8: if nccl { HAVE } else { Err(lacking()) },
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

/// A setting of quantised all-reduces, with limits that may be 0, equal or none.
fn settings() -> impl Strategy<Value = Option<QuantisedAllReduce>> {
    let limits =
        proptest::option::of((sizes(), sizes())).prop_map(|pair| pair.map(|(a, b)| (a.min(b) as u64, a.max(b) as u64)));
    proptest::option::of((0usize..Codec::ALL.len(), limits, any::<bool>())).prop_map(|setting| {
        let (codec, limits, open) = setting?;
        let (min_bytes, max_bytes) = (limits.map(|(min, _)| min), limits.filter(|_| !open).map(|(_, max)| max));
        Some(QuantisedAllReduce { min_bytes, max_bytes, ..QuantisedAllReduce::new(Codec::ALL[codec]) })
    })
}

/// The values in a call that may differ from rank to rank: where the operands are, and which operands exist.
struct Own<'a> {
    rank: usize,
    world: usize,
    bytes: usize,
    offset: usize,
    device: &'a Device,
    counts: &'a [usize],
    messages: &'a [RankMessage],
    norm: &'a NormRows,
}

/// The call of a rank; memory is never touched.
fn call<'v>(own: &'v Own<'_>, op: &'static crate::op::Op, reduction: Reduction, dtype: Dtype) -> Call<'v> {
    let view = |elems: usize| View {
        address: std::ptr::without_provenance_mut((1 << 44) + own.offset * dtype.bytes()),
        elems,
        place: if own.rank.is_multiple_of(2) { Place::Plain } else { Place::Symmetric { group: 1, offset_bytes: 64 } },
        device: own.device,
        owner: None,
        read_only: false,
    };
    let (elems, root) = (own.bytes / dtype.bytes(), own.world - 1);
    let operand = |extent: Extent| {
        let elems = if extent.size == Size::One { elems } else { elems.saturating_mul(own.world) };
        (extent.size != Size::None && (!extent.at_root || own.rank == root)).then(|| view(elems))
    };
    let numbers = match op.input.size {
        Size::Counts => Numbers::Counts([own.counts; 2]),
        Size::OwnPart | Size::Parts => Numbers::Parts(PartCounts(own.counts)),
        Size::Messages => Numbers::Messages(&own.messages[..own.rank % 2]),
        Size::Rows => Numbers::Norm(own.norm),
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
        bytes in sizes(), offset in 0usize..64, captured: bool, setting in settings(),
    ) {
        let device = Device::host().unwrap();
        let quantised = setting.ok_or_else(|| "no codec is set".to_owned());
        let facts = Facts { exact, quantised, ..facts(&hosts, nccl, true) };
        let world = facts.world_size();
        let explained = facts.explain();
        for op in Op::all() {
            let reductions = if op.reductions().is_empty() { &Reduction::ALL } else { op.reductions() };
            for (reduction, dtype) in reductions.iter().flat_map(|r| op.dtypes().iter().map(|d| (*r, *d))) {
                let chosen: Vec<_> = (0..world.min(5)).map(|rank| {
                    let counts: Vec<usize> = (0..world).map(|peer| peer * rank % 3).collect();
                    let offset = offset * (rank + 1);
                    let view = View {
                        address: std::ptr::without_provenance_mut(64), elems: 1, place: Place::Plain, device: &device,
                        owner: None,
                        read_only: false,
                    };
                    let messages = [RankMessage::new(0, rank % 2 == 0, dtype, &view)];
                    let (norm, weight) = (RmsNorm::new(0.5), Held::new(dtype, &view));
                    let norm = NormRows::new(norm, weight);
                    let own = Own {
                        rank, world, bytes, offset, device: &device, counts: &counts, messages: &messages, norm: &norm,
                    };
                    let request = Request::of(&call(&own, op, reduction, dtype), captured);
                    (request, facts.select(&request))
                }).collect();
                let (request, backend) = &chosen[0];
                prop_assert!(chosen.iter().all(|other| other.1 == *backend), "{:?}", chosen);
                let named = |explanation: &&Explanation| {
                    let of = |s: &&Served| s.holds(op.operation, request.reduction, request.dtype, captured, request.bytes);
                    explanation.serves.iter().filter(of).count() > 0
                };
                let twice = |explanation: &Explanation| {
                    let of = |s: &&Served| s.holds(op.operation, request.reduction, request.dtype, captured, request.bytes);
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
        for (request, _) in facts.requests() {
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
    assert_eq!(lines[0], "quantised: refuses: no codec is set");
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
         all-reduce (avg) of f32 f64 f16 bf16 f8e4m3 f8e5m2, reduce-scatter",
        "host: all-reduce (min max) of f32 f64 f16 bf16 f8e4m3 f8e5m2, all-reduce (avg) of i32 i64 i8 u8 u32 u64, reduce-scatter",
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
            let requests = facts.requests();
            let backends = requests.iter().filter(|(request, _)| {
                !request.captured && request.reduction == Some(*reduction) && request.dtype.is_float() == floats
            });
            let backends: Vec<_> = backends.map(|(request, _)| facts.select(request)).collect();
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
        bytes: 8,
        captured: true,
    };
    let reasons = facts(&[1, 1], true, true).select(&captured).unwrap_err();
    assert!(reasons.contains("nccl: its minima and maxima of floating types lose NaN; host: it blocks"), "{reasons}");
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
        bytes: 4 << 20,
        captured: false,
    };
    assert_eq!(facts(&[2], true, true).select(&request(true)), Ok(Backend::Own));
    assert_eq!(facts(&[2, 2], true, true).select(&request(false)), Ok(Backend::Nccl));
    let reasons = facts(&[2, 2], true, true).select(&request(true)).unwrap_err();
    assert!(reasons.contains("nccl: the call names an algorithm or a codec of the own kernels"), "{reasons}");
}

#[test]
fn a_codec_serves_what_it_is_set_to_and_nothing_else() {
    let setting = QuantisedAllReduce { max_bytes: Some(8 << 20), ..QuantisedAllReduce::new(Codec::Int8) };
    let with = |hosts: &[usize]| Facts { quantised: Ok(setting), ..facts(hosts, true, true) };
    let request = |reduction, dtype, bytes, named| Request {
        operation: Operation::AllReduce,
        reduction: Some(reduction),
        dtype,
        named,
        bytes,
        captured: false,
    };
    use Reduction::{Average, Max, Sum};
    for (request, backend) in [
        (request(Sum, Dtype::BF16, 2 << 20, false), Backend::Quantised),
        (request(Average, Dtype::F16, 8 << 20, false), Backend::Quantised),
        (request(Sum, Dtype::BF16, (2 << 20) - 2, false), Backend::Own),
        (request(Sum, Dtype::BF16, (8 << 20) + 2, false), Backend::Own),
        (request(Sum, Dtype::BF16, 4 << 20, true), Backend::Own),
        (request(Sum, Dtype::F32, 4 << 20, false), Backend::Own),
        (request(Max, Dtype::BF16, 4 << 20, false), Backend::Own),
    ] {
        assert_eq!(with(&[4]).select(&request), Ok(backend), "{request:?}");
        assert_ne!(with(&[2, 2]).select(&request), Ok(Backend::Quantised), "{request:?}");
        let exact = Facts { exact: true, ..with(&[4]) };
        assert_eq!(exact.select(&request), Ok(Backend::Own));
        let through = Facts { forced: Some(Backend::Quantised), ..with(&[4]) };
        assert_eq!(through.select(&request).is_ok(), backend == Backend::Quantised, "{request:?}");
    }
    let lines: Vec<_> = with(&[4]).explain().iter().map(ToString::to_string).collect();
    let norm = |bytes, backend| {
        let request = Request { operation: Operation::AllReduceNorm, ..request(Sum, Dtype::BF16, bytes, false) };
        assert_eq!(with(&[4]).select(&request), Ok(backend), "{bytes}");
        let single = Request { dtype: Dtype::F32, ..request };
        assert_eq!(with(&[4]).select(&single), Ok(Backend::Own), "{bytes}");
    };
    norm((2 << 20) - 2, Backend::Own);
    norm(2 << 20, Backend::Quantised);
    let range = "of f16 bf16 from 2097152 to 8388608 bytes";
    let (by_codec, least) =
        (format!("all-reduce (sum avg) {range}, all-reduce-norm (sum) {range}"), "int8 from 2097152 to 8388608 bytes");
    assert_eq!(
        lines[0],
        format!(
            "quantised: {by_codec}; in graphs {by_codec}; refuses: codecs carry all-reduces, sums and averages, of f16 and \
             bf16, with a norm or without; it is set to {least}"
        )
    );
    let own = "own: all-reduce (prod min max) of every type, reduce-scatter";
    let some = "any size, all-reduce (sum avg) of every type up to 2097151 bytes, all-reduce (sum avg) of f32 f64 i32";
    assert!(lines[1].starts_with(own) && lines[1].contains(some), "{}", lines[1]);
    let last = "all-reduce (sum avg) of every type from 8388609 bytes, all-reduce-norm (sum) of f32 f16 bf16 up to 2097151 bytes";
    assert!(lines[1].contains(last), "{}", lines[1]);
    let lines: Vec<_> = with(&[2, 2]).explain().iter().map(ToString::to_string).collect();
    assert_eq!(lines[0], "quantised: refuses: its ranks are on 2 hosts, host-0 (2 ranks), host-1 (2 ranks)");
    assert!(lines[2].starts_with("nccl: all-reduce (sum prod) of every type, "), "{}", lines[2]);
    let lines: Vec<_> = Facts { exact: true, ..with(&[4]) }.explain().iter().map(ToString::to_string).collect();
    assert_eq!(lines[0], "quantised: refuses: determinism is exact, and a codec rounds what it sends");
    assert_eq!(lines[1], "own: every operation and type, any size; in graphs every operation and type, any size");
}

/// Data that only move are bytes to NCCL.
#[test]
fn reductions_of_8_bit_floats_pass_an_older_nccl() {
    let old = Facts { nccl_f8: Err("it is older than 2.24".to_owned()), ..facts(&[1, 1], true, true) };
    for (request, _) in old.requests().into_iter().filter(|(request, _)| !request.captured) {
        let refused = request.dtype.is_f8() && request.reduction.is_some();
        if refused {
            assert_eq!(old.select(&request), Ok(Backend::Host));
            let reasons = Facts { forced: Some(Backend::Nccl), ..old.clone() }.select(&request).unwrap_err();
            assert!(reasons.contains("nccl: it is older than 2.24"), "{reasons}");
        } else {
            assert_eq!(old.select(&request), facts(&[1, 1], true, true).select(&request));
        }
    }
}
