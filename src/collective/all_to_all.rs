//! All-to-all: part p of every rank's input goes to rank p, which puts it at the sender's place in
//! its output. Parts are equal, or each pair of ranks has its own count.

use std::sync::Arc;

use super::exchange::{Counts, Exchange, Shared, Strip, Strips, Way, arena_offset, check_apart, check_len, span};
use super::{Communicator, Inner};
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args;
use crate::memory::{Operand, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element};

impl Communicator {
    /// Cuts `input` into a part for every rank, in rank order, and fills `output` with the parts that
    /// came from every rank. Both have as many elements, on every rank the same, a multiple of the world
    /// size. Enqueues and returns; the operands are used when the queue gets there.
    ///
    /// `input` and `output` may not overlap. Any element-aligned address. `output` decides how data
    /// move: peers write into it directly where they can address it.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn exchange(communicator: &Communicator, tokens: &DeviceBuffer<f32>, stream: &Stream) -> Result<SymmetricBuffer<f32>> {
    ///     let exchanged = communicator.symmetric::<f32>(tokens.len())?;
    ///     communicator.all_to_all(tokens, &exchanged, stream)?;
    ///     Ok(exchanged)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for lengths that differ or do not divide, operands of another device,
    /// or that overlap; [`Error::Unsupported`] where `Config::transport` asks for what the memory cannot
    /// do; the group's error when it failed before; [`Error::Device`] when the launch fails.
    pub fn all_to_all<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.0.all_to_all(T::DTYPE, [&input.view_of(), &output.view_of()], &queue)
    }

    /// The same with a count of elements for each rank: the first `send_counts[0]` elements of `input`
    /// go to rank 0, the next `send_counts[1]` to rank 1, and so on; those from rank 0 fill the first
    /// `receive_counts[0]` of `output`. What is left of either is not touched. Ranks tell each other
    /// their counts on the device, so this takes one small kernel more, and data move directly only
    /// into symmetric memory.
    ///
    /// ```
    /// # use symmetra::*;
    /// /// Rank r gives r + 1 elements to each rank.
    /// fn ragged(communicator: &Communicator, from: &DeviceBuffer<f32>, into: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let world = communicator.world_size();
    ///     let sends = vec![communicator.rank() + 1; world];
    ///     let receives: Vec<usize> = (1..=world).collect();
    ///     communicator.all_to_all_v(from, &sends, into, &receives, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`all_to_all`](Self::all_to_all); also for counts that are not one for each rank, or are more
    /// than the operand has. Where what a rank sends is not what its peer expects, every rank's
    /// later calls fail with [`Error::Mismatch`], which names both; all outputs are undefined then.
    pub fn all_to_all_v<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        send_counts: &[usize],
        output: impl Operand<'op, T>,
        receive_counts: &[usize],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let counts = [send_counts, receive_counts];
        self.0.all_to_all_v(T::DTYPE, [&input.view_of(), &output.view_of()], counts, &queue)
    }

    /// The same for operands whose type Rust has forgotten; the language boundary's way in.
    pub(crate) fn all_to_all_untyped(
        &self,
        dtype: Dtype,
        operands: [&View<'_>; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.all_to_all(dtype, operands, queue)
    }

    /// As above.
    pub(crate) fn all_to_all_v_untyped(
        &self,
        dtype: Dtype,
        operands: [&View<'_>; 2],
        counts: [&[usize]; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.all_to_all_v(dtype, operands, counts, queue)
    }
}

impl Inner {
    fn all_to_all(self: &Arc<Self>, dtype: Dtype, [input, output]: [&View<'_>; 2], queue: &impl Enqueue) -> Result<()> {
        let _entered = self.begin(&[("input", input), ("output", output)], queue)?;
        let (rank, world) = (self.group.rank(), self.group.world_size());
        if !input.elems.is_multiple_of(world) {
            let limit = format!("it must be a multiple of the world size, {world}");
            return Err(Error::invalid("the input's length", input.elems, limit));
        }
        check_len("output", output.elems, Some(input.elems), "the input's length")?;
        check_apart(("the input", span(input, dtype)), ("the output", span(output, dtype)), None)?;
        let bytes = (input.elems / world * dtype.bytes()) as u64;
        let part =
            |view: &View<'_>, peer: usize| Strip { address: view.address.wrapping_add(peer * bytes as usize), bytes };
        let shared = Shared { way: Way::Push, operand: output, offsets_bytes: [rank as u64 * bytes; MAX_WORLD_SIZE] };
        let counts = Counts::Known { largest_bytes: bytes, shared: Some(shared) };
        let mut exchange = Exchange::new(args::kOpAllToAll, dtype, counts);
        for peer in 0..world {
            exchange.from[peer] = part(input, peer);
            exchange.into[peer] = part(output, peer);
        }
        self.exchange(&exchange, queue)
    }

    fn all_to_all_v(
        self: &Arc<Self>,
        dtype: Dtype,
        [input, output]: [&View<'_>; 2],
        [send_counts, receive_counts]: [&[usize]; 2],
        queue: &impl Enqueue,
    ) -> Result<()> {
        let _entered = self.begin(&[("input", input), ("output", output)], queue)?;
        check_apart(("the input", span(input, dtype)), ("the output", span(output, dtype)), None)?;
        let from = self.ragged("input", input, dtype, send_counts)?;
        let into = self.ragged("output", output, dtype, receive_counts)?;
        let rank = self.group.rank();
        if send_counts[rank] != receive_counts[rank] {
            let limit = format!("receive_counts[{rank}] is {}", receive_counts[rank]);
            return Err(Error::invalid(&format!("send_counts[{rank}] of rank {rank}"), send_counts[rank], limit));
        }
        let start = output.address as u64;
        let arena_bytes = arena_offset(self.group.id(), output).map(|offset| {
            into.map(|strip| if strip.bytes == 0 { offset } else { offset + (strip.address as u64 - start) })
        });
        let counts = Counts::Own { arena_bytes };
        let exchange = Exchange { from, into, ..Exchange::new(args::kOpAllToAll, dtype, counts) };
        self.exchange(&exchange, queue)
    }

    /// One strip behind the other.
    fn ragged(&self, what: &str, view: &View<'_>, dtype: Dtype, counts: &[usize]) -> Result<Strips> {
        let world = self.group.world_size();
        if counts.len() != world {
            let limit = format!("the world size is {world}");
            return Err(Error::invalid(&format!("the number of counts of the {what}"), counts.len(), limit));
        }
        let mut strips = [Strip::NONE; MAX_WORLD_SIZE];
        let mut end: usize = 0;
        for (strip, count) in strips.iter_mut().zip(counts) {
            let start = end;
            end = end.saturating_add(*count);
            if end > view.elems {
                let limit = format!("the {what} has {} elements", view.elems);
                return Err(Error::invalid(&format!("the sum of the {what}'s counts"), format!("{counts:?}"), limit));
            }
            let address = view.address.wrapping_add(start * dtype.bytes());
            *strip = Strip { address, bytes: (count * dtype.bytes()) as u64 };
        }
        Ok(strips)
    }
}
