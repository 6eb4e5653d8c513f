//! Guards of a group's memory: a byte that is written outside a symmetric buffer is found on the rank that has the
//! buffer, at once, when the group closes, and when the space of a dropped buffer is used again. Groups that write
//! nothing outside their buffers pass.

use symmetra::{Communicator, Error, Ref, Stream, SymmetricBuffer, required_bytes};

use crate::support::world::{GUARD_BYTES, Rank, config, meet, open, threads};

/// Writes one byte `at` bytes after the start of this rank's buffer.
fn write_beside(rank: &Rank, buffer: &SymmetricBuffer<u8>, at: isize) {
    let address = buffer.as_raw().wrapping_offset(at);
    // SAFETY: the address lies in this rank's arena, in a guard of the buffer, which Rust never reads.
    let byte = unsafe { Ref::<u8>::from_raw(&rank.device, address, 1) }.unwrap();
    byte.write(&[1], &rank.stream).unwrap();
}

fn overwritten(error: &Error, first: usize) {
    let message = error.to_string();
    assert!(matches!(error, Error::Internal { .. }), "{message}");
    let behind = format!("guard bytes beside a symmetric buffer were overwritten, the first at byte {first};");
    assert!(message.contains("1 of the ") && message.contains(&behind), "{message}");
}

/// The first and the last byte of the guard before a buffer, and of the guard after a buffer that ends between two
/// packets.
#[test]
fn every_byte_beside_a_buffer_is_guarded() {
    let guard = GUARD_BYTES as isize;
    for (at, first) in
        [(-guard, 0), (-1, GUARD_BYTES as usize - 1), (1001, 0), (1023 + guard, 22 + GUARD_BYTES as usize)]
    {
        meet(2, |bootstrap| {
            let rank = open(bootstrap, &config()).unwrap();
            let buffer = rank.communicator.symmetric::<u8>(1001).unwrap();
            rank.communicator.check_guards().unwrap();
            if rank.rank() == 1 {
                write_beside(&rank, &buffer, at);
                overwritten(&rank.communicator.check_guards().unwrap_err(), first);
                overwritten(&rank.communicator.clone().close().unwrap_err(), first);
            } else {
                rank.communicator.check_guards().unwrap();
                rank.communicator.clone().close().unwrap();
            }
        });
    }
}

/// Elements and signals of a buffer are no guards.
#[test]
fn buffers_and_signals_are_whole() {
    threads(3, &config(), |rank| {
        let communicator: &Communicator = &rank.communicator;
        for len in [0, 1, 255, 256, 257, 5000] {
            let buffer = communicator.symmetric::<u8>(len).unwrap();
            buffer.write(&vec![1; len], &rank.stream).unwrap();
            for channel in 0..symmetra::SIGNAL_CHANNELS {
                buffer.signals().barrier(channel, &rank.stream).unwrap();
            }
            communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
            rank.finish();
            communicator.group().barrier().unwrap();
            communicator.check_guards().unwrap();
            assert_eq!(buffer.read(&rank.stream).unwrap(), vec![3; len]);
        }
    });
}

#[test]
fn a_dropped_buffer_is_checked_before_its_space_is_used_again() {
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &config()).unwrap();
        let buffer = rank.communicator.symmetric::<u8>(256).unwrap();
        if rank.rank() == 0 {
            write_beside(&rank, &buffer, 256);
        }
        drop(buffer);
        let error = rank.communicator.symmetric::<u8>(256).map(drop).unwrap_err();
        match rank.rank() {
            0 => assert!(error.to_string().contains("a symmetric buffer that was dropped"), "{error}"),
            _ => assert!(matches!(error, Error::Peer { rank: 0, .. }), "{error}"),
        }
        // The overrun was reported, and the space is whole again.
        let buffer = rank.communicator.symmetric::<u8>(256).unwrap();
        assert_eq!(buffer.read(&rank.stream).unwrap(), [0; 256]);
        rank.communicator.close().unwrap();
    });
}

/// Guards take as many bytes as documented, of the arena and of the heap.
#[test]
fn guards_cost_what_is_documented() {
    let mut with = config();
    with.heap_bytes = 2 * (256 + 3 * GUARD_BYTES + 512);
    let of = |guard_bytes| {
        let mut config = with.clone();
        config.guard_bytes = guard_bytes;
        required_bytes(2, &config)
    };
    assert!(of(GUARD_BYTES).unwrap() > of(0).unwrap());
    for guard_bytes in [1, 255, 257, (16 << 20) + 256, u64::MAX] {
        let message = of(guard_bytes).unwrap_err().to_string();
        assert!(
            message.contains(&format!("guard_bytes is {guard_bytes}, but it must be a multiple of 256")),
            "{message}"
        );
    }
    threads(2, &with, |rank| {
        let two = [0; 2].map(|_| rank.communicator.symmetric::<u8>(256));
        assert!(two.iter().all(Result::is_ok));
        assert!(matches!(rank.communicator.symmetric::<u8>(1), Err(Error::OutOfMemory { .. })));
        let stream = Stream::new(&rank.device).unwrap();
        rank.communicator.synchronize(&stream).unwrap();
    });
}
