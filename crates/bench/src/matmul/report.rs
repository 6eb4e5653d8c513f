//! The rows of a comparison of GEMMs: one for each layer and mode.

use std::collections::BTreeMap;

use serde::Serialize;
use symmetra::float8::F8E4M3;
use symmetra::half::{bf16, f16};

use super::MatmulRace;
use super::layers::Fusion;
use super::numbers::{FactorScales, Precision};
use super::rank::{COLLECTIVE, ExplainedGemm, GemmNotes, PRODUCT};
use crate::pace::Pace;
use crate::race::{Combined, Race, RaceRank, SizeOutcome};
use harness::buffer::BUFFER_BYTES;
use harness::columns::Column;
use harness::failure::CommandFailure;
use harness::statistics::ratio;

/// One layer.
#[derive(Debug, Serialize)]
pub(crate) struct GemmFields {
    /// The name of the layer.
    shape: String,
    /// M: rows of the whole left factor.
    tokens: usize,
    /// K of a rank's GEMM.
    inner: usize,
    /// N of a rank's GEMM.
    columns: usize,
    /// The schedule of our first plan.
    way: &'static str,
    /// The descriptions of our plans.
    plans: BTreeMap<String, ExplainedGemm>,
    /// Why a candidate did not run.
    missing: BTreeMap<String, String>,
    /// The longer of the GEMM alone and of the collective alone, in this run.
    bound_us: Option<f64>,
    /// The bound divided by the time of our first plan.
    share: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct GemmSettings {
    collective: Fusion,
    dtype: Precision,
    scaling: FactorScales,
}

type LayerRow = SizeOutcome<GemmFields>;

impl Race for MatmulRace {
    const NAME: &'static str = "matmul race";
    type Notes = GemmNotes;
    type Settings = GemmSettings;
    type Row = LayerRow;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn settings(&self) -> GemmSettings {
        GemmSettings { collective: self.fusion, dtype: self.precision, scaling: self.scales }
    }

    fn about(&self) -> String {
        format!("matmul and {}, {}", self.fusion.collective().name(), self.precision.numeric())
    }

    /// The memory of all layers: a graph that was dropped keeps the memory of its plan for some time.
    fn heap_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| self.layer_bytes(layer)).sum::<u64>() + 4 * BUFFER_BYTES
    }

    /// Our schedules, both operations alone, the peers.
    fn candidates(&self) -> Vec<&'static str> {
        let ways = self.ways.iter().map(|way| way.name());
        ways.chain([PRODUCT, COLLECTIVE]).chain(self.pace.peers()).collect()
    }

    fn sizes(&self) -> Vec<String> {
        self.layers.iter().map(|layer| format!("{} of {} tokens", layer.name, layer.tokens)).collect()
    }

    fn measure(&self, bench: &mut RaceRank<'_, '_, GemmNotes>) -> Result<(), CommandFailure> {
        match self.precision {
            Precision::Bf16 => self.measure_as::<bf16>(bench),
            Precision::F16 => self.measure_as::<f16>(bench),
            Precision::F32 => self.measure_as::<f32>(bench),
            Precision::F8 => self.measure_as::<F8E4M3>(bench),
        }
    }

    fn rows(&self, size: usize, combined: Combined<GemmNotes>) -> Vec<LayerRow> {
        let (layer, first) = (&self.layers[size], self.candidates()[0]);
        let time = |name: &str| combined.time_us.get(name).copied();
        let bound_us = time(PRODUCT).zip(time(COLLECTIVE)).map(|(product, collective)| product.max(collective));
        let peers = self.pace.peers();
        let ratio = time(first).and_then(|ours| ratio(ours, &combined.times(&peers)));
        let GemmNotes { plans, missing } = combined.notes.clone();
        let fields = GemmFields {
            shape: layer.name.clone(),
            tokens: layer.tokens,
            inner: layer.inner,
            columns: layer.columns,
            way: plans.get(first).map_or("-", |plan| plan.way.name()),
            bound_us,
            share: bound_us.zip(time(first)).map(|(bound, ours)| bound / ours),
            plans,
            missing,
        };
        vec![combined.outcome(fields, ratio)]
    }

    fn columns(&self) -> Vec<Column<LayerRow>> {
        let candidates = self.candidates();
        let first = candidates[0];
        let mut columns = vec![
            Column::text("layer", |row: &LayerRow| row.fields.shape.clone()),
            Column::count("M", |row: &LayerRow| row.fields.tokens as u64),
            Column::count("K", |row: &LayerRow| row.fields.inner as u64),
            Column::count("N", |row: &LayerRow| row.fields.columns as u64),
            SizeOutcome::mode(),
            Column::text("way", |row: &LayerRow| row.fields.way.to_owned()),
        ];
        columns.extend(SizeOutcome::times(&candidates));
        columns.extend([
            Column::number("predicted us", 2, move |row: &LayerRow| {
                row.fields.plans.get(first).and_then(|plan| plan.predicted_us)
            }),
            Column::number("bound us", 2, |row: &LayerRow| row.fields.bound_us),
            Column::number("bound / way", 2, |row: &LayerRow| row.fields.share),
            SizeOutcome::ratio(),
            SizeOutcome::wrong(),
        ]);
        columns
    }
}
