//! Log messages: each part runs in its own process, since many messages are logged once a process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use support::device::device;
use support::is_host;
use support::world::meet;
use symmetra::bootstrap::{Bootstrap, Tcp, TcpConfig};
use symmetra::environment::{Backend, EnvConfig, Environment, InitMethod, warn_of_variables};
use symmetra::{Communicator, Config, Device, DeviceBuffer, Dtype, Error, Stream, TunedRow, TunedTable, Tuning};

/// Set in a process that plays a part.
const PLAYS: &str = "SYMMETRA_TEST_PART";

/// The log of `part` with a subscriber, run in a new process with these variables. `None` in that process, after `part`
/// has run there.
fn logged(test: &str, variables: &[(&str, &str)], part: impl FnOnce()) -> Option<String> {
    said(test, variables, || {
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_ansi(false).without_time();
        log.with_writer(std::io::stderr).init();
        part();
    })
}

/// The standard error of `part`, run in a new process with these variables. `None` in that process, after `part` has
/// run there.
fn said(test: &str, variables: &[(&str, &str)], part: impl FnOnce()) -> Option<String> {
    if std::env::var_os(PLAYS).is_some() {
        part();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(PLAYS, test).envs(variables.iter().copied());
    let run = command.output().unwrap();
    let words = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{words}\n{}", String::from_utf8_lossy(&run.stdout));
    Some(words)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[test]
fn pitfall_36_a_misspelt_variable_is_warned_of_once_where_ranks_meet_by_variables() {
    let variables = [
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "1"),
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("SYMMETRA_SECRTE", "ab"),
        ("AITER_QUICK_REDUCE_CAST_BF16_TO_FP16", "1"),
    ];
    let test = "pitfall_36_a_misspelt_variable_is_warned_of_once_where_ranks_meet_by_variables";
    let words = logged(test, &variables, || {
        for _ in 0..2 {
            let mut config = Config::default();
            config.heap_bytes = 1 << 16;
            let bootstrap = Tcp::from_env(soon()).unwrap();
            Communicator::open(bootstrap, &Device::host().unwrap(), config).unwrap().close().unwrap();
        }
    });
    let Some(words) = words else { return };
    for line in [
        "WARN symmetra::variables: nothing reads the variable SYMMETRA_SECRTE; did you mean SYMMETRA_SECRET?",
        "the variable AITER_QUICK_REDUCE_CAST_BF16_TO_FP16 is set and has no effect: sums are in single precision",
    ] {
        assert_eq!(words.matches(line).count(), 1, "{words}");
    }
    assert!(!words.contains("SYMMETRA_TEST_PART"), "{words}");
}

#[test]
fn a_program_without_a_subscriber_reads_the_log_on_standard_error() {
    let test = "a_program_without_a_subscriber_reads_the_log_on_standard_error";
    let warning = "]: nothing reads the variable SYMMETRA_SECRTE; did you mean SYMMETRA_SECRET?\n";
    for (level, warnings, has_groups) in
        [("", 1, false), ("off", 0, false), ("warn", 1, false), ("info", 1, true), ("all", 1, false)]
    {
        let variables = [("SYMMETRA_SECRTE", "ab"), ("SYMMETRA_LOG", level)];
        let words = said(test, &variables, || {
            meet(2, |bootstrap| environment(bootstrap).close().unwrap());
        });
        let Some(words) = words else { return };
        assert_eq!(words.matches(warning).count(), warnings, "{level}: {words}");
        assert_eq!(words.matches("Z WARN symmetra::variables[").count(), warnings, "{level}: {words}");
        assert_eq!(words.contains("Z INFO symmetra::environment["), has_groups, "{level}: {words}");
        let complaint = "SYMMETRA_LOG is \"all\" and has no effect: it must be one of off, error, warn, info, ";
        assert_eq!(words.matches(complaint).count(), usize::from(level == "all"), "{level}: {words}");
    }
}

#[test]
fn a_subscriber_takes_the_lines_from_when_it_is_installed() {
    let test = "a_subscriber_takes_the_lines_from_when_it_is_installed";
    let words = said(test, &[("SYMMETRA_SECRTE", "ab"), ("SYMMETRA_LOG", "info")], || {
        warn_of_variables();
        tracing_subscriber::fmt().with_writer(std::io::sink).init();
        meet(2, |bootstrap| environment(bootstrap).close().unwrap());
    });
    let Some(words) = words else { return };
    assert_eq!(words.matches("Z WARN symmetra::variables[").count(), 1, "{words}");
    assert!(!words.contains("INFO"), "{words}");
}

#[test]
fn pitfall_35_listening_to_everybody_without_a_secret_is_warned_of() {
    let test = "pitfall_35_listening_to_everybody_without_a_secret_is_warned_of";
    let words = logged(test, &[], || {
        let everywhere = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        for (bind, secret) in [(Some(everywhere), [0; 16]), (Some(everywhere), [7; 16]), (None, [0; 16])] {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let deadline = Instant::now() + Duration::from_millis(200);
            let address = format!("127.0.0.1:{port}");
            let alone = Tcp::connect(TcpConfig::new(address, 0, 2, deadline).secret(secret).bind(bind));
            assert!(matches!(alone, Err(Error::Timeout { .. })), "nobody else comes");
        }
    });
    let Some(words) = words else { return };
    assert_eq!(words.matches("beyond this host, without a secret (SYMMETRA_SECRET)").count(), 1, "{words}");
    assert!(words.contains("WARN") && words.contains("rank 0 listens at 0.0.0.0:"), "{words}");
}

#[test]
fn pitfall_35_strangers_of_another_version_make_few_lines() {
    const STRANGERS: usize = 100;
    let test = "pitfall_35_strangers_of_another_version_make_few_lines";
    let words = logged(test, &[], || {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let config = |rank| TcpConfig::new(address.clone(), rank, 2, soon()).secret([7; 16]);
        std::thread::scope(|scope| {
            let rank0 = scope.spawn(|| Tcp::connect(config(0)).unwrap().barrier(soon()));
            // A hello of version 99.
            let hello =
                [&b"SYMF\x01\0\0\0"[..], &0u64.to_le_bytes(), &4u64.to_le_bytes(), &99u32.to_le_bytes()].concat();
            let mut answered = 0;
            while answered < STRANGERS {
                let Ok(mut stranger) = TcpStream::connect(&address) else {
                    assert!(!rank0.is_finished());
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                stranger.write_all(&hello).unwrap();
                let mut answer = Vec::new();
                stranger.read_to_end(&mut answer).unwrap();
                assert!(String::from_utf8_lossy(&answer).contains("protocol version 99"), "{answer:?}");
                answered += 1;
            }
            Tcp::connect(config(1)).unwrap().barrier(soon()).unwrap();
            rank0.join().unwrap().unwrap();
        });
    });
    let Some(words) = words else { return };
    assert!(words.contains("protocol version 99") && words.contains("(64 refused so far)"), "{words}");
    assert!(words.matches("protocol version 99").count() <= 7, "{words}");
}

fn environment(bootstrap: impl Bootstrap + 'static) -> Environment {
    let mut config = EnvConfig::default();
    (config.device, config.tensor_parallel_size) = (Some(device(bootstrap.rank())), 2);
    config.init_method = InitMethod::bootstrap(bootstrap);
    config.communicator.heap_bytes = 1 << 16;
    Environment::init(config).unwrap()
}

#[test]
fn a_line_a_group_is_logged_when_it_opens() {
    let words = logged("a_line_a_group_is_logged_when_it_opens", &[], || {
        meet(2, |bootstrap| environment(bootstrap).close().unwrap());
    });
    let Some(words) = words else { return };
    let lines: Vec<&str> = words.lines().filter(|line| line.contains("INFO symmetra::environment: ")).collect();
    for name in ["world", "tp", "pp", "dp", "ep"] {
        let start = format!(": {name}: quantised: ");
        let of: Vec<_> = lines.iter().filter(|line| line.contains(&start)).collect();
        assert_eq!(of.len(), 2, "one a rank: {words}");
        assert!(of.iter().all(|line| line.contains(" | own: every operation and type, any size")), "{of:?}");
    }
    assert_eq!(lines.len(), 10, "{words}");
}

#[test]
fn that_there_is_no_nccl_is_said_once_and_the_program_runs() {
    let variables = [("SYMMETRA_NCCL_LIBRARY", "/nowhere/libnccl.so.2")];
    let words = logged("that_there_is_no_nccl_is_said_once_and_the_program_runs", &variables, || {
        for _ in 0..2 {
            meet(2, |bootstrap| {
                let environment = environment(bootstrap);
                let tp = environment.tp();
                let stream = Stream::new(tp.device()).unwrap();
                let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 4], &stream).unwrap();
                let nccl = tp.through(Backend::Nccl).unwrap();
                assert!(matches!(nccl.all_reduce_in_place(&buffer, &stream), Err(Error::Unsupported { .. })));
                tp.all_reduce_in_place(&buffer, &stream).unwrap();
                tp.synchronize(&stream).unwrap();
                assert_eq!(buffer.read(&stream).unwrap(), [2.0; 4]);
                environment.close().unwrap();
            });
        }
    });
    let Some(words) = words else { return };
    assert_eq!(words.matches("NCCL was asked for and cannot be used: rank 0: ").count(), 1, "{words}");
    if cfg!(feature = "nccl") && !is_host() {
        assert!(words.contains("/nowhere/libnccl.so.2"), "{words}");
    }
}

