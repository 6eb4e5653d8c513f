//! Races on the CPU: everything is measured, right, drawn and written.

use std::collections::BTreeMap;

use super::{Run, bench, wide};

/// Its JSON object.
fn object(run: &Run) -> serde_json::Value {
    let objects = run.objects();
    assert_eq!(objects.len(), 1, "{}", run.stdout);
    objects.into_iter().next().unwrap()
}

/// The file of `--output`, which has the fields of files of bench/results.
fn results(path: &std::path::Path) -> serde_json::Value {
    let written: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut fields: Vec<&String> = written.as_object().unwrap().keys().collect();
    fields.sort();
    let expected = ["columns", "command", "commit", "date", "device", "driver", "peers", "ranks", "rows", "title"];
    assert_eq!(fields, expected);
    assert_eq!((&written["device"], &written["driver"]), (&"CPU".into(), &serde_json::Value::Null));
    let cells = written["columns"].as_array().unwrap().len();
    assert!(written["rows"].as_array().unwrap().iter().all(|row| row.as_array().unwrap().len() == cells));
    written
}

fn positive(value: &serde_json::Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

#[test]
fn a_race_of_one_side_is_right() {
    for ranks_as in ["threads", "processes"] {
        let run = bench(&format!(
            "all-reduce --device host --ranks 3 --ranks-as {ranks_as} --dtype f16 --min-bytes 1000 --max-bytes 64000 \
             --operations 3 --launches 2 --graph --eager --json"
        ));
        let report = object(&run.ok());
        assert_eq!((&report["ranks"], &report["ranks_as"]), (&3.into(), &ranks_as.into()));
        assert_eq!(report["sides"], serde_json::json!(["symmetra"]));
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 7, "{rows:?}");
        for (number, row) in rows.iter().enumerate() {
            assert_eq!(row["bytes"], 1000 << (number / 2), "{row}");
            assert_eq!(row["mode"], if number % 2 == 0 { "graph" } else { "eager" });
            assert_eq!((&row["wrong"]["symmetra"], &row["operations"]), (&0.into(), &3.into()), "{row}");
            assert!(row["ratio"].is_null() && positive(&row["time_us"]["symmetra"]), "{row}");
            assert!(positive(&row["host_us"]["symmetra"]), "{row}");
            let bytes = row["bytes"].as_f64().unwrap();
            let busbw = bytes / row["time_us"]["symmetra"].as_f64().unwrap() / 1e3 * 4.0 / 3.0;
            assert!((row["busbw_gbps"]["symmetra"].as_f64().unwrap() / busbw - 1.0).abs() < 1e-6, "{row}");
        }
        let floor = report["floor"].as_array().unwrap();
        assert_eq!(floor.len(), 6);
        assert!(floor.iter().all(|line| positive(&line["time_us"])), "{floor:?}");
        assert_eq!(floor.iter().filter(|line| positive(&line["gbps"])).count(), 4, "{floor:?}");
    }
}

#[test]
fn integers_and_doubles_race() {
    for dtype in ["f32", "f64", "bf16", "i32", "i64", "f8e4m3", "f8e5m2"] {
        let run = bench(&format!(
            "all-reduce --device host --ranks 2 --ranks-as threads --dtype {dtype} --min-bytes 4096 --max-bytes 4096 \
             --operations 2 --launches 1 --json"
        ));
        let report = object(&run.ok());
        assert_eq!((&report["rows"][0]["wrong"]["symmetra"], &report["dtype"]), (&0.into(), &dtype.into()));
    }
}

#[test]
fn every_collective_races() {
    // The share of its input that a collective moves over a link.
    let races = [("all-gather", 2.0), ("reduce-scatter", 2.0 / 3.0), ("all-to-all", 2.0 / 3.0), ("broadcast", 1.0)];
    for (number, (collective, moved)) in races.into_iter().enumerate() {
        let ranks_as = ["threads", "processes"][number % 2];
        let with = if number < 2 { "--with copy-engine,plain" } else { "--with plain" };
        let run = bench(&format!(
            "{collective} {with} --device host --ranks 3 --ranks-as {ranks_as} --min-bytes 1000 --max-bytes 32000 \
             --operations 3 --launches 2 --graph --eager --json"
        ));
        let report = object(&run.ok());
        assert_eq!(report["collective"], collective);
        let sides: &[&str] = if number < 2 { &["symmetra", "copy-engine", "plain"] } else { &["symmetra", "plain"] };
        assert_eq!(report["sides"], serde_json::json!(sides));
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 6, "{rows:?}");
        for row in rows {
            let bytes = row["bytes"].as_f64().unwrap();
            for side in sides {
                assert_eq!(row["wrong"][side], 0, "{row}");
                let busbw = bytes * moved / row["time_us"][side].as_f64().unwrap() / 1e3;
                assert!((row["busbw_gbps"][side].as_f64().unwrap() / busbw - 1.0).abs() < 1e-6, "{row}");
            }
            assert!(
                row["ratio"].is_null() && ["packets", "direct"].iter().any(|name| row["algorithm"] == *name),
                "{row}"
            );
        }
    }
}

