//! Random calls of experts, and the operands that they have.

use symmetra::experts::{ExpertConfig, Layout, ScaleOrder, Wire};

use crate::expert_oracle::{Found, Inputs, Value, is_by_token, lists};
use crate::support::data::{Random, mix};

/// Bytes of a received row, as tests read them, and elements of an operand for it.
pub(crate) fn row_bytes(form: &ExpertConfig) -> usize {
    match form.wire {
        Wire::Bytes(bytes) => bytes,
        _ => form.hidden,
    }
}

/// Random inputs of a rank for a call of `tokens` tokens, from a seed. `room`: rows that its experts may receive.
pub(crate) fn inputs_of<T: Value>(
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
pub(crate) fn before<T: Value>(form: &ExpertConfig, [room, local]: [usize; 2], own: &Inputs<T>) -> Found<T> {
    let pairs = if is_by_token(form) { room * form.top_k } else { room };
    let scales = room * form.hidden.div_ceil(128);
    let rows = match form.wire {
        Wire::Same => {
            vec![T::sample(1); room * form.hidden].iter().flat_map(|value| value.bits().to_le_bytes()).collect()
        }
        _ => vec![0xA5; room * row_bytes(form)],
    };
    Found {
        rows,
        scales: vec![0.5; scales],
        bytes_of_scales: vec![0xA5; scales],
        numbers: [local, local + 1, room * 2, pairs].map(|len| vec![7; len]),
        ids: vec![7; pairs],
        weights: vec![7.0; pairs],
        sums: own.before.clone(),
    }
}

/// Rows that an operand of `rank` has room for.
pub(crate) fn room(form: &ExpertConfig, world: usize, rank: usize) -> usize {
    let lists = lists(form, world);
    let most_local = lists.iter().map(Vec::len).max().unwrap();
    match form.layout {
        Layout::ByExpert { align } => world * form.max_tokens * form.top_k + most_local * (align - 1),
        Layout::Padded { rows } => rows * lists[rank].len(),
        _ => world * form.max_tokens,
    }
}
