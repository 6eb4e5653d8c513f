//! Signals on a stream.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::collective::limits_of;
use crate::error::Result;
use crate::group::Group;
use crate::kernel::{args, geometry};
use crate::memory::{Arena, SignalPad};
use crate::stream::{GraphPart, Queue, Stream, Target};

impl<'buffer> SignalPad<'buffer> {
    /// Raises `peer`'s count for this rank on `channel`, after all earlier work of the queue. A peer that sees the
    /// count also sees that work. Enqueues and returns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an unknown channel or peer, or a stream of another
    /// device; the group's error if the group has failed; [`Error::Device`](crate::Error::Device) if the launch fails.
    pub fn put<'op>(&self, peer: usize, channel: usize, queue: impl Queue<'op>) -> Result<()>
    where
        'buffer: 'op,
    {
        self.enqueue(args::kSignalPut, peer, channel, Target::of(&queue))
    }

    /// Makes the queue wait until `peer` has put on `channel` once more than earlier waits consumed. Enqueues and
    /// returns. The wait on the device times out after `deadlines.steady`.
    ///
    /// # Errors
    /// The errors of [`put`](Self::put).
    pub fn wait<'op>(&self, peer: usize, channel: usize, queue: impl Queue<'op>) -> Result<()>
    where
        'buffer: 'op,
    {
        self.enqueue(args::kSignalWait, peer, channel, Target::of(&queue))
    }

    /// Makes the queues of all ranks meet: a put to and a wait for every peer, on `channel`. Enqueues and returns.
    ///
    /// # Errors
    /// The errors of [`put`](Self::put).
    pub fn barrier<'op>(&self, channel: usize, queue: impl Queue<'op>) -> Result<()>
    where
        'buffer: 'op,
    {
        let own = self.arena().group().rank();
        self.enqueue(args::kSignalBarrier, own, channel, Target::of(&queue))
    }

    /// Enqueues a put, wait or barrier by the number of its action; C++ calls this through the bridge.
    pub(crate) fn enqueue(&self, action: u32, peer: usize, channel: usize, queue: Target<'_>) -> Result<()> {
        let group = self.arena().group();
        let _entered = match action {
            args::kSignalBarrier => group.enter()?,
            _ => group.enter_with(peer)?,
        };
        group.device().check_same("stream", queue.stream().device())?;
        let args = self.args(action, peer, channel)?;
        if let Some(recording) = queue.recording() {
            recording.part(group.id(), || OneSided(group.clone()));
        }
        // The borrow keeps the buffer for a capture, and reclaiming waits for the device.
        launch_signal(group, &args, queue)
    }
}

/// Enqueues a signal kernel on arrays of an entered group. The caller orders the signals of each channel.
pub(in crate::collective) fn launch_signal(group: &Group, args: &args::SignalArgs, queue: Target<'_>) -> Result<()> {
    let launch = geometry::single(limits_of(group), args.world);
    // SAFETY: this rank's array lies in an arena, the arrays of peers in mappings. These live until the group is closed and the
    // device is idle (liveness, bounds); the caller orders signals (exclusion).
    queue.enqueue("launch a signal", |raw| unsafe { raw.launch(args, &launch.geometry) })
}

/// A signal on the communicator's own signal array.
pub(in crate::collective) fn own_signal(
    arena: &Arc<Arena>,
    action: u32,
    peer: usize,
    channel: usize,
    fresh: bool,
) -> Result<args::SignalArgs> {
    let pad = SignalPad::new(arena, arena.layout().aside.offset);
    Ok(args::SignalArgs { wait: arena.wait(fresh), ..pad.args(action, peer, channel)? })
}

/// The signals of one group in one graph. After the group has closed or failed, peers' signal arrays are unmapped.
pub(in crate::collective) struct OneSided(pub(in crate::collective) Group);

impl GraphPart for OneSided {
    fn keep(&self, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let _entered = self.0.enter()?;
        launch()
    }

    fn before_launch(&self, _stream: &Stream) -> Result<()> {
        Ok(())
    }

    fn register(&self) -> Result<()> {
        self.0.check()
    }
}
