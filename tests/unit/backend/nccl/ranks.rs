//! Tests of `src/backend/nccl/ranks.rs`, whose module they are.

use std::time::Instant;

use super::*;
use crate::bootstrap::Threads;
use crate::collective::Communicator as Own;
use crate::group::Config;
use crate::memory::Place;
use crate::memory::View;
use crate::nccl::tests::Fake;
use crate::op::{ALL_GATHER, ALL_REDUCE, Op};
use crate::stream::{Graph, StreamOrder};

const ENOUGH: Duration = Duration::from_secs(20);
const DEADLINES: Deadlines = Deadlines { open: ENOUGH, first_use: ENOUGH, steady: ENOUGH };

/// A rank on a device of the CPU, over a library that looks at no memory.
struct Rank {
    fake: Fake,
    ranks: Ranks,
    stream: Stream,
}

impl Rank {
    fn new() -> Self {
        Self::over(Fake::new(&[]))
    }

    fn over(fake: Fake) -> Self {
        let device = Device::host().unwrap();
        let ranks = Ranks::over(fake.communicator(ENOUGH).unwrap(), StreamOrder::new(&device).unwrap(), 1);
        Self { fake, ranks, stream: Stream::new(&device).unwrap() }
    }

    fn call(&self, queue: Target<'_>) -> Result<()> {
        self.run(&ALL_REDUCE, Dtype::F32, queue)
    }

    fn run(&self, op: &'static Op, dtype: Dtype, queue: Target<'_>) -> Result<()> {
        let (device, address) = (self.stream.device(), std::ptr::without_provenance_mut(64));
        let view = || View { address, elems: 1, place: Place::Plain, device, owner: None, read_only: false };
        let call = Call::new(op, dtype).input(view()).output(view());
        self.ranks.run(&call, &call.check(0, 1, device)?, queue)
    }

    fn synchronize(&self) -> Result<()> {
        self.ranks.synchronize(&self.stream, DEADLINES, || Ok(()), late)
    }

    fn is_pending(&self) -> bool {
        self.ranks.0.pending.lock().is_some()
    }
}

fn late(operation: Operation, waited: Duration) -> Error {
    Error::exchange_timeout(None, waited, operation.to_string())
}

/// Closes in a group whose other ranks report, for each rank, whether it holds graphs (`others`). Returns the outcome.
fn close(ranks: &Ranks, others: &[bool]) -> Result<()> {
    let exchanges = std::cell::Cell::new(0);
    ranks.close(
        ENOUGH,
        || Ok(()),
        late,
        |own| {
            // First whether all is done, then whether graphs hold anything.
            let others: Vec<_> = match exchanges.replace(exchanges.get() + 1) {
                0 => others.iter().map(|_| Vec::new()).collect(),
                _ => others.iter().map(|held| vec![u8::from(*held)]).collect(),
            };
            Ok([vec![own.to_vec()], others].concat())
        },
    )
}

/// An older library moves them as bytes. A refused call is no failure.
#[test]
fn sums_of_8_bit_floats_need_a_library_that_knows_them() {
    for (version, served) in [(22304, false), (22403, true)] {
        let fake = Fake::new(&[]);
        fake.answers(&format!("version {version}\n"));
        let rank = Rank::over(fake);
        for dtype in [Dtype::F8E4M3, Dtype::F8E5M2] {
            match (served, rank.run(&ALL_REDUCE, dtype, (&rank.stream).into())) {
                (true, sum) => sum.unwrap(),
                (false, Err(Error::Unsupported { what, reason })) => {
                    assert!(what.contains(dtype.name()) && what.contains("2.23.4"), "{what}");
                    assert!(reason.contains("2.24.0"), "{reason}");
                }
                (false, other) => panic!("{other:?}"),
            }
            rank.run(&ALL_GATHER, dtype, (&rank.stream).into()).unwrap();
        }
        let made = |name: &str| rank.fake.calls().iter().filter(|call| call.starts_with(name)).count();
        assert_eq!([made("ncclAllReduce"), made("ncclAllGather")], [if served { 2 } else { 0 }, 2]);
        rank.ranks.check().unwrap();
    }
}

