//! Streams of an engine, of which the library gets handles, and captures that the engine makes itself.

use symmetra::{Device, DeviceBuffer, Error, Reduction, Stream};

use crate::support::{Rank, config, is_host, threads};

fn borrowed(stream: &Stream) -> Stream {
    // SAFETY: callers keep the stream, or enqueue nothing afterwards that runs.
    unsafe { Stream::borrow_raw(stream.device(), stream.as_raw()) }.unwrap()
}

#[test]
fn an_engine_captures_every_kind_of_call_and_launches_it() {
    threads(3, &config(), |rank| {
        let Rank { communicator, stream: engines, device } = rank;
        let (own, stream) = (rank.rank() as i32 + 1, borrowed(engines));
        let pool = DeviceBuffer::<i32>::from_slice(&[own; 300], &stream).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt(pool.borrow()) }.unwrap();
        let plain = DeviceBuffer::<i32>::from_slice(&[own; 50], &stream).unwrap();
        let (sums, all) =
            (communicator.symmetric::<i32>(2000).unwrap(), DeviceBuffer::<i32>::new(device, 150).unwrap());
        sums.write(&[own; 2000], &stream).unwrap();
        // One eager call on all ranks before the first launch.
        communicator.all_reduce_in_place(&sums, &stream).unwrap();
        rank.finish();
        assert_eq!(sums.read(engines).unwrap(), [6; 2000]);
        // SAFETY: all that is recorded outlives the graph and its launches.
        let capture = unsafe { engines.begin_capture() }.unwrap();
        communicator.all_reduce_in_place(&sums, &stream).unwrap();
        communicator.all_reduce_in_place(&plain, &stream).unwrap();
        communicator.all_reduce_in_place(adopted.slice(..100).unwrap(), &stream).unwrap();
        communicator.all_reduce_in_place(pool.borrow().slice(200..).unwrap(), &stream).unwrap();
        communicator.all_gather(&plain, &all, &stream).unwrap();
        let graph = capture.end().unwrap();
        communicator.group().barrier().unwrap();
        engines.synchronize().unwrap();
        assert_eq!(plain.read(&stream).unwrap(), [own; 50], "nothing has run");
        let (mut expected, mut of_ranks) = (6, 0);
        for launch in 0..4 {
            graph.launch(if launch % 2 == 0 { engines } else { &stream }).unwrap();
            of_ranks = if launch == 0 { 6 } else { 3 * of_ranks };
            expected *= 3;
        }
        drop(graph);
        communicator.synchronize(engines).unwrap();
        rank.finish();
        assert_eq!(sums.read(&stream).unwrap(), [expected; 2000]);
        assert_eq!(plain.read(&stream).unwrap(), [of_ranks; 50]);
        assert_eq!(all.read(&stream).unwrap(), [of_ranks; 150]);
        let pool = pool.read(&stream).unwrap();
        assert_eq!(
            (&pool[..100], &pool[100..200], &pool[200..]),
            (&[of_ranks; 100][..], &[own; 100][..], &[of_ranks; 100][..])
        );
        communicator.leave(&stream).unwrap();
    });
}

#[test]
fn what_blocks_is_refused_in_a_capture_and_a_dropped_capture_ends() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream: engines, .. } = rank;
        let stream = borrowed(engines);
        let buffer = DeviceBuffer::<i32>::from_slice(&[1; 40], &stream).unwrap();
        // SAFETY: the recording is dropped.
        let capture = unsafe { engines.begin_capture() }.unwrap();
        communicator.all_reduce_in_place(&buffer, &stream).unwrap();
        for error in [buffer.read(&stream).map(drop).unwrap_err(), buffer.write(&[2; 40], engines).unwrap_err()] {
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains("on a stream whose owner captures it"), "{error}");
        }
        if is_host() {
            // SAFETY: refused.
            let error = unsafe { stream.begin_capture() }.unwrap_err();
            assert!(error.to_string().contains("the stream is being captured already"), "{error}");
            let error = engines.capture(|_| Ok(())).unwrap_err();
            assert!(error.to_string().contains("the stream is being captured already"), "{error}");
        }
        let inner = stream.capture(|_| Ok(())).map(drop);
        assert!(inner.is_err());
        drop(capture);
        assert_eq!(buffer.read(&stream).unwrap(), [1; 40]);
        let graph = stream.capture(|capture| {
            // SAFETY: refused.
            let error = unsafe { stream.begin_capture() }.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            communicator.all_reduce_in_place(&buffer, capture)
        });
        let graph = graph.unwrap();
        graph.register().unwrap();
        graph.launch(engines).unwrap();
        rank.finish();
        assert_eq!(buffer.read(&stream).unwrap(), [2; 40]);
    });
}

/// A stream and the engine's handle of it are one stream: calls through both are in order without events.
#[test]
fn calls_through_both_are_in_order() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream: engines, .. } = rank;
        let buffer = DeviceBuffer::<i32>::from_slice(&[1; 4000], engines).unwrap();
        for _ in 0..10 {
            communicator.all_reduce_in_place(&buffer, engines).unwrap();
            communicator.all_reduce_with(Reduction::Max, &buffer, &buffer, &borrowed(engines)).unwrap();
        }
        rank.finish();
        assert_eq!(buffer.read(engines).unwrap(), [1024; 4000]);
    });
}

#[test]
fn handles_of_the_host_device_are_checked() {
    let (device, other) = (Device::host().unwrap(), Device::host().unwrap());
    let (stream, second) = (Stream::new(&device).unwrap(), Stream::new(&other).unwrap());
    let handle = stream.as_raw();
    assert!(handle != 0 && handle != second.as_raw());
    let refused = |device: &Device, handle: u64| {
        // SAFETY: refused.
        let error = unsafe { Stream::borrow_raw(device, handle) }.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(&format!("the handle is {handle}")), "{error}");
    };
    refused(&device, 0);
    refused(&device, u64::MAX);
    refused(&other, handle);
    let borrowed = borrowed(&stream);
    assert_eq!(borrowed.as_raw(), handle);
    let buffer = DeviceBuffer::<i32>::from_slice(&[7; 10], &borrowed).unwrap();
    drop(stream);
    refused(&device, handle);
    // The work of the stream was done before the stream was destroyed; later work cannot run, and no call waits for it.
    assert_eq!(borrowed.is_done(), Ok(true));
    let error = buffer.read(&borrowed).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error}");
    assert!(error.to_string().contains("the owner of the borrowed stream has destroyed the stream"), "{error}");
    borrowed.synchronize().unwrap();
    assert!(Stream::new(&device).unwrap().as_raw() > handle, "a handle never comes again");
}
