//! One rank's part of a race of norms: every number of tokens in every mode.

use serde::{Deserialize, Serialize};
use symmetra::half::{bf16, f16};
use symmetra::{Algorithm, Communicator, Dtype, Reduction, Stream, SymmetricBuffer};

use super::contender::{Operands, Racer, Steps};
use super::expected::Inputs;
use super::{NormRace, Way};
use crate::all_reduce::Collective;
use crate::bench::nccl::Entrant;
use crate::bench::side::{How, Ours, Side};
use crate::bench::stopwatch::Stopwatch;
use crate::bench::turns::{Mode, SideLap, Turns, usual_operations};
use crate::failure::Failure;
use crate::norm::alone;
use crate::norm::reference::Rows;
use crate::ranks::{Say, Task};

/// One number of tokens in one mode, as one rank saw it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) mode: Mode,
    pub(super) operations: u32,
    /// Which algorithm sums on each of our sides.
    pub(super) algorithms: Vec<String>,
    /// Our ways, our all-reduce alone, then the peers.
    pub(super) sides: Vec<SideLap>,
}

impl Task for NormRace {
    const NAME: &'static str = "norm race";
    type Found = Lap;

    /// Input, sum and output of the most tokens, and where the ranks meet.
    fn heap_bytes(&self) -> u64 {
        5 * (64 << 10) + 3 * self.largest_bytes()
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Lap>) -> Result<(), Failure> {
        match self.dtype {
            Dtype::F16 => self.race::<f16>(communicator, say),
            Dtype::BF16 => self.race::<bf16>(communicator, say),
            _ => self.race::<f32>(communicator, say),
        }
    }
}

impl NormRace {
    fn race<T: Rows>(&self, communicator: &Communicator, say: Say<'_, Lap>) -> Result<(), Failure> {
        let nccl =
            Entrant::open(&self.competitors, communicator, Collective::AllReduce, self.largest_bytes() as usize)?;
        let alone = alone(communicator)?;
        let stream = Stream::new(communicator.device())?;
        let meeting: SymmetricBuffer<f32> = communicator.symmetric(1)?;
        let graphs = Stopwatch::new(communicator, &meeting, &stream)?;
        let calls = Stopwatch::after(1, communicator, &meeting, &stream)?;
        let turns = Turns { communicator, graphs: &graphs, calls: &calls, launches: self.launches };
        let (rank, ranks, hidden) = (communicator.rank(), communicator.world_size(), self.hidden);
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let (elems, bytes) = (tokens * hidden, self.bytes(tokens));
            let inputs = Inputs::<T>::new(self.seed, elems, hidden, [rank, ranks]);
            let operands = Operands::new(communicator, elems, inputs.weight(), &stream)?;
            let chosen = communicator.chosen(self.dtype, Reduction::Sum, true, bytes);
            let racer = |steps, sums_by| Racer { steps, sums_by, operands: &operands, inputs: &inputs };
            let ours = || -> Box<dyn Side<'_, T> + '_> {
                let how = How::Kernels(Algorithm::Auto.into());
                let exact = chosen.is_exact(self.dtype, ranks);
                let (collective, input, output) = (Collective::AllReduce, &operands.input, &operands.sum);
                Box::new(Ours { communicator, collective, how, exact, input, output })
            };
            let way = |way: &Way| match *way {
                Way::Call(named) => {
                    racer(Steps::Call(communicator, named), Some(self.sums_by(communicator, named, bytes)))
                }
                Way::Apart => racer(Steps::Sum(ours(), Some(&alone)), Some(chosen)),
            };
            let mut racers: Vec<Racer<'_, T>> = self.ways.iter().map(way).collect();
            racers.push(racer(Steps::Sum(ours(), None), Some(chosen)));
            for (competitor, nccl) in self.competitors.iter().zip(nccl.iter().cycle()) {
                let side = nccl.side(*competitor, &operands.input, &operands.sum)?;
                racers.push(racer(Steps::Sum(side, Some(&alone)), None));
            }
            let algorithms = || racers.iter().filter_map(|racer| Some(racer.sums_by?.to_string())).collect();
            let operations = self.operations.unwrap_or_else(|| usual_operations(communicator.device().kind(), bytes));
            for mode in self.modes.iter().copied() {
                let sides = turns.laps(mode, operations, &racers)?;
                say(Lap { size, mode, operations, algorithms: algorithms(), sides })?;
            }
        }
        Ok(())
    }

    /// The algorithm of the sum in a call that names one: that one, or the library's choice.
    fn sums_by(&self, communicator: &Communicator, named: Algorithm, bytes: u64) -> Algorithm {
        let ranges = communicator.explain_norm(self.dtype, self.hidden, true);
        let chosen = ranges.iter().find(|range| bytes <= range.up_to_bytes).map_or(named, |range| range.algorithm);
        if named == Algorithm::Auto { chosen } else { named }
    }
}
