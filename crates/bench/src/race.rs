//! A race: candidates that take turns over sizes. Each command that compares is one implementation.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use symmetra::{Communicator, Config, Stream};

use super::limits::LimitTimes;
use super::pace::Pace;
use super::plot::Panel;
use super::report::RaceReport;
use harness::columns::Column;
use harness::comparison::candidate::{Candidate, Trial};
use harness::comparison::lockstep::WithNccl;
use harness::comparison::nccl::Nccl;
use harness::comparison::turns::{Mode, Turns, usual_operations};
use harness::failure::CommandFailure;
use harness::ranks::{Say, Task};
use harness::statistics::{median, ratio, slowest};

/// A comparison of candidates, which every rank runs at every size in every mode.
pub(super) trait Race: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// The name by which the process of a rank selects the race.
    const NAME: &'static str;
    /// Whether peers have no memory of their own.
    const ON_OUR_BUFFERS: bool = true;
    /// Whether the floor of the hardware is measured first.
    const WITH_FLOOR: bool = false;
    /// Facts of a size in addition to the trials: the algorithm of a candidate, or why a candidate does not run.
    type Notes: Clone + Serialize + DeserializeOwned + Send + 'static;
    /// The settings in the report, between the ranks and the seed.
    type Settings: Serialize;
    type Row: Serialize;

    fn pace(&self) -> &Pace;
    fn settings(&self) -> Self::Settings;
    /// The settings in words.
    fn about(&self) -> String;
    /// Bytes of symmetric memory of a rank.
    fn heap_bytes(&self) -> u64;
    /// Changes settings of the group.
    fn configure(&self, _: &mut Config) {}
    /// Variables that the process of a rank gets.
    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
    /// The names of the candidates, in the order of the columns.
    fn candidates(&self) -> Vec<&'static str>;
    /// The name of each size.
    fn sizes(&self) -> Vec<String>;
    /// One rank's part.
    fn measure(&self, bench: &mut RaceRank<'_, '_, Self::Notes>) -> Result<(), CommandFailure>;
    /// The candidates whose results have equal bits on all ranks.
    fn equal_bits(&self) -> Vec<&'static str> {
        Vec::new()
    }
    /// The rows of one size in one mode.
    fn rows(&self, size: usize, combined: Combined<Self::Notes>) -> Vec<Self::Row>;
    fn columns(&self) -> Vec<Column<Self::Row>>;
    /// The panels of `--plot`.
    fn panels(_: &RaceReport<Self::Settings, Self::Row>) -> Option<[Panel; 2]> {
        None
    }
}

/// A race as the task of ranks.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub(super) struct Raced<R: Race>(pub(super) R);

/// A result of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RankResult<N> {
    Floor(LimitTimes),
    Trials(Trials<N>),
}

/// The trials of one size in one mode on one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Trials<N> {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) mode: Mode,
    pub(super) operations: u32,
    pub(super) notes: N,
    /// The trials of the candidates that ran, by name.
    pub(super) trials: BTreeMap<String, Trial>,
}

impl<R: Race> Task for Raced<R> {
    const NAME: &'static str = R::NAME;
    type Found = RankResult<R::Notes>;

    fn heap_bytes(&self) -> u64 {
        self.0.heap_bytes()
    }

    fn configure(&self, config: &mut Config) {
        self.0.configure(config);
    }

    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        self.0.variables()
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Self::Found>) -> Result<(), CommandFailure> {
        let pace = self.0.pace();
        let nccl = Nccl::among(&pace.competitors, communicator)?;
        let ranks = WithNccl { communicator, nccl: nccl.as_ref() };
        Turns::open(&ranks, communicator, pace.launches, |turns| {
            if R::WITH_FLOOR {
                say(RankResult::Floor(LimitTimes::measure(communicator, turns)?))?;
            }
            self.0.measure(&mut RaceRank { communicator, nccl: nccl.as_ref(), turns, pace, say })
        })
    }
}

/// One rank of a race.
pub(super) struct RaceRank<'a, 'w, N> {
    pub(super) communicator: &'a Communicator,
    pub(super) nccl: Option<&'a Nccl>,
    turns: &'a Turns<'w>,
    pace: &'a Pace,
    say: Say<'a, RankResult<N>>,
}

