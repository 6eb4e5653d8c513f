//! Calls of every operation against a model: many at once, each into its own part of one buffer, so

//! that calls follow each other without a pause, and what lies between the parts must stay as it was.

use symmetra::{
    AllReduceOptions, Capture, DeviceBuffer, Graph, Queue, Reduction, Ref, Result, SymmetricBuffer, SymmetricSlice,
    Transport,
};

use crate::support::data::{Random, assert_same, mix};
use crate::support::{Data, Rank, Sample};

/// Elements of the buffers behind the operands.
pub(crate) const ROOM: usize = 60_000;
/// Most elements that an operand starts behind an aligned address.
const OFFSETS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    AllToAllV,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    Batch,
}

pub(crate) const OPS: [Op; 10] = [
    Op::AllReduce,
    Op::AllGather,
    Op::ReduceScatter,
    Op::AllToAll,
    Op::AllToAllV,
    Op::Broadcast,
    Op::Reduce,
    Op::Gather,
    Op::Scatter,
    Op::Batch,
];

impl Op {
    fn has_in_place(self) -> bool {
        !matches!(self, Self::AllToAll | Self::AllToAllV | Self::Batch)
    }

    /// Whether ranks tell each other where data go, which is then in symmetric memory or by packets.
    fn tells(self) -> bool {
        matches!(self, Self::AllToAllV | Self::Batch | Self::Gather | Self::Scatter)
    }
}

/// One call: `count` elements a part; `from` and `to` are where its operands start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) op: Op,
    pub(crate) count: usize,
    /// Rows of the tensor's parts, for what works along a dimension; 1: without one.
    pub(crate) rows: usize,
    pub(crate) reduction: Reduction,
    pub(crate) root: usize,
    pub(crate) symmetric: bool,
    pub(crate) in_place: bool,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) seed: u64,
}

impl Call {
    /// How many elements rank `from` gives rank `to` where each pair has its own count.
    fn pair(&self, from: usize, to: usize) -> usize {
        let drawn = mix(self.seed ^ (from * 16 + to) as u64);
        if drawn.is_multiple_of(3) { 0 } else { (drawn >> 8) as usize % (self.count + 1) }
    }

    fn counts(&self, rank: usize, world: usize, sends: bool) -> Vec<usize> {
        (0..world).map(|peer| if sends { self.pair(rank, peer) } else { self.pair(peer, rank) }).collect()
    }
}

/// Calls that are enqueued one after the other, eagerly or in one graph.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) captured: bool,
    pub(crate) calls: Vec<Call>,
}

/// Cuts a list of operations into batches; everything that is not given follows from `seed`.
/// `shared`: whether a graph can register plain memory.
pub(crate) fn batches(seed: u64, world: usize, transport: Transport, shared: bool, ops: &[(Op, usize)]) -> Vec<Batch> {
    let mut random = Random(mix(seed));
    let mut batches: Vec<Batch> = Vec::new();
    let mut end = ROOM;
    for &(op, count) in ops {
        let offset = |random: &mut Random| if random.below(3) == 0 { 0 } else { random.below(OFFSETS) };
        let room = count * world + OFFSETS;
        let mut to = end.next_multiple_of(OFFSETS) + OFFSETS + offset(&mut random);
        if to + room > ROOM || batches.last().is_some_and(|batch| batch.calls.len() == 16) {
            batches.push(Batch { captured: random.below(3) == 0, calls: Vec::new() });
            to = OFFSETS + offset(&mut random);
        }
        end = to + room;
        let batch = batches.last_mut().unwrap();
        let reached = transport != Transport::Direct || (batch.captured && shared && !op.tells());
        let symmetric = !reached || random.below(2) == 0;
        let rows = [1, 1, 2, 3, 4][random.below(5)];
        let along = matches!(op, Op::AllGather | Op::ReduceScatter) && rows > 1 && count.is_multiple_of(rows);
        let from = random.below((ROOM - room) / OFFSETS) * OFFSETS + offset(&mut random);
        batch.calls.push(Call {
            op,
            count,
            rows: if along { rows } else { 1 },
            reduction: *random.pick(&Reduction::ALL),
            root: random.below(world),
            symmetric,
            in_place: op.has_in_place() && !along && random.below(2) == 0,
            from,
            to,
            seed: random.next(),
        });
    }
    batches
}

