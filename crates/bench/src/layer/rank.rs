//! One rank's part of a comparison of layers: every number of tokens in every mode.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter};
use symmetra::matmul::Multiplier;
use symmetra::{Communicator, Error, Stream, SymmetricBuffer, fused};

use super::LayerRace;
use super::check::Check;
use super::contender::Racer;
use super::operands::{Inputs, Operands};
use super::shape::{Half, PRODUCTS};
use super::sides::{Heat, Plans};
use super::way::{PeerWay, Way};
use super::weights::{Drawn, weights};
use harness::alone::alone;
use harness::contest::nccl::Nccl;
use harness::contest::stopwatch::Stopwatch;
use harness::contest::turns::{Mode, SideLap, Turns};
use harness::failure::Failure;
use harness::ranks::{Say, Task};

/// The trials of one number of tokens in one mode on one rank. Candidates by name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Number of the size.
    pub(super) size: usize,
    pub(super) mode: Mode,
    /// How each plan of a candidate runs, by GEMM.
    pub(super) plans: BTreeMap<String, BTreeMap<String, String>>,
    /// Why a candidate does not run.
    pub(super) missing: BTreeMap<String, String>,
    pub(super) sides: BTreeMap<String, SideLap>,
}

/// The bytes of a symmetric buffer in addition to its elements, at most.
const BESIDE: u64 = 64 << 10;

impl Task for LayerRace {
    const NAME: &'static str = "layer race";
    type Found = Lap;

    /// The memory of all numbers of tokens: a graph that was dropped keeps the memory of its plans for some time.
    fn heap_bytes(&self) -> u64 {
        self.tokens.iter().map(|tokens| self.heap_bytes_of(*tokens)).sum::<u64>() + 4 * BESIDE
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Lap>) -> Result<(), Failure> {
        let nccl = Nccl::among(&self.competitors, communicator)?;
        let alone = alone(communicator)?;
        let multiplier = Multiplier::new(communicator.device())?;
        let stream = Stream::new(communicator.device())?;
        let meeting: SymmetricBuffer<f32> = communicator.symmetric(1)?;
        let graphs = Stopwatch::new(communicator, &meeting, &stream)?;
        let calls = Stopwatch::after(1, communicator, &meeting, &stream)?;
        let turns = Turns { team: communicator, graphs: &graphs, calls: &calls, launches: self.launches };
        let drawn = Drawn { seed: self.seed, shape: self.shape, rank: communicator.rank(), ranks: self.ranks };
        let weights = weights(drawn, self.layers, communicator, &stream)?;
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let operands = Operands::new(self, communicator, tokens)?;
            let inputs = Inputs::new(self.seed, tokens * self.shape.hidden);
            let mut missing = BTreeMap::new();
            let plans = self.plans(communicator, &operands, &mut missing)?;
            let halves = self.shape.halves(self.ranks);
            let heat = Heat {
                communicator,
                alone: &alone,
                multiplier: &multiplier,
                halves,
                weights: &weights,
                operands: &operands,
            };
            let mut sides = Vec::new();
            for way in self.ways.iter().filter(|way| !missing.contains_key(way.name())) {
                sides.push(heat.ours(*way, plans.get(way.name()))?);
            }
            for way in PeerWay::ALL {
                // NCCL is the only peer.
                let Some(nccl) = &nccl else { break };
                match (way, &operands.own) {
                    (PeerWay::Scatter, None) => {
                        missing.insert(way.name().to_owned(), self.unequal(tokens));
                    }
                    _ => sides.push(heat.peer(way, nccl)?),
                }
            }
            let check = Check::new(communicator, &operands, drawn, self.layers);
            let racer = |side| Racer { side, operands: &operands, inputs: &inputs, check: &check };
            let racers: Vec<Racer<'_>> = sides.into_iter().map(racer).collect();
            let explained: BTreeMap<_, _> =
                plans.iter().map(|(name, plans)| ((*name).to_owned(), explained(plans))).collect();
            for mode in self.modes.iter().copied() {
                let laps = turns.laps(mode, self.layers, &racers)?;
                let sides = racers.iter().map(|racer| racer.side.name.to_owned()).zip(laps).collect();
                say(Lap { size, mode, plans: explained.clone(), missing: missing.clone(), sides })?;
            }
        }
        Ok(())
    }
}

impl LayerRace {
    /// The plans of the strategies that have plans, by name; or why a strategy cannot run.
    fn plans(
        &self,
        communicator: &Communicator,
        operands: &Operands,
        missing: &mut BTreeMap<String, String>,
    ) -> Result<BTreeMap<&'static str, Plans>, Failure> {
        let mut all = BTreeMap::new();
        for way in self.ways.iter().copied() {
            if way.shares() && operands.own.is_none() {
                missing.insert(way.name().to_owned(), self.unequal(operands.tokens));
                continue;
            }
            let Some(options) = options(way) else { continue };
            match Plans::new(way, communicator, self.shape.halves(self.ranks), operands.tokens, &options) {
                Ok(plans) => {
                    all.insert(way.name(), plans);
                }
                Err(Error::Unsupported { reason, .. }) => {
                    missing.insert(way.name().to_owned(), reason);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }

    fn unequal(&self, tokens: usize) -> String {
        format!("{tokens} rows have no equal shares for {} ranks", self.ranks)
    }

    /// Symmetric memory for `tokens` tokens: normed rows in their states, results and sums of a rank, and the plans.
    fn heap_bytes_of(&self, tokens: usize) -> u64 {
        let buffers = super::operands::STATES + 2;
        let rows = buffers as u64 * ((tokens * self.shape.hidden * 2) as u64 + BESIDE);
        let with_plans = self.ways.iter().filter_map(|way| Some((*way, options(*way)?)));
        rows + with_plans.map(|(way, options)| self.plan_bytes(tokens, way, &options)).sum::<u64>()
    }

    /// 0 if plans need equal shares and the ranks have none: then there are no plans.
    fn plan_bytes(&self, tokens: usize, way: Way, options: &FusedOptions) -> u64 {
        let of = |Half { first, second }: &Half| {
            if !way.shares() {
                return MatmulAllReduce::heap_bytes(self.ranks, &[tokens, second.inner], second, options).unwrap_or(0);
            }
            let shard = [tokens / self.ranks, first.inner];
            let gather = AllGatherMatmul::heap_bytes(self.ranks, &shard, 0, &[*first], options);
            let scatter = MatmulReduceScatter::heap_bytes(self.ranks, &[tokens, second.inner], 0, second, options);
            gather.unwrap_or(0) + scatter.unwrap_or(0)
        };
        self.shape.halves(self.ranks).iter().map(of).sum()
    }
}

/// The settings of the plans of a strategy, if it has plans.
fn options(way: Way) -> Option<FusedOptions> {
    let mut options = FusedOptions::default();
    options.way = way.plans()?;
    Some(options)
}

/// How each GEMM with its collective runs.
fn explained(plans: &Plans) -> BTreeMap<String, String> {
    let ways: Vec<Option<fused::Way>> = match plans {
        Plans::Shares(halves) => {
            let of = |(gather, scatter): &(AllGatherMatmul, MatmulReduceScatter)| {
                [gather.explain(), scatter.explain()].map(|plan| Some(plan.way))
            };
            halves.iter().flat_map(of).collect()
        }
        // The first GEMM of a half has no plan.
        Plans::Whole(halves) => halves.iter().flat_map(|sum| [None, Some(sum.explain().way)]).collect(),
    };
    let named = PRODUCTS.into_iter().zip(ways);
    named.filter_map(|(product, way)| Some((product.to_owned(), way?.name().to_owned()))).collect()
}
