//! What the system knows of this process.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Open descriptors, the one that counts them not among them.
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Lines of the memory map.
pub fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Mappings whose name contains `name`.
pub fn mappings_of(name: &str) -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains(name)).count()
}

/// Threads of this process.
pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Resident memory in KiB.
pub fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time of all threads so far.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
