//! The memory of all ranks in kernels of the caller: on the host device the kernels are functions of this test.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use symmetra::{Config, Error, HeapView, HostShape, Stream, SymmetricBuffer, launch_host};

use crate::support::world::{self, Gate};
use crate::support::{Rank, config, is_host, threads};

/// The argument block of a kernel of these tests.
#[derive(Clone, Copy)]
struct Hop {
    heap: HeapView,
    counters: *mut u32,
}

// SAFETY: an address in a heap that outlives the kernel; kernels access it atomically.
unsafe impl Send for Hop {}

/// Adds one to this rank's place in the counters of every rank.
unsafe extern "C" fn add_everywhere(hop: *const Hop) {
    // SAFETY: the launch passes the address of a `Hop`.
    let Hop { heap, counters } = unsafe { hop.read() };
    for rank in 0..heap.world_size() {
        let theirs = heap.at(counters.wrapping_add(heap.rank()), rank);
        // SAFETY: a word of that rank's counters, which all access atomically.
        unsafe { AtomicU32::from_ptr(theirs) }.fetch_add(1, Ordering::Relaxed);
    }
}

fn hop(rank: &Rank, buffer: &SymmetricBuffer<u32>, shape: HostShape) {
    let heap = rank.communicator.heap(&rank.stream).unwrap();
    // SAFETY: the buffer outlives the work; all access its words atomically.
    unsafe { launch_host(shape, add_everywhere, Hop { heap, counters: buffer.as_raw() }, &rank.stream) }.unwrap();
}

#[test]
fn a_kernel_writes_to_every_rank() {
    if !is_host() {
        eprintln!("skipped: kernels of a GPU are not functions of this test");
        return;
    }
    threads(4, &config(), |rank| {
        let buffer = rank.communicator.symmetric::<u32>(4).unwrap();
        for shape in
            [(1, 1), (3, 5), (2, 1)].map(|(blocks, threads)| HostShape::default().blocks(blocks).threads(threads))
        {
            hop(rank, &buffer, shape);
        }
        rank.finish();
        rank.communicator.group().barrier().unwrap();
        assert_eq!(buffer.read(&rank.stream).unwrap(), [1 + 15 + 2; 4]);
        rank.communicator.group().barrier().unwrap();
    });
}

/// The graph owns the memory that its kernels reach, and refuses to run them when the group is gone.
#[test]
fn a_graph_of_kernels_ends_with_its_group() {
    if !is_host() {
        eprintln!("skipped: kernels of a GPU are not functions of this test");
        return;
    }
    threads(2, &config(), |rank| {
        let communicator = rank.communicator.split(Some(0), 0).unwrap().unwrap();
        let buffer = communicator.symmetric::<u32>(2).unwrap();
        let counters = buffer.as_raw();
        let within = communicator.clone();
        let graph = rank.stream.capture(|capture| {
            let heap = within.heap(capture)?;
            // SAFETY: the buffer outlives the graph; all access its words atomically.
            unsafe { launch_host(HostShape::default(), add_everywhere, Hop { heap, counters }, capture) }
        });
        let graph = graph.unwrap();
        for _ in 0..100 {
            graph.launch(&rank.stream).unwrap();
        }
        communicator.synchronize(&rank.stream).unwrap();
        communicator.group().barrier().unwrap();
        assert_eq!(buffer.read(&rank.stream).unwrap(), [100; 2]);
        communicator.close().unwrap();
        assert_eq!(graph.launch(&rank.stream), Err(Error::Closed));
        assert_eq!(within.heap(&rank.stream).unwrap_err(), Error::Closed);
    });
}

/// A graph whose kernels reach the heap keeps the heap when all else that holds it is gone.
#[test]
fn a_graph_keeps_the_memory_of_its_kernels() {
    if !is_host() {
        eprintln!("skipped: kernels of a GPU are not functions of this test");
        return;
    }
    let gone = Gate::new(2);
    threads(2, &config(), |rank| {
        let communicator = rank.communicator.split(Some(0), 0).unwrap().unwrap();
        let counters = communicator.symmetric::<u32>(2).unwrap().as_raw();
        let graph = rank.stream.capture(|capture| {
            let heap = communicator.heap(capture)?;
            // SAFETY: no rank makes another buffer in the place of this one, whose words all ranks access atomically.
            unsafe { launch_host(HostShape::default(), add_everywhere, Hop { heap, counters }, capture) }
        });
        let graph = graph.unwrap();
        drop(communicator);
        gone.pass();
        graph.launch(&rank.stream).unwrap();
        rank.stream.synchronize().unwrap();
        gone.pass();
        // SAFETY: the graph keeps the heap that contains the words.
        let counted = [0, 1].map(|place| unsafe { counters.wrapping_add(place).read_volatile() });
        assert_eq!(counted, [1; 2]);
        gone.pass();
    });
}

