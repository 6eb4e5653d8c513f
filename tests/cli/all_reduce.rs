//! `all-reduce` without files: everything is right, and errors are reported.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::{Run, children, command, is_alive, pid, printed_at_a_signal, symmetra, wait_until, wide};

/// Every row of a run is right; `sizes` of them.
fn right(run: &Run, sizes: usize) {
    let rows = run.objects();
    assert_eq!(rows.len(), sizes, "{}", run.stdout);
    for row in rows {
        assert_eq!(row["wrong"], 0, "{row}");
    }
}

#[test]
fn three_ranks_of_bf16() {
    let run =
        symmetra("all-reduce --ranks 3 --dtype bf16 --json --max-bytes 256KiB --iterations 10 --device host").ok();
    right(&run, 9);
    let mut bytes = 1024;
    for row in run.objects() {
        let keys: BTreeSet<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "ranks",
            "device",
            "collective",
            "op",
            "dtype",
            "bytes",
            "elements",
            "algorithm",
            "memory",
            "in_place",
            "codec",
            "bound",
            "along",
            "graph",
            "seed",
            "time_us",
            "algbw_gbps",
            "busbw_gbps",
            "wrong",
        ];
        assert_eq!(keys, expected.into_iter().collect());
        assert_eq!((&row["ranks"], &row["device"], &row["op"]), (&3.into(), &"host".into(), &"sum".into()));
        assert_eq!((&row["dtype"], &row["graph"]), (&"bf16".into(), &false.into()));
        assert_eq!((&row["bytes"], &row["elements"]), (&bytes.into(), &(bytes / 2).into()));
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("time_us") > 0.0, "{row}");
        let algbw = bytes as f64 / number("time_us") / 1e3;
        assert!((number("algbw_gbps") / algbw - 1.0).abs() < 1e-6, "{row}");
        assert!((number("busbw_gbps") / (algbw * 4.0 / 3.0) - 1.0).abs() < 1e-6, "{row}");
        bytes *= 2;
    }
    let algorithms: BTreeSet<_> = run.objects().iter().map(|row| row["algorithm"].to_string()).collect();
    assert!(algorithms.len() > 1 && !algorithms.contains("\"auto\""), "{algorithms:?}");
}

#[test]
fn codecs_stay_within_their_bounds() {
    for (ranks, codec, more, way) in [
        (2, "int8", "--graph", "one-shot-sentinel int8"),
        (3, "int6", "--plain --op avg --dtype f16", "two-shot-sentinel int6"),
        (4, "int4", "--bound --in-place", "two-shot-sentinel int4"),
        (3, "fp8", "--algorithm one-shot-sentinel --check-calls", "one-shot-sentinel fp8"),
    ] {
        let flags = format!("--ranks {ranks} --codec {codec} --ranks-as threads --device host --json {more}");
        let run = symmetra(&format!("all-reduce {flags} -b 1000 -e 64000 --step-factor 4 --iterations 2")).ok();
        right(&run, 4);
        for row in run.objects() {
            assert_eq!(row["algorithm"], way, "{row}");
            assert_eq!(row["dtype"], if more.contains("f16") { "f16" } else { "bf16" }, "{row}");
        }
    }
    symmetra("all-reduce --codec int8 --dtype f32")
        .refused(2, &["sums and averages of f16 and bf16, not the sum of f32"]);
    symmetra("all-reduce --codec int8 --algorithm ring")
        .refused(2, &["one-shot-sentinel or two-shot-sentinel, not ring"]);
}

