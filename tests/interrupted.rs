//! Calls whose ranks come late, abort or are killed: broadcast, all-to-all and all-gather, over memory that peers
//! address and by copy engines, all-reduces by a codec, norms, experts, and plans of GEMMs. The other ranks learn in
//! time which rank it was, keep their memory, and go on in a new group. Ranks that depart (`departures`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "interrupted/departures.rs"]
mod departures;
#[path = "interrupted/experts.rs"]
mod experts;
#[path = "interrupted/plans.rs"]
mod plans;
#[path = "interrupted/splits.rs"]
mod splits;
mod support;

use std::time::{Duration, Instant};

use half::bf16;
use parking_lot::Mutex;
use reference::element::Summand;
use reference::norm::{normed, with_residual};
use rustix::process::Signal;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::{
    Algorithm, AllReduceOptions, Codec, Communicator, Config, DeviceBuffer, Error, Reduction, Result, RmsNorm, RowNorm,
    Stream, SymmetricBuffer, Transport,
};

use support::data::mix;
use support::process::{Child, Ranks, Said, this, within_a_second};
use support::world::{Gate, bounded, meet, open, open_on};
use support::{Rank, Sample, codec, config, fits};

const WORLD: usize = 3;
/// The rank that is late or killed; it is also the root of operations with a root.
const VICTIM: usize = 1;
const LIMIT: Duration = Duration::from_secs(120);
/// A rank that is delayed for less than this comes in time.
const STEADY: Duration = Duration::from_secs(1);
/// Elements of a part, and of a row.
const COUNT: usize = 700;
const HIDDEN: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Broadcast,
    AllToAll,
    AllGather,
    LowContention,
    /// An all-to-all by copy engines, which write into the outputs of peers.
    Produced,
    Quantised,
    Norm,
}

const OPS: [Op; 7] =
    [Op::Broadcast, Op::AllToAll, Op::AllGather, Op::LowContention, Op::Produced, Op::Quantised, Op::Norm];

fn codec() -> AllReduceOptions {
    AllReduceOptions::default().reduction(Reduction::Sum).algorithm(Algorithm::TwoShotSentinel).codec(Codec::Int8)
}

fn direct(steady: Duration) -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config.transport = Transport::Direct;
    config.check_calls = false;
    config.deadlines.steady = steady;
    config
}

/// Input and output of one rank, each of a part for every rank, and the residual of norms, equal on all ranks.
struct Parts {
    input: SymmetricBuffer<bf16>,
    output: SymmetricBuffer<bf16>,
    residual: DeviceBuffer<bf16>,
}

/// The part from rank `from` to rank `to`, of random data.
fn part(seed: u64, from: usize, to: usize) -> Vec<bf16> {
    (0..COUNT).map(|index| bf16::sample(mix(seed ^ mix((from * WORLD + to) as u64) ^ index as u64))).collect()
}

impl Parts {
    fn new(communicator: &Communicator, stream: &Stream) -> Result<Self> {
        let elems = WORLD * COUNT;
        let residual = DeviceBuffer::from_slice(&part(0, 0, 0), stream)?;
        Ok(Self { input: communicator.symmetric(elems)?, output: communicator.symmetric(elems)?, residual })
    }

    fn call(&self, op: Op, root: usize, communicator: &Communicator, stream: &Stream) -> Result<()> {
        let world = communicator.world_size();
        let (first, all) = (self.input.slice(0..COUNT)?, self.output.slice(0..world * COUNT)?);
        match op {
            Op::Broadcast => communicator.broadcast(self.output.slice(0..COUNT)?, root, stream),
            Op::AllToAll => communicator.all_to_all(self.input.slice(0..world * COUNT)?, all, stream),
            Op::AllGather => communicator.all_gather(first, all, stream),
            Op::LowContention => communicator.low_contention_all_gather(first, all, stream)?.wait(stream),
            Op::Produced => {
                communicator.produce_and_all_to_all(self.input.slice(0..world * COUNT)?, all, stream, |_| Ok(()))
            }
            Op::Quantised => communicator.all_reduce_with(codec(), first, self.output.slice(0..COUNT)?, stream),
            Op::Norm => {
                let weight = self.residual.borrow().slice(0..HIDDEN)?;
                let rows = RowNorm::new(first, weight, RmsNorm::new(1e-6)).residual(&self.residual);
                let rows = rows.residual_out(self.output.slice(COUNT..2 * COUNT)?).output(self.output.slice(0..COUNT)?);
                communicator.all_reduce_norm(rows.algorithm(Algorithm::TwoShotSentinel), stream)
            }
        }
    }

