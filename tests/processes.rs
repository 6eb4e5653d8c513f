//! Ranks as processes: the same results as threads, and what happens when one is killed, stopped or
//! crashed before.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "processes/containers.rs"]
mod containers;
#[path = "processes/killed.rs"]
mod killed;
#[path = "processes/looked.rs"]
mod looked;
#[path = "processes/observed.rs"]
mod observed;
#[path = "processes/parted.rs"]
mod parted;
mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use half::bf16;
use rustix::process::Signal;
use symmetra::{
    Algorithm, Codec, Communicator, Config, DeviceBuffer, Error, Ref, Result, RmsNorm, RowNorm, Stream, SymmetricBuffer,
};

use support::batch::{Bench, MOST, ROOM, batches};
use support::data::{Random, shuffle};
use support::process::{Child, Ranks, Said, permuted_gpus, this, within_a_second};
use support::system::is_mapped;
use support::world::bounded;
use support::{Data, Rank, Sample, config, fits, is_host};

const LIMIT: Duration = Duration::from_secs(120);
const STEADY: Duration = Duration::from_secs(1);

/// Every algorithm, memory and kind of call for one type, as the threads run it. Returns the memory that peers have mapped.
fn results<T: Sample>(rank: &Rank) -> [DeviceBuffer<T>; 2] {
    let seed = 33 + T::DTYPE as u64;
    let mut random = Random(seed);
    let mut calls = Vec::new();
    for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Auto]).filter(|algorithm| algorithm.carries(T::DTYPE))
    {
        calls.extend([0, 1, 2, 3, 63, 64, 65, 257, 1000].map(|count| (algorithm, count)));
        calls.extend((0..6).map(|_| (algorithm, random.below(if algorithm.needs_reach() { MOST } else { 700 }))));
    }
    shuffle(seed, &mut calls);
    let data = Data::new(seed, rank.world(), ROOM);
    let bench = Bench::<T>::new(rank, &data);
    // Graphs do not register plain memory of the host between processes, because its owner is unknown.
    batches(seed, !is_host(), &calls).iter().for_each(|batch| bench.check(batch));
    bench.plain()
}

fn every_result(child: &Child) {
    let mut config = config();
    config.one_shot_ll_bytes = 1030;
    config.one_shot_sentinel_bytes = Some(2050);
    let rank = child.open(&config);
    let mapped = (results::<f32>(&rank), results::<bf16>(&rank), results::<i64>(&rank));
    rank.communicator.close().unwrap();
    drop(mapped);
}

/// Runs `part` in every rank of a world to its good end.
fn run(test: &str, world: usize, part: impl Fn(&Child)) {
    if let Some(child) = this() {
        return bounded(LIMIT, || part(&child));
    }
    if fits(world) {
        let _alone = support::world::alone();
        let ranks = Ranks::start(test, world, "");
        let everyone: Vec<usize> = (0..world).collect();
        let temporary = ranks.directory().join("tmp");
        ranks.expect(&everyone, "done");
        assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0, "files are left");
        ranks.finish(&everyone);
    }
}

#[test]
fn pitfall_33_two_processes_give_what_threads_give() {
    run("pitfall_33_two_processes_give_what_threads_give", 2, |child| {
        every_result(child);
        child.say("done");
    });
}

#[test]
fn pitfall_33_five_processes_give_what_threads_give() {
    run("pitfall_33_five_processes_give_what_threads_give", 5, |child| {
        every_result(child);
        child.say("done");
    });
}

/// Memory of the plain allocator is shared between processes, from the middle of an allocation too.
#[test]
fn pitfall_14_plain_memory_is_shared_between_processes() {
    run("pitfall_14_plain_memory_is_shared_between_processes", 3, |child| {
        let rank = child.open(&config());
        let Rank { communicator, stream, .. } = &rank;
        let start = 1000 + 16 * child.rank;
        let plain = DeviceBuffer::from_slice(&vec![1.0f32; 40_000], stream).unwrap();
        let part = plain.borrow().slice(start..start + 30_000).unwrap();
        // SAFETY: dropped when every rank has closed.
        let adopted = unsafe { communicator.adopt(part) }.unwrap();
        assert!(adopted.is_shared());
        communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &adopted, &adopted, stream).unwrap();
        communicator.all_reduce_in_place(&adopted, stream).unwrap();
        let graph = stream.capture(|capture| communicator.all_reduce_in_place(&adopted, capture)).unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        let values = plain.read(stream).unwrap();
        assert!(values[start..start + 30_000].iter().all(|value| *value == 27.0));
        assert!(values[..start].iter().chain(&values[start + 30_000..]).all(|value| *value == 1.0));
        drop(graph);
        drop(adopted);
        communicator.clone().close().unwrap();
        child.say("done");
    });
}

