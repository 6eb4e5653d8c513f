//! Blocking calls on slices of the program. The host device alone can address such memory.

use super::How;
use crate::backend::ProcessGroup;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::memory::Ref;
use crate::op::{ALL_GATHER, ALL_REDUCE, AllReduceOptions, InPlace, Op, Size};
use crate::stream::Stream;
use crate::types::Element;

impl ProcessGroup {
    /// Reduces `values` over all ranks in place, on the host device: [`perform_on_slices`](Self::perform_on_slices) of an
    /// all-reduce. Blocks until the values are there.
    /// ```
    /// # use symmetra::*;
    /// fn average(group: &ProcessGroup, gradients: &mut [f32], stream: &Stream) -> Result<()> {
    ///     group.all_reduce_slice(gradients, Reduction::Average, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of [`perform_on_slices`](Self::perform_on_slices).
    pub fn all_reduce_slice<T: Element>(
        &self,
        values: &mut [T],
        options: impl Into<AllReduceOptions>,
        stream: &Stream,
    ) -> Result<()> {
        let how = How { options: options.into(), ..How::default() };
        self.perform_on_slices(&ALL_REDUCE, &how, None, Some(values), stream)
    }

    /// Gathers `input` of all ranks into `output`, in rank order, on the host device. `input` has n elements, equal
    /// on all ranks, and `output` has n x world size elements. Blocks until `output` is complete. Runs
    /// [`perform_on_slices`](Self::perform_on_slices) of an all-gather.
    ///
    /// # Errors
    /// The errors of [`perform_on_slices`](Self::perform_on_slices).
    pub fn all_gather_slices<T: Element>(&self, input: &[T], output: &mut [T], stream: &Stream) -> Result<()> {
        self.perform_on_slices(&ALL_GATHER, &How::default(), Some(input), Some(output), stream)
    }

    /// Runs an operation by its [description](crate::op::Op) on slices of the program, on the host device, after earlier
    /// work of `stream`. Blocks until the call is done on this rank; then the output is valid, or the result is an error.
    /// In both cases the device no longer uses the slices. After an error the contents of `output` are undefined. The calling
    /// thread runs the call if the stream has no other work, and the stream's thread otherwise; results, order and errors are
    /// equal.
    ///
    /// A rank passes `None` for an operand that it does not have. Without an input, an all-reduce reduces the output in
    /// place, as does a reduce on the root. [`perform`](Self::perform) has the other arguments.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU, and while the stream is being captured; the errors of
    /// [`perform`](Self::perform) and of [`synchronize`](Self::synchronize).
    pub fn perform_on_slices<T: Element>(
        &self,
        op: &'static Op,
        how: &How<'_>,
        input: Option<&[T]>,
        output: Option<&mut [T]>,
        stream: &Stream,
    ) -> Result<()> {
        let device = self.device();
        if device.kind() != DeviceKind::Host {
            let reason = format!("{device:?} may not address it: copy it to a DeviceBuffer");
            return Err(Error::unsupported("a call on memory of the program", reason));
        }
        // The slices are borrowed until `settled` returns. Then all work of the stream is done, and peers never address
        // plain memory that no rank has adopted or registered.
        let output = output.map(|values| Ref::new(values.as_mut_ptr(), values.len(), device));
        let input = match input {
            Some(values) => Some(Ref::new(values.as_ptr().cast_mut(), values.len(), device).read_only()),
            None => output.clone().filter(|_| op.in_place == InPlace::Same && op.input.size != Size::None),
        };
        stream.settled("make a blocking call", || self.perform(op, how, [input, output], stream))?;
        self.synchronize(stream)
    }
}
