//! Streams of an engine, of which the library gets handles, and captures that the engine makes itself.

use symmetra::{Config, Device, DeviceBuffer, Error, Event, Reduction, Stream};

use crate::support::world::meet;
use crate::support::world::open;
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

fn mixing() -> Config {
    config().graph_mixing(true)
}

/// The owner orders nothing. Each step writes a buffer of its own, from which the next step reads, on another stream.
#[test]
fn graphs_and_eager_calls_on_any_stream_keep_one_order() {
    const ELEMS: usize = 5000;
    threads(2, &mixing(), |rank| {
        let Rank { communicator, device, .. } = rank;
        let engines: [Stream; 4] = std::array::from_fn(|_| Stream::new(device).unwrap());
        let streams: [Stream; 4] = std::array::from_fn(|number| borrowed(&engines[number]));
        let world = 2_f64;
        let [one, two, three] = [(); 3].map(|()| DeviceBuffer::<f64>::from_slice(&[1.0; ELEMS], &engines[0]).unwrap());
        let sum = |from: &DeviceBuffer<f64>, to: &DeviceBuffer<f64>, stream: &Stream| {
            communicator.all_reduce(from, to, stream).unwrap();
        };
        let graph_of = |from: &DeviceBuffer<f64>, to: &DeviceBuffer<f64>, number: usize| {
            // SAFETY: all that is recorded outlives the graph and its launches.
            let capture = unsafe { engines[number].begin_capture() }.unwrap();
            sum(from, to, &streams[number]);
            sum(to, to, &streams[number]);
            capture.end().unwrap()
        };
        // The first calls of the communicator are captured.
        let graphs = [graph_of(&one, &two, 0), graph_of(&two, &three, 1)];
        sum(&one, &one, &streams[2]);
        rank.finish();
        let mut expected = world;
        for step in 0..50 {
            graphs[0].launch(&engines[step % 4]).unwrap();
            graphs[1].launch(&engines[(step + 1) % 4]).unwrap();
            communicator.all_reduce_with(Reduction::Max, &three, &one, &streams[(step + 3) % 4]).unwrap();
            expected *= world.powi(4);
        }
        engines.iter().for_each(|stream| communicator.synchronize(stream).unwrap());
        rank.finish();
        assert_eq!(one.read(&engines[0]).unwrap(), [expected; ELEMS]);
        drop(graphs);
    });
}

#[test]
fn branches_of_a_capture_keep_one_order() {
    const ELEMS: usize = 3000;
    for config in [config(), mixing()] {
        threads(2, &config, |rank| {
            let Rank { communicator, device, stream: main } = rank;
            let branch = Stream::new(device).unwrap();
            let [fork, join] = [(); 2].map(|()| Event::new(device).unwrap());
            let buffer = DeviceBuffer::<i32>::from_slice(&[1; ELEMS], main).unwrap();
            communicator.all_reduce_in_place(&buffer, &borrowed(main)).unwrap();
            rank.finish();
            // SAFETY: all that is recorded outlives the graph and its launches.
            let capture = unsafe { main.begin_capture() }.unwrap();
            main.record(&fork).unwrap();
            branch.wait(&fork).unwrap();
            for number in 0..6 {
                let stream = if number % 2 == 0 { borrowed(main) } else { borrowed(&branch) };
                communicator.all_reduce_in_place(&buffer, &stream).unwrap();
            }
            branch.record(&join).unwrap();
            main.wait(&join).unwrap();
            let graph = capture.end().unwrap();
            (0..2).for_each(|_| graph.launch(main).unwrap());
            rank.finish();
            assert_eq!(buffer.read(main).unwrap(), [1 << 13; ELEMS]);
            drop(graph);
            communicator.leave(main).unwrap();
        });
    }
}

/// Launches after the end of the communicator work if all ranks launch. The memory goes with the last graph.
#[test]
fn a_graph_outlives_its_communicator() {
    for departs in [false, true] {
        meet(2, |bootstrap| {
            let rank = open(bootstrap, &mixing()).unwrap();
            let Rank { communicator, stream, .. } = &rank;
            let buffer = DeviceBuffer::<i32>::from_slice(&[1; 2000], stream).unwrap();
            communicator.all_reduce_in_place(&buffer, &borrowed(stream)).unwrap();
            rank.finish();
            // SAFETY: the buffer and the stream outlive the graph and its launches.
            let capture = unsafe { stream.begin_capture() }.unwrap();
            communicator.all_reduce_in_place(&buffer, &borrowed(stream)).unwrap();
            let graph = capture.end().unwrap();
            graph.launch(stream).unwrap();
            rank.finish();
            assert_eq!(buffer.read(stream).unwrap(), [4; 2000]);
            let Rank { communicator, stream, .. } = rank;
            match departs {
                true => communicator.depart().unwrap(),
                false => communicator.close().unwrap(),
            }
            for _ in 0..3 {
                graph.launch(&stream).unwrap();
            }
            stream.synchronize().unwrap();
            assert_eq!(buffer.read(&stream).unwrap(), [32; 2000]);
            drop(graph);
        });
    }
}
