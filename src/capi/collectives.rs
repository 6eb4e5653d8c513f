//! Every collective, of a communicator or of a parallel group.

use std::ops::Deref;
use std::sync::Arc;

use super::bridge::{Asked, Message, Operand, Queue};
use super::mirror::value;
use super::report::guard;
use super::tensor::{resolve, target, tensors};
use super::{Communicator, Coordinator, Report, Tensor};
use crate::backend::{GroupCalls, ProcessGroup};
use crate::collective;
use crate::error::{Error, Parameter, Result};
use crate::op::{self, AllReduceOptions, Call, Numbers, Op, PartCounts, SEND_RECEIVE, Size};
use crate::types::Dtype;

/// A process group that C++ objects share.
pub struct GroupHandle(Arc<dyn GroupCalls>);

impl Deref for GroupHandle {
    type Target = ProcessGroup;

    fn deref(&self) -> &ProcessGroup {
        ProcessGroup::of(&*self.0)
    }
}

pub(super) fn communicator_group(communicator: &Communicator) -> Box<GroupHandle> {
    Box::new(GroupHandle(communicator.share()))
}

pub(super) fn coordinator_group(coordinator: &Coordinator) -> Box<GroupHandle> {
    Box::new(GroupHandle(coordinator.share()))
}

/// The operation that a header names.
pub(super) fn operation(name: &str) -> Result<&'static Op> {
    Op::named(name).ok_or_else(|| Error::invalid("the operation", name, "this build has no such operation"))
}

/// Builds the call. `first` is a shape, the counts of parts, or the counts to each rank; `second` the counts from each.
///
/// # Safety
/// The pointers of operands follow the headers: *borrowing*, *caller's duty*.
unsafe fn call_of<'v>(
    group: &'v GroupHandle,
    asked: &Asked<'_>,
    input: &Operand,
    output: &Operand,
    first: &'v [usize],
    second: &'v [usize],
) -> Result<Call<'v>> {
    let op = operation(asked.operation)?;
    // SAFETY: passed on.
    let from = asked.has_input.then(|| unsafe { resolve(group.device(), input) }).transpose()?;
    // SAFETY: passed on.
    let to = asked.has_output.then(|| unsafe { resolve(group.device(), output) }).transpose()?;
    if let (Some((_, dtype)), Some((_, other))) = (&from, &to)
        && dtype != other
    {
        return Err(Error::invalid("the output's type", other, format!("the input's is {dtype}")));
    }
    let missing = || Error::invalid("the operands", "missing", "a collective needs one");
    let dtype = from.as_ref().or(to.as_ref()).map(|(_, dtype)| *dtype).ok_or_else(missing)?;
    let options = AllReduceOptions {
        reduction: value(asked.reduction)?,
        algorithm: value(asked.algorithm)?,
        codec: value(asked.codec)?,
    };
    let numbers = match op.input.size {
        Size::Counts => Numbers::Counts([first, second]),
        Size::OwnPart | Size::Parts => Numbers::Parts(PartCounts(first)),
        _ if asked.along => Numbers::Along(asked.dim, first),
        _ => Numbers::None,
    };
    // A distance may be negative, and wraps around the group.
    let parameter = match op.operation.parameter() {
        Parameter::Distance => (asked.parameter as isize).rem_euclid(group.world_size() as isize) as usize,
        _ => asked.parameter,
    };
    let call = Call::new(op, dtype).options(options).parameter(parameter).numbers(numbers);
    Ok(call.input(from.map(|(view, _)| view)).output(to.map(|(view, _)| view)))
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn run(
    group: &GroupHandle,
    asked: &Asked<'_>,
    input: Operand,
    output: Operand,
    first: &[usize],
    second: &[usize],
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let call = unsafe { call_of(group, asked, &input, &output, first, second) }?;
        // SAFETY: passed on.
        group.calls.run(&call, unsafe { target(queue, [&input, &output]) }?)
    })
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn run_messages(
    group: &GroupHandle,
    messages: &[Message],
    in_pairs: bool,
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        let message = |message: &Message| {
            // SAFETY: passed on.
            let (view, dtype) = unsafe { resolve(group.device(), &message.operand) }?;
            Ok(op::RankMessage::new(message.peer, message.sends, dtype, &view))
        };
        let resolved = messages.iter().map(message).collect::<Result<Vec<_>>>()?;
        let operands = messages.iter().map(|message| &message.operand);
        // SAFETY: passed on.
        let queue = unsafe { target(queue, operands) }?;
        if in_pairs {
            return group.calls.run_pairs(&resolved, queue);
        }
        group.calls.run(&Call::new(&SEND_RECEIVE, Dtype::U8).numbers(Numbers::Messages(&resolved)), queue)
    })
}

/// A low-contention collective that is running. Operands are only nominally `'static`: buffers wait for the device
/// before they are freed, and a capture keeps the buffers that it uses (keeping); the rest is the caller's duty.
pub struct Pending(collective::Pending<'static>);

pub(super) fn reserve_workspace(group: &GroupHandle, bytes: usize) -> Result<(), Report> {
    guard(|| group.reserve_workspace(bytes))
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn run_low_contention(
    group: &GroupHandle,
    asked: &Asked<'_>,
    input: Operand,
    output: Operand,
    queue: Queue,
) -> Result<Box<Pending>, Report> {
    guard(|| {
        // SAFETY: passed on.
        let call = unsafe { call_of(group, asked, &input, &output, &[], &[]) }?;
        // SAFETY: passed on.
        let queue = unsafe { target(queue, [&input, &output]) }?;
        Ok(Box::new(Pending(group.calls.run_low_contention(&call, queue)?)))
    })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn pending_wait(pending: &Pending, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| pending.0.wait_untyped(unsafe { target(queue, []) }?))
}

/// A bound all-reduce, which owns the tensors among its operands. Other operands are only nominally `'static`: the
/// caller's duty.
pub struct BoundAllReduce(collective::BoundAllReduce<'static>);

/// # Safety
/// The pointers of operands are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn bind(
    group: &GroupHandle,
    asked: &Asked<'_>,
    input: Operand,
    output: Operand,
) -> Result<Box<BoundAllReduce>, Report> {
    guard(|| {
        // SAFETY: passed on.
        let call = unsafe { call_of(group, asked, &input, &output, &[], &[]) }?;
        // SAFETY: passed on.
        let kept: Vec<Tensor> = unsafe { tensors([&input, &output]) }.cloned().collect();
        Ok(Box::new(BoundAllReduce(group.calls.bind(&call, Some(Arc::new(kept)))?)))
    })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn bound_enqueue(bound: &BoundAllReduce, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| bound.0.enqueue_on(unsafe { target(queue, []) }?))
}
