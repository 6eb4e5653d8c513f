//! Tests of `src/collective/turn/graph_part.rs`, whose module they are.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::bootstrap::Threads;
use crate::collective::Communicator;
use crate::device::Device;
use crate::group::Config;
use crate::memory::DeviceBuffer;
use crate::op::{Algorithm, AllReduceOptions};
use crate::types::Reduction;

/// Rank 0 launches while it registers, for which it waits for rank 1.
#[test]
fn a_launch_does_not_wait_for_a_registration() {
    let told = Barrier::new(2);
    let run = |bootstrap: Threads| {
        let device = Device::host().unwrap();
        let stream = Stream::new(&device).unwrap();
        let config = Config { heap_bytes: 1 << 16, ..Config::default() };
        let communicator = Communicator::open(bootstrap, &device, config).unwrap();
        let (input, output) = (DeviceBuffer::from_slice(&[1i32; 64], &stream), DeviceBuffer::new(&device, 64));
        let (input, output) = (input.unwrap(), output.unwrap());
        let options =
            AllReduceOptions { reduction: Reduction::Sum, algorithm: Algorithm::TwoShotZeroCopy, ..Default::default() };
        let graph = stream.capture(|capture| communicator.all_reduce_with(options, &input, &output, capture)).unwrap();
        if communicator.rank() == 0 {
            std::thread::scope(|scope| {
                let registering = scope.spawn(|| graph.register());
                // Time to begin.
                std::thread::sleep(Duration::from_millis(300));
                let (launched, outcome) = std::sync::mpsc::channel();
                let (graph, stream) = (&graph, &stream);
                scope.spawn(move || launched.send(graph.launch(stream)));
                let outcome = outcome.recv_timeout(Duration::from_secs(10));
                told.wait();
                assert_eq!(outcome, Ok(Err(Error::NotRegistered { pointers: 2 })));
                registering.join().unwrap().unwrap();
            });
        } else {
            told.wait();
            graph.register().unwrap();
        }
        graph.launch(&stream).unwrap();
        communicator.synchronize(&stream).unwrap();
        assert_eq!(output.read(&stream).unwrap(), [2; 64]);
        drop(graph);
        communicator.close().unwrap();
    };
    std::thread::scope(|scope| {
        let run = &run;
        let ranks = Threads::new(2).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    });
}
