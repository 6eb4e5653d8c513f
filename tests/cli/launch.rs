//! `launch`: any program as ranks.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use symmetra::bootstrap::Tcp;
use symmetra::{Communicator, Config, Device, Stream};

use super::{Run, children, command, is_alive, pid, symmetra, symmetra_with, wait_until};

/// Runs a shell script as ranks.
fn shell(ranks: &str, script: &str) -> Run {
    symmetra_with(&["launch", "-n", ranks, "--", "sh", "-c", script])
}

/// The lines of a rank, in order.
fn lines_of(output: &str, rank: usize) -> Vec<&str> {
    let prefix = format!("[{rank}] ");
    output.lines().filter_map(|line| line.strip_prefix(&prefix)).collect()
}

#[test]
fn ranks_get_what_torchrun_would_give_them() {
    let script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR; echo $MASTER_PORT; echo $SYMMETRA_SECRET; echo talk >&2";
    let run = shell("3", script).ok();
    let mut common = None;
    for rank in 0..3 {
        let lines = lines_of(&run.stdout, rank);
        assert_eq!(lines.len(), 3, "{}", run.stdout);
        assert_eq!(lines[0], format!("{rank} 3 {rank} 3 127.0.0.1"));
        assert!(lines[1].parse::<u16>().unwrap() > 0);
        assert!(lines[2].len() == 32 && lines[2].bytes().all(|byte| byte.is_ascii_hexdigit()), "{}", lines[2]);
        assert_eq!(*common.get_or_insert((lines[1], lines[2])), (lines[1], lines[2]));
        assert_eq!(lines_of(&run.stderr, rank), ["talk"]);
    }
    let secret = common.unwrap().1;
    assert_ne!(secret, lines_of(&shell("1", "echo $SYMMETRA_SECRET").ok().stdout, 0)[0]);
}

#[test]
fn lines_stay_whole() {
    let run = shell("4", "for i in $(seq 200); do printf 'a%.0s' $(seq 50); echo \" $i\"; done; printf end").ok();
    for rank in 0..4 {
        let lines = lines_of(&run.stdout, rank);
        assert_eq!(lines.len(), 201);
        for (number, line) in lines[..200].iter().enumerate() {
            assert_eq!(*line, format!("{} {}", "a".repeat(50), number + 1));
        }
        assert_eq!(lines[200], "end");
    }
}

#[test]
fn output_without_prefix() {
    let run = symmetra_with(&["launch", "-n", "2", "--no-prefix", "--", "sh", "-c", "echo same"]).ok();
    assert_eq!(run.stdout, "same\nsame\n");
}

