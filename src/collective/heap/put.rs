//! Copies into a peer's memory, by a copy engine if the device has one.
#![allow(unsafe_code)]

use super::signal::OneSided;
use crate::collective::Communicator;
use crate::error::{Error, Result};
use crate::memory::{Operand, Place, SymmetricBuffer, WithView};
use crate::stream::{Queue, Target};
use crate::types::Element;

impl Communicator {
    /// Copies `from` into `peer`'s elements of `to`. Enqueues and returns. One-sided: the peer is not notified, unless
    /// a signal is put later on the same queue.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands of different lengths, of another group or device, or an unknown peer;
    /// the group's error if the group has failed; [`Error::Device`] if the copy fails.
    pub fn put<'op, T: Element>(
        &self,
        from: impl Operand<'op, T>,
        to: &'op SymmetricBuffer<T>,
        peer: usize,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let _entered = self.group().enter_with(peer)?;
        let (from, queue) = (from.view_of(), Target::of(&queue));
        if from.elems != to.len() {
            return Err(Error::invalid("the target's length", to.len(), format!("the source has {}", from.elems)));
        }
        let target = self.peer_of(to, peer)?;
        self.device().check_same("source", from.device)?;
        self.device().check_same("stream", queue.stream().device())?;
        self.record_one_sided(queue);
        let bytes = from.elems * size_of::<T>();
        // SAFETY: `target` lies in a mapping that lives until the group, entered here, is closed and the device is idle
        // (liveness); both sides have `bytes` (bounds); operands live until the device is idle, or as long as the
        // graph.
        queue.enqueue("copy to a peer", |raw| unsafe { raw.copy(target, from.address, bytes) })
    }

    /// The address of `peer`'s elements of a buffer of this group.
    pub(in crate::collective) fn peer_of<T: Element>(
        &self,
        buffer: &SymmetricBuffer<T>,
        peer: usize,
    ) -> Result<*mut u8> {
        match buffer.view_of().place {
            Place::Symmetric { group, .. } if group == self.group().id() => Ok(buffer.at(peer)?.cast()),
            _ => Err(Error::invalid("the buffer", format!("{buffer:?}"), "it must be of this group")),
        }
    }

    /// Makes the graph refuse to launch after the group has closed or failed.
    pub(in crate::collective) fn record_one_sided(&self, queue: Target<'_>) {
        if let Some(recording) = queue.recording() {
            recording.part(self.group().id(), || OneSided(self.group().clone()));
        }
    }
}
