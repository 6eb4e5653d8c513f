//! A process's listeners and the newcomers that have not yet proved that they know the secret.
//!
//! A newcomer has [`PENDING_TIME`] and a few hundred bytes for its proof. At most [`MAX_PENDING`] newcomers are
//! served at once: when one more connects, the oldest is dropped. The poll of the hub serves them too, so that no
//! newcomer delays the ranks.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::channel::Channel;
use super::endpoint::Endpoint;
use super::frame::{Frame, FrameKind};
use super::handshake::{self, MAX_PENDING_BYTES, Secret};
use crate::error::{Error, Result};

/// The time limit of a newcomer from connecting to its proof.
const PENDING_TIME: Duration = Duration::from_secs(3);
/// The pause before the next attempt to accept a connection, without a free descriptor.
const FULL: Duration = Duration::from_millis(20);
/// The most newcomers at once.
const MAX_PENDING: usize = 128;

/// A newcomer that proved that it knows the secret.
pub(super) struct Newcomer {
    pub(super) channel: Channel,
    /// The number of the newcomer's meeting; 0 at a listener of one meeting.
    pub(super) number: u64,
    pub(super) rank: u32,
    pub(super) world_size: u32,
}

enum Stage {
    Hello,
    Claim {
        number: u64,
    },
    /// Refused: dropped after the refusal is sent.
    Leaving,
}

/// The place that a newcomer claims.
struct Claimed {
    number: u64,
    rank: u32,
    world_size: u32,
}

struct PendingConnection {
    channel: Channel,
    until: Instant,
    stage: Stage,
}

/// The secret of the meeting with a number, if there is one.
pub(super) type Secrets = Box<dyn Fn(u64) -> Option<Secret> + Send>;

/// The listening sockets and the newcomers.
pub(super) struct Lobby {
    endpoint: Endpoint,
    listeners: Vec<OwnedFd>,
    secrets: Secrets,
    pending: VecDeque<PendingConnection>, // oldest first
    /// The number of connections that were dropped without an answer.
    dropped: u64,
    /// The number of connections that were refused with an answer.
    told: u64,
    /// How often the system had no descriptor or memory for a connection.
    full: u64,
}

