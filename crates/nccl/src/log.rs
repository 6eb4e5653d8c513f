//! Lines for people, which `NCCL_DEBUG` turns on, in the file that `NCCL_DEBUG_FILE` names.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::variables::{own, variable};

/// How much of the log is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LogLevel {
    Unread = 0,
    Silent = 1,
    Warn = 2,
    Info = 3,
}

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Unread as u8);

/// Reads the variables of the log again.
pub(crate) fn reset() {
    let level = match variable("NCCL_DEBUG").map(|value| value.to_ascii_uppercase()).as_deref() {
        Some("WARN") => LogLevel::Warn,
        Some("INFO" | "TRACE" | "ABORT") => LogLevel::Info,
        _ => LogLevel::Silent,
    };
    LEVEL.store(level as u8, Ordering::Relaxed);
}

fn has(level: LogLevel) -> bool {
    if LEVEL.load(Ordering::Relaxed) == LogLevel::Unread as u8 {
        reset();
    }
    LEVEL.load(Ordering::Relaxed) >= level as u8
}

pub(crate) fn is_info() -> bool {
    has(LogLevel::Info)
}

pub(crate) fn is_warn() -> bool {
    has(LogLevel::Warn)
}

fn write(line: &str) {
    let pid = std::process::id();
    let line = format!("symmetra-nccl[{pid}]: {line}\n");
    let file = variable("NCCL_DEBUG_FILE").and_then(|path| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let path = path.replace("%h", host.trim()).replace("%p", &pid.to_string());
        OpenOptions::new().create(true).append(true).open(path).ok()
    });
    // A log that cannot be written fails no call.
    let _ = match file {
        Some(mut file) => file.write_all(line.as_bytes()),
        None => std::io::stderr().write_all(line.as_bytes()),
    };
}

/// Writes a line about the birth of a communicator. `SYMMETRA_NCCL_LOG=calls` asks for these lines too.
pub(crate) fn birth(line: &str) {
    if is_info() || own("LOG").is_some_and(|value| value == "calls") {
        write(line);
    }
}

/// Writes a line that the levels WARN and above have.
pub(crate) fn warn(line: &str) {
    if is_warn() {
        write(line);
    }
}

/// Writes a line about a failed communicator, at every level.
pub(crate) fn failure(line: &str) {
    write(line);
}
