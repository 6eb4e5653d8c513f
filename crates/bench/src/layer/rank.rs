//! One rank's part of a comparison of layers: every number of tokens in every mode.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter};
use symmetra::matmul::Multiplier;
use symmetra::{Communicator, Error, fused};

use super::LayerRace;
use super::candidate::LayerCandidate;
use super::check::Check;
use super::operands::{LayerInputs, LayerOperands};
use super::shape::{Half, PRODUCTS};
use super::sides::{LayerRound, Plans};
use super::way::{LayerWay, PeerWay};
use super::weights::{Drawn, weights};
use crate::race::RaceRank;
use harness::alone::alone;
use harness::buffer::BUFFER_BYTES;
use harness::failure::CommandFailure;

/// How the candidates of a number of tokens run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LayerNotes {
    /// How each plan of a candidate runs, by GEMM.
    pub(super) plans: BTreeMap<String, BTreeMap<String, String>>,
    /// Why a candidate does not run.
    pub(super) missing: BTreeMap<String, String>,
}

impl LayerRace {
    pub(super) fn all_heap_bytes(&self) -> u64 {
        self.tokens.iter().map(|tokens| self.heap_bytes_of(*tokens)).sum::<u64>() + 4 * BUFFER_BYTES
    }

    pub(super) fn measure_all(&self, bench: &mut RaceRank<'_, '_, LayerNotes>) -> Result<(), CommandFailure> {
        let (communicator, ranks, seed) = (bench.communicator, self.pace.ranks, self.pace.seed);
        let alone = alone(communicator)?;
        let multiplier = Multiplier::new(communicator.device())?;
        let drawn = Drawn { seed, shape: self.shape, rank: communicator.rank(), ranks };
        let weights = weights(drawn, self.layers, communicator, bench.stream())?;
        for (size, tokens) in self.tokens.iter().copied().enumerate() {
            let operands = LayerOperands::new(self, communicator, tokens)?;
            let inputs = LayerInputs::new(seed, tokens * self.shape.hidden);
            let mut notes = LayerNotes::default();
            let plans = self.plans(communicator, &operands, &mut notes.missing)?;
            let round = LayerRound {
                communicator,
                alone: &alone,
                multiplier: &multiplier,
                halves: self.shape.halves(ranks),
                weights: &weights,
                operands: &operands,
            };
            let mut sides = Vec::new();
            for way in self.ways.iter().filter(|way| !notes.missing.contains_key(way.name())) {
                sides.push(round.ours(*way, plans.get(way.name()))?);
            }
            // NCCL is the only peer.
            for (way, nccl) in PeerWay::ALL.into_iter().zip(bench.nccl.into_iter().cycle()) {
                if way == PeerWay::Scatter && operands.own.is_none() {
                    notes.missing.insert(way.name().to_owned(), self.unequal(tokens));
                } else {
                    sides.push(round.peer(way, nccl)?);
                }
            }
            let check = Check::new(communicator, &operands, drawn, self.layers);
            let candidate = |side| LayerCandidate { side, operands: &operands, inputs: &inputs, check: &check };
            let candidates: Vec<LayerCandidate<'_>> = sides.into_iter().map(candidate).collect();
            notes.plans = plans.iter().map(|(name, plans)| ((*name).to_owned(), explained(plans))).collect();
            bench.run(size, self.layers, &candidates, &notes)?;
        }
        Ok(())
    }

    /// The plans of the strategies that have plans, by name; or why a strategy cannot run.
    fn plans(
        &self,
        communicator: &Communicator,
        operands: &LayerOperands,
        missing: &mut BTreeMap<String, String>,
    ) -> Result<BTreeMap<&'static str, Plans>, CommandFailure> {
        let mut all = BTreeMap::new();
        for way in self.ways.iter().copied() {
            if way.shares() && operands.own.is_none() {
                missing.insert(way.name().to_owned(), self.unequal(operands.tokens));
                continue;
            }
            let Some(options) = options(way) else { continue };
            match Plans::new(way, communicator, self.shape.halves(self.pace.ranks), operands.tokens, &options) {
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
        format!("{tokens} rows have no equal shares for {} ranks", self.pace.ranks)
    }

    /// Symmetric memory for `tokens` tokens: normed rows in their states, results and sums of a rank, and the plans.
    fn heap_bytes_of(&self, tokens: usize) -> u64 {
        let buffers = super::operands::STATES + 2;
        let rows = buffers as u64 * ((tokens * self.shape.hidden * 2) as u64 + BUFFER_BYTES);
        let with_plans = self.ways.iter().filter_map(|way| Some((*way, options(*way)?)));
        rows + with_plans.map(|(way, options)| self.plan_bytes(tokens, way, &options)).sum::<u64>()
    }

    /// 0 if plans need equal shares and the ranks have none: then there are no plans.
    fn plan_bytes(&self, tokens: usize, way: LayerWay, options: &FusedOptions) -> u64 {
        let of = |Half { first, second }: &Half| {
            if !way.shares() {
                return MatmulAllReduce::heap_bytes(self.pace.ranks, &[tokens, second.inner], second, options)
                    .unwrap_or(0);
            }
            let shard = [tokens / self.pace.ranks, first.inner];
            let gather = AllGatherMatmul::heap_bytes(self.pace.ranks, &shard, 0, &[*first], options);
            let scatter = MatmulReduceScatter::heap_bytes(self.pace.ranks, &[tokens, second.inner], 0, second, options);
            gather.unwrap_or(0) + scatter.unwrap_or(0)
        };
        self.shape.halves(self.pace.ranks).iter().map(of).sum()
    }
}

/// The settings of the plans of a strategy, if it has plans.
fn options(way: LayerWay) -> Option<FusedOptions> {
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
