//! Tests of `crates/cli/src/status.rs`, whose module they are.

use super::*;

#[test]
fn a_patience_is_a_duration() {
    assert_eq!(seconds("0.5"), Ok(0.5));
    for refused in ["-1", "nan", "1e30", "soon"] {
        seconds(refused).unwrap_err();
    }
}
