//! Every collective, of a communicator or of a parallel group.

use super::bridge::{Exchange, Group, Message, Operand, Options, Queue};
use super::config::{operation, reduction};
use super::report::guard;
use super::tensor::{Target, resolve, target};
use super::{Communicator, Coordinator, Report, Tensor};
use crate::collective::AllReduceOptions;
use crate::device::Device;
use crate::environment::{self, Call};
use crate::error::{Error, Operation, Result};
use crate::memory::View;
use crate::stream::Enqueue;
use crate::types::Dtype;

/// Who runs a call.
enum Caller<'a> {
    Communicator(&'a Communicator),
    Coordinator(&'a Coordinator),
}

impl<'a> Caller<'a> {
    /// # Safety
    /// The group's pointers are those of the headers: *borrowing*.
    unsafe fn new(group: Group) -> Result<Self> {
        // SAFETY: borrowing.
        let (one, other) = (unsafe { group.communicator.as_ref() }, unsafe { group.coordinator.as_ref() });
        let caller = one.map(Self::Communicator).or(other.map(Self::Coordinator));
        caller.ok_or_else(|| Error::Internal { message: "a call of nobody".to_owned() })
    }

    fn device(&self) -> &'a Device {
        match self {
            Self::Communicator(communicator) => communicator.device(),
            Self::Coordinator(coordinator) => coordinator.device(),
        }
    }

    fn enqueue(&self, dtype: Dtype, call: &Call<'_>, queue: &impl Enqueue) -> Result<()> {
        match self {
            Self::Communicator(communicator) => call.enqueue(communicator, dtype, queue),
            Self::Coordinator(coordinator) => coordinator.run(dtype, call, queue),
        }
    }

    /// Enqueues a call whose operands are in `tensors`, as far as they are not the caller's memory.
    ///
    /// # Safety
    /// The queue's pointers are those of the headers: *borrowing*.
    unsafe fn run<'t>(
        &self,
        dtype: Dtype,
        call: &Call<'_>,
        tensors: impl IntoIterator<Item = &'t Tensor>,
        queue: Queue,
    ) -> Result<()> {
        // SAFETY: passed on.
        match unsafe { target(queue) }? {
            Target::Stream(stream) => self.enqueue(dtype, call, &stream),
            Target::Capture(capture) => self.enqueue(dtype, call, &capture.keep(tensors)?),
        }
    }
}

/// # Safety
/// The pointers of group, operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn all_reduce(
    group: Group,
    options: Options,
    input: Operand,
    output: Operand,
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        let options = AllReduceOptions::try_from(options)?;
        // SAFETY: passed on.
        let caller = unsafe { Caller::new(group) }?;
        // SAFETY: passed on.
        let (from, dtype) = unsafe { resolve(caller.device(), &input) }?;
        // SAFETY: passed on.
        let (to, other) = unsafe { resolve(caller.device(), &output) }?;
        same_type(dtype, other)?;
        // SAFETY: borrowing.
        let tensors = [unsafe { input.tensor.as_ref() }, unsafe { output.tensor.as_ref() }];
        let call = Call::AllReduce { options, input: from, output: to };
        // SAFETY: passed on.
        unsafe { caller.run(dtype, &call, tensors.into_iter().flatten(), queue) }
    })
}

/// # Safety
/// The pointers of group, operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn exchange(
    group: Group,
    asked: &Exchange,
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
        let from = asked.has_input.then(|| unsafe { resolve(caller.device(), &input) }).transpose()?;
        // SAFETY: passed on.
        let to = asked.has_output.then(|| unsafe { resolve(caller.device(), &output) }).transpose()?;
        if let (Some((_, dtype)), Some((_, other))) = (&from, &to) {
            same_type(*dtype, *other)?;
        }
        let missing = || Error::invalid("the operands", "missing", "a collective needs one");
        let dtype = from.as_ref().or(to.as_ref()).map(|(_, dtype)| *dtype).ok_or_else(missing)?;
        let operands = [asked.has_input.then_some(input.tensor), asked.has_output.then_some(output.tensor)];
        // SAFETY: borrowing.
        let tensors = operands.into_iter().flatten().filter_map(|tensor| unsafe { tensor.as_ref() });
        let call = call(asked, [from, to].map(|operand| operand.map(|(view, _)| view)), first, second)?;
        // SAFETY: passed on.
        unsafe { caller.run(dtype, &call, tensors, queue) }
    })
}

fn same_type(dtype: Dtype, other: Dtype) -> Result<()> {
    match dtype == other {
        true => Ok(()),
        false => Err(Error::invalid("the output's type", other, format!("the input's is {dtype}"))),
    }
}

/// What was asked for: `first` is a shape, or the counts that go to each rank, and `second` those that come.
fn call<'v>(
    asked: &Exchange,
    operands: [Option<View<'v>>; 2],
    first: &'v [usize],
    second: &'v [usize],
) -> Result<Call<'v>> {
    let (root, reduction, along) = (asked.root, reduction(asked.reduction)?, asked.along.then_some((asked.dim, first)));
    let [input, output] = operands;
    Ok(match (operation(asked.operation)?, input, output) {
        (Operation::AllGather, Some(input), Some(output)) => Call::AllGather { along, input, output },
        (Operation::ReduceScatter, Some(input), Some(output)) => {
            Call::ReduceScatter { reduction, along, input, output }
        }
        (Operation::AllToAll, Some(input), Some(output)) if asked.variable => {
            Call::AllToAllV { input, send_counts: first, output, receive_counts: second }
        }
        (Operation::AllToAll, Some(input), Some(output)) => Call::AllToAll { input, output },
        (Operation::Broadcast, None, Some(buffer)) => Call::Broadcast { root, buffer },
        (Operation::Reduce, Some(input), output) => Call::Reduce { reduction, root, input, output },
        (Operation::Gather, Some(input), output) => Call::Gather { root, input, output },
        (Operation::Scatter, input, Some(output)) => Call::Scatter { root, input, output },
        (operation, ..) => return Err(Error::Internal { message: format!("{operation} lacks an operand") }),
    })
}

/// # Safety
/// The pointers of operand and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn reduce_in_place(
    communicator: &Communicator,
    number: u32,
    root: usize,
    buffer: Operand,
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        let reduction = reduction(number)?;
        // SAFETY: passed on.
        let (view, dtype) = unsafe { resolve(communicator.device(), &buffer) }?;
        // SAFETY: passed on.
        match unsafe { target(queue) }? {
            Target::Stream(stream) => communicator.reduce_in_place_untyped(dtype, reduction, root, &view, &stream),
            Target::Capture(capture) => {
                // SAFETY: borrowing.
                let recording = capture.keep(unsafe { buffer.tensor.as_ref() })?;
                communicator.reduce_in_place_untyped(dtype, reduction, root, &view, &recording)
            }
        }
    })
}

/// # Safety
/// The pointers of group, operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn batch(group: Group, messages: &[Message], queue: Queue) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let caller = unsafe { Caller::new(group) }?;
        let message = |message: &Message| {
            // SAFETY: passed on.
            let (view, dtype) = unsafe { resolve(caller.device(), &message.operand) }?;
            Ok(environment::Message::new(message.peer, message.sends, dtype, &view))
        };
        let resolved = messages.iter().map(message).collect::<Result<Vec<_>>>()?;
        // SAFETY: borrowing.
        let tensors = messages.iter().filter_map(|message| unsafe { message.operand.tensor.as_ref() });
        // SAFETY: passed on.
        unsafe { caller.run(Dtype::U8, &Call::SendReceive { messages: &resolved }, tensors, queue) }
    })
}