/// What a call leaves in the output buffer of a rank: where, and which elements.
fn effects<T: Sample>(call: &Call, data: &Data<T>, rank: usize, world: usize) -> Vec<(usize, Vec<T>)> {
    let Call { count, rows, from, to, root, in_place, .. } = *call;
    let part = |source: usize, start: usize, len: usize| data.inputs[source][start..start + len].to_vec();
    let reduced = |start: usize, len: usize| data.result(call.reduction)[start..start + len].to_vec();
    let start = if in_place { to } else { from };
    let row = count / rows;
    match call.op {
        Op::AllReduce => vec![(to, reduced(start, count))],
        Op::AllGather | Op::Gather if call.op == Op::AllGather || rank == root => {
            let source = |source: usize| if in_place { to + source * count } else { from };
            let pieces = (0..world).flat_map(|peer| (0..rows).map(move |r| (peer, r)));
            pieces.map(|(peer, r)| (to + (r * world + peer) * row, part(peer, source(peer) + r * row, row))).collect()
        }
        Op::ReduceScatter => {
            let to = if in_place { to + rank * count } else { to };
            (0..rows).map(|r| (to + r * row, reduced(start + (r * world + rank) * row, row))).collect()
        }
        Op::AllToAll => (0..world).map(|peer| (to + peer * count, part(peer, from + rank * count, count))).collect(),
        Op::AllToAllV => {
            let mut end = to;
            let place = |peer: usize| {
                let before: usize = call.counts(peer, world, true)[..rank].iter().sum();
                let len = call.pair(peer, rank);
                end += len;
                (end - len, part(peer, from + before, len))
            };
            (0..world).map(place).collect()
        }
        Op::Broadcast => vec![(to, part(root, to, count))],
        Op::Reduce if rank == root => vec![(to, reduced(start, count))],
        Op::Scatter if in_place && rank == root => vec![(to + root * count, part(root, to + root * count, count))],
        Op::Scatter => vec![(to, part(root, start + rank * count, count))],
        Op::Batch => {
            let place = |peer: usize| (to + peer * count, part(peer, from + rank * count, call.pair(peer, rank)));
            (0..world).map(place).collect()
        }
        Op::AllGather | Op::Gather | Op::Reduce => Vec::new(),
    }
}

/// Enqueues a call on operands that `$memory!(buffer, start, length)` makes.
macro_rules! enqueue {
    ($self:ident, $call:ident, $queue:ident, $memory:ident) => {{
        let communicator = &$self.rank.communicator;
        let Call { op, count, rows, reduction, root, in_place, from, to, .. } = *$call;
        let (rank, world) = ($self.rank.rank(), $self.rank.world());
        let (whole, part) = (count * world, to + rank * count);
        // Where the input lies: in place that is in the output buffer, at `inner`.
        let side = usize::from(in_place);
        let at = |inner: usize| if in_place { inner } else { from };
        let is_root = rank == root;
        match op {
            Op::AllReduce => {
                let options = AllReduceOptions::from(reduction);
                communicator.all_reduce_with(options, $memory!(side, at(to), count), $memory!(1, to, count), $queue)
            }
            Op::AllGather if rows > 1 => {
                let shape = [rows, count / rows];
                communicator.all_gather_along(1, &shape, $memory!(0, from, count), $memory!(1, to, whole), $queue)
            }
            Op::AllGather => communicator.all_gather($memory!(side, at(part), count), $memory!(1, to, whole), $queue),
            Op::ReduceScatter if rows > 1 => {
                let (shape, input) = ([rows, whole / rows, 1], $memory!(0, from, whole));
                communicator.reduce_scatter_along(1, &shape, input, $memory!(1, to, count), reduction, $queue)
            }
            Op::ReduceScatter => {
                let to_part = if in_place { part } else { to };
                let (input, output) = ($memory!(side, at(to), whole), $memory!(1, to_part, count));
                communicator.reduce_scatter(input, output, reduction, $queue)
            }
            Op::AllToAll => communicator.all_to_all($memory!(0, from, whole), $memory!(1, to, whole), $queue),
            Op::AllToAllV => {
                let (sends, receives) = ($call.counts(rank, world, true), $call.counts(rank, world, false));
                let (input, output) = ($memory!(0, from, whole), $memory!(1, to, whole));
                communicator.all_to_all_v(input, &sends, output, &receives, $queue)
            }
            Op::Broadcast => communicator.broadcast($memory!(1, to, count), root, $queue),
            Op::Reduce if in_place => communicator.reduce_in_place($memory!(1, to, count), reduction, root, $queue),
            Op::Reduce => {
                let (input, output) = ($memory!(0, from, count), $memory!(1, to, count));
                communicator.reduce(input, is_root.then_some(output), reduction, root, $queue)
            }
            Op::Gather => {
                let (input, output) = ($memory!(side, at(part), count), $memory!(1, to, whole));
                communicator.gather(input, is_root.then_some(output), root, $queue)
            }
            Op::Scatter => {
                let to_part = if in_place && is_root { part } else { to };
                let (input, output) = ($memory!(side, at(to), whole), $memory!(1, to_part, count));
                communicator.scatter(is_root.then_some(input), output, root, $queue)
            }
            Op::Batch => communicator.batch($queue, |batch| {
                for peer in 0..world {
                    let (sends, receives) = ($call.pair(rank, peer), $call.pair(peer, rank));
                    if sends > 0 {
                        batch.send($memory!(0, from + peer * count, sends), peer)?;
                    }
                    if receives > 0 {
                        batch.receive($memory!(1, to + peer * count, receives), peer)?;
                    }
                }
                Ok(())
            }),
        }
    }};
}

