//! Errors of experts, before anything runs and on the device; and graphs of experts.

use std::time::Duration;

use symmetra::experts::{
    Combine, ExpertConfig, Experts, Layout, Method, Placement, Received, Routing, ScaleOrder, Scales, Wire,
};
use symmetra::{DeviceBuffer, Dtype, Error, Result};

use crate::support::extent::repeats;
use crate::support::process::apart;
use crate::support::system::{Usage, assert_device_flat, free_device_bytes};
use crate::support::{Rank, config, fits, is_host, threads};

pub(crate) const METHODS: [Method; 4] = [Method::Gather, Method::Broadcast, Method::Direct, Method::Packets];

/// Six experts, two a token, rows of four f32, at most eight tokens.
pub(crate) fn small(method: Method) -> ExpertConfig {
    let mut form = ExpertConfig::new(6, 2, 4, 8);
    (form.dtype, form.method, form.layout) = (Dtype::F32, method, Layout::ByExpert { align: 1 });
    form
}

/// Operands of one rank.
pub(crate) struct Operands {
    pub(crate) ids: DeviceBuffer<i32>,
    pub(crate) weights: DeviceBuffer<f32>,
    pub(crate) count: DeviceBuffer<u32>,
    pub(crate) rows: DeviceBuffer<f32>,
    pub(crate) received: DeviceBuffer<f32>,
    pub(crate) output: DeviceBuffer<f32>,
}

impl Operands {
    pub(crate) fn new(rank: &Rank, experts: &Experts, ids: &[i32]) -> Self {
        let (stream, tokens) = (&rank.stream, ids.len() / 2);
        let rows: Vec<f32> = (0..tokens * 4).map(|index| (index + 100 * rank.rank()) as f32).collect();
        Self {
            ids: DeviceBuffer::from_slice(ids, stream).unwrap(),
            weights: DeviceBuffer::from_slice(&vec![0.5; ids.len()], stream).unwrap(),
            count: DeviceBuffer::from_slice(&[tokens as u32], stream).unwrap(),
            rows: DeviceBuffer::from_slice(&rows, stream).unwrap(),
            received: DeviceBuffer::from_slice(&vec![-1.0; experts.capacity() * 4], stream).unwrap(),
            output: DeviceBuffer::from_slice(&vec![-1.0; tokens * 4], stream).unwrap(),
        }
    }

    pub(crate) fn routing(&self) -> Routing<'_> {
        Routing::new(&self.ids).weights(&self.weights)
    }

    /// A round trip, whose experts return their inputs.
    pub(crate) fn round(&self, rank: &Rank, experts: &Experts) -> Result<()> {
        let into = Received::rows(&self.received);
        let routed = experts.dispatch(&self.routing(), &self.rows, &into, &rank.stream)?;
        routed.combine(&self.received, &self.output, Combine::default(), &rank.stream)?;
        rank.communicator.synchronize(&rank.stream)
    }

    /// The result of a round trip: the row of a token, times the weights of its experts.
    pub(crate) fn expected(&self, rank: &Rank) -> Vec<f32> {
        let ids = self.ids.read(&rank.stream).unwrap();
        let weights = self.weights.read(&rank.stream).unwrap();
        let rows = self.rows.read(&rank.stream).unwrap();
        let live = |pair: usize| if ids[pair] >= 0 { weights[pair] } else { 0.0 };
        rows.iter().enumerate().map(|(index, row)| row * (live(index / 4 * 2) + live(index / 4 * 2 + 1))).collect()
    }
}

