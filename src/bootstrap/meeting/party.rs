//! The ranks of one meeting, as the service has them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::id::VERSION;
use super::message::{FirstMessage, decode_error, encode_error, encode_list};
use crate::bootstrap::channel::{Broken, CLOSED, Channel};
use crate::bootstrap::frame::{Frame, FrameKind, Outgoing};
use crate::bootstrap::handshake;
use crate::error::{Error, Result};

/// How long a channel may take to send the notice of the end.
const FAREWELL: Duration = Duration::from_secs(3);
/// The most ranks that a message names.
const MOST_NAMES: usize = 16;

/// A rank that has come.
struct PartyMember {
    channel: Channel,
    /// The bytes of the rank in the current round.
    bytes: Option<Vec<u8>>,
}

/// A channel that is closed when its last frames are sent.
struct Leaving {
    channel: Channel,
    until: Instant,
}

/// The ranks of one meeting. In round 0 all ranks claim their places; each later round is one exchange.
pub(super) struct Party {
    world_size: usize,
    /// The rank that came first, which decided the world size.
    first: usize,
    begun: Instant,
    round: u64,
    members: BTreeMap<usize, PartyMember>,
    leaving: Vec<Leaving>,
    /// A rank that left after round 0.
    left: Option<usize>,
    /// Why the meeting has ended.
    end: Option<Error>,
}

impl Party {
    /// A meeting to which `rank` comes first.
    pub(super) fn new(rank: usize, world_size: usize) -> Self {
        Self {
            world_size,
            first: rank,
            begun: Instant::now(),
            round: 0,
            members: BTreeMap::new(),
            leaving: Vec::new(),
            left: None,
            end: None,
        }
    }

    /// Takes a newcomer that proved that it knows the secret.
    pub(super) fn admit(&mut self, mut channel: Channel, rank: usize, world_size: usize) {
        channel.queue(handshake::welcome());
        let refused = match &self.end {
            Some(end) => Some(end.clone()),
            None if self.round > 0 => Some(used()),
            None => None,
        };
        if let Some(error) = refused {
            return self.dismiss(channel, &error);
        }
        let wrong = if world_size != self.world_size {
            let limit = format!("rank {} claims {}", self.first, self.world_size);
            Some(Error::invalid(&format!("the world size that rank {rank} claims"), world_size, limit))
        } else if rank >= world_size {
            Some(Error::invalid("the rank", rank, format!("the world size is {world_size}")))
        } else if self.members.contains_key(&rank) {
            Some(Error::invalid(&format!("the number of ranks {rank}"), 2, "each rank joins once"))
        } else {
            None
        };
        if let Some(error) = wrong {
            self.dismiss(channel, &error);
            return self.fail(error);
        }
        self.members.insert(rank, PartyMember { channel, bytes: None });
    }

