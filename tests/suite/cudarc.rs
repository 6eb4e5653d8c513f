//! cudarc's kernels and streams, on GPUs alone: a user's kernel that cudarc launches with a
//! [`HeapView`](symmetra::HeapView), and calls on the stream of each thread. `tests/gpu/build.sh` compiles the kernel into a file
//! next to the program of the tests.
#![allow(unsafe_code)]

use std::sync::mpsc::{Receiver, Sender, channel};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use symmetra::interop::cudarc::{new_stream, stream};
use symmetra::{DeviceBuffer, HeapView, SymmetricBuffer};

use crate::support::{Rank, config, is_host, threads};

const COUNT: usize = 1001;
/// Calls of two threads in turn.
const TURNS: usize = 1000;
/// The most elements of such a call.
const MOST: usize = 6000;

/// The words of a rank: new ones every round and every run.
fn words(seed: u64, rank: usize, round: usize) -> Vec<u32> {
    let mut random =
        fastrand::Rng::with_seed(seed ^ ((rank * 16 + round + 1) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..COUNT).map(|_| random.u32(..)).collect()
}

/// The buffers of a rank's kernel: for the data that it sends, the data that arrive, and a copy of the arrived data.
struct Buffers {
    from: SymmetricBuffer<u32>,
    to: SymmetricBuffer<u32>,
    got: SymmetricBuffer<u32>,
}

impl Buffers {
    fn launch(&self, kernel: &CudaFunction, heap: &HeapView, native: &CudaStream) {
        let [from, to, got] = [&self.from, &self.to, &self.got].map(|buffer| buffer.as_raw() as u64);
        let count = COUNT as u32;
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 };
        let mut launch = native.launch_builder(kernel);
        launch.arg(heap).arg(&from).arg(&to).arg(&got).arg(&count);
        // SAFETY: the arguments are those of the kernel, whose buffers have as many words and outlive the work.
        unsafe { launch.launch(config) }.unwrap();
    }
}

#[test]
fn a_kernel_launched_by_cudarc_reaches_the_peers() {
    if is_host() {
        eprintln!("skipped: cudarc launches kernels of NVIDIA GPUs");
        return;
    }
    let file = std::env::current_exe().unwrap().with_file_name("cudarc_kernel.fatbin");
    assert!(file.exists(), "no {}: tests/gpu/build.sh makes it", file.display());
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    threads(2, &config(), |rank| {
        let (own, previous) = (rank.rank(), (rank.rank() + rank.world() - 1) % rank.world());
        // SAFETY: this thread alone uses the stream, and cudarc allocates nothing.
        let (stream, native) = unsafe { new_stream(&rank.device) }.unwrap();
        let module = native.context().load_module(Ptx::from_file(&file)).unwrap();
        let kernel = module.load_function("pass_on").unwrap();
        let symmetric = || rank.communicator.symmetric::<u32>(COUNT).unwrap();
        let buffers = Buffers { from: symmetric(), to: symmetric(), got: symmetric() };
        // All have loaded the kernel before one waits for another.
        rank.communicator.group().barrier().unwrap();
        let check = |round: usize| {
            rank.communicator.synchronize(&stream).unwrap();
            assert_eq!(buffers.to.read(&stream).unwrap(), words(seed, previous, round), "round {round}");
            assert_eq!(buffers.got.read(&stream).unwrap(), words(seed, previous, round), "round {round}");
        };
        for round in 0..3 {
            buffers.from.write(&words(seed, own, round), &stream).unwrap();
            let heap = rank.communicator.heap(&stream).unwrap();
            buffers.launch(&kernel, &heap, &native);
            check(round);
        }
        let record = |capture: &symmetra::Capture<'_, '_>| {
            buffers.launch(&kernel, &rank.communicator.heap(capture)?, &native);
            Ok(())
        };
        let graph = stream.capture(|capture| record(capture)).unwrap();
        for round in 3..8 {
            buffers.from.write(&words(seed, own, round), &stream).unwrap();
            graph.launch(&stream).unwrap();
            check(round);
        }
        drop(graph);
        rank.communicator.group().barrier().unwrap();
    });
}

/// The elements of a rank for the calls of one of its two threads: whole numbers, so that every order has the same sum.
fn numbers(seed: u64, rank: usize, thread: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_add((2 * rank + thread) as u64));
    (0..TURNS / 2 * MOST).map(|_| random.u16(..) as f32).collect()
}

/// The elements of each call of a thread.
fn lengths(seed: u64, thread: usize) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(!seed.wrapping_add(thread as u64));
    (0..TURNS / 2).map(|_| random.usize(1..=MOST)).collect()
}

/// Makes every other call of a rank, each on its own part of a buffer, and waits at the end alone.
fn take_turns(rank: &Rank, seed: u64, thread: usize, own_turn: &Receiver<()>, next_turn: &Sender<()>) {
    let ordinal = usize::try_from(rank.device.ordinal()).unwrap();
    let native = CudaContext::new(ordinal).unwrap().per_thread_stream();
    // SAFETY: no code captures the stream, and this thread alone uses the memory.
    let stream = unsafe { stream(&rank.device, &native) }.unwrap();
    let mut expected = numbers(seed, rank.rank(), thread);
    let of_peer = numbers(seed, 1 - rank.rank(), thread);
    let buffer = DeviceBuffer::from_slice(&expected, &stream).unwrap();
    for (turn, length) in lengths(seed, thread).into_iter().enumerate() {
        let place = turn * MOST..turn * MOST + length;
        own_turn.recv().unwrap();
        rank.communicator.all_reduce_in_place(buffer.borrow().slice(place.clone()).unwrap(), &stream).unwrap();
        // The thread of the last turn has no successor.
        let _ = next_turn.send(());
        expected[place.clone()].iter_mut().zip(&of_peer[place]).for_each(|(own, peer)| *own += peer);
    }
    rank.communicator.synchronize(&stream).unwrap();
    assert_eq!(buffer.read(&stream).unwrap(), expected, "thread {thread}");
}

#[test]
fn calls_of_two_threads_on_the_stream_of_each_thread_are_in_order() {
    if is_host() {
        eprintln!("skipped: the streams of threads are those of GPUs");
        return;
    }
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    threads(2, &config(), |rank| {
        let [(first, first_turn), (second, second_turn)] = [channel(), channel()];
        first.send(()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || take_turns(rank, seed, 0, &first_turn, &second));
            scope.spawn(move || take_turns(rank, seed, 1, &second_turn, &first));
        });
    });
}
