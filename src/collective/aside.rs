//! What one capture uses beside its stream.

use std::sync::Arc;

use crate::device::{Device, DeviceKind};
use crate::error::Result;
use crate::memory::SymmetricBuffer;
use crate::stream::{Event, Recording, Stream};

/// For what runs beside even the side: a stream, and an event for its fork and its join.
pub(super) struct Branch {
    pub(super) stream: Stream,
    pub(super) event: Event,
}

impl Branch {
    /// The one there is, or a new one.
    pub(super) fn of(branch: &mut Option<Arc<Self>>, device: &Device) -> Result<Arc<Self>> {
        Ok(match branch {
            Some(branch) => branch.clone(),
            None => {
                branch.insert(Arc::new(Self { stream: Stream::urgent(device)?, event: Event::new(device)? })).clone()
            }
        })
    }
}

/// The side of one capture.
#[derive(Default)]
pub(super) struct Aside {
    /// Captured with the caller's, of which it forks.
    stream: Option<Stream>,
    /// Of which this forks.
    branch: Option<Arc<Branch>>,
    /// What the graph's copies go through.
    workspaces: Vec<Arc<SymmetricBuffer<u8>>>,
    used: bool,
    /// Whether the stream has work for which no plan of the capture has waited.
    pub(super) loose: bool,
}

impl Aside {
    /// Whether launches have to take turns.
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    /// Where the work of a call goes: a stream that forks from the captured one. The host device captures one stream.
    pub(super) fn begin(&mut self, device: &Device) -> Result<Option<Stream>> {
        self.used = true;
        if device.kind() == DeviceKind::Host {
            return Ok(None);
        }
        Ok(Some(match &self.stream {
            Some(stream) => stream.clone(),
            None => self.stream.insert(Stream::urgent(device)?).clone(),
        }))
    }

    /// The stream, if it has such work, for which the caller makes the capture wait.
    pub(super) fn take_loose(&mut self) -> Option<Stream> {
        self.stream.clone().filter(|_| std::mem::take(&mut self.loose))
    }

    pub(super) fn branch(&mut self, device: &Device) -> Result<Arc<Branch>> {
        Branch::of(&mut self.branch, device)
    }

    /// Keeps a workspace as long as the graph.
    pub(super) fn keep(&mut self, workspace: &Arc<SymmetricBuffer<u8>>) {
        if !self.workspaces.iter().any(|kept| Arc::ptr_eq(kept, workspace)) {
            self.workspaces.push(workspace.clone());
        }
    }

    /// Whatever became of its handles, a fork must have joined when the capture ends.
    pub(super) fn end(&mut self, recording: &Recording) -> Result<()> {
        for stream in self.stream.iter().chain(self.branch.iter().map(|branch| &branch.stream)) {
            let event = Event::new(stream.device())?;
            stream.record(&event)?;
            recording.wait(&event)?;
        }
        Ok(())
    }
}
