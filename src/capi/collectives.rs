//! Every collective, of a communicator or of a parallel group.

use std::ops::Deref;
use std::sync::Arc;

use super::bridge::{Asked, Group, Message, Operand, Queue};
use super::config::{algorithm, codec, reduction};
use super::report::guard;
use super::tensor::{resolve, target, tensors};
use super::{Communicator, Coordinator, Report, Tensor};
use crate::backend::ProcessGroup;
use crate::collective;
use crate::error::{Error, Parameter, Result};
use crate::op::{self, AllReduceOptions, Call, Numbers, Op, SEND_RECEIVE, Size};
use crate::types::Dtype;

/// The group that runs a call.
pub(super) enum Caller<'a> {
    Communicator(&'a Communicator),
    Coordinator(&'a Coordinator),
}

impl Deref for Caller<'_> {
    type Target = ProcessGroup;

    fn deref(&self) -> &ProcessGroup {
        match self {
            Self::Communicator(communicator) => communicator,
            Self::Coordinator(coordinator) => coordinator,
        }
    }
}

impl<'a> Caller<'a> {
    /// # Safety
    /// The group's pointers follow the headers: *borrowing*.
    pub(super) unsafe fn new(group: Group) -> Result<Self> {
        // SAFETY: borrowing.
        let (one, other) = (unsafe { group.communicator.as_ref() }, unsafe { group.coordinator.as_ref() });
        let caller = one.map(Self::Communicator).or(other.map(Self::Coordinator));
        caller.ok_or_else(|| Error::Internal {
            message: "the group handle holds neither a communicator nor a coordinator".to_owned(),
        })
    }

    /// Builds the call. `first` is a shape, or the counts to each rank; `second` the counts from each.
    ///
    /// # Safety
    /// The pointers of operands follow the headers: *borrowing*, *caller's duty*.
    unsafe fn call<'v>(
        &'v self,
        asked: &Asked<'_>,
        [input, output]: [&Operand; 2],
        [first, second]: [&'v [usize]; 2],
    ) -> Result<Call<'v>> {
        let unknown = || Error::Internal { message: format!("{} is not an operation", asked.operation) };
        let op = Op::named(asked.operation).ok_or_else(unknown)?;
        // SAFETY: passed on.
        let from = asked.has_input.then(|| unsafe { resolve(self.device(), input) }).transpose()?;
        // SAFETY: passed on.
        let to = asked.has_output.then(|| unsafe { resolve(self.device(), output) }).transpose()?;
        if let (Some((_, dtype)), Some((_, other))) = (&from, &to)
            && dtype != other
        {
            return Err(Error::invalid("the output's type", other, format!("the input's is {dtype}")));
        }
        let missing = || Error::invalid("the operands", "missing", "a collective needs one");
        let dtype = from.as_ref().or(to.as_ref()).map(|(_, dtype)| *dtype).ok_or_else(missing)?;
        let options = AllReduceOptions {
            reduction: reduction(asked.reduction)?,
            algorithm: algorithm(asked.algorithm)?,
            codec: codec(asked.codec)?,
        };
        let numbers = match op.input.size {
            Size::Counts => Numbers::Counts([first, second]),
            _ if asked.along => Numbers::Along(asked.dim, first),
            _ => Numbers::None,
        };
        // A distance may be negative, and wraps around the group.
        let parameter = match op.operation.parameter() {
            Parameter::Distance => (asked.parameter as isize).rem_euclid(self.world_size() as isize) as usize,
            _ => asked.parameter,
        };
        let call = Call::new(op, dtype).options(options).parameter(parameter).numbers(numbers);
        Ok(call.input(from.map(|(view, _)| view)).output(to.map(|(view, _)| view)))
    }
}

/// # Safety
/// The pointers of group, operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn run(
    group: Group,
    asked: &Asked<'_>,
    input: Operand,
    output: Operand,
    first: &[usize],
    second: &[usize],
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let caller = unsafe { Caller::new(group) }?;
        // SAFETY: passed on.
        let call = unsafe { caller.call(asked, [&input, &output], [first, second]) }?;
        // SAFETY: passed on.
        caller.calls.run(&call, unsafe { target(queue, [&input, &output]) }?)
    })
}

/// # Safety
/// The pointers of group, operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn run_messages(
    group: Group,
    messages: &[Message],
    in_pairs: bool,
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let caller = unsafe { Caller::new(group) }?;
        let message = |message: &Message| {
            // SAFETY: passed on.
            let (view, dtype) = unsafe { resolve(caller.device(), &message.operand) }?;
            Ok(op::Message::new(message.peer, message.sends, dtype, &view))
        };
        let resolved = messages.iter().map(message).collect::<Result<Vec<_>>>()?;
        let operands = messages.iter().map(|message| &message.operand);
        // SAFETY: passed on.
        let queue = unsafe { target(queue, operands) }?;
        if in_pairs {
            return caller.calls.run_pairs(&resolved, queue);
        }
        caller.calls.run(&Call::new(&SEND_RECEIVE, Dtype::U8).numbers(Numbers::Messages(&resolved)), queue)
    })
}

/// A low-contention collective that is running. Operands are only nominally `'static`: buffers wait for the device
/// before they are freed, and a capture keeps the buffers that it uses (keeping); the rest is the caller's duty.
pub struct Pending(collective::Pending<'static>);

pub(super) fn communicator_reserve_workspace(communicator: &Communicator, bytes: usize) -> Result<(), Report> {
    guard(|| communicator.reserve_workspace(bytes))
}

pub(super) fn coordinator_reserve_workspace(coordinator: &Coordinator, bytes: usize) -> Result<(), Report> {
    guard(|| coordinator.reserve_workspace(bytes))
}

/// # Safety
/// The pointers of group, operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn run_low_contention(
    group: Group,
    asked: &Asked<'_>,
    input: Operand,
    output: Operand,
    queue: Queue,
) -> Result<Box<Pending>, Report> {
    guard(|| {
        // SAFETY: passed on.
        let caller = unsafe { Caller::new(group) }?;
        // SAFETY: passed on.
        let call = unsafe { caller.call(asked, [&input, &output], [&[]; 2]) }?;
        // SAFETY: passed on.
        let queue = unsafe { target(queue, [&input, &output]) }?;
        Ok(Box::new(Pending(caller.calls.run_low_contention(&call, queue)?)))
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
/// The pointers of group and operands are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn bind(
    group: Group,
    asked: &Asked<'_>,
    input: Operand,
    output: Operand,
) -> Result<Box<BoundAllReduce>, Report> {
    guard(|| {
        // SAFETY: passed on.
        let caller = unsafe { Caller::new(group) }?;
        // SAFETY: passed on.
        let call = unsafe { caller.call(asked, [&input, &output], [&[]; 2]) }?;
        // SAFETY: passed on.
        let kept: Vec<Tensor> = unsafe { tensors([&input, &output]) }.cloned().collect();
        Ok(Box::new(BoundAllReduce(caller.calls.bind(&call, Some(Arc::new(kept)))?)))
    })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn bound_enqueue(bound: &BoundAllReduce, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| bound.0.enqueue_on(unsafe { target(queue, []) }?))
}
