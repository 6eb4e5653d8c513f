//! Every value outside its limit: a code, and a text that names the function, the value and the limit.

use std::ffi::c_int;

use crate::library::{self, ByValue, error_string, last_error, ok};
use crate::values::Memory;
use crate::world::{threads, unique_id};

const F32: c_int = 7;

/// Checks the code of a refused call, and that the text has every one of `words`.
#[track_caller]
fn refused(code: c_int, expected: c_int, words: &[&str]) {
    let text = last_error();
    assert_eq!(code, expected, "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{text}: {words:?}");
}

#[test]
fn arguments_of_operations() {
    threads(2, |rank| {
        let mut buffer = Memory::new(F32, &[1.0, 2.0, 3.0, 4.0]);
        let (at, comm) = (buffer.start(), rank.comm);
        let reduce = |count, dtype, op| library::ncclAllReduce(at, at, count, dtype, op, comm, 0);
        for dtype in [-1, 12, 255] {
            refused(reduce(1, dtype, 0), 4, &["ncclAllReduce", &format!("the type is {dtype}"), "0 to 11"]);
        }
        for op in [-1, 5, 99] {
            refused(reduce(1, F32, op), 4, &["ncclAllReduce", &format!("the reduction is {op}"), "0 to 4"]);
        }
        refused(reduce(usize::MAX, F32, 0), 4, &["the count", &usize::MAX.to_string()]);
        refused(library::ncclAllGather(at, at, usize::MAX / 2, F32, comm, 0), 4, &["ncclAllGather", "the count"]);
        for root in [-1, 2] {
            refused(
                library::ncclBcast(at, 1, F32, root, comm, 0),
                4,
                &["ncclBcast", &format!("the root is {root}"), "0 to 1"],
            );
        }
        for peer in [-1, 2] {
            refused(library::ncclSend(at, 1, F32, peer, comm, 0), 4, &["ncclSend", &format!("the peer is {peer}")]);
            refused(library::ncclRecv(at, 1, F32, peer, comm, 0), 4, &["ncclRecv", &format!("the peer is {peer}")]);
        }
        let null = std::ptr::null_mut();
        refused(library::ncclAllReduce(null, at, 1, F32, 0, comm, 0), 4, &["the send buffer is null", "1 elements"]);
        refused(library::ncclAllReduce(at, null, 1, F32, 0, comm, 0), 4, &["the receive buffer is null"]);
        let odd = at.cast::<u8>().wrapping_add(2).cast();
        refused(library::ncclAllReduce(at, odd, 1, F32, 0, comm, 0), 4, &["the receive buffer", "aligned to 4 bytes"]);
        ok(library::ncclAllReduce(null, null, 0, F32, 0, comm, 0));
        refused(library::ncclAllReduce(null, null, 0, 12, 0, comm, 0), 4, &["the type is 12"]);
        // The communicator is well after all of that.
        ok(reduce(4, F32, 0));
        assert_eq!(buffer.values(), [2.0, 4.0, 6.0, 8.0]);
    });
}

#[test]
fn handles_that_are_no_communicators() {
    let mut buffer = Memory::new(F32, &[1.0]);
    let at = buffer.start();
    let mut number = 0;
    refused(library::ncclAllReduce(at, at, 1, F32, 0, 0, 0), 4, &["ncclAllReduce", "the communicator is null"]);
    refused(library::ncclCommCount(0, &raw mut number), 4, &["ncclCommCount", "null"]);
    let freed = crate::world::all(1)[0].comm;
    ok(library::ncclCommDestroy(freed));
    for call in [library::ncclCommDestroy, library::ncclCommFinalize, library::ncclCommAbort] {
        refused(call(freed), 4, &["destroyed or aborted"]);
        ok(call(0));
    }
    refused(library::ncclAllReduce(at, at, 1, F32, 0, freed, 0), 4, &["destroyed or aborted"]);
    // An address inside a handle is no handle.
    refused(library::ncclCommCount(freed + 8, &raw mut number), 4, &["ncclCommCount"]);
}