/// Errors of the device: all ranks get the same, no row is written, and the group stays failed.
fn every_rank_fails(
    ids: impl Fn(usize) -> Vec<i32> + Sync,
    change: impl Fn(&mut ExpertConfig) + Sync,
    expected: &Error,
) {
    let world = 3;
    if !fits(world) {
        return;
    }
    for method in METHODS {
        let found = meet_failing(world, |rank| {
            let mut form = small(method);
            change(&mut form);
            let experts = rank.communicator.experts(form).unwrap();
            let operands = Operands::new(rank, &experts, &ids(rank.rank()));
            let error = operands.round(rank, &experts).unwrap_err();
            assert_eq!(operands.received.read(&rank.stream).unwrap(), vec![-1.0; experts.capacity() * 4], "{method:?}");
            let next = operands.round(rank, &experts).unwrap_err();
            assert_eq!(next, error);
            error
        });
        assert_eq!(found, vec![expected.clone(); world], "{method:?}");
    }
}

/// Runs ranks whose group fails.
pub(crate) fn meet_failing<R: Send>(world: usize, body: impl Fn(&Rank) -> R + Sync) -> Vec<R> {
    crate::support::world::meet(world, |bootstrap| {
        let rank = crate::support::world::open(bootstrap, &config()).unwrap();
        let result = body(&rank);
        assert!(rank.communicator.close().is_err());
        result
    })
}

#[test]
fn an_expert_that_there_is_not_is_named_on_every_rank() {
    let ids = |rank: usize| if rank == 1 { vec![0, 1, 2, 3, -1, 6, 7, 0] } else { vec![0, 5] };
    every_rank_fails(ids, |_| {}, &Error::Routing { rank: 1, token: 2, expert: 6, experts: 6 });
    let ids = |rank: usize| if rank == 2 { vec![-2, 1] } else { vec![] };
    every_rank_fails(ids, |_| {}, &Error::Routing { rank: 2, token: 0, expert: -2, experts: 6 });
    let by_source = |form: &mut ExpertConfig| form.layout = Layout::BySource;
    every_rank_fails(ids, by_source, &Error::Routing { rank: 2, token: 0, expert: -2, experts: 6 });
}

#[test]
fn more_rows_than_there_is_room_for_are_named_on_every_rank() {
    // Experts 2 and 3 are on rank 1.
    let ids = |rank: usize| if rank == 0 { vec![2, 3, 3, 2] } else { vec![2, 0] };
    let by_expert = |form: &mut ExpertConfig| form.capacity = Some(5);
    every_rank_fails(ids, by_expert, &Error::Capacity { rank: 1, rows: 6, capacity: 5 });
    let by_rank = |form: &mut ExpertConfig| (form.layout, form.capacity) = (Layout::ByRank, Some(3));
    every_rank_fails(ids, by_rank, &Error::Capacity { rank: 1, rows: 4, capacity: 3 });
    let padded = |form: &mut ExpertConfig| form.layout = Layout::Padded { rows: 3 };
    every_rank_fails(ids, padded, &Error::Capacity { rank: 1, rows: 4, capacity: 3 });
}

#[test]
fn a_count_of_the_device_above_the_operand_is_named_on_every_rank() {
    let world = 2;
    if !fits(world) {
        return;
    }
    for method in METHODS {
        let found = meet_failing(world, |rank| {
            let experts = rank.communicator.experts(small(method)).unwrap();
            let operands = Operands::new(rank, &experts, &[0, 1, 2, 3]);
            operands.count.write(&[2 + rank.rank() as u32], &rank.stream).unwrap();
            let routing = operands.routing().tokens(&operands.count);
            let into = Received::rows(&operands.received);
            // The device may find the error before the call has enqueued all.
            let routed = experts.dispatch(&routing, &operands.rows, &into, &rank.stream);
            let told = routed.and_then(|routed| routed.counts()).unwrap_err();
            assert_eq!(rank.communicator.synchronize(&rank.stream).unwrap_err(), told);
            told
        });
        assert_eq!(found, vec![Error::Tokens { rank: 1, tokens: 3, ids: 2 }; world], "{method:?}");
    }
}

