//! One rank's part of a measurement: every size verified, then timed.

use harness::with_element;
use symmetra::op::Size;
use symmetra::{Algorithm, Codec, Communicator, DeviceKind, Event, Graph, Stream, SymmetricBuffer, Transport};

use super::places::{self, Call};
use super::sweep::{Sample, Sweep};
use crate::exchange::Memory;
use harness::buffer::Buffer;
use harness::collective::Collective;
use harness::failure::Failure;
use harness::guarded::{self, GUARD_BYTES, Guarded};
use harness::names::Mover;
use harness::nvshmem::{self, Heap};
use harness::own::Own;
use harness::ranks::{Say, Task};
use reference::data::{Data, checksum};
use reference::element::Summand;

impl Task for Sweep {
    const NAME: &'static str = "sweep";
    type Found = Sample;

    /// Room for an input and an output of the largest size, and a workspace, each with its signal pad and guards.
    fn heap_bytes(&self) -> u64 {
        let buffers =
            if self.memory == Memory::Symmetric { 2 } else { 0 } + u64::from(self.transport == Mover::CopyEngine);
        buffers * (self.largest_bytes() as u64 + (64 << 10))
    }

    fn guard_bytes(&self) -> u64 {
        GUARD_BYTES
    }

    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        if self.memory == Memory::Nvshmem { nvshmem::variables() } else { Vec::new() }
    }

    fn transport(&self) -> Transport {
        match self.transport {
            Mover::Kernels(transport) => transport,
            Mover::CopyEngine => Transport::Auto,
        }
    }

    /// Measures every size.
    fn run(&self, communicator: &Communicator, say: Say<'_, Sample>) -> Result<(), Failure> {
        let stream = Stream::new(communicator.device())?;
        if self.transport == Mover::CopyEngine {
            communicator.reserve_workspace(self.largest_bytes())?;
        }
        let shmem = (self.memory == Memory::Nvshmem).then(|| Heap::open(communicator)).transpose()?;
        for (size, elems) in self.sizes_elems.iter().copied().enumerate() {
            let bench = Bench { sweep: self, communicator, stream: &stream, size, elems };
            let sample = with_element!(self.dtype, T => match (&shmem, self.memory) {
                (Some(heap), _) => bench.measure(|elems| heap.buffer::<T>(elems)),
                (None, Memory::Plain) => bench.measure(|elems| Guarded::<T>::new(communicator.device(), elems)),
                (None, _) => bench.measure(|elems| SymmetricBuffer::<T>::own(communicator, elems)),
            })?;
            say(sample)?;
        }
        shmem.map_or(Ok(()), |heap| heap.close())
    }
}

/// How many batches of how many operations are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    batches: u32,
    ops: u32,
}

/// Most batches: enough for a median.
const BATCHES: u32 = 10;

impl Pace {
    fn new(asked: Option<u32>, kind: DeviceKind, bytes: u64) -> Self {
        let (budget_bytes, least, most) = match kind {
            DeviceKind::Cuda | DeviceKind::Hip => (4 << 30, 50, 1000),
            _ => (128 << 20, 10, 200),
        };
        let iterations = asked.unwrap_or_else(|| u64::clamp(budget_bytes / bytes.max(1), least, most) as u32);
        let batches = iterations.clamp(1, BATCHES);
        Self { batches, ops: iterations.div_ceil(batches) }
    }
}

/// One size of a sweep.
struct Bench<'a> {
    sweep: &'a Sweep,
    communicator: &'a Communicator,
    stream: &'a Stream,
    size: usize,
    elems: usize,
}

/// An operation ready to run, once or as a batch.
enum Operation<'a, B> {
    Eager { call: Box<Call<'a, B>>, ops: u32 },
    Graphs { one: Graph<'a>, batch: Graph<'a> },
}

impl<'a> Bench<'a> {
    fn bytes(&self) -> u64 {
        (self.elems * self.sweep.dtype.bytes()) as u64
    }

    fn measure<T: Summand, B: Buffer<T>>(
        &self,
        make: impl Fn(usize) -> symmetra::Result<B>,
    ) -> Result<Sample, Failure> {
        let input = make(self.elems)?;
        let separate = (!self.sweep.in_place).then(|| make(self.elems)).transpose()?;
        let output = separate.as_ref().unwrap_or(&input);
        let pace = Pace::new(self.sweep.iterations, self.communicator.device().kind(), self.bytes());
        let operation = self.prepare(&input, output, pace.ops)?;

        let data = Data { seed: self.sweep.seed, elems: self.elems };
        input.write(&data.of::<T>(self.communicator.rank()), self.stream)?;
        if separate.is_some() {
            // No result has this value, so an element that was not written is found.
            output.write(&vec![bytemuck::pod_read_unaligned(&[0xa5; 8][..size_of::<T>()]); self.elems], self.stream)?;
        }
        self.once(&operation)?;
        self.communicator.synchronize(self.stream)?;
        let result = output.read(self.stream)?;
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let count_wrong = |result: &[T]| places::count_wrong(self.sweep, data, rank, world, self.runs(), result);
        let mut wrong = count_wrong(&result);
        let checksum = checksum(&result);
        // The memory in which the ranks meet may have been overwritten too, so it is also checked before the timed
        // batches.
        guarded::check(self.communicator)?;

        let batches_us = self.time(&operation, pace)?;
        if separate.is_some() {
            // The input is unchanged, so the bits must be equal.
            let last = output.read(self.stream)?;
            if self::checksum(&last) != checksum {
                wrong += count_wrong(&last).max(1);
            }
        }
        guarded::check(self.communicator)?;
        // Plain memory compares its margins.
        input.read(self.stream)?;
        output.read(self.stream)?;
        Ok(Sample { size: self.size, algorithm: self.algorithm(), batches_us, wrong, checksum })
    }