impl Lobby {
    /// Takes listening, non-blocking sockets of `endpoint`.
    pub(super) fn new(endpoint: Endpoint, listeners: Vec<OwnedFd>, secrets: Secrets) -> Self {
        Self { endpoint, listeners, secrets, pending: VecDeque::new(), dropped: 0, told: 0, full: 0 }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The descriptors to poll; [`serve`](Self::serve) takes their events in this order.
    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let pending = self.pending.iter().map(|pending| pending.channel.interest(PollFlags::IN));
        self.listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).chain(pending)
    }

    /// The number of [`interests`](Self::interests).
    pub(super) fn interest_count(&self) -> usize {
        self.listeners.len() + self.pending.len()
    }

    /// The time at which the next newcomer expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.until).min()
    }

    /// Serves the newcomers that are ready and accepts new ones.
    pub(super) fn serve(&mut self, ready: &[PollFlags]) -> Result<Vec<Newcomer>> {
        let now = Instant::now();
        let (doors, ready) = ready.split_at(self.listeners.len().min(ready.len()));
        let mut claims = Vec::new();
        for (index, mut pending) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            let idle = ready.get(index).is_none_or(|flags| flags.is_empty());
            let progress = if idle { Ok(None) } else { self.step(&mut pending) };
            let leaving = matches!(pending.stage, Stage::Leaving);
            match progress {
                Ok(Some(Claimed { number, rank, world_size })) => {
                    claims.push(Newcomer { channel: pending.channel, number, rank, world_size });
                }
                Ok(None) if leaving && pending.channel.is_flushed() => {}
                Ok(None) if pending.until > now => self.pending.push_back(pending),
                Err(why) if !why.is_empty() => self.refuse(pending.channel, &why),
                Err(_) if leaving => {}
                Ok(None) | Err(_) => self.turned_away(),
            }
        }
        for (listener, _) in doors.iter().enumerate().filter(|(_, flags)| !flags.is_empty()) {
            self.let_in(listener, now)?;
        }
        Ok(claims)
    }

    /// Sends a newcomer the reason of its refusal. Logs at every doubling.
    pub(super) fn refuse(&mut self, mut channel: Channel, why: &str) {
        self.told += 1;
        if self.told.is_power_of_two() {
            crate::log!(WARN, "refused a connection to {}: {why} ({} refused so far)", self.endpoint, self.told);
        }
        channel.queue(handshake::refusal(why));
        let until = Instant::now() + PENDING_TIME;
        if channel.flush().is_ok() && !channel.is_flushed() {
            self.pending.push_back(PendingConnection { channel, until, stage: Stage::Leaving });
        }
    }

    /// Counts a dropped connection. Logs at every doubling, so that many unknown peers cause few lines.
    fn turned_away(&mut self) {
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            crate::log!(WARN, "refused strangers at {}: {} so far", self.endpoint, self.dropped);
        }
    }

    /// Accepts at most [`MAX_PENDING`] connections of a listener, so that a flood does not starve the ranks.
    fn let_in(&mut self, listener: usize, now: Instant) -> Result<()> {
        for _ in 0..MAX_PENDING {
            match self.endpoint.accept(self.listeners[listener].as_fd()) {
                Ok(Some(socket)) => {
                    if self.pending.len() == MAX_PENDING {
                        self.pending.pop_front();
                        self.turned_away();
                    }
                    let channel = Channel::new(socket, MAX_PENDING_BYTES);
                    self.pending.push_back(PendingConnection {
                        channel,
                        until: now + PENDING_TIME,
                        stage: Stage::Hello,
                    });
                }
                Ok(None) => return Ok(()),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) if !self.pending.is_empty() => {
                    self.pending.pop_front();
                }
                // Descriptors of the process may be free again. The ranks that have joined need none.
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    self.full += 1;
                    if self.full.is_power_of_two() {
                        let system: std::io::Error = errno.into();
                        crate::log!(WARN, "no connection to {} is accepted: {system}", self.endpoint);
                    }
                    std::thread::sleep(FULL);
                    return Ok(());
                }
                Err(errno) => return Err(Error::system(format_args!("accept at {}", self.endpoint), &errno.into())),
            }
        }
        Ok(())
    }

    /// Continues with one newcomer. Returns the place that it claims. An error is sent to the
    /// newcomer; if its text is empty, the newcomer is dropped without an answer.
    fn step(&self, pending: &mut PendingConnection) -> Result<Option<Claimed>, String> {
        let quietly = |_| String::new();
        pending.channel.flush().map_err(quietly)?;
        if matches!(pending.stage, Stage::Leaving) {
            return Ok(None);
        }
        let Some(Frame { header, payload, .. }) = pending.channel.receive().map_err(quietly)? else {
            return Ok(None);
        };
        match (&pending.stage, header.kind) {
            (Stage::Hello, FrameKind::Hello) => {
                let number = header.sequence;
                let secret = (self.secrets)(number).ok_or_else(|| format!("it has no meeting {number}"))?;
                let (challenge, cipher) = handshake::challenge(&secret, number, &payload)?;
                pending.channel.queue(challenge);
                pending.channel.seal(cipher);
                pending.channel.flush().map_err(quietly)?;
                pending.stage = Stage::Claim { number };
                Ok(None)
            }
            (&Stage::Claim { number }, FrameKind::Claim) => {
                let (rank, world_size) = handshake::read_claim(&payload).ok_or("a claim that is too short")?;
                Ok(Some(Claimed { number, rank, world_size }))
            }
            _ => Err(String::new()),
        }
    }
}
