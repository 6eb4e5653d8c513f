//! The arena and the memory that is cut from it, foreign memory, and the resources after opening and closing.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/allocations.rs"]
mod allocations;
#[path = "memory/grids.rs"]
mod grids;
#[path = "memory/plans.rs"]
mod plans;
mod support;

use std::time::Duration;

use half::bf16;
use parking_lot::Mutex;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::experts::{Combine, ExpertConfig, Experts, Method, Received, Routing};
use symmetra::{
    Algorithm, Codec, Communicator, Config, Device, DeviceBuffer, Error, Reduction, Ref, Result, RmsNorm, RowNorm,
    Stream, SymmetricBuffer, SymmetricSlice, required_bytes,
};

use allocations::allocations;
use support::data::{Random, assert_same, mix};
use support::extent::repeats;
use support::process::apart;
use support::system::Usage;
use support::{Data, Rank, config, is_host, system, threads, world};

/// A heap of 256 KiB and little scratch: opens fast.
fn small() -> Config {
    let mut config = config();
    config.guard_bytes = 0; // these tests count bytes of the heap
    config.heap_bytes = 256 << 10;
    config.one_shot_ll_bytes = 4096;
    config.one_shot_sentinel_bytes = Some(4096);
    config.two_shot_ll_bytes = 4096;
    config.two_shot_sentinel_bytes = 8192;
    config.ring_bytes = 4096;
    config.recursive_doubling_bytes = 1024;
    config.pair_bytes = 4096;
    config
}

#[test]
fn required_bytes_is_what_open_maps() {
    let _alone = world::alone();
    let sizes = [(1, small()), (3, small()), (2, config())];
    for (world, config) in sizes {
        let required = required_bytes(world, &config).unwrap() as usize;
        let results = threads(world, &config, |rank| {
            rank.communicator.group().barrier().unwrap();
            let mapped = system::mapped_bytes("memfd:symmetra ");
            rank.communicator.group().barrier().unwrap();
            mapped
        });
        if is_host() {
            // A page before the arena holds the words by which peers wake a rank.
            assert_eq!(results[0], world * (required.next_multiple_of(4096) + 4096), "world {world}");
        }
        let mut larger = config.clone();
        larger.heap_bytes += 1 << 20;
        assert_eq!(required_bytes(world, &larger).unwrap() as usize, required + (1 << 20));
    }
    let mut wrong = small();
    wrong.one_shot_ll_bytes = 1023;
    assert!(matches!(required_bytes(2, &wrong), Err(Error::InvalidArgument { .. })));
    wrong = small();
    wrong.heap_bytes = u64::MAX;
    assert!(matches!(required_bytes(2, &wrong), Err(Error::InvalidArgument { .. })));
}

/// Kernels count packets in 32 bits.
#[test]
fn scratch_is_no_larger_than_kernels_address() {
    type Set = fn(&mut Config, u64);
    let settings: [(&str, Set, u64); 7] = [
        ("one_shot_ll_bytes", |config, bytes| config.one_shot_ll_bytes = bytes, 512 << 20),
        ("one_shot_sentinel_bytes", |config, bytes| config.one_shot_sentinel_bytes = Some(bytes), 512 << 20),
        ("two_shot_ll_bytes", |config, bytes| config.two_shot_ll_bytes = bytes, 512 << 20),
        ("two_shot_sentinel_bytes", |config, bytes| config.two_shot_sentinel_bytes = bytes, 512 << 20),
        ("recursive_doubling_bytes", |config, bytes| config.recursive_doubling_bytes = bytes, 512 << 20),
        ("ring_bytes", |config, bytes| config.ring_bytes = bytes, 32 << 30),
        ("pair_bytes", |config, bytes| config.pair_bytes = bytes, 512 << 20),
    ];
    for (name, set, most) in settings {
        let mut config = small();
        set(&mut config, most);
        for world in 1..=16 {
            let bytes = required_bytes(world, &config).unwrap();
            assert!(bytes < 64 << 30, "{name} of {most} over {world} ranks takes {bytes}");
        }
        set(&mut config, most + 1);
        let message = required_bytes(2, &config).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(&most.to_string()), "{message}");
    }
}

