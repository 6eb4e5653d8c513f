//! Collective calls of the host: ranks that make different calls, and ranks that learn in one call that a peer gave up
//! in another.

use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::{Communicator, Config, Deadlines, DeviceBuffer, Error, Operation, Result};

use crate::expert_errors::small;
use crate::support::device::device;
use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config};

type HostCall = fn(&Rank) -> Result<()>;

/// Calls, and their names in errors.
const CALLS: [(&str, HostCall); 8] = [
    ("barrier", |rank| rank.communicator.group().barrier()),
    ("gather bytes", |rank| rank.communicator.group().all_gather_bytes(&[1]).map(drop)),
    ("make symmetric memory", |rank| rank.communicator.symmetric::<f32>(8).map(drop)),
    ("adopt memory", |rank| {
        let buffer = DeviceBuffer::<f32>::new(&rank.device, 8)?;
        // SAFETY: a `DeviceBuffer` that peers can reach stays allocated, also when the handle is dropped.
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
            config.deadlines =
                Deadlines::default().open(open_limit).first_use(first_use).steady(Duration::from_secs(1));
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

#[test]
fn a_deadline_outside_its_limits_is_refused_before_the_ranks_meet() {
    type Limit = fn(&mut Deadlines) -> &mut Duration;
    let changes: [(&str, Limit); 3] = [
        ("deadlines.open", |deadlines| &mut deadlines.open),
        ("deadlines.first_use", |deadlines| &mut deadlines.first_use),
        ("deadlines.steady", |deadlines| &mut deadlines.steady),
    ];
    let values = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(999),
        Duration::from_secs(86_401),
        Duration::MAX,
    ];
    for (name, of) in changes {
        for value in values {
            let mut config = small_group();
            *of(&mut config.deadlines) = value;
            // Rank 1 never comes.
            let own = || {
                let mut ranks = Threads::new(2).unwrap();
                let other = ranks.pop().unwrap();
                (ranks.pop().unwrap(), other)
            };
            let begun = Instant::now();
            let (rank, _other) = own();
            let mut errors = vec![Communicator::open(rank, &device(0), config.clone()).map(drop).unwrap_err()];
            let (rank, _other) = own();
            let mut group = GroupConfig::default();
            group.communicator = config;
            errors.push(Coordinator::open(rank, &device(0), group).map(drop).unwrap_err());
            for error in errors {
                let Error::InvalidArgument { message } = &error else { panic!("{name} of {value:?}: {error}") };
                assert_eq!(*message, format!("{name} is {value:?}, but it must be 1 ms to 24 h"));
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
    }
}

/// A rank that claims to be another, or of a world of another size.
struct Claim {
    ranks: Threads,
    rank: usize,
    world_size: usize,
}

impl Bootstrap for Claim {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        let mut all = self.ranks.all_gather(bytes, deadline)?;
        all.resize(self.world_size, bytes.to_vec());
        Ok(all)
    }
}

/// The errors of two ranks that claim these rank numbers and world sizes.
fn claimed(claims: [[usize; 2]; 2], open: impl Fn(Claim) -> Result<()> + Sync) -> Vec<Error> {
    let (gate, open) = (Gate::new(2), &open);
    meet(2, |ranks| {
        let [rank, world_size] = claims[ranks.rank()];
        let error = open(Claim { ranks, rank, world_size }).unwrap_err();
        gate.pass();
        error
    })
}

#[test]
fn pitfall_05_ranks_of_unlike_worlds_are_told_so_and_of_no_setting_that_follows() {
    let communicator = |claim: Claim| {
        let device = device(claim.ranks.rank());
        Communicator::open(claim, &device, small_group()).map(drop)
    };
    let coordinator = |claim: Claim| {
        let device = device(claim.ranks.rank());
        Coordinator::open(claim, &device, GroupConfig::default()).map(drop)
    };
    for errors in [claimed([[0, 2], [1, 3]], communicator), claimed([[0, 2], [1, 3]], coordinator)] {
        for error in errors {
            let Error::Mismatch { what, against: 0, ours, rank: 1, theirs } = &error else { panic!("{error}") };
            assert_eq!([what, ours, theirs], ["the world size", "2", "3"]);
        }
    }
    for errors in [claimed([[0, 2], [0, 2]], communicator), claimed([[0, 2], [0, 2]], coordinator)] {
        for error in errors {
            let Error::Bootstrap { message } = &error else { panic!("{error}") };
            assert!(message.contains("what rank 0 sent in the place of rank 1"), "{message}");
        }
    }
}
