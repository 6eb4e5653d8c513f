//! One rank's part of a comparison of GEMMs: every layer in every mode.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::fused::{Planned, Way};
use symmetra::matmul::Multiplier;
use symmetra::{Communicator, Error};

use super::MatmulRace;
use super::candidate::{Fused, MatmulCandidate, MatmulWork};
use super::layers::{Fusion, GemmLayer};
use super::numbers::GemmElement;
use super::operands::{GemmInputs, GemmOperands};
use super::oracle::GemmOracle;
use crate::race::RaceRank;
use harness::comparison::work::{ComparedLibrary, Work};
use harness::failure::CommandFailure;
use harness::names::by_name;

/// The description of a plan by the library.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExplainedGemm {
    #[serde(with = "by_name")]
    pub(super) way: Way,
    pub(super) parts: usize,
    pub(super) library: String,
    pub(super) predicted_us: Option<f64>,
    pub(super) bound_us: Option<f64>,
    pub(super) reason: String,
}

impl ExplainedGemm {
    fn of(planned: &Planned) -> Self {
        let Planned { way, parts, library, predicted_us, bound_us, reason, .. } = planned.clone();
        Self { way, parts, library, predicted_us, bound_us, reason }
    }
}

/// How the candidates of a layer run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GemmNotes {
    pub(super) plans: BTreeMap<String, ExplainedGemm>,
    /// Why a candidate does not run.
    pub(super) missing: BTreeMap<String, String>,
}

/// The names of candidates that are not schedules of this library.
pub(super) const COLLECTIVE: &str = "collective";
pub(super) const PRODUCT: &str = "product";

impl MatmulRace {
    pub(super) fn measure_as<F: GemmElement>(
        &self,
        bench: &mut RaceRank<'_, '_, GemmNotes>,
    ) -> Result<(), CommandFailure> {
        let communicator = bench.communicator;
        let multiplier = Multiplier::new(communicator.device())?;
        for (size, layer) in self.layers.iter().enumerate() {
            let oracle = GemmOracle::new(self.pace.seed, self.fusion, layer, self.pace.ranks, self.scales);
            let operands = GemmOperands::<F>::new(self, communicator, layer, &oracle)?;
            let inputs = GemmInputs::new(self, &operands, &oracle, communicator.rank());
            let mut notes = GemmNotes::default();
            let plans = self.plans(communicator, &operands, &mut notes.missing)?;
            let candidate = |name, work| MatmulCandidate {
                name,
                work,
                is_first: false,
                is_last: false,
                fusion: self.fusion,
                multiplier: &multiplier,
                operands: &operands,
                inputs: &inputs,
            };
            let mut candidates: Vec<MatmulCandidate<'_, F>> =
                plans.iter().map(|(way, plan)| candidate(way.name(), MatmulWork::Fused(plan))).collect();
            candidates.push(candidate(PRODUCT, MatmulWork::Product));
            if self.fusion == Fusion::AllReduce || operands.is_equal() {
                let collective = collectives(communicator, self.fusion, &operands, false)?;
                candidates.extend(collective.into_iter().map(|one| candidate(COLLECTIVE, MatmulWork::Collective(one))));
                // NCCL is the only peer.
                if let (Some(nccl), Some(peer)) = (bench.nccl, self.pace.competitors.first()) {
                    let both = collectives(nccl, self.fusion, &operands, true)?;
                    candidates.push(candidate(peer.name(), MatmulWork::Both(both)));
                }
            } else {
                let names = [COLLECTIVE].into_iter().chain(self.pace.peers());
                notes.missing.extend(names.map(|name| (name.to_owned(), "ranks have unequal parts".to_owned())));
            }
            if let [first, ..] = candidates.as_mut_slice() {
                first.is_first = true;
            }
            if let [.., last] = candidates.as_mut_slice() {
                last.is_last = true;
            }
            notes
                .plans
                .extend(plans.iter().map(|(way, plan)| (way.name().to_owned(), ExplainedGemm::of(plan.explain()))));
            // On a CPU a multiplication takes about as long as the move of a byte.
            let GemmLayer { tokens, inner, columns, .. } = layer;
            let operations = bench.operations((tokens * inner * columns) as u64);
            bench.run(size, operations, &candidates, &notes)?;
        }
        Ok(())
    }

    /// The plan of each schedule. The layer may lack a schedule if the user did not name it.
    fn plans<F: GemmElement>(
        &self,
        communicator: &Communicator,
        operands: &GemmOperands<F>,
        missing: &mut BTreeMap<String, String>,
    ) -> Result<Vec<(Way, Fused)>, CommandFailure> {
        let mut plans = Vec::new();
        for way in self.ways.iter().copied() {
            match Fused::new(communicator, self.fusion, operands, way) {
                Ok(plan) => plans.push((way, plan)),
                Err(Error::Unsupported { reason, .. }) if way == Way::Pipeline && !self.named => {
                    missing.insert(way.name().to_owned(), reason);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(plans)
    }
}

/// The collective of one library, after the collective of the scales if `scales`.
fn collectives<'s, F: GemmElement>(
    library: &'s impl ComparedLibrary,
    fusion: Fusion,
    operands: &'s GemmOperands<F>,
    scales: bool,
) -> symmetra::Result<Vec<Work<'s>>> {
    let collective = fusion.collective();
    if fusion.sums() {
        return Ok(vec![library.collective(collective, operands.reduce())?]);
    }
    let scales = operands.gather_scales().filter(|_| scales);
    let scales = scales.map(|scales| library.collective(collective, scales)).into_iter();
    scales.chain([library.collective(collective, operands.gather())]).collect()
}
