//! Collectives beside the caller's streams.

use super::bridge::{Exchange, Operand, Queue};
use super::config::{operation, reduction};
use super::report::guard;
use super::tensor::{Target, resolve, target};
use super::{Communicator, Report};
use crate::collective;
use crate::error::{Error, Operation, Result};
use crate::memory::View;
use crate::stream::Enqueue;
use crate::types::{Dtype, Reduction};

/// One under way. Operands are borrowed for `'static` in name only: buffers wait for the device before they
/// are freed, and a capture keeps those it uses (keeping); the rest is the caller's duty.
pub struct Pending(collective::Pending<'static>);

pub(super) fn communicator_reserve_workspace(communicator: &Communicator, bytes: usize) -> Result<(), Report> {
    guard(|| communicator.reserve_workspace(bytes))
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn low_contention(
    communicator: &Communicator,
    asked: &Exchange,
    input: Operand,
    output: Operand,
    queue: Queue,
) -> Result<Box<Pending>, Report> {
    guard(|| {
        // SAFETY: passed on.
        let (from, dtype) = unsafe { resolve(communicator.device(), &input) }?;
        // SAFETY: passed on.
        let (to, other) = unsafe { resolve(communicator.device(), &output) }?;
        if dtype != other {
            return Err(Error::invalid("the output's type", other, format!("the input's is {dtype}")));
        }
        let call = Call {
            communicator,
            operation: operation(asked.operation)?,
            dtype,
            reduction: reduction(asked.reduction)?,
            operands: [&from, &to],
        };
        // SAFETY: passed on.
        let pending = match unsafe { target(queue) }? {
            Target::Stream(stream) => call.enqueue(&stream),
            Target::Capture(capture) => {
                // SAFETY: borrowing.
                let tensors = [unsafe { input.tensor.as_ref() }, unsafe { output.tensor.as_ref() }];
                call.enqueue(&capture.keep(tensors.into_iter().flatten())?)
            }
        };
        Ok(Box::new(Pending(pending?)))
    })
}

/// A call whose operands are resolved.
struct Call<'a> {
    communicator: &'a Communicator,
    operation: Operation,
    dtype: Dtype,
    reduction: Reduction,
    operands: [&'a View<'a>; 2],
}

impl Call<'_> {
    fn enqueue(&self, queue: &impl Enqueue) -> Result<collective::Pending<'static>> {
        let Self { communicator, dtype, reduction, operands, .. } = *self;
        match self.operation {
            Operation::AllGather => communicator.low_contention_all_gather_untyped(dtype, operands, queue),
            Operation::ReduceScatter => {
                communicator.low_contention_reduce_scatter_untyped(dtype, reduction, operands, queue)
            }
            operation => Err(Error::Internal { message: format!("{operation} has no low-contention form") }),
        }
    }
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn pending_wait(pending: &Pending, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| match unsafe { target(queue) }? {
        Target::Stream(stream) => pending.0.wait_untyped(&stream),
        Target::Capture(capture) => pending.0.wait_untyped(&capture.keep([])?),
    })
}