#[test]
fn a_rank_that_does_not_call_is_named_long_before_the_deadline() {
    let test = "a_rank_that_does_not_call_is_named_long_before_the_deadline";
    let words = logged(test, &[], || {
        meet(2, |bootstrap| {
            let own = bootstrap.rank();
            let mut config = Config::default();
            config.heap_bytes = 1 << 16;
            let device = device(own);
            let communicator = Communicator::open(bootstrap, &device, config).unwrap();
            let stream = Stream::new(&device).unwrap();
            let buffer = communicator.symmetric::<f32>(8).unwrap();
            for call in 0..3 {
                if own == 1 && call == 2 {
                    std::thread::sleep(Duration::from_millis(7500));
                }
                communicator.all_reduce_in_place(&buffer, &stream).unwrap();
            }
            communicator.synchronize(&stream).unwrap();
            communicator.close().unwrap();
        });
    });
    let Some(words) = words else { return };
    let line = "call 2 (all-reduce (sum) of 32 bytes of f32 by ";
    assert_eq!(words.matches(line).count(), 1, "{words}");
    assert!(words.contains("of a group of 2 waits on rank 0 for rank 1, whose last call is 1: "), "{words}");
    assert!(words.contains("open: Group(rank 0 of 2") && words.contains("closed: Group(rank 1 of 2"), "{words}");
}

