//! Calls of experts in two halves: calls in flight, dropped and forgotten handles, and errors.
//! `expert_methods` compares their values with the definition.

use std::time::Duration;

use symmetra::experts::{Arriving, Combine, Experts, Layout, Method, Placement, Received, Returning, Routed};
use symmetra::{Determinism, DeviceBuffer, Error, Result, Stream};

use crate::expert_errors::{Operands, meet_failing, small};
use crate::support::extent::repeats;
use crate::support::world::{Gate, meet, open as join};
use crate::support::{Rank, config, fits, threads};

/// Experts in packets, with `in_flight` calls in flight.
fn open(rank: &Rank, in_flight: usize) -> Experts {
    let mut form = small(Method::Packets);
    form.in_flight = in_flight;
    rank.communicator.experts(form).unwrap()
}

/// With the comparison of calls, which meets all ranks at every begin, and without.
fn each_way(world: usize, body: impl Fn(&Rank) + Sync) {
    if fits(world) {
        for check_calls in [false, true] {
            let mut config = config();
            config.check_calls = check_calls;
            threads(world, &config, &body);
        }
    }
}

/// Operands with ids that follow from a number.
pub(crate) fn some(rank: &Rank, experts: &Experts, number: usize) -> Operands {
    let tokens = 1 + (number + rank.rank()) % 8;
    let ids: Vec<i32> = (0..tokens * 2).map(|index| ((number * 5 + index * 3) % 7) as i32 - 1).collect();
    Operands::new(rank, experts, &ids)
}

impl Operands {
    fn begin<'a>(&self, experts: &'a Experts, stream: &'a Stream) -> Result<Arriving<'a>> {
        experts.dispatch_begin(&self.routing(), &self.rows, stream)
    }

    fn receive<'a>(&self, arriving: Arriving<'a>, stream: &'a Stream) -> Result<Routed<'a>> {
        arriving.receive(&Received::rows(&self.received), stream)
    }

    fn sum(&self, returning: Returning<'_>, stream: &Stream) -> Result<()> {
        returning.receive(&self.output, Combine::default(), stream)
    }

    pub(crate) fn check(&self, rank: &Rank) {
        assert_eq!(self.output.read(&rank.stream).unwrap(), self.expected(rank));
    }

    fn is_untouched(&self, rank: &Rank) {
        for buffer in [&self.received, &self.output] {
            assert_eq!(buffer.read(&rank.stream).unwrap(), vec![-1.0; buffer.len()]);
        }
    }
}

pub(crate) fn refused<T>(result: Result<T>, words: &str) {
    match result.map(drop) {
        Err(Error::Unsupported { what, reason }) => {
            let message = format!("{what}: {reason}");
            assert!(message.contains(words), "{message}");
        }
        other => panic!("{words}: {other:?}"),
    }
}

/// Each rank has another order of begins and receives, and other streams.
#[test]
fn two_micro_batches_are_in_flight() {
    each_way(3, |rank| {
        let experts = open(rank, 2);
        let aside = Stream::new(&rank.device).unwrap();
        let streams = [&rank.stream, if rank.rank() == 2 { &aside } else { &rank.stream }];
        for round in 0..repeats("SYMMETRA_TEST_REPLAYS", 20, 200) {
            let [one, two] = [0, 1].map(|half| some(rank, &experts, round * 2 + half));
            let first = one.begin(&experts, streams[0]).unwrap();
            let (first, second) = if (round + rank.rank()).is_multiple_of(2) {
                let first = one.receive(first, streams[1]).unwrap();
                (first, two.begin(&experts, streams[0]).unwrap())
            } else {
                let second = two.begin(&experts, streams[0]).unwrap();
                refused(two.begin(&experts, streams[0]), "2 of 2 slots (`in_flight`) are held");
                (one.receive(first, streams[1]).unwrap(), second)
            };
            let returning = first.combine_begin(&one.received, streams[1]).unwrap();
            // The slot is held until the combine is received.
            drop(first);
            let second = two.receive(second, streams[0]).unwrap();
            refused(two.begin(&experts, streams[0]), "2 of 2 slots");
            let last = second.combine_begin(&two.received, streams[0]).unwrap();
            refused(second.combine_begin(&two.received, streams[0]), "2 of 2 combines (`in_flight`) were begun");
            one.sum(returning, streams[1]).unwrap();
            two.sum(last, streams[0]).unwrap();
            rank.communicator.synchronize(streams[1]).unwrap();
            rank.finish();
            one.check(rank);
            two.check(rank);
            assert_eq!(second.counts().unwrap().len(), experts.local_experts().len());
        }
    });
}

