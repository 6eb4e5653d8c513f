//! Sends and receives between pairs of ranks, in one batch that all ranks run together.

use std::marker::PhantomData;
use std::sync::Arc;

use super::exchange::{Counts, Exchange, Strip, arena_offset, check_apart, span};
use super::{Communicator, Inner};
use crate::error::{Error, Result};
use crate::group::MAX_WORLD_SIZE;
use crate::kernel::args;
use crate::memory::{Operand, View, WithView};
use crate::stream::{Enqueue, Queue};
use crate::types::{Dtype, Element};

/// What one rank sends and receives in a [`Communicator::batch`].
pub struct Batch<'op> {
    inner: Arc<Inner>,
    from: [Option<Strip>; MAX_WORLD_SIZE],
    into: [Option<Strip>; MAX_WORLD_SIZE],
    /// Where in the arena what is received goes, if all of it goes there.
    arena_bytes: Option<[u64; MAX_WORLD_SIZE]>,
    _operands: PhantomData<&'op ()>,
}

impl Communicator {
    /// Sends to and receives from any ranks at once, in the order of nothing: `fill` says what, and then all
    /// of it is enqueued as one operation. Every rank of the group takes part, if only with nothing to
    /// send. A rank sends at most one message to each rank, itself included, and receives at most one
    /// from each; the sizes in bytes are compared on the device before anything moves. Data move
    /// directly where all that ranks receive goes to symmetric memory.
    ///
    /// ```
    /// # use symmetra::*;
    /// /// To the next stage of a pipeline, and from the one before.
    /// fn step(communicator: &Communicator, out: &DeviceBuffer<f32>, into: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
    ///     let (rank, world) = (communicator.rank(), communicator.world_size());
    ///     communicator.batch(stream, |batch| {
    ///         if rank + 1 < world {
    ///             batch.send(out, rank + 1)?;
    ///         }
    ///         if rank > 0 {
    ///             batch.receive(into, rank - 1)?;
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// What it moves must outlive it:
    /// ```compile_fail,E0597
    /// # use symmetra::*;
    /// fn early(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     communicator.batch(stream, |batch| {
    ///         let out = DeviceBuffer::<f32>::new(communicator.device(), 8)?;
    ///         batch.send(&out, 0)
    ///     })
    /// }
    /// ```
    /// as it does here:
    /// ```
    /// # use symmetra::*;
    /// fn kept(communicator: &Communicator, stream: &Stream) -> Result<()> {
    ///     let out = DeviceBuffer::<f32>::new(communicator.device(), 8)?;
    ///     communicator.batch(stream, |batch| batch.send(&out, 0))
    /// }
    /// ```
    ///
    /// # Errors
    /// What `fill` returns; [`Error::InvalidArgument`] when the rank sends itself another size than it
    /// expects, or what is received overlaps something else of the batch; [`Error::Unsupported`] where
    /// `Config::transport` asks for what the memory cannot do; the group's error when it failed before;
    /// [`Error::Device`] when the launch fails. Where what a rank sends is not what its peer expects, every
    /// rank's later calls fail with [`Error::Mismatch`], which names both; what was to be received is undefined then.
    pub fn batch<'op>(&self, queue: impl Queue<'op>, fill: impl FnOnce(&mut Batch<'op>) -> Result<()>) -> Result<()> {
        let mut batch = Batch::new(&self.0);
        fill(&mut batch)?;
        batch.enqueue(&queue)
    }

    /// An empty batch; the language boundary's way in.
    pub(crate) fn batch_untyped(&self) -> Batch<'static> {
        Batch::new(&self.0)
    }
}

impl<'op> Batch<'op> {
    fn new(inner: &Arc<Inner>) -> Self {
        let none = [None; MAX_WORLD_SIZE];
        let arena_bytes = Some([0; MAX_WORLD_SIZE]);
        Self { inner: inner.clone(), from: none, into: none, arena_bytes, _operands: PhantomData }
    }

