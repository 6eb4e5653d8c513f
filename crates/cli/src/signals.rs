//! Signals that ask a command to end.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Keeps these signals from ending this process. The caller reads them instead.
pub(crate) fn watched() -> Result<Signals, Failure> {
    // Ranks inherit which signals this process ignores, as under `nohup`.
    let ignored = ignored();
    let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    Signals::new(watched).map_err(Failure::doing("watch for signals"))
}

/// The signals that this process was started to ignore, a bit each from the lowest; none where the system does
/// not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