/// Micro-batches in structs of an engine, which outlive the handles of experts and streams that began them.
#[test]
fn owned_handles_lie_in_the_structs_of_an_engine() {
    #[derive(Default)]
    struct MicroBatch {
        arriving: Option<Arriving<'static>>,
        routed: Option<Routed<'static>>,
        returning: Option<Returning<'static>>,
    }
    each_way(2, |rank| {
        let experts = open(rank, 2);
        let operands = [0, 1].map(|number| some(rank, &experts, number));
        let mut batches = [0, 1].map(|_| MicroBatch::default());
        for (batch, operands) in batches.iter_mut().zip(&operands) {
            let own = experts.clone();
            batch.arriving = Some(operands.begin(&own, &rank.stream).unwrap().into_owned().unwrap());
        }
        for (batch, operands) in batches.iter_mut().zip(&operands) {
            let arriving = batch.arriving.take().unwrap();
            batch.routed = Some(operands.receive(arriving, &rank.stream).unwrap().into_owned().unwrap());
        }
        refused(operands[0].begin(&experts, &rank.stream), "2 of 2 slots (`in_flight`) are held");
        for (batch, operands) in batches.iter_mut().zip(&operands) {
            let routed = batch.routed.take().unwrap();
            let returning = routed.combine_begin(&operands.received, &rank.stream).unwrap();
            batch.returning = Some(returning.into_owned().unwrap());
        }
        for (batch, operands) in batches.iter_mut().zip(&operands) {
            operands.sum(batch.returning.take().unwrap(), &rank.stream).unwrap();
        }
        rank.finish();
        operands.iter().for_each(|operands| operands.check(rank));
        // The handles of a capture end with the closure.
        let one = Operands::new(rank, &experts, &[0; 16]);
        let (routing, into) = (one.routing().tokens(&one.count), Received::rows(&one.received));
        let graph = rank.stream.capture(|capture| {
            refused(experts.dispatch_begin(&routing, &one.rows, capture)?.into_owned(), "ends with its closure");
            let routed = experts.dispatch(&routing, &one.rows, &into, capture)?;
            refused(routed.combine_begin(&one.received, capture)?.into_owned(), "ends with its closure");
            refused(routed.into_owned(), "ends with its closure");
            Ok(())
        });
        drop(graph.unwrap());
    });
}

/// One rank drops a handle, and another receives; whole calls follow.
#[test]
fn a_dropped_half_is_received_into_nothing() {
    each_way(2, |rank| {
        let experts = open(rank, 2);
        let stream = &rank.stream;
        for round in 0..8 {
            let [one, two] = [0, 1].map(|half| some(rank, &experts, round * 2 + half));
            let drops = |call: usize| (round >> call) % 2 == rank.rank();
            let first = one.begin(&experts, stream).unwrap();
            let second = two.begin(&experts, stream).unwrap();
            // The second goes first: it waits for its turn.
            let second = Some(second).filter(|_| !drops(0));
            let first = Some(first).filter(|_| !drops(1)).map(|first| one.receive(first, stream).unwrap());
            let second = second.map(|second| two.receive(second, stream).unwrap());
            // Combines are begun on all ranks or on none.
            drop((first, second));
            rank.finish();
            if drops(0) {
                two.is_untouched(rank);
            }
            if drops(1) {
                one.is_untouched(rank);
            }
            let routed = one.begin(&experts, stream).and_then(|arriving| one.receive(arriving, stream)).unwrap();
            let returning = routed.combine_begin(&one.received, stream).unwrap();
            match drops(2) {
                true => drop(returning),
                false => one.sum(returning, stream).unwrap(),
            }
            drop(routed);
            rank.finish();
            match drops(2) {
                true => assert_eq!(one.output.read(stream).unwrap(), vec![-1.0; one.output.len()]),
                false => one.check(rank),
            }
            // All slots are free, and ranks are in step.
            experts.place(&Placement::Blocks, stream).unwrap();
            two.round(rank, &experts).unwrap();
            two.check(rank);
        }
    });
}

