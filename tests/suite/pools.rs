//! Pools of an engine: adopted as a whole, of no type, and used by address or by offset. One pool costs one registration.

use half::bf16;
use symmetra::{Algorithm, Communicator, Config, DeviceBuffer, Element, Error, Operand, Ref, Stream};

use crate::support::{Rank, config, is_host, threads};

const BYTES: usize = 1 << 20;

/// Registrations for the arena's own table and the tables of `pools`.
fn room_for(pools: u32) -> Config {
    let mut room = config();
    room.registrations = 1 + pools;
    room
}

fn zero_copy<'op, T: Element>(communicator: &Communicator, operand: impl Operand<'op, T> + Copy, stream: &Stream) {
    communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, operand, operand, stream).unwrap();
}

#[test]
fn one_pool_costs_one_registration() {
    threads(2, &room_for(1), |rank| {
        let Rank { communicator, stream, device } = rank;
        let own = rank.rank() as i32 + 1;
        let pool = DeviceBuffer::<i32>::from_slice(&vec![own; BYTES / 4], stream).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt_bytes(pool.as_raw().cast(), BYTES) }.unwrap();
        if !adopted.is_shared() {
            assert!(!is_host());
            return;
        }
        // Each call has a different address and length.
        let operand = |number: usize| {
            // SAFETY: the elements are in the pool.
            unsafe { Ref::from_raw(device, pool.as_raw().wrapping_add(number * 200), 100 + number) }.unwrap()
        };
        let operands: Vec<_> = (0..100).map(operand).collect();
        let named = |operand| communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, operand, operand, stream);
        operands.iter().for_each(|operand| named(operand).unwrap());
        let graph = stream.capture(|capture| {
            operands.iter().try_for_each(|operand| {
                communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, operand, operand, capture)?;
                communicator.all_reduce_in_place(operand, capture)
            })
        });
        let graph = graph.unwrap();
        communicator.group().barrier().unwrap();
        // Whether it registers or not: there is nothing to register, but offsets are compared.
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        let values = pool.read(stream).unwrap();
        // An eager sum of 1 and 2, and two sums of the graph: of 3 and 3, then of 6 and 6.
        for (at, value) in values.into_iter().enumerate() {
            let (number, within) = (at / 200, at % 200);
            let summed = number < 100 && within < 100 + number;
            assert_eq!(value, if summed { 12 } else { own }, "element {at}");
        }
    });
}

#[test]
fn elements_of_a_pool_have_the_type_of_the_call() {
    threads(3, &room_for(1), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let own = rank.rank() as f32 + 1.0;
        let pool = DeviceBuffer::<u8>::new(stream.device(), BYTES).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt_bytes(pool.as_raw(), BYTES) }.unwrap();
        let mut expected = vec![0xEE_u8; BYTES];
        let put = |bytes: &mut [u8], at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let mut filled = expected.clone();
        put(&mut filled, 2, bytemuck::cast_slice(&[bf16::from_f32(own); 77]));
        put(&mut filled, 4096, bytemuck::cast_slice(&[f64::from(own); 31]));
        put(&mut expected, 2, bytemuck::cast_slice(&[bf16::from_f32(6.0); 77]));
        put(&mut expected, 4096, bytemuck::cast_slice(&[6.0_f64; 31]));
        pool.write(&filled, stream).unwrap();
        communicator.group().barrier().unwrap();
        let (halves, doubles) = (adopted.elements::<bf16>(2, 77).unwrap(), adopted.elements::<f64>(4096, 31).unwrap());
        assert_eq!((halves.len(), doubles.len()), (77, 31));
        if adopted.is_shared() {
            zero_copy(communicator, halves, stream);
        } else {
            communicator.all_reduce_in_place(halves, stream).unwrap();
        }
        communicator.all_reduce_in_place(doubles, stream).unwrap();
        rank.finish();
        assert!(pool.read(stream).unwrap() == expected);
    });
}

#[test]
fn elements_outside_a_pool_are_refused() {
    threads(2, &room_for(1), |rank| {
        let pool = DeviceBuffer::<u8>::new(&rank.device, 100).unwrap();
        // SAFETY: ranks are threads, and no call uses it.
        let adopted = unsafe { rank.communicator.adopt_bytes(pool.as_raw(), 100) }.unwrap();
        let refused = |offset, count, words: &str| {
            let error = adopted.elements::<f64>(offset, count).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        };
        refused(24, 10, "the range is 10 elements of f64 from byte 24, but the memory has 100 bytes");
        refused(104, 0, "the memory has 100 bytes");
        refused(usize::MAX, 1, "the memory has 100 bytes");
        refused(8, usize::MAX / 8, "must fit the address space");
        refused(8, usize::MAX / 16, "the memory has 100 bytes");
        refused(4, 1, "at byte 4 of the memory, but f64 must be aligned to 8 bytes");
        assert!(adopted.elements::<f64>(100, 0).unwrap().is_empty());
        assert_eq!(adopted.elements::<u8>(3, 97).unwrap().len(), 97);
    });
}

