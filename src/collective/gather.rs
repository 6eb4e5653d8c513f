//! Gather: the inputs of all ranks, one behind the other, in the root's output.

use std::sync::Arc;

use super::exchange::{Counts, Exchange, Strip, arena_offset, check_apart, check_len, span};
use super::{Communicator, Inner};
use crate::error::Result;
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args;
use crate::memory::{Operand, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element};

impl Communicator {
    /// Puts the `input` of every rank, in rank order, into the `output` of rank `root`. `input` has as many
    /// elements on every rank and `output` world size times as many; on other ranks it is not looked at
    /// and may be `None`. Enqueues and returns; the operands are used when the queue gets there.
    ///
    /// In place: the root's `input` is its part of `output`; otherwise they may not overlap. Any number
    /// of elements, also 0; any element-aligned address. `output` decides how large messages move: peers
    /// write directly into symmetric memory.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn collect(communicator: &Communicator, mine: &DeviceBuffer<f32>, all: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     communicator.gather(mine, (communicator.rank() == 0).then_some(all), 0, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a root outside the group, a root without output, lengths that do not
    /// fit each other, operands of another device, or that overlap; [`Error::Unsupported`](crate::Error::Unsupported) where
    /// `Config::transport` asks for what the memory cannot do; the group's error when it failed before;
    /// [`Error::Device`](crate::Error::Device) when the launch fails.
    pub fn gather<'op, T: Element, O: Operand<'op, T>>(
        &self,
        input: impl Operand<'op, T>,
        output: Option<O>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let output = output.as_ref().map(WithView::view_of);
        self.0.gather(T::DTYPE, root, &input.view_of(), output.as_ref(), &queue)
    }

    /// The same for operands whose type Rust has forgotten; the language boundary's way in.
    pub(crate) fn gather_untyped(
        &self,
        dtype: Dtype,
        root: usize,
        input: &View<'_>,
        output: Option<&View<'_>>,
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.gather(dtype, root, input, output, queue)
    }
}

impl Inner {
    fn gather(
        self: &Arc<Self>,
        dtype: Dtype,
        root: usize,
        input: &View<'_>,
        output: Option<&View<'_>>,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let _entered = self.begin(&[("input", input)], queue)?;
        let output = self.at_root("output", root, output, queue)?;
        let world = self.group.world_size();
        let bytes = (input.elems * dtype.bytes()) as u64;
        let counts = match (self.tells(bytes), output) {
            (false, _) => Counts::Known { largest_bytes: bytes, shared: None },
            (true, None) => Counts::Own { arena_bytes: Some([0; MAX_WORLD_SIZE]) },
            (true, Some(output)) => {
                let offset = arena_offset(self.group.id(), output);
                let place = |offset: u64| std::array::from_fn(|rank| offset + rank as u64 * bytes);
                Counts::Own { arena_bytes: offset.map(place) }
            }
        };
        let mut exchange = Exchange { root, ..Exchange::new(args::kOpGather, dtype, counts) };
        exchange.from[root] = Strip { address: input.address, bytes };
        if let Some(output) = output {
            let needed = input.elems.checked_mul(world);
            check_len(
                "output",
                output.elems,
                needed,
                format_args!("{} elements from each of {world} ranks", input.elems),
            )?;
            let part = |rank: usize| output.address.wrapping_add(rank * bytes as usize);
            let place = part(root) as usize;
            check_apart(
                ("the input", span(input, dtype)),
                ("the output", span(output, dtype)),
                Some(place..place + bytes as usize),
            )?;
            for (rank, into) in exchange.into.iter_mut().enumerate().take(world) {
                *into = Strip { address: part(rank), bytes };
            }
        }
        self.exchange(&exchange, queue)
    }
}
