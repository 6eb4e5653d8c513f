//! Groups that span hosts: two levels of sums against an independent reference, layouts, and the errors of a group when
//! a rank of another host dies. Ranks of one machine that name different hosts share nothing but loopback;
//! `namespaces.rs` gives each its own network.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::Sample;
use crate::support::data::{assert_same, mix};
use crate::support::device::device;
use crate::support::world::{Gate, alone, bounded, meet, until};
use half::{bf16, f16};
use symmetra::bootstrap::{Bootstrap, Local, Threads};
use symmetra::environment::{Coordinator, EnvConfig, Environment, InitMethod, Parallelism};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{Config, Deadlines, DeviceBuffer, Error, Operation, Reduction, Stream};

/// Small groups, deadlines that a slow machine keeps.
fn small(seconds: u64) -> Config {
    let limit = Duration::from_secs(seconds);
    let mut config = Config::default();
    config.deadlines = Deadlines::default().open(Duration::from_secs(60)).first_use(limit).steady(limit);
    config.heap_bytes = 1 << 20;
    (config.one_shot_ll_bytes, config.two_shot_ll_bytes) = (4 << 10, 4 << 10);
    (config.one_shot_sentinel_bytes, config.two_shot_sentinel_bytes) = (Some(4 << 10), 4 << 10);
    config
}

/// `hosts[rank]` is the rank's host.
fn config(bootstrap: Threads, hosts: &[usize], [tensor, pipeline, data]: [usize; 3]) -> EnvConfig {
    let mut config = EnvConfig::default();
    config.device = Some(device(bootstrap.rank()));
    config.host = Some(format!("host-{}", hosts[bootstrap.rank()]));
    config.interface = Some("127.0.0.1".to_owned());
    config.init_method = InitMethod::bootstrap(bootstrap);
    (config.tensor_parallel_size, config.pipeline_parallel_size, config.data_parallel_size) = (tensor, pipeline, data);
    config.communicator = small(60);
    config
}

fn value<T: Sample>(rank: usize, index: usize, round: usize) -> T {
    T::sample(mix(mix((rank as u64) << 32 ^ round as u64) ^ index as u64))
}

/// The reduction on two levels: over the ranks of each host, then over the hosts by their lowest rank.
fn expected<T: Sample>(reduction: Reduction, group: &[usize], hosts: &[usize], index: usize, round: usize) -> T {
    let mut order: Vec<usize> = Vec::new();
    hosts.iter().for_each(|host| {
        if !order.contains(host) {
            order.push(*host)
        }
    });
    let of_host = |host: &usize| {
        let ranks: Vec<usize> = group.iter().copied().filter(|rank| hosts[*rank] == *host).collect();
        let values: Vec<T> = ranks.iter().map(|rank| value(*rank, index, round)).collect();
        (!values.is_empty()).then(|| T::reduce(reduction, values.into_iter()))
    };
    let partial: Vec<T> = order.iter().filter_map(of_host).collect();
    T::reduce(reduction, partial.into_iter())
}

/// Sums in every group of a rank: sizes around the numbers of ranks, in place and not, plain and symmetric.
fn sums_are_right<T: Sample>(environment: &Environment, hosts: &[usize]) {
    let world = environment.world();
    let (rank, device) = (world.rank(), world.local().device());
    let stream = Stream::new(device).unwrap();
    let mut groups = vec![world];
    groups.extend(Parallelism::ALL.map(|parallelism| environment.group(parallelism)));
    for (round, group) in groups.into_iter().enumerate() {
        for count in [0, 1, 2, 3, 7, 1000, 4097] {
            let values: Vec<T> = (0..count).map(|index| value(rank, index, round)).collect();
            let expected = |index| expected(Reduction::Sum, group.ranks(), hosts, index, round);
            let sums: Vec<T> = (0..count).map(expected).collect();
            let context = (group.name(), rank, count, T::DTYPE);
            let input = DeviceBuffer::<T>::from_slice(&values, &stream).unwrap();
            let output = DeviceBuffer::<T>::new(device, count).unwrap();
            group.all_reduce(&input, &output, &stream).unwrap();
            assert_same(&output.read(&stream).unwrap(), &sums, &context);
            assert_same(&input.read(&stream).unwrap(), &values, &context);
            let symmetric = group.local().symmetric::<T>(count).unwrap();
            symmetric.write(&values, &stream).unwrap();
            group.all_reduce(&symmetric, &symmetric, &stream).unwrap();
            assert_same(&symmetric.read(&stream).unwrap(), &sums, &context);
        }
    }
}