#[test]
fn the_heap_runs_out_loudly_and_is_used_again() {
    threads(3, &small(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let len = 25_000; // 100 KB: two fit
        let first = communicator.symmetric::<f32>(len).unwrap();
        first.write(&vec![f32::NAN; len], stream).unwrap();
        let second = communicator.symmetric::<f32>(len).unwrap();
        let exhausted = |what: &str| {
            let error = communicator.symmetric::<f32>(len).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, Error::OutOfMemory { .. }), "{what}: {message}");
            assert!(message.contains("262144") && message.contains("100672"), "{what}: {message}");
        };
        exhausted("two are held");
        let mut first = Some(first);
        if rank.rank() == 1 {
            first = None;
        }
        exhausted("one rank dropped its own");
        drop(first);
        let third = communicator.symmetric::<f32>(len).unwrap();
        assert_eq!(third.read(stream).unwrap(), vec![0.0; len], "starts as zeros, whoever was there before");
        third.write(&vec![1.0; len], stream).unwrap();
        second.write(&vec![2.0; len], stream).unwrap();
        communicator.all_reduce_in_place(&third, stream).unwrap();
        rank.finish();
        assert_eq!(third.read(stream).unwrap(), vec![3.0; len]);
        assert_eq!(second.read(stream).unwrap(), vec![2.0; len]);
        let error = communicator.symmetric::<f32>(usize::MAX / 2).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    });
}

/// A buffer takes as much as the page of [`Communicator::symmetric`] states: elements in whole 256 bytes, and a signal
/// pad of 192 bytes for each rank.
#[test]
fn a_buffer_costs_its_elements_and_192_bytes_a_rank() {
    for world in [2, 5] {
        threads(world, &small(), |rank| {
            let heap_bytes = rank.communicator.group().config().heap_bytes as usize;
            for (len, elements_bytes) in [(0, 0), (1, 256), (64, 256), (65, 512)] {
                let each = elements_bytes + (192 * world).next_multiple_of(256);
                let fitting = (0..heap_bytes / each).map(|_| rank.communicator.symmetric::<f32>(len));
                let buffers = fitting.collect::<Result<Vec<_>>>().unwrap();
                let refused = rank.communicator.symmetric::<f32>(len).map(drop);
                assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{len} in {world}: {refused:?}");
                drop(buffers);
            }
        });
    }
}

/// Ranks of one group may still write to memory that another group has cut from its heap.
#[test]
fn pitfall_16_a_block_that_another_group_can_reach_stays_taken() {
    if !is_host() {
        eprintln!("skipped: GPUs do not reach it");
        return;
    }
    const LEN: usize = 40_000; // 160 KB: one fits
    threads(2, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let alone = Threads::new(1).unwrap().remove(0);
        let own = Communicator::open(alone, device, small()).unwrap();
        let buffer = own.symmetric::<f32>(LEN).unwrap();
        // SAFETY: a block stays taken while peers can reach it.
        let adopted = unsafe { communicator.adopt(buffer.borrow()) }.unwrap();
        assert!(adopted.is_shared());
        communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &adopted, &adopted, stream).unwrap();
        rank.finish();
        drop(adopted);
        drop(buffer);
        let refused = own.symmetric::<f32>(LEN).map(drop);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
        // In this call ranks release the memory that no rank needs any more.
        drop(communicator.symmetric::<u8>(1).unwrap());
        drop(own.symmetric::<f32>(LEN).unwrap());
        own.close().unwrap();
    });
}

#[test]
fn pitfall_04_different_sizes_are_the_same_error_on_every_rank() {
    let errors = threads(3, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let error = communicator.symmetric::<f32>(if rank.rank() == 2 { 4000 } else { 64 }).unwrap_err();
        let plain = DeviceBuffer::<f32>::from_slice(&[1.0; 100], stream).unwrap();
        // SAFETY: inside `plain`.
        let part = unsafe { Ref::from_raw(device, plain.as_raw(), 50 + rank.rank()) }.unwrap();
        // SAFETY: refused.
        let adopted = unsafe { communicator.adopt(part) }.unwrap_err();
        assert!(matches!(adopted, Error::Mismatch { against: 0, rank: 1, .. }), "{adopted}");
        // No other rank is affected.
        let buffer = communicator.symmetric::<f32>(10).unwrap();
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        rank.finish();
        error
    });
    for error in &errors {
        assert_eq!(error, &errors[0]);
        assert!(matches!(error, Error::Mismatch { against: 0, rank: 2, .. }), "{error}");
    }
}

