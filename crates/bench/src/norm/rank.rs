//! One rank's part of a comparison of norms: the candidates of every number of tokens.

use std::collections::BTreeMap;

use super::NormRace;
use super::candidate::NormCandidate;
use super::expected::Inputs;
use super::operands::Operands;
use super::round::Round;
use crate::race::Bench;
use harness::alone::alone;
use harness::failure::Failure;
use reference::element::Real;

/// The algorithm of the sum, by candidate of this library.
pub(super) type Notes = BTreeMap<String, String>;

impl NormRace {
    pub(super) fn measure_as<T: Real>(&self, bench: &mut Bench<'_, '_, Notes>) -> Result<(), Failure> {
        let communicator = bench.communicator;
        let alone = alone(communicator)?;
        let ranks = [communicator.rank(), communicator.world_size()];
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let inputs = Inputs::<T>::new(self.pace.seed, tokens * self.hidden, self.hidden, ranks);
            let operands = Operands::new(self, communicator, tokens, inputs.weight(), bench.stream())?;
            let round = Round { race: self, communicator, alone: &alone, inputs: &inputs, operands: &operands };
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