#[test]
fn sums_of_every_type_are_those_of_two_levels() {
    let hosts = [0, 0, 1, 1];
    meet(4, |bootstrap| {
        let environment = Environment::init(config(bootstrap, &hosts, [2, 1, 2])).unwrap();
        sums_are_right::<f32>(&environment, &hosts);
        sums_are_right::<f64>(&environment, &hosts);
        sums_are_right::<f16>(&environment, &hosts);
        sums_are_right::<bf16>(&environment, &hosts);
        sums_are_right::<i8>(&environment, &hosts);
        sums_are_right::<u8>(&environment, &hosts);
        sums_are_right::<i32>(&environment, &hosts);
        sums_are_right::<u32>(&environment, &hosts);
        sums_are_right::<i64>(&environment, &hosts);
        sums_are_right::<u64>(&environment, &hosts);
        sums_are_right::<F8E4M3>(&environment, &hosts);
        sums_are_right::<F8E5M2>(&environment, &hosts);
        environment.close().unwrap();
    });
}

/// More ranks than one host can have: every operation, with a value for each pair of ranks.
#[test]
fn every_operation_of_more_ranks_than_kernels_serve() {
    const WORLD: usize = 18;
    let hosts: Vec<usize> = (0..WORLD).map(|rank| rank / 9).collect();
    meet(WORLD, |bootstrap| {
        let environment = Environment::init(config(bootstrap, &hosts, [WORLD, 1, 1])).unwrap();
        let world = environment.world();
        let (rank, device) = (world.rank(), world.local().device());
        let stream = Stream::new(device).unwrap();
        let of = |from: usize| (0..WORLD).map(|to| (from * 100 + to) as i64).collect::<Vec<_>>();
        let to = |to: usize| (0..WORLD).map(|from| (from * 100 + to) as i64).collect::<Vec<_>>();
        let all = DeviceBuffer::<i64>::from_slice(&of(rank), &stream).unwrap();
        let one = all.borrow().slice(..1).unwrap();
        let output = DeviceBuffer::<i64>::new(device, WORLD).unwrap();
        let part = output.borrow().slice(..1).unwrap();
        let sum = |place: usize| to(place).iter().sum::<i64>();
        world.all_gather(one.clone(), &output, &stream).unwrap();
        assert_eq!(output.read(&stream).unwrap(), to(0));
        world.all_gather_v(one.clone(), &output, &[1; WORLD], &stream).unwrap();
        assert_eq!(output.read(&stream).unwrap(), to(0));
        world.all_to_all(&all, &output, &stream).unwrap();
        assert_eq!(output.read(&stream).unwrap(), to(rank));
        output.write(&[0; WORLD], &stream).unwrap();
        world.all_to_all_v(&all, &[1; WORLD], &output, &[1; WORLD], &stream).unwrap();
        assert_eq!(output.read(&stream).unwrap(), to(rank));
        world.reduce_scatter(&all, part.clone(), Reduction::Sum, &stream).unwrap();
        assert_eq!(part.read(&stream).unwrap(), [sum(rank)]);
        world.reduce_scatter_v(&all, part.clone(), &[1; WORLD], Reduction::Max, &stream).unwrap();
        assert_eq!(part.read(&stream).unwrap(), [(1700 + rank) as i64]);
        world.gather(one.clone(), Some(&output), 17, &stream).unwrap();
        let gathered = output.read(&stream).unwrap();
        assert!(rank != 17 || gathered == to(0), "{gathered:?}");
        world.scatter(Some(&all), part.clone(), 16, &stream).unwrap();
        assert_eq!(part.read(&stream).unwrap(), [(1600 + rank) as i64]);
        world.shift(one.clone(), part.clone(), 1, &stream).unwrap();
        assert_eq!(part.read(&stream).unwrap(), [((rank + WORLD - 1) % WORLD * 100) as i64]);
        world.reduce(&all, Some(&output), Reduction::Sum, 17, &stream).unwrap();
        let reduced = output.read(&stream).unwrap();
        assert!(rank != 17 || reduced == (0..WORLD).map(sum).collect::<Vec<_>>(), "{reduced:?}");
        output.write(&of(rank), &stream).unwrap();
        world.broadcast(&output, 17, &stream).unwrap();
        assert_eq!(output.read(&stream).unwrap(), of(17));
        let messages = world.batch(&stream, |messages| {
            for peer in (0..WORLD).filter(|peer| *peer != rank) {
                messages.send(all.borrow().slice(peer..peer + 1)?, peer);
                messages.receive(output.borrow().slice(peer..peer + 1)?, peer);
            }
            Ok(())
        });
        messages.unwrap();
        let mut received = to(rank);
        received[rank] = (1700 + rank) as i64;
        assert_eq!(output.read(&stream).unwrap(), received);
        world.all_reduce(&all, &output, &stream).unwrap();
        assert_eq!(output.read(&stream).unwrap(), (0..WORLD).map(sum).collect::<Vec<_>>());
        environment.close().unwrap();
    });
}

