//! The buffers of a bench on one rank, and the calls on them.

use std::any::Any;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use symmetra::op::{ALL_GATHER, Size};
use symmetra::{
    Adopted, AdoptedSlice, Communicator, Device, DeviceBuffer, Operand, Queue, Ref, Result, Stream, SymmetricBuffer,
};

use crate::model::{BUFFERS, values};
use crate::narrow::Memory;
use crate::norm::{Apart, WIDE};
use crate::program::{Form, Kind, LENGTH, Message, Placed, ROOM};
use crate::support::Sample;
use crate::support::batch::On;

/// The operations of a rank on a bench of any type.
pub(crate) trait Bench: Send + Sync {
    /// Registers the operands of a call with all ranks, if the call has adopted operands, and makes memory for quantised
    /// rows.
    fn prepare(&self, call: &Placed, stream: &Stream) -> Result<()>;
    fn call<'op>(&'op self, call: &Placed, on: &On<'_, 'op, '_>) -> Result<()>;
    fn write(&self, buffer: usize, start: usize, bytes: &[u8], stream: &Stream) -> Result<()>;
    /// All buffers, one after the other, and then the quantised rows.
    fn read(&self, stream: &Stream) -> Result<Vec<u8>>;
    fn communicator(&self) -> &Communicator;
    fn elem_bytes(&self, buffer: usize) -> usize;
    /// The buffers that peers may reach as long as their groups are open.
    fn reached(&self) -> Arc<dyn Any + Send + Sync>;
}

struct Typed<T: Sample> {
    communicator: Communicator,
    device: Device,
    symmetric: [SymmetricBuffer<T>; 2],
    plain: Arc<[DeviceBuffer<T>; BUFFERS - 2]>,
    /// Weights.
    wide: DeviceBuffer<f32>,
    /// By the seed of the call. Captured calls keep theirs.
    adopted: Mutex<HashMap<u64, Arc<Pair<T>>>>,
    /// By the seed of the call.
    codes: Mutex<BTreeMap<u64, Arc<Memory>>>,
}

/// A bench of a group. Collective.
pub(crate) fn open<T: Sample>(communicator: &Communicator) -> Result<Box<dyn Bench>> {
    let device = communicator.device().clone();
    let symmetric = [communicator.symmetric::<T>(LENGTH)?, communicator.symmetric::<T>(LENGTH)?];
    let plain: Vec<_> = (2..BUFFERS).map(|_| DeviceBuffer::new(&device, LENGTH)).collect::<Result<_>>()?;
    let plain = Arc::new(plain.try_into().map_err(|_| symmetra::Error::Closed)?);
    // A captured call by copy engines may not make its workspace.
    communicator.reserve_workspace(ROOM * size_of::<u64>())?;
    let (communicator, wide) = (communicator.clone(), DeviceBuffer::new(&device, LENGTH)?);
    let (adopted, codes) = (Mutex::default(), Mutex::default());
    Ok(Box::new(Typed::<T> { communicator, device, symmetric, plain, wide, adopted, codes }))
}