/// Memory that is no pool is refused on every rank, and no rank waits.
#[test]
fn pitfall_04_a_pool_that_is_none_is_refused_on_every_rank() {
    threads(2, &room_for(1), |rank| {
        let pool = DeviceBuffer::<u8>::new(&rank.device, 64).unwrap();
        let address = if rank.rank() == 0 { std::ptr::null_mut() } else { pool.as_raw() };
        // SAFETY: refused.
        let error = unsafe { rank.communicator.adopt_bytes(address, 64) }.unwrap_err();
        match rank.rank() {
            0 => assert!(matches!(error, Error::InvalidArgument { .. }), "{error}"),
            _ => assert!(matches!(error, Error::Peer { rank: 0, .. }), "{error}"),
        }
        // SAFETY: ranks are threads, and no call uses it.
        let adopted = unsafe { rank.communicator.adopt_bytes(pool.as_raw(), 64) }.unwrap();
        assert_eq!(adopted.memory().len(), 64);
    });
}

/// Offsets of a pool that differ between ranks are found when the graph is registered, and go through scratch if asked.
#[test]
fn pitfall_04_offsets_that_differ() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let own = rank.rank();
        let pool = DeviceBuffer::<i32>::from_slice(&vec![own as i32 + 1; 5000], stream).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt(pool.borrow()) }.unwrap();
        if !adopted.is_shared() {
            assert!(!is_host());
            return;
        }
        let part = pool.borrow().slice(own * 100..own * 100 + 50).unwrap();
        let graph =
            stream.capture(|capture| communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &part, &part, capture));
        let error = graph.unwrap().register().unwrap_err();
        let Error::Mismatch { ours, theirs, rank: 1, .. } = &error else { panic!("{error}") };
        assert_eq!(ours, "byte 0 of adoption 0 as operand 0 of call 0");
        assert_eq!(theirs, "byte 400 of adoption 0 as operand 0 of call 0");
        let part = part.through_scratch();
        communicator.all_reduce_in_place(&part, stream).unwrap();
        let graph = stream.capture(|capture| communicator.all_reduce_in_place(&part, capture)).unwrap();
        communicator.group().barrier().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        let mut expected = vec![own as i32 + 1; 5000];
        expected[own * 100..own * 100 + 50].fill(6);
        assert_eq!(pool.read(stream).unwrap(), expected);
        let error = communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &part, &part, stream).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    });
}

/// A graph, and a bound call in a graph, keep the registration; a call after the adoption is dropped takes plain memory.
#[test]
fn graphs_outlive_the_adoption() {
    threads(2, &room_for(2), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let pool = DeviceBuffer::<i32>::from_slice(&[rank.rank() as i32 + 1; 3000], stream).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt(pool.borrow()) }.unwrap();
        if !adopted.is_shared() {
            assert!(!is_host());
            return;
        }
        let [first, second] = [0, 2000].map(|start| pool.borrow().slice(start..start + 1000).unwrap());
        let algorithm = Algorithm::TwoShotZeroCopy;
        let bound = communicator.bind_all_reduce_with(algorithm, &second, &second).unwrap();
        let graph = stream.capture(|capture| {
            communicator.all_reduce_with(algorithm, &first, &first, capture)?;
            bound.enqueue(capture)
        });
        let graph = graph.unwrap();
        drop((bound, adopted));
        let error = communicator.all_reduce_with(algorithm, &first, &first, stream).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        // Memory of the same size takes every table that is free.
        let other = DeviceBuffer::<i32>::from_slice(&[-1; 3000], stream).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let again = unsafe { communicator.adopt(other.borrow()) }.unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        let values = pool.read(stream).unwrap();
        let own = rank.rank() as i32 + 1;
        assert!(values[..1000].iter().chain(&values[2000..]).all(|value| *value == 3));
        assert!(values[1000..2000].iter().all(|value| *value == own));
        assert_eq!(other.read(stream).unwrap(), [-1; 3000]);
        drop((graph, again));
    });
}

#[test]
fn an_operand_that_leaves_its_pool_is_plain_memory() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let pool = DeviceBuffer::<i32>::from_slice(&[rank.rank() as i32; 1000], stream).unwrap();
        let half = pool.borrow().slice(..500).unwrap();
        // SAFETY: ranks are threads, and drop it after calls that succeeded.
        let adopted = unsafe { communicator.adopt(half) }.unwrap();
        let over = pool.borrow().slice(400..600).unwrap();
        let error = communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &over, &over, stream).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        communicator.all_reduce_in_place(&over, stream).unwrap();
        if adopted.is_shared() {
            zero_copy(communicator, &pool.borrow().slice(..400).unwrap(), stream);
        }
        rank.finish();
        let values = pool.read(stream).unwrap();
        assert_eq!((values[400], values[599], values[600]), (1, 1, rank.rank() as i32));
        assert_eq!(values[399], if adopted.is_shared() { 1 } else { rank.rank() as i32 });
        drop(adopted);
    });
}