#[test]
fn pitfall_04_ranks_that_meet_for_different_things_are_told_what() {
    // The rank that finds the difference first ends the group, and others may learn of the end before they have
    // received the data of all ranks.
    let told = world::meet(3, |bootstrap| {
        let rank = world::open(bootstrap, &small()).unwrap();
        let own = rank.rank();
        let error = match own {
            1 => rank.communicator.split(Some(0), 0).map(drop),
            _ => rank.communicator.symmetric::<f32>(7).map(drop),
        }
        .unwrap_err();
        let words = error.to_string();
        let both = ["make symmetric memory", "split a group"].iter().all(|call| words.contains(call));
        let told = both && matches!(error, Error::Mismatch { .. });
        assert!(told || matches!(error, Error::Aborted { .. }), "rank {own}: {words}");
        told
    });
    assert!(told.is_empty() || told.contains(&true), "no rank was told");
}

#[test]
fn pitfall_14_15_adopted_parts_start_elsewhere_on_every_rank() {
    const LEN: usize = 3001;
    let data = Data::<bf16>::new(14, 4, LEN);
    threads(4, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let start = 3 + 5 * rank.rank();
        let whole = DeviceBuffer::from_slice(&vec![bf16::ONE; LEN + 64], stream).unwrap();
        // SAFETY: inside `whole`, which is dropped when the calls are done.
        let part = unsafe { Ref::from_raw(device, whole.as_raw().wrapping_add(start), LEN) }.unwrap();
        part.write(&data.inputs[rank.rank()], stream).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt(part) }.unwrap();
        assert!(adopted.is_shared());
        communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &adopted, &adopted, stream).unwrap();
        rank.finish();
        assert_same(&adopted.memory().read(stream).unwrap(), &data.sums, &start);
        let after = whole.read(stream).unwrap();
        let outside = after[..start].iter().chain(&after[start + LEN..]);
        assert!(outside.copied().all(|value| value == bf16::ONE), "wrote outside the part");
    });
}

/// The program's own memory, which no device allocated.
#[test]
fn pitfall_13_memory_of_the_program_is_an_operand() {
    if !is_host() {
        eprintln!("skipped: a GPU does not address this memory");
        return;
    }
    threads(2, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let mut values = vec![1.5f64 * (1 + rank.rank()) as f64; 999];
        // SAFETY: `values` is not touched by Rust until the calls are done.
        let memory = unsafe { Ref::from_raw(device, values.as_mut_ptr(), 999) }.unwrap();
        communicator.all_reduce_in_place(&memory, stream).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt(memory.clone()) }.unwrap();
        communicator.all_reduce(&adopted, &adopted, stream).unwrap();
        rank.finish();
        drop((adopted, memory));
        assert_eq!(values, vec![9.0; 999]);
    });
}

#[test]
fn registrations_run_out_loudly_and_come_back() {
    let mut config = small();
    config.registrations = 8;
    threads(2, &config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffer = DeviceBuffer::<i32>::from_slice(&[1; 20], stream).unwrap();
        for _ in 0..50 {
            // SAFETY: ranks are threads, and drop it after calls that succeeded.
            let adopted = unsafe { communicator.adopt(buffer.borrow()) }.unwrap();
            communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &adopted, &adopted, stream).unwrap();
        }
        // SAFETY: ranks are threads, and no call uses it.
        let adopt = || unsafe { communicator.adopt(buffer.borrow()) };
        let held: Vec<_> = (0..7).map(|_| adopt().unwrap()).collect();
        let error = adopt().unwrap_err();
        assert!(
            matches!(&error, Error::OutOfMemory { message } if message.contains("Config::registrations is 8")),
            "{error}"
        );
        assert!(error.to_string().ends_with("adopt a pool as a whole, or raise the setting"), "{error}");
        drop(held);
        adopt().unwrap();
        rank.finish();
    });
}

