//! One rank's part of a comparison of experts: the candidates of every number of tokens.

use super::MoeRace;
use super::candidate::{MoeCandidate, MoeOrder, Ours, PhaseCandidate};
use super::memory::Home;
use super::operands::MoeOperands;
use super::oracle::RowPool;
use super::peer::{MessagePeer, PeerStep, order_of};
use crate::race::RaceRank;
use harness::failure::CommandFailure;

/// The method that serves for each of our candidates.
pub(super) type MoeNotes = Vec<String>;

impl MoeRace {
    pub(super) fn measure_all(&self, bench: &mut RaceRank<'_, '_, MoeNotes>) -> Result<(), CommandFailure> {
        let (communicator, stream) = (bench.communicator, bench.stream());
        let rank = communicator.rank();
        let rows = RowPool::new(self.pace.seed, self.shape.hidden);
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let (layout, routes) = (self.layout(tokens), self.routes(tokens));
            let ordered = |layout| MoeOrder::new(self, (&rows, None), (&routes, layout), [rank, tokens]);
            let order = ordered(layout);
            let other = (bench.nccl.is_some() && order_of(layout) != layout).then(|| ordered(order_of(layout)));
            let order_of_peer = other.as_ref().unwrap_or(&order);
            let operands = |home, order: &MoeOrder<'_>| {
                let form = (self.shape, self.wire, order.layout);
                let operands = MoeOperands::new(home, form, &order.oracle, [rank, tokens])?;
                // The first call of a candidate is made before the candidate is verified, and needs ids.
                operands.write(&order.inputs, stream).map(|()| operands)
            };
            let alone = Home::Own(communicator.device());
            let own = operands(if layout.is_by_token() { Home::Shared(communicator) } else { alone }, &order)?;
            // NCCL is the only peer.
            let of_peer = match bench.nccl {
                Some(_) => Some((
                    operands(alone, order_of_peer)?,
                    PeerStep::new(self, communicator, order_of_peer, tokens, stream)?,
                )),
                None => None,
            };
            let mut sides: Vec<(Box<dyn MoeCandidate<'_> + '_>, &MoeOrder<'_>)> = Vec::new();
            let mut serves = MoeNotes::new();
            for config in self.configs(&order.oracle, tokens) {
                let experts = communicator.experts(config)?;
                serves.push(experts.method().name().to_owned());
                sides.push((Box::new(Ours { experts, operands: &own }), &order));
            }
            if let (Some(nccl), Some((operands, between))) = (bench.nccl, &of_peer) {
                sides.push((Box::new(MessagePeer::new(nccl, operands, between)), order_of_peer));
            }
            let named = self.methods().into_iter().zip(&sides);
            let candidates = named.flat_map(|(name, (side, order))| PhaseCandidate::all(name, side.as_ref(), order));
            let candidates: Vec<_> = candidates.collect();
            bench.run(size, bench.operations(self.logical_bytes(tokens)), &candidates, &serves)?;
        }
        Ok(())
    }
}
