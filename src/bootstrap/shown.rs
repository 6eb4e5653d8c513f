//! Shows observers of this host that a rank waits for the others, before the rank has a group: in a file in memory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::host::{host_name, namespace_of, now_ns};

/// The name of the file, which `/proc` shows.
pub(crate) const MEETING_NAME: &str = "symmetra-meeting";

/// The most bytes of the file.
const MOST_BYTES: u64 = 4096;

/// The most ranks of a meeting.
pub(super) const MOST_RANKS: usize = 65_535;

/// A rank that meets the other ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MeetingRank {
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    /// The inode number of the PID namespace of the rank; 0: unknown.
    pub(crate) namespace: u64,
    /// The process number of the rank in that namespace.
    pub(crate) process: u32,
    /// The name of the rank's host.
    pub(crate) host: String,
    /// When the rank came, in nanoseconds since 1970.
    pub(crate) since_ns: u64,
    /// The place of the meeting, in words that are equal on all its ranks; `None`: a build that did not write the place.
    #[serde(default)]
    pub(crate) place: Option<String>,
    /// Whether ranks of other hosts can come.
    #[serde(default)]
    pub(crate) open_to_hosts: bool,
}

/// Where ranks meet.
pub(super) struct MeetingPlace {
    /// The place in words that are equal on all its ranks.
    pub(super) words: String,
    /// Whether ranks of other hosts can come.
    pub(super) open_to_hosts: bool,
}

/// Shows a meeting until dropped.
pub(super) struct Shown {
    _file: Option<OwnedFd>,
}

impl Shown {
    /// Shows that `rank` of `world_size` ranks waits for the others at `place`. Without descriptors or memory nothing is shown.
    pub(super) fn begin(rank: usize, world_size: usize, place: MeetingPlace) -> Self {
        let MeetingPlace { words, open_to_hosts } = place;
        let meeting = MeetingRank {
            rank,
            world_size,
            namespace: namespace_of("self").unwrap_or(0),
            process: std::process::id(),
            host: host_name(),
            since_ns: now_ns(),
            place: Some(words),
            open_to_hosts,
        };
        Self { _file: meeting.write() }
    }
}

impl MeetingRank {
    fn write(&self) -> Option<OwnedFd> {
        let mut file = File::from(memfd_create(MEETING_NAME, MemfdFlags::CLOEXEC).ok()?);
        file.write_all(&serde_json::to_vec(self).ok()?).ok()?;
        Some(file.into())
    }

    /// The meeting in a file, unless another build wrote other fields, the file is being written, or no meeting has its numbers.
    pub(crate) fn read(file: &File) -> Option<Self> {
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        let meeting: Self = serde_json::from_slice(&text).ok()?;
        (meeting.rank < meeting.world_size && meeting.world_size <= MOST_RANKS).then_some(meeting)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/bootstrap/shown.rs"]
mod tests;
