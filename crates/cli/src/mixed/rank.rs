//! One rank's part of a measurement of grids.

use harness::with_element;
use serde::{Deserialize, Serialize};
use symmetra::Communicator;
use symmetra::environment::Coordinator;
use symmetra::mixed::{Mixed, MixedMode};

use super::GridSettings;
use super::candidate::{GridNumbers, GridRanks, GridWay, MeshCandidate};
use super::engine::{self, Engine, GridMemory};
use super::oracle::{GridOracle, OraclePosition};
use harness::comparison::candidate::Trial;
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::{Mode, Turns};
use harness::failure::CommandFailure;
use harness::guarded::{GUARD_BYTES, Guarded};
use harness::ranks::{Say, Task};
use reference::element::Summand;

/// The measurement of one size on one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GridSample {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) tensor_ranks: usize,
    pub(super) data_ranks: usize,
    /// The requested modes in order, then the engine.
    pub(super) sides: Vec<Trial>,
    /// The mode, or the collectives, that ran for each candidate.
    pub(super) runs: Vec<String>,
}

impl Task for GridSettings {
    const NAME: &'static str = "grids";
    type Found = GridSample;

    /// The group in which the ranks only meet.
    fn heap_bytes(&self) -> u64 {
        0
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, GridSample>) -> Result<(), CommandFailure> {
        // Input and output of the largest size, and the buffer in which ranks meet, each with its signal pad and
        // guards, and the guards of the workspace.
        let operands = (self.world.ranks as u64 + 1) * self.largest_bytes as u64;
        let operands = if self.plain { 0 } else { operands } + 5 * (64 << 10);
        let group = self.world.open(communicator, operands, |config| {
            self.group.set(config);
            config.tuning = self.tuning.clone();
            config.guard_bytes = GUARD_BYTES;
        })?;
        let mixed = Mixed::open(&group, &self.world.config())?;
        self.race(communicator, (&group, &mixed), say)?;
        mixed.close()?;
        Ok(group.close()?)
    }
}

impl GridSettings {
    /// All sizes. Collective.
    fn race(
        &self,
        communicator: &Communicator,
        (group, mixed): (&Coordinator, &Mixed),
        say: Say<'_, GridSample>,
    ) -> Result<(), CommandFailure> {
        let places = places(communicator, mixed)?;
        let engine = match self.against {
            Some(_) => Some(Engine::open(communicator, &places)?),
            None => None,
        };
        let spans_hosts = self.world.hosts > 1;
        let ranks = GridRanks { group, mixed, engine: engine.as_ref(), spans_hosts };
        let (launches, operations) = Repeats::batches(self.iterations, self.warmup);
        Turns::open(&ranks, group.local(), launches, |turns| {
            for (size, count) in self.sizes_elems.iter().copied().enumerate() {
                let seed = self.seed ^ count as u64;
                let oracle = GridOracle::new(self.operation, seed, count, &places, mixed.data_size());
                let engine = engine.as_ref();
                let round = GridRound { grids: self, group, mixed, engine, turns, operations, oracle };
                let (sides, runs) = with_element!(self.dtype, T => match self.plain {
                    true => round.run(|elems| Guarded::<T>::new(group.device(), elems)),
                    false => round.run(|elems| group.local().symmetric::<T>(elems)),
                })?;
                let (tensor_ranks, data_ranks) = (mixed.tensor_size(), mixed.data_size());
                say(GridSample { size, tensor_ranks, data_ranks, sides, runs })?;
            }
            Ok(())
        })
    }
}

/// The places of all ranks. Collective; blocks.
fn places(communicator: &Communicator, mixed: &Mixed) -> Result<Vec<OraclePosition>, CommandFailure> {
    let own = [mixed.tensor_rank() as u64, mixed.data_rank() as u64].map(u64::to_le_bytes);
    let all = communicator.group().all_gather_bytes(own.as_flattened())?;
    let place = |bytes: &Vec<u8>| match bytes.as_chunks::<8>() {
        ([tensor, data], []) => {
            let [tensor_rank, data_rank] = [tensor, data].map(|number| u64::from_le_bytes(*number) as usize);
            Ok(OraclePosition { tensor_rank, data_rank })
        }
        _ => Err(CommandFailure::failed("a place of another length")),
    };
    all.iter().map(place).collect()
}

/// One size.
struct GridRound<'a, 'w> {
    grids: &'a GridSettings,
    group: &'a Coordinator,
    mixed: &'a Mixed,
    engine: Option<&'a Engine>,
    turns: &'a Turns<'w>,
    /// Operations of a launch.
    operations: u32,
    oracle: GridOracle,
}

impl GridRound<'_, '_> {
    /// All modes, then the engine, in turn on the same operands. Returns their trials, and the modes that ran.
    fn run<T: Summand, B: GridMemory<T>>(
        &self,
        make: impl Fn(usize) -> symmetra::Result<B>,
    ) -> Result<(Vec<Trial>, Vec<String>), CommandFailure> {
        let Self { grids, group, mixed, engine, turns, operations, ref oracle } = *self;
        let operation = grids.operation;
        let [takes, gives] = oracle.lens();
        let (input, output) = (make(takes)?, make(gives)?);
        let whole = |values: Vec<i64>| -> Vec<T> { values.into_iter().map(T::whole).collect() };
        let numbers = GridNumbers {
            input: whole(oracle.input(group.rank())),
            due: whole(oracle.output(group.rank())),
            // No sum has this value.
            poison: vec![T::whole(3 << 3); gives],
        };
        let (local, operands) = (group.local(), [&input, &output]);
        let candidate = |(name, way)| MeshCandidate { name, way, operation, mixed, local, operands, numbers: &numbers };
        let mut ways: Vec<GridWay<'_>> = grids.modes.iter().map(|mode| GridWay::Mode(*mode)).collect();
        let mut runs = grids.modes.iter().map(|mode| self.runs(*mode)).collect::<Result<Vec<_>, CommandFailure>>()?;
        if let Some(engine) = engine {
            let planned = engine::plan(operation, (mixed.data_rank(), mixed.data_size()), oracle.count())?;
            runs.push(engine::words(&planned));
            ways.push(GridWay::Engine(engine.steps(planned, [&input, &output])?));
        }
        let named = grids.side_names().into_iter().zip(ways);
        let candidates: Vec<MeshCandidate<'_, T, B>> = named.map(candidate).collect();
        let mode = if grids.graph { Mode::Graph } else { Mode::Eager };
        Ok((turns.trials(mode, operations, &candidates)?, runs))
    }

    /// The mode that runs.
    fn runs(&self, mode: MixedMode) -> Result<String, CommandFailure> {
        let Self { grids, mixed, oracle, .. } = self;
        let bytes = (oracle.count() * grids.dtype.bytes()) as u64;
        Ok(match mode {
            MixedMode::Auto => mixed.select(grids.operation, grids.dtype, !grids.plain, bytes)?,
            mode => mode,
        }
        .to_string())
    }
}
