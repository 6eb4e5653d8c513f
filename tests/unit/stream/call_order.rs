//! Tests of `src/stream/call_order.rs`, whose module they are. Each call runs a function that takes some time, so that calls
//! without an order overlap.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::device::HostShape;
use crate::stream::{Event, NativeGraph, launch_host};

/// The calls that ran.
#[derive(Default)]
struct Log {
    running: AtomicUsize,
    overlaps: AtomicUsize,
    ended: Mutex<Vec<usize>>,
    /// Graphs that hold something.
    held: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Args {
    log: &'static Log,
    number: usize,
}

unsafe extern "C" fn run(args: *const Args) {
    // SAFETY: the launch passes the address of its arguments.
    let Args { log, number } = unsafe { *args };
    log.overlaps.fetch_add(usize::from(log.running.fetch_add(1, SeqCst) > 0), SeqCst);
    std::thread::sleep(Duration::from_millis(2));
    log.ended.lock().unwrap().push(number);
    log.running.fetch_sub(1, SeqCst);
}

struct Holds(&'static Log);

impl Drop for Holds {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, SeqCst);
    }
}

struct Bench {
    device: Device,
    order: CallOrder,
    log: &'static Log,
    expected: Vec<usize>,
}

impl Bench {
    fn new(mixed: bool) -> Self {
        let device = Device::host().unwrap();
        let order = CallOrder::new(&device, mixed).unwrap();
        Self { device, order, log: Box::leak(Box::default()), expected: Vec::new() }
    }

    fn streams<const N: usize>(&self) -> [Stream; N] {
        std::array::from_fn(|_| Stream::new(&self.device).unwrap())
    }

    fn call(&mut self, number: usize, stream: &Stream) {
        let log = self.log;
        let capture = stream.native_capture().unwrap();
        let kept = || -> Kept {
            log.held.fetch_add(1, SeqCst);
            Arc::new(Holds(log))
        };
        match capture {
            None => self.order.order(stream).unwrap(),
            Some(capture) => self.order.order_captured(capture, stream, kept).unwrap(),
        }
        // SAFETY: the log lives as long as the process.
        unsafe { launch_host(HostShape { blocks: 1, threads: 1 }, run, Args { log, number }, stream) }.unwrap();
        match capture {
            None => {
                self.order.end(stream).unwrap();
                self.expected.push(number);
            }
            Some(capture) => self.order.end_captured(capture, stream).unwrap(),
        }
    }

    /// Captures calls with these numbers on `stream`.
    fn graph(&mut self, stream: &Stream, numbers: &[usize]) -> NativeGraph {
        // SAFETY: what is recorded lives as long as the process.
        let capture = unsafe { stream.begin_capture() }.unwrap();
        numbers.iter().for_each(|number| self.call(*number, stream));
        capture.end().unwrap()
    }

    fn launch(&mut self, graph: &NativeGraph, stream: &Stream, numbers: &[usize]) {
        graph.launch(stream).unwrap();
        self.expected.extend(numbers);
    }

    fn check(&self, streams: &[Stream]) {
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        assert_eq!(self.log.overlaps.load(SeqCst), 0, "{:?}", self.log.ended);
        assert_eq!(*self.log.ended.lock().unwrap(), self.expected);
        assert!(self.order.is_done().unwrap());
    }

