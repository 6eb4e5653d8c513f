//! The files that remain when a signal ends a command, and their removal by the next command.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, inotify, mknodat};
use rustix::process::{Signal, kill_process, kill_process_group};

use super::files::{Shards, npy, split_npy};
use super::{children, command, is_alive, pid, wait_until};

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The files that are made in a folder, also if they last only for a moment.
struct Made(OwnedFd);

impl Made {
    fn within(folder: &Path) -> Self {
        let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, folder, inotify::WatchFlags::CREATE).unwrap();
        Self(events)
    }

    /// Waits for the first; fails after half a minute.
    fn wait(&self) {
        let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
        let made = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(made, 1, "nothing was made in 30 s");
    }
}

/// Ranks of a long sweep, with a directory for temporary files of their own.
fn sweep(temporary: &Path) -> Child {
    let mut run = command(["all-reduce", "--device", "host", "-n", "4", "--iterations", "100000"]);
    run.env("TMPDIR", temporary).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let made = Made::within(temporary);
    let run = run.spawn().unwrap();
    made.wait();
    run
}

#[test]
fn a_signal_to_end_leaves_nothing_whenever_it_comes() {
    for (round, delay_ms) in [0, 1, 3, 10, 20, 40, 80, 160, 320, 640].into_iter().enumerate() {
        let temporary = tempfile::tempdir().unwrap();
        let run = sweep(temporary.path());
        std::thread::sleep(Duration::from_millis(delay_ms));
        // From a terminal every process gets the signal, from elsewhere the command alone. Not SIGINT, which programs that
        // run in the background may ignore from their start.
        match round % 2 {
            0 => kill_process_group(pid(&run), Signal::TERM).unwrap(),
            _ => kill_process(pid(&run), Signal::TERM).unwrap(),
        }
        let end = run.wait_with_output().unwrap();
        assert_eq!(end.status.signal(), Some(Signal::TERM.as_raw()), "after {delay_ms} ms: {end:?}");
        assert_eq!(names(temporary.path()), [""; 0], "after {delay_ms} ms");
    }
}

#[test]
fn what_a_killed_command_left_is_swept_by_the_next() {
    let temporary = tempfile::tempdir().unwrap();
    let own = temporary.path().join("symmetra-ranks-results");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("precious"), "1").unwrap();
    let mut run = command(["all-reduce", "--device", "host", "-n", "4", "--iterations", "100000"]);
    run.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let made = Made::within(temporary.path());
    let mut run = run.spawn().unwrap();
    made.wait();
    let ranks = children(pid(&run));
    run.kill().unwrap();
    run.wait().unwrap();
    wait_until("the end of the ranks", || !ranks.iter().any(|rank| is_alive(*rank)));
    let mut next = command(["all-reduce", "--device", "host", "-n", "2", "--max-bytes", "1KiB"]);
    let next = next.env("TMPDIR", temporary.path()).output().unwrap();
    assert!(next.status.success(), "{next:?}");
    assert_eq!(names(temporary.path()), ["symmetra-ranks-results"]);
    assert_eq!(fs::read_to_string(own.join("precious")).unwrap(), "1");
}

#[test]
fn the_unfinished_output_of_a_killed_command_is_swept_by_the_next() {
    let array = |value: i32| npy("<i4", false, "()", &value.to_le_bytes());
    let shards = Shards::new("npy", &[]);
    mknodat(CWD, shards.path("0"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let start = || {
        let mut run = command(["all-reduce", "--device", "host", "--ranks-as", "threads", "--input"]);
        let run = run.arg(shards.path("{rank}")).arg("--output").arg(shards.path("sum")).spawn().unwrap();
        // For the command, which reads the header; the rank waits for more from a writer that stays silent.
        let mut writer = fs::File::options().write(true).open(shards.path("0")).unwrap();
        writer.write_all(&npy("<i4", false, "()", &[])).unwrap();
        (run, writer)
    };
    let folder = shards.directory.path();
    let (mut killed, writer) = start();
    wait_until("the start of the sum", || names(folder).len() == 2);
    killed.kill().unwrap();
    killed.wait().unwrap();
    // The next finds an empty pipe.
    drop(writer);
    let left = names(folder).into_iter().find(|name| name.ends_with(".unfinished")).unwrap();

    // One that lives keeps its file.
    let (mut living, _writer) = start();
    wait_until("the start of the next sum", || !names(folder).contains(&left) && names(folder).len() == 2);
    let kept = names(folder).into_iter().find(|name| name.ends_with(".unfinished")).unwrap();
    let other = Shards::new("npy", &[array(40), array(2)]);
    other.reduce_into(&shards.path("other"), &[]).ok();
    assert_eq!(split_npy(&fs::read(shards.path("other")).unwrap()).1, 42i32.to_le_bytes());
    assert!(names(folder).contains(&kept), "{:?}", names(folder));
    living.kill().unwrap();
    living.wait().unwrap();
}