#[test]
fn messages_between_pairs_race_both_ways_and_one_way() {
    for (way, messages, ranks) in [("both", 1, 2), ("one", 3, 3)] {
        let run = bench(&format!(
            "pairs --device host --ranks {ranks} --ranks-as threads --way {way} --messages {messages} --pair-bytes 64KiB \
             --min-bytes 1 --max-bytes 256KiB -f 512 --operations 3 --launches 2 --graph --eager --json"
        ));
        let report = object(&run.ok());
        assert_eq!(
            (&report["way"], &report["messages"], &report["pair_bytes"]),
            (&way.into(), &messages.into(), &65536.into())
        );
        let rows = report["rows"].as_array().unwrap();
        let sizes: Vec<u64> = rows.iter().step_by(2).map(|row| row["bytes"].as_u64().unwrap()).collect();
        assert_eq!((sizes, rows.len()), (vec![1, 512, 262_144], 6), "{rows:?}");
        for row in rows {
            assert_eq!(row["wrong"]["symmetra"], 0, "{row}");
            let bytes = row["bytes"].as_f64().unwrap() * f64::from(messages);
            let gbps = bytes / row["time_us"]["symmetra"].as_f64().unwrap() / 1e3;
            assert!((row["gbps"]["symmetra"].as_f64().unwrap() / gbps - 1.0).abs() < 1e-6, "{row}");
        }
    }
}

#[test]
fn integers_and_a_plot_of_copy_engines() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("out.svg");
    let run = wide(&format!(
        "reduce-scatter --with copy-engine --device host --ranks 2 --ranks-as threads --dtype i32 --max-bytes 4KiB \
         --operations 2 --launches 1 --plot {}",
        svg.display()
    ))
    .ok();
    let head: Vec<&str> = run.stdout.lines().next().unwrap().split_whitespace().collect();
    let columns = "bytes mode algorithm symmetra us copy-engine us ratio busbw GB/s copy-engine GB/s wrong";
    assert_eq!(head.join(" "), columns);
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("reduce-scatter, i32, 2 ranks") && svg.contains("copy-engine"), "{svg}");
    assert_eq!(unclosed(&svg), [""; 0]);
}

/// Registered in graphs where ranks are threads, pushed otherwise: through rings too, whose sums are rounded at every rank.
#[test]
fn plain_memory_races_all_reduces() {
    for (ranks_as, more) in [("threads", ""), ("processes", ""), ("threads", "--algorithm ring")] {
        let directory = tempfile::tempdir().unwrap();
        let (svg, file) = (directory.path().join("out.svg"), directory.path().join("out.json"));
        let run = wide(&format!(
            "all-reduce --with plain {more} --device host --ranks 3 --ranks-as {ranks_as} --min-bytes 1000 \
             --max-bytes 64000 --operations 3 --launches 2 --graph --eager --plot {} --output {}",
            svg.display(),
            file.display()
        ))
        .ok();
        let head: Vec<&str> = run.stdout.lines().next().unwrap().split_whitespace().collect();
        let columns = "bytes mode algorithm symmetra us plain us ratio symmetra host us plain host us busbw GB/s plain GB/s wrong";
        assert_eq!(head.join(" "), columns);
        let written = results(&file);
        let (columns, rows) = (written["columns"].as_array().unwrap(), written["rows"].as_array().unwrap());
        assert_eq!(rows.len(), 2 * 7, "{rows:?}");
        let column = |name: &str| columns.iter().position(|column| column == name).unwrap();
        for row in rows {
            assert_eq!(row[column("wrong")], 0, "{row}");
            assert!(positive(&row[column("plain us")]) && row[column("plain GB/s")].is_number(), "{row}");
            assert_eq!(row[column("plain host us")].is_null(), row[column("mode")] == "graph", "{row}");
        }
        let svg = std::fs::read_to_string(svg).unwrap();
        assert!(svg.contains("plain, eager"), "{svg}");
    }
}

