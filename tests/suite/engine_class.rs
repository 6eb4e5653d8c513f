//! The class that engines use instead of cudarc's `nccl::safe`: on GPUs alone. `SYMMETRA_TEST_DEVICE=cuda`, 2 GPUs.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUgraphInstantiate_flags as Flags, CUstreamCaptureMode as Mode};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use half::{bf16, f16};
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::interop::cudarc::comm::{Comm, CommError, Id, ReduceOp, Result, group_end, group_start};
use symmetra::interop::cudarc::{borrow, device, input, stream};
use symmetra::{Communicator, Config, Deadlines, Determinism, Error, Reduction};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::support::data::{assert_same, mix};
use crate::support::device::device as device_of;
use crate::support::process::{Child, Ranks, this};
use crate::support::world::{Gate, alone, bounded, meet};
use crate::support::{Data, Sample, config, fits, is_host};

const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];

/// Elements of a rank's data.
const ROOM: usize = 100_000;

/// Sums in rank order, so that every result has one value.
fn exact() -> Config {
    config().determinism(Determinism::Exact)
}

fn context(rank: usize) -> Arc<CudaContext> {
    CudaContext::new(usize::try_from(device_of(rank).ordinal()).unwrap()).unwrap()
}

/// Runs `body` on every rank of two threads, with a stream of its own.
fn pair(config: &Config, body: impl Fn(&Comm) + Sync) {
    if is_host() {
        eprintln!("skipped: cudarc drives NVIDIA GPUs");
        return;
    }
    meet(2, |bootstrap| {
        let comm = open(bootstrap, config);
        body(&comm);
        comm.synchronize().unwrap();
        comm.communicator().group().barrier().unwrap();
    });
}

fn open(bootstrap: Threads, config: &Config) -> Comm {
    let native = context(bootstrap.rank()).new_stream().unwrap();
    Comm::open(bootstrap, native, config.clone()).unwrap()
}

/// A slice with these values. cudarc uploads only types that it knows, so bytes are uploaded.
fn upload<T: Sample>(native: &Arc<CudaStream>, values: &[T]) -> CudaSlice<T> {
    let address = native.clone_htod(bytemuck::cast_slice::<T, u8>(values)).unwrap().leak();
    // SAFETY: an allocation of this size, which nothing else owns.
    unsafe { native.upgrade_device_ptr(address, values.len()) }
}

fn download<T: Sample>(native: &Arc<CudaStream>, slice: &CudaSlice<T>) -> Vec<T> {
    // SAFETY: the bytes of the elements.
    let bytes = unsafe { slice.transmute::<u8>(size_of::<T>() * slice.len()) }.unwrap();
    bytemuck::pod_collect_to_vec(&native.clone_dtoh(&bytes).unwrap())
}

