//! Tensor, pipeline, data and expert parallel groups over one world.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::device::device;
use crate::support::fits;
use crate::support::world::{Gate, alone, bounded, meet};
use symmetra::bootstrap::Threads;
use symmetra::environment::{
    EnvConfig, Environment, InitMethod, NamedTensor, NamedValue, ParallelLayout, Parallelism, SettingSource,
};
use symmetra::{Config, Deadlines, Device, DeviceBuffer, Error, Stream};

/// Small groups, deadlines that a slow machine keeps.
fn small() -> Config {
    let minute = Duration::from_secs(60);
    let mut config = Config::default();
    config.deadlines = Deadlines::default().open(minute).first_use(minute).steady(minute);
    config.heap_bytes = 1 << 20;
    (config.one_shot_ll_bytes, config.two_shot_ll_bytes) = (4 << 10, 4 << 10);
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(4 << 10), 4 << 10);
    config
}

fn config(bootstrap: Threads, [tensor, pipeline, data]: [usize; 3]) -> EnvConfig {
    use symmetra::bootstrap::Bootstrap;
    let mut config = EnvConfig::default();
    config.device = Some(device(bootstrap.rank()));
    config.init_method = InitMethod::bootstrap(bootstrap);
    config.tensor_parallel_size = tensor;
    config.pipeline_parallel_size = pipeline;
    config.data_parallel_size = data;
    config.communicator = small();
    config
}

/// The groups that a rank is in, by the rule in one formula: ranks that agree in every digit of (external, data,
/// pipeline, tensor) except the digits that the group spans.
fn expected(world: usize, [tensor, pipeline, data]: [usize; 3], parallelism: Parallelism, rank: usize) -> Vec<usize> {
    let digits = |rank: usize| {
        let (t, p, d) = (rank % tensor, rank / tensor % pipeline, rank / tensor / pipeline % data);
        let e = rank / tensor / pipeline / data;
        match parallelism {
            Parallelism::Tensor => [e, d, p],
            Parallelism::Pipeline => [e, d, t],
            Parallelism::Data => [e, p, t],
            _ => [e, p, 0],
        }
    };
    (0..world).filter(|other| digits(*other) == digits(rank)).collect()
}

/// Sums each rank's number over each of its groups and compares.
fn sums_are_right(environment: &Environment, sizes: [usize; 3]) {
    let world = environment.world();
    let stream = Stream::new(world.local().device()).unwrap();
    for parallelism in Parallelism::ALL {
        let group = environment.group(parallelism);
        let ranks = expected(world.world_size(), sizes, parallelism, world.rank());
        assert_eq!(group.ranks(), ranks, "{parallelism} of rank {}", world.rank());
        assert_eq!(group.ranks()[group.rank()], world.rank());
        let buffer = DeviceBuffer::<i64>::new(world.local().device(), 33).unwrap();
        let values: Vec<i64> = (0..33).map(|item| item + 1000 * world.rank() as i64).collect();
        buffer.write(&values, &stream).unwrap();
        group.all_reduce(&buffer, &buffer, &stream).unwrap();
        group.local().synchronize(&stream).unwrap();
        let base: i64 = ranks.iter().map(|rank| 1000 * *rank as i64).sum();
        let sums: Vec<i64> = (0..33).map(|item| item * ranks.len() as i64 + base).collect();
        assert_eq!(buffer.read(&stream).unwrap(), sums, "{parallelism} of rank {}", world.rank());
    }
}

#[test]
fn every_group_reduces_over_its_own_ranks() {
    for (world, sizes) in
        [(8, [2, 2, 2]), (8, [4, 1, 2]), (8, [2, 2, 1]), (6, [3, 2, 1]), (8, [8, 1, 1]), (4, [1, 4, 1]), (1, [1, 1, 1])]
    {
        meet(world, |bootstrap| {
            let environment = Environment::init(config(bootstrap, sizes)).unwrap();
            sums_are_right(&environment, sizes);
            environment.close().unwrap();
        });
    }
}