/// Reductions other than sums: products, minima and maxima over all ranks.
fn other_reductions_are_right<T: Sample>(environment: &Environment, hosts: &[usize]) {
    let world = environment.world();
    let stream = Stream::new(world.local().device()).unwrap();
    for (round, reduction) in [Reduction::Product, Reduction::Min, Reduction::Max].into_iter().enumerate() {
        for count in [0, 1, 7, 1001] {
            let values: Vec<T> = (0..count).map(|index| value(world.rank(), index, round)).collect();
            let expected = |index| expected(reduction, world.ranks(), hosts, index, round);
            let results: Vec<T> = (0..count).map(expected).collect();
            let buffer = DeviceBuffer::<T>::from_slice(&values, &stream).unwrap();
            world.all_reduce_with(reduction, &buffer, &buffer, &stream).unwrap();
            assert_same(&buffer.read(&stream).unwrap(), &results, &(reduction, world.rank(), count, T::DTYPE));
        }
    }
}

#[test]
fn products_minima_and_maxima_of_every_type() {
    for hosts in [[0, 1, 0, 1], [0, 1, 1, 2]] {
        meet(4, |bootstrap| {
            let environment = Environment::init(config(bootstrap, &hosts, [4, 1, 1])).unwrap();
            other_reductions_are_right::<f32>(&environment, &hosts);
            other_reductions_are_right::<f64>(&environment, &hosts);
            other_reductions_are_right::<f16>(&environment, &hosts);
            other_reductions_are_right::<bf16>(&environment, &hosts);
            other_reductions_are_right::<i8>(&environment, &hosts);
            other_reductions_are_right::<u8>(&environment, &hosts);
            other_reductions_are_right::<i32>(&environment, &hosts);
            other_reductions_are_right::<u32>(&environment, &hosts);
            other_reductions_are_right::<i64>(&environment, &hosts);
            other_reductions_are_right::<u64>(&environment, &hosts);
            other_reductions_are_right::<F8E4M3>(&environment, &hosts);
            other_reductions_are_right::<F8E5M2>(&environment, &hosts);
            environment.close().unwrap();
        });
    }
}

