//! Checked calls of symmetra: collectives and messages on memory of the program.
#![allow(unsafe_code)]

use std::ffi::c_void;

use symmetra::op::Op;
use symmetra::{AllReduceOptions, Dtype, How, Reduction, Ref, Stream, Untyped, copy};

use crate::comm::Own;
use crate::error::{Result, argument};

/// Memory of the program: the elements of one operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    address: usize,
    elems: usize,
}

impl Operand {
    /// Memory of `elems` elements of `dtype` at `address`. The memory may be used.
    pub(crate) fn new(what: &str, address: *const c_void, elems: usize, dtype: Dtype) -> Result<Self> {
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

    /// The part of `count` elements for a rank.
    pub(crate) fn part(self, rank: usize, count: usize, dtype: Dtype) -> Self {
        Self { address: self.address + rank * count * dtype.bytes(), elems: count }
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
    pub(crate) op: &'static Op,
    pub(crate) dtype: Dtype,
    pub(crate) reduction: Option<Reduction>,
    pub(crate) root: usize,
    pub(crate) input: Option<Operand>,
    pub(crate) output: Option<Operand>,
    /// The operand that is copied into the output first.
    pub(crate) copied: Option<Operand>,
}

impl Collective {
    pub(crate) fn new(op: &'static Op, dtype: Dtype) -> Self {
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
    pub(crate) memory: Operand,
    pub(crate) dtype: Dtype,
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