/// Sizes on both sides of every crossover, none a power of two. Ranks are processes and threads in turns.
#[test]
fn every_world() {
    let dtypes = ["f32", "f64", "f16", "bf16", "i32", "i64", "i8", "u8", "u32", "u64", "f8e4m3", "f8e5m2"];
    let ops = ["sum", "prod", "min", "max", "avg"];
    let mut case = 0;
    for ranks in super::worlds() {
        for graph in ["", "--graph"] {
            for in_place in ["", "--in-place"] {
                let (dtype, op) = (dtypes[case % dtypes.len()], ops[case % ops.len()]);
                let ranks_as = ["processes", "threads"][(case + case / 4) % 2];
                case += 1;
                let run = symmetra(&format!(
                    "all-reduce --device host --ranks {ranks} --ranks-as {ranks_as} --dtype {dtype} --op {op} {graph} {in_place} \
                     --min-bytes 1000 --max-bytes 32000 --iterations 2 --seed {case} --json"
                ));
                right(&run.ok(), 6);
            }
        }
    }
}

#[test]
fn every_operation_by_name() {
    let dtypes = ["f32", "f64", "f16", "bf16", "i32", "i64", "i8", "u8", "u32", "u64", "f8e4m3", "f8e5m2"];
    for (number, dtype) in dtypes.into_iter().enumerate() {
        let ops = ["sum", "prod", "min", "max", "avg"].into_iter().cycle().skip(number);
        for op in ops.take(if super::full() { 5 } else { 1 }) {
            let run = symmetra(&format!(
                "all-reduce --device host --ranks 3 --ranks-as threads --dtype {dtype} --op {op} --check-calls \
                 --min-bytes 808 --max-bytes 8080 --iterations 2 --json"
            ));
            let run = run.ok();
            right(&run, 4);
            assert!(run.objects().iter().all(|row| row["op"] == op && row["dtype"] == dtype));
        }
    }
}

#[test]
fn every_algorithm_by_name() {
    for algorithm in [
        "one-shot-ll",
        "one-shot-sentinel",
        "two-shot-ll",
        "two-shot-sentinel",
        "two-shot-zero-copy",
        "ring",
        "recursive-doubling",
    ] {
        let run = symmetra(&format!(
            "all-reduce --device host --ranks 3 --ranks-as threads --algorithm {algorithm} --check-calls --most-blocks 1 --determinism free --dtype f16 \
             --min-bytes 2 --max-bytes 8 --iterations 3 --json"
        ));
        let run = run.ok();
        right(&run, 3);
        assert!(run.objects().iter().all(|row| row["algorithm"] == algorithm));
    }
}

#[test]
fn plain_memory() {
    for (ranks_as, graph, large) in [
        ("threads", "", "two-shot-sentinel"),
        ("threads", "--graph", "two-shot-zero-copy"),
        ("processes", "--graph", "two-shot-sentinel"),
    ] {
        let run = symmetra(&format!(
            "all-reduce --device host --ranks 2 --ranks-as {ranks_as} {graph} --plain --min-bytes 64KiB --max-bytes 64KiB --iterations 2 --json"
        ));
        let run = run.ok();
        right(&run, 1);
        assert_eq!(run.objects()[0]["algorithm"], large);
    }
}

#[test]
fn bound_calls() {
    for (ranks_as, form) in
        [("threads", ""), ("processes", "--graph"), ("threads", "--plain --graph"), ("threads", "--in-place --op max")]
    {
        let run = symmetra(&format!(
            "all-reduce --bound --device host --ranks 3 --ranks-as {ranks_as} {form} --dtype bf16 -e 1MiB --iterations 3 --json"
        ));
        let run = run.ok();
        right(&run, 11);
        assert!(run.stderr.contains(", bound, seed"), "{}", run.stderr);
        // A graph registers no operand of a bound call.
        let zero_copy = run.objects().iter().any(|row| row["algorithm"] == "two-shot-zero-copy");
        assert!(!zero_copy || !form.contains("--plain"), "{}", run.stdout);
    }
}

