//! Grids on one rank, and the calls on them.

use std::any::Any;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use symmetra::environment::Coordinator;
use symmetra::mixed::{Mixed, MixedOptions};
use symmetra::{Adopted, DeviceBuffer, Dtype, Operand, Queue, Ref, Result, Stream, SymmetricBuffer};

use crate::grids::{Mix, Mixes, Shape};
use crate::model::{typed, values};
use crate::program::Kind;
use crate::support::Sample;
use crate::support::batch::On;

/// Memory that peers may access until every rank is done.
pub(crate) type Reached = Vec<Arc<dyn Any + Send + Sync>>;

/// A grid over the ranks of a group.
pub(crate) struct Opened<'a> {
    pub(crate) mixed: Mixed,
    shape: &'a Shape,
    coordinator: Coordinator,
    pub(crate) group: usize,
}

impl<'a> Opened<'a> {
    /// Collective.
    pub(crate) fn new(coordinator: &Coordinator, group: usize, shape: &'a Shape) -> Result<Self> {
        let mixed = Mixed::open(coordinator, &shape.config())?;
        Ok(Self { mixed, shape, coordinator: coordinator.clone(), group })
    }
}

/// Memory of an operand.
enum Room<T: Sample> {
    Plain(Arc<DeviceBuffer<T>>),
    Symmetric(SymmetricBuffer<T>),
    Adopted(Adopted<'static, T>, Arc<DeviceBuffer<T>>),
}

impl<T: Sample> Room<T> {
    /// Collective, except for plain memory.
    fn new(coordinator: &Coordinator, kind: Kind, elems: usize, reached: &mut Reached) -> Result<Self> {
        if kind == Kind::Symmetric {
            return coordinator.local().symmetric(elems).map(Self::Symmetric);
        }
        let buffer = Arc::new(DeviceBuffer::<T>::new(coordinator.device(), elems)?);
        reached.push(buffer.clone());
        if kind == Kind::Plain {
            return Ok(Self::Plain(buffer));
        }
        // SAFETY: the buffer is kept until every rank has closed its groups or given them up.
        let memory = unsafe { Ref::from_raw(coordinator.device(), buffer.as_raw(), elems) }?;
        // SAFETY: as above.
        Ok(Self::Adopted(unsafe { coordinator.local().adopt(memory) }?, buffer))
    }

    fn write(&self, values: &[T], stream: &Stream) -> Result<()> {
        match self {
            Self::Plain(buffer) | Self::Adopted(_, buffer) => buffer.write(values, stream),
            Self::Symmetric(buffer) => buffer.write(values, stream),
        }
    }

    fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        match self {
            Self::Plain(buffer) | Self::Adopted(_, buffer) => buffer.read(stream),
            Self::Symmetric(buffer) => buffer.read(stream),
        }
    }
}

/// The operands of a call, of any type.
trait Operands {
    /// Writes all memory, from the rank's file.
    fn fill(&self, file: &mut File, stream: &Stream) -> Result<()>;
    fn enqueue<'op>(&'op self, on: &On<'_, 'op, '_>) -> Result<()>;
    /// All memory.
    fn read(&self, stream: &Stream) -> Result<Vec<u8>>;
}

struct Typed<'a, T: Sample> {
    opened: &'a Opened<'a>,
    call: &'a Mix,
    input: Room<T>,
    /// None in place.
    output: Option<Room<T>>,
    elems: [usize; 2],
}

fn operands<'a, T: Sample>(
    opened: &'a Opened<'a>,
    call: &'a Mix,
    reached: &mut Reached,
) -> Result<Box<dyn Operands + 'a>> {
    let Opened { coordinator, shape, .. } = opened;
    let [input, output] = call.rooms(shape);
    let input = Room::<T>::new(coordinator, call.kind, input, reached)?;
    let output = (!call.in_place).then(|| Room::new(coordinator, call.kind, output, reached)).transpose()?;
    Ok(Box::new(Typed { opened, call, input, output, elems: call.elems(shape, coordinator.rank()) }))
}

