//! Times of calls on GPUs: against the time of a graph by the clock of the host, and of a rank that a kernel delays.
#![allow(unsafe_code)]

use std::time::Instant;

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use symmetra::Config;
use symmetra::interop::cudarc::new_stream;

use super::{row, timed};
use crate::support::{is_host, threads};

/// A kernel that returns after a number of nanoseconds.
const DELAY: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry delay(.param .u64 time) {
  .reg .pred %early;
  .reg .u64 %now, %end;
  ld.param.u64 %end, [time];
  mov.u64 %now, %globaltimer;
  add.u64 %end, %end, %now;
again:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %early, %now, %end;
  @%early bra again;
  ret;
}
";
const DELAY_NS: u64 = 50_000;

fn delay(stream: &CudaStream, kernel: &CudaFunction) {
    let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
    let mut launch = stream.launch_builder(kernel);
    launch.arg(&DELAY_NS);
    // SAFETY: the argument is that of the kernel, which reaches no memory.
    unsafe { launch.launch(config) }.unwrap();
}

/// Each all-reduce of a graph comes 50 us late on one rank.
#[test]
fn a_delay_of_50_us_in_a_graph_is_attributed_to_its_rank() {
    const LATE: usize = 1;
    let Some(config) = timed().filter(|_| !is_host()) else { return };
    threads(2, &config, |rank| {
        // SAFETY: this thread alone uses the stream, and cudarc allocates nothing.
        let (stream, native) = unsafe { new_stream(&rank.device) }.unwrap();
        let kernel = native.context().load_module(Ptx::from_src(DELAY)).unwrap().load_function("delay").unwrap();
        let [first, values] = [1024, 4096].map(|len| rank.communicator.symmetric::<f32>(len).unwrap());
        let graph = stream.capture(|capture| {
            // Takes the time between the launches of the two graphs.
            rank.communicator.all_reduce_in_place(&first, capture)?;
            (0..20).try_for_each(|_| {
                if rank.rank() == LATE {
                    delay(&native, &kernel);
                }
                rank.communicator.all_reduce_in_place(&values, capture)
            })
        });
        let graph = graph.unwrap();
        for _ in 0..20 {
            graph.launch(&stream).unwrap();
        }
        rank.communicator.synchronize(&stream).unwrap();
        rank.communicator.group().barrier().unwrap();
        let timings = rank.communicator.timings().unwrap();
        let row = row(&timings, "all-reduce", 16384);
        eprintln!("rank {}: {row:?}", rank.rank());
        assert!(row.calls == 400 && row.attributed == 1.0, "{row:?}");
        if rank.rank() != LATE {
            let wait = row.waits[0];
            assert!(wait.rank == LATE && (45.0..55.0).contains(&wait.mean_us), "{row:?}");
        }
        rank.communicator.group().barrier().unwrap();
        drop(graph);
        rank.communicator.leave(&stream).unwrap();
    });
}

/// The times of the calls of a graph, waiting included, are the time of the graph without the time between calls.
#[test]
fn the_calls_of_a_graph_take_the_time_of_the_graph() {
    const CALLS: usize = 40;
    const LAUNCHES: usize = 10;
    if timed().is_none() || is_host() {
        return;
    }
    // The workspaces of other tests are small, and divide a call into launches.
    let mut config = Config::default();
    (config.timing, config.heap_bytes) = (true, 128 << 20);
    threads(2, &config, |rank| {
        let (communicator, stream) = (&rank.communicator, &rank.stream);
        for bytes in [16 << 10, 256 << 10, 4 << 20, 64 << 20] {
            let values = communicator.symmetric::<f32>(bytes / 4).unwrap();
            let graph = stream
                .capture(|capture| (0..CALLS).try_for_each(|_| communicator.all_reduce_in_place(&values, capture)));
            let graph = graph.unwrap();
            graph.launch(stream).unwrap();
            communicator.synchronize(stream).unwrap();
            communicator.group().barrier().unwrap();
            let before = communicator.timings().unwrap();
            let before = row(&before, "all-reduce", bytes as u64).total_us;
            let start = Instant::now();
            (0..LAUNCHES).for_each(|_| graph.launch(stream).unwrap());
            communicator.synchronize(stream).unwrap();
            let graphs_us = start.elapsed().as_secs_f64() * 1e6;
            communicator.group().barrier().unwrap();
            let timings = communicator.timings().unwrap();
            let row = row(&timings, "all-reduce", bytes as u64);
            assert_eq!(row.calls, (CALLS * (LAUNCHES + 1)) as u64);
            let calls_us = row.total_us - before;
            let between_us = (graphs_us - calls_us) / (CALLS * LAUNCHES) as f64;
            let share = calls_us / graphs_us;
            eprintln!("rank {}: {bytes} bytes, {share:.3} of the graph, {between_us:.2} us between calls", rank.rank());
            // Kernels start about 1 us after the last block of the kernel before. A call ends with its first block, and the
            // other blocks of the kernel up to 2 us later, or 10 us in a ring of 64 MiB.
            let most_us = if bytes == 64 << 20 { 15.0 } else { 4.0 };
            assert!((0.0..most_us).contains(&between_us), "{between_us} us between calls: {row:?}");
            communicator.group().barrier().unwrap();
            drop(graph);
        }
        communicator.leave(stream).unwrap();
    });
}
