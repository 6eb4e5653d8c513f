//! Ranks as processes: the environment, kill -9, descriptors and CPU time.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Local, Tcp, UniqueId};

use crate::{config, converse, free_address, lost, on_threads, private_directory, within};

/// Runs this test binary again as `role`; its answer is the text that it prints after `> `.
fn child(role: &str, variables: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::a_child_plays_its_role", "--nocapture", "--test-threads", "1"])
        .env("SYMMETRA_TEST_ROLE", role)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// The next answer of a child.
fn answer(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> String {
    lines.find_map(|line| line.unwrap().split_once("> ").map(|(_, answer)| answer.to_owned())).expect("no answer")
}

fn answers(child: &mut Child) -> impl Iterator<Item = std::io::Result<String>> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

#[test]
fn a_child_plays_its_role() {
    let Ok(role) = std::env::var("SYMMETRA_TEST_ROLE") else {
        return;
    };
    let variable = |name| std::env::var(name).unwrap();
    match role.as_str() {
        "env" => match Tcp::from_env(within(10.0)) {
            Ok(mut tcp) => {
                converse(&mut tcp);
                println!("> rank {} of {}", tcp.rank(), tcp.world_size());
            }
            Err(error) => println!("> {error}"),
        },
        "local" => {
            let (rank, world_size) = (variable("RANK").parse().unwrap(), variable("WORLD_SIZE").parse().unwrap());
            let mut local = Local::connect(variable("DIRECTORY"), rank, world_size, within(10.0)).unwrap();
            converse(&mut local);
            println!("> ready");
            if variable("STAYS") == "idle" {
                thread::sleep(Duration::from_secs(20));
            }
            println!("> {}", local.barrier(within(10.0)).unwrap_err());
        }
        "fds" => leak_nothing(),
        "idle" => burn_nothing(),
        _ => panic!("no such role"),
    }
}

/// Ranks 1.. as processes that go on to gather, except rank `idle`.
fn ranks_of_processes(world_size: usize, directory: &Path, idle: usize) -> Vec<Child> {
    let (directory, world) = (directory.to_str().unwrap(), world_size.to_string());
    let start = |rank: usize| {
        let stays = if rank == idle { "idle" } else { "gathering" };
        let rank = rank.to_string();
        let variables = [("RANK", &*rank), ("WORLD_SIZE", &*world), ("DIRECTORY", directory), ("STAYS", stays)];
        child("local", &variables)
    };
    (1..world_size).map(start).collect()
}

#[test]
fn pitfall_1_kill_9_of_a_process_is_named_to_everybody() {
    // The killed rank either waits in an all-gather that rank 3 delays, or delays the all-gather itself.
    for idle in [3, 2] {
        let directory = private_directory();
        let mut children = ranks_of_processes(4, directory.path(), idle);
        let mut local = Local::connect(&directory, 0, 4, within(10.0)).unwrap();
        converse(&mut local);
        let mut voices: Vec<_> = children.iter_mut().map(answers).collect();
        voices.iter_mut().for_each(|voice| assert_eq!(answer(voice), "ready"));
        thread::scope(|scope| {
            let rank0 = scope.spawn(|| local.barrier(within(30.0)));
            thread::sleep(Duration::from_millis(100));
            children[1].kill().unwrap();
            let killed = Instant::now();
            assert_eq!(lost(rank0.join().unwrap()), 2);
            // At once: the deadline is far away.
            assert!(killed.elapsed() < Duration::from_secs(5));
        });
        let words = answer(&mut voices[0]);
        assert!(words.starts_with("rank 2 is gone") && words.ends_with("found by rank 0"), "{words}");
        for mut child in children {
            let _ = child.kill();
            child.wait().unwrap();
        }
    }
}

#[test]
fn pitfall_1_kill_9_of_rank_0_is_named_to_everybody() {
    let directory = private_directory();
    let world = [("WORLD_SIZE", "2"), ("DIRECTORY", directory.path().to_str().unwrap()), ("STAYS", "idle")];
    let mut rank0 = child("local", &[&world[..], &[("RANK", "0")]].concat());
    let mut local = Local::connect(&directory, 1, 2, within(10.0)).unwrap();
    converse(&mut local);
    assert_eq!(answer(&mut answers(&mut rank0)), "ready");
    rank0.kill().unwrap();
    let killed = Instant::now();
    assert_eq!(lost(local.barrier(within(30.0))), 0);
    // At once: the deadline is far away.
    assert!(killed.elapsed() < Duration::from_secs(5));
    rank0.wait().unwrap();
    // Its socket is still there, and is replaced.
    assert!(directory.path().join("rank0.sock").exists());
    on_threads(2, |rank| converse(&mut Local::connect(&directory, rank, 2, within(10.0)).unwrap()));
}

#[test]
fn pitfall_33_processes_meet_as_the_environment_says() {
    let secret = "0123456789abcdef0123456789ABCDEF";
    for [rank_name, size_name] in [
        ["RANK", "WORLD_SIZE"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        ["PMI_RANK", "PMI_SIZE"],
        ["SLURM_PROCID", "SLURM_NTASKS"],
    ] {
        let port = free_address().port().to_string();
        let world =
            [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &*port), (size_name, "3"), ("SYMMETRA_SECRET", secret)];
        let mut children: Vec<Child> =
            ["0", "1", "2"].iter().map(|rank| child("env", &[&world[..], &[(rank_name, rank)]].concat())).collect();
        for (rank, child) in children.iter_mut().enumerate() {
            let mut voice = answers(child);
            assert_eq!(answer(&mut voice), format!("rank {rank} of 3"));
            voice.for_each(drop);
            assert!(child.wait().unwrap().success());
        }
    }
}

#[test]
fn pitfall_36_variables_that_are_missing_or_malformed_are_named() {
    let right = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), ("RANK", "0"), ("WORLD_SIZE", "1")];
    let cases = [
        ("MASTER_ADDR", None, "MASTER_ADDR is unset, but it must be set: `symmetra launch` and torchrun set it"),
        ("RANK", None, "RANK is unset"),
        ("RANK", Some("-1"), "RANK is `-1`, but it must be a number from 0"),
        ("RANK", Some("7"), "rank is 7, but it must be in 0..1"),
        ("WORLD_SIZE", Some("two"), "WORLD_SIZE is `two`"),
        ("WORLD_SIZE", Some("0"), "world size is 0, but it must be in 1..=256"),
        ("MASTER_PORT", Some("70000"), "MASTER_PORT is `70000`, but it must be in 1..=65535"),
        ("SYMMETRA_SECRET", Some("1234"), "SYMMETRA_SECRET is malformed, but it must be 32 hexadecimal digits"),
        ("SYMMETRA_BIND", Some("eth0"), "SYMMETRA_BIND is `eth0`, but it must be an IP address"),
    ];
    let mut children: Vec<(Child, &str)> = Vec::new();
    for (name, value, expected) in cases {
        let mut variables: Vec<(&str, &str)> = right.iter().copied().filter(|(other, _)| *other != name).collect();
        variables.extend(value.map(|value| (name, value)));
        children.push((child("env", &variables), expected));
    }
    for (mut child, expected) in children {
        let words = answer(&mut answers(&mut child));
        assert!(words.contains(expected), "{words}");
        child.wait().unwrap();
    }
}