#[test]
fn pitfall_16_memory_stays_as_long_as_other_processes_have_it_mapped() {
    run("pitfall_16_memory_stays_as_long_as_other_processes_have_it_mapped", 2, |child| {
        let rank = child.open(&config());
        let Rank { communicator, stream, .. } = &rank;
        let mut addresses = BTreeSet::new();
        for _ in 0..12 {
            let buffer = DeviceBuffer::from_slice(&[1.0f32; 1 << 16], stream).unwrap();
            let address = buffer.as_raw() as usize;
            addresses.insert(address);
            // SAFETY: a buffer's memory stays while peers can reach it.
            let adopted = unsafe { communicator.adopt(buffer.borrow()) }.unwrap();
            communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &adopted, &adopted, stream).unwrap();
            rank.finish();
            drop(adopted);
            drop(buffer);
            assert!(!is_host() || is_mapped(address), "freed, though the peer has it mapped");
        }
        let mapped = || addresses.iter().filter(|address| is_mapped(**address)).count();
        // The last is known to be of no use when the ranks speak next.
        assert!(mapped() <= 2, "{} of 12 are kept", mapped());
        rank.communicator.close().unwrap();
        assert_eq!(mapped(), 0, "not given back when the group was closed");
        child.say("done");
    });
}

/// A rank that leaves without closing, and a rank whose close fails for this reason, do not know which memory the other
/// rank still writes to.
#[test]
fn pitfall_02_16_memory_that_others_have_mapped_outlives_a_group_that_was_not_closed() {
    run("pitfall_02_16_memory_that_others_have_mapped_outlives_a_group_that_was_not_closed", 2, |child| {
        let Rank { communicator, stream, .. } = child.open(&config());
        let buffer = DeviceBuffer::from_slice(&[1.0f32; 1 << 16], &stream).unwrap();
        let address = buffer.as_raw() as usize;
        // SAFETY: a buffer's memory stays while peers can reach it.
        let adopted = unsafe { communicator.adopt(buffer.borrow()) }.unwrap();
        assert!(adopted.is_shared());
        drop(adopted);
        drop(buffer);
        match child.rank {
            0 => assert!(matches!(communicator.close(), Err(Error::PeerLost { rank: 1, .. }))),
            _ => drop(communicator),
        }
        assert!(!is_host() || is_mapped(address), "freed, though the peer may have it mapped");
        child.say("done");
    });
}

/// Processes that all drop their communicators after finished work, in any order, end without an error.
#[test]
fn processes_that_drop_after_finished_work_are_not_lost() {
    let world = if is_host() { 3 } else { 2 };
    run("processes_that_drop_after_finished_work_are_not_lost", world, |child| {
        let mut config = config();
        config.heap_bytes = 1 << 20;
        for round in 0..25 {
            let bootstrap = child.meet(&format!("round {round}"), child.rank, child.world).unwrap();
            let Rank { communicator, stream, .. } = support::world::open(bootstrap, &config).unwrap();
            let buffer = communicator.symmetric::<i32>(1000).unwrap();
            buffer.write(&[1; 1000], &stream).unwrap();
            communicator.group().barrier().unwrap();
            for _ in 0..4 {
                communicator.all_reduce_in_place(&buffer, &stream).unwrap();
            }
            std::thread::sleep(Duration::from_micros(((child.rank * 37 + round * 11) % 50) as u64 * 20));
            communicator.synchronize(&stream).unwrap();
            assert_eq!(buffer.read(&stream).unwrap(), vec![(world as i32).pow(4); 1000], "round {round}");
        }
        child.say("done");
    });
}

