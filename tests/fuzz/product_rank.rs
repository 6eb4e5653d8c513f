//! Plans on one rank, and the calls on them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use symmetra::fused::{AllGatherMatmul, MatmulAllReduce, MatmulReduceScatter};
use symmetra::matmul::{Product, Tensor};
use symmetra::{Communicator, DeviceBuffer, Dtype, Graph, Queue, Result, Stream, SymmetricBuffer};

use crate::model::{typed, values};
use crate::products::{Asked, Combines, Extent, Multiply, Products};
use crate::support::Sample;

/// A plan of a group.
pub(crate) struct Opened<'a> {
    plan: Plan,
    asked: &'a Asked,
    communicator: Communicator,
    pub(crate) group: usize,
}

enum Plan {
    Gather(AllGatherMatmul),
    Scatter(MatmulReduceScatter),
    Reduce(MatmulAllReduce),
}

impl<'a> Opened<'a> {
    /// Collective.
    pub(crate) fn new(communicator: &Communicator, group: usize, asked: &'a Asked) -> Result<Self> {
        let products: Vec<Product> = asked.factors.iter().map(|factor| asked.product(factor)).collect();
        let (shape, dim, options) = (asked.asked_shape(communicator.rank()), asked.dim, asked.options());
        let plan = match asked.combines {
            Combines::Gather => Plan::Gather(communicator.plan_all_gather_matmul(&shape, dim, &products, options)?),
            Combines::Scatter => {
                Plan::Scatter(communicator.plan_matmul_reduce_scatter(&shape, dim, products[0], options)?)
            }
            Combines::Reduce => Plan::Reduce(communicator.plan_matmul_all_reduce(&shape, products[0], options)?),
        };
        Ok(Self { plan, asked, communicator: communicator.clone(), group })
    }
}

/// Memory of an operand.
enum Room<T: Sample> {
    Plain(DeviceBuffer<T>),
    Symmetric(SymmetricBuffer<T>),
}

/// Memory of an operand, of any type.
trait Memory {
    /// The first elements.
    fn tensor(&self, elems: usize) -> Tensor<'_>;
    /// A factor with a bias from here.
    fn bias<'a>(&'a self, factor: Tensor<'a>, elems: usize) -> Tensor<'a>;
    /// Writes all of the memory, from the rank's file.
    fn fill(&self, file: &mut File, stream: &Stream) -> Result<()>;
    fn read(&self, stream: &Stream) -> Result<Vec<u8>>;
}

impl<T: Sample> Room<T> {
    /// Collective where the memory is symmetric.
    fn new(communicator: &Communicator, elems: usize, symmetric: bool) -> Result<Self> {
        match symmetric {
            true => communicator.symmetric(elems).map(Self::Symmetric),
            false => DeviceBuffer::new(communicator.device(), elems).map(Self::Plain),
        }
    }
}

impl Room<f32> {
    /// A factor with scales from here.
    fn scales<'a>(&'a self, factor: Tensor<'a>, elems: usize) -> Tensor<'a> {
        match self {
            Self::Plain(buffer) => factor.scaled(buffer.borrow().slice(..elems).unwrap()),
            Self::Symmetric(buffer) => factor.scaled(buffer.slice(..elems).unwrap()),
        }
    }
}

impl<T: Sample> Memory for Room<T> {
    fn tensor(&self, elems: usize) -> Tensor<'_> {
        match self {
            Self::Plain(buffer) => Tensor::of(buffer.borrow().slice(..elems).unwrap()),
            Self::Symmetric(buffer) => Tensor::of(buffer.slice(..elems).unwrap()),
        }
    }

    fn bias<'a>(&'a self, factor: Tensor<'a>, elems: usize) -> Tensor<'a> {
        match self {
            Self::Plain(buffer) => factor.biased(buffer.borrow().slice(..elems).unwrap()),
            Self::Symmetric(buffer) => factor.biased(buffer.slice(..elems).unwrap()),
        }
    }

    fn fill(&self, file: &mut File, stream: &Stream) -> Result<()> {
        let elems = match self {
            Self::Plain(buffer) => buffer.len(),
            Self::Symmetric(buffer) => buffer.len(),
        };
        let mut bytes = vec![0; elems * size_of::<T>()];
        file.read_exact(&mut bytes).unwrap();
        match self {
            Self::Plain(buffer) => buffer.write(&values(&bytes), stream),
            Self::Symmetric(buffer) => buffer.write(&values(&bytes), stream),
        }
    }

    fn read(&self, stream: &Stream) -> Result<Vec<u8>> {
        let values = match self {
            Self::Plain(buffer) => buffer.read(stream)?,
            Self::Symmetric(buffer) => buffer.read(stream)?,
        };
        Ok(bytemuck::cast_slice(&values).to_vec())
    }
}

fn memory<T: Sample>(communicator: &Communicator, elems: usize, symmetric: bool) -> Result<Box<dyn Memory>> {
    Ok(Box::new(Room::<T>::new(communicator, elems, symmetric)?))
}