/// A rank that has no registration left notifies all ranks, and no rank waits for it.
#[test]
fn one_rank_out_of_registrations_fails_the_adoption_everywhere() {
    let mut config = small();
    config.registrations = 4;
    threads(2, &config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let buffers = [0; 3].map(|_| DeviceBuffer::<i32>::from_slice(&[1; 20], stream).unwrap());
        let graph = (rank.rank() == 1).then(|| {
            let graph = stream.capture(|capture| {
                let each = |buffer| communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, buffer, buffer, capture);
                buffers.iter().try_for_each(each)
            });
            graph.unwrap()
        });
        // SAFETY: refused.
        let error = unsafe { communicator.adopt(buffers[0].borrow()) }.unwrap_err();
        match rank.rank() {
            1 => assert!(
                matches!(&error, Error::OutOfMemory { message } if message.contains("Config::registrations is 4")),
                "{error}"
            ),
            _ => assert!(
                matches!(&error, Error::Peer { rank: 1, message } if message.contains("Config::registrations is 4")),
                "{error}"
            ),
        }
        drop(graph);
        communicator.all_reduce_in_place(&buffers[0], stream).unwrap();
        rank.finish();
    });
}

#[test]
fn raw_memory_is_checked() {
    let stream = symmetra::Stream::new(&support::device::device(0)).unwrap();
    let device = stream.device();
    let buffer = DeviceBuffer::<f64>::from_slice(&[1.0; 16], &stream).unwrap();
    let refused = |address: *mut f64, len: usize, words: [&str; 2]| {
        // SAFETY: refused, or inside `buffer`.
        let error = unsafe { Ref::from_raw(device, address, len) }.map(drop).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    let base = buffer.as_raw();
    refused(std::ptr::null_mut(), 1, ["null", "1 elements"]);
    refused(base.cast::<u8>().wrapping_add(4).cast(), 2, ["f64", "aligned to 8"]);
    refused(base, usize::MAX / 4, ["number of elements", "address space"]);
    refused(base.wrapping_add(10), 7, ["56 bytes", "128 bytes"]);
    // SAFETY: no memory at all.
    assert!(unsafe { Ref::from_raw(device, std::ptr::null_mut::<f64>(), 0) }.is_ok());
    // SAFETY: inside `buffer`.
    assert!(unsafe { Ref::from_raw(device, base.wrapping_add(10), 6) }.is_ok());
    assert!(buffer.write(&[0.0; 15], &stream).is_err());
    assert!(DeviceBuffer::<f64>::new(device, usize::MAX / 2).is_err());
}

#[test]
fn a_copy_that_has_no_room_on_the_cpu_is_an_error() {
    if !is_host() {
        return;
    }
    let stream = symmetra::Stream::new(&support::device::device(0)).unwrap();
    let mut own = [1.0; 4];
    // SAFETY: nothing is read, because a copy of 64 TiB has no room.
    let claimed = unsafe { Ref::<f64>::from_raw(stream.device(), own.as_mut_ptr(), 1 << 43) }.unwrap();
    let error = claimed.read(&stream).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert!(error.to_string().contains("8796093022208 elements of f64"), "{error}");
}

#[test]
fn memory_of_another_device_is_refused() {
    if is_host() {
        eprintln!("skipped: the host is one device");
        return;
    }
    if !support::fits(2) {
        return;
    }
    let [device, other] = [0, 1].map(support::device::device);
    let buffer = DeviceBuffer::<f32>::new(&other, 16).unwrap();
    // SAFETY: refused.
    let error = unsafe { Ref::from_raw(&device, buffer.as_raw(), 16) }.map(drop).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{message}");
    assert!(message.contains("is device 1") && message.contains("works on device 0"), "{message}");
    // SAFETY: all of `buffer`.
    assert!(unsafe { Ref::from_raw(&other, buffer.as_raw(), 16) }.is_ok());
}

/// Waiting for one of them would not be waiting for the other: memory would be freed under a kernel.
#[test]
fn two_host_devices_do_not_mix() {
    world::meet(1, |bootstrap| {
        let [ours, other] = [Device::host().unwrap(), Device::host().unwrap()];
        let communicator = Communicator::open(bootstrap, &ours, small()).unwrap();
        let streams = [&ours, &other].map(|device| Stream::new(device).unwrap());
        let buffers = [&ours, &other].map(|device| DeviceBuffer::<f32>::new(device, 16).unwrap());
        for (buffer, stream, what) in [(0, 1, "stream"), (1, 0, "input")] {
            let error = communicator.all_reduce_in_place(&buffers[buffer], &streams[stream]).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{message}");
            assert!(
                message.contains(&format!("the {what}'s device")) && message.contains("use clones of one"),
                "{message}"
            );
        }
        let graph = streams[0].capture(|capture| communicator.all_reduce_in_place(&buffers[0], capture)).unwrap();
        assert!(matches!(graph.launch(&streams[1]), Err(Error::InvalidArgument { .. })));
        graph.launch(&Stream::new(&ours.clone()).unwrap()).unwrap();
        drop(graph);
        communicator.close().unwrap();
    });
}

#[test]
fn empty_buffers_are_buffers() {
    threads(2, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let symmetric = communicator.symmetric::<f32>(0).unwrap();
        let plain = DeviceBuffer::<f32>::new(device, 0).unwrap();
        assert!(symmetric.is_empty() && plain.is_empty() && plain.as_raw().is_null());
        communicator.all_reduce_in_place(&symmetric, stream).unwrap();
        communicator.all_reduce(&plain, &symmetric, stream).unwrap();
        // SAFETY: no memory at all.
        let adopted = unsafe { communicator.adopt(plain.borrow()) }.unwrap();
        communicator.all_reduce_in_place(&adopted, stream).unwrap();
        symmetric.signals().barrier(0, stream).unwrap();
        assert!(symmetric.read(stream).unwrap().is_empty());
        rank.finish();
    });
}