/// Messages between pairs are one group of sends and receives, in their order, without messages of zero bytes.
#[test]
fn messages_between_pairs_are_a_group() {
    let rank = Rank::new();
    let (device, address) = (rank.stream.device(), std::ptr::without_provenance_mut(64));
    let message = |sends, elems| {
        RankMessage::new(
            0,
            sends,
            Dtype::F32,
            &View { address, elems, place: Place::Plain, device, owner: None, read_only: false },
        )
    };
    let messages = [message(true, 3), message(false, 3), message(true, 0), message(false, 0), message(false, 5)];
    let group = ["ncclGroupStart", "ncclSend in a group", "ncclRecv in a group", "ncclRecv in a group", "ncclGroupEnd"];
    rank.ranks.run_pairs(&messages, (&rank.stream).into()).unwrap();
    assert_eq!(rank.fake.calls()[1..], group);
    assert!(rank.is_pending());
    let graph = rank.stream.capture(|capture| rank.ranks.run_pairs(&messages, capture.into())).unwrap();
    assert_eq!(rank.fake.calls()[6..], group);
    graph.launch(&rank.stream).unwrap();
    rank.synchronize().unwrap();
    assert!(!rank.is_pending());
}

const IN_ORDER: [&str; 2] = ["ncclCommFinalize", "ncclCommDestroy"];

#[test]
fn closing_does_not_wait_for_graphs_of_any_rank() {
    for (own, other) in [(false, false), (true, false), (false, true)] {
        let rank = Rank::new();
        rank.call((&rank.stream).into()).unwrap();
        let graph = own.then(|| rank.stream.capture(|capture| rank.call(capture.into())).unwrap());
        rank.fake.answers(if own { "graphs 1\n" } else { "" });
        close(&rank.ranks, &[other, false]).unwrap();
        let expected = if own || other { &["ncclCommAbort"][..] } else { &IN_ORDER };
        assert_eq!(rank.fake.calls()[2 + usize::from(own)..], *expected, "{own} {other}");
        assert_eq!(rank.call((&rank.stream).into()), Err(Error::Closed));
        assert_eq!(rank.ranks.check(), Err(Error::Closed));
        if let Some(graph) = graph {
            assert_eq!(graph.launch(&rank.stream), Err(Error::Closed));
        }
        rank.fake.answers("");
        close(&rank.ranks, &[]).unwrap();
    }
}

#[test]
fn closing_waits_for_what_was_enqueued_up_to_a_deadline() {
    for limit in [ENOUGH, Duration::from_millis(50)] {
        let rank = Rank::new();
        let (bootstrap, config) = (Threads::new(1).unwrap().remove(0), Config::default());
        let alone = Own::open(bootstrap, rank.stream.device(), config).unwrap();
        let (buffer, other) = (alone.symmetric::<u8>(1).unwrap(), Stream::new(rank.stream.device()).unwrap());
        buffer.signals().wait(0, 0, &rank.stream).unwrap();
        rank.call((&rank.stream).into()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                match limit == ENOUGH {
                    true => std::thread::sleep(Duration::from_millis(50)),
                    false => until("it is aborted", || rank.fake.calls().contains(&"ncclCommAbort".to_owned())),
                }
                buffer.signals().put(0, 0, &other).unwrap();
            });
            let told = std::cell::RefCell::new(Vec::new());
            let closed = rank.ranks.close(
                limit,
                || Ok(()),
                late,
                |own| {
                    assert!(rank.stream.is_done().unwrap());
                    told.borrow_mut().push(String::from_utf8_lossy(own).into_owned());
                    Ok(vec![own.to_vec()])
                },
            );
            match limit == ENOUGH {
                true => assert_eq!((closed, told.into_inner()), (Ok(()), vec![String::new(), "\0".to_owned()])),
                false => {
                    let Err(error @ Error::Timeout { .. }) = closed else { panic!("{closed:?}") };
                    assert_eq!(told.into_inner(), [format!("end the work of NCCL: {error}")]);
                }
            }
        });
    }
}

/// Neither a call nor the end waits for work that the stream gets after the group has left it.
#[test]
fn a_stream_that_was_left_is_needed_no_more() {
    for calls in [true, false] {
        let rank = Rank::new();
        let (bootstrap, config) = (Threads::new(1).unwrap().remove(0), Config::default());
        let alone = Own::open(bootstrap, rank.stream.device(), config).unwrap();
        let buffer = alone.symmetric::<u8>(1).unwrap();
        let [next, other] = [(); 2].map(|()| Stream::new(rank.stream.device()).unwrap());
        rank.call((&rank.stream).into()).unwrap();
        assert_eq!(rank.stream.holders(), 2);
        // Not the stream of the last call.
        rank.ranks.leave(&next).unwrap();
        assert_eq!(rank.stream.holders(), 2);
        rank.ranks.leave(&rank.stream).unwrap();
        assert_eq!(rank.stream.holders(), 1);
        buffer.signals().wait(0, 0, &rank.stream).unwrap();
        if calls {
            rank.call((&next).into()).unwrap();
            rank.ranks.synchronize(&next, DEADLINES, || Ok(()), late).unwrap();
        }
        close(&rank.ranks, &[]).unwrap();
        assert!(!rank.stream.is_done().unwrap());
        assert_eq!(rank.stream.holders(), 1);
        buffer.signals().put(0, 0, &other).unwrap();
        rank.stream.synchronize().unwrap();
    }
}