/// Makes a call on a view of a slice of `own`, and compares: `expected` from `to` on, the other elements unchanged.
fn writes<T: Sample>(
    comm: &Comm,
    own: &[T],
    place: Range<usize>,
    expected: &[T],
    call: impl FnOnce(&mut cudarc::driver::CudaViewMut<'_, T>) -> Result<()>,
) {
    let native = comm.stream();
    let mut output = upload(&native, own);
    call(&mut output.slice_mut(place.clone())).unwrap();
    let mut all = own.to_vec();
    all[place.start..place.start + expected.len()].copy_from_slice(expected);
    assert_same(&download(&native, &output), &all, &(T::DTYPE, comm.rank(), place));
}

/// Every method against its definition.
fn every_method<T: Sample>(comm: &Comm, seed: u64) {
    let data = Data::<T>::new(seed ^ T::DTYPE as u64, 2, ROOM);
    let (native, rank, own) = (comm.stream(), comm.rank(), &data.inputs[comm.rank()]);
    let source = upload(&native, own);
    for (number, (count, from, to)) in [(1, 0, 0), (257, 1, 3), (1003, 7, 1), (30_000, 5, 9)].into_iter().enumerate() {
        let (input, root) = (source.slice(from..from + count), (number % 2) as i32);
        let at_root = |values: &[T]| if rank == root as usize { values.to_vec() } else { Vec::new() };
        for op in OPS {
            let all = data.result(Reduction::from(op));
            let (result, in_place) = (&all[from..from + count], &all[to..to + count]);
            writes(comm, own, to..to + count, result, |output| comm.all_reduce(&input, output, &op));
            writes(comm, own, to..to + count, in_place, |output| comm.all_reduce_in_place(output, &op));
            writes(comm, own, to..to + count, &at_root(result), |output| comm.reduce(&input, Some(output), &op, root));
            writes(comm, own, to..to + count, &at_root(in_place), |output| comm.reduce_in_place(output, &op, root));
            let (both, part) = (source.slice(from..from + 2 * count), &all[from + rank * count..][..count]);
            writes(comm, own, to..to + count, part, |output| comm.reduce_scatter(&both, output, &op));
        }
        let gathered: Vec<T> = data.inputs.iter().flat_map(|input| input[from..from + count].to_vec()).collect();
        writes(comm, own, to..to + 2 * count, &gathered, |output| comm.all_gather(&input, output));
        let of_root = &data.inputs[root as usize];
        let (sent, kept) = (&of_root[from..from + count], &of_root[to..to + count]);
        let send = (rank == root as usize).then_some(&input);
        writes(comm, own, to..to + count, sent, |output| comm.broadcast(send, output, root));
        writes(comm, own, to..to + count, kept, |output| comm.broadcast_in_place(output, root));
        let of_peer = &data.inputs[1 - rank][from..from + count];
        let peer = 1 - rank as i32;
        writes(comm, own, to..to + count, of_peer, |output| {
            // One sends first, the other receives first.
            match rank {
                0 => comm.send(&input, peer).and_then(|()| comm.recv(output, peer)),
                _ => comm.recv(output, peer).and_then(|()| comm.send(&input, peer)),
            }
        });
    }
    // In a group both send first. The views are made before the group.
    let count = 30_000;
    let mut output = upload(&native, own);
    let (send, receive) = (source.slice(3..3 + count), output.slice_mut(1..1 + count));
    let mut group = comm.group();
    group.send(send, 1 - rank as i32).unwrap();
    group.recv(receive, 1 - rank as i32).unwrap();
    group.end().unwrap();
    let mut expected = own.clone();
    expected[1..1 + count].copy_from_slice(&data.inputs[1 - rank][3..3 + count]);
    assert_same(&download(&native, &output), &expected, &(T::DTYPE, "a group"));
}

fn every_type(comm: &Comm, seed: u64) {
    every_method::<f32>(comm, seed);
    every_method::<f64>(comm, seed);
    every_method::<f16>(comm, seed);
    every_method::<bf16>(comm, seed);
    every_method::<F8E4M3>(comm, seed);
    every_method::<F8E5M2>(comm, seed);
    every_method::<i8>(comm, seed);
    every_method::<u8>(comm, seed);
    every_method::<i32>(comm, seed);
    every_method::<u32>(comm, seed);
    every_method::<i64>(comm, seed);
    every_method::<u64>(comm, seed);
}

#[test]
fn a1_every_method_and_type_has_its_definition() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    pair(&exact(), |comm| every_type(comm, seed));
}

/// The ranks meet by the bytes of an id, as engines pass them: rank 0 writes them into a file.
fn meet_by_bytes(child: &Child) -> Comm {
    let (file, part) = (child.directory().join("id"), child.directory().join("id.part"));
    let id = match child.rank {
        0 => {
            let id = Id::new().unwrap();
            std::fs::write(&part, id.internal().map(|byte| byte as u8)).unwrap();
            std::fs::rename(part, file).unwrap();
            id
        }
        _ => {
            crate::support::world::until(Duration::from_secs(30), "the id", || file.exists());
            let bytes: [u8; 128] = std::fs::read(file).unwrap().try_into().unwrap();
            Id::uninit(bytes.map(|byte| byte as std::ffi::c_char))
        }
    };
    Comm::from_rank(context(child.rank).new_stream().unwrap(), child.rank, child.world, id).unwrap()
}

