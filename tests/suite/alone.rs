//! Groups that are opened alone, and the groups that they split into: worlds of every size, colours and keys of any
//! kind, splits of splits, ends in any order, and errors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use half::bf16;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Backend, Coordinator, EnvConfig, Environment, GroupConfig, InitMethod};
use symmetra::{Config, DeviceBuffer, Error, Reduction, Result, Stream};

use crate::coordinator::round::check;
use crate::support::data::{Random, mix};
use crate::support::device::device;
use crate::support::fits;
use crate::support::world::{Gate, meet};

fn small() -> Config {
    let mut config = crate::support::config();
    config.heap_bytes = 1 << 20;
    (config.one_shot_ll_bytes, config.two_shot_ll_bytes) = (4 << 10, 4 << 10);
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(4 << 10), 4 << 10);
    (config.ring_bytes, config.recursive_doubling_bytes) = (64 << 10, 4 << 10);
    config
}

fn config() -> GroupConfig {
    let mut config = GroupConfig::default();
    config.communicator = small();
    config.interface = Some("127.0.0.1".to_owned());
    config
}

fn open(bootstrap: Threads) -> Coordinator {
    open_with(bootstrap, config()).unwrap()
}

fn open_with(bootstrap: Threads, config: GroupConfig) -> Result<Coordinator> {
    let device = device(bootstrap.rank());
    Coordinator::open(bootstrap, &device, config)
}

/// The sum over a group of the values of its ranks.
fn sum(group: &Coordinator, own: i32) -> i32 {
    let stream = Stream::new(group.device()).unwrap();
    let buffer = DeviceBuffer::from_slice(&[own; 100], &stream).unwrap();
    group.all_reduce_in_place(&buffer, &stream).unwrap();
    group.synchronize(&stream).unwrap();
    let sums = buffer.read(&stream).unwrap();
    assert!(sums.iter().all(|sum| *sum == sums[0]));
    sums[0]
}

#[test]
fn every_operation_in_worlds_of_1_to_8() {
    let seed = fastrand::u64(..);
    for world in 1..=8 {
        meet(world, |bootstrap| {
            let rank = bootstrap.rank();
            let group = open(bootstrap);
            assert_eq!((group.name(), group.rank(), group.world_size()), ("group", rank, world));
            assert_eq!(group.ranks(), (0..world).collect::<Vec<_>>());
            check::<f32>(&group, &group, &Reduction::ALL, mix(seed ^ world as u64), true);
            check::<bf16>(&group, &group, &Reduction::ALL, seed ^ world as u64, false);
            group.clone().close().unwrap();
            assert_eq!(group.check(), Err(Error::Closed));
            assert_eq!(group.close(), Err(Error::Closed));
        });
    }
}

/// Every rank's colour and key, from a seed.
fn wishes(seed: u64, world: usize) -> Vec<(Option<u32>, i32)> {
    let mut random = Random(mix(seed));
    let color = |random: &mut Random| [None, Some(0), Some(7), Some(u32::MAX)][random.below(4)];
    (0..world).map(|_| (color(&mut random), random.below(5) as i32 - 2)).collect()
}

/// The members of a rank's part by the rule: by key, then by rank.
fn part(wishes: &[(Option<u32>, i32)], rank: usize) -> Option<Vec<usize>> {
    let color = wishes[rank].0?;
    let mut members: Vec<usize> = (0..wishes.len()).filter(|other| wishes[*other].0 == Some(color)).collect();
    members.sort_by_key(|other| (wishes[*other].1, *other));
    Some(members)
}

/// Splits of splits, compared with the rule. `numbers`: of the ranks of `group` in the world.
fn split_on(group: &Coordinator, numbers: &[usize], seed: u64, depth: usize) {
    let wishes = wishes(seed, numbers.len());
    let (color, key) = wishes[group.rank()];
    let split = group.split(color, key).unwrap();
    let expected = part(&wishes, group.rank());
    assert_eq!(split.is_some(), expected.is_some());
    let (Some(split), Some(expected)) = (split, expected) else { return };
    let members: Vec<usize> = expected.iter().map(|rank| numbers[*rank]).collect();
    assert_eq!(split.world_size(), members.len());
    assert_eq!(expected[split.rank()], group.rank());
    let bits: i32 = members.iter().map(|rank| 1 << rank).sum();
    assert_eq!(sum(&split, 1 << numbers[group.rank()]), bits, "{wishes:?}");
    check::<f32>(&split, &split, &Reduction::ALL, mix(seed ^ bits as u64), false);
    if depth > 0 {
        split_on(&split, &members, mix(seed) ^ u64::from(color.unwrap_or(0)), depth - 1);
    }
    split.close().unwrap();
}

