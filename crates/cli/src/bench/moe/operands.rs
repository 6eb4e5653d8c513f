//! The operands of a rank.

use symmetra::experts::{Combine, Experts, Received, Routed, Routing, ScaleOrder};
use symmetra::half::bf16;
use symmetra::{Communicator, Device, DeviceBuffer, Element, Queue, Stream, SymmetricBuffer};

use super::oracle::{Expected, Image, Oracle, Rows, unwritten};
use super::routes::Routes;
use crate::experts::{Layout, Shape, Wire, groups};

/// Rows as they are given in, or as they travel.
pub(super) enum Lines {
    Same(DeviceBuffer<bf16>),
    F8 { codes: DeviceBuffer<u8>, scales: DeviceBuffer<f32> },
}

impl Lines {
    pub(super) fn new(device: &Device, wire: Wire, rows: usize, hidden: usize) -> symmetra::Result<Self> {
        Ok(match wire {
            Wire::Same => Self::Same(DeviceBuffer::new(device, rows * hidden)?),
            Wire::F8 | Wire::GivenF8 => Self::F8 {
                codes: DeviceBuffer::new(device, rows * hidden)?,
                scales: DeviceBuffer::new(device, rows * groups(hidden))?,
            },
        })
    }

    /// As what a dispatch writes.
    pub(super) fn received(&self) -> Received<'_> {
        match self {
            Self::Same(rows) => Received::rows(rows),
            Self::F8 { codes, scales } => Received::rows(codes).scales(scales, ScaleOrder::Rows),
        }
    }

    /// Sends the rows by a routing that is told at once.
    pub(super) fn dispatch<'h, 'op>(
        &'op self,
        experts: &'h Experts,
        routing: &Routing<'op>,
        into: &Received<'op>,
        queue: impl Queue<'op> + 'h,
    ) -> symmetra::Result<Routed<'h>> {
        match self {
            Self::Same(rows) => experts.dispatch(routing, rows, into, queue),
            Self::F8 { codes, scales } => experts.dispatch_f8(routing, (codes, scales), into, queue),
        }
    }

    /// Sends the rows by a routing that is known.
    pub(super) fn dispatch_again<'op>(
        &'op self,
        routed: &Routed<'_>,
        into: &Received<'op>,
        queue: impl Queue<'op>,
    ) -> symmetra::Result<()> {
        match self {
            Self::Same(rows) => routed.dispatch(rows, into, queue),
            Self::F8 { codes, scales } => routed.dispatch_f8((codes, scales), into, queue),
        }
    }

    fn write(&self, image: &Image, stream: &Stream) -> symmetra::Result<()> {
        match (self, image) {
            (Self::Same(rows), Image::Same(from)) => rows.write(from, stream),
            (Self::F8 { codes, scales }, Image::F8 { codes: from, scales: scales_from }) => {
                codes.write(from, stream)?;
                scales.write(scales_from, stream)
            }
            // All rows of a race are given in alike.
            _ => Ok(()),
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

    fn unlike(&self, image: &Image, stream: &Stream) -> symmetra::Result<u64> {
        match (self, image) {
            (Self::Same(rows), Image::Same(right)) => unlike(rows, right, stream),
            (Self::F8 { codes, scales }, Image::F8 { codes: right, scales: right_scales }) => {
                Ok(unlike(codes, right, stream)? + unlike(scales, right_scales, stream)?)
            }
            (Self::Same(rows), _) => Ok(rows.len() as u64),
            (Self::F8 { codes, .. }, _) => Ok(codes.len() as u64),
        }
    }
}

/// What this rank gives in, and what the experts of this rank make of what comes.
pub(super) struct Inputs<'a> {
    pub(super) routes: &'a Routes,
    rows: Image,
    results: Vec<bf16>,
}

impl<'a> Inputs<'a> {
    /// `results`: of how many rows.
    pub(super) fn new(
        (rows, wire): (&Rows, Wire),
        routes: &'a Routes,
        rank: usize,
        [tokens, results]: [usize; 2],
    ) -> Self {
        let given = (0..tokens).map(|token| (token, rows.token(rank, token)));
        Self {
            routes,
            rows: Image::new(wire.given(), [tokens, rows.hidden()], given),
            results: (0..results).flat_map(|at| rows.result(rank, at)).collect(),
        }
    }
}

