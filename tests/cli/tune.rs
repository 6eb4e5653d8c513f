//! `tune` on the CPU: everything is timed, the file states the results, and determines the choices.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use symmetra::{Algorithm, DeviceKind, Dtype, TunedTiming, Tuning, explain};

use super::symmetra;

/// Few operations of small messages.
const FAST: &str = "tune --device host --operations 2 --launches 2 --max-bytes 4KiB";

#[test]
fn the_file_holds_what_was_found() {
    let folder = tempfile::tempdir().unwrap();
    for (ranks_as, ranks) in [("threads", "3,2"), ("processes", "2")] {
        let path = folder.path().join(format!("{ranks_as}.json"));
        let run = symmetra(&format!(
            "{FAST} --ranks {ranks} --ranks-as {ranks_as} --min-bytes 500 --json --output {}",
            path.display()
        ));
        let report = run.ok().objects().remove(0);
        let tuning = Tuning::load(&path).unwrap();
        assert_eq!(report["tuning"], serde_json::to_value(&tuning).unwrap());
        assert_eq!((tuning.version, tuning.kind.as_str()), (Tuning::VERSION, "host"));
        assert_eq!(tuning.library, env!("CARGO_PKG_VERSION"));
        assert!(!tuning.device.is_empty() && !tuning.driver.is_empty() && tuning.measured_unix_s > 1_700_000_000);

        let mut worlds: Vec<usize> = ranks.split(',').map(|world| world.parse().unwrap()).collect();
        worlds.sort_unstable();
        let keys: Vec<_> =
            tuning.tables.iter().map(|table| (table.world_size, table.floating, table.direct, table.exact)).collect();
        let expected = worlds.iter().flat_map(|world| {
            let kinds = [(true, true), (true, false), (false, true), (false, false)];
            kinds
                .into_iter()
                .flat_map(move |(floating, direct)| [false, true].map(move |exact| (*world, floating, direct, exact)))
        });
        assert_eq!(keys, expected.collect::<Vec<_>>());
        check_tables(&tuning);
        check_timings(&tuning, &report);
    }
    // No other file was left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// Loading gives exactly the ranges in the file.
fn check_tables(tuning: &Tuning) {
    for table in &tuning.tables {
        let dtype = if table.floating { Dtype::F16 } else { Dtype::U8 };
        let rows: Vec<(u64, Algorithm)> = table
            .rows
            .iter()
            .map(|row| (row.up_to_bytes.unwrap_or(u64::MAX), row.algorithm.parse().unwrap()))
            .collect();
        assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1), "{rows:?}");
        assert_eq!(rows.last().unwrap().0, u64::MAX);
        assert!(rows.iter().all(|(_, algorithm)| !table.exact || algorithm.is_exact(dtype, table.world_size)));
        if !table.exact {
            let explain = explain(DeviceKind::Host, None, table.world_size, Some(tuning)).unwrap();
            let ranges = explain(dtype, table.direct);
            assert!(ranges.iter().all(|range| range.reason.contains("symmetra tune")), "{ranges:?}");
            assert_eq!(ranges.iter().map(|range| (range.up_to_bytes, range.choice)).collect::<Vec<_>>(), rows);
        }
    }
}

/// By the measured times, the choice of a table of either determinism is no slower than the choice of the built-in
/// table, and no further from the fastest than the margin.
fn check_choices(tuning: &Tuning, timing: &TunedTiming, margin: f64) {
    let key = (timing.world_size, timing.floating, timing.direct);
    let built_in = explain(DeviceKind::Host, None, timing.world_size, None).unwrap();
    let dtype = if timing.floating { Dtype::BF16 } else { Dtype::I32 };
    for table in tuning.tables.iter().filter(|table| (table.world_size, table.floating, table.direct) == key) {
        let able = |name: &str| {
            let algorithm: Algorithm = name.parse().unwrap();
            !table.exact || algorithm.is_exact(dtype, timing.world_size)
        };
        let row = table.rows.iter().find(|row| row.up_to_bytes.is_none_or(|limit| timing.bytes <= limit)).unwrap();
        let time = timing.times_ns[&row.algorithm] as f64;
        let fastest = timing.times_ns.iter().filter(|(name, _)| able(name)).map(|(_, time)| *time).min().unwrap();
        assert!(time <= fastest as f64 * (1.0 + margin), "{row:?} in {timing:?}, margin {margin}");
        let usual = built_in(dtype, timing.direct).at(timing.bytes).unwrap().choice.name();
        if let Some(usual) = timing.times_ns.get(usual).filter(|_| able(usual)) {
            assert!(time <= *usual as f64, "{row:?} in {timing:?}");
        }
    }
}

