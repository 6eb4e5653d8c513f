//! The sockets of a group: a unix socket between every two ranks of a host.
//!
//! After the bootstrap has opened the mesh, a group uses only the mesh: for all-gathers of bytes and of file
//! descriptors, and for splits into meshes of some of the ranks. The death of a rank closes its sockets, which every
//! other rank detects at once.

mod exchange;
mod open;
mod split;
#[cfg(test)]
#[path = "../../tests/unit/bootstrap/mesh/mod.rs"]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{Shutdown, shutdown};

use super::all_gather::Bootstrap;
use super::channel::{Channel, farewell};
use super::frame::{Frame, FrameKind, MAX_FRAME_BYTES, Outgoing, check_length};
use super::hello::together;
use super::notice::clipped;
use super::peer::Life;
use super::wait::Heeded;
use crate::error::{Error, Result};
use crate::fork::Maker;

/// The most bytes of the name of a call and its length before a payload.
const MAX_CALL_BYTES: usize = 128;
/// Longest payload of a frame, in bytes.
const LIMIT_BYTES: usize = MAX_FRAME_BYTES + MAX_CALL_BYTES;

/// Identifies a process, also across a fork and when the system reuses its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessIdentity {
    id: u32,
    nonce: [u8; 16],
}

/// Another rank.
struct Peer {
    channel: Channel,
    /// Its process, if it is another process and the system lets this process watch it.
    life: Option<Life>,
    /// Whether its process has ended.
    ended: bool,
    /// The error of the next exchange: the rank left after the exchange in which this rank still took part.
    end: Option<Error>,
}

/// A socket to every other rank of a group on one host.
pub struct Mesh {
    maker: Maker,
    rank: usize,
    peers: Vec<Option<Peer>>,        // [rank], none at our own
    processes: Vec<ProcessIdentity>, // [rank]
    sequence: u64,
    /// The name of the call that exchanges are for. Every frame of an exchange carries it, and ranks compare it.
    call: String,
    /// The name of the parallel group, and the number in the world of each rank.
    group: Option<(String, Vec<usize>)>,
    failed: Option<Error>,
    /// Called periodically during an exchange, which ends with its error.
    heeded: Option<Heeded>,
    observer: Option<Box<dyn Observer>>,
    /// Set before this rank disconnects, so that its own monitor reports no death.
    closing: Arc<AtomicBool>,
}

/// Is notified of the exchanges of a mesh, which may wait for other ranks.
pub(crate) trait Observer: Send {
    /// Exchange `number` begins, for the call of this name.
    fn begins(&self, number: u64, call: &str);

    /// The exchange that began last has ended.
    fn ends(&self);
}

impl Peer {
    fn new(channel: Channel, life: Option<Life>) -> Self {
        Self { channel, life, ended: false, end: None }
    }
}

impl Mesh {
    fn new(rank: usize, peers: Vec<Option<Peer>>, processes: Vec<ProcessIdentity>) -> Self {
        let (maker, closing) = (Maker::this(), Arc::default());
        let (sequence, call, group, failed, heeded, observer) = (0, String::new(), None, None, None, None);
        Self { maker, rank, peers, processes, sequence, call, group, failed, heeded, observer, closing }
    }

    /// Names the parallel group in warnings. `world` has the world rank of each rank.
    pub(crate) fn place(&mut self, name: &str, world: &[usize]) {
        self.group = Some((name.to_owned(), world.to_vec()));
    }

    /// Whether an exchange failed, or this rank gave up. Later exchanges fail.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Sets a check whose error ends an exchange, from the next exchange on.
    pub(crate) fn heed(&mut self, heeded: Option<Heeded>) {
        self.heeded = heeded;
    }

    /// Sets the observer of later exchanges.
    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Whether `rank` is a thread of this process. False for an invalid rank.
    pub(crate) fn same_process(&self, rank: usize) -> bool {
        self.processes.get(rank) == self.processes.get(self.rank)
    }

