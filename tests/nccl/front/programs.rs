//! Random programs of several ranks: calls, groups of calls and messages, splits and ends, against a model of the
//! communicators. `SYMMETRA_FUZZ_S` is the time in seconds; a failed program names its seed, and
//! `SYMMETRA_TEST_NCCL_SEED` runs that program alone.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::library::{self, ok};
use crate::operations::{Case, NAMES};
use crate::values::Memory;
use crate::world::{Rank, open, unique_id};

const F32: c_int = 7;
/// The most communicators of a program, ended ones too.
const COMMUNICATORS: usize = 12;
const STEPS: usize = 40;

/// A message of a group between two ranks of a communicator, with a number as contents.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: usize,
    to: usize,
    count: usize,
    number: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Call(usize, Case),
    /// Calls and messages of several communicators, at a depth.
    Group(Vec<(usize, Case)>, Vec<(usize, Message)>, usize),
    /// The color and the key of each rank. The parts have the numbers after the known communicators, by color.
    Split(usize, Vec<(c_int, c_int)>),
    End(usize),
}

/// The world ranks of a communicator, in the order of its ranks; empty after its end.
type Members = Vec<usize>;

struct Program {
    world: usize,
    steps: Vec<Step>,
    /// The communicators before each step.
    states: Vec<Vec<Members>>,
}

fn case(random: &mut Rng, ranks: usize) -> Case {
    let in_place = random.bool();
    Case {
        name: NAMES[random.usize(0..NAMES.len() - usize::from(in_place))],
        dtype: random.i32(0..11),
        op: random.i32(0..5),
        count: [0, 1, random.usize(0..300), random.usize(0..5000)][random.usize(0..4)],
        root: random.usize(0..ranks),
        in_place,
        seed: random.u64(..),
    }
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let world = random.usize(1..5);
        let mut members: Vec<Members> = vec![(0..world).collect()];
        let (mut steps, mut states) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            let alive: Vec<usize> = (0..members.len()).filter(|comm| !members[*comm].is_empty()).collect();
            let Some(comm) = random.choice(alive.iter().copied()) else { break };
            let ranks = members[comm].len();
            states.push(members.clone());
            match random.usize(0..10) {
                0 if members.len() + ranks <= COMMUNICATORS => {
                    let of_rank = |_| (random.i32(-1..2), random.i32(-3..4));
                    let chosen: Vec<(c_int, c_int)> = (0..ranks).map(of_rank).collect();
                    for color in 0..2 {
                        let mut part: Vec<usize> = (0..ranks).filter(|rank| chosen[*rank].0 == color).collect();
                        part.sort_by_key(|rank| (chosen[*rank].1, *rank));
                        let part: Members = part.into_iter().map(|rank| members[comm][rank]).collect();
                        members.push(part);
                    }
                    steps.push(Step::Split(comm, chosen));
                }
                1 if alive.len() > 2 => {
                    members[comm] = Vec::new();
                    steps.push(Step::End(comm));
                }
                2..=5 => {
                    let mut calls = Vec::new();
                    let mut messages = Vec::new();
                    for _ in 0..random.usize(1..5) {
                        let comm = alive[random.usize(0..alive.len())];
                        let ranks = members[comm].len();
                        calls.push((comm, case(&mut random, ranks)));
                        for _ in 0..random.usize(0..4) {
                            let (from, to) = (random.usize(0..ranks), random.usize(0..ranks));
                            let (count, number) = (random.usize(0..2000), random.u32(0..1000));
                            messages.push((comm, Message { from, to, count, number }));
                        }
                    }
                    steps.push(Step::Group(calls, messages, random.usize(1..4)));
                }
                _ => steps.push(Step::Call(comm, case(&mut random, ranks))),
            }
        }
        Self { world, steps, states }
    }

    /// The place of a world rank in a communicator.
    fn place(&self, step: usize, comm: usize, rank: usize) -> Option<usize> {
        self.states[step][comm].iter().position(|member| *member == rank)
    }

    fn run(&self, first: Rank) {
        let mut comms = vec![Some(first)];
        for (number, step) in self.steps.iter().enumerate() {
            let own = |comms: &[Option<Rank>], comm: usize| {
                self.place(number, comm, first.rank).and_then(|_| comms.get(comm).copied().flatten())
            };
            match step {
                Step::Call(comm, case) => {
                    if let Some(rank) = own(&comms, *comm) {
                        case.start(rank).check();
                    }
                }
                Step::Group(calls, messages, depth) => {
                    (0..*depth).for_each(|_| ok(library::ncclGroupStart()));
                    let started: Vec<_> =
                        calls.iter().filter_map(|(comm, case)| Some(case.start(own(&comms, *comm)?))).collect();
                    let mut buffers = Vec::new();
                    for (comm, message) in messages {
                        let Some(rank) = own(&comms, *comm) else { continue };
                        buffers.extend(start(rank, *message));
                    }
                    (0..*depth).for_each(|_| ok(library::ncclGroupEnd()));
                    started.iter().for_each(|call| call.check());
                    for (buffer, message) in &buffers {
                        assert_eq!(buffer.values(), vec![f64::from(message.number); message.count], "{message:?}");
                    }
                }
                Step::Split(comm, chosen) => {
                    let parts = comms.len();
                    comms.extend([None, None]);
                    let Some(rank) = own(&comms, *comm) else { continue };
                    let (color, key) = chosen[rank.rank];
                    let mut part = 0;
                    ok(library::ncclCommSplit(rank.comm, color, key, &raw mut part, std::ptr::null()));
                    assert_eq!(part == 0, color < 0);
                    if let Ok(color) = usize::try_from(color) {
                        let members = &self.states.get(number + 1).map(|state| state[parts + color].clone());
                        let [mut place, mut ranks] = [-1; 2];
                        ok(library::ncclCommUserRank(part, &raw mut place));
                        ok(library::ncclCommCount(part, &raw mut ranks));
                        let (place, ranks) = (place as usize, ranks as usize);
                        if let Some(members) = members {
                            assert_eq!((members[place], members.len()), (first.rank, ranks));
                        }
                        comms[parts + color] = Some(Rank { comm: part, rank: place, ranks });
                    }
                }
                Step::End(comm) => {
                    if let Some(rank) = own(&comms, *comm) {
                        ok(library::ncclCommDestroy(rank.comm));
                        comms[*comm] = None;
                    }
                }
            }
        }
        comms.into_iter().flatten().for_each(|rank| ok(library::ncclCommDestroy(rank.comm)));
    }
}