    /// Calls on fresh random data in a group that works, and compares.
    fn check(&self, op: Op, seed: u64, communicator: &Communicator, stream: &Stream) {
        let (own, world) = (communicator.rank(), communicator.world_size());
        let root = world - 1;
        let given: Vec<bf16> = (0..WORLD).flat_map(|to| part(seed, own, to)).collect();
        self.input.write(&given, stream).unwrap();
        self.output.write(&given, stream).unwrap();
        communicator.group().barrier().unwrap();
        self.call(op, root, communicator, stream).unwrap();
        communicator.synchronize(stream).unwrap();
        let inputs: Vec<Vec<bf16>> = (0..world).map(|from| part(seed, from, 0)).collect();
        let expected: Vec<bf16> = match op {
            Op::Broadcast => part(seed, root, 0),
            Op::AllToAll | Op::Produced => (0..world).flat_map(|from| part(seed, from, own)).collect(),
            Op::AllGather | Op::LowContention => inputs.concat(),
            Op::Quantised => codec::reduced(&codec(), &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>()),
            Op::Norm => {
                let residual = part(0, 0, 0);
                let sum = |index: usize| bf16::reduce(Reduction::Sum, inputs.iter().map(|input| input[index]));
                let x = with_residual(&(0..COUNT).map(sum).collect::<Vec<_>>(), Some(&residual));
                [normed(&x, &residual[..HIDDEN], RmsNorm::new(1e-6)), x].concat()
            }
        };
        assert!(self.output.read(stream).unwrap()[..expected.len()] == expected, "{op:?} of rank {own}");
        communicator.group().barrier().unwrap();
    }
}

