//! Groups: one thread for all ranks, messages, nesting, and failures inside.

use std::ffi::c_int;

use crate::library::{self, last_error, ok};
use crate::life::{BLOCKING, async_error, config};
use crate::values::Memory;
use crate::world::{Rank, all, threads};

const F32: c_int = 7;

fn group(run: impl FnOnce()) {
    ok(library::ncclGroupStart());
    run();
    ok(library::ncclGroupEnd());
}

fn memory(values: impl IntoIterator<Item = f64>) -> Memory {
    Memory::new(F32, &values.into_iter().collect::<Vec<_>>())
}

fn send(rank: Rank, buffer: &mut Memory, count: usize, peer: usize) {
    ok(library::ncclSend(buffer.start(), count, F32, peer as c_int, rank.comm, 0));
}

fn receive(rank: Rank, buffer: &mut Memory, count: usize, peer: usize) {
    ok(library::ncclRecv(buffer.start(), count, F32, peer as c_int, rank.comm, 0));
}

/// One thread makes the calls of four ranks: two collectives each, which run when the group ends.
#[test]
fn one_thread_calls_for_all_ranks() {
    let ranks = all(4);
    let mut first: Vec<Memory> = (0..4).map(|rank| memory([f64::from(rank), 2.0])).collect();
    let mut second = first.clone();
    group(|| {
        for (rank, buffer) in ranks.iter().zip(&mut first) {
            ok(library::ncclAllReduce(buffer.start(), buffer.start(), 2, F32, 0, rank.comm, 0));
        }
        for (rank, buffer) in ranks.iter().zip(&mut second) {
            ok(library::ncclBcast(buffer.start(), 2, F32, 3, rank.comm, 0));
        }
        assert!(
            first.iter().enumerate().all(|(rank, buffer)| buffer.values() == [rank as f64, 2.0]),
            "a call ran early"
        );
    });
    assert!(first.iter().all(|buffer| buffer.values() == [6.0, 8.0]));
    assert!(second.iter().all(|buffer| buffer.values() == [3.0, 2.0]));
    ranks.iter().for_each(|rank| ok(library::ncclCommDestroy(rank.comm)));
}

/// A ring in which every rank sends before it receives, and several messages between each pair, in nested groups.
#[test]
fn messages_of_a_group_progress_together() {
    threads(3, |rank| {
        let (next, before) = ((rank.rank + 1) % 3, (rank.rank + 2) % 3);
        for count in [0, 1, 1000, 300_000] {
            let mut out = memory((0..count).map(|index| (rank.rank * 7 + index % 5) as f64));
            let mut into = memory(vec![-1.0; count]);
            group(|| {
                send(rank, &mut out, count, next);
                receive(rank, &mut into, count, before);
            });
            assert!(into.values().iter().enumerate().all(|(index, value)| *value == (before * 7 + index % 5) as f64));
        }
        let mut out: Vec<Memory> = (0..12).map(|index| memory([(rank.rank * 100 + index) as f64])).collect();
        let mut into: Vec<Memory> = (0..12).map(|_| memory([-1.0])).collect();
        for _ in 0..5 {
            ok(library::ncclGroupStart());
        }
        for index in 0..12 {
            send(rank, &mut out[index], 1, index % 3);
            receive(rank, &mut into[index], 1, index % 3);
        }
        for _ in 0..5 {
            ok(library::ncclGroupEnd());
        }
        for (index, buffer) in into.iter().enumerate() {
            // The k-th receive from a rank takes the k-th send of that rank to this one.
            let from = index % 3;
            let expected = from * 100 + rank.rank + (index - from);
            assert_eq!(buffer.values(), [expected as f64], "message {index} of rank {}", rank.rank);
        }
    });
}

/// 300 messages to one rank, while another rank makes no call.
#[test]
fn many_messages_to_one_rank() {
    threads(3, |rank| {
        if rank.rank == 2 {
            return;
        }
        let mut buffers: Vec<Memory> =
            (0..300).map(|index| memory([f64::from(index * (1 - rank.rank as i32))])).collect();
        group(|| {
            for buffer in &mut buffers {
                match rank.rank {
                    0 => send(rank, buffer, 1, 1),
                    _ => receive(rank, buffer, 1, 0),
                }
            }
        });
        assert!(buffers.iter().enumerate().all(|(index, buffer)| buffer.values() == [index as f64]));
    });
}