#[test]
fn a1_processes_that_meet_by_an_id_have_the_results_of_the_definitions() {
    if let Some(child) = this() {
        return bounded(Duration::from_secs(120), || {
            let comm = meet_by_bytes(&child);
            every_method::<i32>(&comm, 7);
            every_method::<u8>(&comm, 7);
            comm.synchronize().unwrap();
            comm.communicator().group().barrier().unwrap();
            drop(comm);
            child.say("done");
        });
    }
    if is_host() || !fits(2) {
        return;
    }
    let _alone = alone();
    let test = "engine_class::a1_processes_that_meet_by_an_id_have_the_results_of_the_definitions";
    let ranks = Ranks::start(test, 2, "");
    ranks.expect(&[0, 1], "done");
    ranks.finish(&[0, 1]);
}

#[test]
fn a1_one_thread_opens_and_calls_for_all_its_devices() {
    if is_host() || !fits(2) {
        return;
    }
    let _alone = alone();
    let comms = Comm::from_devices(vec![context(0).new_stream().unwrap(), context(1).new_stream().unwrap()]).unwrap();
    assert_eq!(comms.iter().map(|comm| (comm.rank(), comm.world_size())).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    let mut slices: Vec<_> =
        comms.iter().map(|comm| comm.stream().clone_htod(&[comm.rank() as f32 + 1.0; 5000]).unwrap()).collect();
    for _ in 0..10 {
        group_start().unwrap();
        for (comm, slice) in comms.iter().zip(&mut slices) {
            comm.all_reduce_in_place(slice, &ReduceOp::Max).unwrap();
            let refused = comm.send(&*slice, 1 - comm.rank() as i32).unwrap_err();
            assert!(
                matches!(&refused, CommError(Error::Unsupported { .. })) && refused.to_string().contains("Comm::group")
            );
        }
        group_end().unwrap();
    }
    assert!(group_end().is_err());
    for (comm, slice) in comms.iter().zip(&slices) {
        comm.synchronize().unwrap();
        assert_eq!(comm.stream().clone_dtoh(slice).unwrap(), [2.0; 5000]);
    }
}

#[test]
fn a2_longer_operands_are_used_in_part_and_shorter_ones_are_refused() {
    pair(&exact(), |comm| {
        let native = comm.stream();
        let refused = |result: Result<()>| match result {
            Err(CommError(Error::InvalidArgument { .. })) => {}
            other => panic!("{other:?}"),
        };
        let [short, long] = [1000, 1001].map(|len| native.clone_htod(&vec![1u32; len]).unwrap());
        let mut output = native.clone_htod(&vec![9u32; 2001]).unwrap();
        comm.all_reduce(&short, &mut output, &ReduceOp::Sum).unwrap();
        assert_eq!(native.clone_dtoh(&output).unwrap(), [vec![2; 1000], vec![9; 1001]].concat());
        comm.all_gather(&short, &mut output).unwrap();
        assert_eq!(native.clone_dtoh(&output).unwrap(), [vec![1; 2000], vec![9; 1]].concat());
        refused(comm.all_gather(&long, &mut output));
        comm.reduce_scatter(&long, &mut output.slice_mut(..500), &ReduceOp::Sum).unwrap();
        assert_eq!(native.clone_dtoh(&output).unwrap(), [vec![2; 500], vec![1; 1500], vec![9; 1]].concat());
        refused(comm.reduce_scatter(&long, &mut output.slice_mut(..501), &ReduceOp::Sum));
        refused(comm.all_reduce(&long, &mut output.slice_mut(..1000), &ReduceOp::Sum));
        refused(comm.broadcast_in_place(&mut output, 2));
        refused(comm.broadcast_in_place(&mut output, -1));
        refused(comm.send(&short, 2));
        let own = comm.rank() as i32;
        refused(comm.broadcast(Some(&short), &mut output, own));
        refused(comm.broadcast(None::<&CudaSlice<u32>>, &mut output, own));
        refused(comm.reduce(&long, Some(&mut output.slice_mut(..1000)), &ReduceOp::Sum, own));
        refused(comm.reduce(&long, None::<&mut CudaSlice<u32>>, &ReduceOp::Sum, own));
        let other = context(1 - comm.rank()).new_stream().unwrap();
        refused(comm.all_reduce_in_place(&mut other.clone_htod(&[1u32]).unwrap(), &ReduceOp::Sum));
        assert_eq!(native.clone_dtoh(&output).unwrap(), [vec![2; 500], vec![1; 1500], vec![9; 1]].concat());
    });
}

/// Rounds of a slice that is written on one stream, reduced on another, read on the first and freed at once, with no wait
/// between: cudarc's events alone order them.
fn across_streams(comm: &Comm, seed: u64, reduce: impl Fn(&mut CudaSlice<u32>)) {
    const LEN: usize = 4096;
    let (native, rounds) = (comm.context().new_stream().unwrap(), 1000);
    let value = |rank: usize, round: usize| mix(seed ^ (rank * rounds + round) as u64) as u32;
    let mut log = native.alloc_zeros::<u32>(LEN * rounds).unwrap();
    for round in 0..rounds {
        let mut slice = native.clone_htod(&vec![value(comm.rank(), round); LEN]).unwrap();
        reduce(&mut slice);
        native.memcpy_dtod(&slice, &mut log.slice_mut(round * LEN..(round + 1) * LEN)).unwrap();
    }
    comm.synchronize().unwrap();
    for (round, values) in native.clone_dtoh(&log).unwrap().chunks(LEN).enumerate() {
        let sum = value(0, round).wrapping_add(value(1, round));
        assert!(values.iter().all(|value| *value == sum), "round {round}");
    }
}

#[test]
fn a3_events_of_cudarc_order_other_streams_and_the_free() {
    let seed = fastrand::u64(..);
    pair(&exact(), |comm| across_streams(comm, seed, |slice| comm.all_reduce_in_place(slice, &ReduceOp::Sum).unwrap()));
}

#[test]
fn a3_a_borrowed_slice_keeps_the_guard_of_cudarc() {
    let seed = fastrand::u64(..);
    pair(&exact(), |comm| {
        let native = comm.stream();
        let device = device(native.context()).unwrap();
        // SAFETY: no other code captures the stream.
        let queue = unsafe { stream(&device, &native) }.unwrap();
        across_streams(comm, seed, |slice| {
            // SAFETY: used on this stream alone, before the guard is dropped.
            let memory = unsafe { borrow(&device, slice, &native) }.unwrap();
            comm.communicator().all_reduce_in_place(&*memory, &queue).unwrap();
        });
        let slice = native.clone_htod(&[3u32; 100]).unwrap();
        let output = comm.communicator().symmetric::<u32>(100).unwrap();
        // SAFETY: as above.
        let memory = unsafe { input(&device, &slice, &native) }.unwrap();
        comm.communicator().all_reduce(&*memory, &output, &queue).unwrap();
        assert_eq!(output.read(&queue).unwrap(), [6; 100]);
        comm.communicator().all_reduce(&output, &*memory, &queue).unwrap_err();
    });
}

/// A graph whose operand is memory that the graph itself allocates, as an engine's pool does in a capture.
fn graph_memory(comm: &Comm, seed: u64, mode: Mode, frees: bool) {
    const LEN: usize = 20_000;
    let native = comm.stream();
    let barrier = || comm.communicator().group().barrier().unwrap();
    let values = |rank: usize, round: u64| -> Vec<f32> {
        (0..LEN).map(|index| f32::sample(mix(seed ^ round << 32 ^ (rank * LEN + index) as u64))).collect()
    };
    let (mut from, mut to) = (native.alloc_zeros::<f32>(LEN).unwrap(), native.alloc_zeros::<f32>(LEN).unwrap());
    let record = |from: &CudaSlice<f32>, to: &mut CudaSlice<f32>| {
        // SAFETY: overwritten before it is read.
        let mut inner = unsafe { native.alloc::<f32>(LEN) }.unwrap();
        native.memcpy_dtod(from, &mut inner).unwrap();
        comm.all_reduce_in_place(&mut inner, &ReduceOp::Sum).unwrap();
        native.memcpy_dtod(&inner, to).unwrap();
        if !frees {
            inner.leak();
        }
    };
    let eager = |from: &mut CudaSlice<f32>, round: u64| {
        native.memcpy_htod(&values(comm.rank(), round), from).unwrap();
        let mut out = native.alloc_zeros::<f32>(LEN).unwrap();
        comm.all_reduce(&*from, &mut out, &ReduceOp::Sum).unwrap();
        native.clone_dtoh(&out).unwrap()
    };
    eager(&mut from, 0);
    barrier();
    native.begin_capture(mode).unwrap();
    record(&from, &mut to);
    let graph = native.end_capture(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).unwrap().unwrap();
    barrier();
    for round in 1..=200 {
        let expected = eager(&mut from, round);
        graph.launch().unwrap();
        let got = native.clone_dtoh(&to).unwrap();
        comm.check().unwrap();
        assert_same(&got, &expected, &(round, frees));
    }
    comm.synchronize().unwrap();
    barrier();
}

fn with_graph_memory(mode: Mode, frees: bool) {
    let seed = fastrand::u64(..);
    if is_host() {
        return;
    }
    meet(2, |bootstrap| {
        let context = context(bootstrap.rank());
        // SAFETY: one stream uses the memory. An event of before the capture cannot be waited for in it.
        unsafe { context.disable_event_tracking() };
        let comm = Comm::open(bootstrap, context.new_stream().unwrap(), exact()).unwrap();
        graph_memory(&comm, seed, mode, frees);
    });
}

#[test]
fn a4_a_relaxed_capture_with_memory_of_the_graph_has_the_eager_bits() {
    with_graph_memory(Mode::CU_STREAM_CAPTURE_MODE_RELAXED, false);
}

#[test]
fn a4_a_thread_local_capture_with_memory_that_the_graph_frees_has_the_eager_bits() {
    with_graph_memory(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true);
}

#[test]
fn a5_check_after_the_streams_own_wait_names_a_late_rank() {
    let mut config = exact();
    config.deadlines = Deadlines::default().first_use(Duration::from_secs(20)).steady(Duration::from_secs(1));
    if is_host() {
        return;
    }
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let comm = open(bootstrap, &config);
        let native = comm.stream();
        let mut slice = native.clone_htod(&[1.0f32; 1000]).unwrap();
        comm.all_reduce_in_place(&mut slice, &ReduceOp::Sum).unwrap();
        comm.synchronize().unwrap();
        comm.check().unwrap();
        if comm.rank() == 0 {
            comm.all_reduce_in_place(&mut slice, &ReduceOp::Sum).unwrap();
            native.synchronize().unwrap();
            let error = comm.check().unwrap_err();
            assert!(matches!(error, CommError(Error::Timeout { rank: Some(1), .. })), "{error}");
        }
        gate.pass();
    });
}