/// Each rank makes its own call; both fail, and name each other.
fn disagree(hosts: &[usize], call: impl Fn(&Environment, usize) -> symmetra::Result<()> + Sync) {
    let outcomes = meet(hosts.len(), |bootstrap| {
        let rank = bootstrap.rank();
        let mut config = config(bootstrap, hosts, [hosts.len(), 1, 1]);
        config.communicator = small(5);
        let environment = Environment::init(config).unwrap();
        let outcome = call(&environment, rank);
        assert_eq!(environment.world().check(), outcome, "it stays so");
        outcome
    });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.unwrap_err();
        let named =
            matches!(&error, Error::Mismatch { against, rank: other, .. } if against == &rank && *other != rank);
        assert!(named, "{rank}: {error:?}");
    }
}

#[test]
fn pitfall_04_hosts_that_call_differently() {
    let _alone = alone();
    bounded(Duration::from_secs(100), || {
        let reduce = |environment: &Environment, elems: usize, reduction: Reduction| {
            let stream = Stream::new(environment.world().local().device()).unwrap();
            let buffer = DeviceBuffer::<f32>::from_slice(&vec![1.0; elems], &stream).unwrap();
            environment.world().all_reduce_with(reduction, &buffer, &buffer, &stream)
        };
        for lengths in [[100, 200], [200, 100], [4, 100_000], [0, 3]] {
            disagree(&[0, 1], |environment, rank| reduce(environment, lengths[rank], Reduction::Sum));
        }
        disagree(&[0, 0, 1, 1], |environment, rank| reduce(environment, 100 + rank / 2, Reduction::Sum));
        disagree(&[0, 0, 1], |environment, rank| reduce(environment, 100 + rank / 2, Reduction::Sum));
        disagree(&[0, 1], |environment, rank| reduce(environment, 9, [Reduction::Sum, Reduction::Max][rank]));
        // Averages go another way than sums, on the same host and on others.
        for hosts in [&[0, 1][..], &[0, 0, 1, 1], &[0, 0, 1], &[0, 1, 1]] {
            for which in 0..hosts.len() {
                disagree(hosts, |environment, rank| {
                    let reduction = if rank == which { Reduction::Average } else { Reduction::Sum };
                    let outcome = reduce(environment, 9, reduction);
                    let words = outcome.clone().unwrap_err().to_string();
                    assert!(words.contains("all-reduce (avg)") && words.contains("all-reduce (sum)"), "{words}");
                    outcome
                });
            }
        }
        disagree(&[0, 1], |environment, rank| match rank {
            0 => environment.world().barrier(),
            _ => reduce(environment, 9, Reduction::Sum),
        });
    });
}

#[test]
fn any_spread_of_ranks_over_hosts() {
    for (hosts, sizes) in [
        (vec![0, 0, 0, 1, 1, 1], [3, 1, 2]),
        (vec![0, 0, 1], [1, 1, 3]),
        (vec![0, 1, 0, 1], [2, 1, 2]),
        (vec![0, 1, 2], [3, 1, 1]),
        (vec![2, 0, 0, 1, 2, 1, 1], [7, 1, 1]),
    ] {
        meet(hosts.len(), |bootstrap| {
            let environment = Environment::init(config(bootstrap, &hosts, sizes)).unwrap();
            sums_are_right::<f32>(&environment, &hosts);
            sums_are_right::<bf16>(&environment, &hosts);
            environment.close().unwrap();
        });
    }
}

