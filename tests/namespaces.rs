//! Hosts as network namespaces: ranks as processes that reach those of other hosts over cables between two
//! interfaces alone. `.ci/hosts` runs it, in a namespace where this is allowed.
#![cfg(feature = "gloo")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use half::{bf16, f16};
use parking_lot::Mutex;
use rustix::process::{Signal, set_parent_process_death_signal};
use support::Sample;
use support::data::{Random, assert_same, mix};
use support::device::device;
use support::world::bounded;
use symmetra::environment::{Coordinator, EnvConfig, Environment};
use symmetra::mixed::{Grid, Mixed, MixedConfig, MixedMode, MixedOperation};
use symmetra::{Config, Deadlines, DeviceBuffer, Error, Reduction, Stream};

const PART: &str = "SYMMETRA_TEST_PART";
const HOST: &str = "SYMMETRA_TEST_HOST";
const HOSTS: &str = "SYMMETRA_TEST_HOSTS";
const ADDRESSES: [&str; 3] = ["10.77.0.1", "10.77.0.2", "10.77.0.3"];
const PORT: u16 = 29_461;
/// The beginning of each line that is sent to the test.
const MARK: &str = "@@";
const PATIENCE: Duration = Duration::from_secs(120);

/// One set of hosts at a time.
static CABLE: Mutex<()> = Mutex::new(());

/// So many network namespaces, and a cable between each two. A host has one address, at the end of each of its cables.
struct Hosts(usize);

impl Hosts {
    fn lay(count: usize) -> Self {
        let hosts = Self(count);
        hosts.remove();
        for host in 0..count {
            let name = name(host);
            ip(&["netns", "add", &name]);
            ip(&["-n", &name, "link", "set", "lo", "up"]);
        }
        for (one, other) in (0..count).flat_map(|other| (0..other).map(move |one| (one, other))) {
            let end = |host: usize| format!("cable-{}", one + other - host);
            let [from, to] = [one, other].map(name);
            ip(&["link", "add", &end(one), "netns", &from, "type", "veth", "peer", "name", &end(other), "netns", &to]);
            for (host, peer) in [(one, other), (other, one)] {
                let ends = ["addr", "add", ADDRESSES[host], "peer", ADDRESSES[peer], "dev", &end(host)];
                ip(&[&["-n", &name(host)], &ends[..]].concat());
                ip(&["-n", &name(host), "link", "set", &end(host), "up"]);
            }
        }
        hosts
    }

    fn remove(&self) {
        for host in 0..self.0 {
            let _ = Command::new("ip").args(["netns", "del", &name(host)]).stderr(Stdio::null()).status();
        }
    }
}

fn name(host: usize) -> String {
    format!("host-{host}")
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.remove();
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A process on a host that plays a part.
struct Player {
    child: Child,
    input: ChildStdin,
    said: Receiver<String>,
    logged: Receiver<String>,
}

impl Player {
    fn start(host: usize, part: &str, variables: &[(&str, String)]) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("host-{host}")]).arg(std::env::current_exe().unwrap());
        command.args(["plays_its_part", "--exact", "--nocapture", "--ignored", "--test-threads=1"]);
        command.env(PART, part).env(HOST, host.to_string()).envs(variables.iter().map(|(name, value)| (name, value)));
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        let said = lines(child.stdout.take().unwrap());
        let logged = lines(child.stderr.take().unwrap());
        let input = child.stdin.take().unwrap();
        Self { child, input, said, logged }
    }

    /// Rank `rank` of a world on `hosts` hosts, `local` ranks on each.
    fn rank(rank: usize, [hosts, local]: [usize; 2], part: &str) -> Self {
        let variables = [
            ("RANK", rank.to_string()),
            (HOSTS, hosts.to_string()),
            ("WORLD_SIZE", (hosts * local).to_string()),
            ("MASTER_ADDR", ADDRESSES[0].to_owned()),
            ("MASTER_PORT", PORT.to_string()),
            ("SYMMETRA_BIND", ADDRESSES[0].to_owned()),
            ("SYMMETRA_SECRET", "00112233445566778899aabbccddeeff".to_owned()),
        ];
        Self::start(rank / local, part, &variables)
    }

    fn hear(&self) -> String {
        loop {
            match self.said.recv_timeout(PATIENCE) {
                Ok(line) => {
                    if let Some((_, words)) = line.split_once(MARK) {
                        return words.to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("nothing was said for {PATIENCE:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended: {:?}", self.log()),
            }
        }
    }

    fn tell(&mut self, words: &str) {
        writeln!(self.input, "{words}").unwrap();
    }

    /// The log since the last call.
    fn log(&self) -> Vec<String> {
        self.logged.try_iter().collect()
    }

    fn finish(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {:?}", self.log());
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    receive
}

fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{}", words.replace('\n', " ")).unwrap();
    out.flush().unwrap();
}

fn hear() -> String {
    let mut line = String::new();
    assert!(std::io::stdin().lock().read_line(&mut line).unwrap() > 0, "the test is gone");
    line.trim().to_owned()
}

/// The part of a started process. Does nothing when the suite runs this test.
#[test]
#[ignore = "a part in the tests of several hosts"]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    match part.as_str() {
        "sums" => sums(),
        "grids" => grids(),
        "grid survives" => grid_survives(),
        "survives" => survives(),
        "stranger" => stranger(),
        other => panic!("no part `{other}`"),
    }
}

