//! The expected results of a dispatch and a combine, by their definition: places of rows by nested loops over the ids
//! of all ranks, sums one product after the other.

use std::ops::Range;

use symmetra::float8::F8E4M3;
use symmetra::half::bf16;

use super::routes::{Routes, random};
use harness::experts::{GROUP, Layout, Shape, Wire, groups};
use reference::element::Summand;

/// The byte with which unwritten memory is filled.
const UNWRITTEN: u8 = 0xa5;

/// A value of unwritten memory.
pub(super) fn unwritten<T: bytemuck::AnyBitPattern>() -> T {
    bytemuck::pod_read_unaligned(&[UNWRITTEN; 8][..size_of::<T>()])
}

/// Random rows of all ranks: windows of one pool, each at a place of its own.
pub(super) struct Rows {
    seed: u64,
    hidden: usize,
    pool: Vec<bf16>,
}

/// A prime, beyond the longest row.
const POOL: usize = 262_139;

impl Rows {
    pub(super) fn new(seed: u64, hidden: usize) -> Self {
        let mut random = random(seed, "pool");
        Self { seed, hidden, pool: (0..POOL).map(|_| bf16::draw(&mut random)).collect() }
    }

    /// Elements of a row.
    pub(super) fn hidden(&self) -> usize {
        self.hidden
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

/// A row that a rank receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the row.
    pub(super) at: usize,
    pub(super) source: usize,
    pub(super) token: usize,
    /// The place of the expert among the token's experts; 0 by rank and by source.
    k: usize,
}

/// Rows as they were sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Image {
    Same(Vec<bf16>),
    F8 { codes: Vec<u8>, scales: Vec<f32> },
}

impl Image {
    /// Memory for `count` rows, of which some are written at their places.
    pub(super) fn new(
        wire: Wire,
        [count, hidden]: [usize; 2],
        rows: impl Iterator<Item = (usize, impl Iterator<Item = bf16>)>,
    ) -> Self {
        match wire {
            Wire::Same => {
                let mut image = vec![unwritten(); count * hidden];
                for (at, row) in rows {
                    image[at * hidden..][..hidden].iter_mut().zip(row).for_each(|(into, value)| *into = value);
                }
                Self::Same(image)
            }
            Wire::F8 | Wire::GivenF8 => {
                let groups = groups(hidden);
                let (mut codes, mut scales) = (vec![UNWRITTEN; count * hidden], vec![unwritten(); count * groups]);
                for (at, row) in rows {
                    let row: Vec<f32> = row.map(bf16::to_f32).collect();
                    encode(&row, &mut codes[at * hidden..][..hidden], &mut scales[at * groups..][..groups]);
                }
                Self::F8 { codes, scales }
            }
        }
    }
}

/// The expected results of a rank.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) received: Image,
    /// Pairs of each expert; not by source.
    pub(super) counts: Vec<u32>,
    /// By expert: the first row of each expert, and the end of the last.
    pub(super) offsets: Vec<u32>,
    /// By rank and by source: the local expert of each pair, and its weight.
    pub(super) ids: Vec<i32>,
    pub(super) weights: Vec<f32>,
    pub(super) output: Vec<bf16>,
}

