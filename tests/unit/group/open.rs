//! Tests of `src/group/open.rs`, whose module they are.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::bootstrap::Threads;

/// Opens a group of `world_size` threads and returns the result of `rank` on each.
fn on_groups<T: Send>(world_size: usize, rank: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let mut config = Config::default();
    config.deadlines.open = Duration::from_secs(30);
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
fn who_fails_a_part_is_named_by_its_number_in_the_whole() {
    for says_why in [true, false] {
        let results = on_groups(4, |group| {
            if group.rank() != 3 {
                return group.split(Some(group.rank() as u32 / 2), 0).map(|_| group);
            }
            let mut part = begin_split(&group, 1);
            if says_why {
                part.fail(&Error::bootstrap("full"));
            }
            Ok(group)
        });
        match &results[2] {
            Err(Error::Peer { rank: 3, .. }) if says_why => {}
            Err(Error::PeerLost { rank: 3, .. }) if !says_why => {}
            other => panic!("{other:?}"),
        }
        assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
    }
}

#[test]
fn so_is_who_fails_what_is_made_of_it() {
    let results = on_groups(4, |group| {
        let lost = Error::PeerLost { rank: 1, detail: String::new() };
        group.split_into(Some(group.rank() as u32 / 2), 0, |part| match group.rank() {
            2 => Err(lost),
            _ => Ok(part),
        })
    });
    assert_eq!(results[2].as_ref().unwrap_err(), &Error::PeerLost { rank: 3, detail: String::new() });
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
        match group.rank() {
            2 => group.split(None, 0).map(drop)?,
            1 => {
                let part = begin_split(&group, 0);
                while group.check().is_ok() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                // The other rank had time to hear of it.
                std::thread::sleep(Duration::from_millis(100));
                let config = group.config().clone();
                Group::on_mesh(part, group.device(), config, until(Duration::from_secs(30)))?.barrier()?;
            }
            _ => group.split(Some(0), 0)?.unwrap().barrier()?,
        }
        Ok(())
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