#[test]
fn halves_out_of_order_are_refused() {
    threads(2, &config(), |rank| {
        let experts = open(rank, 3);
        let stream = &rank.stream;
        let operands = [0, 1, 2].map(|number| some(rank, &experts, number));
        let [one, two, three] = &operands;
        let graph = stream
            .capture(|capture| {
                let into = Received::rows(&three.received);
                experts.dispatch(&three.routing(), &three.rows, &into, capture).map(drop)
            })
            .unwrap();
        let first = one.begin(&experts, stream).unwrap();
        let second = two.begin(&experts, stream).unwrap();
        refused(
            two.receive(second, stream),
            "to receive a dispatch: a dispatch that was begun before is to be received first",
        );
        refused(three.round(rank, &experts), "the whole of a dispatch");
        refused(graph.launch(stream), "a launch of this graph");
        let elsewhere = stream.capture(|capture| {
            let into = Received::rows(&one.received);
            one.begin(&experts, stream).map(drop)?;
            experts.dispatch(&one.routing(), &one.rows, &into, capture).map(drop)
        });
        refused(elsewhere, "on a stream that is being captured");
        match experts.place(&Placement::Blocks, stream) {
            Err(Error::Unsupported { .. } | Error::Peer { .. }) => {}
            other => panic!("{other:?}"),
        }
        let first = one.receive(first, stream).unwrap();
        // The second combine was dropped by its error, and received after the first.
        let returning = first.combine_begin(&one.received, stream).unwrap();
        refused(first.combine(&one.received, &one.output, Combine::default(), stream), "the whole of a combine");
        let again = first.combine_begin(&one.received, stream).unwrap();
        refused(one.sum(again, stream), "to receive a combine");
        one.sum(returning, stream).unwrap();
        rank.finish();
        one.check(rank);
        two.is_untouched(rank);
        three.is_untouched(rank);
        drop(first);
        experts.place(&Placement::RoundRobin, stream).unwrap();
        three.round(rank, &experts).unwrap();
        three.check(rank);
        graph.launch(stream).unwrap();
        rank.finish();
    });
}

#[test]
fn a_forgotten_half_keeps_its_slot() {
    threads(2, &config(), |rank| {
        let experts = open(rank, 2);
        let stream = &rank.stream;
        let [one, two] = [0, 1].map(|number| some(rank, &experts, number));
        std::mem::forget(one.begin(&experts, stream).unwrap());
        let second = two.begin(&experts, stream).unwrap();
        refused(one.begin(&experts, stream), "2 of 2 slots (`in_flight`) are held");
        refused(two.receive(second, stream), "a dispatch that was begun before");
        refused(one.begin(&experts, stream), "2 of 2 slots (`in_flight`) are held");
        one.is_untouched(rank);
    });
}

