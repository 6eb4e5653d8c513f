//! `info` and `doctor`.

use symmetra::{Device, DeviceKind};

use super::symmetra;

/// The text about multicast for the host device, this build and this run.
fn multicast_words() -> &'static str {
    if cfg!(feature = "multicast") {
        "a group that asks for it has it"
    } else {
        "the device can, but the build lacks this feature"
    }
}

#[test]
fn doctor_says_whether_there_is_multicast() {
    assert!(symmetra("doctor").stdout.contains(&format!("multicast of host: {}", multicast_words())));
}

#[test]
fn info_and_doctor_name_what_multiplies() {
    assert!(symmetra("doctor").stdout.contains("products on host: matrixmultiply"));
    let run = symmetra("info --device host").ok();
    assert!(run.stdout.contains("matrixmultiply"), "{}", run.stdout);
    let info = symmetra("info --device host --json").ok().objects().remove(0);
    assert_eq!(info["products"][0], serde_json::json!({ "device": "host", "library": "matrixmultiply" }));
}

#[test]
fn info_for_people() {
    let run = symmetra("info --device host --ranks 8").ok();
    // One screen, which names the topics that were not requested.
    assert!(run.stdout.lines().count() <= 40, "{}", run.stdout);
    assert!(run.stdout.contains("more: --settings, --choices, --variables"), "{}", run.stdout);
    assert!(!run.stdout.contains("deadlines.steady") && !run.stdout.contains("MASTER_ADDR"), "{}", run.stdout);
    let run = symmetra("info --device host --ranks 8 --settings --choices --variables").ok();
    for words in [
        env!("CARGO_PKG_VERSION"),
        "MASTER_ADDR",
        "Every other collective",
        "norm of rows of 8192 elements",
        "host 0",
        "deadlines.steady",
        "one-shot-ll",
        "two-shot-zero-copy",
        "8 ranks on host",
        multicast_words(),
    ] {
        assert!(run.stdout.contains(words), "`{words}` is not in: {}", run.stdout);
    }
    assert_eq!(run.stderr, "");
    run.fits(80);
}

/// The choice for quantised rows is that for other rows, except on AMD GPUs, where only the two-shot quantises.
#[test]
fn info_explains_quantised_norms() {
    let norms = |words: &str| {
        let run = symmetra(&format!("info --ranks 4 --hidden 1000 --json {words}")).ok();
        let info = run.objects().remove(0);
        (info["norms"].clone(), info["quantise"].clone())
    };
    let (plain, unquantised) = norms("--device host");
    let (quantised, format) = norms("--device host --quantise mxfp8-swizzled");
    assert!(plain == quantised && unquantised.is_null() && format == "mxfp8-swizzled", "{plain} {quantised}");
    let run = symmetra("info --ranks 4 --device host --hidden 1000 --quantise static-e4m3").ok();
    assert!(run.stdout.contains("norm of rows of 1000 elements, quantised as static-e4m3"), "{}", run.stdout);
    symmetra("info --quantise fp8").refused(2, &["--quantise", "group-128-e4m3"]);
    symmetra("info --device host --quantise static-e2m1").refused(2, &["e2m1", "e4m3, e5m2 or int8"]);
}

#[test]
fn the_version_names_features_and_commit() {
    let run = symmetra("--version").ok();
    let (version, rest) = run.stdout.trim().split_once(" (").unwrap();
    assert_eq!(version, concat!("symmetra ", env!("CARGO_PKG_VERSION")));
    let (features, commit) = rest.trim_end_matches(')').split_once("; commit ").unwrap();
    assert_eq!(features.contains("nccl"), cfg!(feature = "nccl"), "{features}");
    // A commit that is here, as the sources are.
    let git = std::process::Command::new("git").args(["cat-file", "-e", &format!("{commit}^{{commit}}")]).output();
    assert!(commit == "unknown" || git.is_ok_and(|git| git.status.success()), "{commit}");
    assert_eq!(commit == "unknown", !std::path::Path::new("../../.git").exists());
}

