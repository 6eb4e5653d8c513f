//! Making a ring: every rank leaves with its end of it, or with the same error.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::member::RingMember;
use super::zeromq::Keys;
use super::zmq_reader::ZmqReader;
use super::zmq_writer::{ZmqAddress, ZmqWriter};
use super::{BroadcastRing, Invitation, Overflow, Reader, RingConfig, Writer};
use symmetra::bootstrap::Bootstrap;
use symmetra::internal::{Agreed, Mesh, boot_id, check_agreed, check_complaints, tell, until};
use symmetra::{Error, Group, Result};

/// A rank's first message.
#[derive(Serialize, Deserialize)]
struct RingHello {
    /// Why the rank cannot take part.
    error: Option<String>,
    /// Settings that must be equal on all ranks, by name.
    agreed: Agreed,
    host: String,
    /// Whether the rank stands in for a guest.
    guest: bool,
}

/// A rank's message after a step.
#[derive(Default, Serialize, Deserialize)]
struct Note {
    error: Option<String>,
    /// Where the writer listens.
    address: Option<ZmqAddress>,
    /// The public key of a reader.
    key: Option<String>,
}

impl BroadcastRing {
    /// Makes a ring of all ranks of `bootstrap`. Collective; blocks until every reader is there.
    /// `bootstrap` is not needed afterwards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a setting outside its limits, [`Error::Mismatch`] when ranks
    /// differ in settings, [`Error::Peer`] when another rank cannot take part, [`Error::Timeout`] and
    /// [`Error::PeerLost`] when one does not answer. [`Error::Unsupported`] when ZeroMQ is needed and
    /// this machine has no libzmq.
    pub fn create(bootstrap: &mut dyn Bootstrap, config: RingConfig) -> Result<Self> {
        let deadline = until(config.limit());
        let meeting = RingMeeting::of(bootstrap, &config, false, deadline)?;
        let mesh = meeting.mesh(bootstrap);
        meeting.finish(bootstrap, mesh)
    }

    /// Makes a ring of all ranks of `group`. Collective; blocks until every reader is there. The
    /// ring stays when the group is closed.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create); the group's error if the group has failed. A rank that is lost while the
    /// ring is made is lost to the group too.
    pub fn create_in(group: &Group, config: RingConfig) -> Result<Self> {
        let deadline = until(config.limit());
        group.exchange(|mesh, _| {
            let meeting = RingMeeting::of(mesh, &config, false, deadline)?;
            let near = mesh.split(meeting.is_near().then_some(&meeting.near), deadline)?;
            meeting.finish(mesh, Ok(near))
        })
    }

    /// Takes part in the making of a ring in the place of a reader that is another program, on
    /// another host by its [`RingConfig::host`]: `hand_over` gives that program the invitation, with which it
    /// connects and joins. Collective; blocks until every reader, the guest too, is there. `hand_over`
    /// must not wait until the guest is notified that the ring is ready, because the writer waits for `hand_over`.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create) and of `hand_over`; [`Error::InvalidArgument`] on the writer's host.
    pub fn invite(
        bootstrap: &mut dyn Bootstrap,
        config: RingConfig,
        hand_over: impl FnOnce(Invitation) -> Result<()>,
    ) -> Result<()> {
        let deadline = until(config.limit());
        let meeting = RingMeeting::of(bootstrap, &config, true, deadline)?;
        let mesh = meeting.mesh(bootstrap);
        let keys = mesh.and_then(|_| Keys::new());
        let note = Note { key: keys.as_ref().ok().map(|keys| keys.public.clone()), ..Note::default() };
        let (keys, notes) = compare_notes(bootstrap, keys, note, deadline)?;
        // After this step the writer knows the keys, and after the next one the other readers have connected.
        compare_notes(bootstrap, Ok(()), Note::default(), deadline)?;
        compare_notes(bootstrap, Ok(()), Note::default(), deadline)?;
        let handed = meeting.address(&notes).and_then(|address| {
            let endpoint = address.tcp.clone().ok_or_else(|| Error::bootstrap("the writer sent no address"))?;
            let server_key = address.server_key.clone();
            hand_over(Invitation {
                endpoint,
                rank: meeting.rank,
                server_key,
                public_key: keys.public,
                secret_key: keys.secret,
            })
        });
        compare_notes(bootstrap, handed, Note::default(), deadline)?;
        compare_notes(bootstrap, Ok(()), Note::default(), deadline).map(drop)
    }
}

