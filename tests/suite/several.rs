//! Several communicators of the same ranks on different streams.

use std::time::Duration;

use symmetra::{DeviceBuffer, Stream};

use crate::support::{Rank, config, is_host, threads};

/// 16 MiB.
const ELEMS: usize = 4 << 20;
const ROUNDS: usize = 20;
/// The pause between the two launches of a rank.
const BETWEEN: Duration = Duration::from_millis(5);

/// The last rank sends and receives nothing, so its capture begins with the other communicator.
#[test]
fn graphs_that_begin_with_different_communicators_are_registered() {
    let config = config();
    threads(3, &config, |rank| {
        let (communicator, stream, own) = (&rank.communicator, &rank.stream, rank.rank());
        let other = communicator.split(Some(0), 0).unwrap().unwrap();
        let ones = vec![1.0f32; 64];
        let [sent, first, second] = [(); 3].map(|()| DeviceBuffer::from_slice(&ones, stream).unwrap());
        let received = communicator.symmetric::<f32>(64).unwrap();
        let graph = stream.capture(|capture| {
            match own {
                0 => communicator.pairs(capture, |call| call.send(&sent, 1))?,
                1 => communicator.pairs(capture, |call| call.receive(&received, 0))?,
                _ => {}
            }
            other.all_reduce_in_place(&first, capture)?;
            communicator.all_reduce_in_place(&second, capture)
        });
        let graph = graph.unwrap();
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        communicator.synchronize(stream).unwrap();
        for sum in [&first, &second] {
            assert_eq!(sum.read(stream).unwrap(), vec![3.0; 64]);
        }
        if own == 1 {
            assert_eq!(received.read(stream).unwrap(), ones);
        }
        drop(graph);
        drop(received);
        other.close().unwrap();
        rank.finish();
    });
}

/// Ranks launch the calls of two communicators in opposite order. On a GPU the kernels of one call take all but a few
/// multiprocessors, and the blocks of the other call wait for those few: no round may wait for a deadline.
#[test]
fn calls_of_two_communicators_in_opposite_order_end() {
    let elems = if is_host() { 1 << 16 } else { ELEMS };
    let mut config = config();
    config.heap_bytes = 64 << 20;
    threads(2, &config, |rank| {
        let Rank { communicator, device, stream, .. } = rank;
        let other = communicator.split(Some(0), 0).unwrap().unwrap();
        let (second, start) = (Stream::new(device).unwrap(), std::time::Instant::now());
        let buffers = [communicator, &other].map(|group| group.symmetric::<f32>(elems).unwrap());
        buffers.iter().for_each(|buffer| buffer.write(&vec![1.0; elems], stream).unwrap());
        for _ in 0..ROUNDS {
            communicator.group().barrier().unwrap();
            let call = |number: usize| match number {
                0 => communicator.all_reduce_in_place(&buffers[0], stream),
                _ => other.all_reduce_in_place(&buffers[1], &second),
            };
            call(rank.rank()).unwrap();
            std::thread::sleep(BETWEEN);
            call(1 - rank.rank()).unwrap();
            communicator.synchronize(stream).unwrap();
            other.synchronize(&second).unwrap();
        }
        assert!(start.elapsed() < config.deadlines.steady, "{:?}", start.elapsed());
        let sum = 2.0f32.powi(ROUNDS as i32);
        for buffer in &buffers {
            assert!(buffer.read(stream).unwrap().iter().all(|element| *element == sum));
        }
        drop(buffers);
        other.close().unwrap();
    });
}