/// The rows that each rank receives.
pub(super) struct Oracle<'a> {
    shape: Shape,
    layout: Layout,
    routes: &'a Routes,
    /// The capacity of every expert, where capacities are equal.
    pub(super) room: usize,
    /// Most rows that a rank receives; by source, the capacity of every rank.
    pub(super) most: usize,
    /// The rows that every rank receives, in their order.
    pub(super) places: Vec<Vec<Place>>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(shape: Shape, layout: Layout, routes: &'a Routes) -> Self {
        let mut oracle = Self { shape, layout, routes, room: 0, most: 0, places: Vec::new() };
        let fullest = oracle.ranks().flat_map(|rank| oracle.counts(rank)).max();
        oracle.room = fullest.unwrap_or(0).max(1) as usize;
        oracle.places = oracle.ranks().map(|rank| oracle.places_on(rank)).collect();
        let fullest = oracle.places.iter().map(Vec::len).max();
        oracle.most = match layout {
            Layout::BySource => oracle.all().count(),
            _ => fullest.unwrap_or(0).max(1),
        };
        oracle
    }

    fn ranks(&self) -> Range<usize> {
        0..self.routes.ids.len()
    }

    fn tokens(&self) -> usize {
        self.routes.ids[0].len() / self.shape.top_k
    }

    /// The ids of the experts of a token.
    fn ids(&self, source: usize, token: usize) -> &[i32] {
        &self.routes.ids[source][token * self.shape.top_k..][..self.shape.top_k]
    }

    /// The ids of the experts of a rank.
    pub(super) fn experts_on(&self, rank: usize) -> Range<usize> {
        let first = |rank: usize| rank * self.shape.experts / self.routes.ids.len();
        first(rank)..first(rank + 1)
    }

    /// The number of an expert among the experts of a rank.
    fn local(&self, rank: usize, expert: i32) -> Option<usize> {
        let here = self.experts_on(rank);
        usize::try_from(expert).ok().filter(|expert| here.contains(expert)).map(|expert| expert - here.start)
    }

    /// Whether a token has an expert on a rank.
    pub(super) fn comes(&self, rank: usize, source: usize, token: usize) -> bool {
        self.ids(source, token).iter().any(|id| self.local(rank, *id).is_some())
    }

    /// All tokens, by source rank.
    fn all(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.ranks().flat_map(|source| (0..self.tokens()).map(move |token| (source, token)))
    }

    /// The tokens that have an expert on a rank, by source rank.
    pub(super) fn coming(&self, rank: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.all().filter(move |(source, token)| self.comes(rank, *source, *token))
    }

    /// For each pair of the tokens that come to a rank: the local expert, or -1, and the weight, or 0.
    pub(super) fn pairs(&self, rank: usize) -> (Vec<i32>, Vec<f32>) {
        self.pairs_of(rank, self.coming(rank))
    }

    /// For each pair of some tokens, from the view of a rank: the local expert, or -1, and the weight, or 0.
    fn pairs_of(&self, rank: usize, tokens: impl Iterator<Item = (usize, usize)>) -> (Vec<i32>, Vec<f32>) {
        let of_token = |(source, token): (usize, usize)| {
            let weights = &self.routes.weights[source][token * self.shape.top_k..];
            self.ids(source, token).iter().zip(weights).map(move |(id, weight)| match self.local(rank, *id) {
                Some(local) => (local as i32, *weight),
                None => (-1, 0.0),
            })
        };
        tokens.flat_map(of_token).unzip()
    }

    /// Pairs of each expert of a rank.
    fn counts(&self, rank: usize) -> Vec<u32> {
        let mut counts = vec![0; self.experts_on(rank).len()];
        let ids = self.routes.ids.iter().flatten();
        ids.filter_map(|id| self.local(rank, *id)).for_each(|local| counts[local] += 1);
        counts
    }

    /// The rows that a rank receives, in their order.
    fn places_on(&self, rank: usize) -> Vec<Place> {
        if self.layout.is_by_token() {
            let place = |(number, (source, token)): (usize, (usize, usize))| {
                let at = if self.layout == Layout::BySource { source * self.tokens() + token } else { number };
                Place { at, source, token, k: 0 }
            };
            return self.coming(rank).enumerate().map(place).collect();
        }
        // The pairs of all experts in the order of sources, tokens and places among the experts of a token.
        let mut of_expert = vec![Vec::new(); self.experts_on(rank).len()];
        for source in self.ranks() {
            for token in 0..self.tokens() {
                for (k, id) in self.ids(source, token).iter().enumerate() {
                    if let Some(local) = self.local(rank, *id) {
                        of_expert[local].push(Place { at: 0, source, token, k });
                    }
                }
            }
        }
        let mut before = 0;
        for (local, places) in of_expert.iter_mut().enumerate() {
            let first = if self.layout == Layout::Padded { local * self.room } else { before };
            places.iter_mut().enumerate().for_each(|(number, place)| place.at = first + number);
            before += places.len();
        }
        of_expert.concat()
    }

    /// The number of rows for which an operand of a rank has room.
    pub(super) fn rows(&self, rank: usize) -> usize {
        match self.layout {
            Layout::ByRank | Layout::ByExpert | Layout::BySource => self.most,
            Layout::Padded => self.room * self.experts_on(rank).len(),
        }
    }

    /// The expected results of a rank, with outputs that were not written before.
    pub(super) fn expected(&self, rank: usize, rows: &Rows, wire: Wire) -> Expected {
        let mut counts = self.counts(rank);
        let (mut offsets, mut ids, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        match self.layout {
            Layout::ByRank => {
                (ids, weights) = self.pairs(rank);
                ids.resize(self.rows(rank) * self.shape.top_k, unwritten());
                weights.resize(ids.len(), unwritten());
            }
            Layout::ByExpert => {
                offsets.push(0);
                offsets.extend(counts.iter().scan(0, |end, count| {
                    *end += count;
                    Some(*end)
                }));
            }
            Layout::Padded => {}
            Layout::BySource => {
                counts.clear();
                (ids, weights) = self.pairs_of(rank, self.all());
            }
        }
        let (received, output) = (self.received(rank, rows, wire), self.combined(rank, rows));
        Expected { received, counts, offsets, ids, weights, output }
    }

    fn received(&self, rank: usize, rows: &Rows, wire: Wire) -> Image {
        let rows_at =
            self.places[rank].iter().map(|Place { at, source, token, .. }| (*at, rows.token(*source, *token)));
        Image::new(wire, [self.rows(rank), self.shape.hidden], rows_at)
    }

    /// The sums of a rank's tokens: of each rank's results in the order of the token's experts, rounded; of the ranks in
    /// their order. By rank and by source, a result is the sum of a rank.
    fn combined(&self, rank: usize, rows: &Rows) -> Vec<bf16> {
        let mut back = vec![Vec::new(); self.tokens()];
        for (from, places) in self.places.iter().enumerate() {
            places.iter().filter(|place| place.source == rank).for_each(|place| back[place.token].push((from, *place)));
        }
        let mut output = Vec::with_capacity(self.tokens() * self.shape.hidden);
        for (token, results) in back.iter_mut().enumerate() {
            results.sort_by_key(|(from, place)| (*from, place.k));
            let mut sums = vec![0.0f32; self.shape.hidden];
            for of_rank in results.chunk_by(|one, other| one.0 == other.0) {
                let mut part = vec![0.0f32; self.shape.hidden];
                for (from, place) in of_rank {
                    let weight = match self.layout.is_by_token() {
                        true => 1.0,
                        false => self.routes.weights[rank][token * self.shape.top_k + place.k],
                    };
                    let result = rows.result(*from, place.at);
                    part.iter_mut().zip(result).for_each(|(sum, result)| *sum += weight * result.to_f32());
                }
                sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += bf16::from_f32(part).to_f32());
            }
            output.extend(sums.into_iter().map(bf16::from_f32));
        }
        output
    }
}

/// The codes of a row, and a scale for each group.
fn encode(row: &[f32], codes: &mut [u8], scales: &mut [f32]) {
    const MOST: f32 = 448.0;
    for ((values, codes), scale) in row.chunks(GROUP).zip(codes.chunks_mut(GROUP)).zip(scales) {
        let largest = values.iter().fold(1e-4f32, |most, value| most.max(value.abs()));
        *scale = largest / MOST;
        let inverse = MOST / largest;
        codes.iter_mut().zip(values).for_each(|(code, value)| *code = F8E4M3::from_f32(value * inverse).to_bits());
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/moe_oracle.rs"]
mod tests;
