//! Files whose headers claim more than the files contain, or that could harm a parser or a terminal.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::files::{Shards, npy, safetensors};
use super::{Run, command};

/// Runs `all-reduce --input` on files, for some seconds at most.
fn reduce_soon(shards: &Shards, more: &[&str]) -> Run {
    let mut run = command(["all-reduce", "--device", "host", "--input"]);
    run.arg(shards.path("{rank}")).arg("--output").arg(shards.path("sum")).args(more);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= end {
            child.kill().unwrap();
            panic!("the command did not end in 20 s");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap().into()
}

/// A .npy file with this header.
fn with_header(header: &[u8]) -> Vec<u8> {
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header].concat()
}

#[test]
fn a_header_of_many_brackets_is_refused_at_once() {
    for nested in ["[", "(", "{", "[(", "{[("] {
        let header = format!("{{'descr':{}", nested.repeat(40));
        let shards = Shards::new("npy", &[with_header(header.as_bytes())]);
        reduce_soon(&shards, &[]).refused(1, &["shard-0.npy", "no .npy file", "brackets"]);
    }
    // As many brackets as the parser accepts, in a header of the largest accepted length.
    for (open, inside) in [("{'descr':{", "'"), ("{'descr':[", "1,"), ("{{", "1,"), ("{[", "-")] {
        let header = open.to_owned() + &inside.repeat(9_900 / inside.len());
        let shards = Shards::new("npy", &[with_header(header.as_bytes())]);
        reduce_soon(&shards, &[]).refused(1, &["shard-0.npy", "no .npy file"]);
    }
    let header = [&b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..], &[b' '; 64]].concat();
    let shards = Shards::new("npy", &[header]);
    reduce_soon(&shards, &[]).refused(1, &["its header has 4294967295 bytes, but must have at most 10000"]);
}

#[test]
fn a_short_file_that_claims_much_is_refused_before_any_rank_starts() {
    let shards = Shards::new("npy", &[npy("<f4", false, "(536870912,)", &[0; 16])]);
    let words = ["shard-0.npy: f32 [536870912] would end at byte 2147483776, but the file has 144 bytes"];
    reduce_soon(&shards, &[]).refused(1, &words);
    shards.no_output();
    let mut cut = safetensors("F32", "[536870912]", &[]);
    let header = String::from_utf8_lossy(&cut[8..cut.len() - 2]).replace("[2,2]", "[2,2147483650]");
    cut = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 18]].concat();
    let shards = Shards::new("safetensors", &[cut]);
    reduce_soon(&shards, &["--tensor", "weight"]).refused(1, &["`weight` f32 [536870912] would end at byte"]);
    reduce_soon(&shards, &[]).refused(1, &["`weight` f32 [536870912] would end at byte"]);
    // The file claims the length of a header, but the header is missing.
    let claim = [&99_999_999u64.to_le_bytes()[..], b"{}"].concat();
    let shards = Shards::new("safetensors", &[claim]);
    reduce_soon(&shards, &[]).refused(1, &["it ends after 2 of the 99999999 bytes of its header"]);
}

#[test]
fn texts_of_a_file_neither_steer_the_terminal_nor_fill_it() {
    let check = |shards: &Shards, more: &[&str], words: &[&str]| {
        let run = reduce_soon(shards, more);
        run.refused(1, words);
        let wild = run.stderr.chars().find(|letter| letter.is_control() && *letter != '\n');
        assert!(wild.is_none() && run.stderr.len() < 1000, "{} bytes: {:?}", run.stderr.len(), run.stderr);
    };
    let name = "\\u001b[2J\\r".to_owned() + &"x".repeat(5000);
    let header = format!("{{\"{name}\":{{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}}}");
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat();
    let shards = Shards::new("safetensors", &[file]);
    check(&shards, &["--tensor", "weight"], &["no tensor `weight`, but `\\u{1b}[2J\\rxxx", "xxx...`"]);

    let code = "\u{1b}[31m".to_owned() + &"x".repeat(5000);
    let shards = Shards::new("safetensors", &[safetensors(&code.replace('\u{1b}', "\\u001b"), "[]", &[])]);
    check(&shards, &[], &["no .safetensors file"]);
    let shards = Shards::new("npy", &[npy(&code, false, "()", &[])]);
    check(&shards, &[], &["shard-0.npy"]);
    let shards = Shards::new("npy", &[npy("<f4", false, &format!("({})", "1,".repeat(2000)), &[])]);
    check(&shards, &[], &["would end at byte", "1, 1, 1"]);
}