#[test]
fn a_table_and_files() {
    let directory = tempfile::tempdir().unwrap();
    let (svg, json) = (directory.path().join("out.svg"), directory.path().join("out.json"));
    let run = wide(&format!(
        "all-reduce --device host --ranks 2 --ranks-as threads --max-bytes 4KiB --operations 2 --launches 1 --seed 7 \
         --plot {} --output {}",
        svg.display(),
        json.display()
    ))
    .ok();
    let lines: Vec<String> =
        run.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[0], "bytes mode algorithm symmetra us ratio busbw GB/s wrong");
    assert!(lines[1].starts_with("1024 graph ") && lines[1].ends_with(" 0"), "{}", run.stdout);
    assert!(lines.iter().any(|line| line.starts_with("barrier of all ranks")), "{}", run.stdout);
    assert!(run.stderr.contains("seed 7"), "{}", run.stderr);

    let written = results(&json);
    assert_eq!((&written["ranks"], written["rows"].as_array().unwrap().len()), (&2.into(), 3));
    assert_eq!(written["title"], "all-reduce, bf16");
    let command = written["command"].as_str().unwrap();
    assert!(
        command.starts_with("symmetra-bench all-reduce --device host") && !command.contains("out.json"),
        "{command}"
    );

    let svg = std::fs::read_to_string(svg).unwrap();
    assert_eq!(unclosed(&svg), [""; 0]);
    for text in [
        "symmetra",
        "lower is better",
        "higher is better",
        "bus bandwidth",
        "floor: barrier of all ranks",
        "floor: copy engine to the next rank",
        "1 KiB",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    // Texts that a page can show.
    let sizes = svg.split("font-size=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
    assert!(sizes.fold(f64::MAX, f64::min) >= 9.0, "{svg}");
    // Columns that find no room follow below.
    let run = bench(
        "all-gather --with copy-engine,plain --device host --ranks 2 --ranks-as threads --max-bytes 1KiB --graph \
         --eager --operations 2 --launches 1",
    );
    let run = run.ok();
    run.fits(80);
    assert_eq!(run.stdout.lines().filter(|line| line.contains("bytes")).count(), 2, "{}", run.stdout);

    // Two panels with a curve each.
    assert!(svg.matches("<polyline").count() >= 2, "{svg}");
    dark_and_dashed(&svg);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

/// Every floor is a row of dashes of one dark colour, over its panel and next to its name.
fn dark_and_dashed(svg: &str) {
    let mut dashes = BTreeMap::<(&str, bool), Vec<[f64; 2]>>::new();
    for line in svg.split("<polyline ").skip(1) {
        let value = |name: &str| line.split_once(&format!("{name}=\"")).unwrap().1.split('"').next().unwrap();
        let points: Vec<f64> = value("points").split([',', ' ']).filter_map(|number| number.parse().ok()).collect();
        if let [from, height, to, end] = points[..]
            && height == end
            && value("stroke-width") == "2"
            && to - from <= 6.0
        {
            assert_eq!(value("opacity"), "1");
            // Dashes of the upper panel, or of the lower one.
            dashes.entry((value("stroke"), height < 480.0)).or_default().push([from, height]);
        }
    }
    assert_eq!(dashes.len(), 6, "{dashes:?}");
    for ((colour, _), dashes) in dashes {
        let part = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap());
        let luminance = 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
        assert!(luminance < 0.4 * 255.0, "{colour}: {luminance}");
        // The last two are next to the name.
        let (line, legend) = dashes.split_at(dashes.len() - 2);
        assert!(legend[0][1] == legend[1][1] && legend[0][0] < legend[1][0], "{colour}: {legend:?}");
        assert!(line.len() > 20 && line.iter().all(|[_, height]| *height == line[0][1]), "{colour}: {line:?}");
    }
}

/// Elements of an XML text that do not end, or end without a start.
fn unclosed(xml: &str) -> Vec<String> {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        let Some(length) = rest[start..].find('>') else { return vec!["<".to_owned()] };
        let tag = &rest[start + 1..start + length];
        rest = &rest[start + length + 1..];
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or("").to_owned();
        match (tag.starts_with('/'), tag.ends_with('/') || tag.starts_with(['?', '!'])) {
            (true, _) if open.last() == Some(&name) => drop(open.pop()),
            (true, _) => return vec![name],
            (false, true) => {}
            (false, false) => open.push(name),
        }
    }
    open
}

