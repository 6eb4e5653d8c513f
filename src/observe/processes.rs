//! The processes of this host that have control pages or files of meetings open, as `/proc` shows them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, read_dir, read_link, read_to_string};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Serialize;

use crate::bootstrap::host::namespace_of;
use crate::bootstrap::shown::MEETING_NAME;
use crate::group::PAGE_NAME;

/// The inode number of the first PID namespace, in which all processes of the host are visible.
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// Whether the process of a rank runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProcessState {
    /// The process runs or sleeps.
    Running,
    /// A signal or a debugger has stopped the process.
    Stopped,
    /// The process has ended.
    Ended,
    /// The process runs in a PID namespace that this process does not see, or has ended there.
    Unseen,
}

/// A process that has files of ranks open.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) process: u32,
    pub(super) parent: u32,
    /// The number of the process in its own PID namespace.
    inner: u32,
    namespace: Option<u64>,
    stopped: bool,
}

/// A file of a rank, open for reading, and the processes that have the file open.
pub(super) struct OpenPage {
    pub(super) file: File,
    pub(super) holders: Vec<Holder>,
}

/// All files of ranks that this process may open, by device and inode number.
#[derive(Default)]
pub(super) struct HostPages {
    /// Control pages.
    pub(super) pages: BTreeMap<[u64; 2], OpenPage>,
    /// Files of ranks that have no group yet.
    pub(super) meetings: BTreeMap<[u64; 2], OpenPage>,
    /// The number of processes whose files the kernel does not show to this user.
    pub(super) refused: usize,
}

impl HostPages {
    /// Reads the files of all processes. A process that ends meanwhile has none.
    pub(super) fn look() -> std::io::Result<Self> {
        let mut host = Self::default();
        for entry in read_dir("/proc")? {
            let Ok(entry) = entry else { continue };
            if let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                host.add(process);
            }
        }
        Ok(host)
    }

    fn add(&mut self, process: u32) {
        let links = match links_of_ranks(process) {
            Ok(links) => links,
            Err(error) => return self.refused += usize::from(error.kind() == ErrorKind::PermissionDenied),
        };
        let mut holder = None;
        for (path, is_meeting) in links {
            let files = if is_meeting { &mut self.meetings } else { &mut self.pages };
            let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits();
            let Ok(file) = OpenOptions::new().read(true).custom_flags(flags as i32).open(&path) else { continue };
            let Ok(about) = file.metadata() else { continue };
            let Some(holder) = holder.get_or_insert_with(|| Holder::look(process)) else { continue };
            let found = files.entry([about.dev(), about.ino()]);
            let holders = &mut found.or_insert_with(|| OpenPage { file, holders: Vec::new() }).holders;
            if holders.iter().all(|known| known.process != process) {
                holders.push(holder.clone());
            }
        }
    }

    /// The process, as this process sees it, that is number `inner` in a PID namespace, and its state.
    pub(super) fn owner(&self, found: &OpenPage, [namespace, inner]: [u64; 2]) -> (Option<u32>, ProcessState) {
        match found.holder([namespace, inner]) {
            Some(Holder { process, stopped: true, .. }) => (Some(*process), ProcessState::Stopped),
            Some(Holder { process, .. }) => (Some(*process), ProcessState::Running),
            None if namespace_of("self") == Some(namespace) => {
                let process = u32::try_from(inner).ok();
                (process, process.map_or(ProcessState::Ended, |process| found.state_of_owner(process)))
            }
            // The owner would be among the holders.
            None if self.sees(namespace) => (None, ProcessState::Ended),
            None => (None, ProcessState::Unseen),
        }
    }

    /// Whether the processes of all PID namespaces are visible.
    pub(super) fn sees_all() -> bool {
        namespace_of("self") == Some(FIRST_NAMESPACE)
    }

    /// Whether all processes of a namespace are visible.
    fn sees(&self, namespace: u64) -> bool {
        let seen = |holder: &Holder| holder.namespace == Some(namespace);
        let holders = self.pages.values().chain(self.meetings.values()).flat_map(|found| &found.holders);
        Self::sees_all() || namespace_of("self") == Some(namespace) || holders.into_iter().any(seen)
    }
}

impl OpenPage {
    /// The process that is number `inner` in a PID namespace, if it has the file open.
    fn holder(&self, [namespace, inner]: [u64; 2]) -> Option<&Holder> {
        let owns = |holder: &&Holder| u64::from(holder.inner) == inner && holder.namespace == Some(namespace);
        self.holders.iter().find(owns)
    }

