//! Norms of summed rows, of a communicator or of a parallel group.

use super::Report;
use super::bridge::{AskedNorm, Group, Operand, Queue};
use super::collectives::{Caller, tensors};
use super::config::algorithm;
use super::report::guard;
use super::tensor::{Target, resolve, target};
use crate::error::{Error, Result};
use crate::op::{Call, Held, NormRows, Numbers, Op, RmsNorm};

/// # Safety
/// The pointers of group, operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn run_norm(group: Group, asked: &AskedNorm, queue: Queue) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let caller = unsafe { Caller::new(group) }?;
        let held = |operand: &Operand| -> Result<Held> {
            // SAFETY: passed on.
            let (view, dtype) = unsafe { resolve(caller.device(), operand) }?;
            Ok(Held::new(dtype, &view))
        };
        let (input, weight) = (held(&asked.input)?, held(&asked.weight)?);
        let maybe = |what: &str, given: bool, operand: &Operand| -> Result<Option<Held>> {
            let operand = given.then(|| held(operand)).transpose()?;
            match &operand {
                Some(other) if other.dtype != input.dtype => Err(Error::invalid(
                    &format!("the {what}'s type"),
                    other.dtype,
                    format!("the input's is {}", input.dtype),
                )),
                _ => Ok(operand),
            }
        };
        let rows = NormRows {
            norm: RmsNorm { epsilon: asked.epsilon, weight_offset: asked.weight_offset },
            weight,
            residual: maybe("residual", asked.has_residual, &asked.residual)?,
            residual_out: maybe("residual_out", asked.has_residual_out, &asked.residual_out)?,
            width: (asked.width != 0).then_some(asked.width),
        };
        let output = maybe("output", asked.has_output, &asked.output)?;
        let unknown = || Error::Internal { message: format!("{} is no operation", asked.operation) };
        let op = Op::named(asked.operation).ok_or_else(unknown)?;
        let call = Call::new(op, input.dtype).options(algorithm(asked.algorithm)?);
        let call = call.numbers(Numbers::Norm(&rows)).input(input.view()).output(output.as_ref().map(Held::view));
        let operands = [&asked.input, &asked.weight, &asked.residual, &asked.residual_out, &asked.output];
        // SAFETY: passed on.
        match unsafe { target(queue) }? {
            Target::Stream(stream) => caller.run(&call, &stream),
            // SAFETY: passed on.
            Target::Capture(capture) => caller.run(&call, &capture.keep(unsafe { tensors(&operands) })?),
        }
    })
}
