//! An all-reduce bound to its operands: validated and planned once, enqueued any number of times.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Communicator;
use super::graph_part::Recorded;
use super::launch_plan::Prepared;
use crate::error::{Error, Result};
use crate::op::Call;
use crate::stream::{Enqueue, Kept, Queue};

/// An all-reduce of a communicator on operands that were found right when it was made, by
/// [`Communicator::bind_all_reduce`]: algorithm, launch shape and kernel arguments are decided. All that
/// is left to a call is what may have changed since: whether the group is well, whose turn it is, and the
/// launch itself.
///
/// It is the same operation as [`Communicator::all_reduce`], and ranks may use either: a call of one
/// meets a call of the other. Captured on plain memory it stays what it is on a stream, a message that is
/// pushed; an ordinary call, which has the graph register such memory, may be another algorithm, so there all
/// ranks capture the same kind.
///
/// `'a` is the life of the communicator's handle and the operands; one that [owns](Self::owning) them is a
/// `BoundAllReduce<'static>`. Usable from any thread.
pub struct BoundAllReduce<'a> {
    communicator: Communicator,
    prepared: Prepared,
    kept: Option<Kept>,
    _operands: PhantomData<&'a Communicator>,
}

impl Communicator {
    /// Checks and plans an all-reduce. The result owns `kept`, as do graphs that capture the result.
    pub(crate) fn bind<'a>(&self, call: &Call<'_>, kept: Option<Kept>) -> Result<BoundAllReduce<'a>> {
        let inner = &self.0;
        inner.group.check()?;
        call.check(inner.group.rank(), inner.group.world_size(), inner.group.device())?;
        let prepared = inner.prepare(call, None)?;
        Ok(BoundAllReduce { communicator: self.clone(), prepared, kept, _operands: PhantomData })
    }
}

impl BoundAllReduce<'static> {
    /// Binds what `owner` has, and owns it from here on, as do graphs that capture this. So a struct can hold buffers
    /// and what is bound to them:
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
    /// It is bound to nothing else:
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
    /// Those of `bind`.
    pub fn owning<O: Send + Sync + 'static>(
        owner: Arc<O>,
        bind: impl for<'o> FnOnce(&'o O) -> Result<BoundAllReduce<'o>>,
    ) -> Result<Self> {
        // What it borrows can be nothing but the owner's, or there for good.
        let BoundAllReduce { communicator, prepared, kept, .. } = bind(&owner)?;
        // An owner of an owner, where `bind` gives what it had bound before.
        let kept: Kept = Arc::new((owner, kept));
        Ok(Self { communicator, prepared, kept: Some(kept), _operands: PhantomData })
    }
}

impl<'a> BoundAllReduce<'a> {
    /// Enqueues the all-reduce once and returns; the operands are used when the queue gets there. On a stream
    /// it looks nothing up, waits for no lock and allocates nothing (but to part with the stream of the call before
    /// where that was dropped since); what a capture records, the graph keeps, which allocates.
    ///
    /// It takes its turn among the communicator's other calls. These come in one order on every
    /// rank, so from one thread at a time; where another thread is enqueueing one this very moment, the order is
    /// up to chance, and instead of waiting for that thread the call is refused.
    ///
    /// What a capture records is for operands that outlive the graph:
    /// ```compile_fail,E0515
    /// # use symmetra::*;
    /// fn leak(communicator: &'static Communicator, stream: &Stream) -> Result<Graph<'static>> {
    ///     let buffer = communicator.symmetric::<f32>(8)?;
    ///     let bound = communicator.bind_all_reduce(&buffer, &buffer)?;
    ///     stream.capture(|capture| bound.enqueue(capture))
    /// }
    /// ```
    /// while what is bound to them may be gone before it:
    /// ```
    /// # use symmetra::*;
    /// fn keep<'a>(communicator: &'a Communicator, buffer: &'a SymmetricBuffer<f32>, stream: &Stream) -> Result<Graph<'a>> {
    ///     let bound = communicator.bind_all_reduce(buffer, buffer)?;
    ///     stream.capture(|capture| bound.enqueue(capture))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a stream of another device; [`Error::Closed`] after the communicator was
    /// closed; the group's error when it failed before; [`Error::Unsupported`] while another thread
    /// enqueues a call of the communicator, or on a stream that is being captured; [`Error::Device`] when the launch
    /// fails.
    pub fn enqueue<'op>(&self, queue: impl Queue<'op>) -> Result<()>
    where
        'a: 'op,
    {
        let inner = &self.communicator.0;
        let _entered = inner.group.enter()?;
        inner.check_device("stream", queue.stream().device())?;
        let recorded = queue.recording().map(|recording| {
            self.kept.iter().for_each(|kept| recording.keep(kept.clone()));
            recording.part(inner.group.id(), || Recorded::new(inner))
        });
        let mut lane = inner.lane.try_lock().ok_or_else(|| {
            Error::unsupported(
                "a bound all-reduce beside another call",
                "another thread enqueues on this communicator at the same time, so their order is up to chance",
            )
        })?;
        inner.enqueue_prepared(&self.prepared, &mut lane, &queue, recorded.as_deref())
    }
}

impl fmt::Debug for BoundAllReduce<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BoundAllReduce({:?})", self.communicator)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/collective/bound.rs"]
mod tests;