#[test]
fn closing_waits_for_what_was_enqueued_on_a_stream_that_was_left() {
    for in_time in [true, false] {
        let rank = Rank::new();
        let (bootstrap, config) = (Threads::new(1).unwrap().remove(0), Config::default());
        let alone = Own::open(bootstrap, rank.stream.device(), config).unwrap();
        let (buffer, other) = (alone.symmetric::<u8>(1).unwrap(), Stream::new(rank.stream.device()).unwrap());
        buffer.signals().wait(0, 0, &rank.stream).unwrap();
        rank.call((&rank.stream).into()).unwrap();
        rank.ranks.leave(&rank.stream).unwrap();
        let limit = if in_time { ENOUGH } else { Duration::from_millis(50) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                match in_time {
                    true => std::thread::sleep(Duration::from_millis(50)),
                    false => until("it is aborted", || rank.fake.calls().contains(&"ncclCommAbort".to_owned())),
                }
                buffer.signals().put(0, 0, &other).unwrap();
            });
            let closed = rank.ranks.close(limit, || Ok(()), late, |own| Ok(vec![own.to_vec()]));
            match in_time {
                true => assert_eq!((closed, rank.stream.is_done()), (Ok(()), Ok(true))),
                false => assert!(matches!(closed, Err(Error::Timeout { .. })), "{closed:?}"),
            }
        });
    }
}

#[test]
fn closing_waits_for_calls_that_have_begun() {
    let rank = Rank::new();
    rank.call((&rank.stream).into()).unwrap();
    std::thread::scope(|scope| {
        let entered = rank.ranks.0.enter().unwrap();
        let closing = scope.spawn(|| close(&rank.ranks, &[]));
        until("it is closing", || rank.ranks.check() == Err(Error::Closed));
        assert_eq!(rank.fake.calls()[1..], ["ncclAllReduce"]);
        drop(entered);
        closing.join().unwrap().unwrap();
    });
    assert_eq!(rank.fake.calls()[2..], IN_ORDER);
}

#[test]
fn pitfall_03_aborted_by_another_thread_while_it_closes() {
    let rank = Rank::new();
    // The work of a graph that the communicator does not know.
    rank.fake.answers("graphs 1\n");
    let closed = std::thread::scope(|scope| {
        let closing = scope.spawn(|| close(&rank.ranks, &[]));
        until("it waits", || rank.fake.calls().contains(&IN_ORDER[0].to_owned()));
        rank.ranks.abort();
        closing.join().unwrap()
    });
    assert!(matches!(closed, Err(Error::Aborted { .. })), "{closed:?}");
    rank.fake.answers("");
}

#[test]
fn pitfall_05_a_rank_whose_operations_do_not_end_is_told_of() {
    let rank = Rank::new();
    let closed = rank.ranks.close(
        ENOUGH,
        || Ok(()),
        late,
        |own| Ok(vec![own.to_vec(), b"end the work of NCCL: it took too long".to_vec()]),
    );
    assert!(matches!(&closed, Err(Error::Peer { rank: 1, .. })), "{closed:?}");
    assert_eq!(rank.fake.calls()[1..], ["ncclCommAbort"]);
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < ENOUGH, "{what}");
        std::thread::yield_now();
    }
}

/// Work of another thread between a launch's turn and the launch.
struct Meanwhile(Arc<Rank>);

impl GraphPart for Meanwhile {
    fn before_launch(&self, _stream: &Stream) -> Result<()> {
        assert!(self.0.is_pending());
        std::thread::scope(|scope| scope.spawn(|| self.0.synchronize()).join().unwrap())
    }

    fn register(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_wait_beside_a_launch_leaves_its_operation_awaited() {
    let rank = Arc::new(Rank::new());
    let graph: Graph<'static> = rank
        .stream
        .capture(|capture| {
            rank.call(capture.into())?;
            Target::from(capture).recording().unwrap().part(2, || Meanwhile(rank.clone()));
            Ok(())
        })
        .unwrap();
    assert_eq!(rank.fake.calls()[1..], ["ncclAllReduce"]);
    graph.launch(&rank.stream).unwrap();
    assert!(rank.is_pending(), "a wait from here on has no deadline");
    rank.synchronize().unwrap();
    assert!(!rank.is_pending());
}