/// The facts that all ranks know after their first messages.
struct RingMeeting<'a> {
    config: &'a RingConfig,
    deadline: Instant,
    rank: usize,
    /// Ranks of the writer's host, and of others.
    near: Vec<usize>,
    far: Vec<usize>,
}

impl<'a> RingMeeting<'a> {
    /// Compares settings.
    fn of(bootstrap: &mut dyn Bootstrap, config: &'a RingConfig, guest: bool, deadline: Instant) -> Result<Self> {
        let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
        let fit = config.validate(world_size);
        let error = fit.as_ref().err().map(ToString::to_string);
        let hello =
            RingHello { error, agreed: config.agreed(), host: config.host.clone().unwrap_or_else(boot_id), guest };
        let hellos = tell(bootstrap, "to make a metadata ring", &hello, deadline)?;
        fit?;
        check_complaints(rank, hellos.iter().map(|hello| hello.error.as_ref()))?;
        check_agreed(hellos.iter().map(|hello| &hello.agreed))?;
        let at_home = |rank: &usize| hellos[*rank].host == hellos[config.writer].host;
        let (near, far): (Vec<usize>, Vec<usize>) = (0..hellos.len()).partition(at_home);
        if let Some(guest) = near.iter().copied().find(|rank| hellos[*rank].guest) {
            let limit = "it must be another: RingConfig::host";
            let error = Error::invalid("the host of a guest", "that of the writer", limit);
            return Err(if guest == rank { error } else { Error::Peer { rank: guest, message: error.to_string() } });
        }
        Ok(Self { config, deadline, rank, near, far })
    }

    fn is_near(&self) -> bool {
        self.near.contains(&self.rank)
    }

    fn is_writer(&self) -> bool {
        self.rank == self.config.writer
    }

    /// Whether this rank speaks ZeroMQ.
    fn by_zeromq(&self) -> bool {
        let overflow = self.config.overflow == Overflow::ZeroMq && self.near.len() > 1;
        if self.is_near() { overflow || (self.is_writer() && !self.far.is_empty()) } else { true }
    }

    /// Connects the ranks of the writer's host. Other ranks get no mesh and only take part in the same exchanges.
    fn mesh(&self, bootstrap: &mut dyn Bootstrap) -> Result<Option<Mesh>> {
        let mut near = NearBootstrap { bootstrap, ranks: &self.near, rounds: 0, failure: None };
        let mesh = if self.is_near() { Mesh::open(&mut near, self.deadline).map(Some) } else { Ok(None) };
        // An error of the bootstrap already names ranks by their numbers in the world.
        let mesh = mesh.map_err(|error| near.failure.take().unwrap_or_else(|| error.of_members(&self.near)));
        while near.rounds < MESH_ROUNDS {
            if let Err(error) = near.all_gather(&[], self.deadline) {
                return mesh.and(Err(error));
            }
        }
        mesh
    }

