//! An all-reduce bound to its operands: validated and planned once, enqueued any number of times.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Prepared;
use crate::collective::Communicator;
use crate::collective::turn::Turn;
use crate::error::{Error, Result};
use crate::op::Call;
use crate::stream::{Kept, Queue, Target};

/// An all-reduce with fixed operands, made by [`bind_all_reduce`](crate::ProcessGroup::bind_all_reduce). Binding
/// validates the operands and decides algorithm, launch shape and kernel arguments. A call only checks that the group is
/// healthy, takes its place in the order of calls, and launches.
///
/// A bound call is the same operation as [`all_reduce`](crate::ProcessGroup::all_reduce): on a stream, some ranks may
/// make a bound call and others an ordinary call. In a capture with plain memory, all ranks must capture the same kind:
/// a bound call sends packets through scratch, while an ordinary call lets the graph register the memory and may use
/// another algorithm.
///
/// `'a` is the lifetime of the communicator's handle and of the operands. A bound call that [owns](Self::owning) both
/// is a `BoundAllReduce<'static>`. It can be used from any thread.
///
/// A bound call that is never enqueued is a warning:
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use symmetra::*;
/// fn bind(communicator: &Communicator, buffer: &SymmetricBuffer<f32>) -> Result<()> {
///     communicator.bind_all_reduce(buffer, buffer)?;
///     Ok(())
/// }
/// ```
/// Here the call is enqueued:
/// ```
/// #![deny(unused_must_use)]
/// # use symmetra::*;
/// fn bind(communicator: &Communicator, buffer: &SymmetricBuffer<f32>, stream: &Stream) -> Result<()> {
///     communicator.bind_all_reduce(buffer, buffer)?.enqueue(stream)
/// }
/// ```
#[must_use = "a bound call runs only when it is enqueued"]
pub struct BoundAllReduce<'a> {
    communicator: Communicator,
    prepared: Prepared,
    kept: Option<Kept>,
    _operands: PhantomData<&'a Communicator>,
}

impl Communicator {
    /// Checks and plans an all-reduce. The result, and graphs that capture the result, own `kept`.
    pub(crate) fn bind<'a>(&self, call: &Call<'_>, kept: Option<Kept>) -> Result<BoundAllReduce<'a>> {
        let inner = &self.0;
        inner.group.check()?;
        call.check(inner.group.rank(), inner.group.world_size(), inner.group.device())?;
        let prepared = Prepared::new(inner, &call.tagged(self.1), None)?;
        Ok(BoundAllReduce { communicator: self.clone(), prepared, kept, _operands: PhantomData })
    }
}

impl BoundAllReduce<'static> {
    /// Binds operands of `owner`. The result, and graphs that capture the result, own `owner`, so a struct can hold
    /// buffers and a call bound to them:
    /// ```
    /// # use std::sync::Arc;
    /// # use symmetra::*;
    /// struct Layer {
    ///     activations: Arc<(Communicator, SymmetricBuffer<f32>)>,
    ///     sum: BoundAllReduce<'static>,
    /// }
    /// fn layer(communicator: &Communicator) -> Result<Layer> {
    ///     let activations = Arc::new((communicator.clone(), communicator.symmetric(4096)?));
    ///     let sum = BoundAllReduce::owning(activations.clone(), |(communicator, activations)| {
    ///         let first = activations.slice(..1024)?;
    ///         communicator.bind_all_reduce(first, first)
    ///     })?;
    ///     Ok(Layer { activations, sum })
    /// }
    /// ```
    /// `bind` can only use operands of `owner`:
    /// ```compile_fail
    /// # use std::sync::Arc;
    /// # use symmetra::*;
    /// fn mixed(communicator: &Communicator, owned: SymmetricBuffer<f32>, other: &SymmetricBuffer<f32>) -> Result<()> {
    ///     let owner = Arc::new((communicator.clone(), owned));
    ///     BoundAllReduce::owning(owner, |(communicator, owned)| communicator.bind_all_reduce(owned, other)).map(drop)
    /// }
    /// ```
    ///
    /// # Errors
    /// The errors of `bind`.
    pub fn owning<O: Send + Sync + 'static>(
        owner: Arc<O>,
        bind: impl for<'o> FnOnce(&'o O) -> Result<BoundAllReduce<'o>>,
    ) -> Result<Self> {
        // The borrows in the result can only be of the owner, or `'static`.
        let BoundAllReduce { communicator, prepared, kept, .. } = bind(&owner)?;
        // `bind` may return a call that already has an owner.
        let kept: Kept = Arc::new((owner, kept));
        Ok(Self { communicator, prepared, kept: Some(kept), _operands: PhantomData })
    }
}

impl<'a> BoundAllReduce<'a> {
    /// Enqueues the all-reduce once and returns. The device uses the operands when the queue reaches the call. On a
    /// stream, the call does no look-ups, waits for no lock and allocates nothing, unless the stream of the previous call
    /// has been dropped. A captured call allocates, because the graph keeps its arguments.
    ///
    /// The call has a place in the order of the communicator's calls, which is equal on all ranks, so call from one
    /// thread at a time. If another thread is enqueueing a call of the communicator, this call is refused instead of
    /// waiting.
    ///
    /// The operands of a captured call must outlive the graph:
    /// ```compile_fail,E0515
    /// # use symmetra::*;
    /// fn leak(communicator: &'static Communicator, stream: &Stream) -> Result<Graph<'static>> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let bound = communicator.bind_all_reduce(&buffer, &buffer)?;
    ///     stream.capture(|capture| bound.enqueue(capture))
    /// }
    /// ```
    /// The bound call itself may be dropped before the graph:
    /// ```
    /// # use symmetra::*;
    /// fn keep<'a>(communicator: &'a Communicator, buffer: &'a SymmetricBuffer<f32>, stream: &Stream) -> Result<Graph<'a>> {
    ///     let bound = communicator.bind_all_reduce(buffer, buffer)?;
    ///     stream.capture(|capture| bound.enqueue(capture))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a stream of another device; [`Error::Closed`] after the communicator was closed;
    /// the group's error if the group has failed; [`Error::Unsupported`] while another thread enqueues a call of the
    /// communicator, or on a stream that [`Stream::capture`](crate::Stream::capture) records (enqueue on the capture there);
    /// [`Error::Device`] if the launch fails. A natively captured stream is supported.
    pub fn enqueue<'op>(&self, queue: impl Queue<'op>) -> Result<()>
    where
        'a: 'op,
    {
        self.enqueue_on(Target::of(&queue))
    }

    pub(crate) fn enqueue_on(&self, queue: Target<'_>) -> Result<()> {
        let inner = &self.communicator.0;
        let _entered = inner.group.enter()?;
        inner.check_device("stream", queue.stream().device())?;
        if let (Some(recording), Some(kept)) = (queue.recording(), &self.kept) {
            recording.keep(kept.clone());
        }
        let mut turn = Turn::try_begin(inner, "a bound all-reduce", queue)?.ok_or_else(|| {
            Error::unsupported(
                "a bound all-reduce during another call",
                "another thread enqueues on this communicator at the same time, so the order of the calls is undefined",
            )
        })?;
        let enqueued = self.prepared.enqueue(&mut turn);
        turn.end(enqueued)
    }
}

impl fmt::Debug for BoundAllReduce<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BoundAllReduce({:?})", self.communicator)
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/collective/all_reduce/bound.rs"]
mod tests;
