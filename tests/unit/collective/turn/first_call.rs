//! Tests of `src/collective/turn/first_call.rs`, whose module they are.

use std::time::Duration;

use crate::bootstrap::Threads;
use crate::collective::Communicator;
use crate::device::Device;
use crate::group::Config;
use crate::stream::Stream;

/// By rank 0 alone, which then begins as rank 1 does: with a graph, or one of them with an eager call.
#[test]
fn pitfall_06_what_an_owner_captures_natively_is_not_the_first_call() {
    for eager in [None, Some(0), Some(1)] {
        let run = |bootstrap: Threads| {
            let device = Device::host().unwrap();
            let stream = Stream::new(&device).unwrap();
            let mut config = Config { check_calls: false, heap_bytes: 1 << 16, ..Config::default() };
            config.deadlines.first_use = Duration::from_secs(60);
            let communicator = Communicator::open(bootstrap, &device, config).unwrap();
            let sums = communicator.symmetric::<i32>(8).unwrap();
            sums.write(&[1; 8], &stream).unwrap();
            if communicator.rank() == 0 {
                stream.capture_natively(|| communicator.all_reduce_in_place(&sums, &stream)).unwrap().unwrap();
                assert!(communicator.0.lane.take("a test").unwrap().fresh);
            }
            if eager == Some(communicator.rank()) {
                communicator.all_reduce_in_place(&sums, &stream).unwrap();
            } else {
                let graph = stream.capture(|capture| communicator.all_reduce_in_place(&sums, capture)).unwrap();
                graph.launch(&stream).unwrap();
            }
            communicator.synchronize(&stream).unwrap();
            assert!(!communicator.0.lane.take("a test").unwrap().fresh);
            assert_eq!(sums.read(&stream).unwrap(), [2; 8]);
            drop(sums);
            communicator.close().unwrap();
        };
        std::thread::scope(|scope| {
            let ranks = Threads::new(2).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
            ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
        });
    }
}

/// Rank 1 comes later than the steady deadline. The first waits of rank 0 on its stream and on a side stream have the
/// deadline of first use, in either order.
#[test]
fn pitfall_06_the_first_calls_on_a_stream_and_beside_it_wait_as_first_ones() {
    for beside_first in [true, false] {
        let run = |bootstrap: Threads| {
            let device = Device::host().unwrap();
            let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
            let mut config = Config { check_calls: false, heap_bytes: 1 << 16, ..Config::default() };
            let limits = &mut config.deadlines;
            (limits.first_use, limits.steady) = (Duration::from_secs(60), Duration::from_secs(2));
            let communicator = Communicator::open(bootstrap, &device, config).unwrap();
            let [sums, all] = [8, 16].map(|len| communicator.symmetric::<i32>(len).unwrap());
            let part = communicator.symmetric::<i32>(8).unwrap();
            sums.write(&[1; 8], &stream).unwrap();
            part.write(&[2; 8], &stream).unwrap();
            communicator.group().barrier().unwrap();
            if communicator.rank() == 1 {
                std::thread::sleep(Duration::from_secs(4));
            }
            let gather = || communicator.low_contention_all_gather(&part, &all, &other);
            let sum = || communicator.all_reduce_in_place(&sums, &stream);
            let (first, second) = if beside_first { (Some(gather()), sum()) } else { (None, sum()) };
            second.unwrap();
            first.unwrap_or_else(gather).unwrap().wait(&stream).unwrap();
            communicator.synchronize(&stream).unwrap();
            assert_eq!(sums.read(&stream).unwrap(), [2; 8]);
            assert_eq!(all.read(&stream).unwrap(), [2; 16]);
            let [lane, side] =
                [communicator.0.lane.take("a test").unwrap().fresh, communicator.0.side.lock().lane.fresh];
            assert!(!lane && !side, "later waits are steady: {lane} {side}");
            communicator.clone().close().unwrap();
        };
        std::thread::scope(|scope| {
            let ranks = Threads::new(2).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
            ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
        });
    }
}
