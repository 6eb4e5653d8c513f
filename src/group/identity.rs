//! The owner of a control page and the owner's waits outside of kernels, for programs that look at a group from outside.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::MAX_WORLD_SIZE;
use crate::bootstrap::host::{host_name, namespace_of, now_ns};
use crate::bootstrap::notice::clipped;
use crate::device::DeviceKind;

/// Marks a file as a control page: "symmetra" as bytes.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"symmetra");

/// The device kinds, each at one less than its number in a page.
pub(super) const KINDS: [DeviceKind; 3] = [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip];

/// Words of a text.
const TEXT_WORDS: usize = 8;

/// Text of at most 64 bytes. The longest beginning that fits is kept.
#[repr(C)]
pub(super) struct Text {
    bytes: AtomicU32,
    unused: AtomicU32,
    words: [AtomicU64; TEXT_WORDS],
}

impl Text {
    pub(super) fn write(&self, text: &str) {
        let text = clipped(text, TEXT_WORDS * 8);
        for (word, eight) in self.words.iter().zip(text.as_bytes().chunks(8)) {
            let mut padded = [0; 8];
            padded[..eight.len()].copy_from_slice(eight);
            word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
        self.bytes.store(text.len() as u32, Ordering::Release);
    }

    /// The text; empty if none was written.
    pub(super) fn read(&self) -> String {
        let length = self.bytes.load(Ordering::Acquire) as usize;
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()
    }
}

/// The last exchange of the host with the other ranks: a barrier, a registration, a step of opening or closing.
#[repr(C)]
pub(super) struct LastHostCall {
    /// When the exchange in progress began, in nanoseconds since 1970; 0: none is in progress.
    pub(super) since_ns: AtomicU64,
    /// The number of exchanges that have begun.
    pub(super) begun: AtomicU64,
    pub(super) name: Text,
}

impl LastHostCall {
    /// Records the beginning of exchange `number`. A reader that finds equal `begun` and `since_ns` before and after the name
    /// has read the name of that exchange.
    pub(super) fn begin(&self, number: u64, name: &str) {
        self.since_ns.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.begun.store(number + 1, Ordering::Relaxed);
        self.name.write(name);
        self.since_ns.store(now_ns(), Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.since_ns.store(0, Ordering::Release);
    }
}

/// The owner of a page. The last words of the file, and the only words whose place is equal for all protocol numbers, are
/// `protocol` and `magic`.
#[repr(C)]
pub(super) struct Identity {
    /// The inode number of the page of rank 0, which all ranks know; 0: the ranks have not shared their pages yet.
    pub(super) group: AtomicU64,
    /// When the owner began to open the group, in nanoseconds since 1970.
    pub(super) begun_ns: AtomicU64,
    /// When the group was open, in nanoseconds since 1970; 0: the owner is opening the group.
    pub(super) opened_ns: AtomicU64,
    /// The inode number of the PID namespace of the owner; 0: unknown.
    pub(super) namespace: AtomicU64,
    /// The process number of the owner in that namespace.
    pub(super) process: AtomicU32,
    pub(super) rank: AtomicU32,
    pub(super) world_size: AtomicU32,
    /// One more than the index in [`KINDS`].
    pub(super) kind: AtomicU32,
    /// The name of the owner's host.
    pub(super) host: Text,
    /// The name of the parallel group; empty: none.
    pub(super) name: Text,
    /// One more than the world rank of each rank of the group; 0: unknown.
    pub(super) world: [AtomicU32; MAX_WORLD_SIZE],
    unused: AtomicU32,
    pub(super) protocol: AtomicU32,
    pub(super) magic: AtomicU64,
}

impl Identity {
    /// Records that this process begins to open a group as `rank` of `world_size` ranks.
    pub(super) fn begin(&self, rank: usize, world_size: usize, kind: DeviceKind, protocol: u32) {
        let number = KINDS.iter().position(|known| *known == kind).map_or(0, |index| index as u32 + 1);
        self.begun_ns.store(now_ns(), Ordering::Relaxed);
        self.namespace.store(namespace_of("self").unwrap_or(0), Ordering::Relaxed);
        self.process.store(std::process::id(), Ordering::Relaxed);
        self.rank.store(rank as u32, Ordering::Relaxed);
        self.world_size.store(world_size as u32, Ordering::Relaxed);
        self.kind.store(number, Ordering::Relaxed);
        self.host.write(&host_name());
        self.protocol.store(protocol, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Records the number of the group: the inode number of the page of rank 0.
    pub(super) fn join(&self, group: u64) {
        self.group.store(group, Ordering::Release);
    }

    /// Records that the group is open.
    pub(super) fn open(&self) {
        self.opened_ns.store(now_ns(), Ordering::Release);
    }

    /// Records the name of the parallel group and the world rank of each rank.
    pub(super) fn call(&self, name: &str, world: &[usize]) {
        for (kept, rank) in self.world.iter().zip(world) {
            kept.store(u32::try_from(*rank).map_or(0, |rank| rank.saturating_add(1)), Ordering::Relaxed);
        }
        self.name.write(name);
    }
}

#[cfg(test)]
#[path = "../../tests/unit/group/identity.rs"]
mod tests;
