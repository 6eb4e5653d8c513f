//! Tests of `src/stream/order.rs`, whose module they are.

use super::*;
use crate::bootstrap::Threads;
use crate::collective::Communicator;
use crate::group::Config;

#[test]
fn a_stream_that_nobody_else_has_is_let_go_with_its_work_in_flight() {
    let device = Device::host().unwrap();
    let alone = Threads::new(1).unwrap().remove(0);
    let communicator = Communicator::open(alone, &device, Config::default()).unwrap();
    let buffer = communicator.symmetric::<u8>(1).unwrap();
    let [first, next, other] = [(); 3].map(|()| Stream::new(&device).unwrap());
    let mut order = StreamOrder::new(&device).unwrap();
    order.order(&first).unwrap();
    buffer.signals().wait(0, 0, &first).unwrap();
    drop(first);
    order.order(&next).unwrap();
    assert!(!next.is_done().unwrap(), "waited for the signal");
    buffer.signals().put(0, 0, &other).unwrap();
    communicator.synchronize(&next).unwrap();
    drop(buffer);
    communicator.close().unwrap();
}

#[test]
fn a_stream_that_is_captured_is_never_the_last() {
    let device = Device::host().unwrap();
    let (captured, other) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let mut order = StreamOrder::new(&device).unwrap();
    let both = captured.capture(|_| {
        order.order(&captured)?;
        order.leave(&captured)
    });
    drop(both.unwrap());
    assert!(matches!(order.last, Last::Nowhere));
    order.order(&other).unwrap();
    drop(captured.capture(|_| order.order(&captured)).unwrap());
    assert!(matches!(&order.last, Last::On(last, _) if last.same(&other)));
    order.leave(&other).unwrap();
    drop(captured.capture(|_| order.order(&captured)).unwrap());
    assert!(matches!(order.last, Last::Left));
}

#[test]
fn the_stream_of_a_thread_is_left_after_each_call() {
    let device = Device::host().unwrap();
    let [stream, other] = [(); 2].map(|()| Stream::for_each_thread(&device).unwrap());
    let is_of = |order: &StreamOrder, thread| matches!(order.last, Last::OfThread(last) if last == thread);
    let mut order = StreamOrder::new(&device).unwrap();
    let here = std::thread::current().id();
    order.end_on(&stream).unwrap();
    assert!(matches!(order.last, Last::Nowhere), "no call has begun");
    for _ in 0..2 {
        order.order(&stream).unwrap();
        order.end_on(&stream).unwrap();
        assert!(is_of(&order, here) && order.is_last(&stream));
    }
    let there = std::thread::scope(|scope| {
        let call = || {
            assert!(!order.is_last(&other));
            order.order(&other).unwrap();
            order.end_on(&other).unwrap();
            std::thread::current().id()
        };
        scope.spawn(call).join().unwrap()
    });
    assert!(is_of(&order, there) && !order.is_last(&stream));
    // In a call, the handle alone is not the stream.
    order.order(&stream).unwrap();
    std::thread::scope(|scope| scope.spawn(|| assert!(!order.is_last(&stream))).join()).unwrap();
    order.end_on(&stream).unwrap();
    std::thread::scope(|scope| {
        let call = || order.order_call(Target::Eager(&other)).and_then(|()| order.end_call(Target::Eager(&other)));
        scope.spawn(call).join().unwrap().unwrap();
    });
    assert!(matches!(order.last, Last::OfThread(last) if last != here), "a call leaves the stream of its thread");
    let there = match order.last {
        Last::OfThread(thread) => thread,
        _ => here,
    };
    drop(stream.capture(|_| order.order(&stream).and_then(|()| order.end_on(&stream))).unwrap());
    assert!(is_of(&order, there), "a capture is ordered by its graph");
    order.leave(&stream).unwrap();
    let usual = Stream::new(&device).unwrap();
    order.order(&usual).unwrap();
    order.end_on(&usual).unwrap();
    assert!(matches!(&order.last, Last::On(last, _) if last.same(&usual)));
}

/// Like calls that each borrow the caller's stream anew: no event is recorded or awaited, and no stream is dropped.
#[test]
fn streams_of_one_handle_are_one_stream() {
    let device = Device::host().unwrap();
    let [first, other] = [1, 2].map(|handle| Stream::with_handle(&device, handle).unwrap());
    let mut order = StreamOrder::new(&device).unwrap();
    order.order(&first).unwrap();
    for _ in 0..1000 {
        order.order(&Stream::with_handle(&device, 1).unwrap()).unwrap();
        assert!(matches!(&order.last, Last::On(last, _) if last.is_clone_of(&first)), "another one takes its place");
    }
    order.leave(&other).unwrap();
    assert!(matches!(&order.last, Last::On(..)));
    // After which the handle may be another stream's.
    order.leave(&Stream::with_handle(&device, 1).unwrap()).unwrap();
    assert!(matches!(order.last, Last::Left));
    order.order(&other).unwrap();
    let elsewhere = Stream::with_handle(&Device::host().unwrap(), 2).unwrap();
    assert!(!other.same(&elsewhere), "of another device");
    let unlike = [(); 2].map(|()| Stream::new(&device).unwrap());
    assert!(!unlike[0].same(&unlike[1]) && unlike[0].same(&unlike[0].clone()));
}
