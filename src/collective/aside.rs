//! The auxiliary streams and workspaces of one capture.

use std::sync::Arc;

use crate::device::{Device, DeviceKind};
use crate::error::Result;
use crate::memory::SymmetricBuffer;
use crate::stream::{Event, Recording, Stream};

/// A second auxiliary stream, with an event for its fork and its join.
pub(super) struct Branch {
    pub(super) stream: Stream,
    pub(super) event: Event,
}

impl Branch {
    /// Returns the cached branch, creating it on first use.
    pub(super) fn of(branch: &mut Option<Arc<Self>>, device: &Device) -> Result<Arc<Self>> {
        Ok(match branch {
            Some(branch) => branch.clone(),
            None => {
                branch.insert(Arc::new(Self { stream: Stream::urgent(device)?, event: Event::new(device)? })).clone()
            }
        })
    }
}

/// The auxiliary streams of one capture.
#[derive(Default)]
pub(super) struct Aside {
    /// The side stream, which forks from the captured stream.
    stream: Option<Stream>,
    /// A stream that forks from the side stream.
    branch: Option<Arc<Branch>>,
    /// Workspaces of the graph's copies.
    workspaces: Vec<Arc<SymmetricBuffer<u8>>>,
    used: bool,
    /// Whether the stream has work for which no plan of the capture has waited.
    pub(super) loose: bool,
}

impl Aside {
    /// Whether launches must not overlap.
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    /// The stream for the work of a call, which forks from the captured stream. `None` on the host device, which captures
    /// only one stream.
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

    /// Returns the stream if it has [`loose`](Self::loose) work. The caller makes the capture wait for the stream.
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

    /// Joins all forks: CUDA requires this when the capture ends, even if handles of calls were dropped.
    pub(super) fn end(&mut self, recording: &Recording) -> Result<()> {
        for stream in self.stream.iter().chain(self.branch.iter().map(|branch| &branch.stream)) {
            let event = Event::new(stream.device())?;
            stream.record(&event)?;
            recording.wait(&event)?;
        }
        Ok(())
    }
}