#[test]
fn ranks_know_their_hosts_and_backends() {
    meet(4, |bootstrap| {
        let rank = bootstrap.rank();
        let environment = Environment::init(config(bootstrap, &[0, 0, 1, 1], [2, 1, 2])).unwrap();
        let hosts = environment.hosts();
        assert_eq!((hosts.count(), hosts.node_rank(rank), hosts.local_rank(rank)), (2, Some(rank / 2), Some(rank % 2)));
        assert_eq!(environment.tp().communicator().unwrap().world_size(), 2);
        let refused = environment.dp().communicator().unwrap_err().to_string();
        assert!(refused.contains("its ranks are on 2 hosts, host-0 (1 ranks), host-1 (1 ranks)"), "{refused}");
        let lines = |group: &symmetra::environment::Coordinator| {
            group.explain().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let everything = "own: every operation and type, any size; in graphs every operation and type, any size";
        assert_eq!(lines(environment.tp()).lines().nth(1), Some(everything));
        let world = lines(environment.world());
        let places = "2 hosts, host-0 (2 ranks), host-1 (2 ranks)";
        assert!(world.contains(&format!("own: refuses: its ranks are on {places}")), "{world}");
        assert!(world.contains("host: every operation and type, any size; refuses: it blocks the caller"), "{world}");
        let local = environment.settings().iter().find(|setting| setting.name == "local_rank").unwrap();
        assert_eq!(local.value, (rank % 2).to_string());
        environment.close().unwrap();
    });
}

#[test]
fn objects_and_barriers_cross_hosts() {
    for hosts in [vec![0, 0, 1, 1], vec![0, 1, 0, 0]] {
        meet(4, |bootstrap| {
            let rank = bootstrap.rank();
            let environment = Environment::init(config(bootstrap, &hosts, [4, 1, 1])).unwrap();
            let world = environment.world();
            let sent = vec![("layer".to_owned(), 3), (String::new(), 7)];
            assert_eq!(world.broadcast_object((rank == 3).then_some(&sent), 3).unwrap(), sent);
            let gathered = world.gather_object(&(rank, "x".repeat(100 * rank)), 1).unwrap();
            let all = (0..4).map(|rank| (rank, "x".repeat(100 * rank))).collect::<Vec<_>>();
            assert_eq!(gathered, (rank == 1).then_some(all));
            world.barrier().unwrap();
            environment.close().unwrap();
        });
    }
}

/// Each object is within the limit; together they exceed the bytes that ranks of a host send each other at once.
#[test]
fn large_objects_of_all_ranks_cross_hosts() {
    meet(3, |bootstrap| {
        let rank = bootstrap.rank();
        let environment = Environment::init(config(bootstrap, &[0, 0, 1], [3, 1, 1])).unwrap();
        let object = |rank: usize| char::from(b'a' + rank as u8).to_string().repeat((22 << 20) + rank);
        let gathered = environment.world().gather_object(&object(rank), 1).unwrap();
        assert!(gathered == (rank == 1).then(|| (0..3).map(object).collect::<Vec<_>>()), "rank {rank}");
        environment.close().unwrap();
    });
}

#[test]
fn what_cannot_cross_is_refused_and_changes_nothing() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, &[0, 1], [2, 1, 1])).unwrap();
        let (tp, device) = (environment.tp(), environment.world().local().device());
        let stream = Stream::new(device).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 5], &stream).unwrap();
        let short = DeviceBuffer::<f32>::new(device, 4).unwrap();
        let captured = stream.capture(|capture| tp.all_reduce(&buffer, &buffer, capture)).map(drop).unwrap_err();
        assert!(matches!(captured, Error::Unsupported { .. }), "{captured}");
        let unequal = tp.all_reduce(&buffer, &short, &stream).unwrap_err();
        assert!(unequal.to_string().contains("the output's length is 4, but the input has 5"), "{unequal}");
        tp.all_reduce(&buffer, &buffer, &stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [2.0; 5]);
        environment.close().unwrap();
    });
}

#[test]
fn pitfall_01_a_rank_that_leaves_is_named_on_every_host() {
    let _alone = alone();
    bounded(Duration::from_secs(100), || {
        for hosts in [vec![0, 0, 1, 1], vec![0, 1, 1]] {
            let start = Instant::now();
            // A rank that leaves while another is in the last step of the first sum would already be missed there.
            let summed = Gate::new(hosts.len());
            let outcomes = meet(hosts.len(), |bootstrap| {
                let rank = bootstrap.rank();
                let environment = Environment::init(config(bootstrap, &hosts, [hosts.len(), 1, 1])).unwrap();
                let tp = environment.tp().clone();
                let stream = Stream::new(tp.local().device()).unwrap();
                let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 100], &stream).unwrap();
                tp.all_reduce(&buffer, &buffer, &stream).unwrap();
                summed.pass();
                if rank + 1 == hosts.len() {
                    drop((tp, environment));
                    return None;
                }
                let error = tp.all_reduce(&buffer, &buffer, &stream).unwrap_err();
                assert_eq!(tp.all_reduce(&buffer, &buffer, &stream), Err(error.clone()), "it stays so");
                assert_eq!(environment.world().barrier(), Err(error.clone()));
                assert_eq!(environment.close(), Err(error.clone()));
                Some(error)
            });
            for error in outcomes.into_iter().flatten() {
                assert!(matches!(error, Error::PeerLost { rank, .. } if rank + 1 == hosts.len()), "{error:?}");
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        }
    });
}

