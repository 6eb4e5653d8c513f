//! Ranks as processes: the test executable runs itself again, for one test and one rank.
//!
//! Such a test calls [`this`] first. In a rank it gets a [`Child`] and runs the rank's part; in the test itself it
//! starts [`Ranks`] and exchanges lines of text with them. A test that measures its process calls [`apart`].

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid};
use symmetra::Config;
use symmetra::bootstrap::Local;
use tempfile::TempDir;

use super::device::is_host;
use super::world::{Rank, alone, open};

const RANK: &str = "SYMMETRA_TEST_RANK";
const WORLD: &str = "SYMMETRA_TEST_WORLD";
const DIRECTORY: &str = "SYMMETRA_TEST_DIRECTORY";
const PART: &str = "SYMMETRA_TEST_PART";
const APART: &str = "SYMMETRA_TEST_APART";
/// Prefix of lines for the test; the harness writes other lines.
const MARK: &str = "@@";
/// Longest wait for a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// A rank, seen from its own process.
pub struct Child {
    pub rank: usize,
    pub world: usize,
    /// The rank's part, as the test names it.
    pub part: String,
    directory: PathBuf,
}

/// This process, when it is a rank.
pub fn this() -> Option<Child> {
    let variable = |name: &str| std::env::var(name).ok();
    let rank = variable(RANK)?.parse().unwrap();
    // No rank outlives the test, however the test ends.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let world = variable(WORLD).unwrap().parse().unwrap();
    let directory = PathBuf::from(variable(DIRECTORY).unwrap());
    Some(Child { rank, world, part: variable(PART).unwrap(), directory })
}

/// Runs the test of this name once more, in a process in which no other test runs, and fails if that fails. True in that
/// process, whose memory is then the test's own: other tests of a process allocate also while no world of theirs is open.
pub fn apart(test: &str) -> bool {
    if std::env::var_os(APART).is_some() {
        set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        return true;
    }
    let _alone = alone();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let end = command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(APART, "1").output().unwrap();
    let [out, err] = [end.stdout, end.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(end.status.success() && out.contains("1 passed"), "{test}: {}\n{out}\n{err}", end.status);
    false
}

impl Child {
    /// The directory that the test shares with its ranks.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Meets the ranks of a new world under a name that all ranks pass.
    pub fn meet(&self, name: &str, rank: usize, world: usize) -> symmetra::Result<Local> {
        Local::connect(self.directory.join(name), rank, world, Instant::now() + PATIENCE)
    }

    /// Opens the group of all ranks.
    pub fn open(&self, config: &Config) -> Rank {
        open(self.meet("all", self.rank, self.world).unwrap(), config).unwrap()
    }

    /// Sends a line to the test.
    pub fn say(&self, words: &str) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{MARK}{}", words.replace('\n', " ")).unwrap();
        out.flush().unwrap();
    }

    /// Waits for the next line of the test.
    pub fn hear(&self) -> String {
        let mut line = String::new();
        assert!(std::io::stdin().lock().read_line(&mut line).unwrap() > 0, "the test is gone");
        line.trim().to_owned()
    }
}

/// A line of a rank and its arrival time.
pub struct Said {
    pub words: String,
    pub at: Instant,
}

/// Runs `killed`, which returns how long ranks took to learn of a death, until a run stays below a second. A busy machine may
/// hold up the ranks of one run, a defect holds up those of all three.
pub fn within_a_second(what: &str, mut killed: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < 3 {
        took.push(killed());
        if took[took.len() - 1] < Duration::from_secs(1) {
            return;
        }
    }
    panic!("{what}: learned after {took:?}");
}

/// The words of a command.
pub fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).collect()
}

/// The rank processes of one test.
pub struct Ranks {
    processes: Vec<Process>,
    directory: TempDir,
}

struct Process {
    child: std::process::Child,
    lines: Receiver<Said>,
}

impl Ranks {
    /// Starts a process per rank of `world` for the test of this name. `part` is passed to the ranks.
    pub fn start(test: &str, world: usize, part: &str) -> Self {
        Self::start_in(tempfile::Builder::new().prefix("ranks-").tempdir().unwrap(), test, world, part, |_| Vec::new())
    }

    /// Starts the processes in an existing directory, with variables for each rank.
    pub fn start_in(
        directory: TempDir,
        test: &str,
        world: usize,
        part: &str,
        variables: impl Fn(usize) -> Vec<(String, String)>,
    ) -> Self {
        Self::start_by(|_| Vec::new(), directory, test, world, part, variables)
    }