#[test]
fn the_first_failure_ends_the_others_and_gives_its_status() {
    let start = Instant::now();
    shell("3", "[ $RANK = 1 ] && exit 7; exec sleep 60").refused(7, &["rank 1 ended with status 7"]);
    shell("3", "[ $RANK = 2 ] && kill -SEGV $$; exec sleep 60").refused(
        128 + 11,
        &["rank 2 was killed by SIGSEGV; then ranks 0 and 1 were killed by SIGTERM of this command"],
    );
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn who_ignores_the_end_is_killed() {
    let start = Instant::now();
    let script = "[ $RANK = 0 ] && { sleep 0.5; exit 3; }; trap '' TERM; while :; do sleep 0.1; done";
    symmetra_with(&["launch", "-n", "2", "--grace", "1", "--", "sh", "-c", script]).refused(3, &["rank 0"]);
    assert!((1..20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// Ranks that report when they are ready.
fn started(script: &str) -> Child {
    // A rank answers once: the first rank's failure makes the launcher send SIGTERM, which may come within the answer.
    let script = format!("trap 'trap \"\" INT HUP TERM; echo asked; exit 5' INT HUP TERM; {script}");
    let mut run = command(["launch", "-n", "2", "--", "sh", "-c", &script]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap());
    let mut said = String::new();
    for _ in 0..2 {
        lines.read_line(&mut said).unwrap();
    }
    assert_eq!(said.matches("ready").count(), 2, "{said}");
    run.stdout = Some(lines.into_inner());
    run
}

/// Whether the tests were started to ignore a signal, as by nohup, and so all that they start.
fn ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 != 0
}

#[test]
fn signals_are_forwarded() {
    for signal in [Signal::INT, Signal::HUP, Signal::TERM].into_iter().filter(|signal| !ignored(*signal)) {
        let mut run = started("echo ready; while :; do sleep 0.05; done");
        let mut stdout = run.stdout.take().unwrap();
        kill_process(pid(&run), signal).unwrap();
        let mut said = String::new();
        stdout.read_to_string(&mut said).unwrap();
        let run: Run = run.wait_with_output().unwrap().into();
        assert_eq!(run.code, 5, "{}", run.stderr);
        for rank in 0..2 {
            assert_eq!(lines_of(&said, rank), ["asked"], "{said}");
        }
    }
}

#[test]
fn who_ignores_an_interrupt_is_told_to_end() {
    if ignored(Signal::INT) {
        return;
    }
    let ignores = "trap '' INT; trap 'echo told; exit 6' TERM";
    let script = format!("[ $RANK = 1 ] && {{ {ignores}; }}; echo ready; while :; do sleep 0.05; done");
    let mut run = started(&script);
    let mut stdout = run.stdout.take().unwrap();
    kill_process(pid(&run), Signal::INT).unwrap();
    let mut said = String::new();
    stdout.read_to_string(&mut said).unwrap();
    let run: Run = run.wait_with_output().unwrap().into();
    assert_eq!(run.code, 5, "{}", run.stderr);
    assert_eq!((lines_of(&said, 0), lines_of(&said, 1)), (vec!["asked"], vec!["told"]), "{said}");
}

/// Ranks that end by no signal but SIGKILL.
const DEAF: &str = "trap '' INT TERM; echo ready; while :; do sleep 0.05; done";

/// Starts two ranks of a shell script, and returns once both have printed a line.
fn ready(grace: &str, script: &str) -> Child {
    let mut run = command(["launch", "-n", "2", "--grace", grace, "--", "sh", "-c", script]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap());
    (0..2).for_each(|_| assert_ne!(lines.read_line(&mut String::new()).unwrap(), 0));
    run.stdout = Some(lines.into_inner());
    run
}

#[test]
fn who_ignores_a_forwarded_signal_is_killed() {
    for signal in [Signal::INT, Signal::TERM].into_iter().filter(|signal| !ignored(*signal)) {
        let run = ready("1", DEAF);
        let start = Instant::now();
        kill_process(pid(&run), signal).unwrap();
        let run: Run = run.wait_with_output().unwrap().into();
        assert!((1..20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        run.refused(128 + 9, &["ranks 0 and 1 were killed by SIGKILL of this command"]);
    }
}

#[test]
fn a_second_interrupt_ends_the_ranks_at_once() {
    if ignored(Signal::INT) {
        return;
    }
    let run = ready("300", DEAF);
    let start = Instant::now();
    kill_process(pid(&run), Signal::INT).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill_process(pid(&run), Signal::INT).unwrap();
    let run: Run = run.wait_with_output().unwrap().into();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    run.refused(128 + 2, &["a second SIGINT killed the ranks"]);
}

/// Signals as of `timeout`, which signals its child and then its group.
#[test]
fn an_interrupt_that_comes_twice_in_a_moment_is_one() {
    if ignored(Signal::INT) {
        return;
    }
    let run = ready("300", "trap 'sleep 1; exit 5' INT; echo ready; while :; do sleep 0.05; done");
    kill_process(pid(&run), Signal::INT).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    kill_process(pid(&run), Signal::INT).unwrap();
    let run: Run = run.wait_with_output().unwrap().into();
    run.refused(5, &["ranks 0 and 1 ended with status 5"]);
}

#[test]
fn others_go_on_where_they_are_to() {
    let script = "[ $RANK = 1 ] && kill -KILL $$; sleep 1; echo done";
    let args = ["launch", "-n", "3", "--keep-others", "--", "sh", "-c", script];
    let run = symmetra_with(&args);
    assert_eq!(run.code, 128 + 9, "{}", run.stderr);
    for rank in [0, 2] {
        assert_eq!(lines_of(&run.stdout, rank), ["done"], "{}", run.stdout);
    }
    let lines: Vec<&str> = run.stderr.lines().collect();
    let words = ["rank 1 was killed by SIGKILL; the other ranks go on", "error: rank 1 was killed by SIGKILL"];
    assert_eq!(lines, words);
    // A user who asks all to end still does.
    symmetra_with(&["launch", "-n", "2", "--keep-others", "--", "true"]).ok();
}

#[test]
fn a_slow_reader_gets_every_line() {
    let mut run = command(["launch", "-n", "1", "--", "seq", "17000"]);
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let mut said = String::new();
    run.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(run.wait().unwrap().success());
    assert_eq!(lines_of(&said, 0).len(), 17000);
}

#[test]
fn who_holds_the_output_or_talks_on_holds_up_nobody() {
    for after in ["sleep 60 &", "while :; do echo talk; done & "] {
        let start = Instant::now();
        let script = format!("trap '' TERM; {after} echo done");
        let run = shell("1", &script).ok();
        assert!(lines_of(&run.stdout, 0).contains(&"done"));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}

#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    // A shell that ignores a signal starts programs that do.
    let program = env!("CARGO_BIN_EXE_symmetra");
    let script = format!("trap '' HUP; exec {program} launch -n 2 -- sh -c 'echo ready; sleep 1; echo end'");
    let mut run = std::process::Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap());
    let mut said = String::new();
    for _ in 0..2 {
        lines.read_line(&mut said).unwrap();
    }
    for process in [pid(&run)].into_iter().chain(children(pid(&run))) {
        kill_process(process, Signal::HUP).unwrap();
    }
    lines.read_to_string(&mut said).unwrap();
    assert!(run.wait().unwrap().success(), "{said}");
    assert_eq!(said.matches("end").count(), 2, "{said}");
}

#[test]
fn a_hangup_that_ranks_survive_spares_nobody_the_end() {
    let script = "trap : HUP; trap 'echo asked; exit 0' TERM; echo ready; \
                  n=0; while [ $n -lt 40 ]; do n=$((n+1)); sleep 0.05; [ $RANK = 0 ] && [ $n = 39 ] && exit 6; done; sleep 5";
    let mut run = command(["launch", "-n", "2", "--grace", "30", "--", "bash", "-c", script]);
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap());
    let mut said = String::new();
    for _ in 0..2 {
        lines.read_line(&mut said).unwrap();
    }
    kill_process(pid(&run), Signal::HUP).unwrap();
    lines.read_to_string(&mut said).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(6), "{said}");
    assert!(lines_of(&said, 1).contains(&"asked"), "{said}");
}

#[test]
fn what_a_failed_rank_started_ends_with_it() {
    let run = shell("1", "sleep 77 & echo $!; exit 4");
    let started = lines_of(&run.stdout, 0)[0].parse().unwrap();
    assert_eq!(run.code, 4, "{}", run.stderr);
    let started = Pid::from_raw(started).unwrap();
    wait_until("the end of what the rank started", || !is_alive(started));
}

#[test]
fn ranks_do_not_outlive_the_launcher() {
    let mut run = started("echo ready; while :; do sleep 0.05; done");
    let ranks = children(pid(&run));
    assert_eq!(ranks.len(), 2);
    run.kill().unwrap();
    run.wait().unwrap();
    wait_until("the end of the ranks", || ranks.iter().all(|rank| !is_alive(*rank)));
}

/// The test that each rank of `ranks_meet_over_tcp` runs.
#[test]
#[ignore = "a rank: run by the test below"]
#[allow(clippy::print_stdout)] // what the launcher is to pass on
fn rank_of_a_launch() {
    if std::env::var_os("SYMMETRA_SECRET").is_none() {
        return;
    }
    let bootstrap = Tcp::from_env(Instant::now() + Duration::from_secs(30)).unwrap();
    let device = Device::host().unwrap();
    let communicator = Communicator::open(bootstrap, &device, Config::default()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let buffer = communicator.symmetric::<i64>(3).unwrap();
    buffer.write(&[1, 10, communicator.rank() as i64], &stream).unwrap();
    communicator.all_reduce_in_place(&buffer, &stream).unwrap();
    communicator.synchronize(&stream).unwrap();
    println!("sum {:?}", buffer.read(&stream).unwrap());
    communicator.close().unwrap();
}

#[test]
fn ranks_meet_over_tcp() {
    let program = std::env::current_exe().unwrap();
    let arguments = ["launch::rank_of_a_launch", "--exact", "--ignored", "--nocapture"];
    let run: Run = command(["launch", "-n", "3", "--"]).arg(program).args(arguments).output().unwrap().into();
    let run = run.ok();
    for rank in 0..3 {
        assert!(lines_of(&run.stdout, rank).iter().any(|line| line.ends_with("sum [3, 30, 3]")), "{}", run.stdout);
    }
}

/// The test that each rank of `the_rank_that_failed_first_is_named` runs: rank 1 panics, and the others end when they
/// see it.
#[test]
#[ignore = "a rank: run by the test below"]
fn rank_of_a_failed_launch() {
    if std::env::var_os("SYMMETRA_SECRET").is_none() {
        return;
    }
    let bootstrap = Tcp::from_env(Instant::now() + Duration::from_secs(30)).unwrap();
    let device = Device::host().unwrap();
    let stream = Stream::new(&device).unwrap();
    let communicator = Communicator::open(bootstrap, &device, Config::default()).unwrap();
    let buffer = communicator.symmetric::<f32>(8).unwrap();
    for call in 0.. {
        assert!(call < 20 || communicator.rank() != 1, "the cause");
        let done = communicator.all_reduce_in_place(&buffer, &stream).and_then(|()| communicator.synchronize(&stream));
        if done.is_err() {
            // Before the rank that panics has come so far.
            std::process::exit(1);
        }
    }
}

#[test]
fn the_rank_that_failed_first_is_named() {
    let program = std::env::current_exe().unwrap();
    let arguments = ["launch::rank_of_a_failed_launch", "--exact", "--ignored", "--nocapture"];
    for _ in 0..5 {
        let run: Run = command(["launch", "-n", "4", "--"]).arg(&program).args(arguments).output().unwrap().into();
        let message = run.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        assert!(message.starts_with("error: rank 1 ended with status 101; then rank"), "{}", run.stderr);
        assert!([0, 2, 3].iter().all(|rank| message.contains(&rank.to_string())), "{message}");
        assert_eq!(run.code, 101, "{}", run.stderr);
    }
}

#[test]
fn wrong_usage() {
    symmetra("launch").refused(2, &["--ranks", "PROGRAM"]);
    symmetra("launch -n 0 -- true").refused(2, &["0 is not in 1..=256"]);
    symmetra("launch -n 2 -- /nonexistent/program").refused(1, &["/nonexistent/program", "No such file"]);
}
