//! One rank's part of a comparison of norms: every number of tokens in every mode.

use serde::{Deserialize, Serialize};
use symmetra::half::{bf16, f16};
use symmetra::{Communicator, Dtype, Stream, SymmetricBuffer};

use super::NormRace;
use super::expected::Inputs;
use super::heat::Heat;
use super::operands::Operands;
use harness::alone::alone;
use harness::contest::nccl::Nccl;
use harness::contest::stopwatch::Stopwatch;
use harness::contest::turns::{Mode, SideLap, Turns, usual_operations};
use harness::failure::Failure;
use harness::ranks::{Say, Task};
use reference::element::Real;

/// The trials of one number of tokens in one mode on one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) mode: Mode,
    pub(super) operations: u32,
    /// The algorithm of the sum of each of our candidates.
    pub(super) algorithms: Vec<String>,
    /// Our candidates, the first without quantisation if rows are quantised, the operation without its norm, then the
    /// peers.
    pub(super) sides: Vec<SideLap>,
}

impl Task for NormRace {
    const NAME: &'static str = "norm race";
    type Found = Lap;

    /// Input, sum, output and quantised rows of the most tokens, and the buffer in which the ranks meet.
    fn heap_bytes(&self) -> u64 {
        7 * (64 << 10) + 3 * self.largest_bytes() + self.largest_codes_bytes()
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
    fn race<T: Real>(&self, communicator: &Communicator, say: Say<'_, Lap>) -> Result<(), Failure> {
        let nccl = Nccl::among(&self.competitors, communicator)?;
        let alone = alone(communicator)?;
        let stream = Stream::new(communicator.device())?;
        let meeting: SymmetricBuffer<f32> = communicator.symmetric(1)?;
        let graphs = Stopwatch::new(communicator, &meeting, &stream)?;
        let calls = Stopwatch::after(1, communicator, &meeting, &stream)?;
        let turns = Turns { team: communicator, graphs: &graphs, calls: &calls, launches: self.launches };
        let ranks = [communicator.rank(), communicator.world_size()];
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let inputs = Inputs::<T>::new(self.seed, tokens * self.hidden, self.hidden, ranks);
            let operands = Operands::new(self, communicator, tokens, inputs.weight(), &stream)?;
            let heat = Heat { race: self, communicator, alone: &alone, inputs: &inputs, operands: &operands };
            let mut racers = heat.ours()?;
            // NCCL is the only peer.
            if let Some(nccl) = &nccl {
                racers.push(heat.peer(nccl)?);
            }
            let algorithms = || racers.iter().filter_map(|racer| racer.name.clone()).collect();
            let usual = usual_operations(communicator.device().kind(), self.bytes(tokens));
            let operations = self.operations.unwrap_or(usual);
            for mode in self.modes.iter().copied() {
                let sides = turns.laps(mode, operations, &racers)?;
                say(Lap { size, mode, operations, algorithms: algorithms(), sides })?;
            }
        }
        Ok(())
    }
}
