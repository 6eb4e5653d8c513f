//! Where the operands of an operation are in the buffers of a measurement, the calls that are enqueued on them, and
//! their expected results.

use std::ops::Range;

use symmetra::op::{Case, Extent, Op, Size, Source};
use symmetra::{Algorithm, BoundAllReduce, Codec, Communicator, How, Queue};

use super::sweep::Sweep;
use harness::buffer::TestBuffer;
use harness::collective::CollectiveCommand;
use harness::names::Mover;
use reference::bounds::Bounds;
use reference::data::Data;
use reference::element::Summand;

/// Where the operands of a rank are in its buffers. The larger buffer has `elems` elements.
struct OperandPlaces {
    op: &'static Op,
    world: usize,
    root: usize,
    elems: usize,
    in_place: bool,
    along: Option<usize>,
}

/// The first dimensions of a rank's part of a tensor; the last dimension has the rest of its elements.
const LEADING: [usize; 2] = [4, 4];

/// A part of a tensor is a whole multiple of this many elements.
pub(super) const LEADING_ELEMS: usize = LEADING[0] * LEADING[1];

impl OperandPlaces {
    fn part(&self) -> usize {
        self.elems / self.world
    }

    /// The input as a tensor, for an operation along a dimension.
    fn shape(&self) -> [usize; 3] {
        let mut shape = [LEADING[0], LEADING[1], self.part() / LEADING_ELEMS];
        if let Some(dim) = self.along.filter(|_| self.op.input.size == Size::PerRank) {
            shape[dim] *= self.world;
        }
        shape
    }

    /// Rows of a rank's part.
    fn rows(&self) -> usize {
        self.along.map_or(1, |dim| LEADING[..dim].iter().product())
    }

    /// Whether `rank` has an operand.
    fn has(&self, extent: Extent, rank: usize) -> bool {
        extent.size != Size::None && (!extent.at_root || rank == self.root)
    }

    /// The elements of an operand of `rank`, in its buffer.
    fn range(&self, extent: Extent, rank: usize) -> std::ops::Range<usize> {
        let is_part = match extent.size {
            Size::One => [self.op.input, self.op.output].iter().any(|extent| extent.size == Size::PerRank),
            size => size == Size::OwnPart,
        };
        // In place, an output is in a larger operand that the rank has; an input has the place in any case.
        let inside = extent == self.op.input || self.has(self.op.input, rank);
        let count = |rank: usize| if extent.size == Size::OwnPart { self.pair(rank, rank) } else { self.part() };
        match is_part {
            false => 0..self.elems,
            true if self.in_place && inside => {
                let start = (0..rank).map(count).sum();
                start..start + count(rank)
            }
            true => 0..count(rank),
        }
    }

    /// How many elements one rank sends to another where each pair or each rank has its own count. A batch is one message
    /// from every rank to the next; otherwise every second rank gets more, or has a larger part.
    fn pair(&self, from: usize, to: usize) -> usize {
        let (part, further) = (self.part(), (to + self.world - from) % self.world);
        let number = match self.op.input.size {
            Size::Messages => return if further == 1 % self.world { self.elems } else { 0 },
            Size::OwnPart => from,
            Size::Parts => to,
            _ => further,
        };
        match number {
            last if last + 1 == self.world && self.world % 2 == 1 => part,
            even if even % 2 == 0 => part + part / 2,
            _ => part - part / 2,
        }
    }
}

impl Sweep {
    fn places(&self, world: usize, elems: usize) -> OperandPlaces {
        let Self { root, in_place, along, .. } = *self;
        OperandPlaces { op: self.collective.op(), world, root, elems, in_place, along }
    }
}

/// An operation on `elems` elements of the larger operand, which can be enqueued any number of times.
pub(super) struct PlacedCall<'b, B> {
    sweep: &'b Sweep,
    communicator: &'b Communicator,
    elems: usize,
    input: &'b B,
    output: &'b B,
    /// The plan of a call, if the call is planned once.
    bound: Option<BoundAllReduce<'b>>,
}