    /// Captures the operations that run from graphs.
    fn prepare<'b, T: Summand, B: Buffer<T>>(
        &self,
        input: &'b B,
        output: &'b B,
        ops: u32,
    ) -> Result<Operation<'b, B>, Failure>
    where
        'a: 'b,
    {
        let call = Call::new(self.sweep, self.communicator, self.elems, [input, output])?;
        if !self.sweep.graph {
            return Ok(Operation::Eager { call: Box::new(call), ops });
        }
        let capture = |ops: u32| {
            let graph = self.stream.capture(|capture| (0..ops).try_for_each(|_| call.enqueue(capture)))?;
            graph.register()?;
            Ok::<_, Failure>(graph)
        };
        Ok(Operation::Graphs { one: capture(1)?, batch: capture(ops)? })
    }

    fn once<'b, T: Summand, B: Buffer<T>>(&self, operation: &Operation<'b, B>) -> symmetra::Result<()> {
        match operation {
            Operation::Eager { call, .. } => call.enqueue(self.stream),
            Operation::Graphs { one, .. } => one.launch(self.stream),
        }
    }

    fn batch<'b, T: Summand, B: Buffer<T>>(&self, operation: &Operation<'b, B>) -> symmetra::Result<()> {
        match operation {
            Operation::Eager { call, ops } => (0..*ops).try_for_each(|_| call.enqueue(self.stream)),
            Operation::Graphs { batch, .. } => batch.launch(self.stream),
        }
    }

    /// Microseconds of an operation in each batch. A batch starts after an operation that is
    /// not timed, in which the ranks meet, so that no rank is charged for the late start of another.
    fn time<'b, T: Summand, B: Buffer<T>>(
        &self,
        operation: &Operation<'b, B>,
        pace: Pace,
    ) -> Result<Vec<f64>, Failure> {
        let (start, end) = (Event::new(self.stream.device())?, Event::new(self.stream.device())?);
        for _ in 0..self.sweep.warmup {
            self.batch(operation)?;
            self.communicator.synchronize(self.stream)?;
        }
        let mut batches_us = Vec::new();
        for _ in 0..pace.batches {
            self.once(operation)?;
            self.stream.record(&start)?;
            self.batch(operation)?;
            self.stream.record(&end)?;
            self.communicator.synchronize(self.stream)?;
            batches_us.push(end.elapsed_us(&start)? / f64::from(pace.ops));
        }
        Ok(batches_us)
    }

    fn algorithm(&self) -> String {
        match self.communicator.world_size() {
            1 => "copy".to_owned(),
            _ if self.sweep.collective != Collective::AllReduce => self.transport().to_owned(),
            _ if self.sweep.codec != Codec::None => format!("{} {}", self.runs(), self.sweep.codec),
            _ => self.runs().to_string(),
        }
    }

    /// The algorithm that runs: the requested algorithm, or the table's choice.
    fn runs(&self) -> Algorithm {
        let Sweep { algorithm, codec, .. } = *self.sweep;
        if algorithm != Algorithm::Auto {
            return algorithm;
        }
        if codec != Codec::None {
            return codec.algorithm(self.communicator.world_size());
        }
        self.communicator.chosen(self.sweep.dtype, self.sweep.reduction, self.is_direct(), self.bytes())
    }

    /// The transport of an exchange: the requested transport, or the library's choice.
    fn transport(&self) -> &'static str {
        if self.sweep.transport != Mover::Kernels(Transport::Auto) {
            return self.sweep.transport.name();
        }
        let (collective, world) = (self.sweep.collective, self.communicator.world_size());
        let bytes = match collective.op().input.size {
            // The largest of the counts.
            Size::Counts | Size::OwnPart | Size::Parts => self.bytes() / world as u64 * 3 / 2,
            _ if collective.divides() => self.bytes() / world as u64,
            _ => self.bytes(),
        };
        let symmetric = self.sweep.memory == Memory::Symmetric;
        let direct = if collective.tells_places() { symmetric } else { self.is_direct() };
        let ranges = collective.explain(self.communicator, self.sweep.dtype, direct);
        let range = ranges.iter().find(|range| bytes <= range.up_to_bytes);
        range.map_or(Transport::Auto, |range| range.transport).name()
    }

    /// Whether peers address the buffers: symmetric memory of either kind, or plain memory that a graph registers. For
    /// a bound call a graph registers no memory.
    fn is_direct(&self) -> bool {
        let registers = self.communicator.device().kind() != DeviceKind::Host || self.sweep.one_process;
        self.sweep.memory != Memory::Plain || (self.sweep.graph && registers && !self.sweep.bound)
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/sweep_rank.rs"]
mod tests;
