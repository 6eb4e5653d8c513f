//! Every collective but all-reduce.

use super::bridge::{Exchange, Message, Operand, Queue};
use super::config::reduction;
use super::report::guard;
use super::tensor::{Target, resolve, target};
use super::{Communicator, Report};
use crate::error::{Error, Operation, Result};
use crate::memory::View;
use crate::stream::Enqueue;
use crate::types::{Dtype, Reduction};

/// A call whose operands are resolved.
struct Call<'a> {
    communicator: &'a Communicator,
    operation: Operation,
    dtype: Dtype,
    reduction: Reduction,
    root: usize,
    input: Option<View<'a>>,
    output: Option<View<'a>>,
    /// The dimension and shape of what works along one.
    along: Option<(usize, &'a [usize])>,
    /// Of a variable all-to-all: what goes to, and comes from, each rank.
    counts: Option<[&'a [usize]; 2]>,
}

impl Call<'_> {
    fn enqueue(&self, queue: &impl Enqueue) -> Result<()> {
        let Self { communicator, dtype, reduction, root, along, .. } = *self;
        let (input, output) = (self.input.as_ref(), self.output.as_ref());
        match (self.operation, input, output) {
            (Operation::AllGather, Some(input), Some(output)) => {
                communicator.all_gather_untyped(dtype, along, [input, output], queue)
            }
            (Operation::ReduceScatter, Some(input), Some(output)) => {
                communicator.reduce_scatter_untyped(dtype, reduction, along, [input, output], queue)
            }
            (Operation::AllToAll, Some(input), Some(output)) => match self.counts {
                None => communicator.all_to_all_untyped(dtype, [input, output], queue),
                Some(counts) => communicator.all_to_all_v_untyped(dtype, [input, output], counts, queue),
            },
            (Operation::Broadcast, _, Some(buffer)) => communicator.broadcast_untyped(dtype, buffer, root, queue),
            (Operation::Reduce, Some(input), output) => {
                communicator.reduce_untyped(dtype, reduction, root, input, output, queue)
            }
            (Operation::Reduce, None, Some(buffer)) => {
                communicator.reduce_in_place_untyped(dtype, reduction, root, buffer, queue)
            }
            (Operation::Gather, Some(input), output) => communicator.gather_untyped(dtype, root, input, output, queue),
            (Operation::Scatter, input, Some(output)) => {
                communicator.scatter_untyped(dtype, root, input, output, queue)
            }
            (operation, ..) => Err(Error::Internal { message: format!("{operation} lacks an operand") }),
        }
    }
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn exchange(
    communicator: &Communicator,
    asked: &Exchange,
    input: Operand,
    output: Operand,
    first: &[usize],
    second: &[usize],
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        // SAFETY: passed on.
        let input_view = asked.has_input.then(|| unsafe { resolve(communicator, &input) }).transpose()?;
        // SAFETY: passed on.
        let output_view = asked.has_output.then(|| unsafe { resolve(communicator, &output) }).transpose()?;
        let dtype = match (&input_view, &output_view) {
            (Some((_, one)), Some((_, other))) if one != other => {
                return Err(Error::invalid("the output's type", other, format!("the input's is {one}")));
            }
            (Some((_, dtype)), _) | (None, Some((_, dtype))) => *dtype,
            (None, None) => return Err(Error::invalid("the operands", "missing", "a collective needs one")),
        };
        let call = Call {
            communicator,
            operation: Operation::from_number(asked.operation),
            dtype,
            reduction: reduction(asked.reduction)?,
            root: asked.root,
            input: input_view.map(|(view, _)| view),
            output: output_view.map(|(view, _)| view),
            along: asked.along.then_some((asked.dim, first)),
            counts: asked.variable.then_some([first, second]),
        };
        // SAFETY: passed on.
        match unsafe { target(queue) }? {
            Target::Stream(stream) => call.enqueue(&stream),
            Target::Capture(capture) => {
                let operands = [asked.has_input.then_some(input.tensor), asked.has_output.then_some(output.tensor)];
                // SAFETY: borrowing.
                let tensors = operands.into_iter().flatten().filter_map(|tensor| unsafe { tensor.as_ref() });
                call.enqueue(&capture.keep(tensors)?)
            }
        }
    })
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn batch(communicator: &Communicator, messages: &[Message], queue: Queue) -> Result<(), Report> {
    guard(|| {
        let mut batch = communicator.batch_untyped();
        for message in messages {
            // SAFETY: passed on.
            let (view, dtype) = unsafe { resolve(communicator, &message.operand) }?;
            match message.sends {
                true => batch.send_untyped(dtype, &view, message.peer)?,
                false => batch.receive_untyped(dtype, &view, message.peer)?,
            }
        }
        // SAFETY: passed on.
        match unsafe { target(queue) }? {
            Target::Stream(stream) => batch.enqueue(&stream),
            Target::Capture(capture) => {
                // SAFETY: borrowing.
                let tensors = messages.iter().filter_map(|message| unsafe { message.operand.tensor.as_ref() });
                batch.enqueue(&capture.keep(tensors)?)
            }
        }
    })
}