/// By source nothing is counted, by no method.
#[test]
fn counts_of_rows_by_source_are_refused() {
    threads(2, &config(), |rank| {
        for method in METHODS {
            let mut form = small(method);
            form.layout = Layout::BySource;
            let experts = rank.communicator.experts(form).unwrap();
            assert_eq!(experts.capacity(), 2 * 8);
            let operands = Operands::new(rank, &experts, &[0, 5, 1, -1]);
            let numbers = DeviceBuffer::<u32>::new(&rank.device, 64).unwrap();
            let rows = || Received::rows(&operands.received);
            for (into, what) in [
                (rows().counts(&numbers), "the received counts is given"),
                (rows().offsets(&numbers), "the received offsets is given"),
                (rows().index(&numbers), "the received index of rows in the order of experts is given"),
            ] {
                let refused = experts.dispatch(&operands.routing(), &operands.rows, &into, &rank.stream);
                let Err(Error::InvalidArgument { message }) = refused.map(drop) else { panic!("{what}: taken") };
                assert!(message.contains(what), "{message}");
            }
            let planned = experts.plan(&operands.routing(), &rank.stream).map(drop);
            let Err(Error::Unsupported { what, .. }) = planned else { panic!("a plan by source") };
            assert_eq!(what, "a plan by source");
            // Each rank returns the received rows, once for each rank that a token goes to.
            operands.round(rank, &experts).unwrap();
            let row = |token: usize| operands.rows.read(&rank.stream).unwrap()[token * 4];
            let sums = operands.output.read(&rank.stream).unwrap();
            assert_eq!([sums[0], sums[4]], [2.0 * row(0), row(1)]);
        }
    });
}

/// By rank, from a rank whose rows go straight to their places.
#[test]
fn rows_that_have_no_room_are_not_written_in_place() {
    if !fits(3) {
        return;
    }
    let found = meet_failing(3, |rank| {
        let mut form = small(Method::Direct);
        (form.layout, form.capacity) = (Layout::ByRank, Some(3));
        let experts = rank.communicator.experts(form).unwrap();
        let operands = Operands::new(rank, &experts, if rank.rank() == 0 { &[2, 3, 3, 2] } else { &[2, 0] });
        let received = rank.communicator.symmetric::<f32>(experts.capacity() * 4).unwrap();
        received.write(&vec![-1.0; received.len()], &rank.stream).unwrap();
        let into = Received::rows(&received);
        let routed = experts.dispatch(&operands.routing(), &operands.rows, &into, &rank.stream);
        let error = routed.and_then(|_| rank.communicator.synchronize(&rank.stream)).unwrap_err();
        // The buffer of a failed group refuses reads.
        if is_host() {
            // SAFETY: the memory is the process's own, and the stream has ended all work on it.
            let rows = unsafe { std::slice::from_raw_parts(received.as_raw().cast_const(), received.len()) };
            assert_eq!(rows, vec![-1.0; received.len()]);
        }
        error
    });
    assert_eq!(found, vec![Error::Capacity { rank: 1, rows: 4, capacity: 3 }; 3]);
}

/// Peers would write and read elsewhere.
#[test]
fn other_symmetric_memory_than_the_peers_is_a_mismatch() {
    if !fits(2) {
        return;
    }
    for combines in [false, true] {
        let found = crate::support::world::meet(2, |bootstrap| {
            let mut config = config();
            config.check_calls = true;
            let rank = crate::support::world::open(bootstrap, &config).unwrap();
            let mut form = small(Method::Direct);
            form.layout = Layout::ByRank;
            let experts = rank.communicator.experts(form).unwrap();
            let operands = Operands::new(&rank, &experts, &[2, 3, 3, 2]);
            let elems = experts.capacity() * 4;
            let symmetric = [0; 2].map(|_| rank.communicator.symmetric::<f32>(elems).unwrap());
            symmetric.iter().for_each(|buffer| buffer.write(&vec![-1.0; elems], &rank.stream).unwrap());
            let [same, other] = [&symmetric[0], &symmetric[rank.rank()]];
            let into = Received::rows(if combines { same } else { other });
            let routed = experts.dispatch(&operands.routing(), &operands.rows, &into, &rank.stream);
            let called = routed.and_then(|routed| {
                rank.communicator.synchronize(&rank.stream)?;
                routed.combine(other, &operands.output, Combine::default(), &rank.stream)
            });
            called.and_then(|()| rank.communicator.synchronize(&rank.stream)).unwrap_err()
        });
        assert!(found.iter().all(|error| matches!(error, Error::Mismatch { .. })), "{combines}, {found:?}");
    }
}

