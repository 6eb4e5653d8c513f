//! Calls between the start and the end of a group.

use std::cell::Cell;
use std::fmt;

use ::cudarc::driver::{CudaView, CudaViewMut, DeviceSlice, SyncOnDrop};

use super::{Comm, ReduceOp, Result};
use crate::error::Error;
use crate::interop::cudarc::check;
use crate::memory::Ref;
use crate::op::Pairs;
use crate::stream::Target;
use crate::types::Element;

thread_local! {
    /// Groups of the free functions that this thread has started and not ended.
    static STARTED: Cell<u32> = const { Cell::new(0) };
}

/// Starts a group of calls of this thread. Collectives need no group, because a call never blocks: they are enqueued at once.
/// A [`send`](Comm::send) or [`recv`](Comm::recv) before [`group_end`] is [`Error::Unsupported`]: use [`Comm::group`].
///
/// # Errors
/// None; the type is that of cudarc's function.
pub fn group_start() -> Result<()> {
    STARTED.set(STARTED.get().saturating_add(1));
    Ok(())
}

/// Ends the group that this thread started last.
///
/// # Errors
/// [`Error::InvalidArgument`] if this thread has started none.
pub fn group_end() -> Result<()> {
    let started = STARTED.get().checked_sub(1);
    STARTED.set(started.ok_or_else(|| Error::invalid("the number of started groups", 0, "group_end ends one"))?);
    Ok(())
}

/// Refuses `what` between [`group_start`] and [`group_end`].
pub(super) fn refuse_within(what: &str) -> Result<()> {
    match STARTED.get() {
        0 => Ok(()),
        _ => {
            let reason = "single calls of two ranks could wait for each other: use Comm::group";
            Err(Error::unsupported(format!("{what} between group_start and group_end"), reason).into())
        }
    }
}

/// Calls of one rank that progress together: collectives are enqueued at once, and all sends and receives as one call when the
/// group ends. Operands are views by value, made before the group, so that they outlive it.
pub struct Group<'a> {
    comm: &'a Comm,
    messages: Pairs<'a>,
    guards: Vec<SyncOnDrop<'a>>,
}

impl Comm {
    /// Starts a group of calls. [`Group::end`], or a drop, enqueues the sends and receives.
    pub fn group(&self) -> Group<'_> {
        Group { comm: self, messages: Pairs::new(self.world_size()), guards: Vec::new() }
    }
}