/// Meets the others: tensor parallel inside the host, data parallel across.
fn open() -> Environment {
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let mut config = EnvConfig::default();
    config.device = Some(device(0));
    config.host = Some(format!("host-{}", number(HOST)));
    config.data_parallel_size = number(HOSTS);
    config.tensor_parallel_size = number("WORLD_SIZE") / number(HOSTS);
    let minute = Duration::from_secs(60);
    config.communicator = Config::default();
    config.communicator.deadlines = Deadlines::default().open(minute).first_use(minute).steady(Duration::from_secs(20));
    config.communicator.heap_bytes = 1 << 20;
    Environment::init(config).unwrap()
}

fn value<T: Sample>(rank: usize, index: usize) -> T {
    T::sample(mix(mix(rank as u64) ^ index as u64))
}

/// Sums over the ranks of each host, then over the hosts.
fn check<T: Sample>(group: &Coordinator, rank: usize, local: usize) {
    let stream = Stream::new(group.local().device()).unwrap();
    for count in [1, local, 1000, 30_001] {
        let values: Vec<T> = (0..count).map(|index| value(rank, index)).collect();
        let sum = |index: usize| {
            let of_host = |host: usize| {
                let ranks: Vec<usize> = group.ranks().iter().copied().filter(|rank| rank / local == host).collect();
                let values: Vec<T> = ranks.iter().map(|rank| value(*rank, index)).collect();
                (!values.is_empty()).then(|| T::reduce(Reduction::Sum, values.into_iter()))
            };
            let sums: Vec<T> = (0..2).filter_map(of_host).collect();
            T::reduce(Reduction::Sum, sums.into_iter())
        };
        let sums: Vec<T> = (0..count).map(sum).collect();
        let input = DeviceBuffer::<T>::from_slice(&values, &stream).unwrap();
        let output = DeviceBuffer::<T>::new(group.local().device(), count).unwrap();
        group.all_reduce(&input, &output, &stream).unwrap();
        assert_same(&output.read(&stream).unwrap(), &sums, &(group.name(), rank, count, T::DTYPE));
    }
}

fn check_groups(environment: &Environment) {
    let (rank, local) = (environment.world().rank(), environment.tp().world_size());
    for group in [environment.tp(), environment.dp(), environment.world()] {
        check::<f32>(group, rank, local);
        check::<f64>(group, rank, local);
        check::<f16>(group, rank, local);
        check::<bf16>(group, rank, local);
        check::<i8>(group, rank, local);
        check::<u32>(group, rank, local);
        check::<i64>(group, rank, local);
    }
}

/// The TCP sockets that listen on this host: address and port.
fn listening() -> Vec<(IpAddr, u16)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let six = std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    assert!(!six.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some("0A")), "{six}");
    let socket = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (address, port) = fields.next()?.split_once(':')?;
        let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
        (fields.nth(1) == Some("0A")).then(|| (address.into(), u16::from_str_radix(port, 16).unwrap()))
    };
    table.lines().filter_map(socket).collect()
}

fn sums() {
    let environment = open();
    let rank = environment.world().rank();
    let hosts = environment.hosts();
    let local = environment.tp().world_size();
    assert_eq!((hosts.node_rank(rank), hosts.local_rank(rank)), (Some(rank / local), Some(rank % local)));
    assert_eq!(environment.dp().communicator().unwrap_err().to_string().matches("2 hosts").count(), 1);
    check_groups(&environment);
    // Once the ranks have met, only rank 0 listens, at its own interface.
    let expected = if rank < local { vec![(ADDRESSES[0].parse().unwrap(), PORT)] } else { Vec::new() };
    assert_eq!(listening(), expected);
    say("summed");
    hear();
    check_groups(&environment);
    environment.world().barrier().unwrap();
    environment.close().unwrap();
}

