//! Groups whose calls are timed: the labels of calls, and the times that kernels have recorded.

use std::collections::HashMap;
use std::mem::offset_of;

use parking_lot::Mutex;

use super::control_page::Page;
use super::timeline::{LABELS, LastCall, TimedCall, Timeline};
use super::{EnqueuedCall, Group};

/// A call whose kernels are enqueued next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Whether the call is the first on the device.
    pub(crate) is_first: bool,
    /// The label of the call; 0: none.
    pub(crate) label: u16,
}

/// A call without a label.
impl From<bool> for Announced {
    fn from(is_first: bool) -> Self {
        Self { is_first, label: 0 }
    }
}

/// The labels that a rank has given.
#[derive(Default)]
pub(super) struct Labels(Mutex<HashMap<[u64; 2], u16>>);

impl Labels {
    /// The label of a kind of call; 0 if all labels are used.
    fn of(&self, kind: [u64; 2], timeline: &Timeline) -> u16 {
        let mut labels = self.0.lock();
        if let Some(label) = labels.get(&kind) {
            return *label;
        }
        if labels.len() == LABELS {
            return 0;
        }
        let label = labels.len() as u16 + 1;
        timeline.name(label, kind[0], kind[1]);
        labels.insert(kind, label);
        label
    }
}

impl Group {
    /// Whether kernels record the times of calls.
    pub(crate) fn is_timed(&self) -> bool {
        self.0.labels.is_some()
    }

    /// The label of a launch of `bytes` bytes of a call; 0 for a group whose calls are not timed.
    #[inline]
    pub(crate) fn label_of(&self, call: &EnqueuedCall, bytes: u64) -> u16 {
        self.0.labels.as_ref().map_or(0, |labels| labels.of([bytes, call.kind()], &self.0.health.own().timeline))
    }

    /// The times of the last calls of all ranks, in rank order.
    pub(crate) fn times(&self) -> Vec<Vec<TimedCall>> {
        self.0.health.pages.iter().map(|page| page.timeline.read(0)).collect()
    }

    /// Writes the record of this rank's last call. The device has no call in progress.
    pub(crate) fn complete_times(&self, last: &LastCall) {
        self.0.health.own().timeline.complete(last);
    }

    /// The address of the ring of records, valid for host and device; null if calls are not timed.
    pub(crate) fn records_address(&self) -> *mut u8 {
        match self.is_timed() {
            true => self.status_address().wrapping_add(offset_of!(Page, timeline) + Timeline::RECORDS_OFFSET),
            false => std::ptr::null_mut(),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/group/timed.rs"]
mod tests;
