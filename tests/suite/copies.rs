//! Copies that a queue takes: within the device, from the host and to it, on streams and in graphs.

use symmetra::{Device, DeviceBuffer, Error, HostBuffer, Stream, copy, copy_from_host, copy_to_host};

use crate::support::refusal::invalid;
use crate::support::{config, is_host, threads};

fn numbers(from: i32, len: usize) -> Vec<i32> {
    (from..).take(len).collect()
}

#[test]
fn copies_run_in_the_order_of_a_stream_and_in_graphs() {
    threads(2, &config(), |rank| {
        let (communicator, stream, device) = (&rank.communicator, &rank.stream, &rank.device);
        let own = rank.rank() as i32;
        let len = 5000;
        let mut host = HostBuffer::from_slice(&numbers(own, len), device).unwrap();
        let (plain, symmetric) =
            (DeviceBuffer::<i32>::new(device, len).unwrap(), communicator.symmetric::<i32>(len).unwrap());
        let mut back = HostBuffer::<i32>::new(device, len).unwrap();
        copy_from_host(&host, &plain, stream).unwrap();
        copy(&plain, &symmetric, stream).unwrap();
        communicator.all_reduce_in_place(&symmetric, stream).unwrap();
        copy_to_host(&symmetric, &back, stream).unwrap();
        communicator.synchronize(stream).unwrap();
        let expected: Vec<i32> = (0..len as i32).map(|at| 2 * at + 1).collect();
        assert_eq!(back.elements().unwrap(), expected);
        let graph = stream.capture(|capture| {
            copy_from_host(&host, &plain, capture)?;
            copy(plain.borrow().slice(1000..2000)?, plain.borrow().slice(3000..4000)?, capture)?;
            copy(&plain, &symmetric, capture)?;
            communicator.all_reduce_in_place(&symmetric, capture)?;
            copy_to_host(&symmetric, &back, capture)
        });
        let graph = graph.unwrap();
        communicator.group().barrier().unwrap();
        (0..3).for_each(|_| graph.launch(stream).unwrap());
        rank.finish();
        drop(graph);
        let mut expected = expected;
        expected.copy_within(1000..2000, 3000);
        assert_eq!(back.elements().unwrap(), expected);
        let mut into = vec![0; len];
        symmetric.read_into(&mut into, stream).unwrap();
        assert_eq!(into, expected);
        assert_eq!(host.elements().unwrap(), numbers(own, len));
    });
}

/// Writes new values by `write`, and reads them by `read` and `read_into`. Values of another number are refused.
macro_rules! passes_values {
    ($memory:expr, $stream:expr) => {{
        let (memory, stream) = (&$memory, $stream);
        let values: Vec<i32> = memory.read(stream).unwrap().iter().map(|_| fastrand::i32(..)).collect();
        memory.write(&values, stream).unwrap();
        assert_eq!(memory.read(stream).unwrap(), values);
        let mut into = vec![0; values.len()];
        memory.read_into(&mut into, stream).unwrap();
        assert_eq!(into, values);
        for wrong in [vec![0; values.len() - 1], vec![0; values.len() + 1]] {
            invalid(memory.write(&wrong, stream), &["the number of values"]);
            invalid(memory.read_into(&mut wrong.clone(), stream), &["the number of values"]);
        }
        values
    }};
}

#[test]
fn every_type_of_memory_is_written_and_read_by_slices_of_the_host() {
    threads(2, &config(), |rank| {
        let (communicator, stream, device) = (&rank.communicator, &rank.stream, &rank.device);
        let plain = DeviceBuffer::<i32>::new(device, 500).unwrap();
        passes_values!(plain, stream);
        let whole = passes_values!(plain.borrow(), stream);
        let part = passes_values!(plain.borrow().slice(7..300).unwrap(), stream);
        assert_eq!(plain.read(stream).unwrap(), [&whole[..7], &part, &whole[300..]].concat());
        let symmetric = communicator.symmetric::<i32>(500).unwrap();
        let whole = passes_values!(symmetric, stream);
        let part = passes_values!(symmetric.slice(7..300).unwrap(), stream);
        assert_eq!(symmetric.read(stream).unwrap(), [&whole[..7], &part, &whole[300..]].concat());
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt(plain.borrow()) }.unwrap();
        let whole = passes_values!(adopted, stream);
        let part = passes_values!(adopted.slice(7..300).unwrap(), stream);
        assert_eq!(plain.read(stream).unwrap(), [&whole[..7], &part, &whole[300..]].concat());
        rank.finish();
        communicator.group().barrier().unwrap();
    });
}

/// A launch copies the contents of the host's memory at that time.
#[test]
fn a_graph_copies_what_the_host_holds_at_its_launch() {
    let device = crate::support::device::device(0);
    let stream = Stream::new(&device).unwrap();
    let to = DeviceBuffer::<i32>::new(&device, 100).unwrap();
    let mut host = HostBuffer::<i32>::new(&device, 100).unwrap();
    for round in 0..3 {
        host.elements().unwrap().fill(round);
        let graph = stream.capture(|capture| copy_from_host(&host, &to, capture)).unwrap();
        graph.launch(&stream).unwrap();
        drop(graph);
        // Waits for the launch.
        host.elements().unwrap().fill(-1);
        assert_eq!(to.read(&stream).unwrap(), vec![round; 100]);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (device, other) = (crate::support::device::device(0), Device::host().unwrap());
    let stream = Stream::new(&device).unwrap();
    let buffer = DeviceBuffer::from_slice(&numbers(0, 100), &stream).unwrap();
    let refused = |error: Error, words: &str| {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let part = |range: std::ops::Range<usize>| buffer.borrow().slice(range).unwrap();
    refused(
        copy(part(0..10), part(20..31), &stream).unwrap_err(),
        "the destination's length is 11, but the source has 10 elements",
    );
    refused(copy(part(0..10), part(9..19), &stream).unwrap_err(), "the distance of source and destination is 36 bytes");
    refused(
        copy(part(9..19), part(0..10), &stream).unwrap_err(),
        "operands of 40 bytes must be the same or 40 bytes apart",
    );
    copy(part(5..15), part(5..15), &stream).unwrap();
    copy(part(0..0), part(7..7), &stream).unwrap();
    let host = HostBuffer::<i32>::new(&device, 99).unwrap();
    refused(copy_from_host(&host, &buffer, &stream).unwrap_err(), "the source has 99 elements");
    refused(copy_to_host(&buffer, &host, &stream).unwrap_err(), "the destination's length is 99");
    refused(buffer.read_into(&mut [0; 99], &stream).unwrap_err(), "the number of values is 99, but the buffer has 100");
    if is_host() {
        let theirs = DeviceBuffer::<i32>::new(&other, 100).unwrap();
        let host = HostBuffer::<i32>::new(&other, 100).unwrap();
        refused(copy(&buffer, &theirs, &stream).unwrap_err(), "device");
        refused(copy(&theirs, &buffer, &stream).unwrap_err(), "device");
        refused(copy_from_host(&host, &buffer, &stream).unwrap_err(), "device");
        refused(copy(&buffer, &buffer, &Stream::new(&other).unwrap()).unwrap_err(), "device");
    }
    refused(HostBuffer::<i64>::new(&device, usize::MAX / 8).unwrap_err(), "must fit the address space");
    let error = HostBuffer::<u8>::new(&device, isize::MAX as usize).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert_eq!(buffer.read(&stream).unwrap(), numbers(0, 100));
    let mut empty = HostBuffer::<f32>::new(&device, 0).unwrap();
    assert!(empty.is_empty() && empty.elements().unwrap().is_empty());
}