    /// Starts the process of each rank by a command that runs the command after it. Killing it must kill the rank.
    pub fn start_by(
        by: impl Fn(usize) -> Vec<String>,
        directory: TempDir,
        test: &str,
        world: usize,
        part: &str,
        variables: impl Fn(usize) -> Vec<(String, String)>,
    ) -> Self {
        let folder = directory.path().to_owned();
        Self::of(directory, world, |rank| {
            let exe = std::env::current_exe().unwrap();
            let mut words = by(rank).into_iter().map(OsString::from).chain([exe.into_os_string()]);
            let mut command = Command::new(words.next().unwrap());
            command.args(words).args([test, "--exact", "--nocapture", "--test-threads=1"]);
            command.env(RANK, rank.to_string()).env(WORLD, world.to_string()).env(PART, part);
            command.env(DIRECTORY, &folder).envs(variables(rank));
            command
        })
    }

    /// Starts a process per rank of `world`, in an existing directory.
    pub fn of(directory: TempDir, world: usize, command: impl Fn(usize) -> Command) -> Self {
        let temporary = directory.path().join("tmp");
        std::fs::create_dir_all(&temporary).unwrap();
        let start = |rank: usize| {
            let mut command = command(rank);
            command.env("TMPDIR", &temporary);
            // Settings of the test alone: a library that reads variables warns of unknown variables.
            command.env_remove("SYMMETRA_FUZZ_S").env_remove("SYMMETRA_FUZZ_SEED");
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let out = BufReader::new(child.stdout.take().unwrap());
            let (said, lines) = channel();
            std::thread::spawn(move || {
                for line in out.lines().map_while(Result::ok) {
                    if let Some((_, words)) = line.split_once(MARK) {
                        let _ = said.send(Said { words: words.to_owned(), at: Instant::now() });
                    }
                }
            });
            Process { child, lines }
        };
        Self { processes: (0..world).map(start).collect(), directory }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Waits for the next line of a rank, or returns the reason for its absence.
    pub fn listen(&self, rank: usize) -> Result<Said, RecvTimeoutError> {
        self.processes[rank].lines.recv_timeout(PATIENCE)
    }

    /// Waits for the next line of a rank.
    pub fn hear(&self, rank: usize) -> Said {
        match self.listen(rank) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) => panic!("rank {rank} said nothing for {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("rank {rank} ended without a word"),
        }
    }

    /// Waits until these ranks have sent this line.
    pub fn expect(&self, ranks: &[usize], words: &str) {
        for &rank in ranks {
            assert_eq!(self.hear(rank).words, words, "rank {rank}");
        }
    }

    pub fn tell(&mut self, ranks: &[usize], words: &str) {
        for &rank in ranks {
            let input = self.processes[rank].child.stdin.as_mut().unwrap();
            writeln!(input, "{words}").unwrap();
        }
    }

    pub fn signal(&self, rank: usize, signal: Signal) {
        kill_process(self.pid(rank), signal).unwrap();
    }

    /// Blocks until a rank's process has stopped itself.
    pub fn wait_stopped(&self, rank: usize) {
        super::world::until(PATIENCE, "the rank stops", || {
            let status = waitpid(Some(self.pid(rank)), WaitOptions::UNTRACED | WaitOptions::NOHANG).unwrap();
            status.is_some_and(|(_, status)| status.stopped())
        });
    }

    /// Blocks until a rank's process has ended, for any reason.
    pub fn wait_ended(&mut self, rank: usize) {
        let child = &mut self.processes[rank].child;
        super::world::until(PATIENCE, "the rank ends", || child.try_wait().unwrap().is_some());
    }

    fn pid(&self, rank: usize) -> Pid {
        Pid::from_child(&self.processes[rank].child)
    }

    /// Waits until these ranks' processes have ended without an error.
    pub fn finish(mut self, ranks: &[usize]) {
        for &rank in ranks {
            let child = &mut self.processes[rank].child;
            let mut ended = None;
            super::world::until(PATIENCE, "a rank ends", || {
                ended = child.try_wait().unwrap();
                ended.is_some()
            });
            assert!(ended.unwrap().success(), "rank {rank}: {}", ended.unwrap());
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for Process { child, .. } in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A CUDA_VISIBLE_DEVICES per rank: the GPUs of this machine in another order, the rank's own first.
pub fn permuted_gpus(rank: usize) -> Vec<(String, String)> {
    if is_host() {
        return Vec::new();
    }
    let all = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_else(|_| {
        let count = symmetra::Device::count(symmetra::DeviceKind::Cuda);
        (0..count).map(|gpu| gpu.to_string()).collect::<Vec<_>>().join(",")
    });
    let mut gpus: Vec<&str> = all.split(',').collect();
    gpus.rotate_left(rank);
    gpus[1..].reverse();
    vec![("CUDA_VISIBLE_DEVICES".to_owned(), gpus.join(",")), (super::device::FIRST.to_owned(), "1".to_owned())]
}
