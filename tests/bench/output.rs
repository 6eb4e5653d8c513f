//! Help, and output that is cut off or cannot be written.

use std::fs::File;

use super::{Run, command, help, printed_at_a_signal};

#[test]
fn help_has_the_units_and_the_sizes() {
    for command in ["all-reduce", "overlap"] {
        let help = help(command);
        let words = "K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB are powers of 1000";
        assert!(help.contains(words), "{command}: {help}");
    }
    let help = help("all-gather");
    for words in ["Exit status: 0", "A size is that of a rank's input"] {
        assert!(help.contains(words), "`{words}` is not in: {help}");
    }
}

#[test]
fn rows_are_printed_at_a_signal() {
    let args = "all-reduce --ranks-as threads --iterations 100";
    let table = printed_at_a_signal(args, "30");
    assert!(table.contains("1024") && table.contains("bytes"), "{table}");
    let object = printed_at_a_signal(&format!("{args} --json"), "80");
    let report: serde_json::Value = serde_json::from_str(&object).unwrap();
    assert_eq!(report["rows"][0]["bytes"], 1024, "{object}");
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    for args in
        ["--help", "--version", "all-reduce --device host --ranks 2 --max-bytes 1KiB --operations 1 --launches 1"]
    {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let run: Run = command(args.split(' ')).stdout(full).output().unwrap().into();
        assert_ne!(run.code, 0, "{args}: {}", run.stderr);
        assert!(run.stderr.contains("error: cannot write the output: No space left"), "{args}: {}", run.stderr);
    }
}
