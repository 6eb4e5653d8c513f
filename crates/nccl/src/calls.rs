//! Checked calls of symmetra: collectives and messages on memory of the program.
#![allow(unsafe_code)]

use std::ffi::c_void;

use symmetra::op::Op;
use symmetra::{AllReduceOptions, Dtype, How, Reduction, Ref, Stream, Untyped, copy};

use crate::comm::OwnComm;
use crate::error::{Result, argument};
use crate::reductions::RankFactor;

/// Memory of the program: the elements of one operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramOperand {
    address: usize,
    elems: usize,
}

impl ProgramOperand {
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

    /// The number of elements.
    pub(crate) fn elems(self) -> usize {
        self.elems
    }

    /// The part of `count` elements for a rank.
    pub(crate) fn part(self, rank: usize, count: usize, dtype: Dtype) -> Self {
        self.range(rank * count, count, dtype)
    }

    /// `elems` elements from `start` on.
    pub(crate) fn range(self, start: usize, elems: usize, dtype: Dtype) -> Self {
        Self { address: self.address + start * dtype.bytes(), elems }
    }

    /// The operand of a call on the communicator's device.
    pub(crate) fn on(self, own: &OwnComm, dtype: Dtype) -> Result<Untyped<'static>> {
        // SAFETY: NCCL's contract is that the memory is valid on the device until the call is done. Peers access only
        // memory of the communicator itself.
        Ok(unsafe { Untyped::assume(own.communicator.device(), dtype, self.address as *mut c_void, self.elems) }?)
    }

    /// The bytes of the operand.
    fn bytes(self, own: &OwnComm, dtype: Dtype) -> Result<Ref<'static, u8>> {
        let bytes = self.elems * dtype.bytes();
        // SAFETY: as for `on`.
        Ok(unsafe { Ref::assume(own.communicator.device(), self.address as *mut u8, bytes) }?)
    }
}

/// A collective whose arguments were checked.
#[derive(Clone, Debug)]
pub(crate) struct CheckedCollective {
    pub(crate) op: &'static Op,
    pub(crate) dtype: Dtype,
    pub(crate) reduction: Option<Reduction>,
    /// The factor of this rank's elements, before they are summed.
    pub(crate) factor: Option<RankFactor>,
    pub(crate) root: usize,
    pub(crate) input: Option<ProgramOperand>,
    pub(crate) output: Option<ProgramOperand>,
    /// The operand that is copied into the output first.
    pub(crate) copied: Option<ProgramOperand>,
}

impl CheckedCollective {
    pub(crate) fn new(op: &'static Op, dtype: Dtype) -> Self {
        Self { op, dtype, reduction: None, factor: None, root: 0, input: None, output: None, copied: None }
    }

    /// Enqueues the call, without its factor.
    pub(crate) fn enqueue(&self, own: &OwnComm, stream: &Stream) -> Result {
        if let (Some(from), Some(to)) = (self.copied, self.output) {
            copy(from.bytes(own, self.dtype)?, to.bytes(own, self.dtype)?, stream)?;
        }
        let on = |operand: Option<ProgramOperand>| operand.map(|operand| operand.on(own, self.dtype)).transpose();
        self.perform([on(self.input)?, on(self.output)?], own, stream)
    }

    /// Enqueues the operation on operands, without its factor.
    pub(crate) fn perform(&self, operands: [Option<Untyped<'_>>; 2], own: &OwnComm, stream: &Stream) -> Result {
        let options = self.reduction.map_or_else(AllReduceOptions::default, AllReduceOptions::from);
        let how = How { options, parameter: self.root, may_overlap: true, ..How::default() };
        Ok(own.communicator.perform_untyped(self.op, &how, operands, stream)?)
    }
}

/// A message to or from a rank, whose arguments were checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedMessage {
    pub(crate) peer: usize,
    pub(crate) sends: bool,
    pub(crate) memory: ProgramOperand,
    pub(crate) dtype: Dtype,
}

/// Enqueues messages as one operation.
pub(crate) fn exchange(own: &OwnComm, messages: &[CheckedMessage], stream: &Stream) -> Result {
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
