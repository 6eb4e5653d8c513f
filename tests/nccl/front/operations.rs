//! Every collective, type, reduction, size and form in place, against a model of its own.

use std::ffi::c_int;

use crate::library::{self, ok};
use crate::values::{Memory, TYPES, bytes_of, reduced, value};
use crate::world::{Rank, all, threads};

/// Counts: nothing, one element, an odd number, and more than a call of one launch.
const COUNTS: [usize; 4] = [0, 1, 129, 70_001];

/// One call of a collective.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) dtype: c_int,
    pub(crate) op: c_int,
    pub(crate) count: usize,
    pub(crate) root: usize,
    pub(crate) in_place: bool,
    pub(crate) seed: u64,
}

/// How many counts the send and the receive buffer of a collective have on `n` ranks.
fn parts(name: &str, n: usize) -> [usize; 2] {
    match name {
        "all-gather" | "gather" => [1, n],
        "reduce-scatter" | "scatter" => [n, 1],
        "all-to-all" => [n, n],
        _ => [1, 1],
    }
}

impl Case {
    /// The most value of an element, for which every type holds every result.
    fn most(self, ranks: usize) -> u64 {
        match (self.op, ranks) {
            (1, _) | (_, 5..) => 1,
            _ => 2,
        }
    }

    fn value(self, rank: usize, index: usize, ranks: usize) -> f64 {
        value(self.seed, rank, index, self.most(ranks))
    }

    /// The values of the receive buffer of a rank after the call; `None` where the rank receives nothing.
    fn expected(self, rank: usize, n: usize) -> Option<Vec<f64>> {
        let Self { name, dtype, op, count, root, .. } = self;
        let sum = |index: usize| reduced(dtype, op, (0..n).map(|peer| self.value(peer, index, n)));
        let line = |of: &dyn Fn(usize) -> f64| (0..count).map(of).collect::<Vec<_>>();
        let all = |of: &dyn Fn(usize, usize) -> f64| {
            (0..n)
                .flat_map(|peer| (0..count).map(move |index| (peer, index)))
                .map(|(peer, index)| of(peer, index))
                .collect()
        };
        Some(match name {
            "all-reduce" => line(&sum),
            "reduce" if rank == root => line(&sum),
            "broadcast" => line(&|index| self.value(root, index, n)),
            "all-gather" => all(&|peer, index| self.value(peer, index, n)),
            "gather" if rank == root => all(&|peer, index| self.value(peer, index, n)),
            "reduce-scatter" => line(&|index| sum(rank * count + index)),
            "scatter" => line(&|index| self.value(root, rank * count + index, n)),
            "all-to-all" => all(&|peer, index| self.value(peer, rank * count + index, n)),
            _ => return None,
        })
    }

    /// Makes the call.
    pub(crate) fn start(self, Rank { comm, rank, ranks }: Rank) -> Started {
        let Self { name, dtype, op, count, root, in_place, .. } = self;
        let [sends, receives] = parts(name, ranks);
        let values: Vec<f64> = (0..sends * count).map(|index| self.value(rank, index, ranks)).collect();
        let mut send = Memory::new(dtype, &values);
        let mut receive = Memory::new(dtype, &vec![1.0; receives * count]);
        let (from, to) = match in_place {
            false => (send.start(), receive.start()),
            true if receives > sends => {
                receive = Memory::new(dtype, &self.placed(rank, ranks, &values));
                (receive.at(rank * count), receive.start())
            }
            true if receives < sends => (send.start(), send.at(rank * count)),
            true => {
                receive = send.clone();
                (receive.start(), receive.start())
            }
        };
        let root = root as c_int;
        ok(match name {
            "all-reduce" => library::ncclAllReduce(from, to, count, dtype, op, comm, 0),
            "reduce" => library::ncclReduce(from, to, count, dtype, op, root, comm, 0),
            "broadcast" if in_place => library::ncclBcast(to, count, dtype, root, comm, 0),
            "broadcast" => library::ncclBroadcast(from, to, count, dtype, root, comm, 0),
            "all-gather" => library::ncclAllGather(from, to, count, dtype, comm, 0),
            "gather" => library::ncclGather(from, to, count, dtype, root, comm, 0),
            "reduce-scatter" => library::ncclReduceScatter(from, to, count, dtype, op, comm, 0),
            "scatter" => library::ncclScatter(from, to, count, dtype, root, comm, 0),
            "all-to-all" => library::ncclAlltoAll(from, to, count, dtype, comm, 0),
            other => panic!("no collective has the name {other}"),
        });
        Started { case: self, rank, ranks, send, receive }
    }

