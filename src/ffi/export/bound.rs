//! Calls bound to their operands, without the lifetimes that C++ cannot name.

use std::sync::Arc;

use super::bridge::{Operand, Options, Queue};
use super::report::guard;
use super::tensor::{Target, resolve, target};
use super::{Communicator, Report};
use crate::collective::{self, AllReduceOptions};
use crate::error::Error;

/// A bound all-reduce, which owns the tensors among its operands; other operands are borrowed for `'static` in name
/// only: they are the caller's duty.
pub struct BoundAllReduce(collective::BoundAllReduce<'static>);

/// # Safety
/// The pointers of operands are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn bind_all_reduce(
    communicator: &Communicator,
    options: Options,
    input: Operand,
    output: Operand,
) -> Result<Box<BoundAllReduce>, Report> {
    guard(|| {
        let options = AllReduceOptions::try_from(options)?;
        // SAFETY: passed on.
        let (from, dtype) = unsafe { resolve(communicator.device(), &input) }?;
        // SAFETY: passed on.
        let (to, other) = unsafe { resolve(communicator.device(), &output) }?;
        if dtype != other {
            return Err(Error::invalid("the output's type", other, format!("the input's is {dtype}")));
        }
        // SAFETY: borrowing.
        let operands = [unsafe { input.tensor.as_ref() }, unsafe { output.tensor.as_ref() }];
        let kept = Arc::new(operands.map(|tensor| tensor.cloned()));
        let bound = communicator.bind_all_reduce_untyped(options, dtype, [&from, &to], Some(kept))?;
        Ok(Box::new(BoundAllReduce(bound)))
    })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn bound_enqueue(bound: &BoundAllReduce, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| match unsafe { target(queue) }? {
        Target::Stream(stream) => bound.0.enqueue(stream),
        Target::Capture(capture) => bound.0.enqueue(capture.keep([])?),
    })
}
