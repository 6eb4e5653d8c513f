//! One rank's part of a measurement: every size verified, then timed.

use std::cell::Cell;
use std::marker::PhantomData;

use harness::with_element;
use symmetra::op::Size;
use symmetra::{Algorithm, AnyQueue, Codec, Communicator, Config, DeviceKind, Stream, SymmetricBuffer, Transport};

use super::places::{self, PlacedCall, UNWRITTEN};
use super::sweep::{Sweep, SweepSample};
use crate::exchange::OperandMemory;
use harness::buffer::TestBuffer;
use harness::collective::CollectiveCommand;
use harness::comparison::candidate::{Candidate, CandidateVerdict};
use harness::comparison::repeats::Repeats;
use harness::comparison::turns::{Mode, Turns};
use harness::failure::CommandFailure;
use harness::guarded::{self, GUARD_BYTES, Guarded};
use harness::names::Mover;
use harness::nvshmem::{self, Heap};
use harness::own::Own;
use harness::ranks::{Say, Task};
use reference::data::{Data, checksum};
use reference::element::Summand;

impl Task for Sweep {
    const NAME: &'static str = "sweep";
    type Found = SweepSample;

    /// Room for an input and an output of the largest size, a workspace, and the buffer in which ranks meet, each with
    /// its signal pad and guards.
    fn heap_bytes(&self) -> u64 {
        let buffers = if self.memory == OperandMemory::Symmetric { 2 } else { 0 }
            + u64::from(self.transport == Mover::CopyEngine);
        buffers * (self.largest_bytes() as u64 + (64 << 10)) + (64 << 10)
    }

    fn configure(&self, config: &mut Config) {
        config.guard_bytes = GUARD_BYTES;
        if let Mover::Kernels(transport) = self.transport {
            config.transport = transport;
        }
    }

    fn variables(&self) -> Vec<(&'static str, &'static str)> {
        if self.memory == OperandMemory::Nvshmem { nvshmem::variables() } else { Vec::new() }
    }

    /// Measures every size.
    fn run(&self, communicator: &Communicator, say: Say<'_, SweepSample>) -> Result<(), CommandFailure> {
        if self.transport == Mover::CopyEngine {
            communicator.reserve_workspace(self.largest_bytes())?;
        }
        let shmem = (self.memory == OperandMemory::Nvshmem).then(|| Heap::open(communicator)).transpose()?;
        let (launches, _) = self.batches(communicator.device().kind(), 0);
        Turns::open(communicator, communicator, launches, |turns| {
            for (size, elems) in self.sizes_elems.iter().copied().enumerate() {
                let bench = SizeBench { sweep: self, communicator, turns, size, elems };
                let sample = with_element!(self.dtype, T => match (&shmem, self.memory) {
                    (Some(heap), _) => bench.measure(|elems| heap.buffer::<T>(elems)),
                    (None, OperandMemory::Plain) => bench.measure(|elems| Guarded::<T>::new(communicator.device(), elems)),
                    (None, _) => bench.measure(|elems| SymmetricBuffer::<T>::own(communicator, elems)),
                })?;
                say(sample)?;
            }
            Ok(())
        })?;
        shmem.map_or(Ok(()), |heap| heap.close())
    }
}

impl Sweep {
    /// The batches of a message of `bytes` bytes, and the operations of a batch.
    fn batches(&self, kind: DeviceKind, bytes: u64) -> (Repeats, u32) {
        let (budget_bytes, least, most) = match kind {
            DeviceKind::Cuda | DeviceKind::Hip => (4 << 30, 50, 1000),
            _ => (128 << 20, 10, 200),
        };
        let usual = || u64::clamp(budget_bytes / bytes.max(1), least, most) as u32;
        Repeats::batches(self.iterations.unwrap_or_else(usual), self.warmup)
    }
}

/// One size of a sweep.
struct SizeBench<'a, 'w> {
    sweep: &'a Sweep,
    communicator: &'a Communicator,
    turns: &'a Turns<'w>,
    size: usize,
    elems: usize,
}

/// The operation of one size, on its operands.
struct Swept<'a, 'w, T, B> {
    bench: &'a SizeBench<'a, 'w>,
    call: PlacedCall<'a, B>,
    input: &'a B,
    /// In place this is the input.
    output: &'a B,
    /// The data in words: `T` is the type of elements.
    data: Data,
    first: Cell<Option<u64>>,
    _elements: PhantomData<T>,
}

impl<'a, T: Summand, B: TestBuffer<T>> Candidate<'a> for Swept<'a, '_, T, B> {
    fn name(&self) -> String {
        self.bench.sweep.collective.name().to_owned()
    }

