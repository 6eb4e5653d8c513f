//! Random factors whose product is known exactly, element by element, without a multiplication of matrices.
//!
//! Both factors have rank 2: `left[m][k] = u[m] . p[k]` and `right[k][n] = q[k] . v[n]`, where u, p, q and v are random pairs
//! of small integers. Then `result[m][n] = u[m] G v[n]`, where the four numbers of `G` are the sums of `p[k] q[k]` over all k.
//! An element takes a few operations, independent of K.
//!
//! Sums are exact in every type. Places of K are paired at random, and the terms of a pair cancel each other, except at
//! two places: the numbers of `G` stay small although p and q are random. Products of all terms sum to less than 2^24
//! in any order, so f32 is exact; and the values that ranks send to each other, and the sum over the ranks, are
//! integers up to 256, which bf16 holds, times a power of two.
//!
//! Every defect of a collective is visible. Each row has a u of its own and each column a v of its own, so a part in
//! the wrong place, of the wrong rank or of an earlier call has other rows. A part of K that is missing or multiplied
//! twice leaves pairs that do not cancel. Where sums over ranks are made, each rank has u, p, q and v of its own, so a
//! rank that is missing or counted twice changes the sum.

use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;

use super::layers::{Fusion, GemmLayer};
use super::numbers::FactorScales;
use reference::element::Real;

type NumberPair = [i32; 2];

/// Integers up to this are exact in bf16, which has 8 bits.
const MOST: usize = 256;
/// The largest number that is drawn: products of 8-bit floats keep about 14 bits.
const LARGEST: usize = 4;

/// The factors of one rank.
struct Factors {
    u: Vec<NumberPair>,
    p: Vec<NumberPair>,
    q: Vec<NumberPair>,
    v: Vec<NumberPair>,
}

/// The factors of all ranks.
pub(super) struct GemmOracle {
    fusion: Fusion,
    ranks: Vec<Factors>,
    left_scales: Vec<f32>,
    right_scales: Vec<f32>,
    tokens: usize,
}

fn dot([a, b]: NumberPair, [c, d]: NumberPair) -> i32 {
    a * c + b * d
}

/// A generator for one kind of random number.
fn random(seed: u64, what: &str, rank: usize) -> Rng {
    let mut hasher = DefaultHasher::new();
    (seed, what, rank).hash(&mut hasher);
    Rng::with_seed(hasher.finish())
}

fn pairs(random: &mut Rng, count: usize, most: i32) -> Vec<NumberPair> {
    (0..count).map(|_| [random.i32(-most..=most), random.i32(-most..=most)]).collect()
}

/// p and q of `count` places.
fn places(random: &mut Rng, count: usize) -> [Vec<NumberPair>; 2] {
    let (mut p, mut q) = (pairs(random, count, 1), pairs(random, count, 1));
    let mut order: Vec<usize> = (0..count).collect();
    random.shuffle(&mut order);
    let (alone, paired) = order.split_at(count.min(2 + count % 2));
    for pair in paired.chunks_exact(2) {
        p[pair[1]] = p[pair[0]].map(|value| -value);
        q[pair[1]] = q[pair[0]];
    }
    let sign = if random.bool() { 1 } else { -1 };
    for (place, [left, right]) in alone.iter().zip([[[1, 0], [sign, 0]], [[0, 1], [0, sign]], [[0, 0], [1, 1]]]) {
        (p[*place], q[*place]) = (left, right);
    }
    [p, q]
}

impl Factors {
    /// The factors of a rank; `left` and `right` number the generators of its left and its right factor.
    fn new(seed: u64, layer: &GemmLayer, [left, right]: [usize; 2], most: i32) -> Self {
        let [p, q] = places(&mut random(seed, "inner", left), layer.inner);
        Self {
            u: pairs(&mut random(seed, "rows", left), layer.tokens, most),
            v: pairs(&mut random(seed, "columns", right), layer.columns, most),
            p,
            q,
        }
    }

