//! The log: the messages of the library for people.
//!
//! [`log!`](crate::log!) makes each line an event of `tracing`. If no subscriber is in force, the line goes to the
//! program's sink, else to standard error. The library installs no subscriber: a program can install its own at any
//! time.

use std::ffi::OsStr;
use std::fmt::{self, Arguments};
use std::io::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
pub(crate) use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;

/// The variable with the level of lines that no subscriber receives.
const VARIABLE: &str = "SYMMETRA_LOG";
const DEFAULT: LevelFilter = LevelFilter::WARN;

/// Logs a line: `log!(WARN, "{path} is left: {error}")`. The level is `ERROR`, `WARN`, `INFO` or `DEBUG`; the rest is
/// as in `format!`.
#[doc(hidden)]
#[macro_export]
macro_rules! log {
    ($level:ident, $($words:tt)+) => {
        match format_args!($($words)+) {
            words => {
                $crate::internal::tracing::event!($crate::internal::tracing::Level::$level, "{words}");
                let level = $crate::internal::tracing::Level::$level;
                $crate::internal::without_subscriber(level, module_path!(), words);
            }
        }
    };
}

/// One line of the log.
pub(crate) struct Line<'a> {
    pub(crate) level: Level,
    /// The module that logs.
    pub(crate) origin: &'a str,
    pub(crate) text: &'a str,
}

/// The program's sink for lines that no subscriber receives. Any thread may call a sink.
pub(crate) type Sink = Arc<dyn Fn(&Line<'_>) + Send + Sync>;

static SINK: RwLock<Option<Sink>> = RwLock::new(None);
static LIMIT: OnceLock<LevelFilter> = OnceLock::new();

/// Replaces the sink; `None` means standard error. A call of the previous sink may still run on another thread.
pub(crate) fn set_sink(sink: Option<Sink>) {
    // Dropped without the lock: the contents of a sink belong to the program, and dropping them may log.
    let before = std::mem::replace(&mut *SINK.write(), sink);
    drop(before);
}

/// Receives a line that was offered to `tracing`. Drops the line if a subscriber is in force on this thread.
pub fn without_subscriber(level: Level, origin: &str, words: Arguments<'_>) {
    let alone = tracing::dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>());
    if alone && level <= limit() {
        deliver(&Line { level, origin, text: &words.to_string() });
    }
}

/// The most detailed level that is delivered.
fn limit() -> LevelFilter {
    if let Some(limit) = LIMIT.get() {
        return *limit;
    }
    let (limit, complaint) = read(std::env::var_os(VARIABLE).as_deref());
    if LIMIT.set(limit).is_ok()
        && let Some(text) = complaint
    {
        deliver(&Line { level: Level::WARN, origin: module_path!(), text: &text });
    }
    limit
}

/// The level in the text of the variable. An invalid text gives the default level and a complaint.
fn read(text: Option<&OsStr>) -> (LevelFilter, Option<String>) {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return (DEFAULT, None) };
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let known = text.to_str().map(|text| text.trim().to_lowercase()).filter(|text| levels.contains(&text.as_str()));
    match known.and_then(|text| text.parse().ok()) {
        Some(limit) => (limit, None),
        None => {
            let levels = levels.join(", ");
            (DEFAULT, Some(format!("{VARIABLE} is {text:?} and has no effect: it must be one of {levels}")))
        }
    }
}

fn deliver(line: &Line<'_>) {
    let sink = SINK.read().clone();
    match sink {
        Some(sink) => sink(line),
        // One write, so that lines of several processes do not mix. A failure of the write cannot be reported anywhere.
        None => drop(std::io::stderr().write_all(written(line, SystemTime::now()).as_bytes())),
    }
}

/// A line for standard error: the time of day in UTC, and the process, because ranks often share a terminal.
fn written(line: &Line<'_>, now: SystemTime) -> String {
    let Line { level, origin, text } = line;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (now.as_secs() % 86_400, now.subsec_millis());
    let [hour, minute, second] = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    let process = std::process::id();
    format!("{hour:02}:{minute:02}:{second:02}.{millis:03}Z {level} {origin}[{process}]: {text}\n")
}

/// A duration in a message, with at least two digits: `1.3 s`, `30 s`, `250 ms`.
pub(crate) struct Rounded(pub(crate) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0.as_secs_f64() {
            seconds if seconds >= 1.0 => (seconds, "s"),
            seconds if seconds >= 1e-3 => (seconds * 1e3, "ms"),
            seconds => (seconds * 1e6, "us"),
        };
        let whole = value >= 10.0 || (value * 10.0).round() % 10.0 == 0.0;
        write!(out, "{value:.0$} {unit}", usize::from(!whole))
    }
}

#[cfg(test)]
#[path = "../tests/unit/log.rs"]
mod tests;