/// Counts the warnings of this thread.
struct Warnings(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= tracing::Level::WARN {
            eprintln!("{event:?}");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a6_communicators_are_dropped_in_any_order_without_a_warning() {
    if is_host() || !fits(2) {
        return;
    }
    let _alone = alone();
    for first in [0, 1] {
        let mut comms: Vec<Comm> =
            Comm::from_devices(vec![context(0).new_stream().unwrap(), context(1).new_stream().unwrap()]).unwrap();
        for comm in &comms {
            let mut slice = comm.stream().clone_htod(&[1.0f32; 1000]).unwrap();
            comm.all_reduce_in_place(&mut slice, &ReduceOp::Sum).unwrap();
        }
        let warnings = Arc::new(AtomicUsize::new(0));
        let subscriber = tracing_subscriber::registry().with(Warnings(warnings.clone()));
        tracing::subscriber::with_default(subscriber, || {
            drop(comms.remove(first));
            comms[0].check().unwrap();
            drop(comms);
        });
        assert_eq!(warnings.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a7_a_rank_has_two_communicators() {
    if is_host() {
        return;
    }
    let worlds: [Vec<_>; 2] =
        [0; 2].map(|_| Threads::new(2).unwrap().into_iter().map(|rank| parking_lot::Mutex::new(Some(rank))).collect());
    meet(2, |bootstrap| {
        let rank = bootstrap.rank();
        let context = context(rank);
        let [decode, experts] = [0, 1].map(|number: usize| {
            let bootstrap = worlds[number][rank].lock().take().unwrap();
            Comm::open(bootstrap, context.new_stream().unwrap(), exact()).unwrap()
        });
        let mut slices = [&decode, &experts].map(|comm| comm.stream().clone_htod(&[1u64; 3000]).unwrap());
        for round in 0..50 {
            let order = if round % 2 == 0 { [&decode, &experts] } else { [&experts, &decode] };
            for comm in order {
                let slice = &mut slices[usize::from(std::ptr::eq(comm, &experts))];
                comm.all_reduce_in_place(slice, &ReduceOp::Max).unwrap();
                comm.all_reduce_in_place(slice, &ReduceOp::Avg).unwrap();
            }
        }
        for (comm, slice) in [&decode, &experts].into_iter().zip(&slices) {
            comm.synchronize().unwrap();
            assert_eq!(comm.stream().clone_dtoh(slice).unwrap(), [1; 3000]);
            comm.communicator().group().barrier().unwrap();
        }
    });
}

/// Prints the host's time of a call, on memory with and without the events of cudarc; compares nothing but the results.
#[test]
fn a8_the_time_of_a_call_on_the_host_is_printed() {
    pair(&exact(), |comm| {
        const CALLS: usize = 200;
        let native = comm.stream();
        let communicator: &Communicator = comm.communicator();
        let buffer = communicator.symmetric::<u32>(256).unwrap();
        buffer.write(&[1; 256], comm.queue()).unwrap();
        let mut tracked = native.clone_htod(&[1u32; 256]).unwrap();
        // SAFETY: one stream uses the memory, and the program waits for the stream before the memory is freed.
        unsafe { native.context().disable_event_tracking() };
        let mut untracked = native.clone_htod(&[1u32; 256]).unwrap();
        // SAFETY: memory from here on has events again.
        unsafe { native.context().enable_event_tracking() };
        let mut times = [const { Vec::new() }; 3];
        let mut timed = |number: usize, call: &mut dyn FnMut()| {
            let begin = Instant::now();
            (0..CALLS).for_each(|_| call());
            times[number].push(begin.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
            comm.synchronize().unwrap();
        };
        for _ in 0..51 {
            timed(0, &mut || comm.all_reduce_in_place(&mut tracked, &ReduceOp::Max).unwrap());
            timed(1, &mut || comm.all_reduce_in_place(&mut untracked, &ReduceOp::Max).unwrap());
            timed(2, &mut || communicator.all_reduce_with(Reduction::Max, &buffer, &buffer, comm.queue()).unwrap());
        }
        times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        let [tracked_us, untracked_us, direct] = times.map(|times| times[25]);
        eprintln!(
            "rank {}: Comm::all_reduce_in_place {tracked_us:.2} us, without events of cudarc {untracked_us:.2} us, \
             Communicator::all_reduce_with {direct:.2} us",
            comm.rank()
        );
        for words in [&tracked, &untracked] {
            assert_eq!(native.clone_dtoh(words).unwrap(), [1; 256]);
        }
        assert_eq!(buffer.read(comm.queue()).unwrap(), [1; 256]);
    });
}
