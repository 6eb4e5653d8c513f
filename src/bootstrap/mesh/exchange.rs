//! One exchange: every rank sends a frame to every other rank and receives one from each.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::{Mesh, Peer};
use crate::bootstrap::channel::{Broken, CLOSED, farewell};
use crate::bootstrap::frame::{Frame, FrameKind, Outgoing, shown};
use crate::bootstrap::notice::{notice, read_notice};
use crate::bootstrap::wait::{Patience, wait};
use crate::error::{Error, Result, group_of_world};

/// How often a wait is interrupted to call [`Mesh::heeded`](Mesh).
const LOOK: Duration = Duration::from_millis(20);

/// The error detail of a rank whose process ended while its sockets are open, because a forked child has copies.
const ENDED: &str = ": its process ended";
/// The error details of a rank that left without a notice.
const SILENT: [&str; 2] = [CLOSED, ENDED];

const GONE: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);

impl Mesh {
    /// Sends each peer its frame of `outgoing`, by rank, and returns the frame of each peer; none at
    /// this rank. After an error every later exchange returns that error.
    pub(super) fn exchange(&mut self, outgoing: Vec<Outgoing>, deadline: Instant) -> Result<Vec<Option<Frame>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if let Some(observer) = self.observer.as_ref().filter(|_| self.maker.is_here()) {
            observer.begins(self.sequence, &self.call);
        }
        let outcome = self.maker.check("a group").and_then(|()| self.run(outgoing, deadline));
        if let Some(observer) = self.observer.as_ref().filter(|_| self.maker.is_here()) {
            observer.ends();
        }
        let outcome = outcome.map_err(|error| self.explained(error));
        if let Err(error) = &outcome {
            self.fail(error);
        }
        self.sequence += 1;
        outcome
    }

    /// Gives up because of `error`, unless this rank has given up before. Notifies the other ranks; later exchanges
    /// return `error`.
    pub(crate) fn fail(&mut self, error: &Error) {
        if self.failed.is_some() || !self.maker.is_here() {
            return;
        }
        // The notice replaces queued frames: the system may refuse again what it refused to send.
        self.others().for_each(|(_, peer)| peer.channel.retract());
        let lost = if let Error::PeerLost { rank, .. } = error { Some(*rank) } else { None };
        // The others learn from the page of a rank that abandons its group that it does, and how many calls it has finished.
        if !matches!(error, Error::Closed) {
            let notice = Outgoing { sequence: self.sequence, ..notice(self.rank, error) };
            farewell(self.others().filter(|(rank, _)| Some(*rank) != lost).map(|(_, peer)| &mut peer.channel), &notice);
        }
        self.failed = Some(error.clone());
    }

    /// The cause of `error`, if `error` states only that a rank disconnected without a notice. The rank may have left
    /// because of another rank, and recorded this where `heeded` finds it.
    fn explained(&self, error: Error) -> Error {
        match (&error, &self.heeded) {
            (Error::PeerLost { detail, .. }, Some(heeded)) if SILENT.contains(&detail.as_str()) => {
                heeded().err().unwrap_or(error)
            }
            _ => error,
        }
    }

    pub(super) fn others(&mut self) -> impl Iterator<Item = (usize, &mut Peer)> {
        self.peers.iter_mut().enumerate().filter_map(|(rank, peer)| Some((rank, peer.as_mut()?)))
    }

    /// Sends and receives alternately, so that two ranks never wait for each other to read.
    fn run(&mut self, outgoing: Vec<Outgoing>, deadline: Instant) -> Result<Vec<Option<Frame>>> {
        let (start, own, sequence, call) = (Instant::now(), self.rank, self.sequence, self.call.clone());
        let mut patience = Patience::new(start);
        let mut frames: Vec<Option<Frame>> = self.peers.iter().map(|_| None).collect();
        let mut expected = None;
        if let Some(error) = self.others().find_map(|(_, peer)| peer.end.clone()) {
            return Err(error);
        }
        for (peer, frame) in self.peers.iter_mut().zip(outgoing) {
            expected = Some((frame.kind, frame.sequence));
            if let Some(peer) = peer {
                peer.channel.queue(frame);
            }
        }
        loop {
            // Checked before reading: then everything that a rank sent before it ended can be read.
            let heeded = self.heeded.as_ref().map_or(Ok(()), |heeded| heeded());
            let mut missing = Vec::new();
            for (rank, peer) in self.others() {
                let end = |peer: &mut Peer| peer.last_words(own, rank, sequence).unwrap_or_else(|error| error);
                match peer.channel.flush() {
                    Ok(()) => {}
                    Err(Broken::Closed) => return Err(end(peer)),
                    Err(refused) => return Err(refused.of_rank(rank)),
                }
                if frames[rank].is_none() {
                    let frame = peer.channel.receive().map_err(|broken| broken.of_rank(rank))?;
                    frames[rank] = frame.map(|frame| check(frame, own, rank, expected, &call)).transpose()?;
                }
                if frames[rank].is_none() || !peer.channel.is_flushed() {
                    // The process was known to have ended before its last bytes were read.
                    if peer.ended {
                        return Err(end(peer));
                    }
                    missing.push(rank);
                }
            }
            let Some(&slowest) = missing.first() else {
                return Ok(frames);
            };
            let now = Instant::now();
            if let Some(waited) = patience.ended(now) {
                let (world, waited) = (frames.len(), waited.as_secs());
                let call = if call.is_empty() { String::new() } else { format!(" `{call}`") };
                let named: Vec<usize> = std::iter::once(own).chain(missing.iter().copied()).collect();
                let group = self.group.as_ref().map(|(name, of)| format!(" in {}", group_of_world(name, of, &named)));
                let group = group.unwrap_or_default();
                crate::log!(
                    WARN,
                    "the collective call{call} of the host waits on rank {own} of {world} for ranks {missing:?}{group}: \
                     {waited} s"
                );
            }
            if now >= deadline {
                let call = if call.is_empty() { String::new() } else { format!(" in `{call}`") };
                let doing = format!("ranks {missing:?} of {} did not take part{call} in time", frames.len());
                return Err(Error::exchange_timeout(Some(slowest), start.elapsed(), doing));
            }
            match heeded {
                // The rank is gone, but its frame has arrived. `watch` finds out whether it left regularly.
                Err(Error::PeerLost { rank, .. }) if frames.get(rank).is_some_and(Option::is_some) => {}
                outcome => outcome?,
            }
            let look = self.heeded.as_ref().map(|_| now + LOOK);
            let until = look.into_iter().fold(deadline.min(patience.ends()), Instant::min);
            self.watch(&missing, &frames, until)?;
        }
    }

    /// Blocks until a missing rank can continue. Watches also ranks that have finished this exchange: such a rank may
    /// leave, but if it dies, ranks that wait for it will not finish.
    fn watch(&mut self, missing: &[usize], frames: &[Option<Frame>], deadline: Instant) -> Result<()> {
        let (own, sequence) = (self.rank, self.sequence);
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        // For each descriptor: the rank, and whether it is the rank's process.
        let mut watched = Vec::new();
        for (rank, (peer, frame)) in self.peers.iter().zip(frames).enumerate() {
            match peer {
                Some(peer) if peer.end.is_none() => {
                    let reading = if frame.is_none() { PollFlags::IN } else { PollFlags::RDHUP };
                    fds.push(peer.channel.interest(reading));
                    watched.push((rank, false));
                    if let Some(life) = peer.life.as_ref().filter(|_| !peer.ended) {
                        fds.push(life.interest());
                        watched.push((rank, true));
                    }
                }
                _ => {}
            }
        }
        let ready = wait(&mut fds, deadline)?;
        for ((rank, is_process), flags) in watched.into_iter().zip(ready) {
            let Some(peer) = &mut self.peers[rank] else { continue };
            let gone = if is_process { !flags.is_empty() } else { flags.intersects(GONE) };
            peer.ended |= gone && is_process;
            if gone && peer.end.is_none() && !missing.contains(&rank) {
                peer.end = Some(peer.last_words(own, rank, sequence)?);
            }
        }
        Ok(())
    }
}