/// Groups opened and closed in turn, ranks out of step: nothing is left, in this process or in the
/// system's shared memory.
#[test]
fn pitfall_16_17_nothing_is_left_of_fifty_groups() {
    if !apart("pitfall_16_17_nothing_is_left_of_fifty_groups") {
        return;
    }
    let shared_memory = || std::fs::read_dir("/dev/shm").map_or(0, Iterator::count);
    let files = shared_memory();
    let mut before = None;
    for round in 0..56u64 {
        threads(3, &small(), |rank| {
            let Rank { communicator, stream, .. } = rank;
            let mut random = Random(mix(round * 3 + rank.rank() as u64));
            let buffer = communicator.symmetric::<f32>(1000).unwrap();
            let plain = DeviceBuffer::from_slice(&[1.0f32; 5000], stream).unwrap();
            let graph = stream
                .capture(|capture| {
                    communicator.all_reduce_in_place(&buffer, capture)?;
                    communicator.all_reduce_in_place(&plain, capture)
                })
                .unwrap();
            graph.register().unwrap();
            graph.launch(stream).unwrap();
            if round % 2 == 0 {
                rank.finish();
            }
            std::thread::sleep(Duration::from_micros(random.below(2000) as u64));
        });
        if round == 5 {
            before = Some(settled());
        }
    }
    if is_host() {
        settled().assert_flat(&before.unwrap());
    }
    assert_eq!(shared_memory(), files);
}

/// The resources of the process after threads that end have ended.
fn settled() -> Usage {
    std::thread::sleep(Duration::from_millis(200));
    Usage::now()
}

