//! Tests of `src/collective/turn/check_calls.rs`, whose module they are.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::bootstrap::Threads;
use crate::collective::Communicator;
use crate::device::{Allocation, Device};
use crate::group::{Config, Group};
use crate::memory::Arena;
use crate::stream::Stream;

/// The errors of three ranks, when rank 2 calls `spoil` before it probes and stores the values `says`.
fn opened(spoil: impl Fn(&Device, &mut Arc<Arena>) -> Option<Allocation> + Sync, says: [u64; 2]) -> Vec<String> {
    let rank = |bootstrap: Threads| {
        let device = Device::host().unwrap();
        let mut config = Config { heap_bytes: 1 << 16, ..Config::default() };
        config.deadlines.open = Duration::from_secs(10);
        let group = Group::open(bootstrap, &device, config).unwrap();
        let mut arena = Arena::open(&group).unwrap();
        let spoils = group.rank() == 2;
        let _kept = spoils.then(|| spoil(&device, &mut arena));
        let communicator = Communicator::over(group, arena).unwrap();
        let probed = probe_peers_with(&communicator.0.arena, if spoils { says } else { HERE });
        probed.map_or_else(|error| error.to_string(), |()| String::new())
    };
    std::thread::scope(|scope| {
        let ranks = Threads::new(3).unwrap().into_iter();
        let ranks: Vec<_> = ranks.map(|bootstrap| scope.spawn(|| rank(bootstrap))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn pitfall_31_memory_that_only_seems_to_be_mapped_is_found_when_opening() {
    assert_eq!(opened(|_, _| None, HERE), ["", "", ""]);
    let elsewhere = |device: &Device, arena: &mut Arc<Arena>| {
        let memory = Allocation::shared(device, arena.layout().bytes as usize).unwrap();
        arena.misdirect(0, memory.address());
        Some(memory)
    };
    let [zero, one, two] = <[String; 3]>::try_from(opened(elsewhere, HERE)).unwrap();
    assert!(
        zero.starts_with("access of rank 2 to the memory of rank 0 is not supported: its stores do not arrive"),
        "{zero}"
    );
    for told in [one, two] {
        assert!(told.contains("rank 0 failed: ") && told.contains(&zero), "{told}");
    }
}

#[test]
fn pitfall_31_memory_that_changes_what_is_stored_is_found_when_opening() {
    let mut says = HERE;
    says[1] ^= 1 << 40;
    for (rank, words) in opened(|_, _| None, says).iter().enumerate() {
        assert!(words.contains("arrive with other bits"), "rank {rank}: {words}");
        assert!(words.contains("access of rank 2 to the memory of rank") || rank == 2, "rank {rank}: {words}");
    }
}

/// The history of rank 0 holds a call that its stream's owner captured, and so numbers others differently.
#[test]
fn pitfall_04_calls_that_differ_behind_a_native_capture_are_not_named_wrong() {
    let run = |bootstrap: Threads| {
        let device = Device::host().unwrap();
        let stream = Stream::new(&device).unwrap();
        let config = Config { check_calls: true, heap_bytes: 1 << 16, ..Config::default() };
        let communicator = Communicator::open(bootstrap, &device, config).unwrap();
        let sums = communicator.symmetric::<i32>(64).unwrap();
        let sum = |len: usize| communicator.all_reduce_in_place(sums.slice(0..len).unwrap(), &stream);
        let rank = communicator.rank();
        if rank == 0 {
            stream.capture_natively(|| sum(64)).unwrap().unwrap();
        }
        sum(32).unwrap();
        communicator.synchronize(&stream).unwrap();
        let outcome = sum(8 + 8 * rank).and_then(|()| communicator.synchronize(&stream));
        let Err(Error::Mismatch { against, ours, rank, theirs, .. }) = outcome else { panic!("{outcome:?}") };
        for (rank, words) in [(against, ours), (rank, theirs)] {
            let right = format!("all-reduce (sum) of {} bytes of i32", 32 + 32 * rank);
            // Rank 1 knows all its own calls; of a call of another rank, the number that it was sent is right as well.
            assert!(words.starts_with(&right) || (rank == 0 && words == "unknown"), "rank {rank}: {words}");
        }
    };
    std::thread::scope(|scope| {
        let ranks = Threads::new(2).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    });
}
