//! A user's kernel that cudarc launches with a [`HeapView`](symmetra::HeapView): on GPUs alone. `tests/gpu/build.sh`
//! compiles the kernel into a file next to the program of the tests.
#![allow(unsafe_code)]

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use symmetra::interop::cudarc::new_stream;
use symmetra::{HeapView, SymmetricBuffer};

use crate::support::{config, is_host, threads};

const COUNT: usize = 1001;

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
