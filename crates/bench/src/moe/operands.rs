//! The operands of a rank.

use symmetra::experts::{Combine, Experts, Received, Routed, Routing, ScaleOrder};
use symmetra::half::bf16;
use symmetra::{Element, Queue, Stream};

use super::memory::{Home, MoeMemory, with_buffer};
use super::oracle::{MoeOracle, RowPool, given, unwritten};
use super::routes::Routes;
use harness::buffer::BUFFER_BYTES;
use harness::experts::{ExpertShape, RowOrder, RowWire, groups};
use reference::experts::dispatch::RoutedOutputs;
use reference::experts::wire::WireRow;

/// Rows as they are passed in, or as they travel.
pub(super) enum Lines {
    Same(MoeMemory<bf16>),
    F8 { codes: MoeMemory<u8>, scales: MoeMemory<f32> },
}

impl Lines {
    /// Collective where the home is shared.
    pub(super) fn new(home: Home<'_>, wire: RowWire, [rows, hidden]: [usize; 2]) -> symmetra::Result<Self> {
        Ok(match wire {
            RowWire::Same => Self::Same(MoeMemory::new(home, rows * hidden)?),
            RowWire::F8 | RowWire::GivenF8 => Self::F8 {
                codes: MoeMemory::new(home, rows * hidden)?,
                scales: MoeMemory::new(home, rows * groups(hidden))?,
            },
        })
    }

    /// The rows as the output of a dispatch.
    pub(super) fn received(&self) -> Received<'_> {
        match self {
            Self::Same(rows) => with_buffer!(rows, rows => Received::rows(rows)),
            Self::F8 { codes, scales } => {
                let into = with_buffer!(codes, codes => Received::rows(codes));
                with_buffer!(scales, scales => into.scales(scales, ScaleOrder::Rows))
            }
        }
    }

    /// Sends the rows by a routing that is exchanged in the same call.
    pub(super) fn dispatch<'h, 'op>(
        &'op self,
        experts: &'h Experts,
        routing: &Routing<'op>,
        into: &Received<'op>,
        queue: impl Queue<'op> + 'h,
    ) -> symmetra::Result<Routed<'h>> {
        match self {
            Self::Same(rows) => experts.dispatch(routing, rows.borrow(), into, queue),
            Self::F8 { codes, scales } => experts.dispatch_f8(routing, codes.borrow(), scales.borrow(), into, queue),
        }
    }

    /// Sends the rows by a routing that was exchanged before.
    pub(super) fn dispatch_again<'op>(
        &'op self,
        routed: &Routed<'_>,
        into: &Received<'op>,
        queue: impl Queue<'op>,
    ) -> symmetra::Result<()> {
        match self {
            Self::Same(rows) => routed.dispatch(rows.borrow(), into, queue),
            Self::F8 { codes, scales } => routed.dispatch_f8(codes.borrow(), scales.borrow(), into, queue),
        }
    }

    fn write(&self, WireRow { bytes, scales: values, .. }: &WireRow, stream: &Stream) -> symmetra::Result<()> {
        match self {
            Self::Same(rows) => rows.write(&bytemuck::pod_collect_to_vec(bytes), stream),
            Self::F8 { codes, scales } => {
                codes.write(bytes, stream)?;
                scales.write(values, stream)
            }
        }
    }

    fn forget(&self, stream: &Stream) -> symmetra::Result<()> {
        match self {
            Self::Same(rows) => forget(rows, stream),
            Self::F8 { codes, scales } => {
                forget(codes, stream)?;
                forget(scales, stream)
            }
        }
    }

    fn unlike(&self, right: &RoutedOutputs<bf16>, stream: &Stream) -> symmetra::Result<u64> {
        match self {
            Self::Same(rows) => unlike(rows, &bytemuck::pod_collect_to_vec(&right.rows), stream),
            Self::F8 { codes, scales } => {
                Ok(unlike(codes, &right.rows, stream)? + unlike(scales, &right.scales, stream)?)
            }
        }
    }
}

/// Buffers of operands that may be shared.
const SHARED_BUFFERS: u64 = 5;

/// The inputs of this rank, and the results of its experts for the received rows.
pub(super) struct MoeInputs<'a> {
    pub(super) routes: &'a Routes,
    rows: WireRow,
    results: Vec<bf16>,
}

impl<'a> MoeInputs<'a> {
    /// `results`: the number of rows of results.
    pub(super) fn new(
        (rows, wire): (&RowPool, RowWire),
        routes: &'a Routes,
        rank: usize,
        [tokens, results]: [usize; 2],
    ) -> Self {
        Self {
            routes,
            rows: given((0..tokens).map(|token| rows.token(rank, token)), wire),
            results: (0..results).flat_map(|at| rows.result(rank, at)).collect(),
        }
    }
}

/// The operands of a rank for one number of tokens. Operands that a layout does not have are empty.
pub(super) struct MoeOperands {
    pub(super) layout: RowOrder,
    rank: usize,
    /// `[tokens, top_k]`, as the weights.
    pub(super) ids: MoeMemory<i32>,
    pub(super) weights: MoeMemory<f32>,
    /// `[tokens, hidden]`, as the output.
    pub(super) rows: Lines,
    pub(super) output: MoeMemory<bf16>,
    pub(super) received: Lines,
    /// The counts of the experts of this rank.
    counts: MoeMemory<u32>,
    offsets: MoeMemory<u32>,
    local_ids: MoeMemory<i32>,
    local_weights: MoeMemory<f32>,
    pub(super) results: MoeMemory<bf16>,
}