#[test]
fn views_say_what_they_are_of() {
    let mut settings = config();
    settings.heap_channels = 7;
    threads(3, &settings, |rank| {
        let buffer = rank.communicator.symmetric::<f32>(100).unwrap();
        let heap = rank.communicator.heap(&rank.stream).unwrap();
        assert_eq!((heap.rank(), heap.world_size(), heap.channels()), (rank.rank(), 3, 7));
        for peer in 0..3 {
            assert_eq!(heap.at(buffer.as_raw(), peer), buffer.peer_address(peer).unwrap());
        }
        assert!(heap.at(buffer.as_raw(), 3).is_null());
        assert!(rank.communicator.has_native_atomics() || !is_host());
        assert!(heap.at(buffer.as_raw(), usize::MAX).is_null());
        let words = [format!("{heap:?}"), format!("{:?}", buffer.view()), format!("{:?}", buffer.signals().view())];
        assert!(words.iter().all(|word| word.contains("3")), "{words:?}");
        assert_eq!((size_of_val(&heap), size_of_val(&buffer.view())), (320, 24));
        assert_eq!(size_of_val(&buffer.signals().view()), 176);
        rank.communicator.group().barrier().unwrap();
    });
}

#[test]
fn what_a_kernel_cannot_have_is_refused() {
    threads(2, &config(), |rank| {
        let other = symmetra::Device::host().unwrap();
        let elsewhere = Stream::new(&other).unwrap();
        let refused = |error: Error, words: &[&str]| {
            let message = error.to_string();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{message}");
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        };
        refused(rank.communicator.heap(&elsewhere).unwrap_err(), &["stream"]);
        for deadline in [Duration::ZERO, Duration::from_secs(86401)] {
            refused(rank.communicator.heap_within(deadline, &rank.stream).unwrap_err(), &["deadline", "1 ms to 24 h"]);
        }
        let heap = rank.communicator.heap_within(Duration::from_millis(1), &rank.stream).unwrap();
        let nothing = Hop { heap, counters: std::ptr::null_mut() };
        for (blocks, threads, words) in [
            (0, 1, ["blocks is 0", "1 to 256"]),
            (257, 1, ["blocks is 257", "1 to 256"]),
            (1, 0, ["threads is 0", "at least 1"]),
            (64, 65, ["threads is 65", "4096 in all 64 blocks"]),
        ] {
            // SAFETY: nothing is launched.
            let launched = unsafe {
                launch_host(HostShape::default().blocks(blocks).threads(threads), add_everywhere, nothing, &elsewhere)
            };
            refused(launched.unwrap_err(), &words);
        }
        if !is_host() {
            // SAFETY: nothing is launched.
            let launched = unsafe { launch_host(HostShape::default(), add_everywhere, nothing, &rank.stream) };
            assert!(matches!(launched, Err(Error::Unsupported { .. })), "{launched:?}");
        }
        rank.communicator.group().barrier().unwrap();
    });
}

#[test]
fn channels_of_the_heap_are_agreed_and_within_limits() {
    let mut many = Config::default();
    many.heap_channels = 65537;
    let error = symmetra::required_bytes(2, &many).unwrap_err().to_string();
    assert!(error.contains("heap_channels is 65537") && error.contains("at most 65536"), "{error}");
    let bytes = |channels| {
        let mut config = Config::default();
        config.heap_channels = channels;
        symmetra::required_bytes(8, &config).unwrap()
    };
    assert_eq!(bytes(256) - bytes(0), 256 * 8 * 12);
    world::meet(2, |bootstrap| {
        let mut config = config();
        config.heap_channels = 5 + symmetra::bootstrap::Bootstrap::rank(&bootstrap) as u32;
        let error = world::open(bootstrap, &config).map(drop).unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("heap_channels"), "{error}");
    });
    let mut none = config();
    none.heap_channels = 0;
    threads(2, &none, |rank| {
        assert_eq!(rank.communicator.heap(&rank.stream).unwrap().channels(), 0);
        rank.communicator.group().barrier().unwrap();
    });
}

/// Multicast on GPUs needs a variable in addition to the configuration. The GPU suite sets the variable to 0.
#[test]
fn gpus_have_no_multicast_unless_a_variable_allows_it() {
    if is_host() || std::env::var("SYMMETRA_MULTICAST").is_ok_and(|value| value == "1") {
        eprintln!("skipped: the variable is for GPUs, and this test opens no multicast on any");
        return;
    }
    let mut required = config();
    required.multicast = symmetra::Multicast::Require;
    world::meet(2, |bootstrap| {
        let error = world::open(bootstrap, &required).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { what, .. } if what == "multicast"), "{error}");
    });
    let mut tried = config();
    tried.multicast = symmetra::Multicast::Try;
    threads(2, &tried, |rank| assert!(rank.communicator.multicast().is_err()));
}