/// Every able algorithm at every size, in the file and in the report.
fn check_timings(tuning: &Tuning, report: &serde_json::Value) {
    let sections = report["sections"].as_array().unwrap();
    let same_call = |one: &TunedTiming, other: &TunedTiming| {
        (one.world_size, one.floating, one.direct) == (other.world_size, other.floating, other.direct)
    };
    assert_eq!(tuning.timings.chunk_by(same_call).count(), sections.len());
    for (timings, section) in tuning.timings.chunk_by(same_call).zip(sections) {
        let sizes: Vec<u64> = timings.iter().map(|timing| timing.bytes).collect();
        assert_eq!(sizes, [512, 1024, 2048, 4096], "{timings:?}");
        let rows = section["rows"].as_array().unwrap();
        assert_eq!(rows.len(), timings.len());
        let margin = section["margin"].as_f64().unwrap();
        assert_eq!(margin, 0.02, "{section}");
        for (timing, row) in timings.iter().zip(rows) {
            let dtype = if timing.floating { Dtype::BF16 } else { Dtype::I32 };
            assert_eq!((&section["ranks"], &section["dtype"]), (&timing.world_size.into(), &dtype.name().into()));
            assert_eq!(section["memory"], if timing.direct { "symmetric" } else { "plain" });
            let able = |algorithm: &Algorithm| algorithm.carries(dtype) && (timing.direct || !algorithm.needs_reach());
            let able: BTreeSet<_> =
                Algorithm::ALL.into_iter().filter(able).map(|able| able.name().to_owned()).collect();
            let timed: BTreeSet<_> = timing.times_ns.keys().cloned().collect();
            assert!(!timed.is_empty() && timed.is_subset(&able), "{timed:?}");
            if [512, 1024].contains(&timing.bytes) {
                assert_eq!(timed, able);
            }
            assert!(timing.times_ns.values().all(|time| *time > 0));
            let fastest = timing.times_ns.values().min();
            assert_eq!(timing.times_ns.get(row["fastest"].as_str().unwrap()), fastest, "{row}");
            let table = tuning.tables.iter().find(|table| {
                (table.world_size, table.floating, table.direct, table.exact)
                    == (timing.world_size, timing.floating, timing.direct, false)
            });
            let serves =
                table.unwrap().rows.iter().find(|row| row.up_to_bytes.is_none_or(|limit| timing.bytes <= limit));
            assert_eq!(
                (&row["bytes"], &row["chosen"]),
                (&timing.bytes.into(), &serves.unwrap().algorithm.clone().into())
            );
            assert!(row["before"].as_str().unwrap().parse::<Algorithm>().is_ok());
            check_choices(tuning, timing, margin);
        }
    }
}

#[test]
fn tables_for_people_and_what_info_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuning.json");
    std::fs::write(&path, "what was there before").unwrap();
    let run = symmetra(&format!("{FAST} --ranks 2 --ranks-as threads --dtype f32 --output {}", path.display())).ok();
    for words in [
        "2 ranks, f32, symmetric memory",
        "2 ranks, f32, plain memory",
        "fastest",
        "chosen",
        "before",
        // Headings break at hyphens where the numbers below are narrow or many.
        "two-",
        "\n4 KiB",
    ] {
        assert!(run.stdout.contains(words), "`{words}` is not in: {}", run.stdout);
    }
    run.fits(80);
    assert!(run.stderr.contains(&format!("wrote {}", path.display())), "{}", run.stderr);
    let tuning = Tuning::load(&path).unwrap();
    assert!(tuning.tables.iter().all(|table| table.floating));

    let info = symmetra(&format!("info --device host --ranks 2 --json --tuning {}", path.display())).ok();
    let info = info.objects().remove(0);
    for choices in info["algorithms"].as_array().unwrap() {
        let tuned = choices["dtypes"].as_array().unwrap().contains(&"f32".into());
        let reason = choices["ranges"][0]["reason"].as_str().unwrap();
        assert_eq!(reason.contains("symmetra tune"), tuned, "{choices}");
    }
}