    /// Sends the elements of `operand` to rank `peer`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a peer outside the group, a second message to it, or an operand of
    /// another device.
    pub fn send<T: Element>(&mut self, operand: impl Operand<'op, T>, peer: usize) -> Result<()> {
        self.send_untyped(T::DTYPE, &operand.view_of(), peer)
    }

    /// Receives as many elements as `operand` has from rank `peer`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn receive<T: Element>(&mut self, operand: impl Operand<'op, T>, peer: usize) -> Result<()> {
        self.receive_untyped(T::DTYPE, &operand.view_of(), peer)
    }

    pub(crate) fn send_untyped(&mut self, dtype: Dtype, operand: &View<'_>, peer: usize) -> Result<()> {
        let strip = self.strip(dtype, operand, peer)?;
        put(&mut self.from, peer, strip, "sent to")
    }

    pub(crate) fn receive_untyped(&mut self, dtype: Dtype, operand: &View<'_>, peer: usize) -> Result<()> {
        let strip = self.strip(dtype, operand, peer)?;
        put(&mut self.into, peer, strip, "received from")?;
        match (&mut self.arena_bytes, arena_offset(self.inner.group.id(), operand)) {
            (Some(offsets), Some(offset)) => offsets[peer] = offset,
            (arena_bytes, _) => *arena_bytes = None,
        }
        Ok(())
    }

    fn strip(&self, dtype: Dtype, operand: &View<'_>, peer: usize) -> Result<Strip> {
        self.inner.check_rank("the peer", peer)?;
        self.inner.check_device("operand", operand.device)?;
        Ok(Strip { address: operand.address, bytes: span(operand, dtype).len() as u64 })
    }

    pub(crate) fn enqueue(self, queue: &impl Enqueue) -> Result<()> {
        let _entered = self.inner.begin(&[], queue)?;
        let rank = self.inner.group.rank();
        let bytes = |strip: Option<Strip>| strip.map_or(0, |strip| strip.bytes);
        if bytes(self.from[rank]) != bytes(self.into[rank]) {
            let limit = format!("it expects {} from itself", bytes(self.into[rank]));
            return Err(Error::invalid("what a rank sends itself", format!("{} bytes", bytes(self.from[rank])), limit));
        }
        self.check_overlaps()?;
        let counts = Counts::Own { arena_bytes: self.arena_bytes };
        let mut exchange = Exchange::new(args::kOpSendReceive, Dtype::F32, counts);
        exchange.from = self.from.map(|strip| strip.unwrap_or(Strip::NONE));
        exchange.into = self.into.map(|strip| strip.unwrap_or(Strip::NONE));
        self.inner.exchange(&exchange, queue)
    }

    /// What is received must not be written twice, nor what is sent meanwhile.
    fn check_overlaps(&self) -> Result<()> {
        let place = |strip: &Option<Strip>| {
            strip.map(|Strip { address, bytes }| address as usize..address as usize + bytes as usize)
        };
        for (source, into) in self.into.iter().enumerate() {
            let Some(into) = place(into) else { continue };
            let received = self.into[..source].iter().enumerate().map(|strip| ("received from", strip));
            let sent = self.from.iter().enumerate().map(|strip| ("sent to", strip));
            for (way, (peer, strip)) in received.chain(sent) {
                let Some(other) = place(strip) else { continue };
                check_apart(
                    (format_args!("what is received from rank {source}"), into.clone()),
                    (format_args!("what is {way} rank {peer}"), other),
                    None,
                )?;
            }
        }
        Ok(())
    }
}

fn put(strips: &mut [Option<Strip>; MAX_WORLD_SIZE], peer: usize, strip: Strip, what: &str) -> Result<()> {
    match strips[peer].replace(strip) {
        None => Ok(()),
        Some(_) => {
            Err(Error::invalid(&format!("the number of messages {what} rank {peer}"), 2, "a batch holds one at most"))
        }
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let peers =
            |strips: &[Option<Strip>]| (0..strips.len()).filter(|peer| strips[*peer].is_some()).collect::<Vec<_>>();
        write!(out, "Batch(to {:?}, from {:?})", peers(&self.from), peers(&self.into))
    }
}