/// The error that a rank gets within `limit`.
fn failure(rank: &Rank, limit: Duration) -> Error {
    let start = Instant::now();
    loop {
        if let Err(error) = rank.communicator.synchronize(&rank.stream) {
            return error;
        }
        assert!(start.elapsed() < limit, "rank {} never learned of it", rank.rank());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The error of a rank whose call may come after another rank has given up.
fn told(called: Result<()>, rank: &Rank, limit: Duration) -> Error {
    called.err().unwrap_or_else(|| failure(rank, limit))
}

/// The survivors of a group work in a new one, whose ranks are in the order of the old.
fn works_again(op: Op, seed: u64, bootstrap: impl Bootstrap, failed: &Rank) {
    let communicator = Communicator::open(bootstrap, &failed.device, config()).unwrap();
    let parts = Parts::new(&communicator, &failed.stream).unwrap();
    parts.check(op, seed, &communicator, &failed.stream);
    drop(parts);
    communicator.close().unwrap();
}

/// Another world for the same threads.
fn worlds(world: usize) -> Vec<Mutex<Option<Threads>>> {
    Threads::new(world).unwrap().into_iter().map(|rank| Mutex::new(Some(rank))).collect()
}

fn taken(world: &[Mutex<Option<Threads>>], rank: usize) -> Threads {
    world[rank].lock().take().unwrap()
}

/// The stream of one rank is held up until the others have given up and use their memory for something else.
fn late(op: Op) {
    let (gate, seed) = (Gate::new(WORLD), fastrand::u64(..));
    let (others, again) = (worlds(WORLD), worlds(WORLD - 1));
    meet(WORLD, |bootstrap| {
        let own = bootstrap.rank();
        let holding = open(taken(&others, own), &config()).unwrap();
        let pads = holding.communicator.symmetric::<u8>(1).unwrap();
        let rank = open_on(&holding.device, bootstrap, &direct(STEADY)).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let parts = Parts::new(communicator, stream).unwrap();
        parts.check(op, seed, communicator, stream);
        if own == VICTIM {
            pads.signals().wait(0, 0, stream).unwrap();
            // Before the others call: a call after they have given up is refused.
            parts.call(op, VICTIM, communicator, stream).unwrap();
        }
        // Before any of the others waits.
        let start = Instant::now();
        gate.pass();
        let other = [bf16::sample(seed); WORLD * COUNT];
        if own != VICTIM {
            let error = told(parts.call(op, VICTIM, communicator, stream), &rank, LIMIT / 4);
            assert!(matches!(error, Error::Timeout { rank: Some(VICTIM), .. }), "{op:?}: rank {own} got {error}");
            let took = start.elapsed();
            assert!(took >= STEADY / 2 && took < STEADY + Duration::from_secs(20), "{op:?}: {took:?}");
            assert_eq!(parts.call(op, VICTIM, communicator, stream), Err(error), "{op:?}: rank {own}");
            parts.input.write(&other, stream).unwrap();
            parts.output.write(&other, stream).unwrap();
        }
        gate.pass();
        if own == 0 {
            pads.signals().put(VICTIM, 0, &holding.stream).unwrap();
        }
        if own == VICTIM {
            let error = failure(&rank, LIMIT / 4);
            assert!(matches!(error, Error::Aborted { .. }), "{op:?}: {error}");
        }
        gate.pass();
        if own != VICTIM {
            assert!(parts.input.borrow().read(stream).unwrap() == other, "{op:?}: the input of rank {own} was written");
            assert!(
                parts.output.borrow().read(stream).unwrap() == other,
                "{op:?}: the output of rank {own} was written"
            );
            works_again(op, seed ^ 1, taken(&again, own / 2), &rank);
        }
        holding.communicator.synchronize(&holding.stream).unwrap();
        gate.pass();
    });
}

#[test]
fn pitfall_02_26_an_exchange_with_a_late_rank_names_it_and_nothing_is_written() {
    if fits(WORLD) {
        OPS.into_iter().for_each(late);
    }
}

/// One rank aborts instead of calling, while the others wait for it.
fn aborted(op: Op) {
    let gate = Gate::new(WORLD);
    meet(WORLD, |bootstrap| {
        let rank = open(bootstrap, &direct(LIMIT)).unwrap();
        let Rank { communicator, stream, .. } = &rank;
        let parts = Parts::new(communicator, stream).unwrap();
        parts.check(op, 5, communicator, stream);
        if rank.rank() != VICTIM {
            parts.call(op, VICTIM, communicator, stream).unwrap();
        }
        gate.pass();
        if rank.rank() == VICTIM {
            communicator.abort();
        }
        let error = failure(&rank, Duration::from_secs(5));
        assert_eq!(error, Error::Aborted { detail: format!(": by rank {VICTIM}") }, "{op:?}");
        assert_eq!(parts.call(op, VICTIM, communicator, stream), Err(error), "{op:?}");
        // The device works on.
        Stream::new(&rank.device).unwrap().synchronize().unwrap();
        gate.pass();
    });
}

#[test]
fn pitfall_03_an_abort_ends_a_call_that_waits_for_the_rank() {
    if fits(WORLD) {
        OPS.into_iter().for_each(aborted);
    }
}

/// Makes calls until one fails; some are enqueued before the device has finished earlier ones.
fn until_error(op: Op, child: &Child, rank: &Rank) -> Error {
    let Rank { communicator, stream, .. } = rank;
    let parts = Parts::new(communicator, stream).unwrap();
    parts.check(op, 1, communicator, stream);
    child.say("ready");
    for number in 0u64.. {
        let result = parts.call(op, VICTIM, communicator, stream).and_then(|()| match number % 7 {
            0 => communicator.synchronize(stream),
            _ => Ok(()),
        });
        if let Err(error) = result {
            return error;
        }
    }
    unreachable!()
}

/// A rank of a test with a killed rank.
fn mortal(op: Op, child: &Child) {
    // Death is noticed, not waited for.
    let rank = child.open(&direct(Duration::from_secs(60)));
    let error = until_error(op, child, &rank);
    child.say(&error.to_string());
    assert!(matches!(error, Error::PeerLost { rank: VICTIM, .. }), "{error:?}");
    let seed = child.hear().parse().unwrap();
    let bootstrap = child.meet("again", child.rank / 2, WORLD - 1).unwrap();
    works_again(op, seed, bootstrap, &rank);
    child.say("exchanged");
}

/// One rank is killed during calls; the others learn of the death and go on together. Returns the time of the slowest rank.
fn killed(test: &str, delay: Duration) -> Duration {
    let _alone = support::world::alone();
    let mut ranks = Ranks::start(test, WORLD, "");
    let survivors = [0, 2];
    ranks.expect(&[0, 1, 2], "ready");
    std::thread::sleep(delay);
    let death = Instant::now();
    ranks.signal(VICTIM, Signal::KILL);
    let said: Vec<Said> = survivors.iter().map(|rank| ranks.hear(*rank)).collect();
    for Said { words, .. } in &said {
        assert!(words.starts_with(&format!("rank {VICTIM} is gone")), "{words}");
    }
    ranks.tell(&survivors, &fastrand::u64(..u64::MAX / 2).to_string());
    ranks.expect(&survivors, "exchanged");
    ranks.finish(&survivors);
    said.iter().map(|said| said.at.duration_since(death)).max().unwrap()
}

macro_rules! killed {
    ($($name:ident: $op:expr;)*) => {$(
        #[test]
        fn $name() {
            match this() {
                Some(child) => bounded(LIMIT, || mortal($op, &child)),
                None if fits(WORLD) => [20, 60].into_iter().for_each(|delay_ms| {
                    let name = stringify!($name);
                    within_a_second(name, || killed(name, Duration::from_millis(delay_ms)));
                }),
                None => {}
            }
        }
    )*};
}

killed! {
    pitfall_01_killed_during_a_broadcast: Op::Broadcast;
    pitfall_01_killed_during_an_all_to_all: Op::AllToAll;
    pitfall_01_killed_during_an_all_gather: Op::AllGather;
    pitfall_01_killed_while_copy_engines_gather: Op::LowContention;
    pitfall_01_killed_during_an_all_reduce_by_a_codec: Op::Quantised;
    pitfall_01_killed_during_a_norm: Op::Norm;
}
