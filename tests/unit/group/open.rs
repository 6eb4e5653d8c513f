//! Tests of `src/group/open.rs`, whose module they are.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::bootstrap::Threads;

/// Opens a group of `world_size` threads and returns the result of `rank` on each.
fn on_groups<T: Send>(world_size: usize, rank: impl Fn(Group) -> T + Sync) -> Vec<T> {
    on_groups_within(Duration::from_secs(30), world_size, rank)
}

/// Opens groups with this deadline, as [`on_groups`] does.
fn on_groups_within<T: Send>(open: Duration, world_size: usize, rank: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let mut config = Config::default();
    config.deadlines.open = open;
    std::thread::scope(|scope| {
        let open = |bootstrap| rank(Group::open(bootstrap, &Device::host().unwrap(), config.clone()).unwrap());
        let ranks = Threads::new(world_size).unwrap().into_iter();
        let ranks: Vec<_> = ranks.map(|bootstrap| scope.spawn(move || open(bootstrap))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The part of a split that uses the group's own mesh.
fn begin_split(group: &Group, color: u32) -> Mesh {
    group.exchange(|mesh, deadline| Group::part(mesh, Some(color), 0, deadline)).unwrap().unwrap().1
}

#[test]
fn who_fails_a_part_is_named_to_the_whole_by_its_number_there() {
    for says_why in [true, false] {
        let results = on_groups(5, |group| {
            if group.rank() != 3 {
                let color = (group.rank() < 4).then_some(group.rank() as u32 / 2);
                return group.split(color, 0).map(drop);
            }
            let mut part = begin_split(&group, 1);
            let full = Error::bootstrap("full");
            if says_why {
                part.fail(&full);
            }
            drop(part);
            group.with_all(Err(full))
        });
        match &results[2] {
            Err(Error::Peer { rank: 3, .. }) if says_why => {}
            Err(Error::PeerLost { rank: 3, .. }) if !says_why => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(results[3], Err(Error::bootstrap("full")));
        // Of another colour, and of none.
        for rank in [0, 1, 4] {
            let Err(Error::Peer { rank: 3, message }) = &results[rank] else { panic!("{results:?}") };
            assert!(message.contains("full"), "{message}");
        }
    }
}

#[test]
fn so_is_who_fails_what_is_made_of_it() {
    let results = on_groups(4, |group| {
        let lost = Error::PeerLost { rank: 1, detail: String::new() };
        group.split_into(Some(group.rank() as u32 / 2), 0, group.config().clone(), |part| match group.rank() {
            2 => Err(lost),
            _ => Ok(part),
        })
    });
    assert_eq!(results[2].as_ref().unwrap_err(), &Error::PeerLost { rank: 3, detail: String::new() });
    // Rank 3 has the more precise error.
    for (rank, named) in [(0, 3), (1, 3), (3, 2)] {
        let error = results[rank].as_ref().unwrap_err();
        assert!(matches!(error, Error::Peer { rank, .. } if *rank == named), "{rank}: {error}");
    }
}

#[test]
fn who_is_late_in_a_part_is_named_to_the_whole() {
    let (open, over) = (Duration::from_secs(4), Barrier::new(4));
    let results = on_groups_within(open, 4, |group| {
        let start = Instant::now();
        let outcome =
            group.split_into(Some(group.rank() as u32 / 2), 0, group.config().clone(), |part| match group.rank() {
                2 => {
                    // The wait of rank 2 begins when the waits of the other part are half over.
                    std::thread::sleep(open / 2);
                    part.barrier()
                }
                3 => {
                    over.wait();
                    Ok(())
                }
                _ => Ok(()),
            });
        if group.rank() != 3 {
            over.wait();
        }
        (outcome.map(drop), start.elapsed())
    });
    for (rank, (outcome, took)) in results[..3].iter().enumerate() {
        assert!(matches!(outcome, Err(Error::Timeout { rank: Some(3), .. })), "rank {rank}: {outcome:?}");
        assert!(*took < 4 * open, "rank {rank}: {took:?}");
    }
    assert!(matches!(results[3].0, Err(Error::Aborted { .. })), "{:?}", results[3].0);
}

#[test]
fn a_split_ends_with_an_abort_whoever_tells_of_it() {
    for heard_from_the_other in [true, false] {
        let (start, over) = (Instant::now(), Barrier::new(2));
        let results = on_groups(2, |group| {
            if group.rank() == 0 {
                let outcome = group.split(Some(0), 0).map(drop);
                over.wait();
                return outcome;
            }
            let mut part = begin_split(&group, 0);
            group.abort();
            let aborted = group.check();
            if heard_from_the_other {
                part.fail(aborted.as_ref().unwrap_err());
            }
            over.wait();
            aborted
        });
        let aborted = Err(Error::Aborted { detail: ": by rank 1".to_owned() });
        assert_eq!(results, [aborted.clone(), aborted]);
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}

#[test]
fn who_has_its_part_may_leave_the_whole() {
    let results: Vec<Result<()>> = on_groups(3, |group| {
        let part = group.split((group.rank() < 2).then_some(0), 0)?;
        if group.rank() > 0 {
            drop(group);
        }
        part.map_or(Ok(()), |part| {
            // The other ranks had time to leave.
            std::thread::sleep(Duration::from_millis(100));
            part.barrier()
        })
    });
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn builds_with_different_protocols_do_not_meet() {
    let open = |bootstrap: Threads| {
        let protocol = if bootstrap.rank() == 2 { PROTOCOL + 1 } else { PROTOCOL };
        Group::open_with(bootstrap, &Device::host().unwrap(), Config::default(), protocol).map(drop)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let ranks = Threads::new(3).unwrap().into_iter();
        let ranks: Vec<_> = ranks.map(|bootstrap| scope.spawn(|| open(bootstrap))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for result in results {
        let error = result.unwrap_err();
        let Error::Mismatch { what, against: 0, ours, rank: 2, theirs } = &error else { panic!("{error}") };
        assert_eq!((what, ours, theirs), (&"protocol".into(), &PROTOCOL.to_string(), &(PROTOCOL + 1).to_string()));
    }
}