/// The last rank comes too late for a sum or for an exchange of objects.
#[test]
fn a_timeout_between_hosts_names_the_operation_the_time_and_the_late_rank() {
    let _alone = alone();
    type Call = fn(&Coordinator, &DeviceBuffer<f32>, &Stream) -> symmetra::Result<()>;
    let sum: Call = |group, buffer, stream| group.all_reduce(buffer, buffer, stream);
    let objects: Call = |group, _, _| group.barrier();
    let [steady, open] = [1500, 4000].map(Duration::from_millis);
    let report = Duration::from_millis(250);
    let calls = [(sum, Operation::AllReduce, 1, steady), (objects, Operation::Exchange, 0, open - report)];
    let worlds = [vec![0, 1, 2], vec![0, 0, 1], vec![0, 0, 1, 1]];
    for (hosts, (call, operation, sequence, limit)) in
        worlds.into_iter().flat_map(|hosts| calls.map(|call| (hosts.clone(), call)))
    {
        let gave_up = Gate::new(hosts.len());
        let errors = meet(hosts.len(), |bootstrap| {
            let late = bootstrap.rank() + 1 == hosts.len();
            let mut config = config(bootstrap, &hosts, [hosts.len(), 1, 1]);
            let deadlines = Deadlines::default().open(open).first_use(Duration::from_secs(60)).steady(steady);
            config.communicator.deadlines = deadlines;
            let environment = Environment::init(config).unwrap();
            let tp = environment.tp();
            let stream = Stream::new(tp.device()).unwrap();
            let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 100], &stream).unwrap();
            sum(tp, &buffer, &stream).unwrap();
            if late {
                gave_up.pass();
            }
            let error = call(tp, &buffer, &stream).unwrap_err();
            if !late {
                gave_up.pass();
            }
            assert_eq!(call(tp, &buffer, &stream), Err(error.clone()), "the failure stays");
            error
        });
        let last = hosts.len() - 1;
        for (rank, error) in errors.iter().enumerate() {
            let words = error.to_string();
            match error {
                Error::Timeout { operation: found, sequence: number, rank: named, waited, .. } if rank != last => {
                    assert_eq!((*found, *number, *named), (operation, sequence, Some(last)), "{words}");
                    assert!((limit - report..limit + report).contains(waited), "{words}");
                    assert!(words.contains("in group "), "{words}");
                }
                Error::Aborted { detail } if rank == last => {
                    assert!(detail.contains("had waited too long for this one"), "{words}");
                }
                _ => panic!("rank {rank}: {error:?}"),
            }
        }
        // Objects go between the first ranks of hosts alone: there the late rank's own host gives up first.
        let host = format!(" on host host-{}", hosts[last]);
        let elsewhere = operation == Operation::AllReduce || hosts[last - 1] != hosts[last];
        assert!(!elsewhere || errors.iter().any(|error| error.to_string().contains(&host)), "{errors:?}");
    }
}

