//! Tests of `crates/harness/src/bytes.rs`, whose module they are.

use super::*;

#[test]
fn sizes_read_and_write() {
    for (text, bytes) in [
        ("0", 0),
        ("1000", 1000),
        ("8B", 8),
        ("64K", 64 << 10),
        ("64k", 64 << 10),
        ("64KiB", 64 << 10),
        ("64KB", 64_000),
        ("64kb", 64_000),
        ("1M", 1 << 20),
        ("1MB", 1_000_000),
        ("1MiB", 1 << 20),
        ("16 MiB", 16 << 20),
        ("1G", 1 << 30),
        ("1GiB", 1 << 30),
        ("2GB", 2_000_000_000),
        ("1T", 1 << 40),
        ("3TB", 3_000_000_000_000),
    ] {
        assert_eq!(parse(text), Ok(bytes), "{text}");
    }
    for text in
        ["", "KiB", "64Ki", "64KBs", "64BB", "64iB", "6µ", "-1", "1.5MiB", "99999999999999999999", "99999999TiB"]
    {
        assert!(parse(text).is_err(), "{text}");
    }
    assert_eq!([0, 1000, 1024, 3 << 20, 5 << 40].map(format), ["0 B", "1000 B", "1 KiB", "3 MiB", "5 TiB"]);
}

#[test]
fn what_is_written_is_read() {
    for bytes in [0, 1, 1000, 1 << 10, 3 << 20, 7 << 30, 1 << 40, u64::MAX] {
        assert_eq!(parse(&format(bytes)), Ok(bytes));
    }
}
