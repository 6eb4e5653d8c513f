//! The rows of a comparison of layers: one for each number of tokens and mode.

use std::collections::BTreeMap;

use serde::Serialize;

use super::LayerRace;
use super::rank::Notes;
use super::shape::Shape;
use super::way::PeerWay;
use crate::pace::Pace;
use crate::race::{Bench, Combined, Outcome, Race, of_tokens};
use harness::columns::Column;
use harness::failure::Failure;
use harness::statistics::ratio;

/// One number of tokens. Times are for one layer.
#[derive(Debug, Serialize)]
pub(crate) struct Fields {
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
pub(crate) struct Settings {
    #[serde(flatten)]
    shape: Shape,
    dtype: &'static str,
    layers: u32,
}

type SizeRow = Outcome<Fields>;

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
    type Notes = Notes;
    type Settings = Settings;
    type Row = SizeRow;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn settings(&self) -> Settings {
        Settings { shape: self.shape, dtype: "bf16", layers: self.layers }
    }

    fn about(&self) -> String {
        let Shape { hidden, heads, kv_heads, intermediate } = self.shape;
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

    fn measure(&self, bench: &mut Bench<'_, '_, Notes>) -> Result<(), Failure> {
        self.measure_all(bench)
    }

    fn rows(&self, size: usize, combined: Combined<Notes>) -> Vec<SizeRow> {
        let tokens = self.tokens[size];
        let own = self.own().into_iter().filter_map(|name| Some((name, *combined.time_us.get(name)?)));
        let best = own.min_by(|(_, one), (_, other)| one.total_cmp(other));
        let ratio = best.and_then(|(_, us)| ratio(us, &combined.times(&self.peers())));
        let per_s = |(name, us): (&String, &f64)| (name.clone(), tokens as f64 / us * 1e6);
        let Notes { plans, missing } = combined.notes.clone();
        let fields = Fields {
            tokens,
            best: best.map_or_else(String::new, |(name, _)| name.to_owned()),
            tokens_per_s: combined.time_us.iter().map(per_s).collect(),
            plans,
            missing,
        };
        vec![combined.outcome(fields, ratio)]
    }

    fn columns(&self) -> Vec<Column<SizeRow>> {
        let candidates = self.candidates();
        let mut columns = vec![
            Column::count("tokens", |row: &SizeRow| row.fields.tokens as u64),
            Outcome::mode(),
            Column::text("best", |row: &SizeRow| row.fields.best.clone()),
        ];
        columns.extend(Outcome::times(&candidates));
        columns.push(Outcome::ratio());
        columns.extend(candidates.into_iter().map(|name| {
            Column::number(format!("{name} tokens/s"), 0, move |row: &SizeRow| {
                row.fields.tokens_per_s.get(name).copied()
            })
        }));
        columns.push(Outcome::wrong());
        columns
    }
}
