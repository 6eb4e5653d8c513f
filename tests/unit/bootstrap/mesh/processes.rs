//! Ranks as processes: kill -9, descriptors and CPU time.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::monitor::reports;
use super::*;
use crate::bootstrap::Local;
use crate::bootstrap::monitor::Monitor;

/// Runs this test binary again as a rank in `directory`.
fn child(role: &str, variables: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "bootstrap::mesh::tests::processes::a_child_plays_its_role",
            "--nocapture",
            "--test-threads",
            "1",
        ])
        .env("SYMMETRA_TEST_ROLE", role)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

struct Voice(std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Voice {
    fn of(child: &mut Child) -> Self {
        Self(BufReader::new(child.stdout.take().unwrap()).lines())
    }

    /// The next line that a child printed after `> `.
    fn answer(&mut self) -> String {
        self.0.find_map(|line| line.unwrap().split_once("> ").map(|(_, words)| words.to_owned())).expect("no answer")
    }
}

#[test]
fn a_child_plays_its_role() {
    let Ok(role) = std::env::var("SYMMETRA_TEST_ROLE") else {
        return;
    };
    match role.as_str() {
        "rank" => play_rank(),
        "short" => run_short(),
        "fds" => leak_nothing(),
        "idle" => burn_nothing(),
        "door" => listen_for_ever(),
        _ => panic!("no such role"),
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// The mesh of ranks that meet in `directory`.
fn opened(directory: impl AsRef<std::path::Path>, rank: usize, world_size: usize) -> Result<Mesh> {
    Mesh::open(&mut Local::connect(directory, rank, world_size, within(10.0)).unwrap(), within(10.0))
}

fn play_rank() {
    let (rank, world_size) = (variable("RANK").parse().unwrap(), variable("WORLD_SIZE").parse().unwrap());
    let mut mesh = match opened(variable("DIRECTORY"), rank, world_size) {
        Ok(mesh) => mesh,
        Err(error) => return println!("> {error}"),
    };
    converse(&mut mesh);
    let own = memfd(rank);
    let fds = mesh.all_gather_fds(own.as_fd(), within(10.0)).unwrap();
    check_memfds(&mesh, fds);
    assert!((0..world_size).all(|peer| mesh.same_process(peer) == (peer == rank)));
    let (report, reports) = channel();
    let on_lost = move |rank| {
        let _ = report.send(rank);
    };
    let _monitor = Monitor::start(&mesh, on_lost, || ()).unwrap();
    println!("> ready");
    if variable("STAYS") == "gathering" {
        println!("> {}", mesh.barrier(within(10.0)).unwrap_err());
    } else {
        println!("> monitor: {}", reports.recv_timeout(Duration::from_secs(10)).unwrap());
    }
    thread::sleep(Duration::from_secs(10)); // until it is killed
}

fn processes(world_size: usize, directory: &str, idle: usize) -> Vec<Child> {
    let world = world_size.to_string();
    let start = |rank: usize| {
        let stays = if rank == idle { "idle" } else { "gathering" };
        let rank = rank.to_string();
        child("rank", &[("RANK", &rank), ("WORLD_SIZE", &world), ("DIRECTORY", directory), ("STAYS", stays)])
    };
    (1..world_size).map(start).collect()
}

#[test]
fn pitfall_1_kill_9_of_a_process_is_named_by_all_and_noticed_by_the_monitor() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("ranks");
    let mut children = processes(4, directory.to_str().unwrap(), 3);
    let mut mesh = opened(&directory, 0, 4).unwrap();
    converse(&mut mesh);
    let fds = mesh.all_gather_fds(memfd(0).as_fd(), within(10.0)).unwrap();
    check_memfds(&mesh, fds);
    assert!((1..=children.len()).all(|rank| !mesh.same_process(rank)));
    let mut voices: Vec<Voice> = children.iter_mut().map(Voice::of).collect();
    voices.iter_mut().for_each(|voice| assert_eq!(voice.answer(), "ready"));
    let (mut monitor, reports) = reports(&mesh);
    let killed = thread::scope(|scope| {
        // Rank 3 holds up the all-gather in which rank 2 is killed.
        let rank0 = scope.spawn(|| mesh.barrier(within(30.0)));
        thread::sleep(Duration::from_millis(100));
        children[1].kill().unwrap();
        let killed = Instant::now();
        assert_eq!(lost(rank0.join().unwrap()), 2);
        killed
    });
    let (rank, noticed) = reports.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(rank, 2);
    // At once: the deadlines are of 10 s and more.
    assert!(noticed - killed < Duration::from_secs(5), "{:?}", noticed - killed);
    assert!(voices[0].answer().starts_with("rank 2 is gone"));
    assert_eq!(voices[2].answer(), "monitor: 2");
    monitor.stop();
    for mut child in children {
        let _ = child.kill();
        child.wait().unwrap();
    }
}

/// Rank 1 has room for `spare` more descriptors, of which its own duplicate takes the first.
#[test]
fn pitfall_5_a_rank_without_room_for_descriptors_is_named_by_all_and_the_mesh_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("ranks");
    let place = directory.to_str().unwrap();
    let children = ["1", "2"].map(|rank| child("short", &[("RANK", rank), ("DIRECTORY", place)]));
    run_out(&mut opened(&directory, 0, 3).unwrap());
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

fn run_short() {
    run_out(&mut opened(variable("DIRECTORY"), variable("RANK").parse().unwrap(), 3).unwrap());
}

fn run_out(mesh: &mut Mesh) {
    let own = memfd(mesh.rank());
    for spare in 0..4 {
        let mut taken = Vec::new();
        if mesh.rank() == 1 {
            setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) }).unwrap();
            while let Ok(file) = own.try_clone() {
                taken.push(file);
            }
            taken.truncate(taken.len() - spare);
        }
        let outcome = mesh.all_gather_fds(own.as_fd(), within(10.0));
        drop(taken);
        match outcome {
            Ok(fds) => {
                assert_eq!(spare, 3, "there was room");
                check_memfds(mesh, fds);
            }
            Err(error) if mesh.rank() == 1 => assert!(matches!(error, Error::System { errno: 24, .. }), "{error}"),
            Err(error) => assert!(matches!(error, Error::Peer { rank: 1, .. }), "{error}"),
        }
        converse(mesh);
    }
}

