//! Slots of dispatches, whose handles each rank drops at any time; and refusals or failed captures of one rank, which
//! leave ranks in step.

use std::collections::VecDeque;

use symmetra::experts::{Combine, ExpertConfig, Experts, Layout, Method, Placement, Received, Routed, Scales, Wire};
use symmetra::{Determinism, DeviceBuffer, Error, Result, Stream};

use crate::expert_errors::{METHODS, Operands, small};
use crate::expert_halves::{refused, some};
use crate::support::world::{meet, open as join};
use crate::support::{Rank, config, threads};

fn open(rank: &Rank, method: Method, in_flight: usize) -> Experts {
    let mut form = small(method);
    form.in_flight = in_flight;
    rank.communicator.experts(form).unwrap()
}

fn dispatch<'a>(operands: &Operands, experts: &'a Experts, stream: &'a Stream) -> Result<Routed<'a>> {
    experts.dispatch(&operands.routing(), &operands.rows, &Received::rows(&operands.received), stream)
}

fn combine(operands: &Operands, routed: &Routed<'_>, stream: &Stream) -> Result<()> {
    routed.combine(&operands.received, &operands.output, Combine::default(), stream)
}

/// Layers whose dispatches go through the memory of a slot on peers: by few packets, in place, and where heads are large.
const SHAPES: [(Layout, usize); 3] =
    [(Layout::ByExpert { align: 1 }, 8), (Layout::BySource, 8), (Layout::ByExpert { align: 1 }, 2048)];

/// Every method in every shape.
fn each_shape(mut body: impl FnMut(ExpertConfig)) {
    for (method, (layout, max_tokens)) in METHODS.into_iter().flat_map(|method| SHAPES.map(|shape| (method, shape))) {
        let mut form = small(method);
        (form.layout, form.max_tokens) = (layout, max_tokens);
        body(form);
    }
}

/// Checks the sums of a round whose experts return their inputs.
fn check(operands: &Operands, experts: &Experts, rank: &Rank) {
    if experts.config().layout != Layout::BySource {
        return operands.check(rank);
    }
    // Each rank of a token's experts returns the token's row.
    let (ids, rows) = (operands.ids.read(&rank.stream).unwrap(), operands.rows.read(&rank.stream).unwrap());
    let holder = |id: &i32| usize::try_from(*id).ok().map(|id| id * rank.communicator.world_size() / 6);
    let holders = ids.chunks(2).map(|pair| [holder(&pair[0]), holder(&pair[1])]);
    let shares = holders.map(|[one, two]| f32::from(u8::from(one.is_some()) + u8::from(two.is_some() && two != one)));
    let right: Vec<f32> =
        rows.chunks(4).zip(shares).flat_map(|(row, share)| row.iter().map(move |x| x * share)).collect();
    assert_eq!(operands.output.read(&rank.stream).unwrap(), right, "{experts:?}, {:?}", experts.method());
}

#[test]
fn ranks_drop_handles_at_different_times() {
    threads(3, &config(), |rank| {
        each_shape(|mut form| {
            let in_flight = if form.layout == Layout::BySource { 3 } else { 2 };
            form.in_flight = in_flight;
            let experts = rank.communicator.experts(form).unwrap();
            let mut held = VecDeque::new();
            for number in 0..8 {
                let operands = some(rank, &experts, number);
                let routed = dispatch(&operands, &experts, &rank.stream).unwrap();
                combine(&operands, &routed, &rank.stream).unwrap();
                rank.finish();
                check(&operands, &experts, rank);
                held.push_back(routed);
                // Rank 0 at once, the last rank as late as may be.
                let most = rank.rank().min(in_flight - 1);
                held.drain(..held.len().saturating_sub(most));
            }
        });
    });
}

/// Handles that all ranks hold are combined while ranks hold others too.
#[test]
fn handles_are_combined_beside_handles_that_some_ranks_dropped() {
    threads(2, &config(), |rank| {
        each_shape(|mut form| {
            form.in_flight = 3;
            let experts = rank.communicator.experts(form).unwrap();
            let operands = [0, 1, 2, 3].map(|number| some(rank, &experts, number));
            let [first, second] = [0, 1].map(|number| dispatch(&operands[number], &experts, &rank.stream).unwrap());
            let first = Some(first).filter(|_| rank.rank() == 1);
            let third = dispatch(&operands[2], &experts, &rank.stream).unwrap();
            drop(first);
            let fourth = dispatch(&operands[3], &experts, &rank.stream).unwrap();
            for (operands, routed) in operands[1..].iter().zip([second, third, fourth]) {
                combine(operands, &routed, &rank.stream).unwrap();
                rank.finish();
                check(operands, &experts, rank);
            }
        });
    });
}

