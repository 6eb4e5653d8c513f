//! The methods of [`ProcessGroup`] that run operations.

mod all_reduce;
mod batch;
mod exchange;
mod low_contention;
mod norm;
mod pairs;
mod slices;

use crate::backend::ProcessGroup;
use crate::error::{Error, Result};
use crate::memory::{Operand, Untyped, View, WithView};
use crate::op::{AllReduceOptions, Call, Numbers, Op, PartCounts, RankMessage, Size};
use crate::stream::{Queue, Target};
use crate::types::{Dtype, Element};

/// The settings of a call for [`ProcessGroup::perform`]. An operation ignores settings that it does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// Reduction and all-reduce algorithm.
    pub options: AllReduceOptions,
    /// The root, or the distance between ranks: see [`Parameter`](crate::Parameter).
    pub parameter: usize,
    /// A dimension, and the shape of the input, for operations along a dimension.
    pub along: Option<(usize, &'a [usize])>,
    /// Numbers of elements to each rank and from each rank, for operations with a count for each pair of ranks. An operation
    /// with a count for each rank uses the counts of its larger operand: those to each rank if the input has all parts, those
    /// from each rank if the output has all parts.
    pub counts: [&'a [usize]; 2],
    /// Whether operands may overlap in a way that the operation does not define. The contents of memory that overlaps are
    /// undefined after the call. Default: such operands are an error.
    pub may_overlap: bool,
}

impl ProcessGroup {
    /// Enqueues an operation by its [description](crate::op::Op), for programs that treat all operations alike, such as
    /// benchmarks, tests and bindings. Each operation also has its own method, which documents the operands. Enqueues and
    /// returns.
    ///
    /// A rank passes `None` for an operand that it does not have. The operand of a broadcast is the output. The counts of
    /// `how.counts` define the messages of a batch of sends and receives, as for an all-to-all with a count for each pair
    /// of ranks. The messages to rank 0, 1 and so on are consecutive in the input, and the messages from rank 0, 1 and so
    /// on in the output. A count of 0 means no message.
    ///
    /// # Errors
    /// The errors of the operation's own method.
    pub fn perform<'op, T: Element, O: Operand<'op, T>>(
        &self,
        op: &'static Op,
        how: &How<'_>,
        [input, output]: [Option<O>; 2],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let [input, output] = [&input, &output].map(|operand| operand.as_ref().map(WithView::view_of));
        self.perform_on(op, how, T::DTYPE, input, output, Target::of(&queue))
    }

    /// [`perform`](Self::perform) for programs that know element types at run time: both operands have the same type.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands of different types or without one, and the errors of
    /// [`perform`](Self::perform).
    pub fn perform_untyped<'op>(
        &self,
        op: &'static Op,
        how: &How<'_>,
        operands: [Option<Untyped<'op>>; 2],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let [input, output] = &operands;
        let dtype = match (input.as_ref().map(Untyped::dtype), output.as_ref().map(Untyped::dtype)) {
            (Some(input), Some(output)) if input != output => {
                return Err(Error::invalid("the output's type", output, format!("the input is {input}")));
            }
            (Some(dtype), _) | (None, Some(dtype)) => dtype,
            (None, None) => return Err(Error::invalid("the number of operands", 0, "their type is that of the call")),
        };
        let [input, output] = [input, output].map(|operand| operand.as_ref().map(Untyped::view));
        self.perform_on(op, how, dtype, input, output, Target::of(&queue))
    }

    fn perform_on(
        &self,
        op: &'static Op,
        how: &How<'_>,
        dtype: Dtype,
        input: Option<View<'_>>,
        output: Option<View<'_>>,
        queue: Target<'_>,
    ) -> Result<()> {
        let messages = match op.input.size {
            Size::Messages => messages(dtype, how, [input.as_ref(), output.as_ref()], self.world_size())?,
            _ => Vec::new(),
        };
        let numbers = match (op.input.size, how.along) {
            (Size::Counts, _) => Numbers::Counts(how.counts),
            (Size::Parts, _) => Numbers::Parts(PartCounts(how.counts[0])),
            (Size::OwnPart, _) => Numbers::Parts(PartCounts(how.counts[1])),
            (Size::Messages, _) => Numbers::Messages(&messages),
            (_, Some((dim, shape))) if op.along => Numbers::Along(dim, shape),
            _ => Numbers::None,
        };
        let call = Call::new(op, dtype).options(how.options).parameter(how.parameter).numbers(numbers);
        self.calls.run(&call.input(input).output(output).may_overlap(how.may_overlap), queue)
    }
}

/// One message to and one from every rank with a count. The messages are consecutive in an operand.
///
/// # Errors
/// [`Error::InvalidArgument`] if the number of counts is not the world size, if the counts exceed the operand, or if the
/// output is read-only memory.
fn messages(
    dtype: Dtype,
    how: &How<'_>,
    operands: [Option<&View<'_>>; 2],
    world_size: usize,
) -> Result<Vec<RankMessage>> {
    // An output into which no rank sends is in no message.
    operands[1].map_or(Ok(()), |output| output.check_writable("the output"))?;
    let mut messages = Vec::new();
    for ((counts, operand), sends) in how.counts.into_iter().zip(operands).zip([true, false]) {
        let what = if sends { "input" } else { "output" };
        if counts.len() != world_size {
            let what = format!("the number of counts of the {what}");
            return Err(Error::invalid(&what, counts.len(), format!("the world size is {world_size}")));
        }
        let elems = operand.map_or(0, |view| view.elems);
        let mut start = 0;
        for (peer, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let Some(view) = operand.filter(|_| *count <= elems - start) else {
                let limit = format!("the {what} has {} elements after the messages of earlier ranks", elems - start);
                return Err(Error::invalid(&format!("the count of rank {peer}"), count, limit));
            };
            let message = RankMessage::new(peer, sends, dtype, &view.part(start..start + count, dtype)?);
            messages.push(message.may_overlap(how.may_overlap));
            start += count;
        }
    }
    Ok(messages)
}