impl<T: Sample> Typed<T> {
    fn plain(&self, buffer: usize, start: usize, count: usize) -> Ref<'_, T> {
        let whole = if buffer < 2 { self.symmetric[buffer].borrow() } else { self.plain[buffer - 2].borrow() };
        whole.slice(start..start + count).unwrap()
    }

    /// Makes a call on operands of one kind.
    fn run<'op, O: Operand<'op, T> + Clone>(
        &'op self,
        placed: &Placed,
        [input, output]: [Option<O>; 2],
        codes: Option<&'op Memory>,
        queue: impl Queue<'op> + Copy,
    ) -> Result<()> {
        let (communicator, call) = (&self.communicator, placed.call());
        if let (Some(norm), Some(input), Some(output)) = (&placed.norm, &input, &output) {
            let common = |buffer, start, count| self.plain(buffer, start, count);
            let apart = Apart { wide: self.wide.borrow(), codes };
            return norm.perform(communicator, placed, [input, output].map(O::clone), common, apart, queue);
        }
        // Some ranks bind the call, and others do not.
        let binds = placed.form == Form::Bound && (placed.seed >> communicator.rank()) & 1 == 0;
        match (placed.form, input, output) {
            (Form::Bound, Some(input), Some(output)) if binds => {
                communicator.bind_all_reduce_with(call.options, input, output)?.enqueue(queue)
            }
            (Form::LowContention, Some(input), Some(output)) => {
                let pending = match *call.op == ALL_GATHER {
                    true => communicator.low_contention_all_gather(input, output, queue)?,
                    false => {
                        communicator.low_contention_reduce_scatter(input, output, call.options.reduction, queue)?
                    }
                };
                pending.wait(queue)
            }
            (_, input, output) => call.perform(communicator, [input, output], queue),
        }
    }

    /// Sends and receives between pairs. `part` makes an operand of 0 for the input or 1 for the output, a start and a length.
    fn pairs<'op, O: Operand<'op, T>>(
        &'op self,
        placed: &Placed,
        part: impl Fn(usize, usize, usize) -> O,
        queue: impl Queue<'op> + Copy,
    ) -> Result<()> {
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let messages = placed.messages(rank, world);
        let enqueue = |messages: &[Message]| {
            self.communicator.pairs(queue, |call| {
                messages.iter().try_for_each(|&Message { receives, peer, start, count }| match receives {
                    true => call.receive(part(1, start, count), peer),
                    false => call.send(part(0, start, count), peer),
                })
            })
        };
        match placed.is_slow(rank) {
            // Messages from a rank to itself stay in one call.
            true => messages.chunk_by(|one, other| one.peer == rank && other.peer == rank).try_for_each(enqueue),
            false if messages.is_empty() => Ok(()),
            false => enqueue(&messages),
        }
    }

    fn on<'op>(&'op self, placed: &Placed, queue: impl Queue<'op> + Copy, kept: Kept<'op, T>) -> Result<()> {
        let Kept { adopted, codes } = kept;
        let is_pairs = placed.form == Form::Pairs;
        let (call, rank, world) = (placed.call(), self.communicator.rank(), self.communicator.world_size());
        match placed.kind {
            Kind::Symmetric => {
                let slice = |which: usize, start: usize, count: usize| {
                    self.symmetric[placed.buffer(which)].slice(start..start + count).unwrap()
                };
                match is_pairs {
                    true => self.pairs(placed, slice, queue),
                    false => self.run(placed, placed.operands(rank, world, slice), codes, queue),
                }
            }
            Kind::Plain | Kind::Lent => {
                let slice = |which, start, count| self.plain(placed.buffer(which), start, count);
                match is_pairs {
                    true => self.pairs(placed, slice, queue),
                    false => self.run(placed, placed.operands(rank, world, slice), codes, queue),
                }
            }
            Kind::Adopted => {
                let [input, output] = adopted.expect("adopted before the call");
                if is_pairs {
                    let starts = [call.input_start(rank), call.output_start(rank, world)];
                    let part = |which: usize, start: usize, count: usize| {
                        [input, output][which].as_ref().unwrap().part(start - starts[which], count)
                    };
                    return self.pairs(placed, part, queue);
                }
                // In place, both are one.
                let same = call.in_place && call.op.input.size == call.op.output.size;
                let input = (if same { output } else { input }).as_ref().filter(|_| call.has(call.op.input, rank));
                let output = output.as_ref().filter(|_| call.has(call.op.output, rank));
                self.run(placed, [input, output].map(|operand| operand.map(Lent::whole)), codes, queue)
            }
        }
    }
}

/// Input and output of a call in adopted memory.
type Pair<T> = [Option<Lent<T>>; 2];

/// Adopted memory.
enum Lent<T: Sample> {
    /// Of elements.
    Elements(Adopted<'static, T>),
    /// A pool of bytes, the offset of the operand in bytes, and the number of its elements.
    Bytes(Adopted<'static, u8>, usize, usize),
}

impl<T: Sample> Lent<T> {
    fn part(&self, start: usize, count: usize) -> AdoptedSlice<'_, T> {
        let part = match self {
            Self::Elements(memory) => memory.slice(start..start + count),
            Self::Bytes(memory, offset, _) => memory.elements(offset + start * size_of::<T>(), count),
        };
        part.unwrap()
    }

    fn whole(&self) -> AdoptedSlice<'_, T> {
        match self {
            Self::Elements(memory) => memory.slice(..).unwrap(),
            Self::Bytes(_, _, count) => self.part(0, *count),
        }
    }
}

/// The adopted memory and quantised rows of a call.
struct Kept<'op, T: Sample> {
    adopted: Option<&'op Pair<T>>,
    codes: Option<&'op Memory>,
}