/// The answers of ranks with these variables.
fn met(world_size: usize, variables: &[(&str, &str)]) -> Vec<String> {
    let size = world_size.to_string();
    let children = (0..world_size).map(|rank| {
        let rank = rank.to_string();
        child("env", &[variables, &[("RANK", &*rank), ("WORLD_SIZE", &*size)]].concat())
    });
    let mut children: Vec<Child> = children.collect();
    let told = |child: &mut Child| {
        let mut voice = answers(child);
        let told = answer(&mut voice);
        voice.for_each(drop);
        assert!(child.wait().unwrap().success());
        told
    };
    children.iter_mut().map(told).collect()
}

/// torchrun keeps its store at `MASTER_PORT`, as this test does.
#[test]
fn ranks_meet_where_the_launcher_holds_the_master_port() {
    let store = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = store.local_addr().unwrap().port().to_string();
    let agent = [
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &*port),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("TORCHELASTIC_RUN_ID", "none"),
    ];
    let everybody = ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"];
    assert_eq!(met(3, &agent), everybody);
    // Another program has that port too: the error explains how to choose another.
    let beside = 10_000 + port.parse::<u16>().unwrap() % 22_768;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, beside)).unwrap();
    let alone = [&agent[..], &[("RANK", "0"), ("WORLD_SIZE", "2")]].concat();
    let words = answer(&mut answers(&mut child("env", &alone)));
    assert!(words.contains(&format!("port {beside} of 127.0.0.1 is in use")), "{words}");
    assert!(words.contains("SYMMETRA_PORT"), "{words}");
    let other = free_address().port().to_string();
    assert_eq!(met(3, &[&agent[..], &[("SYMMETRA_PORT", &*other)]].concat()), everybody);
    drop((store, taken));
    // A launcher whose store is elsewhere.
    let agent = [agent[0], agent[1], ("TORCHELASTIC_USE_AGENT_STORE", "False")];
    assert_eq!(met(3, &agent), everybody);
}