#[test]
fn every_shape_of_up_to_sixteen_ranks_agrees_with_the_rule() {
    for world in 1..=16usize {
        for tensor in (1..=world).filter(|size| world % size == 0) {
            for pipeline in (1..=world / tensor).filter(|size| (world / tensor) % size == 0) {
                for data in (1..=world / tensor / pipeline).filter(|size| (world / tensor / pipeline) % size == 0) {
                    let layout = ParallelLayout::new(world, tensor, pipeline, data).unwrap();
                    for (parallelism, rank) in
                        Parallelism::ALL.into_iter().flat_map(|p| (0..world).map(move |r| (p, r)))
                    {
                        let ranks = expected(world, [tensor, pipeline, data], parallelism, rank);
                        assert_eq!(layout.group_of(parallelism, rank), ranks);
                        assert_eq!(ranks.len(), layout.size(parallelism));
                    }
                }
            }
        }
    }
}

#[test]
fn groups_of_sixteen_threads_open() {
    for sizes in [[4, 2, 2], [2, 4, 1]] {
        meet(16, |bootstrap| {
            let environment = Environment::init(config(bootstrap, sizes)).unwrap();
            sums_are_right(&environment, sizes);
            environment.close().unwrap();
        });
    }
}

#[test]
fn neighbours_and_ends() {
    meet(8, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 4, 1])).unwrap();
        let (rank, pp) = (environment.world().rank(), environment.pp());
        assert_eq!(pp.next_rank(), (rank + 2) % 8);
        assert_eq!(pp.previous_rank(), (rank + 6) % 8);
        assert_eq!((pp.first_rank(), pp.last_rank()), (rank % 2, 6 + rank % 2));
        assert_eq!((pp.is_first_rank(), pp.is_last_rank()), (rank < 2, rank >= 6));
        assert_eq!((pp.name(), pp.world_size()), ("pp", 4));
        environment.close().unwrap();
    });
}

#[test]
fn objects_travel() {
    meet(4, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 2])).unwrap();
        let (tp, rank) = (environment.tp(), environment.world().rank());
        let sent = vec![("layer".to_owned(), tp.first_rank()), (String::new(), 7)];
        let got = tp.broadcast_object((tp.rank() == 1).then_some(&sent), 1).unwrap();
        assert_eq!(got, sent);
        let gathered = environment.world().gather_object(&(rank, "x".repeat(rank)), 2).unwrap();
        let all = (0..4).map(|rank| (rank, "x".repeat(rank))).collect::<Vec<_>>();
        assert_eq!(gathered, (rank == 2).then_some(all));
        // Any number, bit for bit: all ranks compute with the same. Every 16th is infinite or no number.
        let draw = |number: u64| fastrand::u64(..) | if number.is_multiple_of(16) { 0x7ff << 52 } else { 0 };
        let drawn: Vec<(Option<f64>, f32)> = (0..2000)
            .map(|number| (Some(f64::from_bits(draw(number))), f32::from_bits((draw(number) >> 32) as u32)))
            .chain([(Some(f64::INFINITY), f32::NEG_INFINITY), (None, f32::from_bits(0x7f80_0001))])
            .collect();
        let all = environment.world().gather_object(&drawn, 0).unwrap();
        let all = environment.world().broadcast_object(all.as_ref(), 0).unwrap();
        let bits = |all: &[(Option<f64>, f32)]| {
            all.iter().map(|(wide, narrow)| (wide.map(f64::to_bits), narrow.to_bits())).collect::<Vec<_>>()
        };
        assert_eq!(bits(&all[rank]), bits(&drawn));
        let nobody = tp.broadcast_object::<u32>(None, 2).unwrap_err();
        assert!(nobody.to_string().contains("the root is 2, but the group tp has 2 ranks"), "{nobody}");
        let two = tp.broadcast_object(Some(&1u32), 1 - tp.rank()).unwrap_err();
        assert!(matches!(two, Error::InvalidArgument { .. }), "{two}");
        environment.close().unwrap();
    });
}

/// A value that refuses to be serialised, with an error that is longer than an error message may be.
struct Long;

impl serde::Serialize for Long {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("too long ".repeat(8 << 20)))
    }
}

impl<'de> serde::Deserialize<'de> for Long {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("nothing makes one"))
    }
}