impl<T: Sample> Typed<T> {
    /// Makes memory for the quantised rows of a call, if the call has any.
    fn make_codes(&self, placed: &Placed, stream: &Stream) -> Result<()> {
        let Some((norm, narrow)) = placed.norm.as_ref().and_then(|norm| norm.narrow.as_ref().map(|it| (norm, it)))
        else {
            return Ok(());
        };
        if let Entry::Vacant(codes) = self.codes.lock().entry(placed.seed) {
            let shape = [norm.normed_rows(placed, self.communicator.world_size()), norm.width];
            codes.insert(Arc::new(Memory::new(&self.communicator, narrow, shape, stream)?));
        }
        Ok(())
    }

    /// Registers the operands of a call with all ranks, if the call has adopted operands.
    fn adopt(&self, placed: &Placed) -> Result<()> {
        if placed.kind != Kind::Adopted {
            return Ok(());
        }
        let (call, rank, world) = (placed.call(), self.communicator.rank(), self.communicator.world_size());
        let adopt = |extent: symmetra::op::Extent, which: usize, start_of: &dyn Fn(usize) -> usize| {
            if extent.size == Size::None {
                return Ok(None);
            }
            let (elems, buffer, start) = (call.elems(extent, rank, world), placed.buffer(which), start_of(rank));
            assert!(start + elems <= ROOM);
            // Every second call adopts bytes, which begin as many elements before the operand as all ranks have.
            let ahead = match placed.seed % 2 {
                0 => 0,
                _ => (0..world).map(start_of).min().unwrap_or(0).min(64),
            };
            let address = self.plain[buffer - 2].as_raw().wrapping_add(start - ahead);
            if placed.seed % 2 == 1 {
                let [bytes, offset] = [ahead + elems, ahead].map(|count| count * size_of::<T>());
                // SAFETY: as below.
                let memory = unsafe { self.communicator.adopt_bytes(address.cast(), bytes) }?;
                return Ok(Some(Lent::Bytes(memory, offset, elems)));
            }
            // SAFETY: inside a buffer that lives as long as the adopted memory is used, and longer than the group.
            let memory = unsafe { Ref::from_raw(&self.device, address, elems) }?;
            // SAFETY: the buffer is dropped when every rank has closed its groups or given them up.
            unsafe { self.communicator.adopt(memory) }.map(|memory| Some(Lent::Elements(memory)))
        };
        let input = adopt(call.op.input, usize::from(call.reads_output()), &|rank| call.input_start(rank))?;
        let output = adopt(call.op.output, 1, &|rank| call.output_start(rank, world))?;
        self.adopted.lock().insert(placed.seed, Arc::new([input, output]));
        Ok(())
    }
}

impl<T: Sample> Bench for Typed<T> {
    fn prepare(&self, placed: &Placed, stream: &Stream) -> Result<()> {
        self.make_codes(placed, stream)?;
        self.adopt(placed)
    }

    fn call<'op>(&'op self, placed: &Placed, on: &On<'_, 'op, '_>) -> Result<()> {
        let adopted = self.adopted.lock().remove(&placed.seed);
        let codes = self.codes.lock().get(&placed.seed).cloned();
        match on {
            On::Stream(stream) => {
                self.on(placed, *stream, Kept { adopted: adopted.as_deref(), codes: codes.as_deref() })
            }
            On::Capture(capture) => {
                let adopted = adopted.map(|adopted| capture.keep(adopted));
                self.on(placed, *capture, Kept { adopted, codes: codes.map(|codes| capture.keep(codes)) })
            }
        }
    }

    fn write(&self, buffer: usize, start: usize, bytes: &[u8], stream: &Stream) -> Result<()> {
        if buffer == WIDE {
            return self.wide.write(&values(bytes), stream);
        }
        let values: Vec<T> = values(bytes);
        self.plain(buffer, start, values.len()).write(&values, stream)
    }

    fn read(&self, stream: &Stream) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for buffer in 0..BUFFERS {
            all.extend_from_slice(bytemuck::cast_slice(&self.plain(buffer, 0, LENGTH).read(stream)?));
        }
        all.extend_from_slice(bytemuck::cast_slice(&self.wide.read(stream)?));
        for codes in self.codes.lock().values() {
            all.extend(codes.read(stream)?);
        }
        Ok(all)
    }

    fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    fn elem_bytes(&self, buffer: usize) -> usize {
        if buffer == WIDE { size_of::<f32>() } else { size_of::<T>() }
    }

    fn reached(&self) -> Arc<dyn Any + Send + Sync> {
        self.plain.clone()
    }
}
