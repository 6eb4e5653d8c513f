//! All-gather: the inputs of all ranks, one behind the other, in every rank's output.

use std::sync::Arc;

use super::exchange::{Counts, Exchange, Shared, Strip, Way, check_apart, check_len, span};
use super::tensor::Cut;
use super::{Communicator, Inner};
use crate::error::Result;
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args;
use crate::memory::{Operand, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element};

impl Communicator {
    /// Puts the `input` of every rank, in rank order, into `output` of every rank. `input` has as
    /// many elements on every rank and `output` world size times as many. Enqueues and returns; the
    /// operands are used when the queue gets there.
    ///
    /// In place: `input` is this rank's part of `output`; otherwise they may not overlap. Any number
    /// of elements, also 0; any element-aligned address. `output` decides how data move: peers write
    /// into it directly where they can address it.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn logits(communicator: &Communicator, shard: &DeviceBuffer<f32>, stream: &Stream) -> Result<SymmetricBuffer<f32>> {
    ///     let all = communicator.symmetric::<f32>(communicator.world_size() * shard.len())?;
    ///     communicator.all_gather(shard, &all, stream)?;
    ///     Ok(all)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for lengths that do not fit each other, operands of another device, or that
    /// overlap; [`Error::Unsupported`](crate::Error::Unsupported) where `Config::transport` asks for what the memory cannot do; the
    /// group's error when it failed before; [`Error::Device`](crate::Error::Device) when the launch fails.
    pub fn all_gather<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.0.all_gather(T::DTYPE, None, [&input.view_of(), &output.view_of()], &queue)
    }

    /// The same along a dimension of a row-major tensor: `input` has this `shape`, on every rank the
    /// same, and `output` the same with `shape[dim]` times the world size, where the parts of the
    /// ranks lie side by side. Nothing is copied before or after. In place where `dim` is the first
    /// of more than one element.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); also for a `dim` the shape does not have.
    pub fn all_gather_along<'op, T: Element>(
        &self,
        dim: usize,
        shape: &[usize],
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.0.all_gather(T::DTYPE, Some((dim, shape)), [&input.view_of(), &output.view_of()], &queue)
    }

    /// The same for operands whose type Rust has forgotten; the language boundary's way in.
    pub(crate) fn all_gather_untyped(
        &self,
        dtype: Dtype,
        along: Option<(usize, &[usize])>,
        operands: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.all_gather(dtype, along, operands, queue)
    }
}

impl Inner {
    fn all_gather(
        self: &Arc<Self>,
        dtype: Dtype,
        along: Option<(usize, &[usize])>,
        [input, output]: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        let _entered = self.begin(&[("input", input), ("output", output)], queue)?;
        let (rank, world) = (self.group.rank(), self.group.world_size());
        let cut = match along {
            None => Cut::line(input.elems, world),
            Some((dim, shape)) => Cut::of_parts(shape, dim, world)?,
        };
        self.check_gathering(dtype, cut, [input, output])?;
        let (bytes, offset) = (input.elems * dtype.bytes(), |part| cut.offset_bytes(part, dtype));

        let shared = Shared { way: Way::Push, operand: output, offsets_bytes: [offset(rank); MAX_WORLD_SIZE] };
        let counts = Counts::Known { largest_bytes: bytes as u64, shared: Some(shared) };
        let mut exchange = Exchange::new(args::kOpAllGather, dtype, counts);
        exchange.rows = cut.gathering(dtype);
        for peer in 0..world {
            exchange.from[peer] = Strip { address: input.address, bytes: bytes as u64 };
            exchange.into[peer] =
                Strip { address: output.address.wrapping_add(offset(peer) as usize), bytes: bytes as u64 };
        }
        self.exchange(&exchange, queue)
    }

    /// Refuses operands that do not fit each other.
    pub(super) fn check_gathering(&self, dtype: Dtype, cut: Cut, [input, output]: [&View<'_>; 2]) -> Result<()> {
        let (rank, world) = (self.group.rank(), self.group.world_size());
        check_len("input", input.elems, cut.part_elems(), "the shape")?;
        let why = format_args!("{} elements from each of {world} ranks", input.elems);
        check_len("output", output.elems, cut.whole_elems(), why)?;
        let place = span(output, dtype).start + cut.offset_bytes(rank, dtype) as usize;
        let in_place = cut.is_line().then(|| place..place + span(input, dtype).len());
        check_apart(("the input", span(input, dtype)), ("the output", span(output, dtype)), in_place)
    }
}