#[test]
fn arguments_of_openings() {
    let id = unique_id();
    let mut comm = 1;
    for (ranks, rank, words) in
        [(0, 0, "number of ranks is 0"), (-1, 0, "is -1"), (65_536, 0, "65536"), (2, 2, "the rank is 2")]
    {
        refused(library::ncclCommInitRank(&raw mut comm, ranks, ByValue(id), rank), 4, &["ncclCommInitRank", words]);
        assert_eq!(comm, 0);
    }
    let null = std::ptr::null_mut();
    refused(library::ncclCommInitRank(null, 1, ByValue(id), 0), 4, &["the communicator is null"]);
    refused(library::ncclGetUniqueId(std::ptr::null_mut()), 4, &["ncclGetUniqueId", "the id is null"]);
    refused(library::ncclGetVersion(std::ptr::null_mut()), 4, &["ncclGetVersion", "null"]);
    for count in [0, -1] {
        refused(
            library::ncclCommInitAll(&raw mut comm, count, std::ptr::null()),
            4,
            &["ncclCommInitAll", &count.to_string()],
        );
    }
    let negative = [-1];
    refused(library::ncclCommInitAll(&raw mut comm, 1, negative.as_ptr()), 4, &["the device is -1"]);
}

/// One byte sequence as the start of an `ncclConfig_t`.
pub(crate) fn config(size: u64, magic: u32, integers: &[(usize, i32)]) -> [u8; 96] {
    let mut config = [0; 96];
    config[..8].copy_from_slice(&size.to_ne_bytes());
    config[8..12].copy_from_slice(&magic.to_ne_bytes());
    for at in [16, 20, 24, 28, 40, 44, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92] {
        config[at..at + 4].copy_from_slice(&i32::MIN.to_ne_bytes());
    }
    for (at, value) in integers {
        config[*at..*at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    config
}

#[test]
fn configs() {
    const MAGIC: u32 = 0xcafe_beef;
    let id = unique_id();
    let mut comm = 0;
    let mut open =
        |config: [u8; 96]| library::ncclCommInitRankConfig(&raw mut comm, 1, ByValue(id), 0, config.as_ptr());
    for size in [0, 31] {
        refused(open(config(size, MAGIC, &[])), 4, &["the size of the config", &size.to_string()]);
    }
    refused(open(config(80, 1, &[])), 4, &["magic number of the config is 0x1"]);
    for (at, value, words) in [
        (16, 2, "blocking is 2"),
        (20, -1, "cgaClusterSize is -1"),
        (24, 0, "minCTAs is 0"),
        (28, 0, "maxCTAs is 0"),
        (40, 2, "splitShare is 2"),
        (56, 3, "collnetEnable is 3"),
        (64, 2, "shrinkShare is 2"),
        (76, 9, "nvlinkCentricSched is 9"),
        (80, 3, "graphUsageMode is 3"),
    ] {
        refused(open(config(96, MAGIC, &[(at, value)])), 4, &["ncclCommInitRankConfig", words]);
    }
    refused(open(config(96, MAGIC, &[(24, 9), (28, 8)])), 4, &["minCTAs is 9", "maxCTAs is 8"]);
    // A field after the size is not read.
    ok(open(config(72, MAGIC, &[(76, 9), (80, 3)])));
    ok(library::ncclCommDestroy(comm));
}

#[test]
fn splits_windows_and_reductions() {
    threads(2, |rank| {
        let mut other = 0;
        refused(library::ncclCommSplit(rank.comm, -2, 0, &raw mut other, std::ptr::null()), 4, &["the color is -2"]);
        refused(library::ncclCommSplit(rank.comm, 0, 0, std::ptr::null_mut(), std::ptr::null()), 4, &["null"]);
        let mut buffer = Memory::new(F32, &[1.0]);
        let at = buffer.start();
        let register = |bytes, flags| {
            let mut window = 0;
            library::ncclCommWindowRegister(rank.comm, at, bytes, &raw mut window, flags)
        };
        refused(register(0, 1), 4, &["the size of rank 0's window is 0"]);
        refused(register(4, 8), 4, &["the flags of the window is 8"]);
        refused(library::ncclCommWindowDeregister(rank.comm, 3), 4, &["0x3"]);
        let mut op = 0;
        let make = |op: *mut c_int, at, dtype, residence| {
            library::ncclRedOpCreatePreMulSum(op, at, dtype, residence, rank.comm)
        };
        refused(make(&raw mut op, at, F32, 2), 4, &["ncclRedOpCreatePreMulSum", "the residence of the factor is 2"]);
        refused(make(&raw mut op, at, 12, 1), 4, &["the type is 12"]);
        refused(make(&raw mut op, std::ptr::null_mut(), F32, 1), 4, &["the factor is null"]);
        refused(make(std::ptr::null_mut(), at, F32, 1), 4, &["the reduction is null"]);
        refused(make(&raw mut op, at.wrapping_byte_add(2), F32, 0), 4, &["must be aligned to 4 bytes"]);
        ok(make(&raw mut op, at, F32, 1));
        let half = library::ncclAllReduce(at, at, 1, 6, op, rank.comm, 0);
        refused(half, 4, &["the type of the call is f16", &format!("the reduction {op} is of f32")]);
        ok(library::ncclRedOpDestroy(op, rank.comm));
        for number in [op, -1, 0, 4] {
            let wrong = format!("the reduction is {number}");
            refused(library::ncclRedOpDestroy(number, rank.comm), 4, &[&wrong]);
        }
        let destroyed = library::ncclAllReduce(at, at, 1, F32, op, rank.comm, 0);
        refused(destroyed, 4, &[&format!("the reduction is {op}")]);
        assert_eq!(buffer.values(), [1.0], "a refused call ran");
        refused(library::ncclWinGetUserPtr(rank.comm, 0, &raw mut other), 4, &["ncclWinGetUserPtr"]);
        ok(library::ncclCommWindowDeregister(rank.comm, 0));
        let mut properties = [0u8; 64];
        refused(library::ncclCommQueryProperties(rank.comm, properties.as_mut_ptr()), 5, &["magic number"]);
        // The struct of an earlier version ends before the fields of later versions.
        properties = [0xee; 64];
        properties[..8].copy_from_slice(&40_u64.to_ne_bytes());
        properties[8..12].copy_from_slice(&0xcafe_beef_u32.to_ne_bytes());
        ok(library::ncclCommQueryProperties(rank.comm, properties.as_mut_ptr()));
        let place = [rank.rank as u32, 2].map(u32::to_ne_bytes).concat();
        assert_eq!((&properties[16..24], &properties[40..]), (&place[..], &[0xee; 24][..]));
    });
}

#[test]
fn ranks_of_shrinks() {
    threads(3, |rank| {
        let shrink = |list: &[c_int], flags| {
            let mut part = 0;
            let count = list.len() as c_int;
            library::ncclCommShrink(rank.comm, list.as_ptr(), count, &raw mut part, std::ptr::null(), flags)
        };
        let (own, other) = (rank.rank as c_int, (rank.rank as c_int + 1) % 3);
        refused(shrink(&[own], 0), 4, &["ncclCommShrink", &format!("an excluded rank is {own}"), "survivor"]);
        refused(shrink(&[other, other], 0), 4, &[&format!("an excluded rank is {other}"), "each once"]);
        refused(shrink(&[3], 0), 4, &["an excluded rank is 3", "0 to 2"]);
        refused(shrink(&[-1], 0), 4, &["an excluded rank is -1"]);
        refused(shrink(&[], 0), 4, &["the number of excluded ranks is 0", "1 to 2"]);
        refused(shrink(&[0, 1, 2], 0), 4, &["the number of excluded ranks is 3"]);
        refused(shrink(&[other], 2), 4, &["the flags of the shrink is 2"]);
        let null = std::ptr::null();
        let mut part = 0;
        refused(library::ncclCommShrink(rank.comm, null, 1, &raw mut part, null.cast(), 0), 4, &["list", "null"]);
    });
}

/// Every code has a text.
#[test]
fn texts_of_codes() {
    let texts: Vec<String> = (0..9).map(error_string).collect();
    assert!(texts.iter().all(|text| !text.is_empty()));
    assert_eq!(texts.iter().collect::<std::collections::HashSet<_>>().len(), 9);
    assert_eq!(error_string(-5), error_string(99));
}

/// Sizes of a message that differ are a failure on both ranks, which names both sizes.
#[test]
fn lengths_of_a_message_that_differ() {
    threads(2, |rank| {
        let mut buffer = Memory::new(F32, &[1.0, 2.0, 3.0]);
        let code = match rank.rank {
            0 => library::ncclSend(buffer.start(), 2, F32, 1, rank.comm, 0),
            _ => library::ncclRecv(buffer.start(), 3, F32, 0, rank.comm, 0),
        };
        let mut later = code;
        let start = std::time::Instant::now();
        while later == 0 && start.elapsed().as_secs() < 10 {
            ok(library::ncclCommGetAsyncError(rank.comm, &raw mut later));
        }
        assert_eq!(later, 5, "{}", last_error());
    });
}
