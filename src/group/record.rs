//! The history of a rank as a file, for the time after the end of the job.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::control_page::PageMapping;
use super::history::ENTRIES;
use super::open::DUMP;
use super::seen::Seen;
use super::{EnqueuedCall, Health, MAX_WORLD_SIZE};
use crate::bootstrap::host::{boot_id, now_ns};
use crate::error::{Error, Operation, Result};

/// How long a record waits for the kernels of a group that was stopped.
const GIVES_UP: Duration = Duration::from_millis(20);

/// The version of the format.
const VERSION: u32 = 1;

/// The number of files that this process has begun to write: two threads may write the record of one rank.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// The history of a rank when it was written, from a file of the folder that [`Communicator::dump`](crate::Communicator::dump)
/// or `SYMMETRA_DUMP` names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The version of the format: 1.
    pub version: u32,
    /// The number of the group, equal on all its ranks while the host runs; 0 if the ranks had not shared their pages: the
    /// records of one opening then overlap in time.
    pub group: u64,
    /// The boot id of the host, or of the virtual machine. Groups of different boots may have equal numbers. Older files have
    /// an empty one.
    #[serde(default)]
    pub boot: String,
    /// The name of the parallel group, clipped to 64 bytes; `None` for a group without a name.
    pub name: Option<String>,
    /// The number of the rank in its group.
    pub rank: usize,
    /// The number of ranks of the group.
    pub world_size: usize,
    /// The number of the rank in the world, if the group has a name.
    pub world_rank: Option<usize>,
    /// The process of the rank, in its PID namespace.
    pub process: u32,
    /// The name of the host or container of the process.
    pub host: String,
    /// When the rank began to open the group, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// When the file was written, in nanoseconds since 1970.
    pub written_ns: u64,
    /// The rank that wrote the file: another rank of the group writes the file of a rank that is gone.
    pub by: usize,
    /// The reason for which the file was written.
    pub reason: String,
    /// The kind of the failure; `None` if the program asked for the file.
    pub failure: Option<Failed>,
    /// The rank that caused the failure, if the failure names one.
    pub culprit: Option<usize>,
    /// The number of calls that the rank had enqueued, without messages between pairs.
    pub enqueued: u64,
    /// The number of calls of pairs that the rank had enqueued.
    pub pairs: u64,
    /// The number of first calls that were known to have ended; `None` if the calls have no numbers.
    pub ended: Option<u64>,
    /// The number of the call in which the rank's device gave up; `None` if the device did not, or for work without a number.
    pub gave_up: Option<u64>,
    /// The name of the operation in which the rank's device gave up, also of work without a number; `None` if the device did
    /// not. Older files have none.
    #[serde(default)]
    pub gave_up_in: Option<String>,
    /// The number of exchanges of the host that the rank had begun: barriers, registrations, steps of opening and closing. Older
    /// files have 0.
    #[serde(default)]
    pub exchanges: u64,
    /// The name of the last exchange. Older files have none.
    #[serde(default)]
    pub last_exchange: Option<String>,
    /// Whether the rank waited in that exchange when the file was written.
    #[serde(default)]
    pub in_exchange: bool,
    /// When that wait began, in nanoseconds since 1970; 0 if the rank did not wait.
    #[serde(default)]
    pub exchange_since_ns: u64,
    /// The last wait of the rank's device that lasted longer than a millisecond.
    pub last_wait: Option<RecordedWait>,
    /// The last calls, at most 1024, in order.
    pub calls: Vec<RecordedCall>,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failed {
    /// A wait passed its deadline.
    Timeout,
    /// A rank is gone.
    PeerLost,
    /// The calls of two ranks differ.
    Mismatch,
    /// Another failure.
    Other,
}

/// A call in the history of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The number of the call in the group, from 0.
    pub number: u64,
    /// When the call was enqueued, in nanoseconds since 1970, by a clock with a resolution of some milliseconds.
    pub at_ns: u64,
    /// Whether the launch of a graph enqueued the call.
    pub graph: bool,
    /// The name of the operation.
    pub operation: String,
    /// The size of the message in bytes.
    pub bytes: u64,
    /// The element type.
    pub dtype: String,
    /// The algorithm or transport; `None` for a call without data.
    pub algorithm: Option<String>,
    /// The call with all properties that must be equal on all ranks.
    pub text: String,
}