    /// Makes the call and checks the receive buffer.
    fn check(self, rank: Rank) {
        self.start(rank).check();
    }

    /// A buffer of all ranks' parts with this rank's part in place.
    fn placed(self, rank: usize, ranks: usize, values: &[f64]) -> Vec<f64> {
        let mut whole = vec![1.0; ranks * self.count];
        whole[rank * self.count..(rank + 1) * self.count].copy_from_slice(values);
        whole
    }
}

/// A call that was made, and its buffers.
pub(crate) struct Started {
    case: Case,
    rank: usize,
    ranks: usize,
    send: Memory,
    receive: Memory,
}

impl Started {
    /// Checks the receive buffer of a call that has ended.
    pub(crate) fn check(&self) {
        let Self { case, rank, ranks, .. } = *self;
        let [sends, receives] = parts(case.name, ranks);
        let Some(expected) = case.expected(rank, ranks) else { return };
        let found = match case.in_place && receives < sends {
            true => self.send.values()[rank * case.count..(rank + 1) * case.count].to_vec(),
            false => self.receive.values(),
        };
        let shown = 8.min(found.len());
        assert!(
            found == expected,
            "rank {rank} of {ranks}, {case:?}: {:?} for {:?}",
            &found[..shown],
            &expected[..shown]
        );
    }
}

pub(crate) const NAMES: [&str; 8] =
    ["all-reduce", "reduce", "broadcast", "all-gather", "gather", "reduce-scatter", "scatter", "all-to-all"];

/// The cases of a world: every collective, type and form, with each reduction in turn.
fn cases(seed: u64, ranks: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut turn = fastrand::Rng::with_seed(seed);
    for name in NAMES {
        for dtype in TYPES {
            // A sum of 0 and 1 of 16 ranks is at most 16: float8e5m2 holds integers to 8.
            if dtype == 11 && ranks > 4 {
                continue;
            }
            for count in COUNTS {
                // The largest buffers in two types, the others in all.
                if count > 1000 && dtype != turn.i32(0..12) && dtype != 7 || count * ranks * bytes_of(dtype) > 4 << 20 {
                    continue;
                }
                for in_place in [false, true] {
                    if in_place && name == "all-to-all" {
                        continue;
                    }
                    let (op, root) = (turn.i32(0..5), turn.usize(0..ranks));
                    cases.push(Case { name, dtype, op, count, root, in_place, seed: turn.u64(..) });
                }
            }
        }
    }
    cases
}

#[test]
fn every_collective_has_the_result_of_its_definition() {
    let seed = fastrand::u64(..);
    for ranks in [1, 2, 3, 4, 8] {
        let cases = cases(seed, ranks);
        threads(ranks, |rank| cases.iter().for_each(|case| case.check(rank)));
    }
}

#[test]
fn sixteen_ranks() {
    let cases = cases(fastrand::u64(..), 16);
    threads(16, |rank| cases.iter().step_by(7).for_each(|case| case.check(rank)));
}

/// Every reduction of every type, with unequal values on all ranks.
#[test]
fn every_reduction_of_every_type() {
    let seed = fastrand::u64(..);
    threads(3, |rank| {
        for dtype in TYPES {
            for op in 0..5 {
                let case = Case { name: "all-reduce", dtype, op, count: 1000, root: 0, in_place: false, seed };
                case.check(rank);
            }
        }
    });
}

/// An all-to-all whose parts are so large that the library sends them as messages.
#[test]
fn a_large_all_to_all() {
    let (seed, count) = (fastrand::u64(..), (32 << 20) + 1);
    let case = Case { name: "all-to-all", dtype: 1, op: 0, count, root: 0, in_place: false, seed };
    threads(2, |rank| case.check(rank));
}

/// The communicators of `ncclCommInitAll`, each used by a thread of its own.
#[test]
fn all_devices_of_a_process() {
    let seed = fastrand::u64(..);
    std::thread::scope(|scope| {
        for rank in all(4) {
            scope.spawn(move || {
                cases(seed, 4).iter().step_by(5).for_each(|case| case.check(rank));
                ok(library::ncclCommDestroy(rank.comm));
            });
        }
    });
}
