//! The product of one rank's elements with a factor, which a sum over the ranks follows.
#![allow(unsafe_code)]

use super::turn::Turn;
use super::{Communicator, limits_of};
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::{PACKET_BYTES, args, geometry};
use crate::memory::Untyped;
use crate::stream::{Queue, Target};

/// Most packets of a row, which a thread counts in 32 bits.
const MOST_PACKETS: u64 = 1 << 31;

/// The factor of a [`Scale`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Factor<'op> {
    /// The bits of an element of the operands' type, from the lowest bit on.
    Value(u64),
    /// One element of the operands' type, which the device reads when the kernel runs. Each launch of a graph reads the
    /// element again.
    Memory(Untyped<'op>),
}

/// Rows of elements of one rank, each element times one factor. A product is computed in the type itself, of 8-bit and
/// 16-bit floats in f32, and rounded once. Integers wrap.
#[derive(Clone, Debug)]
pub struct Scale<'op> {
    input: Untyped<'op>,
    output: Untyped<'op>,
    factor: Factor<'op>,
    rows: usize,
    row_elems: usize,
    input_pitch: usize,
    output_pitch: usize,
}

impl<'op> Scale<'op> {
    /// All elements of `input` times `factor`. `output` is the same memory as the input, or does not overlap with the input.
    pub fn new(input: Untyped<'op>, output: Untyped<'op>, factor: Factor<'op>) -> Self {
        let elems = input.len();
        Self { input, output, factor, rows: 1, row_elems: elems, input_pitch: elems, output_pitch: elems }
    }

    /// At most 16 rows of `row_elems` elements. Default: one row of all elements.
    pub fn rows(self, rows: usize, row_elems: usize) -> Self {
        Self { rows, row_elems, ..self }
    }

    /// The elements from the start of a row to the start of the next, in the input and in the output.
    pub fn pitches(self, input_pitch: usize, output_pitch: usize) -> Self {
        Self { input_pitch, output_pitch, ..self }
    }
}

impl Scale<'_> {
    /// The packets of a row. Refuses rows outside the operands, and rows that overlap.
    fn check(&self) -> Result<u64> {
        let dtype = self.input.dtype();
        let Self { rows, row_elems, .. } = *self;
        if rows > MAX_WORLD_SIZE {
            return Err(Error::invalid("the number of rows", rows, format!("at most {MAX_WORLD_SIZE}")));
        }
        if self.output.dtype() != dtype {
            return Err(Error::invalid("the output's type", self.output.dtype(), format!("the input is {dtype}")));
        }
        let packets =
            (row_elems as u64).checked_mul(dtype.bytes() as u64).map(|bytes| bytes.div_ceil(PACKET_BYTES as u64));
        let packets = packets.filter(|packets| *packets < MOST_PACKETS).ok_or_else(|| {
            let limit = format!("a row has less than {} bytes", MOST_PACKETS * PACKET_BYTES as u64);
            Error::invalid("the elements of a row", row_elems, limit)
        })?;
        for (operand, pitch) in [(&self.input, self.input_pitch), (&self.output, self.output_pitch)] {
            let last = pitch.checked_mul(rows.saturating_sub(1));
            let end = last.and_then(|last| last.checked_add(row_elems));
            if end.is_none_or(|end| end > operand.len()) || (rows > 1 && pitch < row_elems) {
                let limit = format!("{rows} rows of {row_elems} elements are in {} elements", operand.len());
                return Err(Error::invalid("the distance of rows", pitch, limit));
            }
        }
        match &self.factor {
            Factor::Memory(factor) if factor.dtype() != dtype || factor.len() != 1 => {
                let value = format!("{} elements of {}", factor.len(), factor.dtype());
                Err(Error::invalid("the factor", value, format!("it must be 1 element of {dtype}")))
            }
            _ => Ok(packets),
        }
    }
}

/// Only for `symmetra-nccl`, whose sums have a factor for each rank.
#[doc(hidden)]
impl Communicator {
    /// Multiplies elements of this rank by a factor, after the calls of this communicator on other streams. Enqueues and
    /// returns. No other rank takes part.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands of another device or of types that differ, for rows outside the operands, and
    /// for read-only memory as the output; the group's error if the group has failed; [`Error::Device`] if the launch fails.
    pub fn scale<'op>(&self, scale: &Scale<'op>, queue: impl Queue<'op>) -> Result<()> {
        let (inner, queue) = (&self.0, Target::of(&queue));
        let _entered = inner.group.enter()?;
        let packets = scale.check()?;
        let (input, output) = (scale.input.view(), scale.output.view());
        output.check_writable("the output")?;
        inner.check_device("input", input.device)?;
        inner.check_device("output", output.device)?;
        inner.check_device("stream", queue.stream().device())?;
        let (factor, value) = match &scale.factor {
            Factor::Value(value) => (std::ptr::null(), *value),
            Factor::Memory(factor) => {
                let view = factor.view();
                inner.check_device("factor", view.device)?;
                (view.address.cast_const().cast(), 0)
            }
        };
        if scale.rows == 0 || scale.row_elems == 0 {
            return Ok(());
        }
        let args = args::ScaleArgs {
            input: input.address.cast_const().cast(),
            output: output.address.cast(),
            factor,
            value,
            elems: scale.row_elems as u64,
            input_pitch: scale.input_pitch as u64,
            output_pitch: scale.output_pitch as u64,
            rows: scale.rows as u32,
            dtype: scale.input.dtype() as u32,
        };
        let geometry = geometry::scale(limits_of(&inner.group), packets);
        let mut turn = Turn::begin(inner, "a scale", queue)?;
        turn.order()?;
        // SAFETY: the rows lie in the operands, by the check, and the factor is one element (bounds); operands live until the
        // device has done the work, or as long as the graph, or are the caller's duty.
        let enqueued = queue.enqueue("launch a scale", |raw| unsafe { raw.launch(&args, &geometry) });
        turn.end(enqueued)
    }
}
