//! Collective calls of the host: ranks that make different ones, and ranks that hear in one that a peer gave up elsewhere.

use std::time::{Duration, Instant};

use symmetra::{Config, Deadlines, DeviceBuffer, Error, Operation, Result};

use crate::expert_errors::small;
use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config};

type HostCall = fn(&Rank) -> Result<()>;

/// Calls, and what errors name them.
const CALLS: [(&str, HostCall); 8] = [
    ("barrier", |rank| rank.communicator.group().barrier()),
    ("gather bytes", |rank| rank.communicator.group().all_gather_bytes(&[1]).map(drop)),
    ("make symmetric memory", |rank| rank.communicator.symmetric::<f32>(8).map(drop)),
    ("adopt memory", |rank| {
        let buffer = DeviceBuffer::<f32>::new(&rank.device, 8)?;
        // SAFETY: a `DeviceBuffer` that peers can reach stays allocated, whoever drops it.
        unsafe { rank.communicator.adopt(buffer.borrow()) }.map(drop)
    }),
    ("export memory", |rank| {
        let buffer = DeviceBuffer::<f32>::new(&rank.device, 8)?;
        rank.stream.capture(|capture| rank.communicator.all_reduce_in_place(&buffer, capture))?.register()
    }),
    ("split a group", |rank| rank.communicator.split(Some(0), 0).map(drop)),
    ("the settings of experts", |rank| rank.communicator.experts(small(symmetra::experts::Method::Auto)).map(drop)),
    ("close", |rank| rank.communicator.clone().close()),
];

fn small_group() -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config.check_calls = false;
    config
}

#[test]
fn pitfall_04_ranks_that_make_different_calls_of_the_host_are_all_told_both_at_once() {
    for (number, theirs) in CALLS.iter().enumerate() {
        for ours in &CALLS[..number] {
            let gate = Gate::new(3);
            meet(3, |bootstrap| {
                let rank = open(bootstrap, &small_group()).unwrap();
                let begun = Instant::now();
                let (_, call) = if rank.rank() == 1 { theirs } else { ours };
                let error = call(&rank).unwrap_err();
                // All deadlines are of a minute.
                assert!(begun.elapsed() < Duration::from_secs(10), "{:?}: {error}", begun.elapsed());
                let both = |words: &str| words.contains(ours.0) && words.contains(theirs.0);
                match &error {
                    Error::Mismatch { what, against, rank: other, ours: near, theirs: far } => {
                        assert_eq!(what, "the collective call of the host", "{error}");
                        let name = |rank: usize| if rank == 1 { theirs.0 } else { ours.0 };
                        assert_eq!((near.as_str(), far.as_str()), (name(*against), name(*other)), "{error}");
                    }
                    _ => panic!("{} and {}, rank {}: {error}", ours.0, theirs.0, rank.rank()),
                }
                gate.pass();
                match rank.communicator.group().barrier().unwrap_err() {
                    Error::Closed if (ours.0, theirs.0).1 == "close" && rank.rank() == 1 => {}
                    later => assert!(both(&later.to_string()), "{later}"),
                }
                gate.pass();
            });
        }
    }
}

/// Rank 1 waits in an operation for the others, which are in a call of the host.
#[test]
fn a_rank_in_a_call_of_the_host_is_told_in_which_operation_a_peer_waited_for_it() {
    for (number, (name, call)) in CALLS.iter().enumerate() {
        let gate = Gate::new(3);
        let mut config = small_group();
        config.deadlines.steady = Duration::from_millis(300);
        config.deadlines.first_use = config.deadlines.steady;
        let errors = meet(3, |bootstrap| {
            let rank = open(bootstrap, &config).unwrap();
            let buffer = rank.communicator.symmetric::<f32>(64).unwrap();
            let error = match rank.rank() {
                1 => {
                    rank.communicator.broadcast(&buffer, 0, &rank.stream).unwrap();
                    rank.communicator.synchronize(&rank.stream).unwrap_err()
                }
                _ => call(&rank).unwrap_err(),
            };
            // The rank that gave up leaves at once, or when all have returned.
            if number % 2 == 0 {
                gate.pass();
            }
            error
        });
        let Some(Error::Timeout { rank: Some(late), .. }) = errors.get(1) else {
            assert!(errors.is_empty(), "{name}: {errors:?}");
            return; // the world does not fit this machine
        };
        for (own, error) in errors.iter().enumerate() {
            match error {
                Error::Aborted { detail } if own == *late => {
                    assert_eq!(detail, ": rank 1 had waited too long for this one in broadcast 0", "{name}");
                }
                Error::Timeout { operation: Operation::Broadcast, sequence: 0, rank, waited, .. } if own != *late => {
                    assert_eq!((*rank, *waited), (Some(*late), config.deadlines.steady), "{name}: {error}");
                }
                _ => panic!("{name}, rank {own}: {error}"),
            }
        }
    }
}

/// Rank 1 leaves out the first call. Its deadline for calls of the host passes before that of rank 0's operation, or after.
#[test]
fn a_rank_that_leaves_out_the_first_call_is_told_so() {
    let calls: [HostCall; 2] = [|rank| rank.communicator.clone().close(), |rank| rank.communicator.group().barrier()];
    for (call, [open_s, first_use_s]) in calls.into_iter().flat_map(|call| [(call, [2, 5]), (call, [6, 2])]) {
        let gate = Gate::new(2);
        meet(2, |bootstrap| {
            let mut config = small_group();
            let [open_limit, first_use] = [open_s, first_use_s].map(Duration::from_secs);
            config.deadlines = Deadlines { open: open_limit, first_use, steady: Duration::from_secs(1) };
            let rank = open(bootstrap, &config).unwrap();
            let buffer = rank.communicator.symmetric::<f32>(8).unwrap();
            gate.pass();
            if rank.rank() == 0 {
                rank.communicator.all_reduce_in_place(&buffer, &rank.stream).unwrap();
                let error = rank.communicator.synchronize(&rank.stream).unwrap_err();
                match &error {
                    Error::Timeout { operation: Operation::AllReduce, sequence: 0, rank: Some(1), .. } => {}
                    _ => panic!("{error}"),
                }
            } else {
                // Rank 0 has made its call.
                std::thread::sleep(Duration::from_millis(200));
                let Error::Aborted { detail } = call(&rank).unwrap_err() else { panic!("not Aborted") };
                assert_eq!(detail, ": rank 0 had waited too long for this one in all-reduce 0");
            }
            gate.pass();
        });
    }
}
