//! Rank 0's side of a star.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::bootstrap::channel::{Broken, Channel, farewell};
use crate::bootstrap::endpoint::Endpoint;
use crate::bootstrap::frame::{Frame, FrameKind, MAX_FRAME_BYTES, Outgoing};
use crate::bootstrap::handshake::{self, Secret};
use crate::bootstrap::lobby::{Lobby, Newcomer};
use crate::bootstrap::notice::{notice, read_notice};
use crate::bootstrap::wait::{WaitLimit, wait};
use crate::error::{Error, Result};

/// How long rank 0 keeps accepting after the world could not form.
const LINGER: Duration = Duration::from_secs(1);

/// The event for which rank 0 waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HubPhase {
    /// Every rank to join.
    Form,
    /// Every rank's bytes.
    Gather { sequence: u64 },
    /// The queued frames to be sent.
    Send,
}

/// A rank that joined.
struct Member {
    channel: Channel,
    /// Its bytes in the current all-gather.
    bytes: Option<Arc<[u8]>>,
}

/// The listener of rank 0 and its channels to the other ranks. Serves newcomers whenever it waits, so that a second
/// claim of a rank is answered with a refusal at any time.
pub(super) struct Hub {
    lobby: Lobby,
    members: Vec<Option<Member>>, // [rank - 1]
}

impl Hub {
    /// Waits at `listener` until every other rank has joined.
    pub(super) fn form(
        endpoint: Endpoint,
        listener: OwnedFd,
        secret: Secret,
        world_size: usize,
        limit: &WaitLimit,
    ) -> Result<Self> {
        let lobby = Lobby::new(endpoint, vec![listener], Box::new(move |_| Some(secret)));
        let members = (1..world_size).map(|_| None).collect();
        let mut hub = Self { lobby, members };
        let formed = hub.reporting(|hub| {
            hub.run(HubPhase::Form, limit)?;
            for (_, member) in hub.joined_mut() {
                member.channel.queue(Outgoing::control(FrameKind::Start, 0, Vec::new()));
            }
            hub.run(HubPhase::Send, limit)
        });
        match formed {
            Ok(()) => Ok(hub),
            Err(error) => {
                // After its own deadline rank 0 need not answer late ranks.
                if Instant::now() < limit.deadline {
                    hub.tell_the_late(&error);
                }
                Err(error)
            }
        }
    }

    /// Accepts the missing ranks for [`LINGER`] at most, and sends each the cause of the failure. Without a listener a
    /// late rank would report rank 0 as missing.
    fn tell_the_late(&mut self, error: &Error) {
        let deadline = Instant::now() + LINGER;
        let mut known: Vec<usize> = self.joined().map(|(rank, _)| rank).collect();
        while !self.missing(HubPhase::Form).is_empty() && Instant::now() < deadline {
            let mut fds: Vec<PollFd<'_>> = self.lobby.interests().collect();
            let claims = wait(&mut fds, deadline).and_then(|ready| self.lobby.serve(&ready));
            let Ok(claims) = claims else { return };
            claims.into_iter().for_each(|claim| self.admit(claim));
            let late = self.joined_mut().filter(|(rank, _)| !known.contains(rank));
            let told: Vec<usize> = late
                .map(|(rank, member)| {
                    farewell(std::iter::once(&mut member.channel), &notice(0, error));
                    rank
                })
                .collect();
            known.extend(told);
        }
    }

    pub(super) fn all_gather(&mut self, sequence: u64, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.reporting(|hub| {
            let limit = WaitLimit::from(deadline);
            hub.run(HubPhase::Gather { sequence }, &limit)?;
            let mut all: Vec<Arc<[u8]>> = vec![own.into()];
            all.extend(hub.joined_mut().map(|(_, member)| member.bytes.take().unwrap_or_default()));
            for (rank, member) in hub.joined_mut() {
                for (source, bytes) in all.iter().enumerate().filter(|(source, _)| *source != rank) {
                    member.channel.queue(Outgoing::data(source, sequence, Arc::clone(bytes)));
                }
            }
            hub.run(HubPhase::Send, &limit)?;
            Ok(all.iter().map(|bytes| bytes.to_vec()).collect())
        })
    }

    fn world_size(&self) -> usize {
        1 + self.members.len()
    }

    fn joined(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.members.iter().enumerate().filter_map(|(index, member)| Some((index + 1, member.as_ref()?)))
    }

    fn joined_mut(&mut self) -> impl Iterator<Item = (usize, &mut Member)> {
        self.members.iter_mut().enumerate().filter_map(|(index, member)| Some((index + 1, member.as_mut()?)))
    }