/// Sizes as people and nccl-tests write them.
#[test]
fn sizes_with_units_and_a_factor() {
    for args in ["-b 4K -e 1M -f 16", "--min-bytes 4KiB --max-bytes 1MiB --step-factor 16"] {
        let run =
            symmetra(&format!("all-reduce {args} --device host --ranks 2 --ranks-as threads --iterations 1 --json"));
        let run = run.ok();
        right(&run, 3);
        assert_eq!(
            run.objects().iter().map(|row| row["bytes"].as_u64().unwrap()).collect::<Vec<_>>(),
            [4096, 65536, 1_048_576]
        );
    }
    let run =
        symmetra("all-reduce -b 4KB -e 4kb --device host --ranks 2 --ranks-as threads --iterations 1 --json").ok();
    assert_eq!(run.objects()[0]["bytes"], 4000);
    for command in ["all-reduce", "all-gather", "tune"] {
        let help = super::help(command);
        let words = "K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB are powers of 1000";
        assert!(help.contains(words), "{command}: {help}");
    }
}

#[test]
fn a_table_for_people() {
    let args = "all-reduce --device host --ranks 2 --ranks-as threads --max-bytes 2KiB --iterations 2 --seed 7";
    let run = wide(args).ok();
    let lines: Vec<Vec<&str>> = run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "bytes elements dtype op algorithm time us algbw GB/s busbw GB/s wrong");
    assert_eq!(lines.len(), 4, "{}", run.stdout);
    assert_eq!(lines[3][..3], ["average", "bus", "bandwidth:"]);
    assert_eq!(lines[1][..4], ["1024", "256", "f32", "sum"]);
    assert_eq!(lines[2][8], "0");
    // Talk goes elsewhere, and no progress bar to a pipe.
    assert!(run.stderr.contains("seed 7"), "{}", run.stderr);
    // A slow machine may add a warning.
    assert_eq!(run.stderr.lines().filter(|line| !line.contains("WARN")).count(), 1, "{}", run.stderr);
    // A program that reads it gets 80 characters a line, and still a line a row.
    let run = symmetra(args).ok();
    run.fits(80);
    assert!(
        run.stdout.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().starts_with(&["1024", "256", "f32"]))
    );
}

#[test]
fn wrong_usage() {
    for (args, words) in [
        ("--ranks 0", ["0 is not in 1..=16"].as_slice()),
        ("--ranks 17", &["17 is not in 1..=16"]),
        ("--dtype f8", &["f8", "bf16", "f8e4m3", "f8e5m2"]),
        ("--algorithm fastest", &["fastest", "two-shot-zero-copy"]),
        ("--dtype i32 --algorithm one-shot-sentinel", &["one-shot-sentinel", "i32"]),
        ("--dtype i32 --algorithm ring --op avg", &["ring makes no averages of i32"]),
        ("--plain --algorithm two-shot-zero-copy", &["--plain", "two-shot-zero-copy"]),
        ("--min-bytes 64XB", &["`XB`", "KiB"]),
        ("-f 1", &["1 is not in"]),
        ("--bound --plain --graph --algorithm two-shot-zero-copy", &["--plain", "two-shot-zero-copy"]),
        ("--input a{rank}.npy --output sum.npy --bound", &["--bound"]),
        ("--input a{rank}.npy --output sum.npy -f 4", &["--step-factor"]),
        ("--min-bytes 2MiB --max-bytes 1MiB", &["2 MiB", "1 MiB"]),
        ("--min-bytes 2", &["one f32 has 4 bytes"]),
        ("--iterations 0", &["0 is not in"]),
        ("--op mean", &["mean", "avg"]),
        ("--output sum.npy", &["--input"]),
        ("--input a{rank}.npy", &["--output"]),
        ("--input a{rank}.npy --output sum.npy --graph", &["--graph"]),
    ] {
        symmetra(&format!("all-reduce {args}")).refused(2, words);
    }
    symmetra("rank").refused(2, &["all-reduce"]);
    for kind in [symmetra::DeviceKind::Cuda, symmetra::DeviceKind::Hip] {
        if symmetra::Device::count(kind) < 16 {
            symmetra(&format!("all-reduce --device {kind} --ranks 16")).refused(2, &[kind.name()]);
        }
    }
}

