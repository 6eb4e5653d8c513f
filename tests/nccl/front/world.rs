//! Communicators of ranks that are threads.

use std::ffi::c_int;

use crate::library::{self, ByValue, Comm, Id, ok};

pub(crate) fn unique_id() -> Id {
    let mut id = ByValue([0; 128]);
    ok(library::ncclGetUniqueId(&raw mut id));
    id.0
}

/// A rank, its communicator and the number of ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rank {
    pub(crate) comm: Comm,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

/// Opens the communicator of a rank.
pub(crate) fn open(id: Id, rank: usize, ranks: usize) -> Rank {
    let mut comm = 0;
    ok(library::ncclCommInitRank(&raw mut comm, ranks as c_int, ByValue(id), rank as c_int));
    assert_ne!(comm, 0);
    Rank { comm, rank, ranks }
}

/// Runs `run` on a thread for each rank of a new communicator, which is destroyed afterwards.
pub(crate) fn threads<T: Send>(ranks: usize, run: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    let id = unique_id();
    std::thread::scope(|scope| {
        let run = &run;
        let rank = |rank| {
            scope.spawn(move || {
                let opened = open(id, rank, ranks);
                let result = run(opened);
                ok(library::ncclCommDestroy(opened.comm));
                result
            })
        };
        let threads: Vec<_> = (0..ranks).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The communicators of `ncclCommInitAll`, in rank order.
pub(crate) fn all(ranks: usize) -> Vec<Rank> {
    let mut comms = vec![0; ranks];
    ok(library::ncclCommInitAll(comms.as_mut_ptr(), ranks as c_int, std::ptr::null()));
    comms.into_iter().enumerate().map(|(rank, comm)| Rank { comm, rank, ranks }).collect()
}
