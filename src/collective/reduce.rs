//! Reduce: the reduction of all inputs, in the root's output.

use std::sync::Arc;

use super::exchange::{Counts, Exchange, Shared, Strip, Way, check_apart, check_len, span};
use super::{Communicator, Inner};
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args;
use crate::memory::{Operand, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element, Reduction};

/// What a rank reduces is cut into packets of this many bytes.
const PACKET_BYTES: u64 = 16;

impl Communicator {
    /// Reduces `input` over all ranks into the `output` of rank `root`, which has as many elements; on
    /// other ranks `output` is not looked at and may be `None`. Enqueues and returns; the operands are used
    /// when the queue gets there.
    ///
    /// Values are taken in rank order and rounded once: see [`Reduction`]. The root's operands may be the
    /// same memory but may not overlap otherwise. Any number of elements, also 0; any element-aligned
    /// address. `input` decides how data move: the root reads it directly where it can address it. Where
    /// all ranks can, [`reduce_in_place`](Self::reduce_in_place) shares the work among them.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn loss(communicator: &Communicator, mine: &DeviceBuffer<f32>, all: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let output = (communicator.rank() == 0).then_some(all);
    ///     communicator.reduce(mine, output, Reduction::Average, 0, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a root outside the group, a root without output, operands of
    /// different lengths, of another device, or that overlap; [`Error::Unsupported`] where
    /// `Config::transport` asks for what the memory cannot do; the group's error when it failed before;
    /// [`Error::Device`] when the launch fails.
    pub fn reduce<'op, T: Element, O: Operand<'op, T>>(
        &self,
        input: impl Operand<'op, T>,
        output: Option<O>,
        reduction: Reduction,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let output = output.as_ref().map(WithView::view_of);
        self.0.reduce(T::DTYPE, reduction, root, &input.view_of(), output.as_ref(), &queue)
    }

    /// The same with `buffer` as input and, on the root, output. Elsewhere its contents stay.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn reduce_in_place<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        reduction: Reduction,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.0.reduce_in_place(T::DTYPE, reduction, root, &buffer.view_of(), &queue)
    }

    /// The same for operands whose type Rust has forgotten; the language boundary's way in.
    pub(crate) fn reduce_untyped(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        root: usize,
        input: &View<'_>,
        output: Option<&View<'_>>,
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.reduce(dtype, reduction, root, input, output, queue)
    }

    /// As above.
    pub(crate) fn reduce_in_place_untyped(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        root: usize,
        buffer: &View<'_>,
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.reduce_in_place(dtype, reduction, root, buffer, queue)
    }
}

impl Inner {
    fn reduce(
        self: &Arc<Self>,
        dtype: Dtype,
        reduction: Reduction,
        root: usize,
        input: &View<'_>,
        output: Option<&View<'_>>,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let _entered = self.begin(&[("input", input)], queue)?;
        let output = self.at_root("output", root, output, queue)?;
        let whole = Strip { address: input.address, bytes: (input.elems * dtype.bytes()) as u64 };
        let shared = Shared { way: Way::Reduce, operand: input, offsets_bytes: [0; MAX_WORLD_SIZE] };
        let counts = Counts::Known { largest_bytes: whole.bytes, shared: Some(shared) };
        let mut exchange = Exchange { root, reduction, ..Exchange::new(args::kOpReduce, dtype, counts) };
        exchange.from[root] = whole;
        if let Some(output) = output {
            check_len("output", output.elems, Some(input.elems), "the input's length")?;
            check_apart(
                ("the input", span(input, dtype)),
                ("the output", span(output, dtype)),
                Some(span(output, dtype)),
            )?;
            exchange.into[root] = Strip { address: output.address, ..whole };
        }
        self.exchange(&exchange, queue)
    }

    /// Every rank reduces a share of the buffers, where it can, and writes it into the root's.
    fn reduce_in_place(
        self: &Arc<Self>,
        dtype: Dtype,
        reduction: Reduction,
        root: usize,
        buffer: &View<'_>,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let _entered = self.begin(&[("buffer", buffer)], queue)?;
        self.check_rank("root", root)?;
        let (rank, world) = (self.group.rank(), self.group.world_size());
        let whole = Strip { address: buffer.address, bytes: (buffer.elems * dtype.bytes()) as u64 };
        let share_bytes = whole.bytes.div_ceil(PACKET_BYTES).div_ceil(world as u64) * PACKET_BYTES;
        let start = (rank as u64 * share_bytes).min(whole.bytes);
        let address = if rank == root { whole.address.wrapping_add(start as usize) } else { std::ptr::null_mut() };
        let way = Way::ReduceShares(Strip { address, bytes: share_bytes.min(whole.bytes - start) });
        let shared = Shared { way, operand: buffer, offsets_bytes: [start; MAX_WORLD_SIZE] };
        let counts = Counts::Known { largest_bytes: whole.bytes, shared: Some(shared) };
        let mut exchange = Exchange { root, reduction, ..Exchange::new(args::kOpReduce, dtype, counts) };
        exchange.from[root] = whole;
        if rank == root {
            exchange.into[root] = whole;
        }
        self.exchange(&exchange, queue)
    }

    /// The operand that only the root has.
    pub(super) fn at_root<'v, 'a>(
        &self,
        what: &'static str,
        root: usize,
        operand: Option<&'v View<'a>>,
        queue: &impl Enqueue,
    ) -> Result<Option<&'v View<'a>>> {
        self.check_rank("root", root)?;
        if self.group.rank() != root {
            return Ok(None);
        }
        match operand {
            Some(operand) => self.check_devices(&[(what, operand)], queue).map(|()| Some(operand)),
            None => Err(Error::invalid(&format!("the root's {what}"), "missing", format!("rank {root} is the root"))),
        }
    }
}