    /// Waits until `count` graphs hold something.
    fn wait_for_held(&self, count: usize) {
        for _ in 0..2000 {
            if self.log.held.load(SeqCst) == count {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{} graphs hold something, not {count}", self.log.held.load(SeqCst));
    }
}

#[test]
fn eager_calls_on_several_streams_are_in_order() {
    for mixed in [false, true] {
        let mut bench = Bench::new(mixed);
        let streams = bench.streams::<3>();
        for number in 0..12 {
            bench.call(number, &streams[number * number % 3]);
        }
        bench.check(&streams);
    }
}

/// One handle is the stream of each thread.
#[test]
fn calls_on_the_streams_of_two_threads_are_in_order() {
    for mixed in [false, true] {
        let mut bench = Bench::new(mixed);
        let streams = [(); 2].map(|()| Stream::for_each_thread(&bench.device).unwrap());
        for number in 0..12 {
            let call = || bench.call(number, &streams[number % 2]);
            std::thread::scope(|scope| scope.spawn(call).join()).unwrap();
        }
        bench.check(&streams);
    }
}

/// The handle of a destroyed stream becomes that of another stream.
#[test]
fn a_stream_with_the_handle_of_the_last_one_waits() {
    let mut bench = Bench::new(true);
    let streams = [(); 2].map(|()| Stream::with_handle(&bench.device, 7).unwrap());
    for number in 0..6 {
        bench.call(number, &streams[number % 2]);
    }
    bench.check(&streams);
}

#[test]
fn graphs_and_eager_calls_on_any_stream_are_in_order() {
    let mut bench = Bench::new(true);
    let streams = bench.streams::<4>();
    let first = bench.graph(&streams[0], &[10, 11, 12]);
    let second = bench.graph(&streams[1], &[20, 21]);
    bench.launch(&first, &streams[0], &[10, 11, 12]);
    bench.launch(&second, &streams[1], &[20, 21]);
    bench.call(1, &streams[2]);
    bench.launch(&second, &streams[3], &[20, 21]);
    bench.launch(&first, &streams[3], &[10, 11, 12]);
    bench.call(2, &streams[2]);
    bench.call(3, &streams[2]);
    bench.launch(&first, &streams[1], &[10, 11, 12]);
    bench.call(4, &streams[2]);
    bench.check(&streams);
}

#[test]
fn a_stream_that_is_left_stays_in_the_order() {
    let mut bench = Bench::new(true);
    let streams = bench.streams::<3>();
    let graph = bench.graph(&streams[0], &[10, 11]);
    bench.call(1, &streams[1]);
    bench.launch(&graph, &streams[2], &[10, 11]);
    bench.order.leave(&streams[1]).unwrap();
    bench.call(2, &streams[0]);
    bench.check(&streams);
}

/// Captures calls on two branches in turn, each by `by`, which runs a call.
fn check_branches(bench: &mut Bench, streams: &[Stream; 2], by: impl Fn(&mut (dyn FnMut() + Send))) {
    let [fork, join] = [(); 2].map(|()| Event::new(&bench.device).unwrap());
    // SAFETY: what is recorded lives as long as the process.
    let capture = unsafe { streams[0].begin_capture() }.unwrap();
    streams[0].record(&fork).unwrap();
    streams[1].wait(&fork).unwrap();
    assert_eq!(streams[0].native_capture(), streams[1].native_capture());
    for (number, branch) in [0, 1, 1, 0, 1].into_iter().enumerate() {
        by(&mut || bench.call(number, &streams[branch]));
    }
    streams[1].record(&join).unwrap();
    streams[0].wait(&join).unwrap();
    let graph = capture.end().unwrap();
    assert_eq!(streams[1].native_capture(), Ok(None), "the branch has ended too");
    streams.iter().for_each(|stream| bench.launch(&graph, stream, &[0, 1, 2, 3, 4]));
    bench.check(streams);
}

#[test]
fn branches_of_a_capture_are_in_order() {
    for mixed in [false, true] {
        let mut bench = Bench::new(mixed);
        let streams = bench.streams();
        check_branches(&mut bench, &streams, |call| call());
    }
}

/// One handle is the stream of each thread.
#[test]
fn branches_of_two_threads_are_in_order() {
    for mixed in [false, true] {
        let mut bench = Bench::new(mixed);
        let streams = [(); 2].map(|()| Stream::for_each_thread(&bench.device).unwrap());
        check_branches(&mut bench, &streams, |call| std::thread::scope(|scope| scope.spawn(call).join()).unwrap());
    }
}

#[test]
fn a_capture_that_is_thrown_away_changes_nothing() {
    let mut bench = Bench::new(true);
    let streams = bench.streams::<3>();
    bench.call(1, &streams[0]);
    // SAFETY: the recording is dropped.
    let capture = unsafe { streams[1].begin_capture() }.unwrap();
    let first = streams[1].native_capture().unwrap();
    bench.call(2, &streams[1]);
    bench.wait_for_held(1);
    drop(capture);
    bench.wait_for_held(0);
    bench.call(3, &streams[1]);
    let graph = bench.graph(&streams[1], &[4]);
    // SAFETY: the recording is dropped.
    let capture = unsafe { streams[1].begin_capture() }.unwrap();
    assert_ne!(streams[1].native_capture().unwrap(), first, "a number never comes again");
    drop(capture);
    bench.launch(&graph, &streams[2], &[4]);
    bench.call(5, &streams[0]);
    bench.check(&streams);
}

#[test]
fn a_graph_holds_until_its_last_launch_has_ended() {
    for mixed in [false, true] {
        let mut bench = Bench::new(mixed);
        let streams = bench.streams::<1>();
        let graph = bench.graph(&streams[0], &[1, 2, 3]);
        bench.launch(&graph, &streams[0], &[1, 2, 3]);
        drop(graph);
        assert_eq!(bench.log.held.load(SeqCst), 1, "a launch is in flight");
        bench.check(&streams);
        bench.wait_for_held(0);
    }
}
