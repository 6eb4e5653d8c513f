//! Tests of `crates/bench/src/driver.rs`, whose module they are.

use harness::comparison::candidate::Trial;
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::Mode;
use serde::Deserialize;

use super::*;
use crate::race::RaceRank;

const RANKS: usize = 3;

/// A race of two candidates at one size. The results of the first have equal bits on all ranks.
#[derive(Clone, Serialize, Deserialize)]
struct Pair(Pace);

impl Race for Pair {
    const NAME: &'static str = "pair";
    type Notes = ();
    type Settings = ();
    type Row = f64;

    fn pace(&self) -> &Pace {
        &self.0
    }

    fn settings(&self) {}

    fn about(&self) -> String {
        String::new()
    }

    fn heap_bytes(&self) -> u64 {
        0
    }

    fn candidates(&self) -> Vec<&'static str> {
        vec!["equal", "other"]
    }

    fn sizes(&self) -> Vec<String> {
        vec!["1024 bytes".to_owned()]
    }

    fn measure(&self, _: &mut RaceRank<'_, '_, ()>) -> Result<(), CommandFailure> {
        Ok(())
    }

    fn equal_bits(&self) -> Vec<&'static str> {
        vec!["equal"]
    }

    fn rows(&self, _: usize, combined: Combined<()>) -> Vec<f64> {
        combined.times(&self.candidates())
    }

    fn columns(&self) -> Vec<Column<f64>> {
        Vec::new()
    }
}

/// The rows of ranks whose candidates have these checksums and wrong elements, and the verdict.
fn gathered(
    size: usize,
    trials: [[(u64, u64); 2]; RANKS],
) -> Result<(Vec<f64>, Option<CommandFailure>), CommandFailure> {
    let launches = Repeats { timed: 1, warmup: 0 };
    let (competitors, modes) = (Vec::new(), vec![Mode::Graph]);
    let race = Pair(Pace { ranks: RANKS, competitors, modes, operations: None, launches, seed: 7 });
    let mut gathered = Gathered::new(&race, Ran { ranks: RANKS, device: "host", ranks_as: "threads" }, None);
    for (rank, of_rank) in trials.into_iter().enumerate() {
        let trial = |(name, (checksum, wrong)): (&'static str, (u64, u64))| {
            let times_us = vec![(rank + 1) as f64];
            (name.to_owned(), Trial { host_us: times_us.clone(), times_us, wrong, checksum })
        };
        let trials = race.candidates().into_iter().zip(of_rank).map(trial).collect();
        let found = RankResult::Trials(Trials { size, mode: Mode::Graph, operations: 1, notes: (), trials });
        let complete = gathered.add(rank, found)?;
        assert_eq!(complete, (rank + 1 == RANKS).then_some("1024 bytes"));
    }
    Ok((gathered.report.rows, gathered.wrong))
}

#[test]
fn a_row_is_of_the_slowest_rank() {
    let (rows, wrong) = gathered(0, [[(5, 0), (1, 0)], [(5, 0), (2, 0)], [(5, 0), (3, 0)]]).unwrap();
    assert_eq!(rows, [3.0, 3.0]);
    assert!(wrong.is_none());
}

#[test]
fn ranks_with_different_bits_are_named() {
    let unequal = gathered(0, [[(5, 0); 2], [(5, 0); 2], [(6, 0), (5, 0)]]).unwrap_err();
    let words = "equal: the results of ranks 0 and 2 differ in their bits at 1024 bytes (seed 7)";
    assert_eq!(unequal.message().unwrap(), words);
}

#[test]
fn wrong_elements_of_all_ranks_are_counted() {
    let (_, wrong) = gathered(0, [[(5, 0), (5, 1)], [(5, 0), (5, 0)], [(5, 0), (5, 2)]]).unwrap();
    assert_eq!(wrong.unwrap().message().unwrap(), "other: 3 elements are wrong at 1024 bytes (seed 7)");
}

#[test]
fn an_unknown_size_is_refused() {
    let unknown = gathered(1, [[(5, 0); 2]; RANKS]).unwrap_err();
    assert_eq!(unknown.message().unwrap(), "rank 0 ran another race: size 1");
}
