//! Ranks that do not come, do not call, or leave.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Local, Tcp};

use crate::{config, converse, free_address, lost, on_threads, private_directory, timed_out, within};

#[test]
fn a_world_that_stays_incomplete_names_the_missing_ranks_to_everybody() {
    let address = free_address();
    let results = on_threads(3, |rank| match rank {
        2 => Tcp::connect(config(address, 3, 5, 20.0)).map(drop),
        rank => Tcp::connect(config(address, rank, 5, if rank == 0 { 5.0 } else { 20.0 })).map(drop),
    });
    for result in results {
        let (rank, detail) = timed_out(result);
        assert_eq!(rank, Some(2));
        assert!(detail.contains("ranks {2, 4} of 5 did not connect"), "{detail}");
    }
}

#[test]
fn a_rank_0_that_never_comes_is_named_with_the_address() {
    let address = free_address();
    let start = Instant::now();
    let (rank, detail) = timed_out(Tcp::connect(config(address, 1, 2, 0.3)));
    assert_eq!(rank, Some(0));
    assert!(detail.contains(&address.to_string()) && detail.contains("refused"), "{detail}");
    assert!(start.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_listener_that_stays_silent_ends_in_a_timeout() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let start = Instant::now();
    let (rank, detail) = timed_out(Tcp::connect(config(listener.local_addr().unwrap(), 1, 2, 0.3)));
    assert_eq!(rank, Some(0));
    assert!(detail.contains("no challenge came"), "{detail}");
    assert!(start.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_rank_that_does_not_call_is_named_to_everybody() {
    let address = free_address();
    let (done, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let together = Barrier::new(4);
    let results = on_threads(4, |rank| {
        let mut tcp = Tcp::connect(config(address, rank, 4, 10.0)).unwrap();
        together.wait();
        match rank {
            2 => {
                let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(20));
                None
            }
            0 => {
                let result = tcp.barrier(within(1.5));
                done.send(()).unwrap();
                Some(result)
            }
            _ => Some(tcp.barrier(within(20.0))),
        }
    });
    for result in results.into_iter().flatten() {
        assert_eq!(timed_out(result).0, Some(2));
    }
}

#[test]
fn pitfall_1_a_rank_that_leaves_is_named_to_everybody_and_for_ever() {
    for leaving in 0..4 {
        let directory = private_directory();
        let start = Instant::now();
        on_threads(4, |rank| {
            let mut local = Local::connect(&directory, rank, 4, within(10.0)).unwrap();
            converse(&mut local);
            if rank == leaving {
                return;
            }
            for _ in 0..2 {
                assert_eq!(lost(local.all_gather(b"?", within(10.0))), leaving, "rank {rank}");
            }
        });
        assert!(start.elapsed() < Duration::from_secs(9));
    }
}

#[test]
fn a_rank_that_gives_up_first_is_not_blamed_for_the_missing() {
    let address = free_address();
    let start = Instant::now();
    let limit = |rank| if rank == 2 { 4.0 } else { 30.0 };
    for result in on_threads(3, |rank| Tcp::connect(config(address, rank, 4, limit(rank))).map(drop)) {
        let (rank, detail) = timed_out(result);
        assert_eq!(rank, Some(3), "{detail}");
        assert!(detail.contains("ranks {3} of 4 did not connect"), "{detail}");
        assert!(detail.contains("before rank 2 gave up"), "{detail}");
    }
    assert!(start.elapsed() < Duration::from_secs(25));

    let directory = private_directory();
    let together = Barrier::new(4);
    let results = on_threads(4, |rank| {
        let mut local = Local::connect(&directory, rank, 4, within(20.0)).unwrap();
        together.wait();
        let result = (rank != 2).then(|| local.barrier(within(if rank == 3 { 4.0 } else { 40.0 })));
        together.wait();
        result
    });
    for result in results.into_iter().flatten() {
        let (rank, detail) = timed_out(result);
        assert_eq!(rank, Some(2), "{detail}");
        assert!(
            detail.contains("ranks {2} of 4 did not take part in the all-gather before rank 3 gave up"),
            "{detail}"
        );
    }
    assert!(start.elapsed() < Duration::from_secs(35));
}

#[test]
fn a_rank_0_that_comes_when_another_gave_up_is_named_to_everybody() {
    let directory = private_directory();
    let given_up = Barrier::new(2);
    let results = on_threads(3, |rank| {
        let mut local = Local::connect(&directory, rank, 3, within(20.0)).unwrap();
        if rank == 0 {
            given_up.wait();
        }
        let result = local.barrier(within(if rank == 1 { 0.2 } else { 20.0 }));
        if rank == 1 {
            given_up.wait();
        }
        result
    });
    for result in results {
        let (rank, detail) = timed_out(result);
        assert_eq!(rank, Some(0), "{detail}");
        assert!(detail.contains("it neither gathered the bytes of every rank"), "{detail}");
    }
}