#[test]
fn buffers_outlive_the_group() {
    world::meet(2, |bootstrap| {
        let Rank { communicator, stream, device } = world::open(bootstrap, &small()).unwrap();
        let buffer = communicator.symmetric::<i32>(50).unwrap();
        let plain = DeviceBuffer::from_slice(&[5i32; 50], &stream).unwrap();
        // SAFETY: dropped when every rank has closed.
        let adopted = unsafe { communicator.adopt(plain.borrow()) }.unwrap();
        buffer.write(&[3; 50], &stream).unwrap();
        communicator.all_reduce_in_place(&buffer, &stream).unwrap();
        let clone = communicator.clone();
        communicator.close().unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [6; 50], "close has waited for the call");
        assert_eq!(clone.all_reduce_in_place(&buffer, &stream), Err(Error::Closed));
        assert_eq!(clone.all_reduce_in_place(&adopted, &stream), Err(Error::Closed));
        assert_eq!(buffer.signals().put(0, 0, &stream), Err(Error::Closed));
        assert_eq!(buffer.peer_address(0), Err(Error::Closed));
        assert_eq!(adopted.peer_address(0), Err(Error::Closed));
        assert_eq!(clone.symmetric::<f32>(1).map(drop), Err(Error::Closed));
        // SAFETY: refused.
        assert_eq!(unsafe { clone.adopt(plain.borrow()) }.map(drop), Err(Error::Closed));
        assert_eq!(clone.group().barrier(), Err(Error::Closed));
        assert_eq!(clone.split(None, 0).map(drop), Err(Error::Closed));
        assert_eq!(clone.close(), Err(Error::Closed));
        drop(adopted);
        drop((buffer, plain, stream, device));
    });
}

/// Ranks that leave without closing, all at once or one after the other, leak nothing.
#[test]
fn groups_dropped_without_close_leave_nothing() {
    if !apart("groups_dropped_without_close_leave_nothing") {
        return;
    }
    let mut before = None;
    for round in 0..14u64 {
        world::meet(3, |bootstrap| {
            let rank = world::open(bootstrap, &small()).unwrap();
            let buffer = rank.communicator.symmetric::<f32>(1000).unwrap();
            // SAFETY: a block stays taken while peers can reach it.
            let adopted = unsafe { rank.communicator.adopt(buffer.borrow()) }.unwrap();
            let mut verdict = rank.communicator.all_reduce_in_place(&adopted, &rank.stream);
            if round % 2 == 0 {
                verdict = verdict.and_then(|()| rank.communicator.synchronize(&rank.stream));
            }
            // No error, or a peer was faster and is gone, perhaps before this rank has called.
            assert!(matches!(verdict, Ok(()) | Err(Error::PeerLost { .. })), "{verdict:?}");
        });
        if round == 3 {
            before = Some(settled());
        }
    }
    if is_host() {
        settled().assert_flat(&before.unwrap());
    }
}

#[test]
fn two_groups_work_on_one_device() {
    let others: Vec<_> = Threads::new(2).unwrap().into_iter().map(|other| Mutex::new(Some(other))).collect();
    world::meet(2, |bootstrap| {
        let other = others[bootstrap.rank()].lock().take().unwrap();
        let first = world::open(bootstrap, &small()).unwrap();
        let mut config = small();
        config.heap_bytes *= 2;
        config.check_calls = !config.check_calls;
        let Rank { communicator: twin, stream, .. } = world::open_on(&first.device, other, &config).unwrap();
        let buffers = (first.communicator.symmetric::<i64>(500).unwrap(), twin.symmetric::<i64>(500).unwrap());
        buffers.0.write(&[1; 500], &first.stream).unwrap();
        buffers.1.write(&[1; 500], &stream).unwrap();
        for call in 0..40 {
            first.communicator.all_reduce_in_place(&buffers.0, &first.stream).unwrap();
            if call % 2 == 0 {
                twin.all_reduce_in_place(&buffers.1, &stream).unwrap();
            }
        }
        first.finish();
        twin.synchronize(&stream).unwrap();
        assert_eq!(buffers.0.read(&stream).unwrap(), [1 << 40; 500]);
        assert_eq!(buffers.1.read(&stream).unwrap(), [1 << 20; 500]);
        // One ends, the other goes on.
        twin.close().unwrap();
        first.communicator.all_reduce_in_place(&buffers.0, &first.stream).unwrap();
        first.finish();
        drop(buffers);
        first.communicator.close().unwrap();
    });
}

