//! Scatter: part r of the root's input, in the output of rank r.

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
    /// Cuts the `input` of rank `root` into a part for every rank, in rank order, and puts each into that
    /// rank's `output`. `output` has as many elements on every rank and `input` world size times as many; on
    /// other ranks it is not looked at and may be `None`. Enqueues and returns; the operands are used when
    /// the queue gets there.
    ///
    /// In place: the root's `output` is its part of `input`; otherwise they may not overlap. Any number
    /// of elements, also 0; any element-aligned address. `output` decides how large messages move: the
    /// root writes directly into symmetric memory.
    ///
    /// ```
    /// # use symmetra::*;
    /// fn deal(communicator: &Communicator, all: &DeviceBuffer<f32>, mine: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     communicator.scatter((communicator.rank() == 0).then_some(all), mine, 0, stream)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a root outside the group, a root without input, lengths that do not
    /// fit each other, operands of another device, or that overlap; [`Error::Unsupported`](crate::Error::Unsupported) where
    /// `Config::transport` asks for what the memory cannot do; the group's error when it failed before;
    /// [`Error::Device`](crate::Error::Device) when the launch fails.
    pub fn scatter<'op, T: Element, I: Operand<'op, T>>(
        &self,
        input: Option<I>,
        output: impl Operand<'op, T>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let input = input.as_ref().map(WithView::view_of);
        self.0.scatter(T::DTYPE, root, input.as_ref(), &output.view_of(), &queue)
    }

    /// The same for operands whose type Rust has forgotten; the language boundary's way in.
    pub(crate) fn scatter_untyped(
        &self,
        dtype: Dtype,
        root: usize,
        input: Option<&View<'_>>,
        output: &View<'_>,
        queue: &impl Enqueue,
    ) -> Result<()> {
        self.0.scatter(dtype, root, input, output, queue)
    }
}

impl Inner {
    fn scatter(
        self: &Arc<Self>,
        dtype: Dtype,
        root: usize,
        input: Option<&View<'_>>,
        output: &View<'_>,
        queue: &impl Enqueue,
    ) -> Result<()> {
        let _entered = self.begin(&[("output", output)], queue)?;
        let input = self.at_root("input", root, input, queue)?;
        let world = self.group.world_size();
        let bytes = (output.elems * dtype.bytes()) as u64;
        let counts = match self.tells(bytes) {
            false => Counts::Known { largest_bytes: bytes, shared: None },
            true => {
                let offset = arena_offset(self.group.id(), output);
                Counts::Own { arena_bytes: offset.map(|offset| [offset; MAX_WORLD_SIZE]) }
            }
        };
        let mut exchange = Exchange { root, ..Exchange::new(args::kOpScatter, dtype, counts) };
        exchange.into[root] = Strip { address: output.address, bytes };
        if let Some(input) = input {
            let needed = output.elems.checked_mul(world);
            check_len(
                "input",
                input.elems,
                needed,
                format_args!("{} elements for each of {world} ranks", output.elems),
            )?;
            let part = |rank: usize| input.address.wrapping_add(rank * bytes as usize);
            let place = part(root) as usize;
            check_apart(
                ("the output", span(output, dtype)),
                ("the input", span(input, dtype)),
                Some(place..place + bytes as usize),
            )?;
            for (rank, from) in exchange.from.iter_mut().enumerate().take(world) {
                *from = Strip { address: part(rank), bytes };
            }
        }
        self.exchange(&exchange, queue)
    }
}
