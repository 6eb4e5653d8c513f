//! One call of an operation by its description: the places of its operands, its effect, and the call itself.

use symmetra::op::{ALL_GATHER, Case, Extent, Op, Size, Source, Stretch};
use symmetra::{AllReduceOptions, Communicator, How, Operand, Queue, Result};

use super::batch::Memory;
use super::data::mix;

/// One call: `count` elements a part; `from` and `to` are the starts of its operands in their buffers.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub op: &'static Op,
    pub count: usize,
    /// Rows of the tensor's parts, for operations along a dimension; 1: without a dimension.
    pub rows: usize,
    pub options: AllReduceOptions,
    /// The root, or the distance between ranks.
    pub root: usize,
    pub memory: Memory,
    pub in_place: bool,
    pub from: usize,
    pub to: usize,
    pub seed: u64,
}

impl Call {
    /// The number of elements that rank `from` sends to rank `to` where each pair or each rank has its own count.
    pub fn pair(&self, from: usize, to: usize) -> usize {
        let (from, to) = match self.op.input.size {
            Size::OwnPart => (from, from),
            Size::Parts => (to, to),
            _ => (from, to),
        };
        let drawn = mix(self.seed ^ (from * 16 + to) as u64);
        if drawn.is_multiple_of(3) { 0 } else { (drawn >> 8) as usize % (self.count + 1) }
    }

    pub fn counts(&self, rank: usize, world: usize, sends: bool) -> Vec<usize> {
        (0..world).map(|peer| if sends { self.pair(rank, peer) } else { self.pair(peer, rank) }).collect()
    }

    /// Elements of an operand of a rank.
    pub fn elems(&self, extent: Extent, rank: usize, world: usize) -> usize {
        match extent.size {
            Size::One | Size::Rows => self.count,
            Size::OwnRows => self.count / world,
            Size::OwnPart => self.pair(rank, rank),
            Size::Parts => self.part_start(world),
            _ => self.count * world,
        }
    }

    /// Elements before the part of a rank, in an operand of parts.
    fn part_start(&self, rank: usize) -> usize {
        match self.op.input.size {
            Size::OwnPart | Size::Parts => (0..rank).map(|earlier| self.pair(earlier, earlier)).sum(),
            _ => rank * self.count,
        }
    }

    pub fn has(&self, extent: Extent, rank: usize) -> bool {
        extent.size != Size::None && (!extent.at_root || rank == self.root)
    }

    /// Whether the input is in the buffer of the output. A broadcast reads its output.
    pub fn reads_output(&self) -> bool {
        self.in_place || self.op.input.size == Size::None
    }

    /// Where the input of a rank starts.
    pub fn input_start(&self, rank: usize) -> usize {
        match self.reads_output() {
            true if self.in_place && matches!(self.op.output.size, Size::PerRank | Size::Parts) => {
                self.to + self.part_start(rank)
            }
            true => self.to,
            false => self.from,
        }
    }

    pub fn output_start(&self, rank: usize, world: usize) -> usize {
        match self.op.input.size {
            _ if !self.in_place => self.to,
            Size::PerRank | Size::Parts if self.has(self.op.input, rank) => self.to + self.part_start(rank),
            _ if self.op.output.size == Size::OwnRows => self.to + rank * self.elems(self.op.output, rank, world),
            _ => self.to,
        }
    }

    /// The effect of the call on the output buffer of a rank: stretches of that buffer, from stretches of the buffers
    /// that ranks read, or of the reduction of these buffers.
    pub fn effects(&self, rank: usize, world: usize) -> Vec<Stretch> {
        let pair = |from: usize, to: usize| self.pair(from, to);
        let counts: Option<&dyn Fn(usize, usize) -> usize> =
            if self.op.input.size.is_counted() { Some(&pair) } else { None };
        let case = Case { world_size: world, parameter: self.root, count: self.count, rows: self.rows, counts };
        let placed = |stretch: Stretch| {
            let source = if let Source::Rank(source) = stretch.source { source } else { 0 };
            let (at, start) = (self.output_start(rank, world) + stretch.at, self.input_start(source) + stretch.start);
            Stretch { at, start, ..stretch }
        };
        (self.op.effect)(&case, rank).into_iter().map(placed).collect()
    }

    /// Input and output of a rank, which `memory` makes of a buffer's number, a start and a length. Buffer 0 is read,
    /// buffer 1 is written.
    pub fn operands<O>(
        &self,
        rank: usize,
        world: usize,
        mut memory: impl FnMut(usize, usize, usize) -> O,
    ) -> [Option<O>; 2] {
        let mut operand = |extent: Extent, which: usize, start: usize| {
            self.has(extent, rank).then(|| memory(which, start, self.elems(extent, rank, world)))
        };
        let input = operand(self.op.input, usize::from(self.in_place), self.input_start(rank));
        [input, operand(self.op.output, 1, self.output_start(rank, world))]
    }

    /// Enqueues the call on its [operands](Self::operands).
    pub fn perform<'op, T: symmetra::Element, O: Operand<'op, T>>(
        &self,
        communicator: &Communicator,
        operands: [Option<O>; 2],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.how(communicator, |how| communicator.perform(self.op, how, operands, queue))
    }

    /// The settings of the call, for `run`.
    pub fn how<R>(&self, communicator: &Communicator, run: impl FnOnce(&How<'_>) -> R) -> R {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let Self { op, count, rows, options, root, .. } = *self;
        let shape = if *op == ALL_GATHER { [rows, count / rows, 1] } else { [rows, count * world / rows, 1] };
        let how = How {
            options,
            parameter: root,
            along: (rows > 1).then_some((1, &shape[..])),
            counts: [&self.counts(rank, world, true), &self.counts(rank, world, false)],
            ..How::default()
        };
        run(&how)
    }
}