#[test]
fn pitfall_03_a_group_that_is_aborted_ends_on_every_host_with_the_reason() {
    let _alone = alone();
    for hosts in [vec![0, 0, 1, 1], vec![0, 1, 1]] {
        let ready = Gate::new(hosts.len());
        meet(hosts.len(), |bootstrap| {
            let environment = Environment::init(config(bootstrap, &hosts, [hosts.len(), 1, 1])).unwrap();
            let tp = environment.tp();
            let stream = Stream::new(tp.device()).unwrap();
            let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 100], &stream).unwrap();
            ready.pass();
            let who = if tp.rank() == 1 {
                tp.abort("the engine is told to stop");
                "this rank"
            } else {
                "rank 1"
            };
            let error = Error::Aborted { detail: format!(": by {who}: the engine is told to stop; in group world") };
            let same = |result: symmetra::Result<()>| assert_eq!(result, Err(error.clone()));
            same(tp.all_reduce(&buffer, &buffer, &stream));
            same(tp.barrier());
            if tp.rank() == 1 {
                // The ranks of this host have numbers of their own, and no name.
                let local = tp.local().synchronize(&stream).unwrap_err();
                assert_eq!(local.to_string() + "; in group world", error.to_string());
            }
            same(environment.close());
        });
    }
}

#[test]
fn groups_that_are_well_outlive_one_that_failed_elsewhere() {
    let _alone = alone();
    // Ranks meet as threads, or through the lowest rank, which is of the group that fails or is not.
    for (star, failing) in [(false, 0), (true, 0), (true, 1)] {
        let directory = tempfile::tempdir().unwrap();
        let path = star.then(|| directory.path().join("world"));
        bounded(Duration::from_secs(100), move || one_group_fails(path.as_deref(), failing));
    }
}

/// Of the data parallel groups of ranks 0 and 2, and 1 and 3.
fn one_group_fails(path: Option<&Path>, failing: usize) {
    let failed = Gate::new(4);
    let outcomes = meet(4, |bootstrap| {
        let rank = bootstrap.rank();
        let mut config = config(bootstrap, &[0, 0, 1, 1], [2, 1, 2]);
        if let Some(path) = path {
            let limit = Instant::now() + Duration::from_secs(60);
            config.init_method = InitMethod::bootstrap(Local::connect(path, rank, 4, limit).unwrap());
        }
        let environment = Environment::init(config).unwrap();
        let dp = environment.dp();
        let stream = Stream::new(dp.local().device()).unwrap();
        let sum = |elems: usize| {
            let buffer = DeviceBuffer::<f32>::from_slice(&vec![1.0; elems], &stream).unwrap();
            dp.all_reduce(&buffer, &buffer, &stream)?;
            assert_eq!(buffer.read(&stream).unwrap(), vec![2.0; elems]);
            Ok(())
        };
        let outcome = sum(if rank == failing { 100 } else { 200 });
        failed.pass();
        if outcome.is_ok() {
            sum(300).unwrap();
        }
        assert_eq!(environment.close(), outcome, "rank {rank}");
        outcome
    });
    for (rank, outcome) in outcomes.iter().enumerate() {
        let differed = matches!(outcome, Err(Error::Mismatch { .. }));
        assert_eq!((differed, outcome.is_ok()), (rank % 2 == failing, rank % 2 != failing), "rank {rank}: {outcome:?}");
    }
}

#[test]
fn pitfall_04_a_rank_that_does_not_call_is_waited_for_until_the_deadline() {
    let _alone = alone();
    bounded(Duration::from_secs(60), || {
        let outcomes = meet(2, |bootstrap| {
            let rank = bootstrap.rank();
            let mut config = config(bootstrap, &[0, 1], [2, 1, 1]);
            config.communicator = small(1);
            let environment = Environment::init(config).unwrap();
            let stream = Stream::new(environment.world().local().device()).unwrap();
            let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 100], &stream).unwrap();
            if rank == 1 {
                std::thread::sleep(Duration::from_secs(6));
                return None;
            }
            let start = Instant::now();
            let error = environment.tp().all_reduce(&buffer, &buffer, &stream).unwrap_err();
            Some((error, start.elapsed()))
        });
        for (error, waited) in outcomes.into_iter().flatten() {
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            assert!(waited < Duration::from_secs(5), "{waited:?}");
        }
    });
}

