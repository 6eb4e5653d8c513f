//! Checks batches of calls against an independent reference. Each call writes its own part of one buffer, so calls
//! follow each other without a pause; the gaps between the parts must stay unchanged.

use symmetra::{
    Adopted, Algorithm, AllReduceOptions, Capture, DeviceBuffer, Error, Graph, Operand, Reduction, Ref, Result, Stream,
    SymmetricBuffer,
};

use super::data::{Data, Random, Sample, assert_same, mix};
use super::world::Rank;

pub const ROOM: usize = 48_000;
pub const MOST: usize = 12_000;
/// Largest distance, in elements, of an operand from an aligned address.
const OFFSETS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    Symmetric,
    Plain,
    Adopted,
}

/// One call. `from` and `to` are the starts of its operands in their buffers.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub reduction: Reduction,
    pub algorithm: Algorithm,
    pub count: usize,
    pub memory: Memory,
    pub from: usize,
    pub to: usize,
    pub in_place: bool,
}

/// Calls that are enqueued in sequence, eagerly or in one graph.
#[derive(Debug)]
pub struct Batch {
    pub captured: bool,
    pub cases: Vec<Case>,
}

/// Divides a list of calls into batches. `seed` determines everything else. `registers`: whether graphs make plain
/// memory addressable for peers.
pub fn batches(seed: u64, registers: bool, calls: &[(Algorithm, usize)]) -> Vec<Batch> {
    let mut random = Random(mix(seed));
    let mut batches: Vec<Batch> = Vec::new();
    let mut end = ROOM;
    for &(algorithm, count) in calls {
        let offset = |random: &mut Random| if random.below(3) == 0 { 0 } else { random.below(OFFSETS) };
        let mut to = end.next_multiple_of(OFFSETS) + OFFSETS + offset(&mut random);
        if to + count + OFFSETS > ROOM || batches.last().is_some_and(|batch| batch.cases.len() == 24) {
            batches.push(Batch { captured: random.below(3) == 0, cases: Vec::new() });
            to = OFFSETS + offset(&mut random);
        }
        end = to + count;
        let batch = batches.last_mut().unwrap();
        let mut memory = match random.below(20) {
            0..11 => Memory::Symmetric,
            11..19 => Memory::Plain,
            _ => Memory::Adopted,
        };
        let reached = memory != Memory::Plain || (registers && batch.captured);
        if algorithm.needs_reach() && !reached {
            memory = Memory::Symmetric;
        }
        let from = random.below((ROOM - count) / OFFSETS) * OFFSETS;
        let from = from + offset(&mut random).min(ROOM - count - from);
        let reduction = if random.below(3) == 0 { Reduction::Sum } else { *random.pick(&Reduction::ALL) };
        batch.cases.push(Case { reduction, algorithm, count, memory, from, to, in_place: random.below(2) == 0 });
    }
    batches
}

/// The buffers of one rank, reused by all batches. [0] is only read; [1] is written.
pub struct Bench<'a, T: Sample> {
    rank: &'a Rank,
    data: &'a Data<T>,
    symmetric: [SymmetricBuffer<T>; 2],
    plain: [DeviceBuffer<T>; 2],
}

impl<'a, T: Sample> Bench<'a, T> {
    /// `data` has [`ROOM`] elements. Collective.
    pub fn new(rank: &'a Rank, data: &'a Data<T>) -> Self {
        let symmetric = [0; 2].map(|_| rank.communicator.symmetric::<T>(ROOM).unwrap());
        let plain = [0; 2].map(|_| DeviceBuffer::<T>::new(&rank.device, ROOM).unwrap());
        let own = &data.inputs[rank.rank()];
        symmetric[0].write(own, &rank.stream).unwrap();
        plain[0].write(own, &rank.stream).unwrap();
        Self { rank, data, symmetric, plain }
    }

    /// The buffers that calls adopted and graphs registered. Ranks that are processes must keep them until every rank
    /// has closed.
    pub fn plain(self) -> [DeviceBuffer<T>; 2] {
        self.plain
    }

    /// Runs a batch and compares the whole buffers afterwards.
    pub fn check(&self, batch: &Batch) {
        let own = &self.data.inputs[self.rank.rank()];
        let mut symmetric = own.clone();
        let mut plain = own.clone();
        for case in &batch.cases {
            let expected = if case.memory == Memory::Symmetric { &mut symmetric } else { &mut plain };
            let from = if case.in_place { case.to } else { case.from };
            let sums = self.data.expected(case.algorithm, Self::reduction(case), from, case.count);
            expected[case.to..case.to + case.count].copy_from_slice(&sums);
        }
        let stream = &self.rank.stream;
        let uses = |memory: Memory| {
            batch.cases.iter().any(|case| (case.memory == Memory::Symmetric) == (memory == Memory::Symmetric))
        };
        let context = (T::DTYPE, self.rank.rank(), self.rank.world(), batch);
        if uses(Memory::Symmetric) {
            self.symmetric[1].write(own, stream).unwrap();
        }
        if uses(Memory::Plain) {
            self.plain[1].write(own, stream).unwrap();
        }
        self.run(batch).unwrap_or_else(|error| panic!("{error}: {context:?}"));
        if uses(Memory::Symmetric) {
            assert_same(&self.symmetric[1].read(stream).unwrap(), &symmetric, &context);
        }
        if uses(Memory::Plain) {
            assert_same(&self.plain[1].read(stream).unwrap(), &plain, &context);
        }
    }

