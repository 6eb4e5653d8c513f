//! Tests of `src/group/health.rs`, whose module they are.

use super::*;
use crate::bootstrap::{Bootstrap, Threads};
use crate::device::Device;
use crate::group::{Config, EnqueuedCall, Group};
use crate::types::{Dtype, Reduction};

fn threads(world_size: usize, rank: impl Fn(Threads) -> Result<()> + Sync) -> Vec<Result<()>> {
    let ranks = Threads::new(world_size).unwrap();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|bootstrap| scope.spawn(|| rank(bootstrap))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Makes an exchange of rank 0 fail with `error`, and returns the failure that rank 1 reads from its own page.
fn stopped(error: &Error, expected: &Stop) -> Error {
    let rank = |bootstrap: Threads| -> Result<()> {
        let group = Group::open(bootstrap, &Device::host()?, Config::default())?;
        let own = group.rank();
        if own == 0 {
            assert_eq!(group.exchange(|_, _| Err::<(), _>(error.clone())), Err(error.clone()));
            assert_eq!(group.check(), Err(error.clone()));
        }
        let start = Instant::now();
        while group.check().is_ok() {
            assert!(start.elapsed() < Duration::from_secs(20), "rank {own} is not told");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(group.0.health.pages[own].stopped().as_ref(), Some(expected), "the device of rank {own}");
        let result = group.check();
        // Both ranks have looked before one leaves.
        std::thread::sleep(Duration::from_millis(300));
        result
    };
    let results = threads(2, rank);
    assert_eq!(results[0], Err(error.clone()));
    results[1].clone().unwrap_err()
}

#[test]
fn whatever_fails_a_group_stops_every_device() {
    let late = Error::exchange_timeout(Some(1), Duration::from_secs(1), "it did not come");
    let error = stopped(&late, &Stop { cause: Cause::Failed, by: 0, culprit: 1 });
    assert!(matches!(&error, Error::Aborted { detail } if detail.contains("rank 0 had waited")), "{error}");
    let lost = Error::PeerLost { rank: 1, detail: String::new() };
    let error = stopped(&lost, &Stop { cause: Cause::Lost, by: 0, culprit: 1 });
    assert!(matches!(&error, Error::Aborted { detail } if detail.contains("rank 0 took this one for lost")), "{error}");
    let abort = Stop { cause: Cause::Abort, by: 0, culprit: 0 };
    let error = stopped(&Error::bootstrap("nonsense"), &abort);
    assert_eq!(error, Error::Aborted { detail: ": by rank 0: bootstrap: nonsense".to_owned() });
    let nobody = |words| Error::exchange_timeout(None, Duration::from_secs(1), words);
    assert_eq!(stopped(&nobody("nobody came"), &abort), nobody("nobody came; found by rank 0"));
}

#[test]
fn what_a_rank_passes_on_as_its_own_failure_is_the_groups() {
    let rank = |bootstrap: Threads| -> Result<()> {
        let group = Group::open(bootstrap, &Device::host()?, Config::default())?;
        let [what, ours, theirs] = ["the call", "a sum", "a product"].map(str::to_owned);
        let differs = Error::Mismatch { what, against: 0, ours, rank: 2, theirs };
        let passed_on = Error::Peer { rank: 1, message: differs.to_string() };
        let exchanged = group.exchange(|_, _| {
            group.0.health.fail(differs.clone());
            Err::<(), _>(passed_on.clone())
        });
        assert_eq!(exchanged, Err(differs));
        Ok(())
    };
    assert_eq!(threads(1, rank), [Ok(())]);
}

#[test]
fn a_rank_that_has_not_called_tells_which_others_differ() {
    let noted = std::sync::Barrier::new(3);
    let results = threads(3, |bootstrap| {
        let group = Group::open(bootstrap, &Device::host()?, Config::default())?;
        if group.rank() < 2 {
            let bytes = 8 + group.rank() as u64;
            group.note(EnqueuedCall::new(bytes, args::kOpAllReduce, Dtype::F32, Reduction::Sum, 0, 0));
        }
        noted.wait();
        let result = Err(group.0.health.mismatch(0, 1));
        noted.wait();
        result
    });
    for (result, differ) in results[1..].iter().zip([[1, 0], [0, 1]]) {
        let Err(Error::Mismatch { against, ours, rank, theirs, .. }) = result else { panic!("{result:?}") };
        assert_eq!([*against, *rank], differ);
        for (rank, words) in [(*against, ours), (*rank, theirs)] {
            assert!(words.starts_with(&format!("all-reduce (sum) of {} bytes of f32", 8 + rank)), "{result:?}");
        }
    }
}

/// Rank 1 has stopped rank 0 and not yet rank 2 when rank 0 finds the stop.
#[test]
fn a_stopped_rank_stops_the_others_in_the_name_of_the_rank_that_stopped_it() {
    let looked = std::sync::Barrier::new(3);
    let results = threads(3, |bootstrap| {
        let group = Group::open(bootstrap, &Device::host()?, Config::default())?;
        let health = &group.0.health;
        let stop = Stop { cause: Cause::Failed, by: 1, culprit: 2 };
        if group.rank() == 0 {
            let late = Error::exchange_timeout(Some(2), Duration::from_secs(1), "it did not come");
            health.pages[1].report.write(&late);
            health.pages[0].stop(stop);
            let found = health.check();
            assert!(matches!(found, Err(Error::Timeout { rank: Some(2), .. })), "{found:?}");
        }
        looked.wait();
        assert_eq!(health.own().stopped(), Some(stop), "rank {}", group.rank());
        let result = group.check();
        looked.wait();
        result
    });
    let late = results[2].clone().unwrap_err();
    assert!(matches!(&late, Error::Aborted { detail } if detail.contains("rank 1 had waited too long")), "{late}");
}

#[test]
fn ranks_are_told_of_a_timeout_of_the_host_as_it_was_found() {
    let told = std::sync::Barrier::new(3);
    let results = threads(3, |bootstrap| {
        let group = Group::open(bootstrap, &Device::host()?, Config::default())?;
        if group.rank() == 0 {
            let late = Error::exchange_timeout(Some(2), Duration::from_secs(1), "it did not come");
            assert_eq!(group.exchange(|_, _| Err::<(), _>(late.clone())), Err(late));
        }
        told.wait();
        let result = group.check();
        told.wait();
        result
    });
    let Err(Error::Timeout { operation, rank, waited, detail, .. }) = &results[1] else { panic!("{results:?}") };
    assert_eq!((*operation, *rank, *waited), (Operation::Exchange, Some(2), Duration::from_secs(1)), "{detail}");
    assert_eq!(detail, ": rank 0 gave up first: it did not come");
    let Err(Error::Aborted { detail }) = &results[2] else { panic!("{results:?}") };
    assert_eq!(detail, ": rank 0 had waited too long for this one: it did not come");
}

#[test]
fn who_leaves_because_of_a_loss_is_not_taken_for_the_lost() {
    let (begun, gone) = (std::sync::Barrier::new(2), std::sync::Barrier::new(3));
    let rank = |bootstrap: Threads| -> Result<()> {
        let group = Group::open(bootstrap, &Device::host()?, Config::default())?;
        match group.rank() {
            // Meets no rank, and looks only when both have left, at rank 0 first.
            1 => group.exchange(|mesh, deadline| {
                begun.wait();
                gone.wait();
                mesh.all_gather(&[], deadline).map(drop)
            }),
            0 => {
                let start = Instant::now();
                while group.check().is_ok() {
                    assert!(start.elapsed() < Duration::from_secs(20), "rank 0 misses nobody");
                    std::thread::sleep(Duration::from_millis(1));
                }
                drop(group);
                gone.wait();
                Ok(())
            }
            _ => {
                // After the loss rank 1 could not begin.
                begun.wait();
                drop(group);
                gone.wait();
                Ok(())
            }
        }
    };
    let results = threads(3, rank);
    assert!(matches!(results[1], Err(Error::PeerLost { rank: 2, .. })), "{results:?}");
}