#[test]
fn ranks_meet_under_torchrun() {
    let torchrun = std::env::var("SYMMETRA_TEST_TORCHRUN").unwrap_or_else(|_| "torchrun".to_owned());
    let version = Command::new(&torchrun).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no torchrun (Debian: python3-torch), so no rank was started by it");
        return;
    }
    for rendezvous in ["--master_port", "--standalone"] {
        let port = free_address().port().to_string();
        let mut command = Command::new(&torchrun);
        command.args(["--nproc_per_node", "2", "-r", "2", "-t", "2", rendezvous]);
        command.args((rendezvous == "--master_port").then_some(&port)).arg("--no_python");
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::a_child_plays_its_role", "--nocapture", "--test-threads", "1"]);
        let end = command.env("SYMMETRA_TEST_ROLE", "env").output().unwrap();
        let [out, err] = [&end.stdout, &end.stderr].map(|text| String::from_utf8_lossy(text));
        for rank in 0..2 {
            assert!(out.contains(&format!("> rank {rank} of 2")), "{rendezvous}: {out}\n{err}");
        }
        assert!(end.status.success(), "{rendezvous}: {}\n{out}\n{err}", end.status);
    }
}

#[test]
fn blanks_brackets_and_empty_variables_count_as_they_are_meant() {
    let everybody = ["rank 0 of 2", "rank 1 of 2"];
    let mut hosts = vec![" 127.0.0.1 ", "localhost"];
    match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => hosts.extend(["::1", "[::1]", " [::1]"]),
        Err(error) => eprintln!("skipped: this host has no IPv6 loopback: {error}"),
    }
    for host in hosts {
        let port = format!(" {} ", free_address().port());
        let empty = [("SYMMETRA_BIND", ""), ("SYMMETRA_PORT", " "), ("TORCHELASTIC_USE_AGENT_STORE", "")];
        let world = [&[("MASTER_ADDR", host), ("MASTER_PORT", &*port)][..], &empty].concat();
        assert_eq!(met(2, &world), everybody, "{host}");
    }
    let right = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), ("RANK", "0"), ("WORLD_SIZE", "2")];
    for (name, value, expected) in [
        ("MASTER_ADDR", "", "MASTER_ADDR is unset"),
        ("MASTER_ADDR", "[::1", "MASTER_ADDR is `[::1`, but it must be the name or the IP address of a host"),
        ("MASTER_ADDR", "localhost:29500", "MASTER_ADDR is `localhost:29500`, but it must be"),
        ("MASTER_ADDR", "local host", "MASTER_ADDR is `local host`, but it must be"),
        ("MASTER_PORT", " ", "MASTER_PORT is unset"),
        ("RANK", "", "RANK is unset"),
        ("SYMMETRA_PORT", "0", "SYMMETRA_PORT is `0`, but it must be in 1..=65535"),
        ("SYMMETRA_SECRET", "", "SYMMETRA_SECRET is empty, but it must be 32 hexadecimal digits, or unset"),
    ] {
        let mut variables = right.to_vec();
        variables.retain(|(other, _)| *other != name);
        variables.push((name, value));
        let words = answer(&mut answers(&mut child("env", &variables)));
        assert!(words.contains(expected), "{name}={value}: {words}");
    }
}