impl Peer {
    /// Reads the remaining frames of a peer that is gone and returns the cause. `Ok` with this error if the peer had
    /// finished exchange `sequence`, which is in progress; `Err` if the peer may have died in it.
    fn last_words(&mut self, own: usize, rank: usize, sequence: u64) -> Result<Error> {
        let mut finished = false;
        let error = loop {
            match self.channel.receive() {
                Ok(Some(Frame { header, payload, .. })) => {
                    finished |= header.sequence > sequence;
                    match header.kind {
                        FrameKind::Goodbye => break departed(rank),
                        FrameKind::Notice => break read_notice(rank, &payload).seen_by(own, rank),
                        _ => {}
                    }
                }
                Ok(None) if self.ended => break Error::PeerLost { rank, detail: ENDED.into() },
                Ok(None) => break Broken::Closed.of_rank(rank),
                Err(broken) => break broken.of_rank(rank),
            }
        };
        if finished { Ok(error) } else { Err(error) }
    }
}

fn departed(rank: usize) -> Error {
    Error::PeerLost { rank, detail: ": it left the group".into() }
}

/// Checks that a frame belongs to this exchange and to the same call, and removes the name of the call from the
/// payload.
fn check(mut frame: Frame, own: usize, rank: usize, expected: Option<(FrameKind, u64)>, call: &str) -> Result<Frame> {
    let header = frame.header;
    match header.kind {
        FrameKind::Notice => return Err(read_notice(rank, &frame.payload).seen_by(own, rank)),
        FrameKind::Goodbye => return Err(departed(rank)),
        _ => {}
    }
    let length = frame.payload.first().map_or(0, |length| usize::from(*length));
    let Some(theirs) = frame.payload.get(1..1 + length) else {
        return Err(Error::bootstrap(format!("rank {rank} sent a {} without a call", header.kind.name())));
    };
    if theirs != call.as_bytes() {
        return Err(Error::unlike_calls(own, call, rank, &shown(theirs)));
    }
    frame.payload.drain(..1 + length);
    match header.kind {
        kind if expected == Some((kind, header.sequence)) && header.rank as usize == rank => Ok(frame),
        kind => {
            let name = |(kind, sequence): (FrameKind, u64)| format!("{} {sequence}", kind.name());
            let what = "the exchange".into();
            let ours = expected.map(name).unwrap_or_default();
            Err(Error::Mismatch { what, against: own, ours, rank, theirs: name((kind, header.sequence)) })
        }
    }
}