impl<T: Sample> Typed<'_, T> {
    fn perform<'op, O: Operand<'op, T>>(&'op self, [input, output]: [O; 2], queue: impl Queue<'op>) -> Result<()> {
        let mut options = MixedOptions::from(self.call.mode());
        (options.reduction, options.rows) = (self.call.reduction(), self.call.unequal_rows());
        self.opened.mixed.perform(self.call.operation(), input, output, options, queue)
    }

    fn on<'op>(&'op self, queue: impl Queue<'op>) -> Result<()> {
        let output = self.output.as_ref().unwrap_or(&self.input);
        let start = |which: usize| self.call.at[if self.call.in_place { 0 } else { which }];
        let range = |which: usize| start(which)..start(which) + self.elems[which];
        match (&self.input, output) {
            (Room::Symmetric(input), Room::Symmetric(output)) => {
                self.perform([input.slice(range(0))?, output.slice(range(1))?], queue)
            }
            (Room::Adopted(input, _), Room::Adopted(output, _)) => {
                self.perform([input.slice(range(0))?, output.slice(range(1))?], queue)
            }
            (Room::Plain(input), Room::Plain(output)) => {
                self.perform([input.borrow().slice(range(0))?, output.borrow().slice(range(1))?], queue)
            }
            _ => unreachable!("both operands are of one kind"),
        }
    }
}

impl<T: Sample> Operands for Typed<'_, T> {
    fn fill(&self, file: &mut File, stream: &Stream) -> Result<()> {
        for (room, elems) in [&self.input].into_iter().chain(&self.output).zip(self.call.rooms(self.opened.shape)) {
            let mut bytes = vec![0; elems * size_of::<T>()];
            file.read_exact(&mut bytes).unwrap();
            room.write(&values(&bytes), stream)?;
        }
        Ok(())
    }

    fn enqueue<'op>(&'op self, on: &On<'_, 'op, '_>) -> Result<()> {
        match on {
            On::Stream(stream) => self.on(*stream),
            On::Capture(capture) => self.on(*capture),
        }
    }

    fn read(&self, stream: &Stream) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for room in [&self.input].into_iter().chain(&self.output) {
            bytes.extend_from_slice(bytemuck::cast_slice(&room.read(stream)?));
        }
        Ok(bytes)
    }
}

/// Makes the calls, and returns the memory of their operands. The first goes on the stream with the number `on`.
pub(crate) fn run(
    grids: &HashMap<usize, Opened<'_>>,
    mixes: &Mixes,
    (streams, on): (&[Stream], usize),
    (file, reached): (&mut File, &mut Reached),
) -> Result<Vec<u8>> {
    let mut all: Vec<Box<dyn Operands + '_>> = Vec::new();
    for call in &mixes.calls {
        all.push(typed!(call.dtype(), operands(&grids[&call.grid], call, reached))?);
    }
    let stream = |number: usize| &streams[(on + if mixes.spread { number } else { 0 }) % streams.len()];
    let coordinator = &grids[&mixes.calls[0].grid].coordinator;
    let mut found = Vec::new();
    let graph = match mixes.replays {
        0 => None,
        _ => Some(
            coordinator
                .capture(&streams[on], |capture| all.iter().try_for_each(|own| own.enqueue(&On::Capture(capture))))?,
        ),
    };
    for _ in 0..mixes.runs() {
        all.iter().try_for_each(|own| own.fill(file, &streams[on]))?;
        match &graph {
            Some(graph) => graph.launch(&streams[on])?,
            None => all.iter().enumerate().try_for_each(|(number, own)| own.enqueue(&On::Stream(stream(number))))?,
        }
        for (number, (own, call)) in all.iter().zip(&mixes.calls).enumerate() {
            let opened = &grids[&call.grid];
            let stream = if graph.is_some() { &streams[on] } else { stream(number) };
            opened.mixed.synchronize(stream)?;
            found.extend(own.read(stream)?);
            coordinator.local().check_guards()?;
        }
    }
    Ok(found)
}