/// Long values of variables take lines of their own.
#[test]
fn info_fits_the_terminal() {
    for columns in ["72", "100", "200"] {
        let args = "info --device host --tp 8 --pp 4 --dp 4 --settings --choices --variables";
        let mut command = super::command(args.split(' '));
        let run = super::Run::from(command.env("COLUMNS", columns).output().unwrap()).ok();
        run.fits(columns.parse().unwrap());
    }
    // A value that is not a number is ignored.
    let mut command = super::command(["info", "--device", "host"]);
    super::Run::from(command.env("COLUMNS", "wide").output().unwrap()).ok().fits(80);
}

#[test]
fn info_prints_who_is_in_which_group() {
    let mut command = super::command("info --device host --tp 4 --pp 2 --dp 2 --variables".split(' '));
    let run = super::Run::from(command.env("COLUMNS", "200").output().unwrap()).ok();
    for words in ["Parallel groups of 16 ranks", "[0, 1, 2, 3, 8, 9, 10, 11]", "[11, 15]", "MASTER_ADDR"] {
        assert!(run.stdout.contains(words), "`{words}` is not in: {}", run.stdout);
    }
    assert!(run.stdout.contains("memory on each of 4 ranks"), "{}", run.stdout);
    assert!(run.stdout.starts_with("Parallel groups"), "what was asked for stands first: {}", run.stdout);
    assert!(run.stdout.contains("tensor_parallel_size"), "a setting that is no default: {}", run.stdout);
    let info = symmetra("info --json --device host --tp 8").ok().objects().remove(0);
    assert_eq!(info["ranks"], 8, "those of a tensor parallel group");
    let info = symmetra("info --json --device host --pp 3").ok().objects().remove(0);
    assert_eq!(info["layout"][1], serde_json::json!({ "parallelism": "pp", "groups": [[0, 1, 2]] }));
    assert_eq!(info["layout"][0]["groups"], serde_json::json!([[0], [1], [2]]));
    symmetra("info --device host --tp 2 --ranks 3").refused(2, &["--ranks is 3", "--tp 2", "2 ranks"]);
    for ranks in [2, 4, 8] {
        let info =
            symmetra(&format!("info --json --device host --tp 2 --dp 4 --ranks {ranks}")).ok().objects().remove(0);
        assert_eq!(info["ranks"], ranks);
    }
}

#[test]
fn info_prints_who_stands_where_on_a_grid() {
    let info =
        symmetra("info --json --device host --ranks 8 --hosts 2 --local-tp 2 --across-dp 2").ok().objects().remove(0);
    let places = info["grid"]["places"].as_array().unwrap();
    // Tensor varies fastest; the data ranks of the second host follow those of the first.
    let ranks: Vec<_> =
        places.iter().map(|place| (place["tensor_rank"].as_u64(), place["data_rank"].as_u64())).collect();
    let expected = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)].map(|(t, d)| (Some(t), Some(d)));
    assert_eq!(ranks, expected);
    let choices = info["grid"]["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4, "two operations, two kinds of memory: {choices:?}");
    assert_eq!(choices[0]["ranges"][1]["mode"], "two-shot", "{choices:?}");
    let run = symmetra("info --device host --ranks 4 --local-dp 2").ok();
    assert!(run.stdout.contains("a host 2 tensor x 2 data, 1 host 1 tensor x 1 data"), "{}", run.stdout);
    symmetra("info --device host --ranks 4 --local-dp 3").refused(2, &["? x 3", "4 ranks of a host"]);
}