/// Memory that is mapped by address ranges, here that of symmetric buffers, is shared between processes by its pieces of
/// physical memory.
#[test]
fn memory_mapped_by_address_ranges_is_shared_between_processes() {
    run("memory_mapped_by_address_ranges_is_shared_between_processes", 2, |child| {
        let rank = child.open(&config());
        let Rank { communicator, stream, device } = &rank;
        let buffer = communicator.symmetric::<f32>(40_000).unwrap();
        for round in 0..3 {
            buffer.write(&vec![1.0; 40_000], stream).unwrap();
            communicator.group().barrier().unwrap();
            let start = 1000 + 16 * child.rank;
            // SAFETY: the buffer lives until every rank has closed.
            let memory = unsafe { Ref::from_raw(device, buffer.as_raw().wrapping_add(start), 30_000) }.unwrap();
            // SAFETY: as above.
            let adopted = unsafe { communicator.adopt(memory) }.unwrap();
            assert!(adopted.is_shared(), "round {round}");
            communicator.all_reduce_in_place(&adopted, stream).unwrap();
            communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &adopted, &adopted, stream).unwrap();
            rank.finish();
            let values = buffer.read(stream).unwrap();
            assert!(values[start..start + 30_000].iter().all(|value| *value == 4.0), "round {round}");
            assert!(values[..start].iter().chain(&values[start + 30_000..]).all(|value| *value == 1.0));
        }
        communicator.clone().close().unwrap();
        child.say("done");
    });
}

/// Memory that cannot be shared between processes is staged, and never exported blindly.
#[test]
fn pitfall_13_memory_of_the_program_is_staged() {
    run("pitfall_13_memory_of_the_program_is_staged", 2, |child| {
        let rank = child.open(&config());
        let Rank { communicator, stream, device } = &rank;
        if is_host() {
            let mut ours = vec![1.0f32; 30_000];
            // SAFETY: `ours` is not touched by Rust until the calls are done.
            let memory = unsafe { Ref::from_raw(device, ours.as_mut_ptr(), ours.len()) }.unwrap();
            // SAFETY: memory of the program is not shared, so no peer addresses it.
            let adopted = unsafe { communicator.adopt(memory) }.unwrap();
            assert!(!adopted.is_shared());
            communicator.all_reduce_in_place(&adopted, stream).unwrap();
            let refused = communicator.all_reduce_with(Algorithm::TwoShotZeroCopy, &adopted, &adopted, stream);
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
            rank.finish();
            drop(adopted);
            assert_eq!(ours, vec![2.0; 30_000]);
        }
        let plain = DeviceBuffer::from_slice(&vec![2.0f32; 30_000], stream).unwrap();
        let graph = stream.capture(|capture| communicator.all_reduce_in_place(&plain, capture)).unwrap();
        graph.register().unwrap();
        graph.launch(stream).unwrap();
        rank.finish();
        assert_eq!(plain.read(stream).unwrap(), vec![4.0; 30_000]);
        drop(graph);
        communicator.clone().close().unwrap();
        child.say("done");
    });
}

/// Every rank sees the GPUs in another order.
#[test]
fn pitfall_18_devices_are_known_by_more_than_their_number() {
    const NAME: &str = "pitfall_18_devices_are_known_by_more_than_their_number";
    if let Some(child) = this() {
        return bounded(LIMIT, || every_result(&child));
    }
    if is_host() {
        eprintln!("skipped: there is one host");
    } else if fits(2) {
        let _alone = support::world::alone();
        let directory = tempfile::Builder::new().prefix("ranks-").tempdir().unwrap();
        Ranks::start_in(directory, NAME, 2, "", permuted_gpus).finish(&[0, 1]);
    }
}

/// Waits short once the group works.
fn short() -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config.deadlines.steady = STEADY;
    config
}

