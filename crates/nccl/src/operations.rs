//! The operations of NCCL: checked arguments, submitted as calls.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use symmetra::op::{ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, GATHER, Op, REDUCE, REDUCE_SCATTER, SCATTER};

use crate::abi;
use crate::calls::{CheckedCollective, CheckedMessage, ProgramOperand};
use crate::comm::{Comm, OwnComm};
use crate::error::{Result, argument};
use crate::group::{self, GroupedWork};
use crate::numbers;

/// The arguments that all collectives have.
#[derive(Clone, Copy)]
pub(crate) struct CollectiveArguments {
    pub(crate) send: *const c_void,
    pub(crate) receive: *mut c_void,
    pub(crate) count: usize,
    pub(crate) dtype: c_int,
    pub(crate) stream: abi::CudaStream,
}

/// The operands and settings of one collective, for `submit`.
struct Builder<'a> {
    comm: &'a Comm,
    shape: CollectiveArguments,
    call: CheckedCollective,
}

impl<'a> Builder<'a> {
    fn new(op: &'static Op, comm: &'a Comm, shape: CollectiveArguments) -> Result<Self> {
        Ok(Self { comm, shape, call: CheckedCollective::new(op, numbers::dtype(shape.dtype)?) })
    }

    /// The count for each rank, `parts` times.
    fn elems(&self, parts: usize) -> Result<usize> {
        self.shape
            .count
            .checked_mul(parts)
            .ok_or_else(|| argument("the count", self.shape.count, format!("{parts} of them overflow")))
    }

    fn operand(&self, what: &str, address: *const c_void, parts: usize) -> Result<Option<ProgramOperand>> {
        ProgramOperand::new(what, address, self.elems(parts)?, self.call.dtype).map(Some)
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
        let (reduction, factor) = self.comm.reductions.of_call(number, self.call.dtype)?;
        (self.call.reduction, self.call.factor) = (Some(reduction), factor);
        Ok(self)
    }

    fn root(mut self, root: c_int) -> Result<Self> {
        self.call.root = numbers::rank("the root", root, self.comm.place().ranks)?;
        Ok(self)
    }

    fn is_root(&self) -> bool {
        self.call.root == self.comm.place().rank
    }
}

/// Enqueues the collective, or keeps it until the group ends. A collective without elements is nothing.
fn submit(comm: &Arc<Comm>, own: &OwnComm, builder: Builder<'_>) -> Result {
    let Builder { shape, call, .. } = builder;
    match shape.count {
        0 => Ok(()),
        _ => group::submit(comm, own, shape.stream as u64, GroupedWork::Collective(call)),
    }
}

pub(crate) fn all_reduce(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments, op: c_int) -> Result {
    submit(comm, own, Builder::new(&ALL_REDUCE, comm, shape)?.reduction(op)?.input(1)?.output(1)?)
}

pub(crate) fn reduce(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments, op: c_int, root: c_int) -> Result {
    let call = Builder::new(&REDUCE, comm, shape)?.reduction(op)?.root(root)?.input(1)?;
    submit(comm, own, if call.is_root() { call.output(1)? } else { call })
}

/// A broadcast of symmetra reads its output, so the root copies first.
pub(crate) fn broadcast(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments, root: c_int) -> Result {
    let mut call = Builder::new(&BROADCAST, comm, shape)?.root(root)?.output(1)?;
    if call.is_root() {
        let from = call.operand("the send buffer", shape.send, 1)?;
        call.call.copied = from.filter(|_| shape.send != shape.receive.cast_const());
    }
    submit(comm, own, call)
}

pub(crate) fn all_gather(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments) -> Result {
    submit(comm, own, Builder::new(&ALL_GATHER, comm, shape)?.input(1)?.output(comm.place().ranks)?)
}

pub(crate) fn reduce_scatter(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments, op: c_int) -> Result {
    submit(comm, own, Builder::new(&REDUCE_SCATTER, comm, shape)?.reduction(op)?.input(comm.place().ranks)?.output(1)?)
}

/// The least bytes between two ranks for which messages take the place of an all-to-all: on 2 H200, 855 us instead of
/// 1042 for 256 MiB. Other world sizes were not measured.
const FEWEST_BYTES_OF_MESSAGES: usize = 32 << 20;
const RANKS_WITH_MESSAGES: usize = 2;

pub(crate) fn all_to_all(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments) -> Result {
    let ranks = comm.place().ranks;
    let call = Builder::new(&ALL_TO_ALL, comm, shape)?.input(ranks)?.output(ranks)?;
    if ranks != RANKS_WITH_MESSAGES || shape.count * call.call.dtype.bytes() < FEWEST_BYTES_OF_MESSAGES {
        return submit(comm, own, call);
    }
    let dtype = call.call.dtype;
    let mut messages = Vec::with_capacity(2 * ranks);
    for (buffer, sends) in [(call.call.input, true), (call.call.output, false)] {
        let parts = (0..ranks).filter_map(|peer| Some((peer, buffer?.part(peer, shape.count, dtype))));
        messages.extend(parts.map(|(peer, memory)| CheckedMessage { peer, sends, memory, dtype }));
    }
    group::submit(comm, own, shape.stream as u64, GroupedWork::Messages(messages))
}

pub(crate) fn gather(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments, root: c_int) -> Result {
    let call = Builder::new(&GATHER, comm, shape)?.root(root)?.input(1)?;
    submit(comm, own, if call.is_root() { call.output(comm.place().ranks)? } else { call })
}

pub(crate) fn scatter(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments, root: c_int) -> Result {
    let call = Builder::new(&SCATTER, comm, shape)?.root(root)?.output(1)?;
    submit(comm, own, if call.is_root() { call.input(comm.place().ranks)? } else { call })
}

/// Enqueues a message, or keeps it until the group ends.
pub(crate) fn message(comm: &Arc<Comm>, own: &OwnComm, shape: CollectiveArguments, peer: c_int, sends: bool) -> Result {
    let dtype = numbers::dtype(shape.dtype)?;
    let peer = numbers::rank("the peer", peer, comm.place().ranks)?;
    let address = if sends { shape.send } else { shape.receive.cast_const() };
    let memory = ProgramOperand::new("the buffer", address, shape.count, dtype)?;
    group::submit(
        comm,
        own,
        shape.stream as u64,
        GroupedWork::Messages(vec![CheckedMessage { peer, sends, memory, dtype }]),
    )
}