#[test]
fn unequal_settings_are_named_on_every_rank() {
    threads(2, &config(), |rank| {
        let mut form = small(Method::Auto);
        form.top_k = 1 + rank.rank();
        match rank.communicator.experts(form).unwrap_err() {
            Error::Mismatch { what, against: 0, rank: 1, ours, theirs } => {
                assert_eq!([&what, &ours, &theirs], ["top_k of the settings of experts", "1", "2"]);
            }
            other => panic!("{other:?}"),
        }
        // Nothing else is harmed.
        let experts = rank.communicator.experts(small(Method::Auto)).unwrap();
        let operands = Operands::new(rank, &experts, &[0, 5]);
        operands.round(rank, &experts).unwrap();
        assert_eq!(operands.output.read(&rank.stream).unwrap(), operands.expected(rank));
    });
}

#[test]
fn operands_that_do_not_fit_are_named_and_nothing_runs() {
    threads(2, &config(), |rank| {
        for method in METHODS {
            let experts = rank.communicator.experts(small(method)).unwrap();
            let stream = &rank.stream;
            let operands = Operands::new(rank, &experts, &[0, 5, 1, -1]);
            let Operands { ids, weights, rows, received, output, .. } = &operands;
            let says = |result: Result<()>, words: &str| match result {
                Err(Error::InvalidArgument { message }) => assert!(message.contains(words), "{message}"),
                other => panic!("{words}: {other:?}"),
            };
            let dispatch = |routing: &Routing<'_>, rows: &DeviceBuffer<f32>, into: &Received<'_>| {
                experts.dispatch(routing, rows, into, stream).map(drop)
            };
            let into = || Received::rows(received);
            let many = DeviceBuffer::from_slice(&[0i64; 18], stream).unwrap();
            says(
                dispatch(&Routing::new(&many), rows, &into()),
                "the number of ids is 18, but each of at most 8 tokens has 2",
            );
            let odd = DeviceBuffer::from_slice(&[0i64; 3], stream).unwrap();
            says(dispatch(&Routing::new(&odd), rows, &into()), "the number of ids is 3");
            says(
                dispatch(&Routing::new(ids).weights(rows), rows, &into()),
                "the number of weights is 8, but it must be 4",
            );
            let two = DeviceBuffer::from_slice(&[1u32; 2], stream).unwrap();
            says(
                dispatch(&Routing::new(ids).tokens(&two), rows, &into()),
                "the count of tokens is 2, but it must be 1",
            );
            says(dispatch(&operands.routing(), weights, &into()), "the length of the rows is 4, but it must be 8");
            says(experts.dispatch(&operands.routing(), ids, &into(), stream).map(drop), "the type of the rows is i32");
            says(dispatch(&operands.routing(), rows, &Received::rows(rows)), "the length of the received rows is 8");
            says(dispatch(&operands.routing(), rows, &into().counts(&two)), "the length of the received counts is 2");
            says(dispatch(&operands.routing(), rows, &into().scales(output, ScaleOrder::Rows)), "Same has none");
            says(dispatch(&operands.routing(), rows, &into().index(&two)), "the index of rows");
            says(dispatch(&operands.routing(), rows, &into().weights(received)), "overlap");
            let wrong = experts.dispatch_f8(&operands.routing(), rows, weights, &into(), stream).map(drop);
            says(wrong, "the number of scales is 4, but Same takes none");

            let routed = experts.dispatch(&operands.routing(), rows, &into(), stream).unwrap();
            let combine = |results: &DeviceBuffer<f32>, output: &DeviceBuffer<f32>, options: Combine<'_>| {
                routed.combine(results, output, options, stream)
            };
            says(combine(output, output, Combine::default()), "the length of the results is 8");
            says(combine(received, weights, Combine::default()), "the length of the output is 4, but it must be 8");
            says(combine(received, output, Combine::default().add(weights)), "the length of the rows to add is 4");
            // A second dispatch has no slot.
            match dispatch(&operands.routing(), rows, &into()) {
                Err(Error::Unsupported { reason, .. }) => assert!(reason.contains("1 of 1 slots"), "{reason}"),
                other => panic!("{other:?}"),
            }
            match experts.place(&Placement::Blocks, stream) {
                Err(Error::Unsupported { .. } | Error::Peer { .. }) => {}
                other => panic!("{other:?}"),
            }
            // Ranks are in step: all of these calls were refused, and later calls run.
            combine(received, output, Combine::default()).unwrap();
            rank.finish();
            assert_eq!(output.read(stream).unwrap(), operands.expected(rank));
        }
    });
}