/// A value with more levels than the encoding allows.
#[derive(serde::Serialize, serde::Deserialize)]
struct Tree(BTreeMap<String, Self>);

/// The others would wait for it until the deadline, a minute here.
#[test]
fn what_one_rank_cannot_tell_is_an_error_on_all_at_once() {
    meet(3, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [3, 1, 1])).unwrap();
        let tp = environment.tp();
        let rank = tp.rank();
        let begun = Instant::now();
        let told = |culprit: usize, words: &str, error: Error| match error {
            Error::InvalidArgument { message } if rank == culprit => assert!(message.contains(words), "{message}"),
            Error::Peer { rank: who, message } if rank != culprit => {
                assert!(who == culprit && message.contains(words), "rank {who}: {message}");
            }
            other => panic!("rank {rank}: {other}"),
        };
        let unfit = (0..300).fold(Tree(BTreeMap::new()), |tree, _| Tree(BTreeMap::from([("a".to_owned(), tree)])));
        let too_deep = "the object is 257 levels deep at `[\"a\"][\"a\"]";
        told(1, too_deep, tp.broadcast_object((rank == 1).then_some(&unfit), 1).map(drop).unwrap_err());
        told(2, "rank 0 passes an object", tp.broadcast_object((rank != 1).then_some(&7), 0).unwrap_err());
        told(2, "rank 2 passes an object", tp.broadcast_object(None::<&u8>, 2).unwrap_err());
        let large = "x".repeat(64 << 20);
        let too_large = "the object's bytes is 67108869, but at most 67108608";
        told(0, too_large, tp.broadcast_object((rank == 0).then_some(&large), 0).unwrap_err());
        match tp.broadcast_object((rank == 0).then_some(&Long), 0).map(drop).unwrap_err() {
            Error::Peer { message, .. } => {
                assert!(rank != 0 && message.len() < 4096 && message.contains("long"), "{message}");
            }
            other => assert!(rank == 0 && matches!(other, Error::InvalidArgument { .. }), "{other:.200}"),
        }
        let part = if rank == 1 { unfit } else { Tree(BTreeMap::new()) };
        told(1, too_deep, tp.gather_object(&part, 2).map(drop).unwrap_err());
        let elsewhere = Device::host().unwrap();
        let buffer = DeviceBuffer::<f32>::new(&elsewhere, 4).unwrap();
        let tensor = NamedValue::Tensor(NamedTensor::borrowed(&buffer.borrow(), &[2, 2]).unwrap());
        let map = BTreeMap::from([("scale".to_owned(), tensor)]);
        let stream = Stream::new(tp.device()).unwrap();
        let named = tp.broadcast_named((rank == 2).then_some(&map), 2, &stream).unwrap_err();
        told(2, "the tensor `scale`'s device", named);

        let at_odds = |words: [&str; 2], error: Error| match error {
            Error::Mismatch { what, ours, theirs, .. } => {
                assert_eq!(
                    (what.split(" in group").next(), ours.as_str(), theirs.as_str()),
                    (Some("the collective call of the host"), words[0], words[1])
                );
            }
            other => panic!("rank {rank}: {other}"),
        };
        let root = usize::from(rank > 0);
        let roots = ["broadcast an object of rank 0", "broadcast an object of rank 1"];
        at_odds([roots[root], roots[1 - root]], tp.broadcast_object((rank == root).then_some(&7), root).unwrap_err());
        assert_eq!(tp.broadcast_object((rank == 1).then_some(&7), 1), Ok(7));
        let error = match rank {
            0 => tp.barrier().unwrap_err(),
            _ => tp.gather_object(&7, 1).unwrap_err(),
        };
        // From the bytes of the other rank, or from the notice of another rank.
        let words = error.to_string();
        assert!(matches!(error, Error::Mismatch { .. }) && words.contains("barrier"), "rank {rank}: {words}");
        assert!(words.contains("gather objects"), "rank {rank}: {words}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let ended = environment.close().unwrap_err();
        assert!(matches!(ended, Error::Mismatch { .. }), "rank {rank}: {ended}");
    });
}

