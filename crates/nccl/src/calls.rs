//! Operations: the arguments of NCCL as calls of symmetra.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use symmetra::op::{ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, GATHER, Op, REDUCE, REDUCE_SCATTER, SCATTER};
use symmetra::{AllReduceOptions, Dtype, How, Reduction, Ref, Stream, Untyped, copy};

use crate::abi;
use crate::comm::{Comm, Own};
use crate::error::{Result, argument};
use crate::group;

/// Memory of the program: the elements of one operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    address: usize,
    elems: usize,
}

impl Operand {
    /// Memory of `elems` elements of `dtype` at `address`. The memory may be used.
    fn new(what: &str, address: *const c_void, elems: usize, dtype: Dtype) -> Result<Self> {
        let address = address as usize;
        let bytes = elems.checked_mul(dtype.bytes()).filter(|bytes| *bytes <= isize::MAX as usize);
        if bytes.is_none() {
            let limit = format!("{} bytes is the most", isize::MAX);
            return Err(argument("the count", elems, format!("{limit} of elements of {dtype}")));
        }
        if elems > 0 && address == 0 {
            return Err(argument(what, "null", format!("{elems} elements need memory")));
        }
        if !address.is_multiple_of(dtype.bytes()) {
            return Err(argument(
                what,
                format!("{address:#x}"),
                format!("{dtype} must be aligned to {} bytes", dtype.bytes()),
            ));
        }
        Ok(Self { address, elems })
    }

    /// The operand of a call on the communicator's device.
    fn on(self, own: &Own, dtype: Dtype) -> Result<Untyped<'static>> {
        // SAFETY: NCCL's contract is that the memory is valid on the device until the call is done. Peers access only
        // memory of the communicator itself.
        Ok(unsafe { Untyped::assume(own.communicator.device(), dtype, self.address as *mut c_void, self.elems) }?)
    }

    /// The bytes of the operand.
    fn bytes(self, own: &Own, dtype: Dtype) -> Result<Ref<'static, u8>> {
        let bytes = self.elems * dtype.bytes();
        // SAFETY: as for `on`.
        Ok(unsafe { Ref::assume(own.communicator.device(), self.address as *mut u8, bytes) }?)
    }
}

/// A collective whose arguments were checked.
#[derive(Clone, Debug)]
pub(crate) struct Collective {
    op: &'static Op,
    dtype: Dtype,
    reduction: Option<Reduction>,
    root: usize,
    input: Option<Operand>,
    output: Option<Operand>,
    /// The operand that is copied into the output first.
    copied: Option<Operand>,
}

impl Collective {
    fn new(op: &'static Op, dtype: Dtype) -> Self {
        Self { op, dtype, reduction: None, root: 0, input: None, output: None, copied: None }
    }

    /// Enqueues the call.
    pub(crate) fn enqueue(&self, own: &Own, stream: &Stream) -> Result {
        if let (Some(from), Some(to)) = (self.copied, self.output) {
            copy(from.bytes(own, self.dtype)?, to.bytes(own, self.dtype)?, stream)?;
        }
        let on = |operand: Option<Operand>| operand.map(|operand| operand.on(own, self.dtype)).transpose();
        let operands = [on(self.input)?, on(self.output)?];
        let options = self.reduction.map_or_else(AllReduceOptions::default, AllReduceOptions::from);
        let how = How { options, parameter: self.root, may_overlap: true, ..How::default() };
        Ok(own.communicator.perform_untyped(self.op, &how, operands, stream)?)
    }
}

/// A message to or from a rank, whose arguments were checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) peer: usize,
    pub(crate) sends: bool,
    memory: Operand,
    dtype: Dtype,
}

/// Enqueues messages as one operation.
pub(crate) fn exchange(own: &Own, messages: &[Message], stream: &Stream) -> Result {
    let memory: Vec<_> =
        messages.iter().map(|message| message.memory.bytes(own, message.dtype)).collect::<Result<_>>()?;
    Ok(own.communicator.pairs(stream, |pairs| {
        pairs.allow_overlaps();
        messages.iter().zip(&memory).try_for_each(|(message, memory)| match message.sends {
            true => pairs.send(memory, message.peer),
            false => pairs.receive(memory, message.peer),
        })
    })?)
}

/// The arguments that all collectives have.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) send: *const c_void,
    pub(crate) receive: *mut c_void,
    pub(crate) count: usize,
    pub(crate) dtype: c_int,
    pub(crate) stream: abi::Stream,
}

/// The operands and settings of one collective, for `submit`.
struct Builder<'a> {
    comm: &'a Comm,
    shape: Shape,
    call: Collective,
}

impl<'a> Builder<'a> {
    fn new(op: &'static Op, comm: &'a Comm, shape: Shape) -> Result<Self> {
        Ok(Self { comm, shape, call: Collective::new(op, abi::dtype(shape.dtype)?) })
    }