#[test]
fn what_is_not_closed_is_found() {
    assert_eq!(unclosed("<?xml?><a b=\"c\">d<e/><f>g</f></a>"), [""; 0]);
    assert_eq!(unclosed("<a><b></a>"), ["a"]);
    assert_eq!(unclosed("<a><b/>"), ["a"]);
}

#[test]
fn the_floor_of_the_cpu() {
    let run = bench("floor --device host --ranks 3 --ranks-as processes --launches 2 --json").ok();
    let report = object(&run);
    let floor = report["floor"].as_array().unwrap();
    assert_eq!((&report["ranks"], floor.len()), (&3.into(), 10));
    for line in floor {
        let name = line["name"].as_str().unwrap();
        let sends = ["copy engine", "16-byte stores", "kernel: put to"].iter().any(|start| name.starts_with(start));
        assert!(positive(&line["time_us"]), "{line}");
        assert_eq!(positive(&line["gbps"]), sends, "{line}");
        // The data that kernels moved were compared.
        let compared = if name.starts_with("kernel:") { 0.into() } else { serde_json::Value::Null };
        assert_eq!((&line["wrong"], &line["skipped"]), (&compared, &serde_json::Value::Null), "{line}");
    }
    let run = bench("floor --device host --ranks 2 --ranks-as threads --launches 1 --seed 5").ok();
    for words in ["empty kernel", "16-byte stores to all ranks", "fetch_add", "put_signal of 16 bytes"] {
        assert!(run.stdout.contains(words), "no {words} in {}", run.stdout);
    }
}

#[test]
fn the_cost_of_a_call_on_the_cpu() {
    let run = bench("overhead --device host --ranks 2 --ranks-as threads --calls 5 --rounds 3 --json").ok();
    let report = object(&run);
    assert!(positive(&report["bare_us"]) && positive(&report["call_us"]), "{report}");
    let us = |name: &str| report[name].as_f64().unwrap();
    assert!(us("bound_us") > 0.0, "{report}");
    assert!((us("overhead_us") - (us("call_us") - us("bare_us"))).abs() < 1e-9, "{report}");
    assert!((us("bound_overhead_us") - (us("bound_us") - us("bare_us"))).abs() < 1e-9, "{report}");
    assert!((us("dispatch_overhead_us") - (us("dispatch_us") - us("bare_pair_us"))).abs() < 1e-9, "{report}");
    assert!(us("dispatch_us") > 0.0, "{report}");
}

#[test]
fn a_link_that_leads_nowhere_yet_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.json");
    std::os::unix::fs::symlink("out.json", &link).unwrap();
    let floor = "floor --device host --ranks 2 --ranks-as threads --launches 1 --output";
    bench(&format!("{floor} {} --ranks 99", link.display())).refused(2, &[]);
    bench(&format!("{floor} {}", link.display())).ok();
    assert!(link.is_symlink());
    assert_eq!(results(&folder.path().join("out.json"))["ranks"], 2);
    // A pipe is written as it is.
    let run = bench(&format!("{floor} /dev/stdout")).ok();
    assert!(run.stdout.contains("\"ranks\": 2"), "{}", run.stdout);
}

#[test]
fn a_collective_runs_with_products() {
    for collective in ["all-gather", "reduce-scatter"] {
        let run = bench(&format!(
            "overlap --device host --ranks 2 --ranks-as threads --collective {collective} --bytes 10000 --size 64 \
             --matmuls 2 --launches 2 --json"
        ));
        let report = object(&run.ok());
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{rows:?}");
        for (row, kind) in rows.iter().zip(["kernels", "copy-engine"]) {
            assert_eq!((&row["kind"], &row["wrong"]), (&kind.into(), &0.into()), "{row}");
            let times = ["matmul_us", "collective_us", "together_us", "matmul_overlapped_us"];
            assert!(times.iter().all(|time| positive(&row[time])), "{row}");
        }
    }
}