#[test]
fn a_handle_that_is_dropped_out_of_order_is_named() {
    threads(2, &config(), |rank| {
        for method in METHODS {
            let experts = open(rank, method, 2);
            let operands = [0, 1, 2].map(|number| some(rank, &experts, number));
            let [first, second] = [0, 1].map(|number| dispatch(&operands[number], &experts, &rank.stream).unwrap());
            drop(second);
            let third = &operands[2];
            if rank.rank() == 1 {
                let words = "1 of 2 slots (`in_flight`) are held, and slot 0 is the next";
                refused(dispatch(third, &experts, &rank.stream), words);
                refused(third.round(rank, &experts), "drop the handles of dispatches in the order of the dispatches");
            }
            drop(first);
            // A refused dispatch took no turn.
            for operands in [third, &operands[0]] {
                operands.round(rank, &experts).unwrap();
                operands.check(rank);
            }
        }
    });
}

#[test]
fn a_placement_that_one_rank_refuses_moves_nothing() {
    threads(2, &config(), |rank| {
        for method in METHODS {
            let experts = open(rank, method, 1);
            let (stream, before) = (&rank.stream, experts.local_experts());
            let operands = some(rank, &experts, 3);
            let counts = DeviceBuffer::<u32>::new(&rank.device, before.len()).unwrap();
            let into = Received::rows(&operands.received).counts(&counts);
            let came = || {
                operands.received.write(&vec![-1.0; operands.received.len()], stream).unwrap();
                let routed = experts.dispatch(&operands.routing(), &operands.rows, &into, stream).unwrap();
                rank.finish();
                (routed, operands.received.read(stream).unwrap(), counts.read(stream).unwrap())
            };
            let (routed, rows, numbers) = came();
            let held = Some(routed).filter(|_| rank.rank() == 1);
            match experts.place(&Placement::RoundRobin, stream) {
                Err(Error::Unsupported { .. }) if rank.rank() == 1 => {}
                Err(Error::Peer { .. }) if rank.rank() == 0 => {}
                other => panic!("{method:?}: {other:?}"),
            }
            drop(held);
            assert_eq!(experts.local_experts(), before);
            let (routed, rows_again, numbers_again) = came();
            assert_eq!((rows, numbers), (rows_again, numbers_again), "{method:?}");
            drop(routed);
            experts.place(&Placement::RoundRobin, stream).unwrap();
            assert_ne!(experts.local_experts(), before);
            operands.round(rank, &experts).unwrap();
            operands.check(rank);
        }
    });
}

/// Ends a capture.
fn enough() -> Error {
    Error::InvalidArgument { message: "enough".to_owned() }
}

/// Ranks that captured nothing have no other slot next.
#[test]
fn a_capture_that_fails_on_one_rank_takes_no_turn() {
    threads(2, &config(), |rank| {
        for method in METHODS {
            let experts = open(rank, method, 2);
            let operands = [0, 1, 2].map(|number| some(rank, &experts, number));
            if rank.rank() == 1 {
                let failed = rank.stream.capture(|capture| {
                    let into = Received::rows(&operands[0].received);
                    experts.dispatch(&operands[0].routing(), &operands[0].rows, &into, capture).map(drop)?;
                    Err(enough())
                });
                assert_eq!(failed.map(drop), Err(enough()));
            }
            for operands in &operands {
                operands.round(rank, &experts).unwrap();
                operands.check(rank);
            }
        }
    });
}

/// A dispatch that was begun in a failed capture holds no slot any more, whether its handle is dropped or forgotten.
#[test]
fn a_capture_that_fails_behind_a_begin_holds_nothing() {
    threads(2, &config(), |rank| {
        let (experts, stream) = (open(rank, Method::Packets, 2), &rank.stream);
        let operands = [0, 1].map(|number| some(rank, &experts, number));
        let [one, two] = &operands;
        for forgets in [false, true] {
            let failed = stream.capture(|capture| {
                let first = experts.dispatch_begin(&one.routing(), &one.rows, capture)?;
                let second = experts.dispatch_begin(&two.routing(), &two.rows, capture)?;
                let routed = first.receive(&Received::rows(&one.received), capture)?;
                let returning = routed.combine_begin(&one.received, capture)?;
                if forgets {
                    std::mem::forget((second, returning));
                }
                Err(enough())
            });
            assert_eq!(failed.map(drop), Err(enough()));
            experts.place(&Placement::RoundRobin, stream).unwrap();
            for operands in &operands {
                operands.round(rank, &experts).unwrap();
                operands.check(rank);
            }
        }
    });
}