    /// Sends a duplicate of `fd` to every rank and returns the descriptors of the other ranks, close-on-exec, in rank
    /// order; none at this rank. If the descriptor table of a rank is full, every rank returns an error, as from
    /// [`agree`](Self::agree). Blocks until every rank has called it.
    pub fn all_gather_fds(&mut self, fd: BorrowedFd<'_>, deadline: Instant) -> Result<Vec<Option<OwnedFd>>> {
        let own = fcntl_dupfd_cloexec(fd, 0).map(Arc::new);
        let frame = self.descriptor(own.as_ref().ok());
        let frames = self.exchange(vec![frame; self.peers.len()], deadline)?;
        let frames = frames.into_iter().enumerate();
        let fds = frames.map(|(peer, frame)| frame.map(|frame| received_fd(frame, peer)).transpose()).collect();
        let own = own.map_err(|errno| Error::system("duplicate a file descriptor", &errno.into()));
        self.agree("share file descriptors", own.and(fds), deadline)
    }

    /// Compares the outcomes of all ranks. Returns `local` if every rank succeeded, else this rank's error, else
    /// [`Error::Peer`] with the lowest rank that failed. Blocks until every rank has called it.
    pub fn agree<T>(&mut self, what: &str, local: Result<T>, deadline: Instant) -> Result<T> {
        self.announce(what);
        together(what, local, |words| self.all_gather(words, deadline))
    }

    /// The sockets to the other ranks, and their processes.
    pub(super) fn connections(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>, Option<&Life>)> {
        let peers = self.peers.iter().enumerate().filter_map(|(rank, peer)| Some((rank, peer.as_ref()?)));
        peers.map(|(rank, peer)| (rank, peer.channel.as_fd(), peer.life.as_ref()))
    }

    /// Whether this rank has disconnected.
    pub(super) fn closing(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.closing)
    }

    /// A frame of bytes.
    fn data(&self, bytes: &[u8]) -> Outgoing {
        Outgoing::data(self.rank, self.sequence, self.named(bytes))
    }

    /// A payload after the length and the name of the call.
    fn named(&self, bytes: &[u8]) -> Arc<[u8]> {
        [&[self.call.len() as u8], self.call.as_bytes(), bytes].concat().into()
    }

    /// A frame that carries a descriptor, or states that the sender has none.
    fn descriptor(&self, fd: Option<&Arc<OwnedFd>>) -> Outgoing {
        let payload = self.named(&[u8::from(fd.is_some())]);
        Outgoing { kind: FrameKind::Descriptor, rank: self.rank, sequence: self.sequence, payload, fd: fd.cloned() }
    }
}

impl Bootstrap for Mesh {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.peers.len()
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        check_length(bytes.len())?;
        let frames = self.exchange(vec![self.data(bytes); self.peers.len()], deadline)?;
        Ok(frames.into_iter().map(|frame| frame.map_or_else(|| bytes.to_vec(), |frame| frame.payload)).collect())
    }

    fn announce(&mut self, call: &str) {
        let call = call.strip_prefix("to ").unwrap_or(call);
        clipped(call, MAX_CALL_BYTES - 1).clone_into(&mut self.call);
    }
}

impl Mesh {
    /// Sends a goodbye and shuts the sockets down, once: a duplicate in the monitor or in a child process must not keep
    /// a connection open. Needs no peer.
    pub(crate) fn hang_up(&mut self) {
        // A forked child shares the sockets with this rank, which continues to use them.
        if !self.maker.is_here() || self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.failed.is_none() && !std::thread::panicking() {
            let goodbye = Outgoing { kind: FrameKind::Goodbye, ..self.data(&[]) };
            farewell(self.others().map(|(_, peer)| &mut peer.channel), &goodbye);
        }
        for (_, socket, _) in self.connections() {
            // Fails if the other side was first.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// The descriptor that a frame must carry.
fn received_fd(frame: Frame, peer: usize) -> Result<OwnedFd> {
    match (frame.payload.as_slice(), frame.fd) {
        ([1], Some(fd)) => Ok(fd),
        // The system drops a descriptor that does not fit into this process's table.
        ([1], None) => Err(Error::system("receive a file descriptor", &Errno::MFILE.into())),
        _ => Err(Error::Peer { rank: peer, message: "it could not send its file descriptor".into() }),
    }
}