#[test]
fn codecs_and_norms_are_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuning.json");
    let run = symmetra(&format!(
        "{FAST} --ranks 2 --ranks-as threads --dtype bf16 --codec int8,int4 --hidden 300 --output {}",
        path.display()
    ));
    let run = run.ok();
    for words in
        ["int8", "int4", "2 ranks, bf16, symmetric memory: microseconds of one all-reduce and norm of rows of 300"]
    {
        assert!(run.stdout.contains(words), "`{words}` is not in: {}", run.stdout);
    }
    let tuning = Tuning::load(&path).unwrap();
    let codecs: Vec<_> = tuning.codecs.iter().map(|codec| (codec.world_size, codec.codec.as_str())).collect();
    assert_eq!(codecs, [(2, "int8"), (2, "int4")]);
    assert_eq!((tuning.norms.len(), tuning.norms[0].world_size, tuning.norms[0].hidden), (1, 2, 300));
    // Timed, but no algorithm: only algorithms are chosen.
    assert!(tuning.timings.iter().all(|timing| timing.times_ns.contains_key("int8")));
    check_tables(&tuning);

    let info = symmetra(&format!("info --device host --ranks 2 --hidden 300 --json --tuning {}", path.display())).ok();
    let info = info.objects().remove(0);
    assert_eq!((&info["hidden"], info["codecs"].as_array().unwrap().len()), (&300.into(), 2));
    for choices in info["norms"].as_array().unwrap() {
        let reasons = choices["ranges"].as_array().unwrap().iter().map(|range| range["reason"].as_str().unwrap());
        assert!(reasons.into_iter().all(|reason| reason.ends_with("measured by `symmetra tune`")), "{choices}");
    }
}

/// The file decides what experts take, and `info` shows the table.
#[test]
fn experts_are_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuning.json");
    let args = format!("{FAST} --ranks 2 --ranks-as threads --dtype bf16 --experts 8,2,64 --output {}", path.display());
    let run = symmetra(&args).ok();
    for words in ["microseconds of a dispatch and combine, experts 8,2,64", "packets", "direct"] {
        assert!(run.stdout.contains(words), "`{words}` is not in: {}", run.stdout);
    }
    run.fits(80);
    let tuning = Tuning::load(&path).unwrap();
    let experts = &tuning.experts[0];
    assert_eq!(tuning.experts.len(), 1);
    assert_eq!((experts.world_size, experts.experts, experts.top_k, experts.hidden), (2, 8, 2, 64));
    assert!(experts.rows.iter().all(|row| ["packets", "direct"].contains(&row.algorithm.as_str())), "{experts:?}");
    let info =
        symmetra(&format!("info --device host --ranks 2 --experts 8,2,64 --json --tuning {}", path.display())).ok();
    let info = info.objects().remove(0);
    let choices = info["experts"]["choices"].as_array().unwrap();
    assert_eq!(choices.len(), experts.rows.len());
    for (choice, row) in choices.iter().zip(&experts.rows) {
        assert_eq!(choice["method"], row.algorithm, "{choice}");
        assert_eq!(choice["up_to_bytes"].as_u64(), row.up_to_bytes, "{choice}");
        assert!(choice["reason"].as_str().unwrap().contains("measured on this machine"), "{choice}");
    }
}

#[test]
fn what_a_link_leads_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (link, path) = (folder.path().join("link.json"), folder.path().join("tuning.json"));
    symlink("tuning.json", &link).unwrap();
    let run = || symmetra(&format!("{FAST} --ranks 2 --ranks-as threads --dtype f32 --output {}", link.display()));
    // It leads nowhere yet; then to what is there.
    for _ in 0..2 {
        run().ok();
        assert_eq!(std::fs::read_link(&link).unwrap().to_str(), Some("tuning.json"));
        Tuning::load(&path).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        std::fs::write(&path, "what was there before").unwrap();
    }
}

