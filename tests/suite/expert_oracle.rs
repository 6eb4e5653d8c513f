//! Experts by definition: nested loops over the ids of all ranks. Shares nothing with the library.

use std::sync::LazyLock;

use half::{bf16, f16};
use symmetra::Determinism;
use symmetra::experts::{ExpertConfig, Layout, Placement, ScaleOrder, Scales, Wire};

use crate::support::Sample;

/// A type of rows.
pub(crate) trait Value: Sample {
    fn of(value: f32) -> Self;
    fn get(self) -> f32;
}

impl Value for f32 {
    fn of(value: f32) -> Self {
        value
    }
    fn get(self) -> f32 {
        self
    }
}

impl Value for bf16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn get(self) -> f32 {
        self.to_f32()
    }
}

impl Value for f16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn get(self) -> f32 {
        self.to_f32()
    }
}

/// The inputs of a rank for a call.
pub(crate) struct Inputs<T> {
    pub(crate) ids: Vec<i64>,
    /// `None`: each is 1.
    pub(crate) weights: Option<Vec<f32>>,
    /// How many tokens take part.
    pub(crate) sent: usize,
    pub(crate) rows: Vec<T>,
    /// Rows of [`Wire::Bytes`], or codes.
    pub(crate) bytes: Vec<u8>,
    pub(crate) given_scales: Vec<f32>,
    pub(crate) order: ScaleOrder,
    /// The contents of the output before the call.
    pub(crate) before: Vec<T>,
    /// Whether that is added to the sums.
    pub(crate) adds: bool,
    /// The results of this rank's experts, a row a place.
    pub(crate) results: Vec<T>,
}

/// The outputs of a call: the bytes of everything that the call writes, over the earlier contents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found<T> {
    pub(crate) rows: Vec<u8>,
    pub(crate) scales: Vec<f32>,
    pub(crate) bytes_of_scales: Vec<u8>,
    /// Counts, offsets, sources, index.
    pub(crate) numbers: [Vec<u32>; 4],
    pub(crate) ids: Vec<i32>,
    pub(crate) weights: Vec<f32>,
    pub(crate) sums: Vec<T>,
}

/// A pair of a token and one of its experts.
#[derive(Clone, Copy)]
struct Pair {
    source: usize,
    token: usize,
    k: usize,
    /// The expert's number on its rank.
    local: usize,
}

/// Whether a token has one row on a rank.
pub(crate) fn is_by_token(form: &ExpertConfig) -> bool {
    matches!(form.layout, Layout::ByRank | Layout::BySource)
}

/// The place of each token that has a pair, for layouts with one row a token.
fn by_token(form: &ExpertConfig, pairs: &[Pair]) -> Vec<(usize, (usize, usize))> {
    let tokens = tokens(pairs).into_iter().enumerate();
    let place = |number: usize, (source, token): (usize, usize)| match form.layout {
        Layout::BySource => source * form.max_tokens + token,
        _ => number,
    };
    tokens.map(|(number, token)| (place(number, token), token)).collect()
}

/// The experts of every rank.
pub(crate) fn lists(form: &ExpertConfig, world: usize) -> Vec<Vec<usize>> {
    match &form.placement {
        Placement::Table(lists) => lists.clone(),
        Placement::RoundRobin => {
            (0..world).map(|rank| (0..form.experts).filter(|expert| expert % world == rank).collect()).collect()
        }
        _ => {
            (0..world).map(|rank| (rank * form.experts / world..(rank + 1) * form.experts / world).collect()).collect()
        }
    }
}

/// The pairs that come to each rank, by source, token and place in the token.
fn pairs<T>(form: &ExpertConfig, lists: &[Vec<usize>], all: &[Inputs<T>]) -> Vec<Vec<Pair>> {
    // The ranks of each expert, with its number there.
    let mut homes = vec![Vec::new(); form.experts];
    for (rank, list) in lists.iter().enumerate() {
        list.iter().enumerate().for_each(|(local, expert)| homes[*expert].push((rank, local)));
    }
    let mut pairs = vec![Vec::new(); lists.len()];
    for (source, inputs) in all.iter().enumerate() {
        for token in 0..inputs.sent {
            for k in 0..form.top_k {
                let Ok(expert) = usize::try_from(inputs.ids[token * form.top_k + k]) else { continue };
                let homes = &homes[expert];
                let own = homes.iter().find(|(rank, _)| *rank == source);
                let (rank, local) = *own.unwrap_or(&homes[(source + token) % homes.len()]);
                pairs[rank].push(Pair { source, token, k, local });
            }
        }
    }
    pairs
}

