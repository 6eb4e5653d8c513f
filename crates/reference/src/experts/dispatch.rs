//! The outputs of a rank after a dispatch.

use symmetra::experts::{ExpertConfig, Layout, ScaleOrder};

use super::arrivals::{Arrivals, is_by_token};
use super::wire::{GROUP, WireRow};

/// The contents of all outputs of a dispatch and a combine. An output that the caller does not ask for is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedOutputs<T> {
    /// The bytes of received rows.
    pub rows: Vec<u8>,
    pub scales: Vec<f32>,
    /// Scales in the format e8m0.
    pub exponents: Vec<u8>,
    /// Counts, offsets, sources, index.
    pub numbers: [Vec<u32>; 4],
    pub ids: Vec<i32>,
    pub weights: Vec<f32>,
    pub sums: Vec<T>,
}

impl<T> RoutedOutputs<T> {
    /// Writes a dispatch to a rank over the contents before the call. `wired(source, token)`: a row as the rank
    /// receives the row.
    pub fn dispatch(
        &mut self,
        form: &ExpertConfig,
        arrivals: &Arrivals,
        order: ScaleOrder,
        wired: impl Fn(usize, usize) -> WireRow,
    ) {
        if form.layout == Layout::BySource {
            // Nothing is counted. Rows of tokens that do not arrive have ids too.
            self.ids.fill(-1);
            self.weights.fill(0.0);
        } else {
            write(&mut self.numbers[0], 0, &arrivals.counts);
            write(&mut self.numbers[1], 0, &arrivals.offsets);
        }
        for pairs in arrivals.tokens() {
            let (source, token) = (pairs[0].source, pairs[0].token);
            let row = wired(source, token);
            let rows = if is_by_token(form) { &pairs[..1] } else { pairs };
            for at in rows.iter().map(|pair| pair.row) {
                self.put(form, order, at, &row);
                write(&mut self.numbers[2], 2 * at, &[source as u32, token as u32]);
            }
            if is_by_token(form) {
                let first = pairs[0].row * form.top_k;
                write(&mut self.ids, first, &vec![-1; form.top_k]);
                write(&mut self.weights, first, &vec![0.0; form.top_k]);
            }
            for pair in pairs {
                let at = if is_by_token(form) { pair.row * form.top_k + pair.k } else { pair.row };
                write(&mut self.ids, at, &[pair.expert as i32]);
                write(&mut self.weights, at, &[pair.weight]);
                if form.layout == Layout::ByRank {
                    write(&mut self.numbers[3], pair.place, &[pair.row as u32]);
                }
            }
        }
    }

    /// Writes a row and its scales.
    fn put(&mut self, form: &ExpertConfig, order: ScaleOrder, at: usize, row: &WireRow) {
        write(&mut self.rows, at * row.bytes.len(), &row.bytes);
        let groups = form.hidden.div_ceil(GROUP);
        // In columns, the scales of each block of rows are transposed: of each expert with padding, else of all rows.
        let block = match form.layout {
            Layout::Padded { rows } => rows,
            _ => self.scales.len().max(self.exponents.len()) / groups,
        };
        let place = |group: usize| match order {
            ScaleOrder::Columns => (at / block * groups + group) * block + at % block,
            _ => at * groups + group,
        };
        row.scales.iter().enumerate().for_each(|(group, scale)| write(&mut self.scales, place(group), &[*scale]));
        row.exponents.iter().enumerate().for_each(|(group, scale)| write(&mut self.exponents, place(group), &[*scale]));
    }
}

/// Writes into an output that the caller asks for.
fn write<E: Copy>(output: &mut [E], at: usize, values: &[E]) {
    if !output.is_empty() {
        output[at..at + values.len()].copy_from_slice(values);
    }
}