#[test]
fn splits_of_splits_follow_colours_and_keys() {
    for world in 1..=8 {
        for _ in 0..2 {
            let seed = fastrand::u64(..);
            meet(world, |bootstrap| {
                let group = open(bootstrap);
                let everyone: Vec<usize> = (0..world).collect();
                split_on(&group, &everyone, seed, 2);
                assert_eq!(sum(&group, 1), world as i32, "the parent works on");
                group.close().unwrap();
            });
        }
    }
}

#[test]
fn parents_and_parts_close_in_any_order() {
    for parent_first in [true, false] {
        meet(4, |bootstrap| {
            let group = open(bootstrap);
            let part = group.split(Some(group.rank() as u32 % 2), 0).unwrap().unwrap();
            let (rank, first, second) = match parent_first {
                true => (group.rank(), group, part),
                false => (group.rank(), part, group),
            };
            first.close().unwrap();
            let members = second.world_size() as i32;
            assert_eq!(sum(&second, 1), members);
            let again = second.split(Some(0), -(rank as i32)).unwrap().unwrap();
            assert_eq!(again.rank(), again.world_size() - 1 - second.rank());
            second.close().unwrap();
            assert_eq!(sum(&again, 1), members);
            again.close().unwrap();
        });
    }
}

/// Groups of an environment split too. The environment closes its groups, and they do not close themselves.
#[test]
fn groups_of_an_environment_split() {
    meet(4, |bootstrap| {
        let rank = bootstrap.rank();
        let mut config = EnvConfig::default();
        config.device = Some(device(rank));
        config.init_method = InitMethod::bootstrap(bootstrap);
        (config.tensor_parallel_size, config.communicator) = (2, small());
        config.data_parallel_size = 2;
        let environment = Environment::init(config).unwrap();
        let across = environment.dp().split(Some(3), 1 - rank as i32).unwrap().unwrap();
        assert_eq!(across.rank(), 1 - environment.dp().rank());
        assert_eq!(sum(&across, 1 << rank), if rank % 2 == 0 { 0b101 } else { 0b1010 });
        for refused in [environment.tp().clone().close(), environment.tp().clone().depart()] {
            let Err(Error::Unsupported { what, .. }) = &refused else { panic!("{refused:?}") };
            assert!(what.contains("the group tp"), "{what}");
        }
        assert_eq!(sum(environment.tp(), 1), 2);
        environment.close().unwrap();
        assert_eq!(sum(&across, 1), 2);
        across.close().unwrap();
    });
}

#[test]
fn ranks_with_other_settings_do_not_open() {
    type Change = fn(&mut GroupConfig);
    let settings: [(&str, Change, &str, &str); 3] = [
        ("heap_bytes", |config| config.communicator.heap_bytes = 1 << 21, "1048576", "2097152"),
        ("the backend", |config| config.backend = Some(Backend::Own), "auto", "own"),
        ("most_blocks", |config| config.communicator.most_blocks = Some(9), "any", "9"),
    ];
    for (what, change, ours, theirs) in settings {
        let errors = meet(3, |bootstrap| {
            let mut config = config();
            if bootstrap.rank() == 2 {
                change(&mut config);
            }
            open_with(bootstrap, config).map(drop).unwrap_err()
        });
        for error in errors {
            let [what, ours, theirs] = [what, ours, theirs].map(str::to_owned);
            assert_eq!(error, Error::Mismatch { what, against: 0, ours, rank: 2, theirs });
        }
    }
}