    /// `u[m] G` for each of some rows.
    fn rows(&self, rows: std::ops::Range<usize>) -> Vec<NumberPair> {
        let sum = |i: usize, j: usize| self.p.iter().zip(&self.q).map(|(p, q)| p[i] * q[j]).sum::<i32>();
        let columns = [[sum(0, 0), sum(1, 0)], [sum(0, 1), sum(1, 1)]];
        self.u[rows].iter().map(|u| columns.map(|column| dot(*u, column))).collect()
    }
}

impl GemmOracle {
    pub(super) fn new(seed: u64, fusion: Fusion, layer: &GemmLayer, ranks: usize, scales: FactorScales) -> Self {
        let most = (1..=LARGEST).rev().find(|most| 2 * most * most * ranks <= MOST).unwrap_or(1) as i32;
        // The left factor of an all-gather is one matrix; each rank has some of its rows.
        let drawn_by = |rank: usize| if fusion.sums() { [rank, rank] } else { [0, rank] };
        let powers = |what, count| {
            let mut random = random(seed, what, 0);
            (0..count).map(|_| 2f32.powi(random.i32(-1..=1))).collect()
        };
        let count = |rows: usize| match scales {
            FactorScales::None => 0,
            FactorScales::Tensor => 1,
            FactorScales::Rows => rows,
        };
        Self {
            fusion,
            ranks: (0..ranks).map(|rank| Factors::new(seed, layer, drawn_by(rank), most)).collect(),
            left_scales: powers("row scales", count(layer.tokens)),
            right_scales: powers("column scales", count(layer.columns)),
            tokens: layer.tokens,
        }
    }

    /// Some rows of a rank's left factor.
    pub(super) fn left<T: Real>(&self, rank: usize, rows: std::ops::Range<usize>) -> Vec<T> {
        let Factors { u, p, .. } = &self.ranks[rank];
        u[rows].iter().flat_map(|u| p.iter().map(|p| T::of_single(dot(*u, *p) as f32))).collect()
    }

    /// A rank's right factor, column after column.
    pub(super) fn right<T: Real>(&self, rank: usize) -> Vec<T> {
        let Factors { q, v, .. } = &self.ranks[rank];
        v.iter().flat_map(|v| q.iter().map(|q| T::of_single(dot(*q, *v) as f32))).collect()
    }

    /// The scales of all rows, equal on all ranks; one for the whole factor; or none.
    pub(super) fn left_scales(&self) -> &[f32] {
        &self.left_scales
    }

    /// The scales of all columns, as [`left_scales`](Self::left_scales) returns those of rows.
    pub(super) fn right_scales(&self) -> &[f32] {
        &self.right_scales
    }

    /// The product of one rank's factors.
    pub(super) fn product<T: Real>(&self, rank: usize) -> Vec<T> {
        self.sum(rank..rank + 1, rank, 0..self.tokens)
    }

    /// The expected rows of the final result of a rank: its product of the gathered factor, or sums of all products.
    pub(super) fn result<T: Real>(&self, rank: usize, rows: std::ops::Range<usize>) -> Vec<T> {
        let all = if self.fusion.sums() { 0..self.ranks.len() } else { rank..rank + 1 };
        self.sum(all, rank, rows)
    }

    /// Some rows of the sum of some ranks' products.
    fn sum<T: Real>(&self, ranks: std::ops::Range<usize>, rank: usize, rows: std::ops::Range<usize>) -> Vec<T> {
        let columns = self.ranks[rank].v.len();
        let summed: Vec<(Vec<NumberPair>, &[NumberPair])> =
            self.ranks[ranks].iter().map(|factors| (factors.rows(rows.clone()), factors.v.as_slice())).collect();
        let scale = |scales: &[f32], place: usize| match scales {
            [] => 1.0,
            [one] => *one,
            each => each[place],
        };
        let (mut line, mut result) = (vec![0; columns], Vec::with_capacity(rows.len() * columns));
        for (at, row) in rows.enumerate() {
            line.fill(0);
            for (u, v) in &summed {
                line.iter_mut().zip(*v).for_each(|(sum, v)| *sum += dot(u[at], *v));
            }
            let of_row = scale(&self.left_scales, row);
            let scaled = line.iter().enumerate();
            result.extend(scaled.map(|(at, sum)| T::of_single(*sum as f32 * of_row * scale(&self.right_scales, at))));
        }
        result
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/matmul_oracle.rs"]
mod tests;