#[test]
fn a_communicator_that_is_dropped_without_close_is_warned_of() {
    let test = "a_communicator_that_is_dropped_without_close_is_warned_of";
    let words = logged(test, &[], || {
        for (closes, abandons, silence) in
            [(true, false, false), (false, true, false), (false, false, true), (false, false, false)]
        {
            meet(2, |bootstrap| {
                let mut config = Config::default();
                config.heap_bytes = 1 << 16;
                config.silence = silence;
                let device = device(bootstrap.rank());
                let communicator = Communicator::open(bootstrap, &device, config).unwrap();
                if closes {
                    communicator.close().unwrap();
                } else if abandons {
                    communicator.abandon();
                }
            });
        }
    });
    let Some(words) = words else { return };
    for rank in 0..2 {
        let line = format!("rank {rank} of 2 drops its communicator without close()");
        assert_eq!(words.matches(&line).count(), 1, "{words}");
    }
}

#[test]
fn a_rank_that_does_not_come_to_a_call_of_the_host_is_named() {
    let test = "a_rank_that_does_not_come_to_a_call_of_the_host_is_named";
    let words = logged(test, &[], || {
        meet(2, |bootstrap| {
            let own = bootstrap.rank();
            let mut config = Config::default();
            config.heap_bytes = 1 << 16;
            let communicator = Communicator::open(bootstrap, &device(own), config).unwrap();
            if own == 1 {
                std::thread::sleep(Duration::from_millis(5500));
            }
            communicator.close().unwrap();
        });
    });
    let Some(words) = words else { return };
    let line = "the collective call `close` of the host waits on rank 0 of 2 for ranks [1]: 5 s";
    assert_eq!(words.matches(line).count(), 1, "{words}");
}

#[test]
fn a_tuning_of_another_kind_of_device_is_said_to_have_no_effect() {
    let test = "a_tuning_of_another_kind_of_device_is_said_to_have_no_effect";
    let words = logged(test, &[], || {
        let foreign = if is_host() { "cuda" } else { "host" };
        let rows = vec![TunedRow::default().up_to_bytes(None).algorithm("ring".to_owned())];
        let table = TunedTable::default().world_size(2).floating(true).direct(true).exact(false).rows(rows);
        for (kind, device_name) in [(device(0).kind().name(), "here"), (foreign, "elsewhere")] {
            let tuning =
                Tuning::default().kind(kind.to_owned()).device(device_name.to_owned()).tables(vec![table.clone()]);
            for _ in 0..2 {
                meet(2, |bootstrap| {
                    let mut config = Config::default();
                    (config.heap_bytes, config.tuning) = (1 << 16, Some(tuning.clone()));
                    let communicator = Communicator::open(bootstrap, &device(0), config).unwrap();
                    let tuned = communicator.explain(Dtype::F32, true)[0].reason.contains("symmetra tune");
                    assert_eq!(tuned, kind != foreign);
                    communicator.close().unwrap();
                });
            }
        }
    });
    let Some(words) = words else { return };
    assert_eq!(words.matches("`elsewhere` has no effect on ").count(), 1, "{words}");
    assert!(!words.contains("`here` has no effect"), "{words}");
}

