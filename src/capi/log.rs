//! The log of a C++ program.

use std::sync::Arc;

use cxx::UniquePtr;

use crate::log::{self, Level};
use bridge::LogSink;

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    unsafe extern "C++" {
        include!("symmetra/cpp/core/log_sink.hpp");

        type LogSink;
        fn write(self: &LogSink, level: u32, origin: &str, text: &str) -> Result<()>;
    }

    extern "Rust" {
        fn log_set(sink: UniquePtr<LogSink>);
    }
}

// SAFETY: the header requires a function that any thread may call, destroy included.
unsafe impl Send for LogSink {}
// SAFETY: the header requires a function that several threads may call at once.
unsafe impl Sync for LogSink {}

/// Null means standard error.
fn log_set(sink: UniquePtr<LogSink>) {
    log::set_sink((!sink.is_null()).then(|| -> log::Sink {
        Arc::new(move |line| {
            // An exception belongs to the program, and a log cannot report it.
            let _ = sink.write(number(line.level), line.origin, line.text);
        })
    }));
}

/// The number of a `symmetra::LogLevel`.
fn number(level: Level) -> u32 {
    match level {
        Level::ERROR => 0,
        Level::WARN => 1,
        Level::INFO => 2,
        _ => 3,
    }
}