    fn enqueue(&self, operations: u32, queue: AnyQueue<'_, 'a>) -> symmetra::Result<()> {
        (0..operations).try_for_each(|_| self.call.enqueue(queue))
    }

    fn prepare(&self, stream: &Stream) -> symmetra::Result<()> {
        self.input.write(&self.data.of::<T>(self.bench.communicator.rank()), stream)?;
        if self.bench.sweep.in_place {
            return Ok(());
        }
        // No result has this value, so an element that was not written is found, and one that was written by mistake.
        let unwritten = bytemuck::pod_read_unaligned(&[UNWRITTEN; 8][..size_of::<T>()]);
        self.output.write(&vec![unwritten; self.bench.elems], stream)
    }

    /// In place, the next operation takes the result of the last one.
    fn verified(&self, _: u32) -> u32 {
        1
    }

    fn connects(&self) -> bool {
        false
    }

    fn verify(&self, _: u32, stream: &Stream) -> symmetra::Result<CandidateVerdict> {
        let result = self.output.read(stream)?;
        let checksum = checksum(&result);
        self.first.set(Some(checksum));
        Ok(CandidateVerdict { wrong: self.count_wrong(&result), checksum })
    }

    /// Not in place the input is unchanged, so the bits must be equal.
    fn recheck(&self, stream: &Stream) -> symmetra::Result<u64> {
        if self.bench.sweep.in_place {
            return Ok(0);
        }
        let last = self.output.read(stream)?;
        Ok(if self.first.get() == Some(checksum(&last)) { 0 } else { self.count_wrong(&last).max(1) })
    }

    fn check_guards(&self, stream: &Stream) -> symmetra::Result<()> {
        guarded::check(self.bench.communicator)?;
        // Plain memory compares its margins.
        self.input.read(stream)?;
        self.output.read(stream).map(drop)
    }
}

impl<T: Summand, B> Swept<'_, '_, T, B> {
    fn count_wrong(&self, result: &[T]) -> u64 {
        let SizeBench { sweep, communicator, .. } = *self.bench;
        let (rank, world) = (communicator.rank(), communicator.world_size());
        places::count_wrong(sweep, self.data, rank, world, self.bench.runs(), result)
    }
}

impl SizeBench<'_, '_> {
    fn bytes(&self) -> u64 {
        (self.elems * self.sweep.dtype.bytes()) as u64
    }

    fn measure<T: Summand, B: TestBuffer<T>>(
        &self,
        make: impl Fn(usize) -> symmetra::Result<B>,
    ) -> Result<SweepSample, CommandFailure> {
        let Self { sweep, communicator, turns, size, elems } = *self;
        let input = make(elems)?;
        let separate = (!sweep.in_place).then(|| make(elems)).transpose()?;
        let output = separate.as_ref().unwrap_or(&input);
        let swept = Swept::<T, B> {
            bench: self,
            call: PlacedCall::new(sweep, communicator, elems, [&input, output])?,
            input: &input,
            output,
            data: Data { seed: sweep.seed, elems },
            first: Cell::new(None),
            _elements: PhantomData,
        };
        let mode = if sweep.graph { Mode::Graph } else { Mode::Eager };
        let (_, operations) = sweep.batches(communicator.device().kind(), self.bytes());
        let trial = turns.trials(mode, operations, std::slice::from_ref(&swept))?.pop().unwrap_or_default();
        let (algorithm, batches_us) = (self.algorithm(), trial.times_us);
        Ok(SweepSample { size, algorithm, batches_us, wrong: trial.wrong, checksum: trial.checksum })
    }

    fn algorithm(&self) -> String {
        match self.communicator.world_size() {
            1 => "copy".to_owned(),
            _ if self.sweep.collective != CollectiveCommand::AllReduce => self.transport().to_owned(),
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
        let symmetric = self.sweep.memory == OperandMemory::Symmetric;
        let direct = if collective.tells_places() { symmetric } else { self.is_direct() };
        let ranges = collective.explain(self.communicator, self.sweep.dtype, direct);
        ranges.at(bytes).map_or(Transport::Auto, |range| range.choice).name()
    }

    /// Whether peers address the buffers: symmetric memory of either kind, or plain memory that a graph registers. For
    /// a bound call a graph registers no memory.
    fn is_direct(&self) -> bool {
        let registers = self.communicator.device().kind() != DeviceKind::Host || self.sweep.one_process;
        self.sweep.memory != OperandMemory::Plain || (self.sweep.graph && registers && !self.sweep.bound)
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/sweep_rank.rs"]
mod tests;
