//! The group's own channel: a unix socket between every two ranks of a host.
//!
//! After the bootstrap brought the ranks together they speak over this mesh alone: all-gathers of
//! bytes and of file descriptors, and splits into meshes of some of the ranks. The death of a rank
//! closes its sockets, which every other rank sees at once.

mod exchange;
mod open;
mod split;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{Shutdown, shutdown};

use self::exchange::Peer;
use super::Bootstrap;
use super::channel::{Channel, farewell};
use super::frame::{Frame, Kind, Outgoing, check_length};
use crate::error::{Error, Result};

/// What identifies a process, also across a fork and the reuse of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    nonce: [u8; 16],
}

/// A socket to every other rank of a group on one host.
pub(crate) struct Mesh {
    rank: usize,
    peers: Vec<Option<Peer>>, // [rank], none at our own
    processes: Vec<Process>,  // [rank]
    sequence: u64,
    failed: Option<Error>,
    /// Set before we hang up, so that our own monitor does not take it for a death.
    closing: Arc<AtomicBool>,
}

impl Mesh {
    fn new(rank: usize, channels: Vec<Option<Channel>>, processes: Vec<Process>) -> Self {
        let peers = channels.into_iter().map(|channel| Some(Peer { channel: channel?, end: None })).collect();
        Self { rank, peers, processes, sequence: 0, failed: None, closing: Arc::default() }
    }

    /// Whether `rank` is a thread of this process. False for a rank that is none.
    pub(crate) fn same_process(&self, rank: usize) -> bool {
        self.processes.get(rank) == self.processes.get(self.rank)
    }

    /// The process of `rank` as it numbers itself; 0 for a rank that is none.
    pub(crate) fn process_id(&self, rank: usize) -> u32 {
        self.processes.get(rank).map_or(0, |process| process.id)
    }

    /// Gives every rank a duplicate of `fd` and returns theirs, close-on-exec, in rank order;
    /// none at our own. Blocks until every rank called it.
    pub(crate) fn all_gather_fds(&mut self, fd: BorrowedFd<'_>, deadline: Instant) -> Result<Vec<Option<OwnedFd>>> {
        let own = fcntl_dupfd_cloexec(fd, 0).map(Arc::new);
        let frame = self.descriptor(own.as_ref().ok());
        let frames = self.exchange(vec![frame; self.peers.len()], deadline)?;
        own.map_err(|errno| Error::system("duplicate a file descriptor", &errno.into()))?;
        let received = frames.into_iter().enumerate();
        received.map(|(peer, frame)| frame.map(|frame| received_fd(frame, peer)).transpose()).collect()
    }

    /// Compares notes after each rank did something on its own: `local` if every rank succeeded.
    /// If any failed, every rank returns an error: its own, or [`Error::Peer`] naming the lowest
    /// rank that failed. Blocks until every rank called it.
    pub(crate) fn agree<T>(&mut self, what: &str, local: Result<T>, deadline: Instant) -> Result<T> {
        let words = match &local {
            Ok(_) => Vec::new(),
            Err(error) => format!("{what}: {error}").into_bytes(),
        };
        // Success is no bytes at all; an error's text is never empty.
        let all = self.all_gather(&words, deadline);
        let value = local?;
        match all?.iter().enumerate().find(|(_, words)| !words.is_empty()) {
            None => Ok(value),
            Some((rank, words)) => Err(Error::Peer { rank, message: String::from_utf8_lossy(words).into_owned() }),
        }
    }

    /// The sockets to the other ranks.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.peers.iter().enumerate().filter_map(|(rank, peer)| Some((rank, peer.as_ref()?.channel.as_fd())))
    }

    /// Whether this rank hung up itself.
    pub(super) fn closing(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.closing)
    }

    /// A frame of bytes.
    fn data(&self, bytes: &[u8]) -> Outgoing {
        Outgoing::data(self.rank, self.sequence, bytes.into())
    }

    /// A frame that carries a descriptor, or says that there is none.
    fn descriptor(&self, fd: Option<&Arc<OwnedFd>>) -> Outgoing {
        let payload = Arc::new([u8::from(fd.is_some())]);
        Outgoing { kind: Kind::Descriptor, rank: self.rank, sequence: self.sequence, payload, fd: fd.cloned() }
    }