/// One rank that goes has a number in each of its groups: errors name the group and the rank's number in the world.
#[test]
fn errors_of_a_parallel_group_name_the_group_and_the_number_in_the_world() {
    let gate = Gate::new(4);
    meet(4, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 2])).unwrap();
        let own = environment.world().rank();
        if own == 3 {
            drop(environment);
            gate.pass();
            gate.pass();
            return;
        }
        gate.pass();
        let groups = [
            (environment.world(), 3, "; in group world"),
            (environment.tp(), 1, "; in group tp, whose rank 1 is rank 3 of the world"),
            (environment.dp(), 1, "; in group dp, whose rank 1 is rank 3 of the world"),
        ];
        for (group, number, place) in groups {
            if !group.ranks().contains(&3) {
                assert_eq!(group.barrier(), Ok(()), "{}", group.name());
                continue;
            }
            let error = group.barrier().unwrap_err();
            assert!(matches!(error, Error::PeerLost { rank, .. } if rank == number), "rank {own}: {error}");
            let words = error.to_string();
            assert!(words.contains(": it dropped its communicator without close() or depart()"), "rank {own}: {words}");
            assert!(words.ends_with(place), "rank {own}: {words}");
            assert_eq!(group.check().unwrap_err().to_string(), words, "a later call");
        }
        gate.pass();
    });
}

/// Settings that differ inside a parallel group.
#[test]
fn a_mismatch_in_a_parallel_group_names_both_numbers_of_each_rank() {
    meet(4, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 2])).unwrap();
        let (own, dp) = (environment.world().rank(), environment.dp());
        let error = dp.communicator().unwrap().symmetric::<f32>(8 + own).map(drop).unwrap_err();
        let [first, second] = [own % 2, own % 2 + 2];
        let place = match first {
            0 => "in group dp, whose rank 1 is rank 2 of the world: ".to_owned(),
            _ => format!(
                "in group dp, whose rank 0 is rank {first} of the world and whose rank 1 is rank {second} of the world: "
            ),
        };
        let words = error.to_string();
        assert!(
            words.starts_with("ranks 0 and 1 disagree on the bytes of a symmetric buffer ") && words.contains(&place),
            "{words}"
        );
        environment.close().unwrap();
    });
}

/// A bootstrap object that claims more ranks than there can be.
struct Vast(usize);

impl symmetra::bootstrap::Bootstrap for Vast {
    fn rank(&self) -> usize {
        0
    }

    fn world_size(&self) -> usize {
        self.0
    }

    fn all_gather(&mut self, _: &[u8], _: std::time::Instant) -> symmetra::Result<Vec<Vec<u8>>> {
        panic!("asked to gather from {} ranks", self.0)
    }
}

#[test]
fn a_world_size_out_of_range_is_refused_before_anything_is_gathered() {
    for world_size in [257, 1 << 40, 1 << 60, usize::MAX] {
        let mut config = EnvConfig::default();
        config.init_method = InitMethod::bootstrap(Vast(world_size));
        let words = match Environment::init(config).unwrap_err() {
            error @ Error::InvalidArgument { .. } => error.to_string(),
            other => panic!("{other}"),
        };
        assert!(words.contains(&format!("world size is {world_size}")) && words.contains("1..=256"), "{words}");
    }
}

#[test]
fn opens_and_closes_again_in_one_process() {
    for round in 0..3 {
        meet(4, |bootstrap| {
            let environment = Environment::init(config(bootstrap, [2, 2, 1])).unwrap();
            sums_are_right(&environment, [2, 2, 1]);
            let tp = environment.tp().communicator().unwrap().clone();
            environment.close().unwrap();
            assert_eq!(tp.group().check(), Err(Error::Closed), "round {round}");
        });
    }
}

#[test]
fn dropping_one_does_not_hang_the_others() {
    let _alone = alone();
    bounded(Duration::from_secs(60), || {
        let outcomes = meet(4, |bootstrap| {
            let environment = Environment::init(config(bootstrap, [2, 2, 1])).unwrap();
            if environment.world().rank() == 3 {
                drop(environment);
                return None;
            }
            Some(environment.world().barrier().and_then(|()| environment.close()))
        });
        for outcome in outcomes.into_iter().flatten() {
            assert!(matches!(outcome, Err(Error::PeerLost { rank: 3, .. })), "{outcome:?}");
        }
    });
}

