//! Times of calls: eager ones, bound ones and those of graphs, and the rank for which a call waited.

use std::time::Duration;

use symmetra::bootstrap::Bootstrap as _;
use symmetra::observe::{CallTimes, Timings, look};
use symmetra::{Config, DeviceBuffer, Error};

use crate::support::world::{meet, open};
use crate::support::{Rank, config, is_host, threads};

#[cfg(feature = "cudarc")]
mod gpu;

/// Settings with times of calls; `None` on GPUs if this build's kernels cannot time calls.
fn timed() -> Option<Config> {
    let mut config = config();
    config.timing = true;
    (is_host() || cfg!(feature = "timing")).then_some(config)
}

/// The row of calls of an operation that have as many bytes.
fn row<'t>(timings: &'t Timings, operation: &str, bytes: u64) -> &'t CallTimes {
    let of = |row: &&CallTimes| row.operation == operation && row.up_to_bytes == bytes;
    timings.calls.iter().find(of).unwrap_or_else(|| panic!("no {operation} of {bytes} bytes in {timings:?}"))
}

/// Waits until the calls of all ranks have ended.
fn finish(rank: &Rank) {
    rank.finish();
    rank.communicator.group().barrier().unwrap();
}

#[test]
fn every_call_is_timed_once_each_time_that_it_runs() {
    let Some(config) = timed() else { return };
    threads(2, &config, |rank| {
        let Rank { communicator, stream, device } = rank;
        let [eager, recorded, bound, captured] =
            [256, 512, 1024, 2048].map(|len| communicator.symmetric::<i32>(len).unwrap());
        let gathered = DeviceBuffer::<i32>::new(device, 2048).unwrap();
        (0..20).for_each(|_| communicator.all_reduce_in_place(&eager, stream).unwrap());
        let plan = communicator.bind_all_reduce(&bound, &bound).unwrap();
        (0..5).for_each(|_| plan.enqueue(stream).unwrap());
        let graph =
            stream.capture(|capture| (0..3).try_for_each(|_| communicator.all_reduce_in_place(&recorded, capture)));
        let graph = graph.unwrap();
        (0..10).for_each(|_| graph.launch(stream).unwrap());
        // SAFETY: the memory of the calls outlives the graph and its launches.
        let capture = unsafe { stream.begin_capture() }.unwrap();
        communicator.all_reduce_in_place(&captured, stream).unwrap();
        let native = capture.end().unwrap();
        (0..7).for_each(|_| native.launch(stream).unwrap());
        // Each rank sends the other one its sums, three times.
        let peer = 1 - rank.rank();
        for _ in 0..3 {
            let made = communicator.pairs(stream, |call| {
                call.send(&captured, peer)?;
                call.receive(&gathered, peer)
            });
            made.unwrap();
        }
        communicator.all_gather(&eager, gathered.borrow().slice(..512).unwrap(), stream).unwrap();
        communicator.all_gather(&bound, &gathered, stream).unwrap();
        finish(rank);
        let timings = communicator.timings().unwrap();
        assert_eq!(timings.unlabelled, 0);
        for (bytes, calls) in [(1024, 20), (2048, 30), (4096, 5), (8192, 7)] {
            let row = row(&timings, "all-reduce", bytes);
            assert_eq!((row.calls, row.attributed), (calls, 1.0), "{row:?}");
            assert!(0.0 < row.median_us && row.median_us <= row.p99_us && row.p99_us <= row.total_us, "{row:?}");
            assert!(row.algorithm.is_some() && row.busbw_gbps.is_some_and(|bandwidth| bandwidth > 0.0), "{row:?}");
        }
        let pairs = row(&timings, "pairs", 8192);
        assert_eq!((pairs.calls, pairs.attributed, pairs.busbw_gbps), (3, 0.0, None), "{pairs:?}");
        // The last call has no next call, which would record the times.
        for bytes in [1024, 4096] {
            let row = row(&timings, "all-gather", bytes);
            assert_eq!((row.calls, row.attributed), (1, 1.0), "{row:?}");
        }
        assert_eq!(timings.calls.len(), 7, "{timings:?}");
        // The same from outside of the group. Ranks that other tests open may come and go.
        let groups = look(Some(std::process::id())).unwrap().groups;
        let seen = groups.iter().find(|group| {
            let all_reduces = group.timings.calls.iter().filter(|row| row.operation == "all-reduce");
            all_reduces.map(|row| row.calls).sum::<u64>() == 62
        });
        assert!(seen.is_some(), "{groups:?}");
        communicator.group().barrier().unwrap();
        drop((graph, native));
        communicator.leave(stream).unwrap();
    });
}

/// A rank comes 20 ms late to each call. Waiting on the other ranks is waiting for that rank.
#[test]
fn a_late_rank_is_named() {
    const LATE: usize = 1;
    let Some(config) = timed() else { return };
    threads(3, &config, |rank| {
        let Rank { communicator, stream, .. } = rank;
        let values = communicator.symmetric::<f32>(1000).unwrap();
        for _ in 0..11 {
            finish(rank);
            if rank.rank() == LATE {
                std::thread::sleep(Duration::from_millis(20));
            }
            communicator.all_reduce_in_place(&values, stream).unwrap();
        }
        finish(rank);
        let timings = communicator.timings().unwrap();
        let row = row(&timings, "all-reduce", 4096);
        assert!(row.calls == 11 && row.attributed == 1.0, "{row:?}");
        let waits: f64 = row.waits.iter().map(|wait| wait.share).sum();
        if rank.rank() == LATE {
            assert!(row.median_us < 20e3, "{row:?}");
        } else {
            let first = row.waits[0];
            assert!(first.rank == LATE && first.share > 0.9 && waits <= 1.0, "{row:?}");
            assert!((15e3..35e3).contains(&row.median_us) && first.mean_us > 15e3, "{row:?}");
        }
        communicator.group().barrier().unwrap();
    });
}

#[test]
fn calls_are_not_timed_unless_the_group_asked_for_that() {
    threads(2, &config(), |rank| {
        let Rank { communicator, .. } = rank;
        let error = communicator.timings().unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("SYMMETRA_TIMING=1"), "{error}");
    });
}

/// The setting is one that ranks must share.
#[test]
fn ranks_agree_on_timing() {
    let Some(timed) = timed() else { return };
    meet(2, |bootstrap| {
        let config = if bootstrap.rank() == 0 { timed.clone() } else { config() };
        let error = open(bootstrap, &config).err().unwrap();
        assert!(matches!(&error, Error::Mismatch { what, .. } if what == "timing"), "{error}");
    });
}