    /// Runs `work`; if it fails, sends the cause to every rank before giving up.
    fn reporting<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        work(self).inspect_err(|error| {
            let lost = if let Error::PeerLost { rank, .. } = error { Some(*rank) } else { None };
            let told = self.joined_mut().filter(|(rank, _)| Some(*rank) != lost);
            farewell(told.map(|(_, member)| &mut member.channel), &notice(0, error));
        })
    }

    /// Serves ranks and newcomers until the phase is over.
    fn run(&mut self, phase: HubPhase, limit: &WaitLimit) -> Result<()> {
        let start = Instant::now();
        while !self.missing(phase).is_empty() {
            limit.ask()?;
            if Instant::now() >= limit.deadline {
                return Err(self.late(phase, start, ""));
            }
            let watched: Vec<usize> =
                self.joined().filter(|(_, member)| interest(member, phase).is_some()).map(|(rank, _)| rank).collect();
            let mut fds: Vec<PollFd<'_>> = self.lobby.interests().collect();
            fds.extend(self.joined().filter_map(|(_, member)| interest(member, phase)));
            let wake = self.lobby.next_expiry().into_iter().fold(limit.next(), Instant::min);
            let ready = wait(&mut fds, wake)?;
            let (door, ready) = ready.split_at(self.lobby.interest_count());
            for claim in self.lobby.serve(door)? {
                self.admit(claim);
            }
            for (rank, flags) in watched.into_iter().zip(ready) {
                if !flags.is_empty() {
                    self.serve(rank, phase, start)?;
                }
            }
        }
        Ok(())
    }

    /// The ranks for which the phase is not over.
    fn missing(&self, phase: HubPhase) -> Vec<usize> {
        match phase {
            HubPhase::Form => (1..self.world_size()).filter(|rank| self.members[rank - 1].is_none()).collect(),
            HubPhase::Gather { .. } => self.joined().filter(|(_, m)| m.bytes.is_none()).map(|(rank, _)| rank).collect(),
            HubPhase::Send => self.joined().filter(|(_, m)| !m.channel.is_flushed()).map(|(rank, _)| rank).collect(),
        }
    }

    /// The timeout that names the missing ranks. `whose` names the rank whose deadline passed, if it is not this rank.
    fn late(&self, phase: HubPhase, start: Instant, whose: &str) -> Error {
        let missing = self.missing(phase);
        let what = match phase {
            HubPhase::Form => format!("did not connect to {}", self.lobby.endpoint()),
            HubPhase::Gather { .. } => "did not take part in the all-gather".to_owned(),
            HubPhase::Send => "did not take the result of the all-gather".to_owned(),
        };
        let names: Vec<String> = missing.iter().map(usize::to_string).collect();
        let doing = format!("ranks {{{}}} of {} {what}{whose}", names.join(", "), self.world_size());
        Error::exchange_timeout(missing.first().copied(), start.elapsed(), doing)
    }

    /// Gives a newcomer its rank, or sends it a refusal.
    fn admit(&mut self, claim: Newcomer) {
        let Newcomer { mut channel, rank, world_size, .. } = claim;
        let ours = self.world_size();
        let why = if world_size as usize != ours {
            format!("rank {rank} was started with world size {world_size}, rank 0 with {ours}")
        } else if rank as usize >= ours {
            format!("rank {rank} is not in 0..{ours}")
        } else if rank == 0 || self.members[rank as usize - 1].is_some() {
            format!("rank {rank} was claimed before")
        } else {
            channel.set_limit(MAX_FRAME_BYTES);
            channel.queue(handshake::welcome());
            self.members[rank as usize - 1] = Some(Member { channel, bytes: None });
            return;
        };
        self.lobby.refuse(channel, &why);
    }

    /// Continues with one rank.
    fn serve(&mut self, rank: usize, phase: HubPhase, start: Instant) -> Result<()> {
        let Some(member) = self.members.get_mut(rank - 1).and_then(Option::as_mut) else {
            return Ok(());
        };
        let broken = |broken: Broken| broken.of_rank(rank);
        match (member.channel.flush(), phase) {
            // The other ranks may have the result and have continued. So this rank continues too, and finds the loss
            // later as they do.
            (Err(Broken::Closed), HubPhase::Send) => member.channel.discard(),
            (flushed, _) => flushed.map_err(broken)?,
        }
        let waits = match phase {
            HubPhase::Send => return Ok(()),
            HubPhase::Gather { sequence } if member.bytes.is_none() => {
                let Some(frame) = member.channel.receive().map_err(broken)? else { return Ok(()) };
                member.bytes = Some(check(frame, rank, sequence)?.into());
                false
            }
            HubPhase::Form | HubPhase::Gather { .. } => true,
        };
        // Until the result is out, a rank may send only a notice that it gives up.
        let Some(Frame { header, payload, .. }) = member.channel.receive().map_err(broken)? else { return Ok(()) };
        if header.kind != FrameKind::Notice {
            return Err(Error::bootstrap(format!("rank {rank} sent a {} out of turn", header.kind.name())));
        }
        match read_notice(rank, &payload) {
            // The rank waited at the same time as this rank, which knows the missing ranks. If it gave up earlier, it
            // waited for this rank.
            Error::Timeout { .. } if waits && !self.missing(phase).is_empty() => {
                Err(self.late(phase, start, &format!(" before rank {rank} gave up")))
            }
            error => Err(error),
        }
    }
}

/// The events to watch for a rank. None once the rank has received everything: then it may leave.
fn interest(member: &Member, phase: HubPhase) -> Option<PollFd<'_>> {
    match phase {
        HubPhase::Send if member.channel.is_flushed() => None,
        HubPhase::Send => Some(member.channel.interest(PollFlags::empty())),
        HubPhase::Form | HubPhase::Gather { .. } => Some(member.channel.interest(PollFlags::IN)),
    }
}

/// The bytes of a frame, which must belong to this exchange.
pub(super) fn check(frame: Frame, rank: usize, sequence: u64) -> Result<Vec<u8>> {
    let Frame { header, payload, .. } = frame;
    match header.kind {
        FrameKind::Notice => Err(read_notice(rank, &payload)),
        FrameKind::Data if header.rank as usize == rank && header.sequence == sequence => Ok(payload),
        kind => Err(Error::bootstrap(format!(
            "expected data of rank {rank} in exchange {sequence}, got {} of rank {} in exchange {}",
            kind.name(),
            header.rank,
            header.sequence
        ))),
    }
}