/// A run that would last for minutes, with all ranks at work.
fn long_run() -> std::process::Child {
    let args = "all-reduce --device host --ranks 3 --min-bytes 1KiB --max-bytes 1KiB --iterations 1000000 --json";
    let run = command(args.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the start of 3 ranks", || children(pid(&run)).len() == 3);
    // Long enough to open the group: either way a death is noticed.
    std::thread::sleep(std::time::Duration::from_millis(500));
    run
}

#[test]
fn a_killed_rank_is_named_and_ends_the_run() {
    let run = long_run();
    let ranks = children(pid(&run));
    let started = std::time::Instant::now();
    kill_process(ranks[1], Signal::KILL).unwrap();
    let run: Run = run.wait_with_output().unwrap().into();
    run.refused(1, &["rank 1 was killed by SIGKILL"]);
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    assert!(ranks.into_iter().all(|rank| !is_alive(rank)));
}

#[test]
fn rows_have_what_was_measured_as_fields() {
    let row = |args: &str| {
        let args = format!("{args} --device host --ranks 2 --max-bytes 1KiB --iterations 1 --warmup 0 --seed 5 --json");
        symmetra(&args).ok().objects().remove(0)
    };
    let fields = |row: serde_json::Value, names: &[&str]| -> Vec<serde_json::Value> {
        names.iter().map(|name| row[name].clone()).collect()
    };
    let names = ["memory", "in_place", "codec", "bound", "along", "seed"];
    let all = fields(row("all-reduce --codec int8 --in-place --bound --plain"), &names);
    assert_eq!(serde_json::json!(all), serde_json::json!(["plain", true, "int8", true, null, 5]));
    let usual = fields(row("all-gather --along 1"), &names);
    assert_eq!(serde_json::json!(usual), serde_json::json!(["symmetric", false, "none", false, 1, 5]));
    let norm = symmetra(
        "all-reduce-norm --device host --ranks 2 --hidden 64 --tokens 2 --iterations 1 --plain --gemma --seed 5 --json",
    );
    let norm = fields(norm.ok().objects().remove(0), &["memory", "in_place", "residual", "gemma", "seed"]);
    assert_eq!(serde_json::json!(norm), serde_json::json!(["plain", false, true, true, 5]));
}

#[test]
fn settings_that_cannot_be_are_refused_before_ranks_start() {
    for (args, words) in [
        ("all-reduce --determinism exact --algorithm ring", "--determinism exact"),
        ("all-reduce --determinism exact --codec int8", "--determinism exact"),
        ("all-reduce --algorithm multicast-two-shot", "--multicast try"),
        ("all-gather --transport multicast", "--multicast try"),
        ("all-reduce --min-bytes 512GiB --max-bytes 512GiB", "but the machine has"),
        ("all-reduce --memory nvshmem --ranks-as threads", "--memory nvshmem"),
        ("all-reduce-norm --determinism exact --algorithm ring", "--determinism exact"),
        ("all-reduce-norm --op reduce-scatter --algorithm ring", "--algorithm is ring"),
        ("all-reduce-norm --hidden 1000000 --tokens 1000000", "but the machine has"),
    ] {
        let run = symmetra(&format!("{args} --device host"));
        run.refused(2, &[words]);
        assert_eq!(
            run.stderr.lines().filter(|line| line.contains("drops its communicator")).count(),
            0,
            "{}",
            run.stderr
        );
    }
    if !cfg!(feature = "multicast") {
        symmetra("all-reduce --multicast require --device host").refused(2, &["feature `multicast`"]);
    }
}

#[test]
fn a_table_ends_with_the_average_bandwidth() {
    let run = symmetra("all-reduce --device host --ranks 2 --max-bytes 4KiB --iterations 10").ok();
    let bandwidths: Vec<f64> = run
        .stdout
        .lines()
        .filter(|line| line.contains("f32"))
        .map(|line| line.split_whitespace().nth_back(1).unwrap().parse().unwrap())
        .collect();
    let last = run.stdout.lines().last().unwrap();
    let average: f64 =
        last.strip_prefix("average bus bandwidth: ").unwrap().strip_suffix(" GB/s").unwrap().parse().unwrap();
    assert_eq!(bandwidths.len(), 3);
    assert!((average - bandwidths.iter().sum::<f64>() / 3.0).abs() < 0.0011, "{}", run.stdout);
}

/// A table of more columns than a narrow terminal has room for waits for its end, or for that of the command.
#[test]
fn what_there_is_at_a_signal_is_printed() {
    let said = printed_at_a_signal("all-reduce --iterations 1000", "30");
    assert!(said.contains("1024") && said.contains("bytes"), "{said}");
}

#[test]
fn whoever_reads_no_more_ends_the_run() {
    for ranks_as in ["processes", "threads"] {
        let args = format!("all-reduce --device host --ranks 2 --ranks-as {ranks_as} --json");
        let mut run = command(args.split(' ')).args(["--iterations", "2000"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // The whole sweep takes minutes.
        let started = Instant::now();
        assert_eq!(run.wait().unwrap().code(), Some(1), "{ranks_as}");
        assert!(started.elapsed() < Duration::from_secs(30), "{ranks_as}: {:?}", started.elapsed());
    }
}

/// Runs the command with a library of the test's in every process.
fn with_library(source: &str, args: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let (file, library) = (folder.path().join("library.c"), folder.path().join("library.so"));
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled =
        Command::new(compiler).args(["-shared", "-fPIC", "-o"]).args([&library, &file]).arg("-ldl").status().unwrap();
    assert!(compiled.success());
    command(args.split(' ')).env("LD_PRELOAD", &library).output().unwrap().into()
}

/// The exit of a rank belongs to the run: the command waits for it, and it may fail.
#[test]
fn ranks_are_waited_for_until_they_have_exited() {
    let exit = |how: &str| {
        format!(
            r#"
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            #include <unistd.h>
            __attribute__((destructor)) static void leave(void) {{
              char line[256] = {{0}};
              FILE *file = fopen("/proc/self/cmdline", "r");
              size_t bytes = file ? fread(line, 1, sizeof line - 1, file) : 0;
              if (file) fclose(file);
              if (bytes <= 5 || strcmp(line + bytes - 5, "rank") != 0) return;
              // The other side sees the end of this rank's reports.
              close(1);
              for (int number = 3; number < 64; ++number) close(number);
              {how}
            }}
        "#
        )
    };
    let args = "all-reduce --device host --ranks 2 --max-bytes 1KiB --iterations 1";
    let slow = with_library(&exit(r#"usleep(300000); (void)!write(2, "has exited\n", 11);"#), args).ok();
    assert_eq!(slow.stderr.matches("has exited").count(), 2, "{}", slow.stderr);
    let crashed = with_library(&exit("abort();"), args);
    assert_eq!(crashed.code, 1, "{}", crashed.stderr);
    assert!(crashed.stderr.contains("was killed by SIGABRT"), "{}", crashed.stderr);
}

/// NCCL prints to standard output when it is asked to talk: here a library of the test's does.
#[test]
fn what_libraries_print_does_not_mix_with_what_ranks_say() {
    // On a rank, when it starts its first thread, while it opens its device.
    let talk = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        typedef int Create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
          static int said;
          char line[256] = {0};
          FILE *file = fopen("/proc/self/cmdline", "r");
          size_t bytes = file ? fread(line, 1, sizeof line - 1, file) : 0;
          if (file) fclose(file);
          if (bytes > 5 && strcmp(line + bytes - 5, "rank") == 0 && !said++) (void)!write(1, "NCCL version\n", 13);
          return ((Create *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, with);
        }
    "#;
    let run = with_library(talk, "all-reduce --device host --ranks 2 --max-bytes 1KiB --iterations 1 --json").ok();
    right(&run, 1);
    assert_eq!(run.stderr.matches("NCCL version").count(), 2, "{}", run.stderr);
}

#[test]
fn ranks_do_not_outlive_the_command() {
    let mut run = long_run();
    let ranks = children(pid(&run));
    run.kill().unwrap();
    run.wait().unwrap();
    wait_until("the end of all ranks", || ranks.iter().all(|rank| !is_alive(*rank)));
}