impl<'a, N: Clone> RaceRank<'a, '_, N> {
    pub(super) fn stream(&self) -> &'a Stream {
        self.turns.stream()
    }

    /// Operations of one launch, by the bytes of an operation.
    pub(super) fn operations(&self, bytes: u64) -> u32 {
        let usual = usual_operations(self.communicator.device().kind(), bytes);
        self.pace.operations.unwrap_or(usual)
    }

    /// Verifies and times the candidates of a size in every mode, and reports the trials.
    pub(super) fn run<'s, C: Candidate<'s>>(
        &mut self,
        size: usize,
        operations: u32,
        candidates: &[C],
        notes: &N,
    ) -> Result<(), CommandFailure> {
        for mode in self.pace.modes.iter().copied() {
            let trials = self.turns.trials(mode, operations, candidates)?;
            let trials = candidates.iter().map(Candidate::name).zip(trials).collect();
            (self.say)(RankResult::Trials(Trials { size, mode, operations, notes: notes.clone(), trials }))?;
        }
        Ok(())
    }
}

/// The trials of all ranks for one size in one mode, by candidate.
pub(super) struct Combined<N> {
    pub(super) mode: Mode,
    pub(super) operations: u32,
    pub(super) notes: N,
    pub(super) time_us: BTreeMap<String, f64>,
    /// The host's time for one operation; for a graph, an equal share of the launch.
    pub(super) host_us: BTreeMap<String, f64>,
    pub(super) wrong: BTreeMap<String, u64>,
}

impl<N> Combined<N> {
    /// `None` without ranks.
    pub(super) fn new(mut ranks: Vec<Trials<N>>) -> Option<Self> {
        let (mut time_us, mut host_us, mut wrong) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for name in ranks.first()?.trials.keys() {
            let trials = || ranks.iter().filter_map(|rank| rank.trials.get(name));
            let of = |times: fn(&Trial) -> &[f64]| median(slowest(trials().map(times)));
            time_us.insert(name.clone(), of(|trial| &trial.times_us));
            host_us.insert(name.clone(), of(|trial| &trial.host_us));
            wrong.insert(name.clone(), trials().map(|trial| trial.wrong).sum());
        }
        let Trials { mode, operations, notes, .. } = ranks.swap_remove(0);
        Some(Self { mode, operations, notes, time_us, host_us, wrong })
    }

    /// The times of these candidates, as far as they ran.
    pub(super) fn times<'n>(&self, names: impl IntoIterator<Item = &'n &'static str>) -> Vec<f64> {
        names.into_iter().filter_map(|name| self.time_us.get(*name)).copied().collect()
    }

    /// The best time of these peers divided by the time of a candidate.
    pub(super) fn ratio(&self, ours: &str, peers: &[&'static str]) -> Option<f64> {
        ratio(*self.time_us.get(ours)?, &self.times(peers))
    }

    /// The row of all candidates. `fields` come first.
    pub(super) fn outcome<F>(self, fields: F, ratio: Option<f64>) -> SizeOutcome<F> {
        let Self { mode, operations, time_us, host_us, wrong, .. } = self;
        SizeOutcome { fields, mode, operations, time_us, host_us, ratio, wrong }
    }
}

/// One size in one mode, with all candidates by name.
#[derive(Debug, Serialize)]
pub(super) struct SizeOutcome<F> {
    #[serde(flatten)]
    pub(super) fields: F,
    pub(super) mode: Mode,
    pub(super) operations: u32,
    pub(super) time_us: BTreeMap<String, f64>,
    pub(super) host_us: BTreeMap<String, f64>,
    /// The best peer's time divided by ours.
    pub(super) ratio: Option<f64>,
    pub(super) wrong: BTreeMap<String, u64>,
}

impl<F: 'static> SizeOutcome<F> {
    pub(super) fn mode() -> Column<Self> {
        Column::text("mode", |row: &Self| row.mode.name().to_owned())
    }

    /// A column for the time of each candidate.
    pub(super) fn times(names: &[&'static str]) -> Vec<Column<Self>> {
        let column = |name: &'static str| {
            Column::number(format!("{name} us"), 2, move |row: &Self| row.time_us.get(name).copied())
        };
        names.iter().copied().map(column).collect()
    }

    pub(super) fn ratio() -> Column<Self> {
        Column::number("ratio", 2, |row: &Self| row.ratio)
    }

    pub(super) fn wrong() -> Column<Self> {
        Column::count("wrong", |row: &Self| row.wrong.values().sum())
    }
}

/// Tokens in words, for the sizes of a race.
pub(super) fn of_tokens(tokens: &[usize]) -> Vec<String> {
    tokens.iter().map(|tokens| format!("{tokens} tokens")).collect()
}
