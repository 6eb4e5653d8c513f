//! The buffers of a bench on one rank, and the calls on them.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use symmetra::op::{ALL_GATHER, Size};
use symmetra::{Adopted, Communicator, Device, DeviceBuffer, Operand, Queue, Ref, Result, Stream, SymmetricBuffer};

use crate::model::{BUFFERS, values};
use crate::program::{Form, Kind, Placed, ROOM};
use crate::support::Sample;
use crate::support::batch::On;

/// What a rank does with a bench, whatever its type.
pub(crate) trait Bench: Send + Sync {
    /// Registers the operands of a call with all ranks, if the call has adopted ones.
    fn adopt(&self, call: &Placed) -> Result<()>;
    fn call<'op>(&'op self, call: &Placed, on: &On<'_, 'op, '_>) -> Result<()>;
    fn write(&self, buffer: usize, start: usize, bytes: &[u8], stream: &Stream) -> Result<()>;
    /// All buffers, one after the other.
    fn read(&self, stream: &Stream) -> Result<Vec<u8>>;
    fn communicator(&self) -> &Communicator;
    fn elem_bytes(&self) -> usize;
    /// The buffers that peers may reach as long as their groups are open.
    fn reached(&self) -> Arc<dyn Any + Send + Sync>;
}

struct Typed<T: Sample> {
    communicator: Communicator,
    device: Device,
    symmetric: [SymmetricBuffer<T>; 2],
    plain: Arc<[DeviceBuffer<T>; BUFFERS - 2]>,
    /// By the seed of the call. Captured calls keep theirs.
    adopted: Mutex<HashMap<u64, Arc<Pair<T>>>>,
}

/// A bench of a group. Collective.
pub(crate) fn open<T: Sample>(communicator: &Communicator) -> Result<Box<dyn Bench>> {
    let device = communicator.device().clone();
    let symmetric = [communicator.symmetric::<T>(ROOM)?, communicator.symmetric::<T>(ROOM)?];
    let plain: Vec<_> = (2..BUFFERS).map(|_| DeviceBuffer::new(&device, ROOM)).collect::<Result<_>>()?;
    let plain = Arc::new(plain.try_into().map_err(|_| symmetra::Error::Closed)?);
    // A captured call by copy engines may not make its workspace.
    communicator.reserve_workspace(ROOM * size_of::<u64>())?;
    Ok(Box::new(Typed::<T> { communicator: communicator.clone(), device, symmetric, plain, adopted: Mutex::default() }))
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
        queue: impl Queue<'op> + Copy,
    ) -> Result<()> {
        let (communicator, call) = (&self.communicator, placed.call());
        if let (Some(norm), Some(input), Some(output)) = (&placed.norm, &input, &output) {
            let common = |buffer, start, count| self.plain(buffer, start, count);
            return norm.perform(communicator, placed, [input, output].map(O::clone), common, queue);
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

    fn on<'op>(&'op self, placed: &Placed, queue: impl Queue<'op> + Copy, kept: Kept<'op, T>) -> Result<()> {
        let (call, rank, world) = (placed.call(), self.communicator.rank(), self.communicator.world_size());
        match placed.kind {
            Kind::Symmetric => {
                let slice = |which: usize, start: usize, count: usize| {
                    self.symmetric[placed.buffer(which)].slice(start..start + count).unwrap()
                };
                self.run(placed, placed.operands(rank, world, slice), queue)
            }
            Kind::Plain | Kind::Lent => {
                let slice = |which, start, count| self.plain(placed.buffer(which), start, count);
                self.run(placed, placed.operands(rank, world, slice), queue)
            }
            Kind::Adopted => {
                let [input, output] = kept.expect("adopted before the call");
                // In place, both are one.
                let same = call.in_place && call.op.input.size == call.op.output.size;
                let input = (if same { output } else { input }).as_ref().filter(|_| call.has(call.op.input, rank));
                self.run(placed, [input, output.as_ref().filter(|_| call.has(call.op.output, rank))], queue)
            }
        }
    }
}

/// Input and output of a call in adopted memory.
type Pair<T> = [Option<Adopted<'static, T>>; 2];
type Kept<'op, T> = Option<&'op Pair<T>>;

impl<T: Sample> Bench for Typed<T> {
    fn adopt(&self, placed: &Placed) -> Result<()> {
        if placed.kind != Kind::Adopted {
            return Ok(());
        }
        let (call, rank, world) = (placed.call(), self.communicator.rank(), self.communicator.world_size());
        let adopt = |extent: symmetra::op::Extent, which: usize, start: usize| {
            if extent.size == Size::None {
                return Ok(None);
            }
            let (elems, buffer) = (call.elems(extent, world), placed.buffer(which));
            assert!(start + elems <= ROOM);
            let address = self.plain[buffer - 2].as_raw().wrapping_add(start);
            // SAFETY: inside a buffer that lives as long as the adopted memory is used, and longer than the group.
            let memory = unsafe { Ref::from_raw(&self.device, address, elems) }?;
            // SAFETY: the buffer is dropped when every rank has closed its groups or given them up.
            unsafe { self.communicator.adopt(memory) }.map(Some)
        };
        let input = adopt(call.op.input, usize::from(call.reads_output()), call.input_start(rank))?;
        let output = adopt(call.op.output, 1, call.output_start(rank))?;
        self.adopted.lock().insert(placed.seed, Arc::new([input, output]));
        Ok(())
    }

    fn call<'op>(&'op self, placed: &Placed, on: &On<'_, 'op, '_>) -> Result<()> {
        let adopted = self.adopted.lock().remove(&placed.seed);
        match on {
            On::Stream(stream) => self.on(placed, *stream, adopted.as_deref()),
            On::Capture(capture) => self.on(placed, *capture, adopted.map(|adopted| capture.keep(adopted))),
        }
    }

    fn write(&self, buffer: usize, start: usize, bytes: &[u8], stream: &Stream) -> Result<()> {
        let values: Vec<T> = values(bytes);
        self.plain(buffer, start, values.len()).write(&values, stream)
    }

    fn read(&self, stream: &Stream) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for buffer in 0..BUFFERS {
            all.extend_from_slice(bytemuck::cast_slice(&self.plain(buffer, 0, ROOM).read(stream)?));
        }
        Ok(all)
    }

    fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    fn elem_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn reached(&self) -> Arc<dyn Any + Send + Sync> {
        self.plain.clone()
    }
}
