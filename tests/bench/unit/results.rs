//! Tests of `crates/bench/src/results.rs`, whose module they are.

use super::*;

#[test]
fn dates_are_of_the_calendar() {
    for (days, expected) in [
        (0, "1970-01-01"),
        (59, "1970-03-01"),
        (789, "1972-02-29"),
        (11_016, "2000-02-29"),
        (11_017, "2000-03-01"),
        (20_786, "2026-11-29"),
        (47_540, "2100-02-28"),
        (47_541, "2100-03-01"),
    ] {
        assert_eq!(date(days), expected);
    }
}

#[test]
fn the_package_version_of_a_driver_is_preferred() {
    assert_eq!(driver("driver 13.0 (580.159.04), runtime 13.0").as_deref(), Some("580.159.04"));
    assert_eq!(driver("driver 6.4, runtime 6.4").as_deref(), Some("6.4"));
    assert_eq!(driver("a CPU"), None);
}

#[test]
fn a_command_has_no_file_of_results() {
    let command = |args: &str| command(args.split(' ').map(str::to_owned));
    assert_eq!(command("floor --output out.json --ranks 2"), "symmetra-bench floor --ranks 2");
    assert_eq!(command("floor --output=out.json --json"), "symmetra-bench floor --json");
}