fn survives() {
    let environment = open();
    let (rank, group) = (environment.world().rank(), environment.world());
    let stream = Stream::new(group.local().device()).unwrap();
    let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 1000], &stream).unwrap();
    group.all_reduce(&buffer, &buffer, &stream).unwrap();
    say("ready");
    if rank == 3 {
        std::thread::sleep(PATIENCE);
    }
    let start = Instant::now();
    let error = loop {
        if let Err(error) = group.all_reduce(&buffer, &buffer, &stream) {
            break error;
        }
    };
    assert!(matches!(error, Error::PeerLost { rank: 3, .. }), "{error:?}");
    assert_eq!(environment.close(), Err(error.clone()));
    say(&format!("after {:?}: {error}", start.elapsed()));
}

/// A grid of local tensor and data ranks, then of hosts.
fn mixed(environment: &Environment, [local_tensor, local_data, across_tensor, across_data]: [usize; 4]) -> Mixed {
    let (mut grid, mut config) = (Grid::default(), MixedConfig::default());
    (grid.local_tensor, grid.local_data) = (Some(local_tensor), Some(local_data));
    (grid.across_tensor, grid.across_data) = (Some(across_tensor), Some(across_data));
    (config.grid, config.most_bytes) = (grid, 4096);
    Mixed::open(environment.world(), &config).unwrap()
}

/// Every operation in every mode of every grid of the hosts with two ranks each, on whole numbers.
fn grids() {
    let environment = open();
    let (rank, world) = (environment.world().rank(), environment.world().world_size());
    let stream = Stream::new(environment.world().local().device()).unwrap();
    let hosts = world / 2;
    for sizes in [[2, 1, hosts, 1], [2, 1, 1, hosts], [1, 2, hosts, 1], [1, 2, 1, hosts]] {
        let mixed = mixed(&environment, sizes);
        let [local_tensor, local_data, across_tensor, across_data] = sizes;
        let data_of = |rank: usize| rank % 2 / local_tensor + rank / 2 / across_tensor * local_data;
        let data = local_data * across_data;
        assert_eq!((mixed.data_rank(), mixed.data_size()), (data_of(rank), data));
        for operation in mixed.operations() {
            let gathers = matches!(operation, MixedOperation::AllGather | MixedOperation::AllReduceAllGather);
            let scatters = matches!(operation, MixedOperation::ReduceScatter | MixedOperation::ReduceScatterAllReduce);
            for (mode, count) in
                mixed.modes(operation).into_iter().chain([MixedMode::Auto]).zip([1, 129, 700, 3001].into_iter().cycle())
            {
                let takes = if scatters { data * count } else { count };
                let value = |rank: usize, index: usize| (rank + 1) as i32 * 1000 + (index % 997) as i32;
                let sum = |index: usize, of: &dyn Fn(usize) -> bool| -> i32 {
                    (0..world).filter(|rank| of(*rank)).map(|rank| value(rank, index)).sum()
                };
                let expected: Vec<i32> = match (gathers, scatters) {
                    (true, _) => {
                        (0..data * count).map(|at| sum(at % count, &|rank| data_of(rank) == at / count)).collect()
                    }
                    (_, true) => (0..count).map(|at| sum(data_of(rank) * count + at, &|_| true)).collect(),
                    _ => (0..count).map(|at| sum(at, &|_| true)).collect(),
                };
                let input: Vec<i32> = (0..takes).map(|index| value(rank, index)).collect();
                let input = DeviceBuffer::from_slice(&input, &stream).unwrap();
                let output = DeviceBuffer::<i32>::new(environment.world().local().device(), expected.len()).unwrap();
                mixed.perform(operation, &input, &output, mode, &stream).unwrap();
                mixed.synchronize(&stream).unwrap();
                assert!(output.read(&stream).unwrap() == expected, "{operation} by {mode} of {count} on {sizes:?}");
            }
        }
        mixed.close().unwrap();
    }
    environment.world().barrier().unwrap();
    environment.close().unwrap();
}

/// Calls between hosts until a rank is gone.
fn grid_survives() {
    let environment = open();
    let (rank, stream) = (environment.world().rank(), Stream::new(environment.world().local().device()).unwrap());
    let mixed = mixed(&environment, [2, 1, 2, 1]);
    let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 1000], &stream).unwrap();
    let call = |mode| mixed.all_reduce(&buffer, &buffer, mode, &stream).and_then(|()| mixed.synchronize(&stream));
    call(MixedMode::TwoShotAcross).unwrap();
    say("ready");
    if rank == 3 {
        std::thread::sleep(PATIENCE);
    }
    let start = Instant::now();
    let modes = [MixedMode::TwoShotAcross, MixedMode::OneShot];
    let error = (0..).find_map(|number: usize| call(modes[number % 2]).err()).unwrap();
    say(&format!("after {:?}: {error}", start.elapsed()));
    assert!(mixed.close().is_err());
    let _ = environment.close();
}