#[test]
fn pitfall_04_ranks_that_were_told_different_sizes() {
    let errors = meet(4, |bootstrap| {
        use symmetra::bootstrap::Bootstrap;
        let sizes = if bootstrap.rank() == 2 { [2, 2, 1] } else { [2, 1, 2] };
        Environment::init(config(bootstrap, sizes)).unwrap_err()
    });
    for error in errors {
        let words = error.to_string();
        assert!(matches!(error, Error::Mismatch { rank: 2, .. }) && words.contains("parallel sizes"), "{words}");
    }
}

/// Without NCCL and Gloo; `hosts.rs` has the tests with Gloo.
#[cfg(not(any(feature = "gloo", feature = "nccl")))]
#[test]
fn several_hosts_without_an_engine_between_them_are_refused_by_name() {
    for error in meet(3, |bootstrap| {
        use symmetra::bootstrap::Bootstrap;
        let rank = bootstrap.rank();
        let mut config = config(bootstrap, [3, 1, 1]);
        config.host = Some(if rank == 1 { "left" } else { "right" }.to_owned());
        Environment::init(config).unwrap_err()
    }) {
        let words = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }), "{words}");
        assert!(words.contains("2 hosts, right (ranks 0, 2), left (ranks 1)"), "{words}");
        assert!(words.contains("the feature `nccl`, or with the feature `gloo` (Debian: libgloo-dev)"), "{words}");
    }
}

#[test]
fn settings_say_who_decided() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let source = |name| environment.settings().iter().find(|setting| setting.name == name).unwrap().source;
        assert_eq!(source("tensor_parallel_size"), SettingSource::Program);
        assert_eq!(source("data_parallel_size"), SettingSource::Default);
        assert_eq!(source("device"), SettingSource::Program);
        environment.close().unwrap();
    });
}

/// Two ranks that meet by this method.
fn meet_by(method: &str) {
    std::thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let mut config = EnvConfig::default();
                config.init_method = method.parse().unwrap();
                (config.rank, config.world_size, config.tensor_parallel_size) = (Some(rank), Some(2), 2);
                (config.device, config.communicator) = (Some(device(rank)), small());
                let environment = Environment::init(config).unwrap();
                let setting = environment.settings().iter().find(|setting| setting.name == "init_method").unwrap();
                assert_eq!((setting.value.as_str(), setting.source), (method, SettingSource::Program));
                sums_are_right(&environment, [2, 1, 1]);
                environment.close().unwrap();
            });
        }
    });
}

#[test]
fn meets_in_a_directory() {
    if !fits(2) {
        return;
    }
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    meet_by(&format!("file://{}", directory.path().join("ranks").display()));
}

/// A port of this host on which no program listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn meets_at_an_address() {
    if !fits(2) {
        return;
    }
    let _alone = alone();
    meet_by(&format!("tcp://127.0.0.1:{}", free_port()));
}

/// Two replicas of two ranks, each of which counts its own ranks only.
#[test]
fn replicas_that_are_started_apart_meet() {
    if !fits(4) {
        return;
    }
    let _alone = alone();
    let method = format!("tcp://127.0.0.1:{}", free_port());
    std::thread::scope(|scope| {
        for (replica, rank) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let method = &method;
            scope.spawn(move || {
                let mut config = EnvConfig::default();
                config.init_method = method.parse().unwrap();
                (config.rank, config.world_size) = (Some(rank), Some(2));
                (config.tensor_parallel_size, config.data_parallel_size) = (2, 2);
                config.data_parallel_rank = Some(replica);
                (config.device, config.communicator) = (Some(device(2 * replica + rank)), small());
                let environment = Environment::init(config).unwrap();
                assert_eq!((environment.world().rank(), environment.world().world_size()), (2 * replica + rank, 4));
                assert_eq!(environment.dp().ranks(), [rank, 2 + rank]);
                assert_eq!(environment.tp().ranks(), [2 * replica, 2 * replica + 1]);
                sums_are_right(&environment, [2, 1, 2]);
                environment.close().unwrap();
            });
        }
    });
}