/// Makes this rank's part of a message; the buffer in which the rank receives.
fn start(rank: Rank, message: Message) -> Option<(Memory, Message)> {
    let Message { from, to, count, number } = message;
    let mut received = None;
    if from == rank.rank {
        let mut buffer = Memory::new(F32, &vec![f64::from(number); count]);
        ok(library::ncclSend(buffer.start(), count, F32, to as c_int, rank.comm, 0));
        // The library reads the buffer when the group ends.
        std::mem::forget(buffer);
    }
    if to == rank.rank {
        let mut buffer = Memory::new(F32, &vec![-1.0; count]);
        ok(library::ncclRecv(buffer.start(), count, F32, from as c_int, rank.comm, 0));
        received = Some((buffer, message));
    }
    received
}

fn run(seed: u64) {
    let program = Program::new(seed);
    let id = unique_id();
    let results: Vec<_> = std::thread::scope(|scope| {
        let program = &program;
        let rank = |rank| scope.spawn(move || program.run(open(id, rank, program.world)));
        let threads: Vec<_> = (0..program.world).map(rank).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    assert!(results.iter().all(Result::is_ok), "SYMMETRA_TEST_NCCL_SEED={seed}: a rank of {} failed", program.world);
}

#[test]
fn random_programs_have_the_results_of_their_model() {
    if let Some(seed) = std::env::var("SYMMETRA_TEST_NCCL_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed);
    }
    let seconds = std::env::var("SYMMETRA_FUZZ_S").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(5);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        run(fastrand::u64(..));
    }
}
