//! The operations that a sweep can measure, by their descriptions: which flags they take, what they are given, and what
//! must come of it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use symmetra::op::{ALL_REDUCE, Case, Extent, InPlace, OPERATIONS, Op, Size, Source};
use symmetra::{
    Algorithm, AllReduceOptions, Communicator, DeviceKind, How, Operation, Parameter, Queue, Transport, TransportRange,
    explain_broadcast, explain_exchange,
};

use super::reference::Data;
use super::sweep::{Buffer, Sweep};
use crate::element::Summand;
use crate::exchange;
use crate::failure::Failure;
use crate::names::Mover;

/// An operation with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collective(Operation);

/// Those that benchmarks name.
#[expect(non_upper_case_globals, reason = "they stand in patterns where variants would")]
impl Collective {
    pub(crate) const AllReduce: Self = Self(Operation::AllReduce);
    pub(crate) const AllGather: Self = Self(Operation::AllGather);
    pub(crate) const ReduceScatter: Self = Self(Operation::ReduceScatter);
    pub(crate) const AllToAll: Self = Self(Operation::AllToAll);
    pub(crate) const Broadcast: Self = Self(Operation::Broadcast);
}

impl Collective {
    /// The operation of the command with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Op::named(name).map(|op| Self(op.operation))
    }

    /// The description. Every command is made from one.
    pub(crate) fn op(self) -> &'static Op {
        Op::of(self.0).unwrap_or(&ALL_REDUCE)
    }

    pub(crate) const fn name(self) -> &'static str {
        self.0.name()
    }

    /// How the library moves the bytes, by bytes from one rank to another.
    pub(crate) fn explain(self, kind: DeviceKind, ranks: usize, direct: bool) -> Vec<TransportRange> {
        match self {
            Self::Broadcast => explain_broadcast(kind, ranks, direct),
            _ => explain_exchange(kind, ranks, direct),
        }
    }

    /// Whether the larger operand is a part for every rank.
    pub(crate) fn divides(self) -> bool {
        let parts = |extent: Extent| matches!(extent.size, Size::PerRank | Size::Counts);
        parts(self.op().input) || parts(self.op().output)
    }

    pub(crate) const fn reduces(self) -> bool {
        self.0.reduces()
    }

    /// Whether all ranks end with equal outputs.
    pub(crate) fn equalises(self) -> bool {
        let case = Case { world_size: 3, parameter: 0, count: 3, rows: 1, counts: None };
        let effect = |rank| (self.op().effect)(&case, rank);
        effect(0) == effect(1) && effect(1) == effect(2)
    }

    /// Bus bandwidth over algorithm bandwidth.
    pub(crate) fn bus_factor(self, ranks: usize) -> f64 {
        (self.op().bus_factor)(ranks)
    }

    /// Refuses flags that mean nothing to the operation.
    pub(super) fn check(self, args: &exchange::Args, ranks: usize) -> Result<(), Failure> {
        let (name, op, parameter) = (self.name(), self.op(), self.0.parameter());
        for (flag, value, takes) in
            [("--root", args.root, parameter == Parameter::Root), ("--by", args.by, parameter == Parameter::Distance)]
        {
            if value.is_some() && !takes {
                return Err(Failure::usage(format!("{flag}: {name} has no such number")));
            }
        }
        if let Some(root) = args.root.filter(|root| *root >= ranks) {
            return Err(Failure::usage(format!("--root is {root}, but there are {ranks} ranks")));
        }
        if args.sweep.in_place && op.in_place == InPlace::Never {
            return Err(Failure::usage(format!("--in-place: {name} has no such form")));
        }
        if args.sweep.op != symmetra::Reduction::Sum && !self.reduces() {
            return Err(Failure::usage(format!("--op is {}, but {name} reduces nothing", args.sweep.op)));
        }
        if args.transport == Mover::CopyEngine && !op.low_contention {
            return Err(Failure::usage(format!("--transport copy-engine: {name} has no such form")));
        }
        let direct = args.transport == Mover::Kernels(Transport::Direct);
        if args.sweep.plain && direct && (!args.sweep.graph || self.tells_places()) {
            return Err(Failure::usage(format!("--plain: a direct {name} needs memory that peers can address")));
        }
        Ok(())
    }

    /// The root or the distance that the flags ask for.
    pub(super) fn parameter(self, args: &exchange::Args) -> usize {
        match self.0.parameter() {
            Parameter::Distance => args.by.unwrap_or(1) % args.ranks as usize,
            _ => args.root.unwrap_or(0),
        }
    }

    /// Whether ranks must tell each other where data go, so that data go directly into symmetric memory alone.
    pub(super) fn tells_places(self) -> bool {
        self.op().tells_places()
    }
}

impl Serialize for Collective {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Collective {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| de::Error::custom(format!("there is no operation {name}")))
    }
}

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
    if sweep.collective.0 == Operation::SendReceive {
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

/// The commands of all operations but all-reduce, which has flags of its own: name and what the ranks hold afterwards.
pub(crate) fn commands() -> impl Iterator<Item = (&'static str, String)> {
    let others = OPERATIONS.into_iter().filter(|op| **op != ALL_REDUCE);
    others.map(|op| (op.name(), format!("{}: measure and verify a sweep of sizes", op.summary)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_of_the_bus_is_that_of_nccl_tests() {
        assert_eq!(Collective::AllReduce.bus_factor(4), 1.5);
        assert_eq!(Collective::AllGather.bus_factor(4), 0.75);
        assert_eq!(Collective::AllToAll.bus_factor(8), 0.875);
        assert_eq!(Collective::Broadcast.bus_factor(8), 1.0);
    }

    #[test]
    fn counts_of_pairs_fill_the_operands_of_every_rank() {
        for (world, elems) in [(1, 7), (2, 10), (3, 9), (4, 100), (5, 55)] {
            let sweep = Sweep { collective: Collective(Operation::AllToAllV), ..Sweep::probe(Algorithm::Auto) };
            let places = sweep.places(world, elems);
            for rank in 0..world {
                let sums = [0, 1].map(|side| {
                    let pair = |peer| if side == 0 { places.pair(rank, peer) } else { places.pair(peer, rank) };
                    (0..world).map(pair).sum::<usize>()
                });
                assert!(sums[0] == sums[1] && sums[0] <= elems, "{world} ranks, {elems} elements: {sums:?}");
            }
        }
    }
}
