//! Rank 0's listener and the newcomers that have not yet proved that they know the secret.
//!
//! A newcomer has [`PENDING_TIME`] and a few hundred bytes for its proof. At most [`MAX_PENDING`] newcomers are
//! served at once: when one more connects, the oldest is dropped. The poll of the hub serves them too, so that no
//! newcomer delays the ranks.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::bootstrap::channel::Channel;
use crate::bootstrap::endpoint::Endpoint;
use crate::bootstrap::frame::{Frame, Kind};
use crate::bootstrap::handshake::{self, MAX_PENDING_BYTES, Secret};
use crate::error::{Error, Result};

/// The time limit of a newcomer from connecting to its proof.
const PENDING_TIME: Duration = Duration::from_secs(3);
/// The most newcomers at once.
const MAX_PENDING: usize = 128;

/// A newcomer that proved that it knows the secret.
pub(super) struct Claim {
    pub(super) channel: Channel,
    pub(super) rank: u32,
    pub(super) world_size: u32,
}

enum Stage {
    Hello,
    Claim,
    /// Refused: dropped after the refusal is sent.
    Leaving,
}

struct Pending {
    channel: Channel,
    until: Instant,
    stage: Stage,
}

/// The listening socket and the newcomers.
pub(super) struct Lobby {
    endpoint: Endpoint,
    listener: OwnedFd,
    secret: Secret,
    pending: VecDeque<Pending>, // oldest first
    /// The number of connections that were dropped without an answer.
    dropped: u64,
    /// The number of connections that were refused with an answer.
    told: u64,
}

impl Lobby {
    /// Takes a listening, non-blocking socket.
    pub(super) fn new(endpoint: Endpoint, listener: OwnedFd, secret: Secret) -> Self {
        Self { endpoint, listener, secret, pending: VecDeque::new(), dropped: 0, told: 0 }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The descriptors to poll; [`serve`](Self::serve) takes their events in this order.
    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let pending = self.pending.iter().map(|pending| pending.channel.interest(PollFlags::IN));
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN)).chain(pending)
    }

    /// The number of [`interests`](Self::interests).
    pub(super) fn interest_count(&self) -> usize {
        1 + self.pending.len()
    }

    /// The time at which the next newcomer expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.until).min()
    }

    /// Serves the newcomers that are ready and accepts new ones.
    pub(super) fn serve(&mut self, ready: &[PollFlags]) -> Result<Vec<Claim>> {
        let now = Instant::now();
        let (door, ready) = ready.split_first().unwrap_or((&PollFlags::IN, &[]));
        let mut claims = Vec::new();
        for (index, mut pending) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            let idle = ready.get(index).is_none_or(|flags| flags.is_empty());
            let progress = if idle { Ok(None) } else { self.step(&mut pending) };
            let leaving = matches!(pending.stage, Stage::Leaving);
            match progress {
                Ok(Some((rank, world_size))) => claims.push(Claim { channel: pending.channel, rank, world_size }),
                Ok(None) if leaving && pending.channel.is_flushed() => {}
                Ok(None) if pending.until > now => self.pending.push_back(pending),
                Err(why) if !why.is_empty() => self.refuse(pending.channel, &why),
                Err(_) if leaving => {}
                Ok(None) | Err(_) => self.turned_away(),
            }
        }
        if !door.is_empty() {
            self.let_in(now)?;
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
            self.pending.push_back(Pending { channel, until, stage: Stage::Leaving });
        }
    }

    /// Counts a dropped connection. Logs at every doubling, so that many unknown peers cause few lines.
    fn turned_away(&mut self) {
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            crate::log!(WARN, "refused strangers at {}: {} so far", self.endpoint, self.dropped);
        }
    }

    /// Accepts at most [`MAX_PENDING`] connections, so that a flood does not starve the ranks.
    fn let_in(&mut self, now: Instant) -> Result<()> {
        for _ in 0..MAX_PENDING {
            match self.endpoint.accept(self.listener.as_fd()) {
                Ok(Some(socket)) => {
                    if self.pending.len() == MAX_PENDING {
                        self.pending.pop_front();
                        self.turned_away();
                    }
                    let channel = Channel::new(socket, MAX_PENDING_BYTES);
                    self.pending.push_back(Pending { channel, until: now + PENDING_TIME, stage: Stage::Hello });
                }
                Ok(None) => return Ok(()),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) if !self.pending.is_empty() => {
                    self.pending.pop_front();
                }
                Err(errno) => return Err(Error::system(format_args!("accept at {}", self.endpoint), &errno.into())),
            }
        }
        Ok(())
    }

    /// Continues with one newcomer. Returns the rank and the world size that it claims. An error is sent to the
    /// newcomer; if its text is empty, the newcomer is dropped without an answer.
    fn step(&self, pending: &mut Pending) -> Result<Option<(u32, u32)>, String> {
        let quietly = |_| String::new();
        pending.channel.flush().map_err(quietly)?;
        if matches!(pending.stage, Stage::Leaving) {
            return Ok(None);
        }
        let Some(Frame { header, payload, .. }) = pending.channel.receive().map_err(quietly)? else {
            return Ok(None);
        };
        match (&pending.stage, header.kind) {
            (Stage::Hello, Kind::Hello) => {
                let (challenge, cipher) = handshake::challenge(&self.secret, &payload)?;
                pending.channel.queue(challenge);
                pending.channel.seal(cipher);
                pending.channel.flush().map_err(quietly)?;
                pending.stage = Stage::Claim;
                Ok(None)
            }
            (Stage::Claim, Kind::Claim) => {
                handshake::read_claim(&payload).map(Some).ok_or_else(|| "a claim that is too short".to_owned())
            }
            _ => Err(String::new()),
        }
    }
}
