//! A peer: messages between all ranks by another library, with rows that our kernels pack and unpack on this rank
//! alone. The peer gets the row counts for free (the exchange of counts is not timed).

use symmetra::experts::{Combine, Experts, Method, Received, Routed, Routing, expert_bytes};
use symmetra::half::bf16;
use symmetra::{AnyQueue, Communicator, Config, DeviceBuffer, Stream};

use super::MoeRace;
use super::candidate::{MoeCandidate, MoeOrder, Phase};
use super::memory::{Home, MoeMemory};
use super::operands::{Lines, MoeOperands};
use harness::alone::alone_with;
use harness::buffer::BUFFER_BYTES;
use harness::comparison::work::{ComparedLibrary, ComparedMessages, Payload, Work};
use harness::experts::{ExpertShape, RowOrder, RowWire, groups};
use harness::failure::CommandFailure;
use reference::experts::arrivals::RoutedPair;

/// The order of the peer's rows for our order. A message leaves no room for rows that do not come, so the peer
/// keeps rows by rank where ours are by source, without reordering.
pub(super) const fn order_of(layout: RowOrder) -> RowOrder {
    match layout {
        RowOrder::BySource => RowOrder::ByRank,
        other => other,
    }
}

/// The operands between the steps of a rank.
pub(super) struct PeerStep {
    /// Ranks as experts: the ranks of each token in their order, then -1.
    targets: DeviceBuffer<i32>,
    packer: Experts,
    packed: Lines,
    /// Rows for each rank, and from each rank.
    sent: Vec<usize>,
    came: Vec<usize>,
    unpacks: Option<Unpacks>,
    /// Results for this rank's tokens, by rank.
    returned: MoeMemory<bf16>,
    hidden: usize,
}

/// The kernels that put rows into the order of experts, and sum their results, with their operands.
struct Unpacks {
    ids: DeviceBuffer<i32>,
    weights: DeviceBuffer<f32>,
    experts: Experts,
    landed: Lines,
    parts: MoeMemory<bf16>,
}

impl PeerStep {
    pub(super) fn new(
        race: &MoeRace,
        communicator: &Communicator,
        order: &MoeOrder<'_>,
        tokens: usize,
        stream: &Stream,
    ) -> Result<Self, CommandFailure> {
        let (oracle, layout) = (&order.oracle, order.layout);
        let (device, rank, ranks) = (communicator.device(), communicator.rank(), communicator.world_size());
        let (wire, hidden) = (race.wire, race.shape.hidden);
        let most = race.shape.top_k.min(ranks);
        // The ranks of each token of this rank, in their order.
        let (mut targets, mut filled) = (vec![-1; tokens * most], vec![0; tokens]);
        let (mut sent, mut came) = (vec![0; ranks], vec![0; ranks]);
        for (to, sent) in sent.iter_mut().enumerate() {
            for RoutedPair { source, token, .. } in oracle.coming(to).map(|pairs| pairs[0]) {
                if source == rank {
                    targets[token * most + filled[token]] = to as i32;
                    filled[token] += 1;
                    *sent += 1;
                }
                if to == rank {
                    came[source] += 1;
                }
            }
        }
        let [out, into] = [&sent, &came].map(|rows: &Vec<usize>| rows.iter().sum::<usize>());

        let mut packing = ExpertShape { experts: ranks, top_k: most, hidden }.config(tokens);
        (packing.wire, packing.layout) = (wire.setting(), RowOrder::ByExpert.setting(0));
        (packing.capacity, packing.method) = (Some(out.max(1)), Method::Gather);
        let local = oracle.experts_on(rank);
        let mut unpacking = ExpertShape { experts: local.max(1), ..race.shape }.config(into.max(1));
        (unpacking.layout, unpacking.capacity) = (layout.setting(oracle.room), Some(oracle.most));
        unpacking.method = Method::Gather;
        if wire != RowWire::Same {
            unpacking.wire = symmetra::experts::Wire::GivenF8;
        }
        let reorders = layout != RowOrder::ByRank && local > 0;
        let mut config = Config::default();
        config.heap_bytes = expert_bytes(1, &config, &packing)? + 4 * BUFFER_BYTES;
        config.heap_bytes += if reorders { expert_bytes(1, &config, &unpacking)? } else { 0 };
        let alone = alone_with(communicator, config)?;

        let unpacks = match reorders {
            true => {
                let (ids, weights) = oracle.pairs(rank);
                Some(Unpacks {
                    ids: DeviceBuffer::from_slice(&ids, stream)?,
                    weights: DeviceBuffer::from_slice(&weights, stream)?,
                    experts: alone.experts(unpacking)?,
                    landed: Lines::new(Home::Own(device), wire, [into, hidden])?,
                    parts: MoeMemory::new(Home::Own(device), into * hidden)?,
                })
            }
            false => None,
        };
        Ok(Self {
            targets: DeviceBuffer::from_slice(&targets, stream)?,
            packer: alone.experts(packing)?,
            packed: Lines::new(Home::Own(device), wire, [out.max(1), hidden])?,
            sent,
            came,
            unpacks,
            returned: MoeMemory::new(Home::Own(device), out.max(1) * hidden)?,
            hidden,
        })
    }