/// Runs a rank until it learns that another rank is gone.
fn until_lost(child: &Child, victim: bool) -> Error {
    let mut config = short();
    // Death is noticed, not waited for.
    config.deadlines.steady = Duration::from_secs(60);
    let sleep = || std::thread::sleep(Duration::from_secs(3600));
    let bootstrap = child.meet("all", child.rank, child.world).unwrap();
    if child.part == "before open" {
        child.say("ready");
        if victim {
            sleep();
        }
    }
    if child.part == "during open" {
        child.say("ready");
    }
    let rank = match support::world::open(bootstrap, &config) {
        Ok(rank) => rank,
        Err(error) => return error,
    };
    let Rank { communicator, stream, .. } = &rank;
    let buffer = match communicator.symmetric::<i64>(3000) {
        Ok(buffer) => buffer,
        Err(error) => return error,
    };
    let plain = DeviceBuffer::from_slice(&vec![1i64; 3000], stream).unwrap();
    match child.part.as_str() {
        "capture" => {
            let graph = stream.capture(|capture| {
                if victim {
                    child.say("ready");
                    sleep();
                }
                communicator.all_reduce_in_place(&plain, capture)
            });
            child.say("ready");
            graph.unwrap().register().unwrap_err()
        }
        "close" => {
            communicator.all_reduce_in_place(&buffer, stream).unwrap();
            rank.finish();
            child.say("ready");
            if victim {
                sleep();
            }
            communicator.clone().close().unwrap_err()
        }
        "replay" => {
            let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
            until_error(child, &rank, || graph.launch(stream))
        }
        "pairs" => until_error(child, &rank, || {
            communicator.pairs(stream, |messages| {
                messages.send(&plain, (child.rank + 1) % child.world)?;
                messages.receive(&buffer, (child.rank + child.world - 1) % child.world)
            })
        }),
        _ => until_error(child, &rank, || communicator.all_reduce_in_place(&buffer, stream)),
    }
}

/// Makes calls without end; some are enqueued before the device has finished earlier ones.
fn until_error(child: &Child, rank: &Rank, call: impl Fn() -> symmetra::Result<()>) -> Error {
    if child.part != "during open" {
        child.say("ready");
    }
    for number in 0.. {
        let result = call().and_then(|()| match number % 7 {
            0 => rank.communicator.synchronize(&rank.stream),
            _ => Ok(()),
        });
        if let Err(error) = result {
            return error;
        }
    }
    unreachable!()
}

/// A rank is killed; the survivors learn of the death and go on together. Returns the time of the slowest rank.
fn killed(test: &str, part: &str, victim: usize, delay: Duration) -> Duration {
    const WORLD: usize = 3;
    let _alone = support::world::alone();
    let mut ranks = Ranks::start(test, WORLD, &format!("{victim}:{part}"));
    let everyone: Vec<usize> = (0..WORLD).collect();
    let survivors: Vec<usize> = everyone.iter().copied().filter(|rank| *rank != victim).collect();
    ranks.expect(&everyone, "ready");
    std::thread::sleep(delay);
    let death = Instant::now();
    ranks.signal(victim, Signal::KILL);
    let said: Vec<Said> = survivors.iter().map(|rank| ranks.hear(*rank)).collect();
    let words: Vec<&str> = said.iter().map(|said| said.words.as_str()).collect();
    let gone = format!("rank {victim} is gone");
    assert!(words.iter().all(|words| words.starts_with(&gone)), "{part}: not all say that {gone}: {words:#?}");
    ranks.tell(&survivors, "again");
    ranks.expect(&survivors, "reduced");
    assert_eq!(std::fs::read_dir(ranks.directory().join("tmp")).unwrap().count(), 0, "{part}: files are left");
    ranks.finish(&survivors);
    said.iter().map(|said| said.at.duration_since(death)).max().unwrap()
}

/// A rank of a test with a killed rank.
fn mortal(child: &mut Child) {
    let (victim, part) =
        child.part.split_once(':').map(|(victim, part)| (victim.parse().unwrap(), part.to_owned())).unwrap();
    child.part = part;
    let error = until_lost(child, child.rank == victim);
    child.say(&error.to_string());
    assert!(matches!(error, Error::PeerLost { .. }), "{error:?}");
    assert_eq!(child.hear(), "again");
    let rank = child.rank - usize::from(child.rank > victim);
    reduce_among(child, "again", rank, child.world - 1);
    child.say("reduced");
}