#[test]
fn codes_need_their_scales() {
    threads(2, &config(), |rank| {
        let mut form = small(Method::Auto);
        form.wire = Wire::GivenF8;
        let experts = rank.communicator.experts(form).unwrap();
        let stream = &rank.stream;
        let ids = DeviceBuffer::from_slice(&[0i32, 1], stream).unwrap();
        let codes = DeviceBuffer::from_slice(&[0u8; 4], stream).unwrap();
        let into = DeviceBuffer::from_slice(&vec![0u8; experts.capacity() * 4], stream).unwrap();
        let refused = experts.dispatch(&Routing::new(&ids), &codes, &Received::rows(&into), stream).map(drop);
        assert!(matches!(&refused, Err(Error::InvalidArgument { message }) if message.contains("scales is missing")));
        let mut form = small(Method::Auto);
        (form.wire, form.hidden) = (Wire::F8(Scales::E8M0), 200);
        let experts = rank.communicator.experts(form).unwrap();
        let rows = DeviceBuffer::from_slice(&[0f32; 200], stream).unwrap();
        let into = DeviceBuffer::from_slice(&vec![0u8; experts.capacity() * 200], stream).unwrap();
        let scales = DeviceBuffer::from_slice(&vec![0f32; experts.capacity() * 2], stream).unwrap();
        let into = Received::rows(&into).scales(&scales, ScaleOrder::Rows);
        let refused = experts.dispatch(&Routing::new(&ids), &rows, &into, stream).map(drop);
        assert!(matches!(&refused, Err(Error::InvalidArgument { message }) if message.contains("it must be u8")));
    });
}

#[test]
fn every_method_is_explained() {
    let explained = |experts: &Experts| -> Vec<String> { experts.explain().iter().map(ToString::to_string).collect() };
    threads(2, &config(), |rank| {
        let open = |form| rank.communicator.experts(form).unwrap();
        let auto = open(small(Method::Auto));
        // Eight rows of four f32.
        let why = "the rows of a dispatch have at most 128 bytes: built-in, ";
        let lines = explained(&auto);
        assert!(lines[0].starts_with(&format!("Packets serves: {why}")), "{lines:?}");
        for (line, name) in lines[1..].iter().zip(["Direct", "Gather", "Broadcast"]) {
            assert!(line.starts_with(&format!("{name}: Auto takes Packets here: {why}")), "{lines:?}");
        }
        // More tokens than packets carry.
        let mut large = small(Method::Auto);
        (large.hidden, large.top_k, large.max_tokens) = (1, 1, 4097);
        let large = open(large);
        let why = "the number of tokens of all ranks is 8194, and at most 8192 go by packets";
        let lines = [format!("Packets: {why}"), format!("Direct serves: {why}")];
        assert_eq!(explained(&large)[..2], lines);
        assert_eq!(large.method(), Method::Direct);
        let mut many = small(Method::Gather);
        (many.hidden, many.top_k, many.max_tokens) = (1, 1, 4097);
        let many = open(many);
        assert_eq!(
            explained(&many),
            [
                "Packets: the number of tokens of all ranks is 8194, and at most 8192 go by packets",
                "Direct: the settings name Gather",
                "Gather serves: the settings name Gather",
                "Broadcast: the settings name Gather",
            ]
        );
        assert_eq!([auto.method(), many.method()], [Method::Packets, Method::Gather]);
    });
    threads(1, &config(), |rank| {
        let lines = explained(&rank.communicator.experts(small(Method::Auto)).unwrap());
        assert_eq!(
            lines[1..3],
            ["Direct", "Gather serves"].map(|name| format!("{name}: a group of one rank has no peers"))
        );
    });
}