#[test]
fn what_is_no_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.json");
    symlink("/dev/null", &link).unwrap();
    let run = symmetra(&format!("{FAST} --ranks 2 --ranks-as threads --dtype f32 --output {}", link.display()));
    run.refused(2, &["--output: cannot write", "link.json", "no regular file"]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn without_an_output_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = super::command(format!("{FAST} --ranks 2 --ranks-as threads --dtype i64").split_whitespace());
    let run = super::Run::from(command.current_dir(folder.path()).output().unwrap()).ok();
    assert!(run.stdout.contains("2 ranks, i64, plain memory") && !run.stderr.contains("wrote"), "{}", run.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn wrong_usage() {
    for (args, words) in [
        ("tune --ranks 1", ["1 is not in 2..=16"].as_slice()),
        ("tune --ranks 2,17", &["17 is not in 2..=16"]),
        ("tune --device host --dtype f32,bf16", &["f32 and bf16 both stand for floating types"]),
        ("tune --device host --dtype i8,bf16,u64", &["i8 and u64 both stand for integers"]),
        ("tune --device host --dtype i32,f32 --codec int8", &["--codec int8 needs --dtype f16 or bf16"]),
        ("tune --device host --codec none", &["--codec none"]),
        ("tune --device host --codec int8,int8", &["--codec names int8 twice"]),
        ("tune --device host --dtype i32 --hidden 8", &["--hidden needs --dtype f32, f16 or bf16"]),
        ("tune --device host --experts 8,2", &["--experts", "deepseek, mixtral"]),
        ("tune --device host --experts 3000,2,64", &["packets cannot serve a layer of this many experts"]),
        ("tune --device host --experts 8,65,64", &["the number of experts of a token is 65"]),
        ("tune --device host --min-bytes 8KiB --max-bytes 4KiB", &["--min-bytes is 8 KiB", "4 KiB"]),
        ("tune --device host --min-bytes 16777215TiB", &["no memory holds"]),
        ("tune --device host --output nowhere/tuning.json", &["nowhere is no folder"]),
        ("tune --device host --output /", &["names no file"]),
        ("tune --device host --output /proc/tuning.json", &["cannot write /proc/tuning.json"]),
    ] {
        symmetra(args).refused(2, words);
    }
}

/// Every operation of a mesh, in both kinds of memory and every mode, and `auto` follows the file.
#[test]
fn grids_are_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grids.json");
    let sizes = "--min-bytes 2KiB --dtype bf16 --ranks 4 --ranks-as threads --local-tp 2";
    let run = symmetra(&format!("{FAST} --mixed {sizes} --json --output {}", path.display()));
    let report = run.ok().objects().remove(0);
    let tuning = Tuning::load(&path).unwrap();
    assert_eq!(report["tuning"]["grids"], serde_json::to_value(&tuning.grids).unwrap());
    let named = |grid: &symmetra::TunedGrid| {
        assert_eq!([grid.local_tensor, grid.local_data, grid.across_tensor, grid.across_data], [2, 2, 1, 1]);
        (grid.operation.clone(), grid.direct)
    };
    let both = ["all-reduce-all-gather", "reduce-scatter-all-reduce"];
    let expected = [true, false].map(|direct| both.map(|operation| (operation.to_owned(), direct))).concat();
    assert_eq!(tuning.grids.iter().map(named).collect::<Vec<_>>(), expected);
    let sections = report["sections"].as_array().unwrap().iter().filter(|section| !section["grid"].is_null());
    for (section, grid) in sections.zip(&tuning.grids) {
        assert_eq!(section["grid"]["operation"], grid.operation.as_str());
        for row in section["rows"].as_array().unwrap() {
            let timed = row["times_us"].as_array().unwrap().iter().map(|time| time[0].as_str().unwrap().to_owned());
            let all = ["one-shot", "two-shot", "one-collective", "two-collectives"].map(str::to_owned);
            assert_eq!(timed.collect::<BTreeSet<_>>(), BTreeSet::from(all), "{row}");
            let bytes = row["bytes"].as_u64().unwrap();
            let range = grid.rows.iter().find(|range| range.up_to_bytes.is_none_or(|limit| bytes <= limit)).unwrap();
            assert_eq!(row["chosen"], range.algorithm.as_str(), "{row}");
        }
    }
    let shown = format!("--device host --ranks 4 --local-tp 2 --tuning {}", path.display());
    let info = symmetra(&format!("info --json {shown}")).ok().objects().remove(0);
    let choices = info["grid"]["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    let [least, most] = tuning.grids[0].measured_bytes.unwrap();
    for range in choices.iter().flat_map(|choice| choice["ranges"].as_array().unwrap()) {
        let measured = (least..=most).contains(&range["up_to_bytes"].as_u64().unwrap_or(u64::MAX));
        let reason = if measured { "measured by `symmetra tune`" } else { "estimated from the steps" };
        assert_eq!(range["reason"], reason, "{least} to {most} bytes: {choices:?}");
    }
    let run =
        symmetra(&format!("mixed {} --min-bytes 2KiB --max-bytes 2KiB --iterations 2 --json {shown}", both[1])).ok();
    let rows = &tuning.grids[1].rows;
    let range = rows.iter().find(|range| range.up_to_bytes.is_none_or(|limit| limit >= 2048)).unwrap();
    assert_eq!(run.objects()[0]["runs"], range.algorithm.as_str(), "{rows:?}");
    // One collective is one-shot by another name on a level alone.
    let level = "--min-bytes 2KiB --dtype bf16 --ranks 2 --ranks-as threads --local-tp 2";
    let report =
        symmetra(&format!("{FAST} --mixed {level} --json --output {}", path.display())).ok().objects().remove(0);
    let sections = report["sections"].as_array().unwrap().iter().filter(|section| !section["grid"].is_null());
    for row in sections.flat_map(|section| section["rows"].as_array().unwrap()) {
        let timed: Vec<_> = row["times_us"].as_array().unwrap().iter().map(|time| time[0].as_str().unwrap()).collect();
        assert_eq!(timed, ["one-shot", "two-shot"], "{row}");
    }
    symmetra("tune --local-tp 2").refused(2, &["--local-tp", "--mixed"]);
    symmetra("tune --mixed --ranks 4 --local-tp 3").refused(2, &["3 x ?", "4 ranks of a host"]);
}
