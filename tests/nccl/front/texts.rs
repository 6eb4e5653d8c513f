//! The texts of failures: those of `ncclGetLastError`, of the log of `NCCL_DEBUG` and of `symmetra status` have the same words.

use std::ffi::c_int;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use symmetra::observe::look;

use crate::library::{self, Id, last_error, ok};
use crate::values::Memory;
use crate::world::{Rank, open, unique_id};

/// The rank and the digits of the id, for the processes of a test.
const CASE: &str = "SYMMETRA_TEST_NCCL_TEXTS";
const F32: c_int = 7;

fn all_reduce(rank: Rank, count: usize) -> c_int {
    let mut buffer = Memory::new(F32, &vec![1.0; count]);
    library::ncclAllReduce(buffer.start(), buffer.start(), count, F32, 0, rank.comm, 0)
}

fn async_code(rank: Rank) -> c_int {
    let mut code = -1;
    ok(library::ncclCommGetAsyncError(rank.comm, &raw mut code));
    code
}

/// A process of a test. A line of its input is a number of elements to reduce, or `poll`. The process answers with the code of
/// the call and the text of the last failure.
#[test]
fn rank_that_calls() {
    let Ok(case) = std::env::var(CASE) else { return };
    let (rank, digits) = case.split_once(' ').unwrap();
    let id: Id = std::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap());
    let rank = open(id, rank.parse().unwrap(), 2);
    let answer = |code: c_int| writeln!(std::io::stdout(), "\nanswer {code} {}", last_error()).unwrap();
    answer(0);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        answer(line.parse().map_or_else(|_| async_code(rank), |count| all_reduce(rank, count)));
    }
}

/// A process that runs [`rank_that_calls`].
struct Process {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// The two ranks of a communicator, which have made call 1.
    fn pair(variables: &[(&str, &str)]) -> [Self; 2] {
        let digits: String = unique_id().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut processes = [0, 1].map(|rank| Self::start(&format!("{rank} {digits}"), variables));
        processes.iter_mut().for_each(|process| process.ask("1"));
        for process in &mut processes {
            // The first answer is that of the opening.
            assert_eq!([process.answer().0, process.answer().0], [0, 0]);
        }
        processes
    }

    fn start(case: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "texts::rank_that_calls", "--nocapture"]).env(CASE, case);
        command.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, lines: BufReader::new(output).lines() }
    }

    fn ask(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The code and the text of the last call.
    fn answer(&mut self) -> (c_int, String) {
        let answer = |line: String| {
            let (code, text) = line.strip_prefix("answer ")?.split_once(' ')?;
            Some((code.parse().unwrap(), text.to_owned()))
        };
        self.lines.by_ref().map_while(Result::ok).find_map(answer).expect("the process ended")
    }

    fn signal(&self, signal: c_int) {
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The words of `symmetra status` about the group of a process.
fn status(process: &Process) -> (String, Vec<usize>) {
    let groups = look(Some(process.child.id())).unwrap().groups;
    let [group] = &groups[..] else { panic!("{groups:?}") };
    (group.verdict.words.clone(), group.verdict.culprits.clone())
}

/// Checks that polls and later calls of a process repeat a text, and that the log has it. `text` is that of the failed call.
fn repeats(process: &mut Process, (code, text): (c_int, &str), log: &Path) {
    let error = text.strip_prefix("ncclAllReduce: ").unwrap();
    for (call, function) in
        [("poll", "ncclCommGetAsyncError"), ("1", "ncclAllReduce"), ("poll", "ncclCommGetAsyncError")]
    {
        process.ask(call);
        assert_eq!(process.answer(), (code, format!("{function}: {error}")));
    }
    let lines = std::fs::read_to_string(log).unwrap();
    assert_eq!(lines.matches(&format!("symmetra-nccl[{}]: rank ", process.child.id())).count(), 1, "{lines}");
    assert!(lines.contains(&format!(" of 2: {error}\n")), "{lines}");
}

/// A rank that is stopped, until the deadline of the other rank.
#[test]
fn a_stopped_rank_is_named_in_every_text() {
    let folder = tempfile::tempdir().unwrap();
    for level in ["WARN", "INFO"] {
        let log = folder.path().join(level);
        let file = ("NCCL_DEBUG_FILE", log.to_str().unwrap());
        let [mut zero, one] = Process::pair(&[("SYMMETRA_NCCL_TIMEOUT_S", "5"), ("NCCL_DEBUG", level), file]);
        one.signal(libc::SIGSTOP);
        zero.ask("1");
        let (code, text) = zero.answer();
        assert!(code == 6 && text.contains(" 2: timed out after 5 s waiting for rank 1: "), "{text}");
        let (_, verdict) = text.rsplit_once("; ").unwrap();
        let stopped = format!("rank 1 (process {} is stopped)", one.child.id());
        let words = format!("{stopped} has not made all-reduce 2, for which rank 0 has waited 5.");
        assert!(verdict.starts_with(&words), "{text}");
        repeats(&mut zero, (code, &text), &log);
        let (words, culprits) = status(&zero);
        assert!(words.starts_with("the group has failed: ") && words.ends_with(verdict), "{words} is not {verdict}");
        assert_eq!(culprits, [1]);
    }
}

#[test]
fn a_killed_rank_is_named_in_every_text() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let [mut zero, mut one] = Process::pair(&[("NCCL_DEBUG", "WARN"), ("NCCL_DEBUG_FILE", log.to_str().unwrap())]);
    zero.ask("1");
    std::thread::sleep(Duration::from_millis(500));
    one.child.kill().unwrap();
    one.child.wait().unwrap();
    let (code, text) = zero.answer();
    assert!(code == 6 && text.starts_with("ncclAllReduce: rank 1 is gone: "), "{text}");
    let (_, verdict) = text.rsplit_once("; ").unwrap();
    let words = format!(
        "rank 1 (process {} has ended) has not made all-reduce 2, for which rank 0 has waited ",
        one.child.id()
    );
    assert!(verdict.starts_with(&words), "{text}");
    repeats(&mut zero, (code, &text), &log);
    assert_eq!(status(&zero), (format!("the group has failed: {}", &text["ncclAllReduce: ".len()..]), vec![1]));
}

/// The text of each rank has both calls. The ranks waited in vain, and no wait is named.
#[test]
fn calls_that_differ_are_in_every_text() {
    let folder = tempfile::tempdir().unwrap();
    for level in ["WARN", "INFO"] {
        let log = folder.path().join(level);
        let mut processes = Process::pair(&[("NCCL_DEBUG", level), ("NCCL_DEBUG_FILE", log.to_str().unwrap())]);
        processes[0].ask("1");
        processes[1].ask("2");
        for ((rank, process), other) in processes.iter_mut().enumerate().zip([1, 0]) {
            let (code, text) = process.answer();
            // Each rank compares its own call with that of the other rank, unless the other rank found the difference.
            let found = [[rank, other], [other, rank]].map(|[one, two]| {
                let [own, theirs] =
                    [one, two].map(|rank| format!("all-reduce (sum) of {} bytes of f32 ", 4 * (rank + 1)));
                let ranks = format!("ncclAllReduce: ranks {one} and {two} disagree on ");
                text.starts_with(&ranks) && text.split_once(&own).is_some_and(|(_, rest)| rest.contains(&theirs))
            });
            assert!(code == 5 && found.contains(&true) && !text.contains("waited"), "{text}");
            repeats(process, (code, &text), &log);
            let (words, _) = status(process);
            assert!(words.starts_with("the group has failed: ranks ") && !words.contains("waited"), "{words}");
        }
    }
}
