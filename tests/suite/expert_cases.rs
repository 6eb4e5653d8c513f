//! Random calls of experts, their operands, and their outputs by the reference.

use reference::element::Real;
use reference::experts::arrivals::{Arrivals, RankRouting, experts_of_ranks, is_by_token};
use reference::experts::combine::{SumsBefore, combined};
use reference::experts::dispatch::RoutedOutputs;
use reference::experts::wire::WireRow;
use symmetra::experts::{ExpertConfig, Layout, ScaleOrder, Wire};

use crate::support::Sample;
use crate::support::data::{Random, mix};

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

impl<T: Real> Inputs<T> {
    /// A row as its receivers get the row.
    fn wired(&self, form: &ExpertConfig, token: usize) -> WireRow {
        let own = |elems: usize| token * elems..(token + 1) * elems;
        let row = &self.rows[own(form.hidden)];
        match form.wire {
            Wire::Same => WireRow::unchanged(row),
            Wire::F8(scales) => WireRow::quantised(row, scales),
            Wire::Bytes(bytes) => WireRow { bytes: self.bytes[own(bytes)].to_vec(), ..WireRow::default() },
            _ => WireRow {
                bytes: self.bytes[own(form.hidden)].to_vec(),
                scales: self.given_scales[own(form.hidden.div_ceil(128))].to_vec(),
                exponents: Vec::new(),
            },
        }
    }
}

fn arrivals<T>(form: &ExpertConfig, all: &[Inputs<T>]) -> Vec<Arrivals> {
    let routings =
        all.iter().map(|own| RankRouting { ids: &own.ids, weights: own.weights.as_deref(), tokens: own.sent });
    Arrivals::of_ranks(form, &routings.collect::<Vec<_>>())
}

/// The outputs of `rank` after a dispatch, over the earlier contents.
pub(crate) fn dispatched<T: Real>(
    form: &ExpertConfig,
    all: &[Inputs<T>],
    rank: usize,
    mut outputs: RoutedOutputs<T>,
) -> RoutedOutputs<T> {
    let wired = |source: usize, token: usize| all[source].wired(form, token);
    outputs.dispatch(form, &arrivals(form, all)[rank], all[rank].order, wired);
    outputs
}

/// The output of `rank` after the combine.
pub(crate) fn sums<T: Real>(form: &ExpertConfig, all: &[Inputs<T>], rank: usize) -> Vec<T> {
    let Inputs { before, adds, sent, .. } = &all[rank];
    let before = SumsBefore { rows: before, adds: *adds, tokens: *sent };
    let result = |rank: usize, row: usize| &all[rank].results[row * form.hidden..][..form.hidden];
    combined(form, &arrivals(form, all), rank, before, result)
}

/// Bytes of a received row, as tests read them, and elements of an operand for it.
pub(crate) fn row_bytes(form: &ExpertConfig) -> usize {
    match form.wire {
        Wire::Bytes(bytes) => bytes,
        _ => form.hidden,
    }
}

/// Random inputs of a rank for a call of `tokens` tokens, from a seed. `room`: rows that its experts may receive.
pub(crate) fn inputs_of<T: Real + Sample>(
    form: &ExpertConfig,
    rank: usize,
    [tokens, room]: [usize; 2],
    seed: u64,
) -> Inputs<T> {
    let mut random = Random(mix(mix(seed) ^ (rank as u64) << 40));
    // All to one expert, or any; some to none.
    let crowd = random.below(4) == 0;
    let id = |random: &mut Random| match (random.below(8), crowd) {
        (0, _) => -1,
        (_, true) => 0,
        _ => random.below(form.experts) as i64,
    };
    let ids: Vec<i64> = (0..tokens * form.top_k).map(|_| id(&mut random)).collect();
    let weights = ids.iter().map(|_| random.below(1000) as f32 / 999.0).collect();
    let values = |random: &mut Random, len: usize| (0..len).map(|_| T::sample(random.next())).collect();
    // No code is a NaN: those may become others in packets.
    let not_nan = |byte: u8| if byte & 0x7F == 0x7F && form.wire == Wire::GivenF8 { 0x7E } else { byte };
    Inputs {
        weights: (random.below(3) > 0).then_some(weights),
        sent: random.below(tokens + 1),
        rows: values(&mut random, tokens * form.hidden),
        bytes: (0..tokens * row_bytes(form)).map(|_| not_nan(random.next() as u8)).collect(),
        given_scales: (0..tokens * form.hidden.div_ceil(128)).map(|_| random.below(1000) as f32).collect(),
        order: if random.below(2) == 0 { ScaleOrder::Rows } else { ScaleOrder::Columns },
        before: values(&mut random, tokens * form.hidden),
        adds: random.below(2) == 0,
        results: values(&mut random, room * form.hidden),
        ids,
    }
}

/// The contents of the operands before a call.
pub(crate) fn before<T: Real + Sample>(
    form: &ExpertConfig,
    [room, local]: [usize; 2],
    own: &Inputs<T>,
) -> RoutedOutputs<T> {
    let pairs = if is_by_token(form) { room * form.top_k } else { room };
    let scales = room * form.hidden.div_ceil(128);
    let rows = match form.wire {
        Wire::Same => bytemuck::cast_slice(&vec![T::sample(1); room * form.hidden]).to_vec(),
        _ => vec![0xA5; room * row_bytes(form)],
    };
    RoutedOutputs {
        rows,
        scales: vec![0.5; scales],
        exponents: vec![0xA5; scales],
        numbers: [local, local + 1, room * 2, pairs].map(|len| vec![7; len]),
        ids: vec![7; pairs],
        weights: vec![7.0; pairs],
        sums: own.before.clone(),
    }
}

/// Rows that an operand of `rank` has room for.
pub(crate) fn room(form: &ExpertConfig, world: usize, rank: usize) -> usize {
    let lists = experts_of_ranks(form, world);
    let most_local = lists.iter().map(Vec::len).max().unwrap();
    match form.layout {
        Layout::ByExpert { align } => world * form.max_tokens * form.top_k + most_local * (align - 1),
        Layout::Padded { rows } => rows * lists[rank].len(),
        _ => world * form.max_tokens,
    }
}
