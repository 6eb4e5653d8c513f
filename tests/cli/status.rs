//! `status`: ranks of running groups.

use std::fs::{File, read_dir, read_link};
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::{Run, children, command, pid, symmetra, symmetra_with, wait_until};

/// The state of the groups of a process, and the exit code.
fn groups(process: &Child) -> (i32, Vec<Value>) {
    let run: Run =
        command(["status", "--json", "--patience", "60", &process.id().to_string()]).output().unwrap().into();
    let object = run.objects().pop();
    (run.code, object.map_or_else(Vec::new, |object| object["groups"].as_array().unwrap().clone()))
}

/// Two ranks that work until they are killed, with times of calls.
fn sweep() -> Child {
    let mut run = command(["all-reduce", "--device", "host", "-n", "2", "--iterations", "100000"]);
    run.env("SYMMETRA_TIMING", "1");
    run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn ranks_that_work_are_healthy_and_a_stopped_rank_is_not() {
    let mut run = sweep();
    let works = |(code, groups): &(i32, Vec<Value>)| {
        let enqueued = |group: &Value| group["ranks"][1]["enqueued"].as_u64().is_some_and(|calls| calls > 0);
        *code == 0 && groups.len() == 1 && groups[0]["ranks"].as_array().unwrap().len() == 2 && enqueued(&groups[0])
    };
    wait_until("a healthy group", || works(&groups(&run)));
    let (_, found) = groups(&run);
    let ranks = children(pid(&run));
    // The times of their calls, for people and for machines.
    let mut times = Value::Null;
    wait_until("times of calls", || {
        times = groups(&run).1[0]["timings"]["calls"][0].clone();
        times["calls"].as_u64().is_some_and(|calls| calls > 10)
    });
    assert_eq!((&times["operation"], &times["up_to_bytes"]), (&"all-reduce".into(), &1024.into()));
    assert!(times["median_us"].as_f64() <= times["p99_us"].as_f64() && times["busbw_gbps"].is_number(), "{times}");
    let table = symmetra_with(&["status", "--timings", &run.id().to_string()]).stdout;
    assert!(table.contains("algorithm") && table.contains("all-reduce"), "{table}");
    let rank = &found[0]["ranks"][1];
    assert_eq!((&rank["device"], &rank["process_state"]), (&"host".into(), &"running".into()));
    let stopped = ranks.iter().find(|pid| rank["process"] == pid.as_raw_pid()).unwrap();
    kill_process(*stopped, Signal::STOP).unwrap();
    let process = run.id().to_string();
    let names = format!("process {} is stopped", stopped.as_raw_pid());
    let mut text = String::new();
    wait_until("the stopped rank is named", || {
        let run = symmetra_with(&["status", &process]);
        text = run.stdout;
        run.code == 1 && text.contains(&names) && run.stderr.contains("error: the group is unhealthy")
    });
    assert!(text.starts_with("group of 2 ranks, host on "), "{text}");
    assert!(text.contains("all-reduce ") && text.contains(" stopped "), "{text}");
    // As JSON too.
    let (code, found) = groups(&run);
    assert_eq!((code, &found[0]["verdict"]["culprits"]), (1, &serde_json::json!([1])));
    run.kill().unwrap();
    run.wait().unwrap();
}

#[test]
fn processes_without_a_group_are_refused() {
    let mut sleep = Command::new("sleep").arg("60").spawn().unwrap();
    let process = sleep.id().to_string();
    symmetra(&format!("status {process}"))
        .refused(2, &[&process, "neither it nor a process that it started has a group"]);
    sleep.kill().unwrap();
    // Not waited for: the process is there and has ended.
    wait_until("the end", || symmetra(&format!("status {process}")).stderr.contains("there is no such process"));
    sleep.wait().unwrap();
    symmetra(&format!("status {process}")).refused(2, &["there is no such process"]);
    symmetra("status 0").refused(2, &["there is no such process"]);
    assert_eq!(symmetra("status -- -1").code, 2);
    symmetra("status --patience soon").refused(2, &["`soon` is not a number"]);
}

/// The files of pages of a process, open for reading.
fn observe(process: u32) -> Vec<File> {
    let links = read_dir(format!("/proc/{process}/fd")).unwrap().flatten().map(|link| link.path());
    let pages =
        links.filter(|link| read_link(link).is_ok_and(|name| name.as_os_str() == "/memfd:symmetra-page (deleted)"));
    pages.map(|link| File::open(link).unwrap()).collect()
}

/// A process that has a page of another build, and a page that is cut to nothing. A process that observes the pages is not
/// listed.
#[test]
fn pages_that_cannot_be_read_are_listed() {
    let script = "
import os, time
for tail in (b'\\0' * 4 + (7).to_bytes(4, 'little') + b'symmetra', b''):
    page = os.memfd_create('symmetra-page')
    os.write(page, bytes(1000 if tail else 0) + tail)
time.sleep(60)";
    let mut process = Command::new("python3").args(["-c", script]).spawn().unwrap();
    let asked = process.id().to_string();
    let mut run = None;
    let mut observed = Vec::new();
    wait_until("both pages", || {
        observed = observe(process.id());
        let found = symmetra(&format!("status {asked}"));
        let lines = found.stdout.lines().count();
        run = Some(found);
        // The process may have made its second page after the first line of this closure.
        lines == 2 && observed.len() == 2
    });
    process.kill().unwrap();
    process.wait().unwrap();
    let run = run.unwrap();
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains(&format!("no page of process {asked} can be read")), "{}", run.stderr);
    let foreign = format!("a page of process {asked}: a build with protocol number 7 made the page");
    assert!(run.stdout.contains(&foreign), "{}", run.stdout);
    assert!(run.stdout.contains("no control page, or one of a build that cannot be observed"), "{}", run.stdout);
}
