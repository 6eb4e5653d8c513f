//! Tests of `crates/cli/src/all_reduce/rank.rs`, whose module they are.

use super::*;

#[test]
fn batches_share_the_iterations() {
    let batches = |iterations, kind, bytes| {
        let (repeats, operations) = Sweep { iterations, ..Sweep::probe(Algorithm::Auto) }.batches(kind, bytes);
        (repeats.timed, operations)
    };
    assert_eq!(batches(Some(1), DeviceKind::Host, 1), (1, 1));
    assert_eq!(batches(Some(25), DeviceKind::Host, 1), (10, 3));
    assert_eq!(batches(None, DeviceKind::Host, 1 << 30), (10, 1));
    assert_eq!(batches(None, DeviceKind::Host, 1 << 10), (10, 20));
    assert_eq!(batches(None, DeviceKind::Cuda, 1 << 10), (10, 100));
}