#[test]
fn what_is_refused_names_the_value() {
    if crate::support::is_host() {
        for error in meet(17, |bootstrap| open_with(bootstrap, config()).map(drop).unwrap_err()) {
            assert!(
                matches!(&error, Error::InvalidArgument { message } if message.contains("world size is 17")),
                "{error}"
            );
        }
    }
    let errors = meet(2, |bootstrap| {
        let mut config = config();
        config.communicator.registrations = if bootstrap.rank() == 1 { 0 } else { 1024 };
        config.communicator.most_blocks = None;
        open_with(bootstrap, config).map(drop).unwrap_err()
    });
    for error in errors {
        assert!(matches!(&error, Error::Mismatch { what, rank: 1, .. } if what == "registrations"), "{error}");
    }
    for error in meet(2, |bootstrap| {
        let mut config = config();
        config.communicator.registrations = 0;
        open_with(bootstrap, config).map(drop).unwrap_err()
    }) {
        assert!(
            matches!(&error, Error::InvalidArgument { message } if message.contains("registrations is 0")),
            "{error}"
        );
    }
    meet(2, |bootstrap| {
        let group = open(bootstrap);
        group.clone().close().unwrap();
        assert_eq!(group.split(Some(0), 0).map(drop), Err(Error::Closed));
    });
}

/// Ranks whose names of the host differ are on several hosts, also on one machine.
#[cfg(not(any(feature = "gloo", feature = "nccl")))]
#[test]
fn several_hosts_need_an_engine() {
    for error in meet(2, |bootstrap| {
        let mut config = config();
        config.host = Some(format!("host-{}", bootstrap.rank()));
        open_with(bootstrap, config).map(drop).unwrap_err()
    }) {
        let words = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }), "{words}");
        assert!(words.contains("host-0 (ranks 0), host-1 (ranks 1)") && words.contains("gloo"), "{words}");
    }
}

/// With NCCL and without Gloo: groups open, split, meet and close. The errors of calls name the missing feature of each
/// backend.
#[cfg(all(feature = "nccl", not(feature = "gloo")))]
#[test]
fn hosts_meet_without_an_engine() {
    for hosts in [vec![0, 1], vec![0, 0, 1, 1], vec![0, 1, 1]] {
        meet(hosts.len(), |bootstrap| {
            let (rank, world) = (bootstrap.rank(), bootstrap.world_size());
            let mut config = config();
            config.host = Some(format!("host-{}", hosts[rank]));
            config.interface = Some("127.0.0.1".to_owned());
            let group = open_with(bootstrap, config).unwrap();
            group.barrier().unwrap();
            let stream = Stream::new(group.device()).unwrap();
            let buffer = DeviceBuffer::from_slice(&[1i32], &stream).unwrap();
            // On GPUs NCCL may serve the call.
            if crate::support::is_host() {
                let words = group.all_reduce_in_place(&buffer, &stream).unwrap_err().to_string();
                assert!(words.contains("nccl: rank 0: ") && words.contains("feature `gloo`"), "{words}");
            }
            let host = group.split(Some(hosts[rank]), 0).unwrap().unwrap();
            let neighbours = hosts.iter().filter(|host| **host == hosts[rank]).count();
            assert_eq!(sum(&host, 1), neighbours as i32);
            let reversed = group.split(Some(0), -(rank as i32)).unwrap().unwrap();
            assert_eq!((reversed.rank(), reversed.world_size()), (world - 1 - rank, world));
            reversed.barrier().unwrap();
            reversed.close().unwrap();
            host.close().unwrap();
            group.close().unwrap();
        });
    }
}

#[cfg(all(feature = "nccl", not(feature = "gloo")))]
#[test]
fn a_host_that_leaves_is_noticed_without_an_engine() {
    let errors = meet(3, |bootstrap| {
        let rank = bootstrap.rank();
        let mut config = config();
        (config.host, config.interface) = (Some(format!("host-{}", rank / 2)), Some("127.0.0.1".to_owned()));
        let group = open_with(bootstrap, config).unwrap();
        let began = Instant::now();
        let error = (rank < 2).then(|| group.barrier().unwrap_err());
        drop(group);
        (error, began.elapsed())
    });
    for (error, took) in errors {
        assert!(took < Duration::from_secs(15), "{error:?} after {took:?}");
    }
}