/// What a dispatch writes and a combine reads, in symmetric memory: as many rows on every rank, of which this rank has some.
struct Shared {
    received: SharedRows,
    results: SymmetricBuffer<bf16>,
}

enum SharedRows {
    Same(SymmetricBuffer<bf16>),
    F8(SymmetricBuffer<u8>),
}

/// Symmetric memory that [`Operands::share`] takes for each element of the rows that any rank receives.
pub(super) const SHARED_ELEM_BYTES: usize = 2 * size_of::<bf16>();

/// The operands of a rank for one number of tokens. What a layout does not have has no elements.
pub(super) struct Operands {
    pub(super) layout: Layout,
    rank: usize,
    /// `[tokens, top_k]`, as the weights.
    pub(super) ids: DeviceBuffer<i32>,
    pub(super) weights: DeviceBuffer<f32>,
    /// `[tokens, hidden]`, as the output.
    pub(super) rows: Lines,
    pub(super) output: DeviceBuffer<bf16>,
    pub(super) received: Lines,
    /// Of the experts of this rank.
    counts: DeviceBuffer<u32>,
    offsets: DeviceBuffer<u32>,
    local_ids: DeviceBuffer<i32>,
    local_weights: DeviceBuffer<f32>,
    pub(super) results: DeviceBuffer<bf16>,
    /// In place of received rows and results, where peers can address them.
    shared: Option<Shared>,
}

impl Operands {
    pub(super) fn new(
        device: &Device,
        (shape, wire, layout): (Shape, Wire, Layout),
        oracle: &Oracle<'_>,
        [rank, tokens]: [usize; 2],
    ) -> symmetra::Result<Self> {
        let Shape { top_k, hidden, .. } = shape;
        let (rows, experts) = (oracle.rows(rank), oracle.experts_on(rank).len());
        let only = |when: bool, elems: usize| if when { elems } else { 0 };
        let beside = only(layout.is_by_token(), rows * top_k);
        Ok(Self {
            layout,
            rank,
            ids: DeviceBuffer::new(device, tokens * top_k)?,
            weights: DeviceBuffer::new(device, tokens * top_k)?,
            rows: Lines::new(device, wire.given(), tokens, hidden)?,
            output: DeviceBuffer::new(device, tokens * hidden)?,
            received: Lines::new(device, wire, rows, hidden)?,
            counts: DeviceBuffer::new(device, only(layout != Layout::BySource, experts))?,
            offsets: DeviceBuffer::new(device, only(layout == Layout::ByExpert, experts + 1))?,
            local_ids: DeviceBuffer::new(device, beside)?,
            local_weights: DeviceBuffer::new(device, beside)?,
            results: DeviceBuffer::new(device, rows * hidden)?,
            shared: None,
        })
    }

    /// Puts received rows and results into symmetric memory. `elems`: of the rows that any rank receives. Collective.
    pub(super) fn share(mut self, communicator: &Communicator, elems: usize) -> symmetra::Result<Self> {
        let received = match self.received {
            Lines::Same(_) => SharedRows::Same(communicator.symmetric(elems)?),
            Lines::F8 { .. } => SharedRows::F8(communicator.symmetric(elems)?),
        };
        self.shared = Some(Shared { received, results: communicator.symmetric(elems)? });
        Ok(self)
    }

