//! The operations of a group, each on the first backend that serves it.
//!
//! They are those of [`Communicator`](crate::Communicator), which says what each computes, what operands it takes and
//! what may be in place. Roots and peers are numbered in the group. [`Coordinator::explain`] says where a
//! call goes, [`Coordinator::through`] sends it elsewhere. On [`Backend::Own`](super::Backend::Own) and
//! [`Backend::Nccl`](super::Backend::Nccl) a call enqueues and returns; on [`Backend::Host`](super::Backend::Host) it blocks.

use super::call::Call;
use super::coordinator::Coordinator;
use crate::collective::AllReduceOptions;
use crate::error::Result;
use crate::memory::{Operand, WithView};
use crate::stream::Queue;
use crate::types::{Element, Reduction};

impl Coordinator {
    /// Sums `input` over the group into `output`, which has as many elements.
    ///
    /// Between hosts [`Backend::Host`](super::Backend::Host) reduces on two levels: over the ranks of each host, rounded to
    /// the type, then over the hosts in the order of their lowest rank, rounded again; averages, and everything where
    /// [`Config::determinism`](crate::Config) asks for it, in rank order, rounded once. Bits are equal on all ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`](crate::Communicator::all_reduce). For this and all other operations:
    /// [`Error::Unsupported`](crate::Error::Unsupported) where no backend serves the call, with the group, the operation, the
    /// hosts, and why each backend does not. Between hosts, with the group's numbers:
    /// [`Error::PeerLost`](crate::Error::PeerLost) when a rank died, [`Error::Timeout`](crate::Error::Timeout) after the
    /// deadlines of [`Config`](crate::Config), [`Error::Bootstrap`](crate::Error::Bootstrap) when a connection broke,
    /// [`Error::Mismatch`](crate::Error::Mismatch) when ranks call differently, [`Error::Aborted`](crate::Error::Aborted)
    /// when one called [`abort`](Self::abort): for good.
    pub fn all_reduce<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.all_reduce_with(AllReduceOptions::default(), input, output, queue)
    }

    /// The same with `buffer` as input and output.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_in_place<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (input, output) = (buffer.view_of(), buffer.view_of());
        self.run(T::DTYPE, &Call::AllReduce { options: AllReduceOptions::default(), input, output }, &queue)
    }

    /// The same with a reduction or an algorithm of the caller's choice, or both. Algorithms are
    /// [`Backend::Own`](super::Backend::Own)'s.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::all_reduce_with`](crate::Communicator::all_reduce_with).
    pub fn all_reduce_with<'op, T: Element>(
        &self,
        options: impl Into<AllReduceOptions>,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (input, output) = (input.view_of(), output.view_of());
        self.run(T::DTYPE, &Call::AllReduce { options: options.into(), input, output }, &queue)
    }

    /// Reduces `input` over the group and puts this rank's part of the result into `output`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::reduce_scatter`](crate::Communicator::reduce_scatter).
    pub fn reduce_scatter<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (input, output) = (input.view_of(), output.view_of());
        self.run(T::DTYPE, &Call::ReduceScatter { reduction, along: None, input, output }, &queue)
    }

    /// The same along a dimension of a row-major tensor of this `shape`, the input's.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and
    /// [`Communicator::reduce_scatter_along`](crate::Communicator::reduce_scatter_along).
    pub fn reduce_scatter_along<'op, T: Element>(
        &self,
        dim: usize,
        shape: &[usize],
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        reduction: Reduction,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (along, input, output) = (Some((dim, shape)), input.view_of(), output.view_of());
        self.run(T::DTYPE, &Call::ReduceScatter { reduction, along, input, output }, &queue)
    }

    /// Puts the `input` of every rank, in the order of the group, into `output` of every rank.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::all_gather`](crate::Communicator::all_gather).
    pub fn all_gather<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.run(T::DTYPE, &Call::AllGather { along: None, input: input.view_of(), output: output.view_of() }, &queue)
    }

    /// The same along a dimension of a row-major tensor of this `shape`, the input's.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::all_gather_along`](crate::Communicator::all_gather_along).
    pub fn all_gather_along<'op, T: Element>(
        &self,
        dim: usize,
        shape: &[usize],
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (along, input, output) = (Some((dim, shape)), input.view_of(), output.view_of());
        self.run(T::DTYPE, &Call::AllGather { along, input, output }, &queue)
    }

    /// Gives part p of `input` to rank p, and collects the parts that come from all.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::all_to_all`](crate::Communicator::all_to_all).
    pub fn all_to_all<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.run(T::DTYPE, &Call::AllToAll { input: input.view_of(), output: output.view_of() }, &queue)
    }

    /// The same with a count of elements for each rank. NCCL does not compare what ranks send and expect.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::all_to_all_v`](crate::Communicator::all_to_all_v).
    pub fn all_to_all_v<'op, T: Element>(
        &self,
        input: impl Operand<'op, T>,
        send_counts: &[usize],
        output: impl Operand<'op, T>,
        receive_counts: &[usize],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (input, output) = (input.view_of(), output.view_of());
        self.run(T::DTYPE, &Call::AllToAllV { input, send_counts, output, receive_counts }, &queue)
    }

    /// Copies the `buffer` of rank `root` into that of every other rank.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::broadcast`](crate::Communicator::broadcast).
    pub fn broadcast<'op, T: Element>(
        &self,
        buffer: impl Operand<'op, T>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.run(T::DTYPE, &Call::Broadcast { root, buffer: buffer.view_of() }, &queue)
    }

    /// Reduces `input` over the group into the `output` of rank `root`; the others' may be `None`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::reduce`](crate::Communicator::reduce).
    pub fn reduce<'op, T: Element, O: Operand<'op, T>>(
        &self,
        input: impl Operand<'op, T>,
        output: Option<O>,
        reduction: Reduction,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (input, output) = (input.view_of(), output.as_ref().map(WithView::view_of));
        self.run(T::DTYPE, &Call::Reduce { reduction, root, input, output }, &queue)
    }

    /// Puts the `input` of every rank, in the order of the group, into the `output` of rank `root`; the
    /// others' may be `None`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::gather`](crate::Communicator::gather).
    pub fn gather<'op, T: Element, O: Operand<'op, T>>(
        &self,
        input: impl Operand<'op, T>,
        output: Option<O>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (input, output) = (input.view_of(), output.as_ref().map(WithView::view_of));
        self.run(T::DTYPE, &Call::Gather { root, input, output }, &queue)
    }

    /// Gives every rank its part of the `input` of rank `root`; the others' may be `None`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`Communicator::scatter`](crate::Communicator::scatter).
    pub fn scatter<'op, T: Element, I: Operand<'op, T>>(
        &self,
        input: Option<I>,
        output: impl Operand<'op, T>,
        root: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (input, output) = (input.as_ref().map(WithView::view_of), output.view_of());
        self.run(T::DTYPE, &Call::Scatter { root, input, output }, &queue)
    }
}
