//! Resources of this process, as the system reports them.

use std::fs;
use std::ops::Range;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::device::is_host;
use super::world::Rank;

/// Number of open descriptors, without the descriptor that this function opens to count them.
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

pub fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Total bytes of mappings whose line contains `name`.
pub fn mapped_bytes(name: &str) -> usize {
    spans(name).iter().map(Range::len).sum()
}

/// Whether a memory file is mapped at this address.
pub fn is_mapped(address: usize) -> bool {
    spans("memfd:").iter().any(|span| span.contains(&address))
}

/// Address ranges of mappings whose line contains `name`.
fn spans(name: &str) -> Vec<Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let span = |line: &str| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap()
    };
    maps.lines().filter(|line| line.contains(name)).map(span).collect()
}

pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Resident memory in KiB.
pub fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub struct Usage {
    descriptors: usize,
    mappings: usize,
    resident_kib: usize,
}

impl Usage {
    /// Measured on rank 0 while no rank is active. `None` on other ranks, and on GPUs, whose drivers hold memory of
    /// their own. Collective.
    pub fn of(rank: &Rank) -> Option<Self> {
        rank.finish();
        rank.communicator.group().barrier().unwrap();
        let usage = (rank.rank() == 0 && is_host()).then(Self::now);
        rank.communicator.group().barrier().unwrap();
        usage
    }

    pub fn now() -> Self {
        Self { descriptors: descriptors(), mappings: mappings(), resident_kib: resident_kib() }
    }

    /// Asserts that nothing has grown, except for memory that the allocator and the test harness may keep.
    pub fn assert_flat(&self, before: &Self) {
        assert_eq!(self.descriptors, before.descriptors, "descriptors");
        assert!(self.mappings <= before.mappings + 8, "mappings: {}, before {}", self.mappings, before.mappings);
        let limit = before.resident_kib + 4096;
        assert!(self.resident_kib <= limit, "resident KiB: {}, before {}", self.resident_kib, before.resident_kib);
    }
}

/// Free memory of this rank's GPU while no rank is active. `None` on the CPU and without the feature `cudarc`.
/// Collective.
pub fn free_device_bytes(rank: &Rank) -> Option<usize> {
    rank.finish();
    rank.communicator.group().barrier().unwrap();
    let free = if is_host() { None } else { ask_free_bytes(rank) };
    rank.communicator.group().barrier().unwrap();
    free
}

#[cfg(feature = "cudarc")]
fn ask_free_bytes(rank: &Rank) -> Option<usize> {
    let context = cudarc::driver::CudaContext::new(rank.device.ordinal() as usize).unwrap();
    Some(context.mem_get_info().unwrap().0)
}

#[cfg(not(feature = "cudarc"))]
fn ask_free_bytes(_: &Rank) -> Option<usize> {
    None
}

/// Asserts that the GPU has as much free memory as before, except for one piece by which its driver grows.
pub fn assert_device_flat(before: Option<usize>, after: Option<usize>) {
    const PIECE_BYTES: usize = 2 << 20;
    if let (Some(before), Some(after)) = (before, after) {
        assert!(after + PIECE_BYTES > before, "{after} bytes of the GPU are free, before {before}");
    }
}