/// Parts on one host of several, and parts that span hosts, by the same path.
#[cfg(feature = "gloo")]
#[test]
fn groups_on_several_hosts_split() {
    for hosts in [vec![0, 1], vec![0, 0, 1, 1], vec![0, 1, 0, 2], vec![0, 1, 2, 0, 1, 2]] {
        meet(hosts.len(), |bootstrap| {
            let (rank, world) = (bootstrap.rank(), bootstrap.world_size());
            let mut config = config();
            config.host = Some(format!("host-{}", hosts[rank]));
            let group = open_with(bootstrap, config).unwrap();
            assert!(group.communicator().is_err());
            assert_eq!(sum(&group, 1 << rank), (1 << world) - 1);
            let host = group.split(Some(hosts[rank]), 0).unwrap().unwrap();
            assert!(host.communicator().is_ok());
            let neighbours = (0..world).filter(|other| hosts[*other] == hosts[rank]);
            assert_eq!(sum(&host, 1 << rank), neighbours.map(|other| 1 << other).sum::<i32>());
            let reversed = group.split((rank > 0).then_some(1), -(rank as i32)).unwrap();
            assert_eq!(reversed.is_some(), rank > 0);
            if let Some(reversed) = &reversed {
                assert_eq!((reversed.rank(), reversed.world_size()), (world - 1 - rank, world - 1));
                assert_eq!(sum(reversed, 1 << rank), (1 << world) - 2);
                let nested = reversed.split(Some(0), rank as i32).unwrap().unwrap();
                assert_eq!((nested.rank(), sum(&nested, 1)), (rank - 1, world as i32 - 1));
                nested.close().unwrap();
            }
            group.close().unwrap();
            if let Some(reversed) = reversed {
                assert_eq!(sum(&reversed, 1), world as i32 - 1);
                reversed.close().unwrap();
            }
            host.close().unwrap();
        });
    }
}

/// Which interface the hosts of a part speak over is not known.
#[cfg(feature = "gloo")]
#[test]
fn hosts_without_an_interface_do_not_open() {
    for error in meet(2, |bootstrap| {
        let mut config = config();
        (config.host, config.interface) = (Some(format!("host-{}", bootstrap.rank())), None);
        open_with(bootstrap, config).map(drop).unwrap_err()
    }) {
        assert!(error.to_string().contains("interface"), "{error}");
    }
}

/// The first steps of a split, after which a rank goes on or does not.
fn begin_split(group: &Coordinator, color: u32) {
    let parent = group.communicator().unwrap().group();
    for (call, words) in [
        ("to split a group", format!(r#"{{"color":{color},"key":9}}"#)),
        ("to meet in the parts of a group", "null".to_owned()),
    ] {
        let exchanged = parent.exchange(|mesh, deadline| {
            mesh.announce(call);
            mesh.all_gather(format!("[{call:?},{words}]").as_bytes(), deadline)
        });
        exchanged.unwrap();
    }
}

/// Also the ranks of other colours, and of none, learn who it was, long before a deadline.
#[test]
fn pitfall_01_a_rank_that_leaves_in_a_split_is_named_at_once() {
    if !fits(5) {
        return;
    }
    for departs in [true, false] {
        let gate = Arc::new(Gate::new(4));
        meet(5, |bootstrap| {
            let group = open(bootstrap);
            let start = Instant::now();
            match group.rank() {
                3 => {
                    begin_split(&group, 1);
                    std::thread::sleep(Duration::from_millis(50));
                    if departs {
                        group.depart().unwrap();
                    }
                }
                rank => {
                    let color = [Some(1), Some(1), Some(2), None, None][rank];
                    let error = group.split(color, 0).map(drop).unwrap_err();
                    assert!(matches!(error, Error::PeerLost { rank: 3, .. }), "rank {rank}: {error}");
                    assert!(start.elapsed() < Duration::from_secs(10), "rank {rank}: {:?}", start.elapsed());
                    gate.pass();
                }
            }
        });
    }
}

#[test]
fn a_departed_group_is_closed() {
    meet(2, |bootstrap| {
        let group = open(bootstrap);
        assert_eq!(sum(&group, 1), 2);
        group.clone().depart().unwrap();
        assert_eq!(group.check(), Err(Error::Closed));
    });
}
