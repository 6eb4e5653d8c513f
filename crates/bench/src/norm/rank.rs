//! One rank's part of a comparison of norms: the candidates of every number of tokens.

use std::collections::BTreeMap;

use super::NormRace;
use super::candidate::NormCandidate;
use super::expected::NormInputs;
use super::operands::NormOperands;
use super::round::NormRound;
use crate::race::RaceRank;
use harness::alone::alone;
use harness::failure::CommandFailure;
use reference::element::Real;

/// The algorithm of the sum, by candidate of this library.
pub(super) type NormNotes = BTreeMap<String, String>;

impl NormRace {
    pub(super) fn measure_as<T: Real>(&self, bench: &mut RaceRank<'_, '_, NormNotes>) -> Result<(), CommandFailure> {
        let communicator = bench.communicator;
        let alone = alone(communicator)?;
        let ranks = [communicator.rank(), communicator.world_size()];
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let inputs = NormInputs::<T>::new(self.norm, self.pace.seed, tokens * self.hidden, self.hidden, ranks);
            let operands = NormOperands::new(self, communicator, tokens, &inputs, bench.stream())?;
            let round = NormRound { race: self, communicator, alone: &alone, inputs: &inputs, operands: &operands };
            let mut candidates = round.ours()?;
            // NCCL is the only peer.
            if let (Some(nccl), Some(peer)) = (bench.nccl, self.pace.competitors.first()) {
                candidates.push(round.peer(peer.name(), nccl)?);
            }
            let algorithm =
                |candidate: &NormCandidate<'_, T>| Some((candidate.name.to_owned(), candidate.algorithm.clone()?));
            let algorithms = candidates.iter().filter_map(algorithm).collect();
            bench.run(size, bench.operations(self.bytes(tokens)), &candidates, &algorithms)?;
        }
        Ok(())
    }
}
