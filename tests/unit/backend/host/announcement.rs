//! Tests of `src/backend/host/announcement.rs`, whose module they are.

use super::*;
use crate::device::Device;
use crate::memory::{Place, View};
use crate::op::{ALL_GATHER, ALL_GATHER_V, ALL_REDUCE, BROADCAST, Numbers, PartCounts, SEND_RECEIVE};

#[test]
fn calls_differ_in_all_that_they_are() {
    let device = Device::host().unwrap();
    let (address, place, device) = (std::ptr::null_mut(), Place::Plain, &device);
    let view = |elems| View { address, elems, place, device, owner: None, read_only: false };
    let reduce = |reduction: Reduction, dtype, elems| {
        let call = Call::new(&ALL_REDUCE, dtype).options(reduction);
        Announcement::call(&call.input(view(elems)).output(view(elems)))
    };
    let gather = |shape: [usize; 2]| {
        let call = Call::new(&ALL_GATHER, Dtype::F32).numbers(Numbers::Along(1, &shape));
        Announcement::call(&call.input(view(6)).output(view(12)))
    };
    assert!(gather([2, 3]) != gather([3, 2]) && gather([1, 6]) != gather([6, 1]));
    assert_eq!(gather([2, 3]).to_string(), "all-gather, 24 bytes of f32, in 2 rows");
    // The size is that of all parts, which does not depend on the rank.
    let parts = |counts: [usize; 3], own: usize| {
        let call = Call::new(&ALL_GATHER_V, Dtype::F32).numbers(Numbers::Parts(PartCounts(&counts)));
        Announcement::call(&call.input(view(own)).output(view(6)))
    };
    assert!(parts([1, 2, 3], 1) == parts([1, 2, 3], 3) && parts([1, 2, 3], 1) != parts([1, 3, 2], 1));
    assert!(parts([1, 2, 3], 1).to_string().starts_with("all-gather-v, 24 bytes of f32, settings "));
    assert_eq!(parts([0; 3], 0).to_string(), "all-gather-v, no bytes");
    let broadcast = |root| Announcement::call(&Call::new(&BROADCAST, Dtype::F32).parameter(root).output(view(6)));
    let sum = reduce(Reduction::Sum, Dtype::F16, 3);
    assert!(sum == reduce(Reduction::Sum, Dtype::F16, 3) && Announcement::from_words(sum.to_words()) == sum);
    for other in [
        reduce(Reduction::Average, Dtype::F16, 3),
        reduce(Reduction::Sum, Dtype::BF16, 3),
        reduce(Reduction::Sum, Dtype::F16, 4),
        broadcast(0),
        Announcement::objects("barrier", 6),
    ] {
        assert!(sum != other);
    }
    let objects = Announcement::objects;
    assert!(reduce(Reduction::Sum, Dtype::F16, 0) == reduce(Reduction::Sum, Dtype::I8, 0));
    assert!(sum.is_like(&broadcast(0)) && objects("barrier", 1).is_like(&objects("barrier", 9)));
    assert!(!sum.is_like(&objects("barrier", 6)) && !objects("barrier", 6).is_like(&sum));
    assert!(!objects("barrier", 6).is_like(&objects("close", 6)));
    assert_eq!(sum.to_string(), "all-reduce (sum), 6 bytes of f16");
    assert_eq!(broadcast(2).to_string(), "broadcast of root 2, 24 bytes of f32");
    assert_eq!(objects("barrier", 6).to_string(), "barrier");
    let long = "a call whose name takes 33 bytes, ä";
    assert_eq!(objects(long, 6).to_string(), long[..32]);
    let batch = Call::new(&SEND_RECEIVE, Dtype::F32).numbers(Numbers::Messages(&[]));
    assert_eq!(Announcement::call(&batch).to_string(), "send-receive");
}
