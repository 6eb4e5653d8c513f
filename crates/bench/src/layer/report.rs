//! The rows of a comparison of layers: one for each number of tokens and mode.

use std::collections::BTreeMap;

use serde::Serialize;

use super::LayerRace;
use super::rank::LayerNotes;
use super::shape::LayerShape;
use super::way::PeerWay;
use crate::pace::Pace;
use crate::race::{Combined, Race, RaceRank, SizeOutcome, of_tokens};
use harness::columns::Column;
use harness::failure::CommandFailure;
use harness::statistics::ratio;

/// One number of tokens. Times are for one layer.
#[derive(Debug, Serialize)]
pub(crate) struct LayerFields {
    tokens: usize,
    /// Our fastest strategy.
    best: String,
    /// Tokens a second through one layer, by candidate.
    tokens_per_s: BTreeMap<String, f64>,
    /// How each plan of a candidate runs, by GEMM.
    plans: BTreeMap<String, BTreeMap<String, String>>,
    /// Why a candidate did not run.
    missing: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LayerSettings {
    #[serde(flatten)]
    shape: LayerShape,
    dtype: &'static str,
    layers: u32,
}

type LayerSizes = SizeOutcome<LayerFields>;

impl LayerRace {
    fn own(&self) -> Vec<&'static str> {
        self.ways.iter().map(|way| way.name()).collect()
    }

    fn peers(&self) -> Vec<&'static str> {
        PeerWay::ALL.iter().filter(|_| !self.pace.competitors.is_empty()).map(|way| way.name()).collect()
    }
}

impl Race for LayerRace {
    const NAME: &'static str = "layer race";
    type Notes = LayerNotes;
    type Settings = LayerSettings;
    type Row = LayerSizes;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn settings(&self) -> LayerSettings {
        LayerSettings { shape: self.shape, dtype: "bf16", layers: self.layers }
    }

    fn about(&self) -> String {
        let LayerShape { hidden, heads, kv_heads, intermediate } = self.shape;
        let shape = format!("hidden {hidden}, heads {heads} and {kv_heads}, intermediate {intermediate}");
        format!("{} layers, {shape}, bf16", self.layers)
    }

    /// The memory of all numbers of tokens: a graph that was dropped keeps the memory of its plans for some time.
    fn heap_bytes(&self) -> u64 {
        self.all_heap_bytes()
    }

    fn candidates(&self) -> Vec<&'static str> {
        [self.own(), self.peers()].concat()
    }

    fn sizes(&self) -> Vec<String> {
        of_tokens(&self.tokens)
    }

    fn measure(&self, bench: &mut RaceRank<'_, '_, LayerNotes>) -> Result<(), CommandFailure> {
        self.measure_all(bench)
    }

    fn rows(&self, size: usize, combined: Combined<LayerNotes>) -> Vec<LayerSizes> {
        let tokens = self.tokens[size];
        let own = self.own().into_iter().filter_map(|name| Some((name, *combined.time_us.get(name)?)));
        let best = own.min_by(|(_, one), (_, other)| one.total_cmp(other));
        let ratio = best.and_then(|(_, us)| ratio(us, &combined.times(&self.peers())));
        let per_s = |(name, us): (&String, &f64)| (name.clone(), tokens as f64 / us * 1e6);
        let LayerNotes { plans, missing } = combined.notes.clone();
        let fields = LayerFields {
            tokens,
            best: best.map_or_else(String::new, |(name, _)| name.to_owned()),
            tokens_per_s: combined.time_us.iter().map(per_s).collect(),
            plans,
            missing,
        };
        vec![combined.outcome(fields, ratio)]
    }

    fn columns(&self) -> Vec<Column<LayerSizes>> {
        let candidates = self.candidates();
        let mut columns = vec![
            Column::count("tokens", |row: &LayerSizes| row.fields.tokens as u64),
            SizeOutcome::mode(),
            Column::text("best", |row: &LayerSizes| row.fields.best.clone()),
        ];
        columns.extend(SizeOutcome::times(&candidates));
        columns.push(SizeOutcome::ratio());
        columns.extend(candidates.into_iter().map(|name| {
            Column::number(format!("{name} tokens/s"), 0, move |row: &LayerSizes| {
                row.fields.tokens_per_s.get(name).copied()
            })
        }));
        columns.push(SizeOutcome::wrong());
        columns
    }
}