/// Two micro-batches in one graph. Beside them a dispatch and a combine that some ranks drop or forget: when the capture ends,
/// they are received all the same.
#[test]
fn graphs_of_halves_leave_ranks_in_step() {
    let replays = repeats("SYMMETRA_TEST_REPLAYS", 30, 500);
    each_way(3, |rank| {
        let experts = open(rank, 3);
        let (stream, me) = (&rank.stream, rank.rank());
        let [one, two, none] = [0, 1, 2].map(|_| Operands::new(rank, &experts, &[0; 16]));
        let into = [&one, &two, &none].map(|operands| Received::rows(&operands.received));
        let routings = [&one, &two, &none].map(|operands| operands.routing().tokens(&operands.count));
        let graph = stream
            .capture(|capture| {
                let first = experts.dispatch_begin(&routings[0], &one.rows, capture)?;
                let lost = experts.dispatch_begin(&routings[2], &none.rows, capture)?;
                let second = experts.dispatch_begin(&routings[1], &two.rows, capture)?;
                assert!(matches!(
                    experts.dispatch_begin(&routings[1], &two.rows, capture),
                    Err(Error::Unsupported { .. })
                ));
                let first = first.receive(&into[0], capture)?;
                drop(lost);
                let second = second.receive(&into[1], capture)?;
                let returning = first.combine_begin(&one.received, capture)?;
                let last = second.combine_begin(&two.received, capture)?;
                returning.receive(&one.output, Combine::default(), capture)?;
                last.receive(&two.output, Combine::default(), capture)?;
                let lost = second.combine_begin(&two.received, capture)?;
                match me {
                    0 => drop(lost),
                    1 => std::mem::forget(lost),
                    _ => lost.receive(&two.output, Combine::default(), capture)?,
                }
                // The first slot is the next.
                drop(first);
                let lost = experts.dispatch_begin(&routings[2], &none.rows, capture)?;
                let elsewhere = experts.dispatch_begin(&routings[2], &none.rows, stream);
                assert!(matches!(elsewhere, Err(Error::Unsupported { .. })));
                if me == 0 {
                    std::mem::forget(lost);
                }
                Ok(())
            })
            .unwrap();
        graph.register().unwrap();
        for replay in 0..replays {
            let number = |index: usize| replay * 31 + index * 7 + me * 3;
            let tokens = [number(0) % 9, number(1) % 9];
            for (operands, tokens) in [&one, &two].into_iter().zip(tokens) {
                let ids: Vec<i32> = (0..16).map(|index| (number(index + tokens) % 7) as i32 - 1).collect();
                let rows: Vec<f32> = (0..32).map(|index| number(index + tokens) as f32).collect();
                operands.ids.write(&ids, stream).unwrap();
                operands.rows.write(&rows, stream).unwrap();
                operands.count.write(&[tokens as u32], stream).unwrap();
                operands.output.write(&[-1.0; 32], stream).unwrap();
            }
            graph.launch(stream).unwrap();
            rank.finish();
            for (operands, tokens) in [&one, &two].into_iter().zip(tokens) {
                let mut expected = operands.expected(rank);
                expected[tokens * 4..].fill(-1.0);
                assert_eq!(operands.output.read(stream).unwrap(), expected, "replay {replay}");
            }
            none.is_untouched(rank);
            if replay % 8 == 0 {
                // All slots of the capture are free again.
                let eager = one.begin(&experts, stream).unwrap();
                refused(graph.launch(stream), "a call that was begun on a stream");
                drop(eager);
                experts
                    .place(if replay % 16 == 0 { &Placement::RoundRobin } else { &Placement::Blocks }, stream)
                    .unwrap();
            }
        }
    });
}