    /// The descriptors to poll; [`serve`](Self::serve) takes their events in this order.
    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let members = self.members.values().map(|member| member.channel.interest(PollFlags::IN));
        members.chain(self.leaving.iter().map(|leaving| leaving.channel.interest(PollFlags::empty())))
    }

    /// The number of [`interests`](Self::interests).
    pub(super) fn interest_count(&self) -> usize {
        self.members.len() + self.leaving.len()
    }

    /// The time at which the next channel is closed, even if its last frames are not sent.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.leaving.iter().map(|leaving| leaving.until).min()
    }

    /// Serves the ranks whose descriptors are ready.
    pub(super) fn serve(&mut self, ready: &[PollFlags]) {
        let now = Instant::now();
        let ranks: Vec<usize> = self.members.keys().copied().collect();
        let (of_members, of_leaving) = ready.split_at(ranks.len().min(ready.len()));
        let mut index = 0;
        self.leaving.retain_mut(|leaving| {
            let idle = of_leaving.get(index).is_none_or(|flags| flags.is_empty());
            index += 1;
            leaving.until > now && (idle || leaving.channel.flush().is_ok()) && !leaving.channel.is_flushed()
        });
        for (rank, _) in ranks.into_iter().zip(of_members).filter(|(_, flags)| !flags.is_empty()) {
            if let Err(error) = self.serve_rank(rank) {
                self.fail(error);
            }
        }
    }

    /// Continues with one rank. An error ends the meeting.
    fn serve_rank(&mut self, rank: usize) -> Result<()> {
        // The meeting may have ended because of another rank.
        let Some(member) = self.members.get_mut(&rank) else { return Ok(()) };
        let received = member.channel.flush().and_then(|()| member.channel.receive());
        let Frame { header, payload, .. } = match received {
            Ok(None) => return Ok(()),
            Ok(Some(frame)) => frame,
            Err(Broken::Closed) => return self.leaves(rank),
            Err(broken) => return Err(broken.of_rank(rank)),
        };
        match header.kind {
            FrameKind::Notice => Err(match decode_error(rank, &payload) {
                Error::Timeout { .. } => self.late(),
                error => error,
            }),
            FrameKind::Data if header.sequence == self.round && member.bytes.is_none() => {
                member.bytes = Some(if self.round == 0 { read_claim(rank, &payload)? } else { payload });
                self.left.map_or(Ok(()), |left| Err(lost(left)))?;
                self.complete();
                Ok(())
            }
            kind => Err(Error::bootstrap(format!("rank {rank} sent a {} out of turn", kind.name()))),
        }
    }

    /// A rank closed its connection: before all ranks have come, or while others wait for it, the meeting fails.
    fn leaves(&mut self, rank: usize) -> Result<()> {
        self.members.remove(&rank);
        if self.round == 0 || self.members.values().any(|member| member.bytes.is_some()) {
            return Err(lost(rank));
        }
        self.left = Some(rank);
        if self.members.is_empty() {
            self.end = Some(used());
        }
        Ok(())
    }

    /// Sends all bytes to all ranks, if all ranks have sent theirs.
    fn complete(&mut self) {
        if !self.missing().is_empty() {
            return;
        }
        let all = encode_list(self.members.values_mut().map(|member| member.bytes.take().unwrap_or_default()));
        for member in self.members.values_mut() {
            member.channel.queue(Outgoing::data(0, self.round, all.clone()));
            // A channel that breaks here is closed when it is polled.
            let _ = member.channel.flush();
        }
        self.round += 1;
    }

    /// The ranks that have not sent their bytes in this round.
    fn missing(&self) -> Vec<usize> {
        let sent = |rank: &usize| self.members.get(rank).is_some_and(|member| member.bytes.is_some());
        (0..self.world_size).filter(|rank| !sent(rank)).collect()
    }

    /// The timeout that names the missing ranks.
    fn late(&self) -> Error {
        let missing = self.missing();
        let what = match (self.round, missing.len()) {
            (0, 1) => "has not come: does it run this library?",
            (0, _) => "have not come: do they run this library?",
            _ => "did not take part in the exchange",
        };
        Error::exchange_timeout(missing.first().copied(), self.begun.elapsed(), format!("{} {what}", names(&missing)))
    }

    /// Ends the meeting, and sends the reason to all ranks that have come.
    fn fail(&mut self, error: Error) {
        for member in std::mem::take(&mut self.members).into_values() {
            self.dismiss(member.channel, &error);
        }
        self.end = Some(error);
    }

    /// Sends a rank the reason for which it leaves.
    fn dismiss(&mut self, mut channel: Channel, error: &Error) {
        channel.queue(Outgoing::control(FrameKind::Notice, 0, encode_error(error)));
        if channel.flush().is_ok() && !channel.is_flushed() {
            self.leaving.push(Leaving { channel, until: Instant::now() + FAREWELL });
        }
    }
}

/// The claim of a rank in round 0.
fn read_claim(rank: usize, payload: &[u8]) -> Result<Vec<u8>> {
    let claim = FirstMessage::decode(payload);
    let FirstMessage { own, read, bytes } =
        claim.ok_or_else(|| Error::bootstrap(format!("rank {rank} sent a claim that is too short")))?;
    match [own, read].into_iter().find(|version| *version != VERSION) {
        None => Ok(bytes.to_vec()),
        Some(version) => {
            let limit = format!("the maker of the id has version {VERSION}");
            Err(Error::invalid(&format!("the version of rank {rank}"), version, limit))
        }
    }
}

/// The error of a rank that comes after the ranks of the meeting.
fn used() -> Error {
    Error::invalid("the use of the id", "another one", "all ranks of its communicator have come: an id serves one")
}

fn lost(rank: usize) -> Error {
    Error::PeerLost { rank, detail: CLOSED.into() }
}

/// `rank 3`, `ranks 2, 3`, or the first ranks and the number of the others.
fn names(ranks: &[usize]) -> String {
    let named: Vec<String> = ranks.iter().take(MOST_NAMES).map(usize::to_string).collect();
    let more = match ranks.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, named.join(", "))
}