/// Ids, weights, rows and the count change before every replay; ranks are out of step; memory stays flat.
#[test]
fn a_graph_reads_its_operands_anew() {
    if !apart("expert_errors::a_graph_reads_its_operands_anew") {
        return;
    }
    let world = 3;
    let replays = repeats("SYMMETRA_TEST_REPLAYS", 200, 500);
    threads(world, &config(), |rank| {
        for method in METHODS {
            let experts = rank.communicator.experts(small(method)).unwrap();
            let operands = Operands::new(rank, &experts, &[0; 16]);
            let (stream, into) = (&rank.stream, Received::rows(&operands.received));
            let routing = operands.routing().tokens(&operands.count);
            let graph = stream
                .capture(|capture| {
                    let routed = experts.dispatch(&routing, &operands.rows, &into, capture)?;
                    assert!(matches!(routed.counts(), Err(Error::Unsupported { .. })));
                    // The queue of another place is refused.
                    let elsewhere = routed.combine(&operands.received, &operands.output, Combine::default(), stream);
                    assert!(matches!(elsewhere, Err(Error::InvalidArgument { .. })), "{elsewhere:?}");
                    routed.combine(&operands.received, &operands.output, Combine::default(), capture)
                })
                .unwrap();
            graph.register().unwrap();
            let mut before = None;
            for replay in 0..replays {
                let number = |index: usize| replay * 31 + index * 7 + rank.rank() * 3;
                let ids: Vec<i32> = (0..16).map(|index| (number(index) % 7) as i32 - 1).collect();
                let rows: Vec<f32> = (0..32).map(|index| number(index) as f32).collect();
                let tokens = number(0) % 9;
                // Quarters, so that no sum is rounded.
                let weights: Vec<f32> = (0..16).map(|index| (number(index) % 5) as f32 / 4.0).collect();
                operands.ids.write(&ids, stream).unwrap();
                operands.weights.write(&weights, stream).unwrap();
                operands.rows.write(&rows, stream).unwrap();
                operands.count.write(&[tokens as u32], stream).unwrap();
                operands.output.write(&[-1.0; 32], stream).unwrap();
                if replay % 10 == rank.rank() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                graph.launch(stream).unwrap();
                rank.finish();
                let mut expected = operands.expected(rank);
                expected[tokens * 4..].fill(-1.0);
                assert_eq!(operands.output.read(stream).unwrap(), expected, "{method:?}, replay {replay}");
                if replay == replays / 2 {
                    let lists = vec![vec![5, 0], vec![4, 1], vec![3, 2]];
                    experts.place(&Placement::Table(lists), stream).unwrap();
                    before = Some((Usage::of(rank), free_device_bytes(rank)));
                }
            }
            let (usage, free) = before.unwrap();
            if let (Some(before), Some(after)) = (usage, Usage::of(rank)) {
                after.assert_flat(&before);
            }
            assert_device_flat(free, free_device_bytes(rank));
            // An eager dispatch holds the slot that the graph would write.
            let routed = experts.dispatch(&operands.routing(), &operands.rows, &into, stream).unwrap();
            match graph.launch(stream) {
                Err(Error::Unsupported { reason, .. }) => assert!(reason.contains("slot 0"), "{reason}"),
                other => panic!("{other:?}"),
            }
            drop(routed);
            graph.launch(stream).unwrap();
            rank.finish();
        }
    });
}
