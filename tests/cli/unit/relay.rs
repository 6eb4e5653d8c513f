//! Tests of `crates/cli/src/launch/relay.rs`, whose module they are.

use super::*;

fn relayed(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Relay::new().run(3, text, &mut out).unwrap();
    out
}

#[test]
fn every_line_gets_its_rank() {
    assert_eq!(relayed(b""), b"");
    assert_eq!(relayed(b"one\n\ntwo"), b"[3] one\n[3] \n[3] two\n");
    assert_eq!(relayed(b"\xff\xfe\n"), b"[3] \xff\xfe\n");
}

#[test]
fn a_line_without_end_is_broken() {
    let out = relayed(&vec![b'x'; 3 * MAX_LINE_BYTES as usize / 2]);
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 2);
}