/// Open descriptors of this process.
fn fd_count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn no_descriptor_is_leaked() {
    let mut child = child("fds", &[]);
    assert_eq!(answer(&mut answers(&mut child)), "none leaked");
    child.wait().unwrap();
}

fn leak_nothing() {
    let directory = private_directory();
    let address = free_address();
    let round = || {
        on_threads(4, |rank| converse(&mut Tcp::connect(config(address, rank, 4, 10.0)).unwrap()));
        on_threads(4, |rank| converse(&mut Local::connect(&directory, rank, 4, within(10.0)).unwrap()));
        assert!(Tcp::connect(config(address, 0, 2, 0.01)).is_err());
        assert!(Tcp::connect(config(address, 1, 2, 0.01)).is_err());
        assert!(Local::connect(&directory, 0, 2, within(0.01)).is_err());
        assert!(Local::connect(&directory, 1, 2, within(0.01)).is_err());
        let id = UniqueId::listen().unwrap();
        assert!(Tcp::from_id(id, 0, 2, within(0.01)).is_err());
    };
    round();
    let before = fd_count();
    (0..5).for_each(|_| round());
    assert_eq!(fd_count(), before);
    println!("> none leaked");
}

#[test]
fn pitfall_7_waiting_burns_no_cpu() {
    let mut child = child("idle", &[]);
    let words = answer(&mut answers(&mut child));
    let cpu_ms: f64 = words.parse().unwrap();
    assert!(cpu_ms < 10.0, "{cpu_ms} ms of CPU time in 600 ms of waiting");
    child.wait().unwrap();
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn burn_nothing() {
    let directory = private_directory();
    let address = free_address();
    let waiting = 600;
    thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            TcpStream::connect(address)
        });
        for kind in ["tcp", "local", "forming"] {
            for rank in 0..3 {
                let directory = directory.path().join(kind);
                scope.spawn(move || {
                    let mut bootstrap: Box<dyn Bootstrap> = match kind {
                        "tcp" => Box::new(Tcp::connect(config(address, rank, 3, 10.0)).unwrap()),
                        "local" => Box::new(Local::connect(directory, rank, 3, within(10.0)).unwrap()),
                        _ if rank == 2 => return,
                        _ => return assert!(Local::connect(directory, rank, 3, within(2.6)).is_err()),
                    };
                    if rank == 2 {
                        thread::sleep(Duration::from_millis(2600));
                    }
                    bootstrap.barrier(within(10.0)).unwrap();
                });
            }
        }
        thread::sleep(Duration::from_millis(400));
        // The least of some: ranks that are late still open meanwhile.
        let burnt = [(); 3].map(|()| {
            let before = cpu_time();
            thread::sleep(Duration::from_millis(waiting));
            cpu_time() - before
        });
        println!("> {}", burnt.into_iter().min().unwrap().as_secs_f64() * 1e3);
        drop(stranger.join());
    });
}
