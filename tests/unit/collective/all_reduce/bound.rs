//! Tests of `src/collective/all_reduce/bound.rs`, whose module they are.

use std::time::Duration;

use super::*;
use crate::bootstrap::Threads;
use crate::device::Device;
use crate::group::Config;
use crate::stream::Stream;

#[test]
fn closing_waits_for_what_has_entered_and_lets_nothing_in() {
    let device = Device::host().unwrap();
    // Once more where a thread was too late to enter.
    let mut entered = [false; 2];
    while entered.contains(&false) {
        let alone = Threads::new(1).unwrap().remove(0);
        let communicator = Communicator::open(alone, &device, Config::default()).unwrap();
        let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
        let buffer = communicator.symmetric::<f32>(8).unwrap();
        let graph = streams[1].capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
        let bound = communicator.bind_all_reduce(&buffer, &buffer).unwrap();
        // Calls that have entered wait for their turn.
        let turn = communicator.0.lane.take("a test").unwrap();
        let (results, closed_before) = std::thread::scope(|scope| {
            let call = scope.spawn(|| communicator.all_reduce_in_place(&buffer, &streams[0]));
            let launch = scope.spawn(|| graph.launch(&streams[1]));
            std::thread::sleep(Duration::from_millis(100));
            let closing = scope.spawn(|| communicator.clone().close());
            std::thread::sleep(Duration::from_millis(100));
            let closed_before = closing.is_finished();
            drop(turn);
            closing.join().unwrap().unwrap();
            ([call.join().unwrap(), launch.join().unwrap()], closed_before)
        });
        for (entered, result) in entered.iter_mut().zip(results) {
            match result {
                Ok(()) => assert!(!closed_before, "enqueued when the group was closed"),
                Err(ref error) => assert_eq!(*error, Error::Closed),
            }
            *entered |= result.is_ok();
        }
        assert_eq!(bound.enqueue(&streams[0]), Err(Error::Closed));
    }
}

#[test]
fn beside_another_call_it_is_refused_and_waits_for_nothing() {
    let device = Device::host().unwrap();
    let alone = Threads::new(1).unwrap().remove(0);
    let communicator = Communicator::open(alone, &device, Config::default()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let buffer = communicator.symmetric::<f32>(8).unwrap();
    let bound = communicator.bind_all_reduce(&buffer, &buffer).unwrap();
    let call_of_another_thread = communicator.0.lane.take("a test").unwrap();
    assert!(matches!(bound.enqueue(&stream), Err(Error::Unsupported { .. })));
    drop(call_of_another_thread);
    bound.enqueue(&stream).unwrap();
    communicator.close().unwrap();
}