impl<'a> Group<'a> {
    /// The communicator.
    pub fn comm(&self) -> &'a Comm {
        self.comm
    }

    /// Sends `data` to rank `peer` when the group ends.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a peer outside the group, and for memory of another device.
    pub fn send<'s: 'a, T: Element>(&mut self, data: CudaView<'s, T>, peer: i32) -> Result<()> {
        let (peer, len) = (self.comm.rank_of("peer", peer)?, data.len());
        check(self.comm.communicator.device(), data.stream())?;
        let (address, guard) = data.view_ptr(&self.comm.native);
        self.guards.push(guard);
        let memory: Ref<'a, T> = Ref::new(address as *mut T, len, self.comm.communicator.device()).read_only();
        Ok(self.messages.send(memory, peer)?)
    }

    /// Receives the next data of rank `peer` into `buff` when the group ends.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn recv<'r: 'a, T: Element>(&mut self, buff: CudaViewMut<'r, T>, peer: i32) -> Result<()> {
        let (peer, len) = (self.comm.rank_of("peer", peer)?, buff.len());
        check(self.comm.communicator.device(), buff.stream())?;
        let (address, guard) = buff.view_ptr_mut(&self.comm.native);
        self.guards.push(guard);
        let memory: Ref<'a, T> = Ref::new(address as *mut T, len, self.comm.communicator.device());
        Ok(self.messages.receive(memory, peer)?)
    }

    /// See [`Comm::all_reduce`].
    ///
    /// # Errors
    /// The errors of [`Comm::all_reduce`].
    pub fn all_reduce<'s: 'a, 'r: 'a, T: Element>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        mut recvbuff: CudaViewMut<'r, T>,
        op: &ReduceOp,
    ) -> Result<()> {
        self.comm.all_reduce(&sendbuff, &mut recvbuff, op)
    }

    /// See [`Comm::all_reduce_in_place`].
    ///
    /// # Errors
    /// The errors of [`Comm::all_reduce_in_place`].
    pub fn all_reduce_in_place<'r: 'a, T: Element>(
        &mut self,
        mut buff: CudaViewMut<'r, T>,
        op: &ReduceOp,
    ) -> Result<()> {
        self.comm.all_reduce_in_place(&mut buff, op)
    }

    /// See [`Comm::all_gather`].
    ///
    /// # Errors
    /// The errors of [`Comm::all_gather`].
    pub fn all_gather<'s: 'a, 'r: 'a, T: Element>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        mut recvbuff: CudaViewMut<'r, T>,
    ) -> Result<()> {
        self.comm.all_gather(&sendbuff, &mut recvbuff)
    }

    /// See [`Comm::reduce_scatter`].
    ///
    /// # Errors
    /// The errors of [`Comm::reduce_scatter`].
    pub fn reduce_scatter<'s: 'a, 'r: 'a, T: Element>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        mut recvbuff: CudaViewMut<'r, T>,
        op: &ReduceOp,
    ) -> Result<()> {
        self.comm.reduce_scatter(&sendbuff, &mut recvbuff, op)
    }

    /// See [`Comm::broadcast`].
    ///
    /// # Errors
    /// The errors of [`Comm::broadcast`].
    pub fn broadcast<'s: 'a, 'r: 'a, T: Element>(
        &mut self,
        sendbuff: Option<CudaView<'s, T>>,
        mut recvbuff: CudaViewMut<'r, T>,
        root: i32,
    ) -> Result<()> {
        self.comm.broadcast(sendbuff.as_ref(), &mut recvbuff, root)
    }

    /// See [`Comm::broadcast_in_place`].
    ///
    /// # Errors
    /// The errors of [`Comm::broadcast_in_place`].
    pub fn broadcast_in_place<'r: 'a, T: Element>(&mut self, mut buff: CudaViewMut<'r, T>, root: i32) -> Result<()> {
        self.comm.broadcast_in_place(&mut buff, root)
    }

    /// See [`Comm::reduce`].
    ///
    /// # Errors
    /// The errors of [`Comm::reduce`].
    pub fn reduce<'s: 'a, 'r: 'a, T: Element>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        mut recvbuff: Option<CudaViewMut<'r, T>>,
        op: &ReduceOp,
        root: i32,
    ) -> Result<()> {
        self.comm.reduce(&sendbuff, recvbuff.as_mut(), op, root)
    }

    /// See [`Comm::reduce_in_place`].
    ///
    /// # Errors
    /// The errors of [`Comm::reduce_in_place`].
    pub fn reduce_in_place<'r: 'a, T: Element>(
        &mut self,
        mut buff: CudaViewMut<'r, T>,
        op: &ReduceOp,
        root: i32,
    ) -> Result<()> {
        self.comm.reduce_in_place(&mut buff, op, root)
    }

    /// Ends the group: enqueues its sends and receives as one call.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::pairs`](crate::ProcessGroup::pairs).
    pub fn end(mut self) -> Result<()> {
        self.enqueue()
    }

    /// Enqueues the messages, then drops cudarc's guards.
    fn enqueue(&mut self) -> Result<()> {
        let messages = std::mem::replace(&mut self.messages, Pairs::new(self.comm.world_size()));
        let guards = std::mem::take(&mut self.guards);
        let enqueued = match messages.as_slice() {
            [] => Ok(()),
            messages => self.comm.communicator.run_pairs(messages, Target::from(&self.comm.stream)),
        };
        drop(guards);
        Ok(enqueued?)
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.enqueue() {
            crate::log!(WARN, "the sends and receives of a group of {:?} are not enqueued: {error}", self.comm);
        }
    }
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Group({:?} of {:?})", self.messages, self.comm)
    }
}