/// A new group of some of the processes works.
fn reduce_among(child: &Child, name: &str, rank: usize, world: usize) {
    let bootstrap = child.meet(name, rank, world).unwrap();
    // The GPU belongs to the process, at any new rank.
    let device = support::device::device(child.rank);
    let stream = symmetra::Stream::new(&device).unwrap();
    let communicator = Communicator::open(bootstrap, &device, config()).unwrap();
    let buffer: SymmetricBuffer<i32> = communicator.symmetric(5000).unwrap();
    buffer.write(&vec![rank as i32 + 1; 5000], &stream).unwrap();
    communicator.all_reduce_in_place(&buffer, &stream).unwrap();
    let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
    graph.launch(&stream).unwrap();
    communicator.synchronize(&stream).unwrap();
    let sum = (world * (world + 1) / 2 * world) as i32;
    assert_eq!(buffer.read(&stream).unwrap(), vec![sum; 5000]);
    drop(graph);
    drop(buffer);
    communicator.close().unwrap();
}

macro_rules! killed {
    ($($name:ident: $part:expr, $victim:expr, $delays_ms:expr;)*) => {$(
        #[test]
        fn $name() {
            if let Some(mut child) = this() {
                return bounded(LIMIT, || mortal(&mut child));
            }
            if fits(3) {
                for delay_ms in $delays_ms {
                    let (name, delay) = (stringify!($name), Duration::from_millis(delay_ms));
                    within_a_second(name, || killed(name, $part, $victim, delay));
                }
            }
        }
    )*};
}

killed! {
    pitfall_01_killed_before_open: "before open", 1, [20];
    pitfall_01_killed_during_open: "during open", 2, [0, 2, 5, 9];
    pitfall_01_the_first_rank_is_killed_during_open: "during open", 0, [1, 4];
    pitfall_01_killed_during_eager_calls: "eager", 1, [30, 80];
    pitfall_01_the_first_rank_is_killed_during_eager_calls: "eager", 0, [50];
    pitfall_01_killed_during_replay: "replay", 2, [30, 80];
    pitfall_01_killed_among_messages_between_pairs: "pairs", 1, [30, 80];
    pitfall_01_killed_in_a_capture: "capture", 1, [30];
    pitfall_01_killed_when_the_others_close: "close", 0, [30];
}

/// A rank is stopped past the deadline, before a call. The others name it. When the rank goes on it gets an error, and
/// writes nothing into memory that the others use again.
fn stopped(test: &str, call: &str) {
    if !fits(3) {
        return;
    }
    let _alone = support::world::alone();
    let mut ranks = Ranks::start(test, 3, call);
    ranks.expect(&[0, 1, 2], "ready");
    ranks.signal(1, Signal::STOP);
    ranks.wait_stopped(1);
    ranks.tell(&[0, 2], "call");
    for rank in [0, 2] {
        let said = ranks.hear(rank).words;
        assert!(said.contains("timed out") && said.contains("waiting for rank 1"), "rank {rank}: {said}");
    }
    ranks.tell(&[1], "call");
    ranks.signal(1, Signal::CONT);
    let said = ranks.hear(1).words;
    assert!(said.starts_with("the group was aborted"), "{said}");
    ranks.tell(&[0, 2], "look");
    ranks.expect(&[0, 2], "untouched");
    ranks.tell(&[0, 1, 2], "again");
    ranks.expect(&[0, 1, 2], "reduced");
    ranks.finish(&[0, 1, 2]);
}

/// Rows in place.
struct Rows {
    values: SymmetricBuffer<bf16>,
    weight: DeviceBuffer<bf16>,
}

impl Rows {
    /// An all-reduce by an algorithm or by a codec, or a norm.
    fn call(&self, name: &str, communicator: &Communicator, stream: &Stream) -> Result<()> {
        let values = &self.values;
        if let Ok(algorithm) = name.parse::<Algorithm>() {
            return communicator.all_reduce_with(algorithm, values, values, stream);
        }
        if let Ok(codec) = name.parse::<Codec>() {
            return communicator.all_reduce_with(codec, values, values, stream);
        }
        let rows = RowNorm::new(values, &self.weight, RmsNorm::new(1e-6)).output(values);
        communicator.all_reduce_norm(rows.algorithm(Algorithm::TwoShotSentinel), stream)
    }
}

