//! The rows of all ranks, and the expected results of a dispatch and a combine.

use symmetra::experts::{ExpertConfig, ScaleOrder, Scales};
use symmetra::half::bf16;

use super::routes::{Routes, random};
use harness::experts::{ExpertShape, RowOrder, RowWire, groups};
use reference::element::Summand;
use reference::experts::arrivals::{Arrivals, RankRouting, RoutedPair};
use reference::experts::combine::{SumsBefore, combined};
use reference::experts::dispatch::RoutedOutputs;
use reference::experts::wire::WireRow;

/// The byte with which unwritten memory is filled.
const UNWRITTEN: u8 = 0xa5;

/// A value of unwritten memory.
pub(super) fn unwritten<T: bytemuck::AnyBitPattern>() -> T {
    bytemuck::pod_read_unaligned(&[UNWRITTEN; 8][..size_of::<T>()])
}

/// Random rows of all ranks: windows of one pool, each at a place of its own.
pub(super) struct RowPool {
    seed: u64,
    hidden: usize,
    pool: Vec<bf16>,
}

/// A prime, beyond the longest row.
const POOL: usize = 262_139;

impl RowPool {
    pub(super) fn new(seed: u64, hidden: usize) -> Self {
        let mut random = random(seed, "pool");
        Self { seed, hidden, pool: (0..POOL).map(|_| bf16::draw(&mut random)).collect() }
    }

    fn window(&self, name: (&str, usize, usize)) -> impl Iterator<Item = bf16> + '_ {
        let start = random(self.seed, &name).usize(..POOL);
        self.pool[start..].iter().chain(&self.pool[..start]).copied().take(self.hidden)
    }

    /// The row of a token of a rank.
    pub(super) fn token(&self, rank: usize, token: usize) -> impl Iterator<Item = bf16> + '_ {
        self.window(("token", rank, token))
    }

    /// The result of the experts of a rank for the row at a place.
    pub(super) fn result(&self, rank: usize, at: usize) -> impl Iterator<Item = bf16> + '_ {
        self.window(("result", rank, at))
    }
}

/// A row as its receivers get the row.
fn wired(row: impl Iterator<Item = bf16>, wire: RowWire) -> WireRow {
    let row: Vec<bf16> = row.collect();
    match wire {
        RowWire::Same => WireRow::unchanged(&row),
        RowWire::F8 | RowWire::GivenF8 => WireRow::quantised(&row, Scales::F32),
    }
}

/// Rows one after the other, as a caller passes them for this format.
pub(super) fn given(rows: impl Iterator<Item = impl Iterator<Item = bf16>>, wire: RowWire) -> WireRow {
    rows.map(|row| wired(row, wire.given())).fold(WireRow::default(), |mut all, row| {
        all.bytes.extend(row.bytes);
        all.scales.extend(row.scales);
        all
    })
}

/// The rows that each rank receives.
pub(super) struct MoeOracle {
    form: ExpertConfig,
    layout: RowOrder,
    /// The capacity of every expert, where capacities are equal.
    pub(super) room: usize,
    /// Most rows that a rank receives; by source, the capacity of every rank.
    pub(super) most: usize,
    arrivals: Vec<Arrivals>,
}

impl MoeOracle {
    pub(super) fn new(shape: ExpertShape, layout: RowOrder, routes: &Routes) -> Self {
        let tokens = routes.ids[0].len() / shape.top_k;
        let of_ranks = routes.ids.iter().zip(&routes.weights);
        let routings: Vec<RankRouting<'_, i32>> =
            of_ranks.map(|(ids, weights)| RankRouting { ids, weights: Some(weights), tokens }).collect();
        let mut form = shape.config(tokens);
        let fullest = Arrivals::of_ranks(&form, &routings).into_iter().flat_map(|arrivals| arrivals.counts).max();
        let room = fullest.unwrap_or(0).max(1) as usize;
        form.layout = layout.setting(room);
        let arrivals = Arrivals::of_ranks(&form, &routings);
        let rows = |arrivals: &Arrivals| match layout.is_by_token() {
            true => arrivals.tokens().count(),
            false => arrivals.pairs.len(),
        };
        let most = match layout {
            RowOrder::BySource => routings.len() * tokens,
            _ => arrivals.iter().map(rows).max().unwrap_or(0).max(1),
        };
        Self { form, layout, room, most, arrivals }
    }

    /// The number of experts of a rank.
    pub(super) fn experts_on(&self, rank: usize) -> usize {
        self.arrivals[rank].counts.len()
    }

    /// The pairs of each token that has an expert on a rank, by source rank.
    pub(super) fn coming(&self, rank: usize) -> impl Iterator<Item = &[RoutedPair]> {
        self.arrivals[rank].tokens()
    }

    /// For each pair of the tokens that come to a rank: the local expert, or -1, and the weight, or 0.
    pub(super) fn pairs(&self, rank: usize) -> (Vec<i32>, Vec<f32>) {
        let (mut ids, mut weights) = (Vec::new(), Vec::new());
        for pairs in self.coming(rank) {
            let first = ids.len();
            ids.resize(first + self.form.top_k, -1);
            weights.resize(ids.len(), 0.0);
            for pair in pairs {
                (ids[first + pair.k], weights[first + pair.k]) = (pair.expert as i32, pair.weight);
            }
        }
        (ids, weights)
    }

    /// The number of rows for which an operand of a rank has room.
    pub(super) fn rows(&self, rank: usize) -> usize {
        match self.layout {
            RowOrder::ByRank | RowOrder::ByExpert | RowOrder::BySource => self.most,
            RowOrder::Padded => self.room * self.experts_on(rank),
        }
    }

    /// The outputs of a rank before a call: nothing is written. Outputs that a layout does not have are empty.
    pub(super) fn unwritten(&self, rank: usize, wire: RowWire) -> RoutedOutputs<bf16> {
        let (rows, experts, hidden) = (self.rows(rank), self.experts_on(rank), self.form.hidden);
        let only = |when: bool, elems: usize| if when { elems } else { 0 };
        let pairs = only(self.layout.is_by_token(), rows * self.form.top_k);
        let counts = only(self.layout != RowOrder::BySource, experts);
        let offsets = only(self.layout == RowOrder::ByExpert, experts + 1);
        let row = if wire == RowWire::Same { size_of::<bf16>() * hidden } else { hidden };
        RoutedOutputs {
            rows: vec![UNWRITTEN; rows * row],
            scales: vec![unwritten(); only(wire != RowWire::Same, rows * groups(hidden))],
            exponents: Vec::new(),
            numbers: [counts, offsets, 0, 0].map(|count| vec![unwritten(); count]),
            ids: vec![unwritten(); pairs],
            weights: vec![unwritten(); pairs],
            sums: vec![unwritten(); self.form.max_tokens * hidden],
        }
    }

    /// The expected results of a rank.
    pub(super) fn expected(&self, rank: usize, rows: &RowPool, wire: RowWire) -> RoutedOutputs<bf16> {
        let mut outputs = self.unwritten(rank, wire);
        let token = |source, token| wired(rows.token(source, token), wire);
        outputs.dispatch(&self.form, &self.arrivals[rank], ScaleOrder::Rows, token);
        let before = SumsBefore { rows: &outputs.sums, adds: false, tokens: self.form.max_tokens };
        let result = |rank, row| rows.result(rank, row).collect::<Vec<_>>();
        outputs.sums = combined(&self.form, &self.arrivals, rank, before, result);
        outputs
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/moe_oracle.rs"]
mod tests;