    /// Joins the shared memory, opens what ZeroMQ needs, and joins.
    fn finish(&self, bootstrap: &mut dyn Bootstrap, mesh: Result<Option<Mesh>>) -> Result<BroadcastRing> {
        let (config, deadline) = (self.config, self.deadline);
        // Every rank of the writer's host below the writer is a party before the writer.
        let writer = self.near.iter().take_while(|rank| **rank != config.writer).count();
        let take = |mesh| RingMember::take(mesh, self.near.clone(), writer, config, deadline);
        let member = mesh.and_then(|mesh| mesh.map(take).transpose().map_err(|error| error.of_members(&self.near)));
        let keys = member.and_then(|member| {
            let keys = (self.by_zeromq() && !self.is_writer()).then(Keys::new).transpose()?;
            let zmq_writer = (self.by_zeromq() && self.is_writer()).then(|| self.zmq_writer()).transpose()?;
            Ok((member, keys, zmq_writer))
        });
        let note = keys.as_ref().map_or_else(
            |_| Note::default(),
            |(_, keys, zmq_writer)| Note {
                error: None,
                address: zmq_writer.as_ref().map(|zmq_writer| zmq_writer.address().clone()),
                key: keys.as_ref().map(|keys| keys.public.clone()),
            },
        );
        let ((member, keys, mut zmq_writer), notes) = compare_notes(bootstrap, keys, note, deadline)?;
        let known = zmq_writer.as_ref().map_or(Ok(()), |zmq_writer| {
            let keys = notes.iter().enumerate().filter_map(|(rank, note)| Some((rank, note.key.as_ref()?)));
            keys.into_iter().try_for_each(|(rank, key)| zmq_writer.admit(key, rank))
        });
        // No reader connects before the writer knows all keys: a refused connection is not tried again.
        compare_notes(bootstrap, known, Note::default(), deadline)?;
        let zmq_reader = keys.as_ref().map(|keys| self.connect(keys, &notes)).transpose();
        // A reader that cannot connect ends the making here, before the writer waits for it.
        let (mut zmq_reader, _) = compare_notes(bootstrap, zmq_reader, Note::default(), deadline)?;
        compare_notes(bootstrap, Ok(()), Note::default(), deadline)?;
        let gathered = match (&mut zmq_reader, &mut zmq_writer) {
            (None, None) => Ok(()),
            (None, Some(zmq_writer)) => zmq_writer.gather(deadline),
            (Some(zmq_reader), _) => zmq_reader.ready(deadline),
        };
        let (zmq_reader, _) = compare_notes(bootstrap, gathered.map(|()| zmq_reader), Note::default(), deadline)?;
        match (member, zmq_reader) {
            (Some(member), _) if self.is_writer() => Ok(BroadcastRing::Writer(Writer::new(member, zmq_writer, config))),
            (Some(member), zmq_reader) => Ok(BroadcastRing::Reader(Reader::near(member, zmq_reader, config))),
            (None, Some(zmq_reader)) => Ok(BroadcastRing::Reader(Reader::far(zmq_reader, config))),
            (None, None) => Err(Error::internal("a reader without a way to read")),
        }
    }

    fn zmq_writer(&self) -> Result<ZmqWriter> {
        let own_host = self.near.iter().copied().filter(|rank| *rank != self.rank);
        let near: Vec<usize> = own_host.filter(|_| self.config.overflow == Overflow::ZeroMq).collect();
        ZmqWriter::open(self.config, &near, &self.far)
    }

    fn connect(&self, keys: &Keys, notes: &[Note]) -> Result<ZmqReader> {
        let mut zmq_reader = ZmqReader::open(self.config, self.address(notes)?, self.is_near(), self.rank, keys)?;
        zmq_reader.connected(self.deadline)?;
        Ok(zmq_reader)
    }

    /// Where the writer listens.
    fn address<'n>(&self, notes: &'n [Note]) -> Result<&'n ZmqAddress> {
        let address = notes.get(self.config.writer).and_then(|note| note.address.as_ref());
        address.ok_or_else(|| Error::bootstrap(format!("rank {}, the writer, sent no address", self.config.writer)))
    }
}

/// All-gathers of a mesh that opens: one for addresses, one for results.
const MESH_ROUNDS: usize = 2;

/// The ranks of one host as a world of their own. The ranks of other hosts have to make as many
/// all-gathers.
struct NearBootstrap<'a> {
    bootstrap: &'a mut dyn Bootstrap,
    ranks: &'a [usize],
    rounds: usize,
    /// Why the bootstrap failed.
    failure: Option<Error>,
}

impl Bootstrap for NearBootstrap<'_> {
    fn rank(&self) -> usize {
        let own = self.bootstrap.rank();
        self.ranks.iter().position(|rank| *rank == own).unwrap_or(self.ranks.len())
    }

    fn world_size(&self) -> usize {
        self.ranks.len()
    }

    fn all_gather(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.rounds += 1;
        let all = self.bootstrap.all_gather(bytes, deadline);
        let mut all = all.inspect_err(|error| self.failure = Some(error.clone()))?;
        Ok(self.ranks.iter().filter_map(|rank| all.get_mut(*rank).map(std::mem::take)).collect())
    }
}

/// `local` and the notes of all ranks, if every rank succeeded; else the error of this rank, or that of the
/// lowest rank that failed.
fn compare_notes<T>(
    bootstrap: &mut dyn Bootstrap,
    local: Result<T>,
    note: Note,
    deadline: Instant,
) -> Result<(T, Vec<Note>)> {
    let note = Note { error: local.as_ref().err().map(ToString::to_string), ..note };
    let notes = tell(bootstrap, "to compare notes on a metadata ring", &note, deadline);
    let value = local?;
    let notes = notes?;
    match notes.iter().enumerate().find_map(|(rank, note)| Some((rank, note.error.clone()?))) {
        None => Ok((value, notes)),
        Some((rank, message)) => Err(Error::Peer { rank, message }),
    }
}