impl MoeOperands {
    /// `home` holds received rows, their metadata, and results; all other memory is the rank's own. Collective where
    /// the home is shared.
    pub(super) fn new(
        home: Home<'_>,
        (shape, wire, layout): (ExpertShape, RowWire, RowOrder),
        oracle: &MoeOracle,
        [rank, tokens]: [usize; 2],
    ) -> symmetra::Result<Self> {
        let ExpertShape { top_k, hidden, .. } = shape;
        let (own, outputs) = (Home::Own(home.device()), oracle.unwritten(rank, wire));
        let [counts, offsets, ..] = &outputs.numbers;
        Ok(Self {
            layout,
            rank,
            ids: MoeMemory::new(own, tokens * top_k)?,
            weights: MoeMemory::new(own, tokens * top_k)?,
            rows: Lines::new(own, wire.given(), [tokens, hidden])?,
            output: MoeMemory::new(own, outputs.sums.len())?,
            received: Lines::new(home, wire, [oracle.rows(rank), hidden])?,
            counts: MoeMemory::new(own, counts.len())?,
            offsets: MoeMemory::new(own, offsets.len())?,
            local_ids: MoeMemory::new(home, outputs.ids.len())?,
            local_weights: MoeMemory::new(home, outputs.weights.len())?,
            results: MoeMemory::new(home, oracle.rows(rank) * hidden)?,
        })
    }

    /// Bytes of a symmetric heap that the operands take at a shared home, for `rows` rows of a rank.
    pub(super) fn shared_bytes(shape: ExpertShape, wire: RowWire, rows: usize) -> u64 {
        let row = wire.row_bytes(shape.hidden) + 8 * shape.top_k + size_of::<bf16>() * shape.hidden;
        (rows * row) as u64 + SHARED_BUFFERS * BUFFER_BYTES
    }

    /// The routing of the rank's tokens.
    pub(super) fn routing(&self) -> Routing<'_> {
        Routing::new(self.ids.borrow()).weights(self.weights.borrow())
    }

    /// Sums the results of this rank's tokens.
    pub(super) fn combine<'s>(&'s self, routed: &Routed<'_>, queue: impl Queue<'s>) -> symmetra::Result<()> {
        let output = self.output.borrow();
        with_buffer!(&self.results, results => routed.combine(results, output, Combine::default(), queue))
    }

    /// The outputs of a dispatch: the received rows and all metadata that experts need.
    pub(super) fn into<'s>(&'s self) -> Received<'s> {
        let into = self.received.received();
        let beside = |into: Received<'s>| {
            let into = with_buffer!(&self.local_ids, ids => into.ids(ids));
            with_buffer!(&self.local_weights, weights => into.weights(weights))
        };
        match self.layout {
            RowOrder::ByRank => beside(into.counts(self.counts.borrow())),
            RowOrder::ByExpert => into.counts(self.counts.borrow()).offsets(self.offsets.borrow()),
            RowOrder::Padded => into.counts(self.counts.borrow()),
            RowOrder::BySource => beside(into),
        }
    }

    /// Writes the inputs of calls, and marks the outputs. Blocks until all is written.
    pub(super) fn write(&self, inputs: &MoeInputs<'_>, stream: &Stream) -> symmetra::Result<()> {
        self.ids.write(&inputs.routes.ids[self.rank], stream)?;
        self.weights.write(&inputs.routes.weights[self.rank], stream)?;
        self.rows.write(&inputs.rows, stream)?;
        self.results.write(&inputs.results, stream)?;
        forget(&self.output, stream)?;
        self.received.forget(stream)?;
        forget(&self.counts, stream)?;
        forget(&self.offsets, stream)?;
        forget(&self.local_ids, stream)?;
        forget(&self.local_weights, stream)
    }

    /// How many elements of received rows are wrong. Blocks.
    pub(super) fn wrong_rows(&self, right: &RoutedOutputs<bf16>, stream: &Stream) -> symmetra::Result<u64> {
        self.received.unlike(right, stream)
    }

    /// How many metadata values of received rows are wrong. Blocks.
    pub(super) fn wrong_numbers(&self, right: &RoutedOutputs<bf16>, stream: &Stream) -> symmetra::Result<u64> {
        Ok(unlike(&self.counts, &right.numbers[0], stream)?
            + unlike(&self.offsets, &right.numbers[1], stream)?
            + unlike(&self.local_ids, &right.ids, stream)?
            + unlike(&self.local_weights, &right.weights, stream)?)
    }

    /// How many elements of the output are wrong. Blocks.
    pub(super) fn wrong_sums(&self, right: &RoutedOutputs<bf16>, stream: &Stream) -> symmetra::Result<u64> {
        unlike(&self.output, &right.sums, stream)
    }
}

/// Overwrites all elements with a value that has no meaning.
fn forget<T: Element>(buffer: &MoeMemory<T>, stream: &Stream) -> symmetra::Result<()> {
    buffer.write(&vec![unwritten(); buffer.len()], stream)
}

/// How many elements have other bits.
fn unlike<T: Element>(buffer: &MoeMemory<T>, right: &[T], stream: &Stream) -> symmetra::Result<u64> {
    let found = buffer.read(stream)?;
    let differs = |(found, right): &(&T, &T)| bytemuck::bytes_of(*found) != bytemuck::bytes_of(*right);
    Ok((found.len().abs_diff(right.len()) + found.iter().zip(right).filter(differs).count()) as u64)
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/moe_operands.rs"]
mod tests;