impl<'b, B> PlacedCall<'b, B> {
    /// Binds the call if the sweep asks for that.
    pub(super) fn new<T: Summand>(
        sweep: &'b Sweep,
        communicator: &'b Communicator,
        elems: usize,
        [input, output]: [&'b B; 2],
    ) -> symmetra::Result<Self>
    where
        B: TestBuffer<T>,
    {
        let bind = || communicator.bind_all_reduce_with(sweep.options(), input.part(0..elems)?, output.part(0..elems)?);
        let bound = sweep.bound.then(bind).transpose()?;
        Ok(Self { sweep, communicator, elems, input, output, bound })
    }

    /// Enqueues the operation once.
    pub(super) fn enqueue<T: Summand>(&self, queue: impl Queue<'b>) -> symmetra::Result<()>
    where
        B: TestBuffer<T>,
    {
        let Self { sweep, communicator, .. } = *self;
        if let Some(bound) = &self.bound {
            return bound.enqueue(queue);
        }
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let places = sweep.places(world, self.elems);
        let operand = |buffer: &'b B, extent: Extent| {
            places.has(extent, rank).then(|| buffer.part(places.range(extent, rank))).transpose()
        };
        let operands = [operand(self.input, places.op.input)?, operand(self.output, places.op.output)?];
        // A low-contention collective is awaited when it is dropped.
        match (sweep.collective, operands) {
            (CollectiveCommand::AllGather, [Some(input), Some(output)]) if sweep.transport == Mover::CopyEngine => {
                communicator.low_contention_all_gather(input, output, queue).map(drop)
            }
            (CollectiveCommand::ReduceScatter, [Some(input), Some(output)]) if sweep.transport == Mover::CopyEngine => {
                communicator.low_contention_reduce_scatter(input, output, sweep.reduction, queue).map(drop)
            }
            (_, operands) => {
                let counts = |sends: bool| {
                    let pair = |peer| if sends { places.pair(rank, peer) } else { places.pair(peer, rank) };
                    (0..world).map(pair).collect::<Vec<_>>()
                };
                let (shape, counts) = (places.shape(), [counts(true), counts(false)]);
                let how = How {
                    options: sweep.options(),
                    parameter: sweep.root,
                    along: sweep.along.map(|dim| (dim, &shape[..])),
                    counts: [&counts[0], &counts[1]],
                    ..How::default()
                };
                communicator.perform(places.op, &how, operands, queue)
            }
        }
    }
}

/// The bytes of an element of the output before the operation, not in place.
pub(super) const UNWRITTEN: u8 = 0xa5;

/// How many elements in the output buffer of a rank are wrong after the operation. Not in place, elements that the operation must
/// not write count too.
pub(super) fn count_wrong<T: Summand>(
    sweep: &Sweep,
    data: Data,
    rank: usize,
    world: usize,
    algorithm: Algorithm,
    result: &[T],
) -> u64 {
    let places = sweep.places(world, result.len());
    let (op, algorithm) = match sweep.collective {
        CollectiveCommand::AllReduce => (places.op, algorithm),
        _ => (places.op, Algorithm::Auto),
    };
    let count = if sweep.collective.divides() { places.part() } else { result.len() };
    let pair = |from: usize, to: usize| places.pair(from, to);
    let counts: Option<&dyn Fn(usize, usize) -> usize> = if op.input.size.is_counted() { Some(&pair) } else { None };
    let case = Case { world_size: world, parameter: sweep.root, count, rows: places.rows(), counts };
    let given = |source: usize| if op.input.size == Size::None { 0 } else { places.range(op.input, source).start };
    let start = places.range(op.output, rank).start;
    let wrong = |stretch: symmetra::op::Stretch| {
        let elements = &result[start + stretch.at..][..stretch.count];
        match stretch.source {
            Source::Rank(source) => data.count_unlike(source, given(source) + stretch.start, elements),
            Source::Reduced if sweep.codec != Codec::None && world > 1 => {
                let bounds = Bounds { codec: sweep.codec, reduction: sweep.reduction, algorithm };
                data.count_beyond(&bounds, world, elements)
            }
            Source::Reduced => data.count_wrong(sweep.reduction, world, algorithm, stretch.start, elements),
        }
    };
    let effect = (op.effect)(&case, rank);
    let written = effect.iter().map(|stretch| start + stretch.at..start + stretch.at + stretch.count);
    let strays = if sweep.in_place { 0 } else { count_strays(result, written.collect()) };
    strays + effect.into_iter().map(wrong).sum::<u64>()
}

/// The number of elements outside of `written` that are not as they were before the operation.
fn count_strays<T: Summand>(result: &[T], mut written: Vec<Range<usize>>) -> u64 {
    written.sort_unstable_by_key(|range| range.start);
    let is_stray = |element: &&T| bytemuck::bytes_of(*element).iter().any(|byte| *byte != UNWRITTEN);
    let strays = |between: &[T]| between.iter().filter(is_stray).count() as u64;
    let mut end = 0;
    let before: u64 = written
        .iter()
        .map(|range| {
            let found = result.get(end..range.start).map_or(0, strays);
            end = end.max(range.end);
            found
        })
        .sum();
    before + result.get(end..).map_or(0, strays)
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/places.rs"]
mod tests;