#[test]
fn a_group_splits_by_colour_and_key() {
    threads(6, &small(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let own = rank.rank();
        // 0 and 3 and 4 in reverse order; 1 alone; 2 and 5 in none.
        let color = [Some(9), Some(1), None, Some(9), Some(9), None][own];
        let part = communicator.split(color, -(own as i32)).unwrap();
        let expected = [Some((2, 3)), Some((0, 1)), None, Some((1, 3)), Some((0, 3)), None][own];
        assert_eq!(part.as_ref().map(|part| (part.rank(), part.world_size())), expected);
        if let Some(part) = part {
            let buffer = part.symmetric::<i32>(10).unwrap();
            buffer.write(&[1 << own; 10], stream).unwrap();
            part.all_reduce_in_place(&buffer, stream).unwrap();
            part.synchronize(stream).unwrap();
            let sum = if own == 1 { 2 } else { 1 + 8 + 16 };
            assert_eq!(buffer.read(stream).unwrap(), [sum; 10]);
            drop(buffer);
            part.close().unwrap();
        }
        let buffer = communicator.symmetric::<i32>(10).unwrap();
        buffer.write(&[1; 10], stream).unwrap();
        communicator.all_reduce_in_place(&buffer, stream).unwrap();
        rank.finish();
        assert_eq!(buffer.read(stream).unwrap(), [6; 10]);
    });
}

/// How many calls the last test makes.
const CALLS: &str = "SYMMETRA_TEST_CALLS";

/// Elements of a part of the largest call of [`Mixed`].
const MOST: usize = 2000;

/// One rank's operands of any call. Nothing in here allocates.
struct Mixed<'a> {
    rank: &'a Rank,
    buffer: SymmetricBuffer<bf16>,
    plain: [DeviceBuffer<i32>; 2],
    pad: SymmetricBuffer<u8>,
    /// Weight and residual of a norm.
    rows: DeviceBuffer<bf16>,
    experts: Experts,
    ids: DeviceBuffer<i32>,
}

impl<'a> Mixed<'a> {
    fn new(rank: &'a Rank) -> Self {
        let (communicator, world) = (&rank.communicator, rank.world());
        let plain = [0; 2].map(|_| DeviceBuffer::from_slice(&vec![1i32; 300 * world], &rank.stream).unwrap());
        let buffer = communicator.symmetric(2 * world * MOST).unwrap();
        let rows = DeviceBuffer::new(&rank.device, 2 * MOST).unwrap();
        let mut layer = ExpertConfig::new(2, 1, 4, 2);
        layer.method = Method::Packets;
        let (experts, ids) = (communicator.experts(layer).unwrap(), [rank.rank() as i32, 1 - rank.rank() as i32]);
        let ids = DeviceBuffer::from_slice(&ids, &rank.stream).unwrap();
        Self { rank, buffer, plain, pad: communicator.symmetric(1).unwrap(), rows, experts, ids }
    }

    /// Input and output of `from` and `to` elements.
    fn parts(&self, from: usize, to: usize) -> [SymmetricSlice<'_, bf16>; 2] {
        let start = self.rank.world() * MOST;
        [self.buffer.slice(0..from).unwrap(), self.buffer.slice(start..start + to).unwrap()]
    }