/// The place of each pair in the order of experts, counts, and offsets with the end.
fn by_expert(form: &ExpertConfig, local: usize, pairs: &[Pair]) -> (Vec<usize>, Vec<u32>, Vec<u32>) {
    let (mut places, mut counts, mut offsets) = (vec![0; pairs.len()], Vec::new(), Vec::new());
    let mut next = 0;
    for expert in 0..local {
        let first = match form.layout {
            Layout::Padded { rows } => expert * rows,
            Layout::ByExpert { align } => next_multiple(next, align),
            _ => next,
        };
        offsets.push(first as u32);
        next = first;
        for (place, _) in places.iter_mut().zip(pairs).filter(|(_, pair)| pair.local == expert) {
            *place = next;
            next += 1;
        }
        counts.push((next - first) as u32);
    }
    let end = match form.layout {
        Layout::Padded { rows } => local * rows,
        Layout::ByExpert { align } => next_multiple(next, align),
        _ => next,
    };
    offsets.push(end as u32);
    (places, counts, offsets)
}

fn next_multiple(value: usize, step: usize) -> usize {
    value.div_ceil(step) * step
}

/// The tokens that have a pair, in order.
fn tokens(pairs: &[Pair]) -> Vec<(usize, usize)> {
    let mut tokens: Vec<_> = pairs.iter().map(|pair| (pair.source, pair.token)).collect();
    tokens.dedup();
    tokens
}

/// The sizes of all finite e4m3 codes without a sign, in order.
static SIZES: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let size = |code: i32| match (code >> 3, f64::from(code & 7)) {
        (0, fraction) => fraction * 2f64.powi(-9),
        (exponent, fraction) => (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
    };
    (0..=0x7E).map(size).collect()
});

/// The e4m3 code nearest to a value, of two the even one; saturates.
fn code(value: f32) -> u8 {
    let size = f64::from(value.abs());
    let above = SIZES.partition_point(|code| *code < size).min(SIZES.len() - 1);
    let off = |code: &usize| (SIZES[*code] - size).abs();
    let nearest = [above.saturating_sub(1), above].into_iter();
    let nearest = nearest.min_by(|one, other| off(one).total_cmp(&off(other)).then((one & 1).cmp(&(other & 1))));
    nearest.unwrap() as u8 | u8::from(value.is_sign_negative()) << 7
}