    /// The state of the process that made the file, and was not among the processes that have the file open. The kernel may
    /// not show its files, or it made the file after its files were read.
    fn state_of_owner(&self, process: u32) -> ProcessState {
        match stat(process) {
            // Another process may have the number of one that has ended.
            Some((state, _)) if self.is_open_in(process) != Some(false) => state,
            _ => ProcessState::Ended,
        }
    }

    /// Whether a process has the file open; `None` if the kernel does not show the files of the process.
    fn is_open_in(&self, process: u32) -> Option<bool> {
        let own = self.file.metadata().ok()?;
        let is_own =
            |path: &Path| path.metadata().is_ok_and(|other| [other.dev(), other.ino()] == [own.dev(), own.ino()]);
        match links_of_ranks(process) {
            Ok(mut links) => Some(links.any(|(path, _)| is_own(&path))),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
            Err(_) => Some(false),
        }
    }

    /// The number of that process, as this process sees it, or else in its own namespace.
    pub(super) fn process(&self, [namespace, inner]: [u64; 2]) -> u64 {
        self.holder([namespace, inner]).map_or(inner, |holder| holder.process.into())
    }

    /// The parent of a process that has the file open; 0: unknown.
    pub(super) fn parent_of(&self, process: Option<u32>) -> u32 {
        self.holders.iter().find(|holder| Some(holder.process) == process).map_or(0, |holder| holder.parent)
    }
}

impl Holder {
    /// `None` if the process has ended.
    fn look(process: u32) -> Option<Self> {
        let (state, parent) = stat(process)?;
        let status = read_to_string(format!("/proc/{process}/status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let inner = numbers.and_then(|numbers| numbers.split_whitespace().next_back()?.parse().ok()).unwrap_or(process);
        let namespace = namespace_of(&process.to_string());
        Some(Self { process, parent, inner, namespace, stopped: state == ProcessState::Stopped })
    }

    /// Whether `ancestor` is the process or started it, directly or not.
    pub(super) fn descends_from(&self, ancestor: u32) -> bool {
        let (mut process, mut parent) = (self.process, self.parent);
        // Longer chains do not occur; a chain that changes meanwhile may be a circle.
        for _ in 0..64 {
            if process == ancestor {
                return true;
            }
            process = parent;
            match stat(process) {
                Some((_, next)) if process > 1 => parent = next,
                _ => break,
            }
        }
        false
    }
}

/// The state and the parent of a process; `None` if there is no such process.
pub(super) fn stat(process: u32) -> Option<(ProcessState, u32)> {
    let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain any character.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = match words.next()? {
        // Zombies, whose parents have not waited for them.
        "Z" | "X" => ProcessState::Ended,
        "T" | "t" => ProcessState::Stopped,
        _ => ProcessState::Running,
    };
    Some((state, words.next()?.parse().ok()?))
}

/// The state of process `inner` of a PID namespace, as far as this process sees that namespace as its own.
pub(super) fn state_of((namespace, inner): (u64, u32)) -> ProcessState {
    if namespace_of("self") != Some(namespace) {
        return ProcessState::Unseen;
    }
    stat(inner).map_or(ProcessState::Ended, |(state, _)| state)
}

/// The links of `/proc` to the files of ranks that a process has open, each with whether the file is that of a meeting. No other
/// file is touched: it may be on a file system that does not answer.
fn links_of_ranks(process: u32) -> std::io::Result<impl Iterator<Item = (PathBuf, bool)>> {
    let links = read_dir(format!("/proc/{process}/fd"))?.flatten().map(|link| link.path());
    Ok(links.filter_map(|path| {
        let target = read_link(&path).ok()?;
        let is_meeting = match name_in_memory(target.to_str()?)? {
            PAGE_NAME => false,
            MEETING_NAME => true,
            _ => return None,
        };
        is_writable(&path).then_some((path, is_meeting))
    }))
}

/// Whether a link of `/proc/PID/fd` leads to a file that is open for writing. Ranks open their files for reading and
/// writing, processes that observe the ranks for reading alone.
fn is_writable(link: &Path) -> bool {
    link.symlink_metadata().is_ok_and(|about| about.mode() & 0o200 != 0)
}

/// The name of a file in memory, as a link of `/proc` shows it.
fn name_in_memory(target: &str) -> Option<&str> {
    target.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")
}
