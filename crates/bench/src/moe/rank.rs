//! One rank's part of a comparison of experts: every number of tokens in every mode.

use serde::{Deserialize, Serialize};
use symmetra::{Communicator, Stream, SymmetricBuffer};

use super::MoeRace;
use super::contender::{Order, Ours, Phase, Racer, Side};
use super::memory::Home;
use super::operands::Operands;
use super::oracle::Rows;
use super::peer::{Between, Peer, order_of};
use harness::contest::nccl::Nccl;
use harness::contest::stopwatch::Stopwatch;
use harness::contest::turns::{Mode, SideLap, Turns, usual_operations};
use harness::failure::Failure;
use harness::ranks::{Say, Task};

/// The times of one candidate on one rank: see [`Phase`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(super) dispatch: SideLap,
    pub(super) combine: SideLap,
    pub(super) both: SideLap,
}

/// The trials of one number of tokens in one mode on one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) mode: Mode,
    pub(super) operations: u32,
    /// The method that serves for each of our candidates.
    pub(super) serves: Vec<String>,
    /// Our methods, then the peers.
    pub(super) sides: Vec<Trial>,
}

impl Task for MoeRace {
    const NAME: &'static str = "experts race";
    type Found = Lap;

    /// The regions of all experts: a graph that was dropped keeps the regions of its experts for some time.
    fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Lap>) -> Result<(), Failure> {
        let nccl = Nccl::among(&self.competitors, communicator)?;
        let stream = Stream::new(communicator.device())?;
        let meeting: SymmetricBuffer<f32> = communicator.symmetric(1)?;
        let graphs = Stopwatch::new(communicator, &meeting, &stream)?;
        let calls = Stopwatch::after(1, communicator, &meeting, &stream)?;
        let turns = Turns { team: communicator, graphs: &graphs, calls: &calls, launches: self.launches };
        let rank = communicator.rank();
        let rows = Rows::new(self.seed, self.shape.hidden);
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let (layout, routes) = (self.layout(tokens), self.routes(tokens));
            let ordered = |layout| Order::new(self, (&rows, None), (&routes, layout), [rank, tokens]);
            let order = ordered(layout);
            let other = (nccl.is_some() && order_of(layout) != layout).then(|| ordered(order_of(layout)));
            let order_of_peers = other.as_ref().unwrap_or(&order);
            let operands = |home, order: &Order<'_>| {
                let form = (self.shape, self.wire, order.layout);
                Operands::new(home, form, &order.oracle, [rank, tokens])
            };
            let alone = Home::Own(communicator.device());
            let own = operands(if layout.is_by_token() { Home::Shared(communicator) } else { alone }, &order)?;
            // The first call of a candidate is made before the candidate is verified, and needs ids.
            own.write(&order.inputs, &stream)?;
            let of_peers = if nccl.is_some() { Some(operands(alone, order_of_peers)?) } else { None };
            of_peers.iter().try_for_each(|operands| operands.write(&order_of_peers.inputs, &stream))?;
            // NCCL is the only peer.
            let between = match &nccl {
                Some(_) => Some(Between::new(self, communicator, order_of_peers, tokens, &stream)?),
                None => None,
            };
            let mut sides: Vec<(Box<dyn Side<'_> + '_>, &Order<'_>)> = Vec::new();
            let mut serves = Vec::new();
            for config in self.settings(&order.oracle, tokens) {
                let experts = communicator.experts(config)?;
                serves.push(experts.method().name().to_owned());
                sides.push((Box::new(Ours { experts, operands: &own }), &order));
            }
            if let (Some(nccl), Some(between), Some(operands)) = (&nccl, &between, &of_peers) {
                sides.push((Box::new(Peer::new(nccl, operands, between)), order_of_peers));
            }
            let racers: Vec<_> = sides.iter().flat_map(|(side, order)| Racer::all(side.as_ref(), order)).collect();
            let usual = usual_operations(communicator.device().kind(), self.logical_bytes(tokens));
            let operations = self.operations.unwrap_or(usual);
            for mode in self.modes.iter().copied() {
                let laps = turns.laps(mode, operations, &racers)?;
                let phases = racers.iter().map(|racer| (racer.phase, racer.side.lead(racer.phase)));
                let sides = trials(phases.zip(laps), operations);
                say(Lap { size, mode, operations, serves: serves.clone(), sides })?;
            }
        }
        Ok(())
    }
}

/// The trials by candidate. The time of the lead of a phase is subtracted from the phase.
fn trials(laps: impl Iterator<Item = ((Phase, Option<Phase>), SideLap)>, operations: u32) -> Vec<Trial> {
    let (mut plan, mut trial, mut trials) = (SideLap::default(), Trial::default(), Vec::new());
    for ((phase, lead), mut lap) in laps {
        let lead = match lead {
            Some(Phase::Plan) => Some(&plan),
            Some(Phase::Dispatch) => Some(&trial.dispatch),
            _ => None,
        };
        if let Some(lead) = lead {
            let less = |times: &mut Vec<f64>, lead: &[f64]| {
                times.iter_mut().zip(lead).for_each(|(time, lead)| *time -= lead / f64::from(operations));
            };
            less(&mut lap.times_us, &lead.times_us);
            less(&mut lap.host_us, &lead.host_us);
        }
        match phase {
            Phase::Plan => plan = lap,
            Phase::Dispatch => trial.dispatch = lap,
            Phase::Combine => trial.combine = lap,
            Phase::Both => {
                trial.both = lap;
                trials.push(std::mem::take(&mut trial));
            }
        }
    }
    trials
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/moe_rank.rs"]
mod tests;
