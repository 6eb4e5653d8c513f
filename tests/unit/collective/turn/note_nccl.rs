//! Tests of `src/collective/turn/note_nccl.rs`, whose module they are.

use std::time::Duration;

use super::*;
use crate::bootstrap::Threads;
use crate::device::Device;
use crate::error::{Error, Operation};
use crate::group::{BY_NCCL, Config};
use crate::stream::Stream;
use crate::types::{Dtype, Reduction};

fn call(bytes: u64) -> EnqueuedCall {
    EnqueuedCall::new(bytes, Operation::Broadcast.number(), Dtype::F32, Reduction::Sum, BY_NCCL, 3)
}

/// The results of two ranks when rank 1 makes a call with `theirs` bytes, or makes none.
fn announced(check_calls: bool, theirs: Option<u64>) -> Vec<Result<()>> {
    let run = |bootstrap: Threads| -> Result<(Result<()>, Communicator)> {
        let mut config = Config { check_calls, heap_bytes: 1 << 16, ..Config::default() };
        config.deadlines.first_use = Duration::from_secs(3);
        let device = Device::host()?;
        let stream = Stream::new(&device)?;
        let communicator = Communicator::open(bootstrap, &device, config)?;
        let bytes = if communicator.rank() == 0 { Some(64) } else { theirs };
        let outcome = bytes.map_or(Ok(()), |bytes| communicator.announce_elsewhere(call(bytes), (&stream).into()));
        // Fails where the difference was found before.
        let met = communicator.group().barrier();
        let behind = communicator.group().late(Operation::Broadcast, Duration::ZERO);
        let Error::Timeout { rank, .. } = &behind else { panic!("{behind}") };
        let expected = (communicator.rank() == 0 && theirs.is_none()).then_some(1);
        assert_eq!(*rank, expected, "{behind}");
        // The caller keeps the communicator, because a rank that leaves would be another error.
        Ok((outcome.and(met).and(communicator.synchronize(&stream)), communicator))
    };
    std::thread::scope(|scope| {
        let ranks = Threads::new(2).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
        let ranks: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect();
        ranks
            .iter()
            .map(|rank: &Result<_>| rank.as_ref().map_err(Clone::clone).and_then(|rank| rank.0.clone()))
            .collect()
    })
}

/// Rank 0 captures the calls that rank 1 makes eagerly, and none of them follows other calls: such a rank counts as
/// present.
#[test]
fn pitfall_06_ranks_begin_with_calls_elsewhere_eager_or_captured() {
    let run = |bootstrap: Threads| -> Result<()> {
        let config = Config { check_calls: false, heap_bytes: 1 << 16, ..Config::default() };
        let device = Device::host()?;
        let stream = Stream::new(&device)?;
        let communicator = Communicator::open(bootstrap, &device, config)?;
        let sums = communicator.symmetric::<i32>(8)?;
        sums.write(&[1; 8], &stream)?;
        let graphs = [
            stream.capture(|capture| communicator.announce_elsewhere(call(64), capture.into()))?,
            stream.capture(|capture| communicator.all_reduce_in_place(&sums, capture))?,
        ];
        match communicator.rank() {
            0 => graphs.iter().try_for_each(|graph| graph.launch(&stream))?,
            _ => {
                communicator.announce_elsewhere(call(64), (&stream).into())?;
                communicator.all_reduce_in_place(&sums, &stream)?;
            }
        }
        communicator.synchronize(&stream)?;
        assert_eq!(sums.read(&stream)?, [2; 8]);
        drop(graphs);
        communicator.close()
    };
    std::thread::scope(|scope| {
        let ranks = Threads::new(2).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap().unwrap());
    });
}

#[test]
fn pitfall_04_calls_elsewhere_are_compared_where_calls_are() {
    assert_eq!(announced(true, Some(64)), [Ok(()), Ok(())]);
    let outcomes = announced(true, Some(60));
    let Err(error @ Error::Mismatch { .. }) = &outcomes[0] else { panic!("{outcomes:?}") };
    let words = error.to_string();
    assert!(words.contains("broadcast of root 3 of 64 bytes of f32 by NCCL"), "{words}");
    assert!(words.contains("broadcast of root 3 of 60 bytes of f32 by NCCL"), "{words}");
    let outcomes = announced(true, None);
    assert!(matches!(outcomes[0], Err(Error::Timeout { rank: Some(1), .. })), "{outcomes:?}");
    // Compared off the path of calls, when the group closes.
    let outcomes = announced(false, Some(60));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(Error::Mismatch { .. }))), "{outcomes:?}");
    assert_eq!(announced(false, None), [Ok(()), Ok(())]);
}
