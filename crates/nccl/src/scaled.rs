//! Sums of products with one factor for each rank: a rank multiplies its elements first.

use symmetra::internal::Scale;
use symmetra::op::{ALL_REDUCE, REDUCE_SCATTER};
use symmetra::{Stream, Untyped};

use crate::calls::{CheckedCollective, ProgramOperand};
use crate::comm::{OwnComm, WORKSPACE_BYTES};
use crate::error::{CallFailure, Result};
use crate::reductions::RankFactor;

/// The products of a part of a call start at a multiple of this.
const LINE_BYTES: usize = 128;

/// Enqueues a collective. With a factor, an all-reduce sums the products in its output. A reduce and a reduce-scatter, whose
/// output is smaller, take products part by part through the workspace, which peers can address.
pub(crate) fn enqueue(call: &CheckedCollective, own: &OwnComm, stream: &Stream) -> Result {
    let Some(factor) = call.factor else { return call.enqueue(own, stream) };
    let Some(input) = call.input else { return Err(CallFailure::usage("a sum of products needs an input")) };
    let scaled = ScaledCall { call, input, factor, own, stream };
    match call.op.operation == ALL_REDUCE.operation {
        true => scaled.in_output(),
        false => scaled.in_parts(),
    }
}

/// A call with a factor.
struct ScaledCall<'a> {
    call: &'a CheckedCollective,
    input: ProgramOperand,
    factor: RankFactor,
    own: &'a OwnComm,
    stream: &'a Stream,
}

impl ScaledCall<'_> {
    fn in_output(&self) -> Result {
        let Self { call, own, stream, .. } = *self;
        let dtype = call.dtype;
        let Some(output) = call.output else { return Err(CallFailure::usage("an all-reduce needs an output")) };
        let elems = self.input.elems();
        self.multiply(self.input.on(own, dtype)?, output.on(own, dtype)?, [1, elems, elems])?;
        call.perform([Some(output.on(own, dtype)?), Some(output.on(own, dtype)?)], own, stream)
    }

    fn in_parts(&self) -> Result {
        let Self { call, own, stream, input, .. } = *self;
        let dtype = call.dtype;
        let rows = if call.op.operation == REDUCE_SCATTER.operation { own.communicator.world_size() } else { 1 };
        let count = input.elems() / rows;
        let most = WORKSPACE_BYTES / rows / LINE_BYTES * LINE_BYTES / dtype.bytes();
        for start in (0..count).step_by(most) {
            let elems = most.min(count - start);
            let products = || -> Result<Untyped<'_>> { Ok(own.workspace.untyped(dtype, 0..rows * elems)?) };
            let from = input.range(start, (rows - 1) * count + elems, dtype).on(own, dtype)?;
            self.multiply(from, products()?, [rows, elems, count])?;
            let output = call.output.map(|output| output.range(start, elems, dtype).on(own, dtype)).transpose()?;
            call.perform([Some(products()?), output], own, stream)?;
        }
        Ok(())
    }

    /// Multiplies rows of elements, which lie `pitch` elements apart in the input and without gaps in the output.
    fn multiply(&self, input: Untyped<'_>, output: Untyped<'_>, [rows, row_elems, pitch]: [usize; 3]) -> Result {
        let factor = self.factor.on(self.own.communicator.device(), self.call.dtype)?;
        let scale = Scale::new(input, output, factor).rows(rows, row_elems).pitches(pitch, row_elems);
        Ok(self.own.communicator.scale(&scale, self.stream)?)
    }
}
