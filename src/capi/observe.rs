//! Times of calls, running groups and records.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use cxx::CxxString;

use super::Report;
use super::report::guard;
use crate::collective::Communicator;
use crate::error::Error;
use crate::observe::{self, CallTimes};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    struct Wait {
        rank: usize,
        share: f64,
        mean_us: f64,
    }

    struct Times {
        operation: String,
        /// Empty: none.
        algorithm: String,
        up_to_bytes: u64,
        calls: u64,
        median_us: f64,
        p99_us: f64,
        total_us: f64,
        /// Below 0: none.
        busbw_gbps: f64,
        waits: Vec<Wait>,
        attributed: f64,
    }

    struct AllTimes {
        calls: Vec<Times>,
        unlabelled: u64,
    }

    unsafe extern "C++" {
        include!("symmetra/src/capi/mod.rs.h");

        type Communicator = crate::collective::Communicator;
    }

    extern "Rust" {
        fn communicator_timings(communicator: &Communicator) -> Result<AllTimes>;
        fn communicator_dump(communicator: &Communicator, folder: &CxxString) -> Result<String>;
        fn observe_look(process: u32) -> Result<String>;
        fn observe_dump_all(folder: &CxxString) -> Result<Vec<String>>;
        fn observe_dump_on(signal: i32, folder: &CxxString) -> Result<()>;
    }
}

fn communicator_timings(communicator: &Communicator) -> Result<bridge::AllTimes, Report> {
    guard(|| {
        let timings = communicator.timings()?;
        Ok(bridge::AllTimes { calls: timings.calls.into_iter().map(times).collect(), unlabelled: timings.unlabelled })
    })
}

fn times(of: CallTimes) -> bridge::Times {
    let wait = |wait: &observe::ShareOfWait| bridge::Wait { rank: wait.rank, share: wait.share, mean_us: wait.mean_us };
    bridge::Times {
        operation: of.operation,
        algorithm: of.algorithm.unwrap_or_default().to_owned(),
        up_to_bytes: of.up_to_bytes,
        calls: of.calls,
        median_us: of.median_us,
        p99_us: of.p99_us,
        total_us: of.total_us,
        busbw_gbps: of.busbw_gbps.unwrap_or(-1.0),
        waits: of.waits.iter().map(wait).collect(),
        attributed: of.attributed,
    }
}

fn communicator_dump(communicator: &Communicator, folder: &CxxString) -> Result<String, Report> {
    guard(|| communicator.dump(OsStr::from_bytes(folder.as_bytes())).map(|path| path.to_string_lossy().into_owned()))
}

/// Process 0 means all processes.
fn observe_look(process: u32) -> Result<String, Report> {
    guard(|| {
        let snapshot = observe::look((process != 0).then_some(process))?;
        serde_json::to_string(&snapshot).map_err(|error| Error::internal(format!("a look as JSON: {error}")))
    })
}

fn observe_dump_all(folder: &CxxString) -> Result<Vec<String>, Report> {
    let paths = guard(|| observe::dump_all(OsStr::from_bytes(folder.as_bytes())))?;
    Ok(paths.iter().map(|path| path.to_string_lossy().into_owned()).collect())
}

fn observe_dump_on(signal: i32, folder: &CxxString) -> Result<(), Report> {
    guard(|| observe::dump_on(signal, OsStr::from_bytes(folder.as_bytes())))
}