/// A factor and its scales.
struct Scaled {
    memory: Box<dyn Memory>,
    scales: Room<f32>,
}

impl Scaled {
    fn fill(&self, file: &mut File, stream: &Stream) -> Result<()> {
        self.memory.fill(file, stream)?;
        self.scales.fill(file, stream)
    }
}

/// The operands of a call, in the order of their extents.
struct Operands<'a> {
    opened: &'a Opened<'a>,
    extents: Vec<Extent>,
    left: Scaled,
    /// Right factors, and the bias of each.
    rights: Vec<(Scaled, Box<dyn Memory>)>,
    /// The gathered factor and the results.
    written: Vec<Box<dyn Memory>>,
}

impl<'a> Operands<'a> {
    /// Collective where operands are symmetric.
    fn new(opened: &'a Opened<'a>, call: &Multiply) -> Result<Self> {
        let (asked, communicator) = (opened.asked, &opened.communicator);
        let extents = asked.extents(call, communicator.rank());
        let made = |number: usize, symmetric: bool| {
            let Extent { dtype, room, .. } = extents[number];
            typed!(dtype, memory(communicator, room, symmetric))
        };
        let scaled = |number: usize, symmetric: bool| -> Result<Scaled> {
            let memory = made(number, symmetric)?;
            Ok(Scaled { memory, scales: Room::new(communicator, extents[number + 1].room, symmetric)? })
        };
        let [reads, writes] = call.symmetric;
        let left = scaled(0, reads)?;
        let right = |first: usize| Ok((scaled(first, false)?, made(first + 2, false)?));
        let rights = (0..asked.factors.len()).map(|number| right(2 + 3 * number)).collect::<Result<_>>()?;
        let written = asked.written().map(|number| made(number, writes)).collect::<Result<_>>()?;
        Ok(Self { opened, extents, left, rights, written })
    }

    fn fill(&self, file: &mut File, stream: &Stream) -> Result<()> {
        self.left.fill(file, stream)?;
        for (right, bias) in &self.rights {
            right.fill(file, stream)?;
            bias.fill(file, stream)?;
        }
        self.written.iter().try_for_each(|written| written.fill(file, stream))
    }

    fn enqueue<'o>(&'o self, queue: impl Queue<'o>) -> Result<()> {
        let elems = |number: usize| self.extents[number].elems;
        let is_given = |number: usize| self.extents[number].is_given;
        let factor = |scaled: &'o Scaled, number: usize| {
            let factor = scaled.memory.tensor(elems(number));
            if is_given(number + 1) { scaled.scales.scales(factor, elems(number + 1)) } else { factor }
        };
        let left = factor(&self.left, 0);
        let right = |number: usize| {
            let ((right, bias), first) = (&self.rights[number], 2 + 3 * number);
            let right = factor(right, first);
            if is_given(first + 2) { bias.bias(right, elems(first + 2)) } else { right }
        };
        let first = self.opened.asked.written().start;
        let written = |number: usize| self.written[number].tensor(elems(first + number));
        match &self.opened.plan {
            Plan::Gather(plan) => {
                let gathered = is_given(first).then(|| written(0));
                let products = (0..self.rights.len()).map(|number| (right(number), written(1 + number)));
                plan.enqueue(left, gathered, products, queue)
            }
            Plan::Scatter(plan) => plan.enqueue(left, right(0), written(1), queue),
            Plan::Reduce(plan) => plan.enqueue(left, right(0), written(1), queue),
        }
    }
}

/// Makes the calls, and returns their outputs. The first goes on the stream with the number `on`.
pub(crate) fn run(
    plans: &HashMap<usize, Opened<'_>>,
    products: &Products,
    (streams, on): (&[Stream], usize),
    file: &mut File,
) -> Result<Vec<u8>> {
    let all: Vec<Operands<'_>> =
        products.calls.iter().map(|call| Operands::new(&plans[&call.plan], call)).collect::<Result<_>>()?;
    let stream = |number: usize| &streams[(on + if products.spread { number } else { 0 }) % streams.len()];
    let mut found = Vec::new();
    let graph = match products.replays {
        0 => None,
        _ => Some(streams[on].capture(|capture| all.iter().try_for_each(|own| own.enqueue(capture)))?),
    };
    graph.as_ref().map_or(Ok(()), Graph::register)?;
    for _ in 0..products.runs() {
        all.iter().try_for_each(|own| own.fill(file, &streams[on]))?;
        match &graph {
            Some(graph) => graph.launch(&streams[on])?,
            None => all.iter().enumerate().try_for_each(|(number, own)| own.enqueue(stream(number)))?,
        }
        for (number, own) in all.iter().enumerate() {
            own.opened.communicator.synchronize(stream(number))?;
            for written in &own.written {
                found.extend(written.read(stream(number))?);
            }
            own.opened.communicator.check_guards()?;
        }
    }
    Ok(found)
}
