//! Calls bound to their operands, without the lifetimes that C++ cannot name.

use super::bridge::{Operand, Options, Queue};
use super::report::guard;
use super::tensor::{Target, resolve, target};
use super::{Communicator, Report, Tensor};
use crate::collective::{self, AllReduceOptions};
use crate::error::Error;

/// A bound all-reduce and what it uses. The operands are borrowed for `'static` in name only: the tensors
/// among them are owned here (keeping); the rest is the caller's duty.
pub struct BoundAllReduce {
    bound: collective::BoundAllReduce<'static>,
    kept: Vec<Tensor>,
}

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
        let bound = communicator.bind_all_reduce_untyped(options, dtype, [&from, &to])?;
        // SAFETY: borrowing.
        let operands = [unsafe { input.tensor.as_ref() }, unsafe { output.tensor.as_ref() }];
        Ok(Box::new(BoundAllReduce { bound, kept: operands.into_iter().flatten().cloned().collect() }))
    })
}

/// # Safety
/// The queue's pointers are those of the headers: *borrowing*.
pub(super) unsafe fn bound_enqueue(bound: &BoundAllReduce, queue: Queue) -> Result<(), Report> {
    // SAFETY: passed on.
    guard(|| match unsafe { target(queue) }? {
        Target::Stream(stream) => bound.bound.enqueue(stream),
        Target::Capture(capture) => bound.bound.enqueue(capture.keep(&bound.kept)?),
    })
}