fn sleeper(child: &Child) {
    let rank = child.open(&short());
    let Rank { communicator, stream, device, .. } = &rank;
    let rows = Rows { values: communicator.symmetric(200).unwrap(), weight: DeviceBuffer::new(device, 50).unwrap() };
    let call = || rows.call(&child.part, communicator, stream);
    (0..3).for_each(|_| call().unwrap());
    rank.finish();
    communicator.group().barrier().unwrap();
    // Before any rank waits.
    let start = Instant::now();
    child.say("ready");
    child.hear();
    let failure = || {
        let start = Instant::now();
        loop {
            if let Err(error) = communicator.synchronize(stream) {
                return error;
            }
            assert!(start.elapsed() < LIMIT / 4, "nobody told rank {}", child.rank);
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    if child.rank == 1 {
        let late = call();
        let error = failure();
        assert!(late.is_ok() || late == Err(error.clone()), "{late:?}");
        child.say(&error.to_string());
    } else {
        let error = call().err().unwrap_or_else(failure);
        assert!(
            start.elapsed() >= STEADY / 2 && start.elapsed() < STEADY + Duration::from_secs(20),
            "{:?}",
            start.elapsed()
        );
        let other = [bf16::from_f32(77.0); 200];
        rows.values.write(&other, stream).unwrap();
        child.say(&error.to_string());
        child.hear();
        assert_eq!(rows.values.borrow().read(stream).unwrap(), other);
        child.say("untouched");
    }
    assert_eq!(child.hear(), "again");
    drop(rows);
    drop(rank);
    reduce_among(child, "again", child.rank, child.world);
    child.say("reduced");
}

macro_rules! stopped {
    ($($name:ident: $call:expr;)*) => {$(
        #[test]
        fn $name() {
            match this() {
                Some(child) => bounded(LIMIT, || sleeper(&child)),
                None => stopped(stringify!($name), $call),
            }
        }
    )*};
}

stopped! {
    pitfall_02_a_rank_is_stopped_and_goes_on_one_shot: Algorithm::OneShotLL.name();
    pitfall_02_a_rank_is_stopped_and_goes_on_zero_copy: Algorithm::TwoShotZeroCopy.name();
    pitfall_02_a_rank_is_stopped_and_goes_on_with_a_codec: Codec::Int4.name();
    pitfall_02_a_rank_is_stopped_and_goes_on_with_a_norm: "norm";
}

/// The first rank of a world crashes while it waits for the others, and leaves its socket; the next
/// world meets in the same place.
#[test]
fn pitfall_17_files_of_a_crash_are_in_nobodys_way() {
    const NAME: &str = "pitfall_17_files_of_a_crash_are_in_nobodys_way";
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            child.say("ready");
            let world = if child.part == "crash" { 3 } else { 2 };
            reduce_among(&child, "place", child.rank, world);
            child.say("reduced");
        });
    }
    if !fits(2) {
        return;
    }
    let _alone = support::world::alone();
    let crashing = Ranks::start(NAME, 2, "crash"); // a third never comes
    crashing.expect(&[0, 1], "ready");
    let place = crashing.directory().join("place");
    let files = || std::fs::read_dir(&place).map_or(0, Iterator::count);
    support::world::until(Duration::from_secs(10), "the socket appears", || files() > 0);
    crashing.signal(0, Signal::KILL);
    crashing.signal(1, Signal::KILL);
    let left = tempfile::Builder::new().prefix("ranks-").tempdir().unwrap();
    std::fs::rename(&place, left.path().join("place")).unwrap();
    drop(crashing);
    assert!(std::fs::read_dir(left.path().join("place")).unwrap().count() > 0, "the crash left nothing");
    let ranks = Ranks::start_in(left, NAME, 2, "", |_| Vec::new());
    ranks.expect(&[0, 1], "ready");
    ranks.expect(&[0, 1], "reduced");
    ranks.finish(&[0, 1]);
}