const NO_DIRECTORY: &str = "system error 2: make a directory in /nonexistent (TMPDIR)";

#[test]
fn a_rank_that_cannot_listen_is_named_to_all() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("ranks");
    let variables = [("RANK", "1"), ("WORLD_SIZE", "2"), ("TMPDIR", "/nonexistent"), ("STAYS", "idle")];
    let mut child = child("rank", &[&variables[..], &[("DIRECTORY", directory.to_str().unwrap())]].concat());
    match opened(&directory, 0, 2).err().unwrap() {
        Error::Peer { rank: 1, message } => assert!(message.contains(NO_DIRECTORY), "{message}"),
        other => panic!("{other}"),
    }
    let words = Voice::of(&mut child).answer();
    assert!(words.contains(NO_DIRECTORY), "{words}");
    child.wait().unwrap();
}

#[test]
fn pitfall_1_what_a_rank_leaves_that_is_killed_while_opening_is_swept_by_the_next() {
    let temporary = tempfile::tempdir().unwrap();
    let variables = [("TMPDIR", temporary.path().to_str().unwrap())];
    let files = || std::fs::read_dir(temporary.path()).unwrap().count();
    let mut killed = ["door"; 2].map(|role| child(role, &variables));
    killed.iter_mut().for_each(|child| assert_eq!(Voice::of(child).answer(), "listening"));
    assert_eq!(files(), 2, "another's is swept while it lives");
    for child in &mut killed {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(files(), 2);
    let mut next = child("door", &variables);
    assert_eq!(Voice::of(&mut next).answer(), "listening");
    assert_eq!(files(), 1, "left by those who were killed");
    next.kill().unwrap();
    next.wait().unwrap();
}

fn listen_for_ever() {
    let _door = Door::open().unwrap();
    println!("> listening");
    thread::sleep(Duration::from_secs(60)); // until it is killed
}

#[test]
fn no_descriptor_and_no_directory_is_leaked() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = child("fds", &[("TMPDIR", temporary.path().to_str().unwrap())]);
    assert_eq!(Voice::of(&mut child).answer(), "none leaked");
    child.wait().unwrap();
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}

fn leak_nothing() {
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let round = || {
        on_meshes(4, |mut mesh| {
            let _monitor = Monitor::start(&mesh, |_| (), || ()).unwrap();
            let own = memfd(mesh.rank());
            drop(mesh.all_gather_fds(own.as_fd(), within(10.0)).unwrap());
            let set: &[usize] = if mesh.rank() < 2 { &[0, 1] } else { &[2, 3] };
            let mut part = mesh.split(Some(set), within(10.0)).unwrap().unwrap();
            converse(&mut part);
            if mesh.rank() != 0 {
                let _ = mesh.all_gather_fds(own.as_fd(), within(5.0)).unwrap_err();
            }
        });
    };
    round();
    let before = count();
    (0..5).for_each(|_| round());
    assert_eq!(count(), before);
    println!("> none leaked");
}

#[test]
fn pitfall_7_an_idle_group_burns_no_cpu() {
    let mut child = child("idle", &[]);
    let cpu_ms: f64 = Voice::of(&mut child).answer().parse().unwrap();
    assert!(cpu_ms < 5.0, "{cpu_ms} ms of CPU time in 500 ms of idling");
    child.wait().unwrap();
}

fn burn_nothing() {
    let cpu_time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    on_meshes(4, |mut mesh| {
        let monitor = Monitor::start(&mesh, |_| (), || ()).unwrap();
        mesh.barrier(within(10.0)).unwrap();
        if mesh.rank() == 0 {
            thread::sleep(Duration::from_millis(100));
            // The least of some: a rank may be late to its barrier.
            let burnt = [(); 3].map(|()| {
                let before = cpu_time();
                thread::sleep(Duration::from_millis(500));
                cpu_time() - before
            });
            println!("> {}", burnt.into_iter().min().unwrap().as_secs_f64() * 1e3);
        }
        // All others wait here for rank 0.
        mesh.barrier(within(10.0)).unwrap();
        drop(monitor);
    });
}