/// Each rank combines with another dispatch, or with other options; all ranks have made the same dispatches.
#[test]
fn combines_that_differ_are_a_mismatch() {
    for (method, weighs) in METHODS.into_iter().flat_map(|method| [(method, false), (method, true)]) {
        let found = meet(2, |bootstrap| {
            let mut config = config();
            config.check_calls = true;
            let rank = join(bootstrap, &config).unwrap();
            let mut form = small(method);
            (form.in_flight, form.determinism) = (2, Some(Determinism::PerAlgorithm));
            let experts = rank.communicator.experts(form).unwrap();
            let operands = [0, 1].map(|number| some(&rank, &experts, number));
            let held = operands.each_ref().map(|operands| dispatch(operands, &experts, &rank.stream).unwrap());
            rank.communicator.synchronize(&rank.stream).unwrap();
            let number = if weighs { 0 } else { rank.rank() };
            let (Operands { received, output, .. }, options) = (&operands[number], Combine::default());
            let options = if weighs && rank.rank() == 1 { options.unweighted() } else { options };
            let called = held[number].combine(received, output, options, &rank.stream);
            called.and_then(|()| rank.communicator.synchronize(&rank.stream)).unwrap_err()
        });
        assert!(found.iter().all(|error| matches!(error, Error::Mismatch { .. })), "{method:?}, {weighs}, {found:?}");
    }
}

/// An exact sum is weighed by the rank of the token, which chooses alone.
#[test]
fn ranks_weigh_exact_sums_alone() {
    let mut config = config();
    config.check_calls = true;
    threads(2, &config, |rank| {
        for method in METHODS {
            let mut form = small(method);
            form.determinism = Some(Determinism::Exact);
            let experts = rank.communicator.experts(form).unwrap();
            let operands = some(rank, &experts, 2);
            let routed = dispatch(&operands, &experts, &rank.stream).unwrap();
            let options = Combine::default();
            let options = if rank.rank() == 1 { options.unweighted() } else { options };
            routed.combine(&operands.received, &operands.output, options, &rank.stream).unwrap();
            rank.finish();
            // All weights are one half.
            let scale = if rank.rank() == 1 { 2.0 } else { 1.0 };
            let right: Vec<f32> = operands.expected(rank).iter().map(|sum| sum * scale).collect();
            assert_eq!(operands.output.read(&rank.stream).unwrap(), right, "{method:?}");
        }
    });
}

/// A row has a scale for each 128 elements. By packets four in a word cannot all be NaN: that word would be a missing one.
#[test]
fn scales_that_are_nan_stay_so() {
    threads(2, &config(), |rank| {
        for (method, groups) in METHODS.into_iter().flat_map(|method| [(method, 3), (method, 4), (method, 6)]) {
            let hidden = groups * 128;
            let mut form: ExpertConfig = small(method);
            (form.hidden, form.wire, form.layout) = (hidden, Wire::F8(Scales::E8M0), Layout::ByRank);
            let experts = rank.communicator.experts(form).unwrap();
            let stream = &rank.stream;
            let ids = DeviceBuffer::from_slice(&[0i32, 5], stream).unwrap();
            let rows = DeviceBuffer::from_slice(&vec![f32::NAN; hidden], stream).unwrap();
            let codes = DeviceBuffer::from_slice(&vec![0u8; experts.capacity() * hidden], stream).unwrap();
            let scales = DeviceBuffer::from_slice(&vec![0u8; experts.capacity() * groups], stream).unwrap();
            let into = Received::rows(&codes).scales(&scales, symmetra::experts::ScaleOrder::Rows);
            let routed = experts.dispatch(&symmetra::experts::Routing::new(&ids), &rows, &into, stream).unwrap();
            rank.finish();
            drop(routed);
            let mut right = vec![0xFF; groups];
            if method == Method::Packets && groups >= 4 {
                right[3] = 0xFE;
            }
            let found = scales.read(stream).unwrap();
            assert_eq!(found[..groups * 2], right.repeat(2), "{method:?}, {groups}");
            assert!(codes.read(stream).unwrap()[..hidden * 2].iter().all(|code| code & 0x7F == 0x7F), "{method:?}");
        }
    });
}