/// Two ranks that make three calls.
fn three_calls() {
    meet(2, |bootstrap| {
        let mut config = Config::default();
        config.heap_bytes = 1 << 16;
        let device = device(bootstrap.rank());
        let communicator = Communicator::open(bootstrap, &device, config).unwrap();
        let stream = Stream::new(&device).unwrap();
        let one = DeviceBuffer::from_slice(&[1.0_f32], &stream).unwrap();
        let many = DeviceBuffer::from_slice(&[2_i32; 10], &stream).unwrap();
        communicator.all_reduce_in_place(&one, &stream).unwrap();
        communicator.broadcast(&many, 0, &stream).unwrap();
        communicator.all_reduce_in_place(&many, &stream).unwrap();
        communicator.synchronize(&stream).unwrap();
        communicator.close().unwrap();
    });
}

/// The texts of [`three_calls`], in order.
const THREE_CALLS: [&str; 3] = [
    "all-reduce (sum) of 4 bytes of f32",
    "broadcast of root 0 of 40 bytes of i32",
    "all-reduce (sum) of 40 bytes of i32",
];

#[test]
fn a_call_is_a_span() {
    let words = said("a_call_is_a_span", &[], || {
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false).without_time();
        let log = log.with_span_events(tracing_subscriber::fmt::format::FmtSpan::NEW);
        log.with_writer(std::io::stderr).init();
        three_calls();
    });
    let Some(words) = words else { return };
    let spans = words.lines().filter(|line| line.contains("symmetra::calls"));
    let of_rank: Vec<&str> = spans.filter(|line| line.contains("group=a group of 2 rank=0")).collect();
    assert_eq!(of_rank.len(), 3, "{words}");
    for (span, call) in of_rank.iter().zip(THREE_CALLS) {
        assert!(span.contains(&format!("call{{call={call}")), "{words}");
    }
}

#[cfg(feature = "nvtx")]
#[test]
fn a_call_is_a_range_for_a_tool_of_nvtx() {
    let test = "a_call_is_a_range_for_a_tool_of_nvtx";
    if std::env::var_os(PLAYS).is_some() {
        return three_calls();
    }
    let folder = tempfile::tempdir().unwrap();
    let (tool, ranges) = (folder.path().join("tool.so"), folder.path().join("ranges"));
    let mut compiler = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/nvtx_injection.cc");
    compiler.args(["-std=c++17", "-shared", "-fPIC", source, "-o"]).arg(&tool);
    assert!(compiler.status().unwrap().success());
    let variables =
        [("NVTX_INJECTION64_PATH", tool.to_str().unwrap()), ("SYMMETRA_TEST_RANGES", ranges.to_str().unwrap())];
    said(test, &variables, three_calls);
    let found = std::fs::read_to_string(ranges).unwrap();
    assert_eq!(found.lines().next(), Some("domain symmetra"));
    let of_rank: Vec<&str> = found.lines().filter(|line| line.ends_with("rank 0 of a group of 2")).collect();
    assert_eq!(of_rank.len(), 3, "{found}");
    for (range, call) in of_rank.iter().zip(THREE_CALLS) {
        assert!(range.starts_with(&format!("0 {call}")), "{found}");
    }
}

#[cfg(feature = "metrics")]
mod counters {
    //! The counters of calls, for a recorder.

    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

    /// The counters by their keys.
    #[derive(Default)]
    struct Counts(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

    impl Recorder for Counts {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let name = format!("{} {}", key.name(), labels.join(" "));
            Counter::from_arc(self.0.lock().unwrap().entry(name).or_default().clone())
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn calls_and_bytes_are_counted() {
        let test = "counters::calls_and_bytes_are_counted";
        super::said(test, &[], || {
            let counts: &Counts = Box::leak(Box::default());
            metrics::set_global_recorder(counts).unwrap();
            super::three_calls();
            check(counts);
        });
    }

    fn check(counts: &Counts) {
        let counts = counts.0.lock().unwrap();
        let found: Vec<(&str, u64)> =
            counts.iter().map(|(name, count)| (name.as_str(), count.load(Ordering::Relaxed))).collect();
        assert_eq!(
            found,
            [
                ("symmetra_call_bytes operation=all-reduce group=a group of 2", 88),
                ("symmetra_call_bytes operation=broadcast group=a group of 2", 80),
                ("symmetra_calls operation=all-reduce group=a group of 2", 4),
                ("symmetra_calls operation=broadcast group=a group of 2", 2),
            ]
        );
    }
}