/// 10,000 connections to rank 0 by a stranger.
fn stranger() {
    let address: SocketAddr = (ADDRESSES[0].parse::<IpAddr>().unwrap(), PORT).into();
    let mut random = Random(std::process::id().into());
    let mut connected = 0;
    while connected < 10_000 {
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else { continue };
        connected += 1;
        let noise: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
        // It may be thrown out while it writes.
        let _ = match connected % 4 {
            0 => Ok(()),
            1 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n"),
            2 => stream.write_all(b"SYMF\x01\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f"),
            _ => stream.write_all(&noise),
        };
    }
    say("knocked");
}

#[test]
#[ignore = "needs network namespaces: .ci/hosts runs it"]
fn two_hosts_sum_bit_for_bit() {
    let _cable = CABLE.lock();
    let _hosts = Hosts::lay(2);
    bounded(Duration::from_secs(400), || {
        for local in [2, 3] {
            let mut ranks: Vec<_> = (0..2 * local).map(|rank| Player::rank(rank, [2, local], "sums")).collect();
            ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "summed"));
            ranks.iter_mut().for_each(|rank| rank.tell("go on"));
            ranks.into_iter().for_each(Player::finish);
        }
    });
}

#[test]
#[ignore = "needs network namespaces: .ci/hosts runs it"]
fn hosts_run_every_grid() {
    let _cable = CABLE.lock();
    for hosts in [2, 3] {
        let _hosts = Hosts::lay(hosts);
        bounded(Duration::from_secs(200), || {
            let rank = |rank| Player::rank(rank, [hosts, 2], "grids");
            (0..2 * hosts).map(rank).collect::<Vec<_>>().into_iter().for_each(Player::finish);
        });
    }
}

/// A rank that is killed between the two levels of a grid ends the calls of all others.
#[test]
#[ignore = "needs network namespaces: .ci/hosts runs it"]
fn a_killed_rank_ends_the_calls_of_its_grid() {
    let _cable = CABLE.lock();
    let _hosts = Hosts::lay(2);
    bounded(Duration::from_secs(200), || {
        let mut ranks: Vec<_> = (0..4).map(|rank| Player::rank(rank, [2, 2], "grid survives")).collect();
        ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "ready"));
        let killed = Instant::now();
        let mut dead = ranks.pop().unwrap();
        dead.child.kill().unwrap();
        let mut named = 0;
        for rank in &ranks {
            // A rank that shares a group with the lost rank names it; the others are notified to give up.
            let words = rank.hear();
            assert!(words.contains("is gone") || words.contains("aborted"), "{words}");
            named += usize::from(words.contains("rank 3 is gone") || words.contains("rank 1 is gone"));
        }
        assert!(named > 0);
        assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
        ranks.into_iter().for_each(Player::finish);
    });
}

#[test]
#[ignore = "needs network namespaces: .ci/hosts runs it"]
fn pitfall_01_a_killed_rank_is_named_on_both_hosts() {
    let _cable = CABLE.lock();
    let _hosts = Hosts::lay(2);
    bounded(Duration::from_secs(200), || {
        let mut ranks: Vec<_> = (0..4).map(|rank| Player::rank(rank, [2, 2], "survives")).collect();
        ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "ready"));
        let killed = Instant::now();
        let mut dead = ranks.pop().unwrap();
        dead.child.kill().unwrap();
        for rank in &ranks {
            let words = rank.hear();
            assert!(words.contains("rank 3 is gone"), "{words}");
        }
        assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
        ranks.into_iter().for_each(Player::finish);
    });
}

#[test]
#[ignore = "needs network namespaces: .ci/hosts runs it"]
fn pitfall_35_ten_thousand_strangers_are_refused_and_the_ranks_meet() {
    let _cable = CABLE.lock();
    let _hosts = Hosts::lay(2);
    bounded(Duration::from_secs(400), || {
        let knock = || Player::start(1, "stranger", &[]);
        let mut ranks: Vec<_> = (0..3).map(|rank| Player::rank(rank, [2, 2], "sums")).collect();
        let early = knock();
        assert_eq!(early.hear(), "knocked");
        // The world forms among them, and works while more come.
        let late = knock();
        ranks.push(Player::rank(3, [2, 2], "sums"));
        ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "summed"));
        ranks.iter_mut().for_each(|rank| rank.tell("go on"));
        let log = ranks[0].log();
        assert!(log.iter().any(|line| line.contains("refused strangers at 10.77.0.1:29461: 8192 so far")), "{log:?}");
        drop(late);
        early.finish();
        ranks.into_iter().for_each(Player::finish);
    });
}