#[test]
fn codecs_race_within_their_bounds() {
    let bench = "all-reduce --device host --ranks 3 --ranks-as threads --with fp8,int8,int6,int4 --min-bytes 999 \
                 --max-bytes 8KiB -f 8 --operations 2 --launches 1";
    let report = object(&wide(&format!("{bench} --json")).ok());
    let sides = ["symmetra", "fp8", "int8", "int6", "int4"];
    assert_eq!(report["sides"], serde_json::json!(sides));
    for row in report["rows"].as_array().unwrap() {
        assert!(sides.iter().all(|side| row["wrong"][side] == 0 && positive(&row["time_us"][side])), "{row}");
        for side in &sides[1..] {
            let ratio = row["time_us"]["symmetra"].as_f64().unwrap() / row["time_us"][side].as_f64().unwrap();
            assert!((row["codec_ratio"][side].as_f64().unwrap() - ratio).abs() < 1e-9, "{row}");
        }
    }
    let run = wide(bench).ok();
    assert!(run.stdout.lines().next().unwrap().contains("ratio  fp8 ratio  int8 ratio"), "{}", run.stdout);
}

#[test]
fn norms_race_in_every_way() {
    for (norm, name) in [("rms", ""), ("layer", ", LayerNorm")] {
        let run = wide(&format!(
            "all-reduce-norm --device host --ranks 3 --ranks-as threads --hidden 100 --tokens 1,5 --graph --eager \
             --algorithm auto,one-shot-sentinel,two-shot-sentinel,ring,apart --norm {norm} --operations 2 --launches 1 \
             --json"
        ));
        let run = run.ok();
        let report = object(&run);
        assert_eq!(report["norm"], norm);
        assert!(run.stderr.contains(&format!("all-reduce, rows of 100 bf16{name}, seed")), "{}", run.stderr);
        let sides = ["auto", "one-shot-sentinel", "two-shot-sentinel", "ring", "apart", "all-reduce"];
        assert_eq!(report["sides"], serde_json::json!(sides));
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 4, "{report}");
        for row in rows {
            assert!(sides.iter().all(|side| row["wrong"][side] == 0 && positive(&row["time_us"][side])), "{row}");
            assert_eq!(row["bytes"], row["tokens"].as_u64().unwrap() * 200, "{row}");
            let cost = row["time_us"]["auto"].as_f64().unwrap() - row["time_us"]["all-reduce"].as_f64().unwrap();
            assert!((row["norm_us"].as_f64().unwrap() - cost).abs() < 1e-9, "{row}");
            assert_eq!((&row["algorithm"]["ring"], &row["ratio"]), (&"ring".into(), &serde_json::Value::Null), "{row}");
        }
    }
    let args =
        "all-reduce-norm --device host --ranks 2 --ranks-as threads --hidden 64 --tokens 2 --dtype f32 --launches 1";
    let run = wide(args).ok();
    assert!(run.stdout.contains("norm us"), "{}", run.stdout);
    bench(args).ok().fits(80);
}

#[test]
fn norms_of_every_form_race_quantised() {
    for (op, format, norm) in [
        ("all-reduce", "mxfp8-swizzled", "layer"),
        ("reduce-scatter", "static-int8", "rms"),
        ("reduce-scatter-all-gather", "per-token-e4m3", "rms"),
        ("reduce-scatter-all-gather", "nvfp4", "layer"),
    ] {
        let run = wide(&format!(
            "all-reduce-norm --device host --ranks 2 --ranks-as threads --hidden 2000 --tokens 2,6 --graph --eager \
             --algorithm auto,apart --operations 2 --launches 1 --op {op} --norm {norm} --quantise {format} --json"
        ));
        let run = run.ok();
        let report = object(&run);
        assert_eq!((&report["op"], &report["quantise"]), (&op.into(), &format.into()));
        let sides = ["auto", "apart", "unquantised", op];
        assert_eq!(report["sides"], serde_json::json!(sides));
        let name = if norm == "layer" { ", LayerNorm" } else { "" };
        let about = format!("{op}, rows of 2000 bf16{name}, quantised as {format}, seed");
        assert!(run.stderr.contains(&about), "{}", run.stderr);
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 4, "{report}");
        for row in rows {
            assert!(sides.iter().all(|side| row["wrong"][side] == 0 && positive(&row["time_us"][side])), "{row}");
            let time_us = |side: &str| row["time_us"][side].as_f64().unwrap();
            let cost = |name: &str, [more, less]: [&str; 2]| {
                (row[name].as_f64().unwrap() - (time_us(more) - time_us(less))).abs() < 1e-9
            };
            assert!(cost("norm_us", ["unquantised", op]) && cost("quantise_us", ["auto", "unquantised"]), "{row}");
            assert_eq!(row["algorithm"]["auto"], "two-shot-sentinel", "{row}");
        }
    }
    let run = wide(
        "all-reduce-norm --device host --ranks 2 --ranks-as threads --hidden 64 --tokens 2 --launches 1 \
         --quantise per-token-int8",
    );
    let run = run.ok();
    assert!(run.stdout.contains("norm us  quantise us  ratio"), "{}", run.stdout);
}