<<<<<<< HEAD

    /// Sends each peer its frame, by rank (ours is ignored), and returns that of each; none at our
    /// own rank. After an error every later exchange returns it too.
    fn exchange(&mut self, outgoing: Vec<Outgoing>, deadline: Instant) -> Result<Vec<Option<Frame>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let outcome = self.run(outgoing, deadline);
        self.sequence += 1;
        outcome.inspect_err(|error| {
            let lost = if let Error::PeerLost { rank, .. } = error { Some(*rank) } else { None };
            let notice = notice(self.rank, error);
            farewell(self.channels().filter(|(rank, _)| Some(*rank) != lost).map(|(_, channel)| channel), &notice);
            self.failed = Some(error.clone());
        })
    }

    /// Sends and receives at once, so that no two ranks wait for each other to read.
    fn run(&mut self, outgoing: Vec<Outgoing>, deadline: Instant) -> Result<Vec<Option<Frame>>> {
        let start = Instant::now();
        let own = self.rank;
        let mut frames: Vec<Option<Frame>> = self.peers.iter().map(|_| None).collect();
        let mut expected = None;
        for (peer, frame) in self.peers.iter_mut().zip(outgoing) {
            expected = Some((frame.kind, frame.sequence));
            if let Some(channel) = peer {
                channel.queue(frame);
            }
        }
        loop {
            for (peer, channel) in self.channels() {
                channel.flush().map_err(|broken| last_words(channel, peer).unwrap_or_else(|| broken.of_rank(peer)))?;
                if frames[peer].is_none() {
                    let frame = channel.receive().map_err(|broken| broken.of_rank(peer))?;
                    frames[peer] = frame.map(|frame| check(frame, own, peer, expected)).transpose()?;
                }
            }
            let busy = self.busy(&frames);
            let Some((slowest, _)) = busy.first() else {
                return Ok(frames);
            };
            if Instant::now() >= deadline {
                let missing: Vec<usize> = busy.iter().map(|(peer, _)| *peer).collect();
                let doing = format!("ranks {missing:?} of {} did not take part in time", frames.len());
                return Err(Error::exchange_timeout(Some(*slowest), start.elapsed(), doing));
            }
            let mut fds: Vec<PollFd<'_>> = busy.into_iter().map(|(_, fd)| fd).collect();
            wait(&mut fds, deadline)?;
        }
    }

    /// Who still has to send or to take something, and what to watch of it. The others are not
    /// watched: they may go on, and leave.
    fn busy(&self, frames: &[Option<Frame>]) -> Vec<(usize, PollFd<'_>)> {
        let mut busy = Vec::new();
        for (rank, (channel, frame)) in self.peers.iter().zip(frames).enumerate() {
            match (channel, frame) {
                (Some(channel), None) => busy.push((rank, channel.interest(PollFlags::IN))),
                (Some(channel), Some(_)) if !channel.is_flushed() => {
                    busy.push((rank, channel.interest(PollFlags::empty())));
                }
                _ => {}
            }
        }
        busy
    }
=======
>>>>>>> bootstrap
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
}

impl Drop for Mesh {
    /// Says goodbye and hangs up: a duplicate of a socket, in our monitor or in a child, must not
    /// keep it open.
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        if self.failed.is_none() && !std::thread::panicking() {
            let goodbye = Outgoing { kind: Kind::Goodbye, ..self.data(&[]) };
            farewell(self.others().map(|(_, peer)| &mut peer.channel), &goodbye);
        }
        for (_, socket) in self.sockets() {
            // It fails if the other side was faster.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
}

<<<<<<< HEAD
/// Why a peer that takes nothing more gave up, if it said so.
fn last_words(channel: &mut Channel, peer: usize) -> Option<Error> {
    while let Ok(Some(frame)) = channel.receive() {
        if frame.header.kind == Kind::Notice {
            return Some(read_notice(peer, &frame.payload));
        }
    }
    None
}

/// Passes a frame of this exchange.
fn check(frame: Frame, own: usize, peer: usize, expected: Option<(Kind, u64)>) -> Result<Frame> {
    let header = frame.header;
    if header.kind == Kind::Notice {
        return Err(read_notice(peer, &frame.payload));
    }
    if expected == Some((header.kind, header.sequence)) && header.rank as usize == peer {
        return Ok(frame);
    }
    let name = |kind: Kind, sequence| format!("{} {sequence}", kind.name());
    Err(Error::Mismatch {
        against: own,
        rank: peer,
        what: "the exchange".into(),
        ours: expected.map_or_else(String::new, |(kind, sequence)| name(kind, sequence)),
        theirs: name(header.kind, header.sequence),
    })
}

=======
>>>>>>> bootstrap
/// The descriptor that a frame must carry.
fn received_fd(frame: Frame, peer: usize) -> Result<OwnedFd> {
    match (frame.payload.as_slice(), frame.fd) {
        ([1], Some(fd)) => Ok(fd),
        // The system drops what does not fit into our table.
        ([1], None) => Err(Error::system("receive a file descriptor", &Errno::MFILE.into())),
        _ => Err(Error::Peer { rank: peer, message: "it could not send its file descriptor".into() }),
    }
}
