//! Groups that end before their time: aborted, or without a rank.

use std::time::{Duration, Instant};

use symmetra::environment::{Coordinator, Environment, Parallelism};
use symmetra::{DeviceBuffer, Error, Stream};

use super::config;
use crate::support::world::{meet, until};

/// Long before any deadline.
const SOON: Duration = Duration::from_secs(10);

/// The errors of calls on a group that has ended.
pub(crate) fn calls(group: &Coordinator, buffer: &DeviceBuffer<f32>, stream: &Stream) -> Vec<Error> {
    let outcomes = [
        group.all_reduce_in_place(buffer, stream),
        group.barrier(),
        group.broadcast_object(Some(&()).filter(|()| group.rank() == 0), 0).map(drop),
        group.synchronize(stream),
        group.local().synchronize(stream),
    ];
    outcomes.into_iter().filter_map(Result::err).collect()
}

#[test]
fn pitfall_03_a_group_that_is_aborted_ends_on_every_rank_with_the_reason_here() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let tp = environment.group(Parallelism::Tensor);
        let stream = Stream::new(tp.device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 4], &stream).unwrap();
        let start = Instant::now();
        let error = if tp.rank() == 1 {
            tp.abort("the engine is told to stop");
            tp.abort("and told again");
            tp.check().unwrap_err()
        } else {
            // Waits for a rank that does not come.
            let called = tp.all_reduce_in_place(&buffer, &stream);
            called.and_then(|()| tp.synchronize(&stream)).unwrap_err()
        };
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        let by = if tp.rank() == 1 { "by this rank" } else { "by rank 1" };
        let detail = format!(": {by}: the engine is told to stop; in group world");
        assert_eq!(error, Error::Aborted { detail });
        assert_eq!(tp.check(), Err(error.clone()), "it stays so");
        assert_eq!(calls(tp, &buffer, &stream), vec![error.clone(); 5], "whatever is called");
        assert_eq!(environment.close(), Err(error));
    });
}

#[test]
fn aborting_a_closed_group_changes_nothing() {
    meet(2, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [2, 1, 1])).unwrap();
        let tp = environment.tp().clone();
        environment.close().unwrap();
        tp.abort("too late");
        assert_eq!(tp.check(), Err(Error::Closed));
    });
}

#[test]
fn pitfall_01_a_rank_that_leaves_is_named_by_who_waits() {
    meet(3, |bootstrap| {
        let environment = Environment::init(config(bootstrap, [3, 1, 1])).unwrap();
        let tp = environment.tp().clone();
        if tp.rank() == 2 {
            return;
        }
        let stream = Stream::new(tp.device()).unwrap();
        let buffer = DeviceBuffer::<f32>::from_slice(&[1.0; 4], &stream).unwrap();
        let start = Instant::now();
        // The death may be known before the call.
        let called = tp.all_reduce_in_place(&buffer, &stream);
        let error = called.and_then(|()| tp.synchronize(&stream)).unwrap_err();
        assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        until(SOON, "the group has failed", || tp.check() == Err(error.clone()));
    });
}