    /// The call of this kind, of `count` elements a part.
    fn call(&self, kind: usize, count: usize, root: usize) -> Result<()> {
        let (communicator, stream, world) = (&self.rank.communicator, &self.rank.stream, self.rank.world());
        let [plain_input, plain_output] = &self.plain;
        let [part, _] = self.parts(count, count);
        let [whole, whole_output] = self.parts(count * world, count * world);
        let next = (self.rank.rank() + 1) % world;
        let is_root = self.rank.rank() == root;
        let previous = (self.rank.rank() + world - 1) % world;
        match kind {
            0 => communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, part, part, stream),
            1 => communicator.all_reduce(part, part, stream),
            2 => communicator.all_reduce_with(Algorithm::TwoShotSentinel, part, part, stream),
            3 => communicator.all_reduce_in_place(plain_input, stream),
            4 => communicator.all_gather(part, whole_output, stream),
            5 => communicator.reduce_scatter(whole, self.parts(0, count)[1], Reduction::Max, stream),
            6 => communicator.all_to_all(whole, whole_output, stream),
            7 => communicator.all_to_all(plain_input, plain_output, stream),
            8 => communicator.broadcast(part, root, stream),
            9 => communicator.reduce_in_place(part, Reduction::Sum, root, stream),
            10 => self.pad.signals().barrier(0, stream),
            11 => self.pad.signals().put(next, 1, stream).and_then(|()| self.pad.signals().wait(previous, 1, stream)),
            12 => communicator.batch(stream, |batch| {
                batch.send(part, next);
                batch.receive(self.parts(0, count)[1], previous);
                Ok(())
            }),
            13 => communicator.all_gather_along(1, &[count, 1, 1], part, whole_output, stream),
            14 => {
                let output = self.parts(0, count)[1];
                communicator.reduce_scatter_along(1, &[count, world, 1], whole, output, Reduction::Sum, stream)
            }
            15 => communicator.gather(part, is_root.then_some(whole_output), root, stream),
            16 => communicator.all_reduce_with(Codec::Fp8, part, self.parts(0, count)[1], stream),
            17 => {
                let [weight, residual] = [0, MOST].map(|start| self.rows.borrow().slice(start..start + count).unwrap());
                let rows = RowNorm::new(part, weight, RmsNorm::new(1e-6)).residual(residual.clone());
                communicator.all_reduce_norm(rows.residual_out(residual).output(part), stream)
            }
            18 => {
                let (routing, [tokens, output]) = (Routing::new(&self.ids), self.parts(8, 8));
                let received = self.rows.borrow().slice(0..16)?;
                let arriving = self.experts.dispatch_begin(&routing, tokens, stream)?;
                let routed = arriving.receive(&Received::rows(received.clone()), stream)?;
                let returning = routed.combine_begin(received.clone(), stream)?;
                match is_root {
                    true => returning.receive(output, Combine::default(), stream)?,
                    false => drop(returning),
                }
                drop(routed);
                let routed = self.experts.dispatch(&routing, tokens, &Received::rows(received.clone()), stream)?;
                routed.combine(received, output, Combine::default(), stream)
            }
            _ => communicator.scatter(is_root.then_some(whole), self.parts(0, count)[1], root, stream),
        }
    }

    const KINDS: usize = 20;
}

/// Calls allocate neither on the calling thread nor, as far as the system reports, on any other.
#[test]
fn pitfall_19_calls_of_every_kind_allocate_nothing() {
    if !apart("pitfall_19_calls_of_every_kind_allocate_nothing") {
        return;
    }
    let calls = repeats(CALLS, 8_000, 20_000);
    for check_calls in [false, true] {
        let mut config = config();
        config.check_calls = check_calls;
        threads(2, &config, |rank| {
            let mixed = Mixed::new(rank);
            let graph = rank.stream.capture(|capture| {
                let [input, output] = mixed.parts(4, 4);
                rank.communicator.all_reduce_with(Algorithm::OneShotLL, input, output, capture)
            });
            let graph = graph.unwrap();
            let mut random = Random(19);
            let mut before = None;
            let mut allocated = [0; Mixed::KINDS + 1];
            for first in (0..calls / 2).step_by(100) {
                if first == 2_000 {
                    before = Some((Usage::of(rank), system::free_device_bytes(rank)));
                    allocated = [0; Mixed::KINDS + 1];
                }
                let mut hundred = || {
                    for _ in 0..100 {
                        let count = if random.below(50) == 0 { 1 + random.below(MOST) } else { 1 + random.below(12) };
                        let (kind, root) = (random.below(Mixed::KINDS + 1), random.below(2));
                        let start = allocations();
                        match kind {
                            Mixed::KINDS => graph.launch(&rank.stream).unwrap(),
                            kind => mixed.call(kind, count, root).unwrap(),
                        }
                        allocated[kind] += allocations() - start;
                    }
                };
                match first {
                    0 | 100 => world::behind(rank, first / 100, hundred),
                    _ => hundred(),
                }
                rank.finish();
            }
            assert_eq!(allocated, [0; Mixed::KINDS + 1], "allocations by kind of call");
            let (usage, free) = before.unwrap();
            if let (Some(before), Some(after)) = (usage, Usage::of(rank)) {
                after.assert_flat(&before);
            }
            system::assert_device_flat(free, system::free_device_bytes(rank));
        });
    }
}