/// The buffers of one rank, used by batch after batch. [0] is only read; [1] is written.
pub(crate) struct Bench<'a, T: Sample> {
    rank: &'a Rank,
    data: &'a Data<T>,
    symmetric: [SymmetricBuffer<T>; 2],
    plain: [DeviceBuffer<T>; 2],
}

impl<'a, T: Sample> Bench<'a, T> {
    /// `data` has [`ROOM`] elements. Collective.
    pub(crate) fn new(rank: &'a Rank, data: &'a Data<T>) -> Self {
        let symmetric = [0; 2].map(|_| rank.communicator.symmetric::<T>(ROOM).unwrap());
        let plain = [0; 2].map(|_| DeviceBuffer::<T>::new(&rank.device, ROOM).unwrap());
        let own = &data.inputs[rank.rank()];
        symmetric[0].write(own, &rank.stream).unwrap();
        plain[0].write(own, &rank.stream).unwrap();
        Self { rank, data, symmetric, plain }
    }

    /// Runs a batch and compares all of what it left behind.
    pub(crate) fn check(&self, batch: &Batch) {
        let (rank, world, stream) = (self.rank.rank(), self.rank.world(), &self.rank.stream);
        let own = &self.data.inputs[rank];
        let mut expected = [own.clone(), own.clone()];
        for call in &batch.calls {
            for (start, elements) in effects(call, self.data, rank, world) {
                expected[usize::from(call.symmetric)][start..start + elements.len()].copy_from_slice(&elements);
            }
        }
        self.plain[1].write(own, stream).unwrap();
        self.symmetric[1].write(own, stream).unwrap();
        let context = (T::DTYPE, rank, world, batch);
        self.run(batch).unwrap_or_else(|error| panic!("{error}: {context:?}"));
        assert_same(&self.plain[1].read(stream).unwrap(), &expected[0], &context);
        assert_same(&self.symmetric[1].read(stream).unwrap(), &expected[1], &context);
    }

    fn run(&self, batch: &Batch) -> Result<()> {
        let Rank { communicator, stream, .. } = self.rank;
        if batch.captured {
            let graph = self.capture(batch)?;
            graph.register()?;
            graph.launch(stream)?;
            // Dropped while it may be in flight.
        } else {
            batch.calls.iter().try_for_each(|call| self.enqueue(call, stream))?;
        }
        communicator.synchronize(stream)
    }

    fn capture(&self, batch: &Batch) -> Result<Graph<'_>> {
        self.rank
            .stream
            .capture(|capture: &Capture<'_, '_>| batch.calls.iter().try_for_each(|call| self.enqueue(call, capture)))
    }

    /// Elements of a plain buffer.
    fn window(&self, which: usize, start: usize, count: usize) -> Ref<'_, T> {
        assert!(start + count <= ROOM);
        let address = self.plain[which].as_raw().wrapping_add(start);
        // SAFETY: inside a buffer that `self` owns; calls on it are finished before it is dropped.
        unsafe { Ref::from_raw(&self.rank.device, address, count) }.unwrap()
    }

    fn slice(&self, which: usize, start: usize, count: usize) -> SymmetricSlice<'_, T> {
        self.symmetric[which].slice(start..start + count).unwrap()
    }

    fn enqueue<'op>(&'op self, call: &Call, queue: impl Queue<'op>) -> Result<()> {
        macro_rules! plain {
            ($which:expr, $start:expr, $count:expr) => {
                &self.window($which, $start, $count)
            };
        }
        macro_rules! symmetric {
            ($which:expr, $start:expr, $count:expr) => {
                self.slice($which, $start, $count)
            };
        }
        match call.symmetric {
            true => enqueue!(self, call, queue, symmetric),
            false => enqueue!(self, call, queue, plain),
        }
    }
}