/// Messages outside a group are groups of one.
#[test]
fn single_messages() {
    threads(2, |rank| {
        let mut buffer = memory([rank.rank as f64 + 5.0, 9.0]);
        match rank.rank {
            0 => send(rank, &mut buffer, 2, 1),
            _ => receive(rank, &mut buffer, 2, 0),
        }
        assert_eq!(buffer.values(), [5.0, 9.0]);
    });
}

/// The first failure is returned by the call and by the outermost end, nothing is enqueued, and the next group works.
#[test]
fn a_failure_inside_drops_the_group() {
    threads(2, |rank| {
        let mut buffer = memory([1.0, 2.0]);
        ok(library::ncclGroupStart());
        ok(library::ncclGroupStart());
        ok(library::ncclAllReduce(buffer.start(), buffer.start(), 2, F32, 0, rank.comm, 0));
        assert_eq!(library::ncclBcast(buffer.start(), 2, F32, 9, rank.comm, 0), 4);
        assert!(last_error().contains("the root is 9"), "{}", last_error());
        ok(library::ncclGroupEnd());
        assert_eq!(library::ncclGroupEnd(), 4);
        assert_eq!(buffer.values(), [1.0, 2.0]);
        assert_eq!(library::ncclGroupEnd(), 5, "no group is open");
        group(|| ok(library::ncclAllReduce(buffer.start(), buffer.start(), 2, F32, 0, rank.comm, 0)));
        assert_eq!(buffer.values(), [2.0, 4.0]);
    });
}

/// A send of a rank to itself needs a receive.
#[test]
fn messages_of_a_rank_to_itself() {
    threads(2, |rank| {
        let (mut out, mut into) = (memory([4.0]), memory([0.0]));
        group(|| {
            send(rank, &mut out, 1, rank.rank);
            receive(rank, &mut into, 1, rank.rank);
        });
        assert_eq!(into.values(), [4.0]);
        ok(library::ncclGroupStart());
        send(rank, &mut out, 1, rank.rank);
        assert_eq!(library::ncclGroupEnd(), 5);
        assert!(last_error().contains("1 sends of rank"), "{}", last_error());
    });
}

/// Operations on a communicator run after its split in the same group, in either order of the calls.
#[test]
fn an_operation_after_a_split_in_one_group() {
    threads(2, |rank| {
        let (mut buffer, mut part) = (memory([1.0]), 0);
        group(|| {
            ok(library::ncclCommSplit(rank.comm, 0, 0, &raw mut part, std::ptr::null()));
            assert_eq!(async_error(rank.comm), 0);
            ok(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, rank.comm, 0));
        });
        assert_eq!(buffer.values(), [2.0]);
        ok(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, part, 0));
        assert_eq!(buffer.values(), [4.0]);
        ok(library::ncclCommDestroy(part));
        // A split that returns early has not ended when the group ends.
        ok(library::ncclGroupStart());
        ok(library::ncclCommSplit(rank.comm, 0, 0, &raw mut part, config(BLOCKING, 0).as_ptr()));
        ok(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, rank.comm, 0));
        assert_eq!(library::ncclGroupEnd(), 4);
        assert!(last_error().contains("the split returns early"), "{}", last_error());
        assert_eq!((part, async_error(rank.comm)), (0, 0));
    });
}

/// `ncclGroupSimulateEnd` drops the calls.
#[test]
fn a_simulated_group_runs_nothing() {
    threads(2, |rank| {
        let mut buffer = memory([1.0]);
        let mut simulation = [0u8; 24];
        simulation[8..12].copy_from_slice(&0x7468_5283_u32.to_ne_bytes());
        simulation[16..20].copy_from_slice(&7.0_f32.to_ne_bytes());
        ok(library::ncclGroupStart());
        ok(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, rank.comm, 0));
        ok(library::ncclGroupSimulateEnd(simulation.as_mut_ptr()));
        assert_eq!(buffer.values(), [1.0]);
        assert_eq!(simulation[16..20], 0.0_f32.to_ne_bytes());
        assert_eq!(library::ncclGroupEnd(), 5);
        // An opening of the group is given up.
        let mut part = 1;
        ok(library::ncclGroupStart());
        ok(library::ncclCommSplit(rank.comm, 0, 0, &raw mut part, std::ptr::null()));
        ok(library::ncclGroupSimulateEnd(std::ptr::null_mut()));
        assert_eq!((part, async_error(rank.comm)), (0, 0));
        group(|| ok(library::ncclAllReduce(buffer.start(), buffer.start(), 1, F32, 0, rank.comm, 0)));
        assert_eq!(buffer.values(), [2.0]);
    });
}
