//! Calls of every operation against a model: many at once, each into its own part of one buffer. Calls follow each
//! other without a pause, and the bytes between the parts must be unchanged.

use symmetra::op::{Case, InPlace, OPERATIONS, Op, Source, Stretch};
use symmetra::{
    Capture, DeviceBuffer, Graph, Queue, Reduction, Ref, Result, SymmetricBuffer, SymmetricSlice, Transport,
};

use crate::support::batch::Memory;
use crate::support::call::Call;
use crate::support::data::{Random, assert_same, mix};
use crate::support::{Data, Rank, Sample};

/// Elements of the buffers that contain the operands.
pub(crate) const ROOM: usize = 60_000;
/// Most elements between an aligned address and the start of an operand.
const OFFSETS: usize = 16;

/// Calls that are enqueued one after the other, eagerly or in one graph.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) captured: bool,
    pub(crate) calls: Vec<Call>,
}

/// Cuts a list of operations into batches; everything that is not given follows from `seed`.
/// `shared`: whether a graph can register plain memory.
pub(crate) fn batches(
    seed: u64,
    world: usize,
    transport: Transport,
    shared: bool,
    ops: &[(&'static Op, usize)],
) -> Vec<Batch> {
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
        let reached = transport != Transport::Direct || (batch.captured && shared && !op.tells_places());
        let symmetric = !reached || random.below(2) == 0;
        let rows = [1, 1, 2, 3, 4][random.below(5)];
        let along = op.along && rows > 1 && count.is_multiple_of(rows);
        let from = random.below((ROOM - room) / OFFSETS) * OFFSETS + offset(&mut random);
        batch.calls.push(Call {
            op,
            count,
            rows: if along { rows } else { 1 },
            options: (*random.pick(&Reduction::ALL)).into(),
            root: random.below(world),
            memory: if symmetric { Memory::Symmetric } else { Memory::Plain },
            in_place: op.in_place != InPlace::Never && !along && random.below(2) == 0,
            from,
            to,
            seed: random.next(),
        });
    }
    batches
}

/// The effect of a call on the output buffer of a rank: the start of each stretch, and its elements.
pub(crate) fn effects<T: Sample>(call: &Call, data: &Data<T>, rank: usize, world: usize) -> Vec<(usize, Vec<T>)> {
    let stretch = |stretch: Stretch| {
        let elements = match stretch.source {
            Source::Rank(source) => &data.inputs[source],
            Source::Reduced => data.result(call.options.reduction),
        };
        (stretch.at, elements[stretch.start..stretch.start + stretch.count].to_vec())
    };
    call.effects(rank, world).into_iter().map(stretch).collect()
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

    /// Runs a batch and compares the whole buffers afterwards.
    pub(crate) fn check(&self, batch: &Batch) {
        let (rank, world, stream) = (self.rank.rank(), self.rank.world(), &self.rank.stream);
        let own = &self.data.inputs[rank];
        let mut expected = [own.clone(), own.clone()];
        for call in &batch.calls {
            for (start, elements) in effects(call, self.data, rank, world) {
                expected[usize::from(call.memory == Memory::Symmetric)][start..start + elements.len()]
                    .copy_from_slice(&elements);
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
        let Rank { communicator, .. } = self.rank;
        let (rank, world) = (self.rank.rank(), self.rank.world());
        match call.memory {
            Memory::Symmetric => {
                let operands = call.operands(rank, world, |which, start, count| self.slice(which, start, count));
                call.perform(communicator, operands, queue)
            }
            _ => {
                let operands = call.operands(rank, world, |which, start, count| self.window(which, start, count));
                call.perform(communicator, operands, queue)
            }
        }
    }
}

/// An independent model: the outputs of every operation, written out for three ranks. Rank r has elements r0, r1, ...
/// and sends rank t one element more than rank t - 1 where each pair has its own count.
#[test]
fn effects_are_what_the_operations_are_by_definition() {
    let counts = |from: usize, to: usize| (from + to) % 3;
    let told = |op: &Op, rank: usize| -> Vec<String> {
        let counts: Option<&dyn Fn(usize, usize) -> usize> = op.input.size.is_counted().then_some(&counts);
        let case = Case { world_size: 3, parameter: 1, count: 2, rows: 1, counts };
        let mut output: Vec<String> = Vec::new();
        for stretch in (op.effect)(&case, rank) {
            let source = match stretch.source {
                Source::Rank(source) => source.to_string(),
                Source::Reduced => "+".to_owned(),
            };
            output.resize(output.len().max(stretch.at + stretch.count), "-".to_owned());
            for index in 0..stretch.count {
                output[stretch.at + index] = format!("{source}{}", stretch.start + index);
            }
        }
        output
    };
    for op in OPERATIONS {
        let all: Vec<String> = (0..3).map(|rank| told(op, rank).join(" ")).collect();
        let expected = match op.name() {
            "all-reduce" => ["+0 +1", "+0 +1", "+0 +1"],
            "all-gather" => ["00 01 10 11 20 21"; 3],
            // Counts: 0 2 1.
            "all-gather-v" => ["10 11 20"; 3],
            "reduce-scatter" => ["+0 +1", "+2 +3", "+4 +5"],
            "reduce-scatter-v" => ["", "+0 +1", "+2"],
            "all-to-all" => ["00 01 10 11 20 21", "02 03 12 13 22 23", "04 05 14 15 24 25"],
            // Counts: 0 sends 0 1 2, 1 sends 1 2 0, 2 sends 2 0 1.
            "all-to-all-v" | "send-receive" => ["10 20 21", "00 11 12", "01 02 22"],
            "broadcast" => ["10 11"; 3],
            "reduce" => ["", "+0 +1", ""],
            "gather" => ["", "00 01 10 11 20 21", ""],
            "scatter" => ["10 11", "12 13", "14 15"],
            // The rounds of parallel groups hold every operation against a definition written out there.
            _ => continue,
        };
        assert_eq!(all, expected, "{}", op.name());
    }
}