/// The quantised values of a row with their scales, f32 and bytes.
fn encode<T: Value>(row: &[T], scales: Scales) -> (Vec<u8>, Vec<f32>, Vec<u8>) {
    let (mut codes, mut floats, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for group in row.chunks(128) {
        let most = group.iter().map(|value| value.get().abs()).fold(1e-4f32, f32::max);
        let (scale, inverse) = match scales {
            Scales::F32 => (most / 448.0, 448.0 / most),
            _ => {
                let exponent = (-127..128).find(|e| f64::from(most) <= 448.0 * 2f64.powi(*e)).unwrap();
                bytes.push((exponent + 127) as u8);
                (2f64.powi(exponent) as f32, 2f64.powi(-exponent) as f32)
            }
        };
        floats.push(scale);
        codes.extend(group.iter().map(|value| code(value.get() * inverse)));
    }
    (codes, floats, bytes)
}

/// A row in the wire format: bytes as the call writes them, f32 scales, bytes of scales.
fn wired<T: Value>(form: &ExpertConfig, inputs: &Inputs<T>, token: usize) -> (Vec<u8>, Vec<f32>, Vec<u8>) {
    let own = |elems: usize| token * elems..(token + 1) * elems;
    let row = &inputs.rows[own(form.hidden)];
    match form.wire {
        Wire::Same => (row.iter().flat_map(|value| value.bits().to_le_bytes()).collect(), Vec::new(), Vec::new()),
        Wire::F8(scales) => encode(row, scales),
        Wire::Bytes(bytes) => (inputs.bytes[own(bytes)].to_vec(), Vec::new(), Vec::new()),
        _ => {
            let groups = form.hidden.div_ceil(128);
            (inputs.bytes[own(form.hidden)].to_vec(), inputs.given_scales[own(groups)].to_vec(), Vec::new())
        }
    }
}

/// The outputs of `rank` after a dispatch, over the earlier contents.
pub(crate) fn dispatched<T: Value>(form: &ExpertConfig, all: &[Inputs<T>], rank: usize, before: &Found<T>) -> Found<T> {
    let lists = lists(form, all.len());
    let pairs = pairs(form, &lists, all).swap_remove(rank);
    let (places, counts, offsets) = by_expert(form, lists[rank].len(), &pairs);
    let mut found = before.clone();
    if form.layout == Layout::BySource {
        // Nothing is counted; every row has expert ids, which are -1 where no token arrived.
        found.ids.fill(-1);
        found.weights.fill(0.0);
    } else {
        [found.numbers[0], found.numbers[1]] = [counts, offsets];
    }
    let groups = form.hidden.div_ceil(128);
    let room = found.scales.len() / groups;
    let scale_at = |place: usize, group: usize| match (all[rank].order, form.layout) {
        (ScaleOrder::Columns, Layout::Padded { rows }) => (place / rows * groups + group) * rows + place % rows,
        (ScaleOrder::Columns, _) => group * room + place,
        _ => place * groups + group,
    };
    let wires: Vec<Vec<_>> =
        all.iter().map(|inputs| (0..inputs.sent).map(|token| wired(form, inputs, token)).collect()).collect();
    let put = |found: &mut Found<T>, place: usize, source: usize, token: usize| {
        let (row, floats, bytes) = &wires[source][token];
        found.rows[place * row.len()..(place + 1) * row.len()].copy_from_slice(row);
        if form.wire == Wire::F8(Scales::E8M0) {
            let each = bytes.iter().enumerate();
            each.for_each(|(group, byte)| found.bytes_of_scales[scale_at(place, group)] = *byte);
        } else {
            let each = floats.iter().enumerate();
            each.for_each(|(group, scale)| found.scales[scale_at(place, group)] = *scale);
        }
        found.numbers[2][place * 2..place * 2 + 2].copy_from_slice(&[source as u32, token as u32]);
    };
    let weight = |pair: &Pair| {
        all[pair.source].weights.as_ref().map_or(1.0, |weights| weights[pair.token * form.top_k + pair.k])
    };
    if is_by_token(form) {
        for (place, (source, token)) in by_token(form, &pairs) {
            put(&mut found, place, source, token);
            found.ids[place * form.top_k..(place + 1) * form.top_k].fill(-1);
            found.weights[place * form.top_k..(place + 1) * form.top_k].fill(0.0);
            for (pair, index) in
                pairs.iter().zip(&places).filter(|(pair, _)| (pair.source, pair.token) == (source, token))
            {
                found.ids[place * form.top_k + pair.k] = pair.local as i32;
                found.weights[place * form.top_k + pair.k] = weight(pair);
                if form.layout == Layout::ByRank {
                    found.numbers[3][*index] = place as u32;
                }
            }
        }
    } else {
        for (pair, place) in pairs.iter().zip(places) {
            put(&mut found, place, pair.source, pair.token);
            found.ids[place] = pair.local as i32;
            found.weights[place] = weight(pair);
        }
    }
    found
}

/// The output of `rank` after the combine.
pub(crate) fn combined<T: Value>(form: &ExpertConfig, all: &[Inputs<T>], rank: usize) -> Vec<T> {
    let lists = lists(form, all.len());
    let own = &all[rank];
    let mut output = own.before.clone();
    // The pairs of each token of this rank, by the ranks that have them, with the rows of their results.
    let mut given = vec![Vec::new(); own.sent];
    for (giver, pairs) in pairs(form, &lists, all).into_iter().enumerate() {
        let (mut places, ..) = by_expert(form, lists[giver].len(), &pairs);
        if is_by_token(form) {
            let rows = by_token(form, &pairs);
            let place = |pair: &Pair| rows[rows.partition_point(|row| row.1 < (pair.source, pair.token))].0;
            places = pairs.iter().map(place).collect();
        }
        for (pair, place) in pairs.into_iter().zip(places).filter(|(pair, _)| pair.source == rank) {
            given[pair.token].push((giver, pair, place));
        }
    }
    for (token, given) in given.iter().enumerate() {
        let weight = |pair: &Pair| own.weights.as_ref().map_or(1.0, |weights| weights[token * form.top_k + pair.k]);
        let mut in_order = given.clone();
        in_order.sort_by_key(|(_, pair, _)| pair.k);
        for h in 0..form.hidden {
            let result = |giver: usize, place: usize| all[giver].results[place * form.hidden + h].get();
            let mut sum = 0f32;
            if form.determinism == Some(Determinism::Exact) && !is_by_token(form) {
                in_order.iter().for_each(|(giver, pair, place)| sum += result(*giver, *place) * weight(pair));
            } else {
                for of_rank in given.chunk_by(|one, other| one.0 == other.0) {
                    let (giver, _, first) = of_rank[0];
                    let part = |part: f32, (_, pair, place): &(usize, Pair, usize)| {
                        part + result(giver, *place) * weight(pair)
                    };
                    sum += match form.layout {
                        Layout::ByRank | Layout::BySource => result(giver, first),
                        _ => T::of(of_rank.iter().fold(0f32, part)).get(),
                    };
                }
            }
            let at = token * form.hidden + h;
            output[at] = T::of(if own.adds { sum + own.before[at].get() } else { sum });
        }
    }
    output
}
