//! The operations on rows: which rows a rank has, what runs, and by which algorithm.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use symmetra::{Algorithm, Communicator, Dtype, Element, Quantisation, Queue, RowNorm};

use crate::failure::CommandFailure;
use reference::quantised::Format;

/// Most elements of a row.
pub const MOST_HIDDEN: u64 = 1 << 20;

/// An operation on rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    AllReduce,
    ReduceScatter,
    ReduceScatterAllGather,
}

impl Form {
    /// The name without its norm.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::ReduceScatterAllGather => "reduce-scatter-all-gather",
        }
    }

    /// The `asked` numbers of rows, or the `usual` numbers, rounded up to equal shares where ranks have shares.
    /// Refuses types that rows cannot have, and numbers that cannot be divided into equal shares.
    pub fn tokens(self, dtype: Dtype, asked: &[u64], usual: &[u64], ranks: u64) -> Result<Vec<usize>, CommandFailure> {
        if !symmetra::op::ALL_REDUCE_NORM.dtypes().contains(&dtype) {
            return Err(CommandFailure::usage(format!("rows are f32, f16 or bf16, not {dtype}")));
        }
        let parts = if self == Self::AllReduce { 1 } else { ranks };
        if let Some(tokens) = asked.iter().find(|tokens| !tokens.is_multiple_of(parts)) {
            return Err(CommandFailure::usage(format!(
                "--tokens: {tokens} rows have no equal shares for {ranks} ranks"
            )));
        }
        let mut tokens = match asked {
            [] => usual.iter().map(|tokens| tokens.next_multiple_of(parts) as usize).collect(),
            asked => asked.iter().map(|tokens| *tokens as usize).collect::<Vec<_>>(),
        };
        if asked.is_empty() {
            tokens.dedup();
        }
        Ok(tokens)
    }

    /// Refuses an algorithm that does not scatter rows.
    pub fn check_algorithm(self, algorithm: Algorithm) -> Result<(), CommandFailure> {
        use Algorithm::{Auto, TwoShotSentinel, TwoShotZeroCopy};
        let able = match self {
            Self::AllReduce => return Ok(()),
            Self::ReduceScatter => &[Auto, TwoShotSentinel][..],
            Self::ReduceScatterAllGather => &[Auto, TwoShotSentinel, TwoShotZeroCopy],
        };
        match able.contains(&algorithm) {
            true => Ok(()),
            false => {
                let able: Vec<_> = able.iter().map(|algorithm| algorithm.name()).collect();
                let (op, able) = (self.name(), able.join(", "));
                Err(CommandFailure::usage(format!(
                    "--op {op}: --algorithm is {algorithm}, but it must be one of {able}"
                )))
            }
        }
    }

    /// Numbers of the rows that a rank reduces and keeps.
    pub fn kept(self, tokens: usize, [rank, ranks]: [usize; 2]) -> Range<usize> {
        let share = tokens / ranks;
        if self == Self::AllReduce { 0..tokens } else { rank * share..(rank + 1) * share }
    }

    /// Numbers of the rows that a rank has normed at the end.
    pub fn normed(self, tokens: usize, of: [usize; 2]) -> Range<usize> {
        if self == Self::ReduceScatter { self.kept(tokens, of) } else { 0..tokens }
    }

    /// Enqueues the operation.
    pub fn enqueue<'op, T: Element>(
        self,
        communicator: &Communicator,
        rows: RowNorm<'op, T>,
        queue: impl Queue<'op>,
    ) -> symmetra::Result<()> {
        match self {
            Self::AllReduce => communicator.all_reduce_norm(rows, queue),
            Self::ReduceScatter => communicator.reduce_scatter_norm(rows, queue),
            Self::ReduceScatterAllGather => communicator.reduce_scatter_norm_all_gather(rows, queue),
        }
    }

    /// The algorithm of the sum: the named algorithm, or the library's choice for rows of `hidden` elements and `bytes`
    /// bytes. For `Auto`, scattered rows go by a reduce-scatter. `direct`: whether peers can address the operands;
    /// `placed`: whether the caller has memory for the sum of all rows; `quantise`: the format in which normed rows are
    /// written too.
    pub fn algorithm(
        self,
        communicator: &Communicator,
        named: Algorithm,
        (dtype, hidden, bytes): (Dtype, usize, u64),
        (direct, placed): (bool, bool),
        quantise: Option<Format>,
    ) -> symmetra::Result<Algorithm> {
        if named != Algorithm::Auto {
            return Ok(named);
        }
        let ranges = match (self, quantise) {
            (Self::AllReduce, None) => communicator.explain_norm(dtype, hidden, direct),
            (Self::AllReduce, Some(format)) => {
                let width = width(hidden, quantise);
                communicator.explain_quantised_norm(dtype, hidden, width, chosen_as(format), direct, placed)?
            }
            (scattered, quantise) => {
                let gathers = scattered == Self::ReduceScatterAllGather;
                communicator.explain_scattered_norm(dtype, hidden, quantise.is_some(), direct, gathers)
            }
        };
        Ok(ranges.at(bytes).map_or(named, |range| range.choice))
    }

    /// An algorithm whose sum has the same bits as the sum by `algorithm`: a reduce-scatter adds in rank order.
    pub fn sums_as(self, algorithm: Algorithm) -> Algorithm {
        if self == Self::AllReduce { algorithm } else { Algorithm::TwoShotSentinel }
    }
}

/// The name of the algorithm of a sum.
pub fn name(algorithm: Algorithm) -> String {
    match algorithm {
        Algorithm::Auto => "reduce-scatter".to_owned(),
        algorithm => algorithm.to_string(),
    }
}

/// The quantisation by which an algorithm is chosen for a format: a static scale counts as a scale per token.
pub fn chosen_as(format: Format) -> Quantisation {
    match format {
        Format::Static(to) => Quantisation::PerToken(to),
        Format::Scaled(how) => how,
    }
}

/// Elements of an output row: whole groups, unless the format allows short groups.
pub fn width(hidden: usize, quantise: Option<Format>) -> usize {
    hidden.next_multiple_of(quantise.map_or(1, Format::step))
}

/// The elements of rows that are `pitch` elements apart.
pub fn elems_of(rows: &Range<usize>, pitch: usize) -> Range<usize> {
    rows.start * pitch..rows.end * pitch
}
