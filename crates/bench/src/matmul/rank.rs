//! One rank's part of a comparison of GEMMs: every layer in every mode.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use symmetra::float8::F8E4M3;
use symmetra::fused::{Planned, Way};
use symmetra::half::{bf16, f16};
use symmetra::matmul::Multiplier;
use symmetra::{Communicator, Error, Stream, SymmetricBuffer};

use super::MatmulRace;
use super::contender::{Fused, Racer, Work};
use super::layers::{Fusion, Layer};
use super::numbers::{Factor, Precision};
use super::operands::{Inputs, Operands};
use super::oracle::Oracle;
use harness::contest::nccl::Nccl;
use harness::contest::step::{Library, Step};
use harness::contest::stopwatch::Stopwatch;
use harness::contest::turns::{Mode, SideLap, Turns, usual_operations};
use harness::failure::Failure;
use harness::names::by_name;
use harness::ranks::{Say, Task};

/// The description of a plan by the library.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Explained {
    #[serde(with = "by_name")]
    pub(super) way: Way,
    pub(super) parts: usize,
    pub(super) library: String,
    pub(super) predicted_us: Option<f64>,
    pub(super) bound_us: Option<f64>,
    pub(super) reason: String,
}

impl Explained {
    fn of(planned: &Planned) -> Self {
        let Planned { way, parts, library, predicted_us, bound_us, reason, .. } = planned.clone();
        Self { way, parts, library, predicted_us, bound_us, reason }
    }
}

/// The trials of one layer in one mode on one rank. Candidates by name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Number of the layer.
    pub(super) layer: usize,
    pub(super) mode: Mode,
    pub(super) operations: u32,
    pub(super) plans: BTreeMap<String, Explained>,
    /// Why a candidate does not run.
    pub(super) missing: BTreeMap<String, String>,
    pub(super) sides: BTreeMap<String, SideLap>,
}

/// The names of candidates that are not schedules of this library.
pub(super) const COLLECTIVE: &str = "collective";
pub(super) const PRODUCT: &str = "product";

impl Task for MatmulRace {
    const NAME: &'static str = "matmul race";
    type Found = Lap;

    /// The memory of all layers: a graph that was dropped keeps the memory of its plan for some time.
    fn heap_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| self.layer_bytes(layer)).sum::<u64>() + 4 * super::BESIDE
    }

    fn run(&self, communicator: &Communicator, say: Say<'_, Lap>) -> Result<(), Failure> {
        match self.precision {
            Precision::Bf16 => self.race::<bf16>(communicator, say),
            Precision::F16 => self.race::<f16>(communicator, say),
            Precision::F32 => self.race::<f32>(communicator, say),
            Precision::F8 => self.race::<F8E4M3>(communicator, say),
        }
    }
}

impl MatmulRace {
    fn race<F: Factor>(&self, communicator: &Communicator, say: Say<'_, Lap>) -> Result<(), Failure> {
        let nccl = Nccl::among(&self.competitors, communicator)?;
        let multiplier = Multiplier::new(communicator.device())?;
        let stream = Stream::new(communicator.device())?;
        let meeting: SymmetricBuffer<f32> = communicator.symmetric(1)?;
        let graphs = Stopwatch::new(communicator, &meeting, &stream)?;
        let calls = Stopwatch::after(1, communicator, &meeting, &stream)?;
        let turns = Turns { team: communicator, graphs: &graphs, calls: &calls, launches: self.launches };
        for (number, layer) in self.layers.iter().enumerate() {
            let oracle = Oracle::new(self.seed, self.fusion, layer, self.ranks, self.scales);
            let operands = Operands::<F>::new(self, communicator, layer, &oracle)?;
            let inputs = Inputs::new(self, &operands, &oracle, communicator.rank());
            let mut missing = BTreeMap::new();
            let plans = self.plans(communicator, &operands, &mut missing)?;
            let racer = |name, work| Racer {
                name,
                work,
                is_first: false,
                is_last: false,
                fusion: self.fusion,
                multiplier: &multiplier,
                operands: &operands,
                inputs: &inputs,
            };
            let mut racers: Vec<Racer<'_, F>> =
                plans.iter().map(|(way, plan)| racer(way.name(), Work::Fused(plan))).collect();
            racers.push(racer(PRODUCT, Work::Product));
            if self.fusion == Fusion::AllReduce || operands.is_equal() {
                let collective = collectives(communicator, self.fusion, &operands, false)?;
                racers.extend(collective.into_iter().map(|step| racer(COLLECTIVE, Work::Collective(step))));
                // NCCL is the only peer.
                if let (Some(nccl), Some(peer)) = (&nccl, self.competitors.first()) {
                    racers.push(racer(peer.name(), Work::Both(collectives(nccl, self.fusion, &operands, true)?)));
                }
            } else {
                let names = [COLLECTIVE].into_iter().chain(self.competitors.iter().map(|peer| peer.name()));
                missing.extend(names.map(|name| (name.to_owned(), "ranks have unequal parts".to_owned())));
            }
            if let [first, ..] = racers.as_mut_slice() {
                first.is_first = true;
            }
            if let [.., last] = racers.as_mut_slice() {
                last.is_last = true;
            }
            let operations = self.operations.unwrap_or_else(|| usual(communicator, layer));
            let explained = plans.iter().map(|(way, plan)| (way.name().to_owned(), Explained::of(plan.explain())));
            let explained: BTreeMap<_, _> = explained.collect();
            for mode in self.modes.iter().copied() {
                let laps = turns.laps(mode, operations, &racers)?;
                let sides = racers.iter().map(|racer| racer.name.to_owned()).zip(laps).collect();
                let (plans, missing) = (explained.clone(), missing.clone());
                say(Lap { layer: number, mode, operations, plans, missing, sides })?;
            }
        }
        Ok(())
    }

    /// The plan of each schedule. The layer may lack a schedule if the user did not name it.
    fn plans<F: Factor>(
        &self,
        communicator: &Communicator,
        operands: &Operands<F>,
        missing: &mut BTreeMap<String, String>,
    ) -> Result<Vec<(Way, Fused)>, Failure> {
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
fn collectives<'s, F: Factor>(
    library: &'s impl Library,
    fusion: Fusion,
    operands: &'s Operands<F>,
    scales: bool,
) -> symmetra::Result<Vec<Box<dyn Step<'s> + 's>>> {
    let collective = fusion.collective();
    if fusion.sums() {
        return Ok(vec![library.step(collective, operands.reduce())?]);
    }
    let scales = operands.gather_scales().filter(|_| scales);
    let scales = scales.map(|scales| library.step(collective, scales)).into_iter();
    scales.chain([library.step(collective, operands.gather())]).collect()
}

/// Operations of one launch. On a CPU a multiplication takes about as long as the move of a byte.
fn usual(communicator: &Communicator, layer: &Layer) -> u32 {
    let Layer { tokens, inner, columns, .. } = layer;
    usual_operations(communicator.device().kind(), (tokens * inner * columns) as u64)
}