    /// The elements to each rank and from each rank, with `width` elements a row.
    fn counts(&self, width: usize) -> [Vec<usize>; 2] {
        [&self.sent, &self.came].map(|rows| rows.iter().map(|rows| rows * width).collect())
    }

    /// Packed rows on their way to the ranks of their experts.
    fn there<'s>(&'s self, into: &'s Lines) -> Vec<Payload<'s>> {
        let counts = |width| self.counts(width);
        match (&self.packed, into) {
            (Lines::Same(from), Lines::Same(into)) => {
                vec![Payload::Rows(ComparedMessages {
                    from: from.borrow(),
                    into: into.borrow(),
                    counts: counts(self.hidden),
                })]
            }
            (Lines::F8 { codes, scales }, Lines::F8 { codes: codes_into, scales: scales_into }) => vec![
                Payload::Values(ComparedMessages {
                    from: codes.borrow(),
                    into: codes_into.borrow(),
                    counts: counts(self.hidden),
                }),
                Payload::Scales(ComparedMessages {
                    from: scales.borrow(),
                    into: scales_into.borrow(),
                    counts: counts(groups(self.hidden)),
                }),
            ],
            // All rows of a comparison travel alike.
            _ => Vec::new(),
        }
    }

    /// Results on their way back.
    fn back<'s>(&'s self, from: &'s MoeMemory<bf16>) -> Vec<Payload<'s>> {
        let [sent, came] = self.counts(self.hidden);
        vec![Payload::Rows(ComparedMessages {
            from: from.borrow(),
            into: self.returned.borrow(),
            counts: [came, sent],
        })]
    }
}

/// The peer.
pub(super) struct MessagePeer<'s> {
    operands: &'s MoeOperands,
    between: &'s PeerStep,
    there: Work<'s>,
    back: Work<'s>,
}

/// The routings of the packer and the unpacker, which are exchanged outside the timed phases.
struct PlannedExchange<'q> {
    packs: Routed<'q>,
    unpacks: Option<Routed<'q>>,
}

impl<'s> MessagePeer<'s> {
    pub(super) fn new(library: &'s impl ComparedLibrary, operands: &'s MoeOperands, between: &'s PeerStep) -> Self {
        let (landed, parts) = match &between.unpacks {
            Some(unpacks) => (&unpacks.landed, &unpacks.parts),
            None => (&operands.received, &operands.results),
        };
        let (there, back) = (library.exchange(between.there(landed)), library.exchange(between.back(parts)));
        Self { operands, between, there, back }
    }

    fn plan<'q>(&'q self, queue: AnyQueue<'q, 's>) -> symmetra::Result<PlannedExchange<'q>> {
        let PeerStep { targets, packer, unpacks, .. } = self.between;
        let routing = |unpacks: &'s Unpacks| Routing::new(&unpacks.ids).weights(&unpacks.weights);
        let unpacks = unpacks.as_ref().map(|unpacks| unpacks.experts.plan(&routing(unpacks), queue));
        Ok(PlannedExchange { packs: packer.plan(&Routing::new(targets), queue)?, unpacks: unpacks.transpose()? })
    }

    fn dispatch(&self, planned: &PlannedExchange<'_>, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        let PeerStep { packed, unpacks, .. } = self.between;
        self.operands.rows.dispatch_again(&planned.packs, &packed.received(), queue)?;
        (self.there)(queue)?;
        let (Some(routed), Some(Unpacks { landed, .. })) = (&planned.unpacks, unpacks) else { return Ok(()) };
        let into: Received<'s> = self.operands.received.received();
        landed.dispatch_again(routed, &into, queue)
    }

    fn combine(&self, planned: &PlannedExchange<'_>, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        let PeerStep { unpacks, returned, .. } = self.between;
        let MoeOperands { results, output, .. } = self.operands;
        if let (Some(routed), Some(Unpacks { parts, .. })) = (&planned.unpacks, unpacks) {
            routed.combine(results.borrow(), parts.borrow(), Combine::default(), queue)?;
        }
        (self.back)(queue)?;
        planned.packs.combine(returned.borrow(), output.borrow(), Combine::default(), queue)
    }
}

impl<'s> MoeCandidate<'s> for MessagePeer<'s> {
    fn enqueue(&self, phase: Phase, operations: u32, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        if phase == Phase::Plan {
            return (0..operations).try_for_each(|_| self.plan(queue).map(drop));
        }
        let planned = self.plan(queue)?;
        for _ in 0..operations {
            if phase != Phase::Combine {
                self.dispatch(&planned, queue)?;
            }
            if phase != Phase::Dispatch {
                self.combine(&planned, queue)?;
            }
        }
        Ok(())
    }

    fn lead(&self, phase: Phase) -> Option<Phase> {
        (phase != Phase::Plan).then_some(Phase::Plan)
    }

    fn operands(&self) -> &'s MoeOperands {
        self.operands
    }

    fn writes_numbers(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/moe_peer.rs"]
mod tests;
