//! Tests of `crates/cli/src/all_reduce/sweep.rs`, whose module they are.

use super::*;

#[test]
fn batches_share_the_iterations() {
    assert_eq!(Pace::new(Some(1), DeviceKind::Host, 1), Pace { batches: 1, ops: 1 });
    assert_eq!(Pace::new(Some(25), DeviceKind::Host, 1), Pace { batches: 10, ops: 3 });
    assert_eq!(Pace::new(None, DeviceKind::Host, 1 << 30), Pace { batches: 10, ops: 1 });
    assert_eq!(Pace::new(None, DeviceKind::Host, 1 << 10), Pace { batches: 10, ops: 20 });
    assert_eq!(Pace::new(None, DeviceKind::Cuda, 1 << 10), Pace { batches: 10, ops: 100 });
}