    /// The count for each rank, `parts` times.
    fn elems(&self, parts: usize) -> Result<usize> {
        self.shape
            .count
            .checked_mul(parts)
            .ok_or_else(|| argument("the count", self.shape.count, format!("{parts} of them overflow")))
    }

    fn operand(&self, what: &str, address: *const c_void, parts: usize) -> Result<Option<Operand>> {
        Operand::new(what, address, self.elems(parts)?, self.call.dtype).map(Some)
    }

    fn input(mut self, parts: usize) -> Result<Self> {
        self.call.input = self.operand("the send buffer", self.shape.send, parts)?;
        Ok(self)
    }

    fn output(mut self, parts: usize) -> Result<Self> {
        self.call.output = self.operand("the receive buffer", self.shape.receive, parts)?;
        Ok(self)
    }

    fn reduction(mut self, number: c_int) -> Result<Self> {
        self.call.reduction = Some(abi::reduction(number)?);
        Ok(self)
    }

    fn root(mut self, root: c_int) -> Result<Self> {
        self.call.root = rank("the root", root, self.comm)?;
        Ok(self)
    }

    fn is_root(&self) -> bool {
        self.call.root == self.comm.place().rank
    }
}

fn rank(what: &str, rank: c_int, comm: &Comm) -> Result<usize> {
    let ranks = comm.place().ranks;
    let found = usize::try_from(rank).ok().filter(|rank| *rank < ranks);
    found.ok_or_else(|| argument(what, rank, format!("ranks are 0 to {}", ranks - 1)))
}

/// Enqueues the collective, or keeps it until the group ends. A collective without elements is nothing.
fn submit(comm: &Arc<Comm>, own: &Own, builder: Builder<'_>) -> Result {
    let Builder { shape, call, .. } = builder;
    match shape.count {
        0 => Ok(()),
        _ => group::submit(comm, own, shape.stream as u64, group::Work::Collective(call)),
    }
}

pub(crate) fn all_reduce(comm: &Arc<Comm>, own: &Own, shape: Shape, op: c_int) -> Result {
    submit(comm, own, Builder::new(&ALL_REDUCE, comm, shape)?.reduction(op)?.input(1)?.output(1)?)
}

pub(crate) fn reduce(comm: &Arc<Comm>, own: &Own, shape: Shape, op: c_int, root: c_int) -> Result {
    let call = Builder::new(&REDUCE, comm, shape)?.reduction(op)?.root(root)?.input(1)?;
    submit(comm, own, if call.is_root() { call.output(1)? } else { call })
}

/// A broadcast of symmetra reads its output, so the root copies first.
pub(crate) fn broadcast(comm: &Arc<Comm>, own: &Own, shape: Shape, root: c_int) -> Result {
    let mut call = Builder::new(&BROADCAST, comm, shape)?.root(root)?.output(1)?;
    if call.is_root() {
        let from = call.operand("the send buffer", shape.send, 1)?;
        call.call.copied = from.filter(|_| shape.send != shape.receive.cast_const());
    }
    submit(comm, own, call)
}

pub(crate) fn all_gather(comm: &Arc<Comm>, own: &Own, shape: Shape) -> Result {
    submit(comm, own, Builder::new(&ALL_GATHER, comm, shape)?.input(1)?.output(comm.place().ranks)?)
}

pub(crate) fn reduce_scatter(comm: &Arc<Comm>, own: &Own, shape: Shape, op: c_int) -> Result {
    submit(comm, own, Builder::new(&REDUCE_SCATTER, comm, shape)?.reduction(op)?.input(comm.place().ranks)?.output(1)?)
}

pub(crate) fn all_to_all(comm: &Arc<Comm>, own: &Own, shape: Shape) -> Result {
    let ranks = comm.place().ranks;
    submit(comm, own, Builder::new(&ALL_TO_ALL, comm, shape)?.input(ranks)?.output(ranks)?)
}

pub(crate) fn gather(comm: &Arc<Comm>, own: &Own, shape: Shape, root: c_int) -> Result {
    let call = Builder::new(&GATHER, comm, shape)?.root(root)?.input(1)?;
    submit(comm, own, if call.is_root() { call.output(comm.place().ranks)? } else { call })
}

pub(crate) fn scatter(comm: &Arc<Comm>, own: &Own, shape: Shape, root: c_int) -> Result {
    let call = Builder::new(&SCATTER, comm, shape)?.root(root)?.output(1)?;
    submit(comm, own, if call.is_root() { call.input(comm.place().ranks)? } else { call })
}

/// Enqueues a message, or keeps it until the group ends.
pub(crate) fn message(comm: &Arc<Comm>, own: &Own, shape: Shape, peer: c_int, sends: bool) -> Result {
    let dtype = abi::dtype(shape.dtype)?;
    let peer = rank("the peer", peer, comm)?;
    let address = if sends { shape.send } else { shape.receive.cast_const() };
    let memory = Operand::new("the buffer", address, shape.count, dtype)?;
    group::submit(comm, own, shape.stream as u64, group::Work::Message(Message { peer, sends, memory, dtype }))
}