#[test]
fn pitfall_36_info_says_who_decided() {
    let mut command = super::command(["info", "--json", "--device", "host", "--tp", "2"]);
    command
        .env("SYMMETRA_BACKEND", "own")
        .env("RANK", "1")
        .env("WORLD_SIZE", "6")
        .env("SYMMETRA_SECRET", "0f".repeat(16));
    command.env("SYMMETRA_NCCL_LIBRARY", "/nowhere/a").env("VLLM_NCCL_SO_PATH", "/nowhere/b");
    let run = super::Run::from(command.output().unwrap()).ok();
    assert!(!run.stdout.contains("0f0f"), "{}", run.stdout);
    let info = run.objects().remove(0);
    for expected in [
        ["rank", "1", "RANK"],
        ["world_size", "6", "WORLD_SIZE"],
        ["tensor_parallel_size", "2", "program"],
        ["pipeline_parallel_size", "1", "default"],
        ["backend", "own", "SYMMETRA_BACKEND"],
        ["nccl_library", "/nowhere/a", "SYMMETRA_NCCL_LIBRARY"],
        ["heap_bytes", "67108864", "default"],
    ] {
        let found = info["config"].as_array().unwrap().iter().any(|setting| *setting == serde_json::json!(expected));
        assert!(found, "{expected:?} is not in: {}", info["config"]);
    }
    let from = |name: &str| {
        let variables = info["variables"].as_array().unwrap();
        variables.iter().find(|variable| variable["name"] == name).unwrap()["from"].clone()
    };
    assert_eq!(from("VLLM_NCCL_SO_PATH"), "SYMMETRA_NCCL_LIBRARY");
    assert_eq!((from("SYMMETRA_BACKEND"), from("SYMMETRA_BIND")), ("environment".into(), "default".into()));
    for (feature, on) in [("nccl", cfg!(feature = "nccl")), ("gloo", cfg!(feature = "gloo"))] {
        assert_eq!(info["features"].as_array().unwrap().iter().any(|name| name == feature), on, "{feature}");
    }
    let nccl = info["nccl"].as_str().unwrap();
    assert!(nccl.contains(if cfg!(feature = "nccl") { "/nowhere/a cannot be loaded" } else { "not built" }), "{nccl}");
}

#[test]
fn info_of_settings_that_are_refused_says_why() {
    let run = super::Run::from(super::command(["info", "--device", "host"]).env("RANK", "nine").output().unwrap()).ok();
    assert!(run.stdout.contains("RANK is `nine`, but it must be a number"), "{}", run.stdout);
    assert!(run.stdout.contains("one-shot-ll"), "{}", run.stdout);
}

#[test]
fn pitfall_36_a_variable_that_nothing_reads_is_warned_of() {
    let mut command = super::command(["info", "--device", "host"]);
    let run = super::Run::from(
        command.env("SYMMETRA_SECRTE", "ab").env("AITER_QUICK_REDUCE_CAST_BF16_TO_FP16", "1").output().unwrap(),
    )
    .ok();
    for words in [
        "nothing reads the variable SYMMETRA_SECRTE; did you mean SYMMETRA_SECRET?",
        "the variable AITER_QUICK_REDUCE_CAST_BF16_TO_FP16 is set and has no effect: sums are in single precision",
    ] {
        assert_eq!(run.stderr.matches(words).count(), 1, "{}", run.stderr);
    }
    let mut quantised = super::command(["info", "--device", "host", "--json"]);
    let run = super::Run::from(
        quantised
            .env("AITER_QUICK_REDUCE_QUANTIZATION", "INT4")
            .env("AITER_QUICK_REDUCE_MAX_SIZE_BYTES_MB", "8")
            .output()
            .unwrap(),
    )
    .ok();
    assert_eq!(run.stderr, "");
    let config = &run.objects()[0]["config"];
    let expected = ["quantised", "int4 from 2097152 to 8388608 bytes", "AITER_QUICK_REDUCE_QUANTIZATION"];
    assert!(config.as_array().unwrap().iter().any(|setting| *setting == serde_json::json!(expected)), "{config}");
    let mut silent = super::command(["info", "--device", "host"]);
    let run = super::Run::from(silent.env("SYMMETRA_SECRTE", "ab").env("SYMMETRA_LOG", "off").output().unwrap()).ok();
    assert_eq!(run.stderr, "");
}

