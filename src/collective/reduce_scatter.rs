//! Reduce-scatter: part r of the reduction of all inputs, in the output of rank r.

use std::sync::Arc;

use super::exchange::{Counts, Exchange, Shared, Strip, Way, check_apart, check_len, span};
use super::tensor::Cut;
use super::{Communicator, Inner};
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args;
use crate::memory::{Operand, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element, Reduction};

impl Communicator {
    /// Reduces `input` over all ranks and puts this rank's part of the result into `output`. `input` is
    /// cut into a part for every rank, in rank order; it has as many elements on every rank, world size
    /// times those of `output`. Enqueues and returns; the operands are used when the queue gets there.
    ///
    /// Values are taken in rank order and rounded once: see [`Reduction`]. In place:
    /// `output` is this rank's part of `input`; otherwise they may not overlap. Any element-aligned
    /// address. `input` decides how data move: peers read it directly where they can address it.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn shard(communicator: &Communicator, partial: &SymmetricBuffer<f32>, stream: &Stream) -> Result<DeviceBuffer<f32>> {
    ///     let shard = DeviceBuffer::new(communicator.device(), partial.len() / communicator.world_size())?;
    ///     communicator.reduce_scatter(partial, &shard, Reduction::Sum, stream)?;
    ///     Ok(shard)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for lengths that do not fit each other, operands of another device, or
    /// that overlap; [`Error::Unsupported`] where `Config::transport` asks for what the memory cannot do;
    /// the group's error when it failed before; [`Error::Device`] when the launch fails.
    pub fn reduce_scatter<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.0.reduce_scatter(T::DTYPE, reduction, None, [&input.view_of(), &output.view_of()], &queue)
    }

    /// The same along a dimension of a row-major tensor: `input` has this `shape`, on every rank the
    /// same, and `output` the same with `shape[dim]` divided by the world size. Nothing is copied
    /// before or after. In place where `dim` is the first of more than one element.
    ///
    /// # Errors
    /// As [`reduce_scatter`](Self::reduce_scatter); also for a `dim` the shape does not have, or that
    /// does not divide.
    pub fn reduce_scatter_along<'op, T: Element>(
        &self,
        dim: usize,
        shape: &[usize],
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let operands = [&input.view_of(), &output.view_of()];
        self.0.reduce_scatter(T::DTYPE, reduction, Some((dim, shape)), operands, &queue)
    }

    /// The same for operands whose type Rust has forgotten; the language boundary's way in.
    pub(crate) fn reduce_scatter_untyped(
        &self,
        dtype: Dtype,
        reduction: Reduction,
        along: Option<(usize, &[usize])>,
        operands: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.reduce_scatter(dtype, reduction, along, operands, queue)
    }
}

impl Inner {
    fn reduce_scatter(
        self: &Arc<Self>,
        dtype: Dtype,
        reduction: Reduction,
        along: Option<(usize, &[usize])>,
        [input, output]: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        let _entered = self.begin(&[("input", input), ("output", output)], queue)?;
        let (rank, world) = (self.group.rank(), self.group.world_size());
        let cut = self.check_scattering(dtype, along, [input, output])?;
        let bytes = (output.elems * dtype.bytes()) as u64;
        let offset = |part| cut.offset_bytes(part, dtype);

        let shared = Shared { way: Way::Reduce, operand: input, offsets_bytes: [offset(rank); MAX_WORLD_SIZE] };
        let counts = Counts::Known { largest_bytes: bytes, shared: Some(shared) };
        let mut exchange = Exchange { reduction, ..Exchange::new(args::kOpReduceScatter, dtype, counts) };
        exchange.rows = cut.scattering(dtype);
        for peer in 0..world {
            exchange.from[peer] = Strip { address: input.address.wrapping_add(offset(peer) as usize), bytes };
        }
        exchange.into[rank] = Strip { address: output.address, bytes };
        self.exchange(&exchange, queue)
    }

    /// Refuses operands that do not fit each other; how the input is cut.
    pub(super) fn check_scattering(
        &self,
        dtype: Dtype,
        along: Option<(usize, &[usize])>,
        [input, output]: [&View<'_>; 2],
    ) -> Result<Cut> {
        let (rank, world) = (self.group.rank(), self.group.world_size());
        let cut = match along {
            None if input.elems.is_multiple_of(world) => Cut::line(input.elems / world, world),
            None => {
                let limit = format!("it must be a multiple of the world size, {world}");
                return Err(Error::invalid("the input's length", input.elems, limit));
            }
            Some((dim, shape)) => Cut::of_whole(shape, dim, world)?,
        };
        check_len("input", input.elems, cut.whole_elems(), "the shape")?;
        let why = format_args!("one of {world} parts of {} elements", input.elems);
        check_len("output", output.elems, cut.part_elems(), why)?;
        let start = (output.address as usize).wrapping_sub(cut.offset_bytes(rank, dtype) as usize);
        let in_place = (cut.is_line() && output.address as usize >= start)
            .then(|| start..start.saturating_add(span(input, dtype).len()));
        check_apart(("the input", span(input, dtype)), ("the output", span(output, dtype)), in_place)?;
        Ok(cut)
    }
}
