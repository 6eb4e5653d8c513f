//! Where the operands of an operation are in the buffers of a measurement, what is enqueued on them, and what must come
//! of it.

use symmetra::op::{Case, Extent, Op, Size, Source};
use symmetra::{Algorithm, AllReduceOptions, Communicator, How, Operation, Queue};

use super::buffer::Buffer;
use super::collective::Collective;
use super::reference::Data;
use super::sweep::Sweep;
use crate::element::Summand;
use crate::names::Mover;

/// Where the operands of a rank are in its buffers, of which the larger one has `elems` elements.
struct Places {
    op: &'static Op,
    world: usize,
    root: usize,
    elems: usize,
    in_place: bool,
}

impl Places {
    fn part(&self) -> usize {
        self.elems / self.world
    }

    /// Whether `rank` has an operand.
    fn has(&self, extent: Extent, rank: usize) -> bool {
        extent.size != Size::None && (!extent.at_root || rank == self.root)
    }

    /// The elements of an operand of `rank`, in its buffer.
    fn range(&self, extent: Extent, rank: usize) -> std::ops::Range<usize> {
        let is_part = extent.size == Size::One
            && [self.op.input, self.op.output].iter().any(|extent| extent.size == Size::PerRank);
        // In place, an output is in a larger operand that the rank has; an input has the place in any case.
        let inside = extent == self.op.input || self.has(self.op.input, rank);
        match is_part {
            false => 0..self.elems,
            true if self.in_place && inside => rank * self.part()..(rank + 1) * self.part(),
            true => 0..self.part(),
        }
    }

    /// How many elements one rank gives another where each pair has its own count: more to every second rank.
    fn pair(&self, from: usize, to: usize) -> usize {
        let (part, further) = (self.part(), (to + self.world - from) % self.world);
        match further {
            last if last + 1 == self.world && self.world % 2 == 1 => part,
            even if even % 2 == 0 => part + part / 2,
            _ => part - part / 2,
        }
    }
}

impl Sweep {
    fn places(&self, world: usize, elems: usize) -> Places {
        let (op, root, in_place) = (self.collective.op(), self.root, self.in_place);
        Places { op, world, root, elems, in_place }
    }
}

/// One operation on `elems` elements of the larger operand.
pub(super) fn enqueue<'b, T: Summand, B: Buffer<T>>(
    sweep: &Sweep,
    communicator: &Communicator,
    elems: usize,
    [input, output]: [&'b B; 2],
    queue: impl Queue<'b>,
) -> symmetra::Result<()> {
    let (rank, world, reduction) = (communicator.rank(), communicator.world_size(), sweep.reduction);
    let places = sweep.places(world, elems);
    let operand = |buffer: &'b B, extent: Extent| {
        places.has(extent, rank).then(|| buffer.part(places.range(extent, rank))).transpose()
    };
    let operands = [operand(input, places.op.input)?, operand(output, places.op.output)?];
    // Dropped, a low-contention collective is awaited.
    match (places.op.operation, operands) {
        // From every rank to the next.
        (Operation::SendReceive, [Some(input), Some(output)]) => communicator.batch(queue, |messages| {
            messages.send_next(input);
            messages.receive_previous(output);
            Ok(())
        }),
        (Operation::AllGather, [Some(input), Some(output)]) if sweep.transport == Mover::CopyEngine => {
            communicator.low_contention_all_gather(input, output, queue).map(drop)
        }
        (Operation::ReduceScatter, [Some(input), Some(output)]) if sweep.transport == Mover::CopyEngine => {
            communicator.low_contention_reduce_scatter(input, output, reduction, queue).map(drop)
        }
        (_, operands) => {
            let counts = |sends: bool| {
                let pair = |peer| if sends { places.pair(rank, peer) } else { places.pair(peer, rank) };
                (0..world).map(pair).collect::<Vec<_>>()
            };
            let options = AllReduceOptions { reduction, algorithm: sweep.algorithm };
            let how = How { options, parameter: sweep.root, along: None, counts: [&counts(true), &counts(false)] };
            communicator.perform(places.op, &how, operands, queue)
        }
    }
}

/// How many elements of what the operation leaves in the output buffer of a rank are wrong.
pub(super) fn count_wrong<T: Summand>(
    sweep: &Sweep,
    data: Data,
    rank: usize,
    world: usize,
    algorithm: Algorithm,
    result: &[T],
) -> u64 {
    if sweep.collective.op().operation == Operation::SendReceive {
        return data.count_unlike((rank + world - 1) % world, 0, result);
    }
    let places = sweep.places(world, result.len());
    let (op, algorithm) = match sweep.collective {
        Collective::AllReduce => (places.op, algorithm),
        _ => (places.op, Algorithm::Auto),
    };
    let count = if sweep.collective.divides() { places.part() } else { result.len() };
    let pair = |from: usize, to: usize| places.pair(from, to);
    let counts: Option<&dyn Fn(usize, usize) -> usize> = if op.input.size == Size::Counts { Some(&pair) } else { None };
    let case = Case { world_size: world, parameter: sweep.root, count, rows: 1, counts };
    let given = |source: usize| if op.input.size == Size::None { 0 } else { places.range(op.input, source).start };
    let start = places.range(op.output, rank).start;
    let wrong = |stretch: symmetra::op::Stretch| {
        let elements = &result[start + stretch.at..][..stretch.count];
        match stretch.source {
            Source::Rank(source) => data.count_unlike(source, given(source) + stretch.start, elements),
            Source::Reduced => data.count_wrong(sweep.reduction, world, algorithm, stretch.start, elements),
        }
    };
    (op.effect)(&case, rank).into_iter().map(wrong).sum()
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/places.rs"]
mod tests;
