//! Tests of `crates/harness/src/devices.rs`, whose module they are.

use super::*;

#[test]
fn shared_gpus_need_not_be_as_many_as_ranks() {
    let found = |cuda, hip, share| automatic(&[(DeviceKind::Cuda, cuda), (DeviceKind::Hip, hip)], 4, share);
    assert_eq!([found(4, 0, false), found(4, 0, true)], [DeviceKind::Cuda; 2]);
    assert_eq!([found(1, 0, false), found(1, 0, true)], [DeviceKind::Host, DeviceKind::Cuda]);
    assert_eq!([found(0, 3, false), found(0, 3, true)], [DeviceKind::Host, DeviceKind::Hip]);
    assert_eq!([found(1, 4, false), found(1, 4, true)], [DeviceKind::Hip; 2]);
    assert_eq!([found(0, 0, false), found(0, 0, true)], [DeviceKind::Host; 2]);
}