    fn run(&self, batch: &Batch) -> Result<()> {
        let adopted = self.adopt(batch)?;
        let Rank { communicator, stream, .. } = self.rank;
        if batch.captured {
            let graph = self.capture(batch, &adopted)?;
            if batch.cases.iter().any(|case| case.memory == Memory::Plain) {
                graph.register()?;
            }
            graph.launch(stream)?;
            // Dropped while the work may be in flight.
        } else {
            for (case, adopted) in batch.cases.iter().zip(&adopted) {
                self.enqueue(case, adopted, &On::Stream(stream))?;
            }
        }
        communicator.synchronize(stream)
    }

    fn capture<'op>(&'op self, batch: &Batch, adopted: &'op [Option<[Adopted<'op, T>; 2]>]) -> Result<Graph<'op>> {
        self.rank.stream.capture(|capture| {
            for (case, adopted) in batch.cases.iter().zip(adopted) {
                self.enqueue(case, adopted, &On::Capture(capture))?;
            }
            Ok(())
        })
    }

    /// The case's reduction, or the sum when the algorithm cannot compute it.
    fn reduction(case: &Case) -> Reduction {
        if case.algorithm.reduces(T::DTYPE, case.reduction) { case.reduction } else { Reduction::Sum }
    }

    /// Elements of a plain buffer, as foreign memory.
    fn window(&self, which: usize, start: usize, count: usize) -> Ref<'_, T> {
        let address = self.plain[which].as_raw().wrapping_add(start);
        assert!(start + count <= ROOM);
        // SAFETY: inside a buffer that `self` owns; calls on it are finished before it is dropped.
        unsafe { Ref::from_raw(&self.rank.device, address, count) }.unwrap()
    }

    /// Input and output of the cases that adopt theirs. Collective.
    fn adopt(&self, batch: &Batch) -> Result<Vec<Option<[Adopted<'_, T>; 2]>>> {
        let adopt = |case: &Case| {
            let input =
                if case.in_place { self.window(1, case.to, case.count) } else { self.window(0, case.from, case.count) };
            let output = self.window(1, case.to, case.count);
            let communicator = &self.rank.communicator;
            // SAFETY: inside `self.plain`. Ranks that are threads drop it after successful calls; ranks that are
            // processes drop it when every rank has closed.
            let input = unsafe { communicator.adopt(input) }?;
            // SAFETY: inside `self.plain`, which is kept as for the input.
            let output = unsafe { communicator.adopt(output) }?;
            Ok([input, output])
        };
        let adopted = |case: &Case| (case.memory == Memory::Adopted).then(|| adopt(case)).transpose();
        batch.cases.iter().map(adopted).collect()
    }

    fn enqueue<'op>(
        &'op self,
        case: &Case,
        adopted: &'op Option<[Adopted<'op, T>; 2]>,
        on: &On<'_, 'op, '_>,
    ) -> Result<()> {
        let Case { algorithm, count, from, to, in_place, .. } = *case;
        let options = AllReduceOptions::default().reduction(Self::reduction(case)).algorithm(algorithm);
        match (case.memory, adopted) {
            (Memory::Symmetric, _) => {
                let output = self.symmetric[1].slice(to..to + count)?;
                let input = if in_place { output } else { self.symmetric[0].slice(from..from + count)? };
                self.call(options, input, output, on)
            }
            (Memory::Plain, _) => {
                let output = self.window(1, to, count);
                let input = if in_place { output.clone() } else { self.window(0, from, count) };
                self.call(options, &input, &output, on)
            }
            (Memory::Adopted, Some([_, output])) if in_place => self.call(options, output, output, on),
            (Memory::Adopted, Some([input, output])) => self.call(options, input, output, on),
            (Memory::Adopted, None) => Err(Error::Closed),
        }
    }

    fn call<'op>(
        &self,
        options: AllReduceOptions,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        on: &On<'_, 'op, '_>,
    ) -> Result<()> {
        match on {
            On::Stream(stream) => self.rank.communicator.all_reduce_with(options, input, output, *stream),
            On::Capture(capture) => self.rank.communicator.all_reduce_with(options, input, output, *capture),
        }
    }
}

/// The queue of calls.
pub enum On<'a, 'op, 'env> {
    Stream(&'a Stream),
    Capture(&'a Capture<'op, 'env>),
}