#[test]
fn halves_are_checked_before_anything_runs() {
    threads(2, &config(), |rank| {
        let stream = &rank.stream;
        for method in [Method::Direct, Method::Gather, Method::Broadcast] {
            let experts = rank.communicator.experts(small(method)).unwrap();
            let operands = some(rank, &experts, 0);
            refused(operands.begin(&experts, stream), &format!("the method is {method:?}"));
            let into = Received::rows(&operands.received);
            let routed = experts.dispatch(&operands.routing(), &operands.rows, &into, stream).unwrap();
            refused(routed.combine_begin(&operands.received, stream), "a combine in two halves");
            rank.finish();
        }
        for (determinism, layout, weighs) in [
            (Determinism::PerAlgorithm, Layout::ByExpert { align: 1 }, true),
            (Determinism::PerAlgorithm, Layout::ByRank, false),
            (Determinism::PerAlgorithm, Layout::BySource, false),
            (Determinism::Exact, Layout::ByExpert { align: 1 }, false),
        ] {
            let mut form = small(Method::Packets);
            (form.determinism, form.layout) = (Some(determinism), layout);
            let experts = rank.communicator.experts(form).unwrap();
            let operands = Operands::new(rank, &experts, &[0, 5, 1, -1]);
            let says = |result: Result<()>, words: &str| match result {
                Err(Error::InvalidArgument { message }) => assert!(message.contains(words), "{message}"),
                other => panic!("{words}: {other:?}"),
            };
            let Operands { weights, rows, received, output, .. } = &operands;
            says(experts.dispatch_begin(&operands.routing(), weights, stream).map(drop), "the length of the rows is 4");
            // A receive that is refused drops the dispatch.
            let arriving = operands.begin(&experts, stream).unwrap();
            says(arriving.receive(&Received::rows(rows), stream).map(drop), "the length of the received rows is 8");
            operands.is_untouched(rank);
            let routed = operands.begin(&experts, stream).and_then(|begun| operands.receive(begun, stream)).unwrap();
            says(routed.combine_begin(output, stream).map(drop), "the length of the results is 8");
            let returning = routed.combine_begin(received, stream).unwrap();
            says(returning.receive(weights, Combine::default(), stream), "the length of the output is 4");
            let returning = routed.combine_begin(received, stream).unwrap();
            let unweighted = returning.receive(output, Combine::default().unweighted(), stream);
            if weighs {
                refused(unweighted, "ranks weighed the results");
                routed.combine(received, output, Combine::default(), stream).unwrap();
                rank.finish();
                operands.check(rank);
            } else {
                unweighted.unwrap();
                rank.finish();
                // By rank a row counts once for each rank that has an expert of the token: here two ranks, and one.
                let rows = rows.read(stream).unwrap();
                let sums: Vec<f32> =
                    rows.iter().enumerate().map(|(index, row)| row * if index < 4 { 2.0 } else { 1.0 }).collect();
                assert_eq!(output.read(stream).unwrap(), sums);
            }
        }
    });
}

/// An error that the device detects is reported to every rank by the receive.
#[test]
fn a_wrong_expert_is_named_behind_the_receive() {
    let world = 2;
    let found = meet_failing(world, |rank| {
        let experts = open(rank, 2);
        let operands = Operands::new(rank, &experts, if rank.rank() == 1 { &[0, 1, 9, 0] } else { &[0, 5] });
        let arriving = operands.begin(&experts, &rank.stream).unwrap();
        // The receive already returns the error if the other rank was first to find the expert.
        let error = match operands.receive(arriving, &rank.stream) {
            Ok(routed) => {
                let error = rank.communicator.synchronize(&rank.stream).unwrap_err();
                assert_eq!(routed.combine_begin(&operands.received, &rank.stream).map(drop), Err(error.clone()));
                error
            }
            Err(error) => error,
        };
        assert_eq!(operands.begin(&experts, &rank.stream).map(drop), Err(error.clone()));
        operands.is_untouched(rank);
        error
    });
    // None where the world does not fit this machine.
    assert_eq!(found, vec![Error::Routing { rank: 1, token: 1, expert: 9, experts: 6 }; found.len()]);
    assert!(found.len() == world || !fits(world));
}

/// The first dispatch waits as long as any first call, and the receive does the waiting.
#[test]
fn the_first_receive_may_wait_long() {
    let mut config = config();
    config.deadlines.steady = Duration::from_secs(1);
    config.check_calls = false;
    threads(2, &config, |rank| {
        let experts = open(rank, 1);
        let operands = some(rank, &experts, 3);
        std::thread::sleep(Duration::from_millis(2500) * rank.rank() as u32);
        let arriving = operands.begin(&experts, &rank.stream).unwrap();
        let routed = operands.receive(arriving, &rank.stream).unwrap();
        let returning = routed.combine_begin(&operands.received, &rank.stream).unwrap();
        operands.sum(returning, &rank.stream).unwrap();
        rank.finish();
        operands.check(rank);
    });
}

