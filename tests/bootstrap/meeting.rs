//! Ranks that meet by an id of 128 bytes.

use std::thread;
use std::time::{Duration, Instant};

use symmetra::Error;
use symmetra::bootstrap::{Joined, Meeting};

use crate::{on_threads, within};

fn id() -> [u8; Meeting::ID_BYTES] {
    Meeting::id(Some("=lo")).unwrap()
}

fn join(id: &[u8; Meeting::ID_BYTES], rank: usize, world_size: usize, seconds: f64) -> symmetra::Result<Joined> {
    Meeting::join(id, rank, world_size, &claim(rank), within(seconds))
}

/// Claims of unlike lengths.
fn claim(rank: usize) -> Vec<u8> {
    vec![rank as u8; rank * 100 % 500]
}

fn invalid(error: &Error, words: &[&str]) {
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    words.iter().for_each(|word| assert!(error.to_string().contains(word), "{error}, without {word}"));
}

#[test]
fn all_ranks_receive_all_claims_and_exchanges() {
    let ids = [id(), id()];
    assert!(ids.iter().all(Meeting::is_id) && ids[0] != ids[1] && !Meeting::is_id(&[1; 128]));
    // Two meetings at once, with ranks in any order.
    on_threads(20, |number| {
        let (id, rank, world_size) = if number < 16 { (&ids[0], 15 - number, 16) } else { (&ids[1], number - 16, 4) };
        let mut joined = join(id, rank, world_size, 20.0).unwrap();
        assert_eq!(joined.claims(), (0..world_size).map(claim).collect::<Vec<_>>());
        for round in 0..2usize {
            let bytes = |rank: usize| vec![(rank + round) as u8; if rank == 0 { 1024 } else { rank }];
            let all = joined.exchange(&bytes(rank), within(20.0)).unwrap();
            assert_eq!(all, (0..world_size).map(bytes).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_meeting_of_one_rank_and_a_large_one() {
    assert_eq!(join(&id(), 0, 1, 10.0).unwrap().claims(), [claim(0)]);
    let id = id();
    let counts = on_threads(100, |rank| join(&id, rank, 100, 30.0).unwrap().claims().len());
    assert_eq!(counts, [100; 100]);
}

#[test]
fn an_id_serves_one_communicator() {
    let id = id();
    let joined = on_threads(2, |rank| join(&id, rank, 2, 10.0).unwrap());
    invalid(&join(&id, 0, 2, 10.0).unwrap_err(), &["an id serves one"]);
    drop(joined);
    invalid(&join(&id, 1, 2, 10.0).unwrap_err(), &["an id serves one"]);
}

/// Some ranks of a meeting meet again by a name, and some of these by another.
#[test]
fn ranks_meet_again() {
    let id = id();
    assert_eq!(on_threads(3, |rank| join(&id, rank, 3, 10.0).unwrap().claims().len()), [3; 3]);
    let again = Meeting::further(&id, "two").unwrap();
    assert_eq!(
        on_threads(2, |rank| join(&again, rank, 2, 10.0).unwrap().claims().to_vec()),
        vec![[claim(0), claim(1)]; 2]
    );
    let alone = Meeting::further(&again, "one").unwrap();
    assert_eq!(join(&alone, 0, 1, 10.0).unwrap().claims(), [claim(0)]);
    invalid(&join(&again, 0, 2, 10.0).unwrap_err(), &["an id serves one"]);
    invalid(&Meeting::further(&[0; 128], "none").unwrap_err(), &["without the mark"]);
}

/// Joins ranks one after the other and returns the errors of all.
fn errors(ranks: &[(usize, usize)], seconds: f64) -> Vec<Error> {
    let id = id();
    thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .iter()
            .map(|&(rank, world_size)| {
                let thread = scope.spawn(move || join(&id, rank, world_size, seconds).unwrap_err());
                thread::sleep(Duration::from_millis(100));
                thread
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn every_rank_that_has_come_gets_the_reason() {
    let start = Instant::now();
    for error in errors(&[(0, 3), (1, 3), (1, 3)], 20.0) {
        invalid(&error, &["the number of ranks 1 is 2"]);
    }
    for error in errors(&[(0, 3), (2, 4)], 20.0) {
        invalid(&error, &["the world size that rank 2 claims is 4", "rank 0 claims 3"]);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // Ranks that come after the failure get the reason too.
    let id = id();
    thread::scope(|scope| {
        let first = scope.spawn(|| join(&id, 0, 3, 20.0).unwrap_err());
        thread::sleep(Duration::from_millis(100));
        invalid(&join(&id, 1, 2, 20.0).unwrap_err(), &["rank 1 claims is 2"]);
        invalid(&first.join().unwrap(), &["rank 1 claims is 2"]);
        invalid(&join(&id, 2, 3, 20.0).unwrap_err(), &["rank 1 claims is 2"]);
    });
}

#[test]
fn ranks_that_do_not_come_are_named_at_the_deadline() {
    for (ranks, missing, words) in
        [(vec![(0, 4), (1, 4)], 2, "ranks 2, 3 have not come"), (vec![(0, 3), (2, 3)], 1, "rank 1 has not come")]
    {
        let start = Instant::now();
        for error in errors(&ranks, 0.5) {
            assert!(matches!(error, Error::Timeout { rank: Some(rank), .. } if rank == missing), "{error:?}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}

#[test]
fn a_rank_that_leaves_ends_the_exchange_of_the_others() {
    let id = id();
    let mut joined = on_threads(3, |rank| join(&id, rank, 3, 10.0).unwrap());
    drop(joined.pop());
    on_threads_of(joined, |rank| {
        let error = rank.exchange(b"bytes", within(10.0)).unwrap_err();
        assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error:?}");
        assert_eq!(rank.exchange(b"bytes", within(10.0)).unwrap_err(), error);
    });
}

/// Runs `run` on a thread for each value.
fn on_threads_of<T: Send>(values: Vec<T>, run: impl Fn(&mut T) + Sync) {
    thread::scope(|scope| {
        let run = &run;
        values.into_iter().for_each(|mut value| drop(scope.spawn(move || run(&mut value))));
    });
}

#[test]
fn a_rank_with_another_version_is_named_on_all_ranks() {
    let (id, mut other) = (id(), [0; Meeting::ID_BYTES]);
    other.copy_from_slice(&id);
    other[8] = 2;
    on_threads(2, |rank| {
        let error = join(if rank == 0 { &id } else { &other }, rank, 2, 10.0).unwrap_err();
        invalid(&error, &["the version of rank 1 is 2", "has version 1"]);
    });
}

#[test]
fn bytes_that_are_no_id_and_places_that_do_not_exist_are_refused() {
    invalid(&join(&[0; 128], 0, 2, 5.0).unwrap_err(), &["without the mark"]);
    invalid(&join(&[b'x'; 128], 0, 2, 5.0).unwrap_err(), &["without the mark"]);
    let id = id();
    for (rank, world_size, words) in
        [(2, 2, "the rank is 2"), (0, 0, "the world size is 0"), (0, 65_536, "it must be 1 to 65535")]
    {
        invalid(&join(&id, rank, world_size, 5.0).unwrap_err(), &[words]);
    }
    let error = Meeting::join(&id, 0, 1, &[0; 1025], within(5.0)).unwrap_err();
    invalid(&error, &["a claim is 1025 bytes", "at most 1024"]);
    // Another secret, and a count of ids that the process has not made.
    for place in [32, 50] {
        let mut other = id;
        other[place] ^= 1;
        let error = join(&other, 0, 2, 5.0).unwrap_err();
        assert!(matches!(error, Error::Bootstrap { .. }), "{error}");
    }
}
