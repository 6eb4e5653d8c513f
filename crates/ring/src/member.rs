//! A party of the ring on one host: the shared memory, and whether the other parties live.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::RingConfig;
use super::mapping::{RingLayout, RingMapping, descriptor};
use super::protocol::{Board, MemberLife};
use symmetra::bootstrap::Bootstrap;
use symmetra::internal::{Maker, Mesh, Monitor};
use symmetra::{Error, Operation, Result};

/// The drop marks this member as gone for the other members. In a forked child the drop does nothing.
pub(super) struct RingMember {
    maker: Maker,
    mapping: Arc<RingMapping>,
    /// Rank of every party.
    ranks: Vec<usize>,
    party: usize,
    writer: usize,
    _monitor: Monitor,
    // Dropped last: the others read that this party left before its sockets hang up.
    _mesh: Mesh,
}

impl RingMember {
    /// Shares the memory of rank `writer` of `mesh` with every rank of `mesh`, whose ranks in the world are `ranks`.
    /// Collective over the mesh; blocks.
    pub(super) fn take(
        mut mesh: Mesh,
        ranks: Vec<usize>,
        writer: usize,
        config: &RingConfig,
        deadline: Instant,
    ) -> Result<Self> {
        let party = mesh.rank();
        let layout = RingLayout { parties: ranks.len(), slots: config.slots, chunk_bytes: config.chunk_bytes };

        let own = if party == writer { create(layout, config.first_chunk).map(Some) } else { Ok(None) };
        let own = mesh.agree("create the memory of a ring", own, deadline)?;
        // Every rank gives a descriptor; only the writer's is memory.
        let fd = match &own {
            Some(mapping) => mapping.fd().try_clone_to_owned().map_err(|error| Error::system("duplicate", &error)),
            None => descriptor(),
        };
        let fd = mesh.agree("give a descriptor", fd, deadline)?;
        let mut fds = mesh.all_gather_fds(std::os::fd::AsFd::as_fd(&fd), deadline)?;
        let mapping = match (own, fds.get_mut(writer).and_then(Option::take)) {
            (Some(mapping), _) => Ok(mapping),
            (None, Some(fd)) => RingMapping::map(fd, layout),
            (None, None) => Err(Error::Peer { rank: writer, message: "it sent no file descriptor".into() }),
        };
        let mapping = Arc::new(mesh.agree("map the memory of a ring", mapping, deadline)?);

        mapping.board().join(party, std::process::id());
        let watched = Arc::clone(&mapping);
        let monitor = Monitor::start(&mesh, move |lost| watched.board().lose(lost, MemberLife::Dead), || ());
        let monitor = mesh.agree("watch the other ranks", monitor, deadline)?;
        Ok(Self { maker: Maker::this(), mapping, ranks, party, writer, _monitor: monitor, _mesh: mesh })
    }

    pub(super) fn mapping(&self) -> &RingMapping {
        &self.mapping
    }

    pub(super) fn board(&self) -> Board<'_> {
        self.mapping.board()
    }

    pub(super) fn party(&self) -> usize {
        self.party
    }

    pub(super) fn writer(&self) -> usize {
        self.writer
    }

    pub(super) fn rank_of(&self, party: usize) -> usize {
        self.ranks[party]
    }

    pub(super) fn party_of(&self, rank: usize) -> Option<usize> {
        self.ranks.iter().position(|other| *other == rank)
    }

    /// The state of a party in words; `doing` describes what the party does if it lives.
    pub(super) fn state(&self, party: usize, doing: &str) -> String {
        match self.board().life(party) {
            MemberLife::Alive => format!("it is alive, process {}, {doing}", self.board().process(party)),
            life => ending(life).to_owned(),
        }
    }

    /// Notifies the other parties how this party ends.
    pub(super) fn leave(&self, how: MemberLife) {
        self.board().lose(self.party, how);
    }

    /// The error that a party is gone.
    pub(super) fn gone(&self, party: usize) -> Error {
        let process = self.board().process(party);
        let end = ending(self.board().life(party));
        Error::PeerLost { rank: self.rank_of(party), detail: format!(": {end}, process {process}") }
    }

    /// The error that the writer ended `how`, on a reader that has taken `messages` messages. If the writer gave
    /// up another rank, the error names that rank.
    pub(super) fn ended(&self, how: MemberLife, messages: u64) -> Error {
        let (board, writer) = (self.board(), self.rank_of(self.writer));
        let own = self.rank_of(self.party);
        match board.given_up() {
            Some(rank) if rank != own => {
                let party = self.party_of(rank);
                let state = party.map_or("it is on another host".to_owned(), |party| {
                    let pace = if board.life(party) == MemberLife::Alive { ", but was too slow" } else { "" };
                    format!("{}, process {}{pace}", ending(board.life(party)), board.process(party))
                });
                given_up(rank, &state, writer, messages)
            }
            given_up => {
                let why = if given_up.is_some() { ", because this rank was too slow" } else { "" };
                let process = board.process(self.writer);
                let detail = format!(": {}, process {process}, after {messages} messages{why}", ending(how));
                Error::PeerLost { rank: writer, detail }
            }
        }
    }

    /// The error that a wait for a party took too long; `doing` describes what the party does if it lives.
    pub(super) fn late(&self, party: usize, message: u64, waited: Duration, doing: &str) -> Error {
        timeout(self.rank_of(party), message, waited, &self.state(party, doing))
    }
}

impl Drop for RingMember {
    fn drop(&mut self) {
        if self.maker.is_here() {
            self.leave(MemberLife::Left);
        }
    }
}

fn create(layout: RingLayout, first: u32) -> Result<RingMapping> {
    let mapping = RingMapping::create(layout)?;
    mapping.board().begin(first);
    Ok(mapping)
}

pub(super) fn ending(life: MemberLife) -> &'static str {
    match life {
        MemberLife::Absent => "it never joined",
        MemberLife::Alive => "it is alive",
        MemberLife::Left => "it left the ring",
        MemberLife::Dead => "it died",
        MemberLife::GaveUp => "it gave up in the middle of a message",
    }
}

/// The error that the writer ended because it had given up another rank.
pub(super) fn given_up(rank: usize, state: &str, writer: usize, messages: u64) -> Error {
    let detail = format!(": {state}; rank {writer}, the writer, gave it up, after {messages} messages");
    Error::PeerLost { rank, detail }
}

/// The error that a wait for a rank took too long; `state` describes the rank in words.
pub(super) fn timeout(rank: usize, message: u64, waited: Duration, state: &str) -> Error {
    let detail = format!(": {state}");
    Error::Timeout { operation: Operation::MetadataBroadcast, sequence: message, rank: Some(rank), waited, detail }
}