    /// The rows that a dispatch writes, with their scales.
    fn rows_into(&self) -> Received<'_> {
        match (&self.shared, &self.received) {
            (Some(Shared { received: SharedRows::Same(rows), .. }), _) => Received::rows(rows),
            (Some(Shared { received: SharedRows::F8(codes), .. }), Lines::F8 { scales, .. }) => {
                Received::rows(codes).scales(scales, ScaleOrder::Rows)
            }
            _ => self.received.received(),
        }
    }

    /// Sums the results of this rank's tokens.
    pub(super) fn combine<'s>(&'s self, routed: &Routed<'_>, queue: impl Queue<'s>) -> symmetra::Result<()> {
        match &self.shared {
            Some(shared) => routed.combine(&shared.results, &self.output, Combine::default(), queue),
            None => routed.combine(&self.results, &self.output, Combine::default(), queue),
        }
    }

    /// All that experts need to know of what comes.
    pub(super) fn into(&self) -> Received<'_> {
        let into = self.rows_into();
        match self.layout {
            Layout::ByRank => into.counts(&self.counts).ids(&self.local_ids).weights(&self.local_weights),
            Layout::ByExpert => into.counts(&self.counts).offsets(&self.offsets),
            Layout::Padded => into.counts(&self.counts),
            Layout::BySource => into.ids(&self.local_ids).weights(&self.local_weights),
        }
    }

    /// Writes what calls read, and marks what they write. Blocks until all is written.
    pub(super) fn write(&self, inputs: &Inputs<'_>, stream: &Stream) -> symmetra::Result<()> {
        self.ids.write(&inputs.routes.ids[self.rank], stream)?;
        self.weights.write(&inputs.routes.weights[self.rank], stream)?;
        self.rows.write(&inputs.rows, stream)?;
        self.results.write(&inputs.results, stream)?;
        if let Some(Shared { received, results }) = &self.shared {
            let beyond = std::iter::repeat_n(bf16::ZERO, results.len() - inputs.results.len());
            results.write(&inputs.results.iter().copied().chain(beyond).collect::<Vec<_>>(), stream)?;
            match received {
                SharedRows::Same(rows) => rows.write(&vec![unwritten(); rows.len()], stream)?,
                SharedRows::F8(codes) => codes.write(&vec![unwritten(); codes.len()], stream)?,
            }
        }
        forget(&self.output, stream)?;
        self.received.forget(stream)?;
        forget(&self.counts, stream)?;
        forget(&self.offsets, stream)?;
        forget(&self.local_ids, stream)?;
        forget(&self.local_weights, stream)
    }

    /// How many elements of received rows are wrong. Blocks.
    pub(super) fn wrong_rows(&self, right: &Expected, stream: &Stream) -> symmetra::Result<u64> {
        let Some(Shared { received, .. }) = &self.shared else { return self.received.unlike(&right.received, stream) };
        match (received, &self.received, &right.received) {
            (SharedRows::Same(rows), _, Image::Same(right)) => unlike_shared(rows, right, stream),
            (SharedRows::F8(codes), Lines::F8 { scales, .. }, Image::F8 { codes: right, scales: right_scales }) => {
                Ok(unlike_shared(codes, right, stream)? + unlike(scales, right_scales, stream)?)
            }
            (SharedRows::Same(rows), ..) => Ok(rows.len() as u64),
            (SharedRows::F8(codes), ..) => Ok(codes.len() as u64),
        }
    }

    /// How many numbers beside received rows are wrong. Blocks.
    pub(super) fn wrong_numbers(&self, right: &Expected, stream: &Stream) -> symmetra::Result<u64> {
        Ok(unlike(&self.counts, &right.counts, stream)?
            + unlike(&self.offsets, &right.offsets, stream)?
            + unlike(&self.local_ids, &right.ids, stream)?
            + unlike(&self.local_weights, &right.weights, stream)?)
    }

    /// How many elements of the output are wrong. Blocks.
    pub(super) fn wrong_sums(&self, right: &Expected, stream: &Stream) -> symmetra::Result<u64> {
        unlike(&self.output, &right.output, stream)
    }
}

/// Overwrites all elements with a value that means nothing.
fn forget<T: Element>(buffer: &DeviceBuffer<T>, stream: &Stream) -> symmetra::Result<()> {
    buffer.write(&vec![unwritten(); buffer.len()], stream)
}

/// How many elements have other bits.
fn unlike<T: Element>(buffer: &DeviceBuffer<T>, right: &[T], stream: &Stream) -> symmetra::Result<u64> {
    Ok(differing(&buffer.read(stream)?, right))
}

/// How many elements of symmetric memory have other bits. Nothing is written behind those of this rank.
fn unlike_shared<T: Element>(buffer: &SymmetricBuffer<T>, right: &[T], stream: &Stream) -> symmetra::Result<u64> {
    let found = buffer.read(stream)?;
    let (own, beyond) = found.split_at(right.len().min(found.len()));
    Ok(differing(own, right) + differing(beyond, &vec![unwritten(); beyond.len()]))
}

fn differing<T: Element>(found: &[T], right: &[T]) -> u64 {
    let differs = |(found, right): &(&T, &T)| bytemuck::bytes_of(*found) != bytemuck::bytes_of(*right);
    (found.len().abs_diff(right.len()) + found.iter().zip(right).filter(differs).count()) as u64
}