/// Meets the others until the first group is connected, whose backends are next; then `halt` returns the error.
struct Halting<F> {
    inner: Box<dyn Bootstrap>,
    connecting: bool,
    halt: F,
}

impl<F: FnMut() -> Error + Send> Bootstrap for Halting<F> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn world_size(&self) -> usize {
        self.inner.world_size()
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> symmetra::Result<Vec<Vec<u8>>> {
        let all = self.inner.all_gather(bytes, deadline)?;
        // Ranks exchange cards with addresses first, and then the outcome.
        let told = String::from_utf8_lossy(bytes).contains("to connect hosts");
        if std::mem::replace(&mut self.connecting, told) { Err((self.halt)()) } else { Ok(all) }
    }
}

/// The errors with which an environment does not open where rank 1 halts so, for as long as the others try or at once.
fn opened_without_rank_1(hosts: &[usize], open: Duration, stays: bool) -> Vec<Error> {
    let trying = Arc::new(AtomicUsize::new(hosts.len() - 1));
    meet(hosts.len(), |bootstrap| {
        let halts = bootstrap.rank() == 1;
        let mut config = config(bootstrap, hosts, [hosts.len(), 1, 1]);
        config.communicator.deadlines.open = open;
        if halts {
            let method = std::mem::replace(&mut config.init_method, InitMethod::Env);
            let InitMethod::Bootstrap(inner) = method else { panic!("it is one") };
            let trying = trying.clone();
            let halt = move || {
                until(Duration::from_secs(60), "the others give up", || !stays || trying.load(Ordering::Relaxed) == 0);
                Error::Bootstrap { message: "halted".to_owned() }
            };
            config.init_method = InitMethod::bootstrap(Halting { inner, connecting: false, halt });
        }
        let error = Environment::init(config).unwrap_err();
        trying.fetch_sub(usize::from(!halts), Ordering::Relaxed);
        error
    })
}

#[test]
fn pitfall_01_a_rank_that_stops_while_groups_open_is_waited_for_until_the_deadline() {
    let _alone = alone();
    bounded(Duration::from_secs(100), || {
        let start = Instant::now();
        let errors = opened_without_rank_1(&[0, 1, 2], Duration::from_secs(4), true);
        for error in [&errors[0], &errors[2]] {
            // A rank that gives up late finds its connections broken.
            assert!(matches!(error, Error::Timeout { .. } | Error::Bootstrap { .. }), "{errors:?}");
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    });
}

#[test]
fn pitfall_01_a_rank_that_leaves_while_groups_open_is_named_on_every_host() {
    let _alone = alone();
    bounded(Duration::from_secs(100), || {
        for hosts in [vec![0, 1], vec![0, 1, 1, 0]] {
            let errors = opened_without_rank_1(&hosts, Duration::from_secs(60), false);
            for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 1) {
                assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "rank {rank}: {error:?}");
            }
        }
    });
}

#[test]
fn pitfall_05_an_interface_that_one_rank_does_not_have() {
    let errors = meet(3, |bootstrap| {
        let rank = bootstrap.rank();
        let mut config = config(bootstrap, &[0, 0, 1], [3, 1, 1]);
        if rank == 1 {
            config.interface = Some("no-such-interface".to_owned());
        }
        Environment::init(config).unwrap_err()
    });
    for (rank, error) in errors.iter().enumerate() {
        let words = error.to_string();
        assert!(words.contains("the interface is `no-such-interface`"), "rank {rank}: {words}");
        assert_eq!(matches!(error, Error::Peer { rank: 1, .. }), rank != 1, "{error:?}");
    }
}

#[test]
fn opens_and_closes_again_in_one_process() {
    for _ in 0..3 {
        meet(4, |bootstrap| {
            let environment = Environment::init(config(bootstrap, &[0, 0, 1, 1], [2, 2, 1])).unwrap();
            sums_are_right::<i32>(&environment, &[0, 0, 1, 1]);
            let tp = environment.tp().clone();
            environment.close().unwrap();
            assert_eq!(tp.local().group().check(), Err(Error::Closed));
        });
    }
}