#[test]
fn small_sizes_of_whole_parts_are_measured_once() {
    let run = bench(
        "reduce-scatter --device host --ranks 3 --ranks-as threads --min-bytes 4 --max-bytes 16 --dtype f32 \
         --operations 1 --launches 1 --json",
    );
    let report = object(&run.ok());
    let bytes: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, [12]);
}

#[test]
fn wrong_usage() {
    for (args, words) in [
        ("all-reduce --ranks 1", ["1 is not in 2..=16"].as_slice()),
        ("all-reduce --against mpi", &["mpi", "nccl-symmetric"]),
        ("all-reduce --launches 0", &["0 is not in"]),
        ("all-reduce --operations 0", &["0 is not in"]),
        ("all-reduce --min-bytes 2MiB --max-bytes 1MiB", &["2 MiB", "1 MiB"]),
        ("all-reduce --dtype i32 --algorithm one-shot-sentinel", &["one-shot-sentinel", "i32"]),
        ("all-to-all --with copy-engine", &["copy-engine", "all-to-all"]),
        ("all-reduce --with plain,copy-engine", &["copy-engine", "all-reduce"]),
        ("all-gather --with plain,plain", &["--with names plain twice"]),
        ("all-reduce --with plain --algorithm two-shot-zero-copy", &["--with plain", "two-shot-zero-copy"]),
        ("broadcast --algorithm ring", &["--algorithm"]),
        ("all-gather --with int8", &["--with int8", "all-gather has no such form"]),
        ("all-reduce --with fp8 --dtype f32", &["--with fp8", "f16 and bf16, not of f32"]),
        ("all-reduce-norm --dtype i32", &["f32, f16 or bf16, not i32"]),
        ("all-reduce-norm --op reduce-scatter --ranks 2 --tokens 2,3", &["3 rows", "2 ranks"]),
        (
            "all-reduce-norm --op reduce-scatter-all-gather --tokens 4 --algorithm auto,apart --quantise mxfp8-swizzled",
            &["--algorithm apart", "all-gathers", "mxfp8-swizzled"],
        ),
        ("all-reduce-norm --norm batch", &["--norm", "rms, layer"]),
        ("all-reduce-norm --quantise fp8", &["--quantise", "group-128-e4m3"]),
        ("all-reduce-norm --algorithm apart,apart", &["--algorithm names apart twice"]),
        ("all-reduce-norm --algorithm one-shot", &["one-shot-sentinel", "apart"]),
        ("all-reduce-norm --against nccl-symmetric", &["--against nccl-symmetric", "on our buffers"]),
        ("floor --launches 0", &["0 is not in"]),
        ("floor --ranks 1", &["1 is not in 2..="]),
    ] {
        bench(args).refused(2, words);
    }
    // On the CPU no peer can run, whichever features were built.
    let missing = if cfg!(feature = "nccl") { "needs a GPU for every rank" } else { "cargo build --features nccl" };
    bench("all-reduce-norm --device host --against nccl").refused(2, &["--against nccl", missing]);
    for collective in ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"] {
        for peers in ["nccl", "nccl-symmetric", "nccl,nccl-symmetric"] {
            let run = bench(&format!("{collective} --device host --against {peers}"));
            run.refused(2, &["--against nccl", missing]);
        }
    }
    // Found before anything is measured.
    for command in ["all-reduce", "floor", "overhead"] {
        let unwritable = format!("{command} --device host --ranks 2 --output /nowhere/out.json");
        bench(&unwritable).refused(2, &["--output: cannot write /nowhere/out.json"]);
    }
    bench("floor --device host --ranks 2 --output /").refused(2, &["--output: cannot write /"]);
    // A flag: it takes no path.
    bench("floor --device host --ranks 2 --json out.json").refused(2, &["'out.json'"]);
    bench("all-reduce --device host --plot out.png").refused(2, &["out.png", "must end in .svg"]);
    bench("all-reduce --device host --plot /nowhere/out.svg").refused(2, &["--plot: cannot write /nowhere"]);
}