#[test]
fn info_for_programs() {
    for device in ["host", "cuda", "hip"] {
        let info = symmetra(&format!("info --json --device {device} --ranks 8")).ok().objects().remove(0);
        assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!((&info["ranks"], &info["device"]), (&8.into(), &device.into()));
        assert_eq!(info["devices"][0]["kind"], "host");
        assert!(info["devices"][0]["memory_bytes"].as_u64().unwrap() > 0);
        let transports = info["transports"].as_array().unwrap();
        assert!(transports.iter().any(|row| row["memory"] == "plain" && row["transport"] == "packets"));
        assert!(transports.iter().any(|row| row["transport"] == "direct" && row["up_to_bytes"].is_null()));
        assert!(info["arena_bytes"].as_u64().unwrap() > 64 << 20);
        let settings = info["config"].as_array().unwrap();
        assert!(settings.iter().any(|setting| setting[0] == "heap_bytes" && setting[1] == "67108864"), "{settings:?}");
        // Every type and memory is served from 0 bytes to any number, without a gap.
        let mut dtypes = Vec::new();
        for choices in info["algorithms"].as_array().unwrap() {
            dtypes.extend(
                choices["dtypes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|dtype| (dtype.to_string(), choices["memory"].to_string())),
            );
            let mut next = Some(0);
            for range in choices["ranges"].as_array().unwrap() {
                assert_eq!(range["from_bytes"].as_u64(), next, "{choices}");
                next = range["up_to_bytes"].as_u64().map(|bytes| bytes + 1);
            }
            assert_eq!(next, None, "{choices}");
        }
        dtypes.sort();
        dtypes.dedup();
        assert_eq!(dtypes.len(), 2 * symmetra::Dtype::ALL.len());
    }
    symmetra("info --ranks 17").refused(2, &["17 is not in 2..=16"]);
}

#[test]
fn doctor_finds_nothing_wrong() {
    let run = symmetra("doctor --json").ok();
    let findings = run.objects();
    for check in ["unix sockets", "memfd", "locked memory", "threads on the CPU", "processes on the CPU", "CUDA", "HIP"]
    {
        let finding = findings.iter().find(|finding| finding["check"].as_str().unwrap().contains(check));
        let finding = finding.unwrap_or_else(|| panic!("no check of {check}: {}", run.stdout));
        assert!(finding["verdict"] == "ok" || finding["verdict"] == "none", "{finding}");
    }
}

#[test]
fn doctor_asks_for_locked_memory_where_there_is_a_gpu() {
    let script = "ulimit -l 8 && exec \"$0\" doctor --json";
    let mut shell = std::process::Command::new("sh");
    let run = super::Run::from(shell.args(["-c", script, env!("CARGO_BIN_EXE_symmetra")]).output().unwrap());
    let gpu = [DeviceKind::Cuda, DeviceKind::Hip].into_iter().any(|kind| Device::count(kind) > 0);
    let findings = run.objects();
    let finding = findings.iter().find(|finding| finding["check"].as_str().unwrap().contains("locked memory")).unwrap();
    assert_eq!(finding["verdict"], if gpu { "fail" } else { "none" }, "{finding}");
    assert!(gpu || run.code == 0, "{}", run.stderr);
}

#[test]
fn doctor_says_what_to_do() {
    let run = super::command(["doctor"]).env("TMPDIR", "/nonexistent/folder").output().unwrap();
    let run = super::Run::from(run);
    assert_eq!(run.code, 1, "{}", run.stdout);
    let line = run.stdout.lines().find(|line| line.contains("unix sockets")).unwrap();
    assert!(line.starts_with("FAIL") && line.contains("No such file") && line.contains("-> point TMPDIR"), "{line}");
    assert!(run.stderr.contains("checks failed"), "{}", run.stderr);
}
