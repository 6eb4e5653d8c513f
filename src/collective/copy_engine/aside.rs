//! What low-contention collectives of one capture use beside the captured stream.

use std::sync::Arc;

use crate::device::{Device, DeviceKind};
use crate::error::Result;
use crate::memory::SymmetricBuffer;
use crate::stream::{Capture, Enqueue, Event, Stream};

/// A second stream beside the side stream, with an event for fork and join.
pub(super) struct Branch {
    pub(super) stream: Stream,
    pub(super) event: Event,
}

impl Branch {
    /// Returns the existing branch, or makes one.
    pub(super) fn of(branch: &mut Option<Arc<Self>>, device: &Device) -> Result<Arc<Self>> {
        Ok(match branch {
            Some(branch) => branch.clone(),
            None => {
                branch.insert(Arc::new(Self { stream: Stream::urgent(device)?, event: Event::new(device)? })).clone()
            }
        })
    }
}

/// The side stream and workspaces of one capture.
#[derive(Default)]
pub(in crate::collective) struct Aside {
    /// Captured together with the caller's stream, from which it forks.
    stream: Option<Stream>,
    /// Forks from the side stream.
    branch: Option<Arc<Branch>>,
    /// Workspaces of the graph's copies.
    workspaces: Vec<Arc<SymmetricBuffer<u8>>>,
    used: bool,
}

impl Aside {
    /// Whether launches of the graph must be ordered.
    pub(in crate::collective) fn is_used(&self) -> bool {
        self.used
    }

    /// A stream forked from the captured one. `None` on the host device, which captures one stream.
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

    pub(super) fn branch(&mut self, device: &Device) -> Result<Arc<Branch>> {
        Branch::of(&mut self.branch, device)
    }

    /// Keeps a workspace as long as the graph.
    pub(super) fn keep(&mut self, workspace: &Arc<SymmetricBuffer<u8>>) {
        if !self.workspaces.iter().any(|kept| Arc::ptr_eq(kept, workspace)) {
            self.workspaces.push(workspace.clone());
        }
    }

    /// Joins the fork, also where nobody waited for the call: a capture ends only when all forks have joined.
    pub(in crate::collective) fn end(&mut self, capture: &Capture<'_, '_>) -> Result<()> {
        for stream in self.stream.iter().chain(self.branch.iter().map(|branch| &branch.stream)) {
            let event = Event::new(stream.device())?;
            stream.record(&event)?;
            capture.wait(&event)?;
        }
        Ok(())
    }
}