/// A rank leaves after its begin. The other ranks get an error, and the handles that they hold can be dropped.
#[test]
fn a_rank_that_leaves_between_halves_is_named() {
    let (world, gate, survivors) = (3, Gate::new(3), Gate::new(2));
    if !fits(world) {
        return;
    }
    meet(world, |bootstrap| {
        let rank = join(bootstrap, &config()).unwrap();
        let experts = open(&rank, 2);
        let stream = &rank.stream;
        let operands = some(&rank, &experts, 0);
        operands.round(&rank, &experts).unwrap();
        let [one, two] = [1, 2].map(|number| some(&rank, &experts, number));
        let first = one.begin(&experts, stream).unwrap();
        rank.communicator.synchronize(stream).unwrap();
        gate.pass();
        if rank.rank() == 1 {
            drop(first);
            return;
        }
        // The rows of the rank that left are here, but not those of its next dispatch.
        let rest = || {
            let second = two.begin(&experts, stream)?;
            drop(one.receive(first, stream)?);
            two.receive(second, stream).map(drop)
        };
        let error = rest().and_then(|()| rank.communicator.synchronize(stream)).unwrap_err();
        assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
        assert_eq!(two.begin(&experts, stream).map(drop), Err(error));
        two.is_untouched(&rank);
        survivors.pass();
    });
}

/// The other thread has the slots and waits for the communicator, which is busy until the work returns.
#[test]
fn a_handle_is_dropped_in_the_work_of_a_call_beside_a_launch_of_another_thread() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let experts = open(rank, 2);
        let [eager, captured] = [0, 1].map(|number| some(rank, &experts, number));
        let arriving = eager.begin(&experts, stream).unwrap();
        let mut handle = Some(eager.receive(arriving, stream).unwrap());
        // The slot of the graph is the other one.
        let graph = stream.capture(|capture| {
            let into = Received::rows(&captured.received);
            let routed = experts.dispatch(&captured.routing(), &captured.rows, &into, capture)?;
            routed.combine(&captured.received, &captured.output, Combine::default(), capture)
        });
        let graph = graph.unwrap();
        let own = DeviceBuffer::from_slice(&[rank.rank() as f32; 4], stream).unwrap();
        let all = communicator.symmetric::<f32>(8).unwrap();
        std::thread::scope(|scope| {
            let work = |_| {
                if let Some(handle) = handle.take() {
                    scope.spawn(|| graph.launch(stream).unwrap());
                    std::thread::sleep(Duration::from_millis(50));
                    drop(handle);
                }
                Ok(())
            };
            communicator.all_gather_and_consume(&own, &all, stream, work).unwrap();
        });
        rank.finish();
        captured.check(rank);
        // Both slots are free.
        let begun = [&eager, &captured].map(|operands| operands.begin(&experts, stream).unwrap());
        drop(begun.map(|begun| eager.receive(begun, stream).unwrap()));
        rank.finish();
    });
}

/// A half that is dropped there is received into nothing by the next call.
#[test]
fn halves_are_dropped_in_the_work_of_a_call() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let experts = open(rank, 1);
        let operands = some(rank, &experts, 0);
        let own = DeviceBuffer::from_slice(&[rank.rank() as f32; 4], stream).unwrap();
        let all = communicator.symmetric::<f32>(8).unwrap();
        let mut half = Some(operands.begin(&experts, stream).unwrap());
        let work = |_| {
            drop(half.take());
            Ok(())
        };
        communicator.all_gather_and_consume(&own, &all, stream, work).unwrap();
        operands.is_untouched(rank);
        operands.round(rank, &experts).unwrap();
        operands.check(rank);
    });
}