/// A wait of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedWait {
    /// The name of the operation.
    pub operation: String,
    /// The rank for which the device waited.
    pub rank: usize,
    /// The number of calls that the device had finished.
    pub finished: u64,
    /// How long the wait had lasted when the device last wrote the time, in nanoseconds.
    pub waited_ns: u64,
}

/// The circumstances in which a record is written.
#[derive(Clone)]
struct Occasion {
    /// The rank of the record.
    rank: usize,
    world_size: usize,
    /// The rank that writes the record.
    by: usize,
    reason: String,
    failure: Option<Failed>,
    culprit: Option<usize>,
}

impl Occasion {
    /// The failure of a group, which this rank records for itself. The culprit has the number that the error has.
    fn failure(rank: usize, world_size: usize, error: &Error) -> Self {
        let (failure, culprit) = match error {
            Error::Timeout { rank, .. } => (Failed::Timeout, *rank),
            Error::PeerLost { rank, .. } => (Failed::PeerLost, Some(*rank)),
            Error::Mismatch { rank, .. } => (Failed::Mismatch, Some(*rank)),
            _ => (Failed::Other, None),
        };
        Self { rank, world_size, by: rank, reason: error.to_string(), failure: Some(failure), culprit }
    }
}

impl Record {
    /// The record of the rank of a page.
    fn new(page: &PageMapping, occasion: Occasion) -> Result<Self> {
        let seen = Seen::live(page)?;
        let Occasion { rank, world_size, by, reason, failure, culprit } = occasion;
        let (_, process) = seen.owner();
        let wait = seen.kernel_wait().map(|wait| RecordedWait {
            operation: wait.operation.map_or("?", Operation::name).to_owned(),
            rank: wait.peer,
            finished: wait.finished,
            waited_ns: wait.waited_ns,
        });
        let calls = page.history.kept().map(|(number, call, moment)| RecordedCall::new(number, call, moment));
        Ok(Self {
            version: VERSION,
            group: seen.group().unwrap_or(0),
            boot: boot_id(),
            name: Some(seen.name()).filter(|name| !name.is_empty()),
            rank,
            world_size,
            world_rank: seen.world_rank(),
            process,
            host: seen.host(),
            begun_ns: seen.begun_ns(),
            written_ns: now_ns(),
            by,
            reason,
            failure,
            culprit,
            enqueued: seen.enqueued(),
            pairs: seen.pairs(),
            ended: seen.ended(),
            gave_up: seen.gave_up(),
            gave_up_in: seen.gave_up_in().map(|operation| operation.name().to_owned()),
            exchanges: seen.host_calls(),
            last_exchange: Some(seen.last_exchange()).filter(|name| !name.is_empty()),
            in_exchange: seen.exchange_since_ns() > 0,
            exchange_since_ns: seen.exchange_since_ns(),
            last_wait: wait,
            calls: calls.collect(),
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::System`] if the file cannot be read; [`Error::InvalidArgument`] if it is no record of this version.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|error| Error::system(format!("read {}", path.display()), &error))?;
        let refused = |why: &dyn std::fmt::Display| Error::invalid("a record", path.display(), why.to_string());
        let record: Self = serde_json::from_slice(&text).map_err(|error| refused(&error))?;
        let rising = record.calls.is_sorted_by(|one, next| one.number < next.number);
        match record.version {
            VERSION if record.world_size > MAX_WORLD_SIZE || record.rank >= record.world_size => {
                Err(refused(&format!("rank {} of {}", record.rank, record.world_size)))
            }
            VERSION if record.calls.len() > ENTRIES => {
                Err(refused(&format!("the number of its calls is {}, the most is {ENTRIES}", record.calls.len())))
            }
            VERSION if !rising => Err(refused(&"the numbers of its calls do not rise")),
            VERSION => Ok(record),
            other => Err(refused(&format!("its version is {other}, this build reads {VERSION}"))),
        }
    }

    /// The name of the file in its folder.
    fn file_name(&self) -> String {
        match self.group {
            // A process may try to open several groups, as the same rank.
            0 => format!("symmetra-opening-{}-rank-{}.json", self.begun_ns, self.rank),
            // Hosts may share the folder, and a host may boot between two jobs.
            group => {
                let boot = self.boot.split('-').next().unwrap_or_default();
                format!("symmetra-group-{boot}-{group}-rank-{}.json", self.rank)
            }
        }
    }

    /// Writes the record into a folder, which is made if it is missing, and returns the path. A reader never finds half a
    /// file. An older record of the rank is replaced, unless another rank writes this one and the older has more.
    fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(self.file_name());
        if self.by != self.rank && Self::read(&path).is_ok_and(|older| older.covers(self)) {
            return Ok(path);
        }
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!(".{}-by-{}-{}-{number}", self.file_name(), self.by, std::process::id()));
        let failed = |error: std::io::Error| Error::system(format!("write {}", path.display()), &error);
        std::fs::create_dir_all(folder).map_err(failed)?;
        let file = File::create_new(&new).map_err(failed)?;
        let written = self.write_to(file).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| {
            // A file that cannot be removed has a name that no reader looks for.
            let _ = std::fs::remove_file(&new);
            failed(error)
        })?;
        Ok(path)
    }

    /// Whether this record has all that `other`, a record of the same rank, has: the rank wrote it after its failure, or
    /// another rank after the rank was gone. A record that the program asked for may be older than the last calls.
    fn covers(&self, other: &Self) -> bool {
        self.failure.is_some() && self.enqueued >= other.enqueued
    }

    fn write_to(&self, file: File) -> std::io::Result<()> {
        let mut file = BufWriter::new(file);
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.flush()
    }
}

impl RecordedCall {
    fn new(number: u64, call: EnqueuedCall, moment: u64) -> Self {
        Self {
            number,
            at_ns: moment & !1,
            graph: moment & 1 != 0,
            operation: call.operation().map_or("?", Operation::name).to_owned(),
            bytes: call.bytes,
            dtype: call.dtype_name().to_owned(),
            algorithm: call.way_name().map(str::to_owned),
            text: call.in_full(),
        }
    }
}

impl PageMapping {
    /// Records in `folder` that the group of this page, which is that of this rank, did not open. A file that cannot be written
    /// is a warning.
    pub(super) fn dump_opening(&self, rank: usize, world_size: usize, folder: &Path, error: &Error) {
        let occasion = Occasion::failure(rank, world_size, error);
        if let Err(error) = Record::new(self, occasion).and_then(|record| record.write(folder)) {
            crate::log!(WARN, "the history of rank {rank} is not recorded ({DUMP}): {error}");
        }
    }
}

impl Health {
    /// Writes the history of this rank into a folder, and returns the path of the file.
    pub(super) fn dump(&self, folder: &Path) -> Result<PathBuf> {
        let reason = "the program asked for the record".to_owned();
        let (rank, world_size) = (self.rank, self.pages.len());
        let occasion = Occasion { rank, world_size, by: rank, reason, failure: None, culprit: None };
        Record::new(&self.pages[rank], occasion)?.write(folder)
    }

    /// Writes the history of this rank, and of a rank that is gone, into the folder of `SYMMETRA_DUMP`, if the variable is set.
    /// A file that cannot be written is a warning.
    pub(super) fn dump_failure(&self, error: &Error) {
        let Some(folder) = &self.dump_folder else { return };
        let own = Occasion::failure(self.rank, self.pages.len(), error);
        // Kernels of a group that was stopped give up soon, and then their status has the call.
        let end = Instant::now() + GIVES_UP;
        while self.own().code.load(Ordering::Relaxed) == 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let gone = own.culprit.filter(|rank| own.failure == Some(Failed::PeerLost) && *rank != self.rank);
        for rank in std::iter::once(self.rank).chain(gone) {
            let Some(page) = self.pages.get(rank) else { continue };
            let occasion = Occasion { rank, ..own.clone() };
            if let Err(error) = Record::new(page, occasion).and_then(|record| record.write(folder)) {
                crate::log!(WARN, "the history of rank {rank} is not recorded ({DUMP}): {error}");
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/group/record.rs"]
mod tests;
