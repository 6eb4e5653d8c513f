//! Ranks that meet by 128 bytes that any process has made, for programs with the identities of other libraries.

mod id;
mod message;
mod party;
mod service;

use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use self::id::{MeetingId, VERSION};
use self::message::{FirstMessage, MOST_BYTES, decode_error, decode_list, encode_error};
use self::service::Service;
use super::channel::{Broken, Channel};
use super::endpoint::Setback;
use super::entrance::Entrance;
use super::frame::{Frame, FrameKind, Outgoing};
use super::shown::{MOST_RANKS, Shown};
use crate::error::{Error, Result};
use crate::fork::Maker;

/// Pause before the second attempt to reach the maker of the id; it doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause between two attempts.
const LAST_PAUSE: Duration = Duration::from_millis(200);
/// The most time of the question whether the maker of an id has ended.
const QUESTION: Duration = Duration::from_secs(2);
/// How long connections are refused before the maker of the id counts as ended. It listens before the id exists.
const REFUSED: Duration = Duration::from_secs(2);
/// How long a rank that gives up waits for the service to name the missing ranks.
const ANSWER: Duration = Duration::from_millis(500);

/// How ranks meet by an id of 128 bytes.
///
/// Any process makes an id with [`id`](Self::id); it need not be a rank. The program passes the bytes to all ranks, which
/// call [`join`](Self::join). The process that made the id serves the ranks until it ends: one thread and one port serve all
/// its ids. An id serves the ranks of one communicator. A rank proves that it knows the secret in the id, and everything
/// that ranks send is encrypted.
#[derive(Debug)]
#[non_exhaustive]
pub struct Meeting;

impl Meeting {
    /// Size of an id in bytes.
    pub const ID_BYTES: usize = id::BYTES;
    /// The most bytes of a rank in [`join`](Self::join) and in [`Joined::exchange`].
    pub const MOST_BYTES: usize = MOST_BYTES;

    /// Makes an id. The first call of a process starts a thread, which listens on loopback and at one more interface, where
    /// ranks of other hosts connect: that of `SYMMETRA_BIND`, else the first that `interfaces` names, else the first
    /// interface that is up and belongs neither to this host alone nor to docker. Later calls use that thread.
    ///
    /// `interfaces` has the rules of `NCCL_SOCKET_IFNAME`: starts of names, separated by commas. `=` before the list asks
    /// for whole names, `^` excludes the names, and `^=` excludes whole names.
    ///
    /// After a fork the parent goes on serving its ids, and the child makes its own.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if no interface fits `SYMMETRA_BIND` or `interfaces`; the message lists the interfaces of
    /// the host. [`Error::System`] if the system gives no port, no thread or no random bytes.
    pub fn id(interfaces: Option<&str>) -> Result<[u8; Self::ID_BYTES]> {
        Service::id(interfaces).map(|id| id.to_bytes())
    }

    /// Whether the bytes are an id of this library, of any version.
    pub fn is_id(bytes: &[u8; Self::ID_BYTES]) -> bool {
        MeetingId::has_mark(bytes)
    }

    /// The id of a further meeting, by a name that its ranks know. All ranks that meet by `id` may meet again, in any number
    /// of ranks: the process that made `id` serves them. Each name is for one meeting. Does not communicate.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for bytes that are no id.
    pub fn further(id: &[u8; Self::ID_BYTES], name: &str) -> Result<[u8; Self::ID_BYTES]> {
        Ok(MeetingId::from_bytes(id)?.further(name).to_bytes())
    }

    /// Whether the process that made the id has ended: its host refuses connections at its port. `false` if the host does not
    /// answer. Blocks for 2 seconds at most.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for bytes that are no id. [`Error::Bootstrap`] if this host cannot reach the maker.
    pub fn has_ended(id: &[u8; Self::ID_BYTES]) -> Result<bool> {
        let endpoint = MeetingId::from_bytes(id)?.endpoint()?;
        Ok(matches!(endpoint.dial(Instant::now() + QUESTION), Err(Setback::Again(why)) if is_refused(&why)))
    }

    /// Takes place `rank` of `world_size`, and sends `claim`, at most [`MOST_BYTES`](Self::MOST_BYTES), to all ranks. Blocks
    /// until all ranks have come or `deadline` has passed. World sizes are 1 to 65535.
    ///
    /// # Errors
    /// On every rank that has come: [`Error::InvalidArgument`] for ranks with one number, with another world size or with
    /// another version, which the message names; [`Error::Timeout`] at the first deadline of a rank, which names the
    /// missing ranks; [`Error::PeerLost`] for a rank that came and died. On this rank: [`Error::InvalidArgument`] for bytes
    /// that are no id, a rank or a claim outside its limits, and an id whose ranks have come already;
    /// [`Error::Bootstrap`] if the process that made the id has ended.
    pub fn join(
        id: &[u8; Self::ID_BYTES],
        rank: usize,
        world_size: usize,
        claim: &[u8],
        deadline: Instant,
    ) -> Result<Joined> {
        let id = MeetingId::from_bytes(id)?;
        if !(1..=MOST_RANKS).contains(&world_size) {
            return Err(Error::invalid("the world size", world_size, format!("it must be 1 to {MOST_RANKS}")));
        }
        if rank >= world_size {
            return Err(Error::invalid("the rank", rank, format!("the world size is {world_size}")));
        }
        check_length("a claim", claim)?;
        let _shown = Shown::begin(rank, world_size, id.place());
        let channel = connect(&id, rank, world_size, deadline)?;
        let maker = Maker::this();
        let mut joined = Joined { maker, channel, rank, world_size, claims: Vec::new(), round: 0, failure: None };
        let claim = FirstMessage { own: VERSION, read: id.version, bytes: claim };
        joined.claims = joined.gather(claim.encode(), deadline)?;
        Ok(joined)
    }
}

/// A rank of a meeting to which all ranks have come.
pub struct Joined {
    maker: Maker,
    channel: Channel,
    rank: usize,
    world_size: usize,
    claims: Vec<Vec<u8>>,
    round: u64,
    /// The error after which the meeting can no longer be used.
    failure: Option<Error>,
}

impl Joined {
    /// The claims of all ranks, in rank order.
    pub fn claims(&self) -> &[Vec<u8>] {
        &self.claims
    }

    /// Gathers `bytes`, at most [`Meeting::MOST_BYTES`], from every rank, in rank order; lengths may differ. Collective;
    /// blocks until all ranks have called it or `deadline` has passed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for too many bytes, [`Error::Timeout`] with the ranks that are late,
    /// [`Error::PeerLost`] for a rank that has left or died, [`Error::Bootstrap`] if the process that made the id has
    /// ended, [`Error::Unsupported`] in a forked child. Every later call returns the same error.
    pub fn exchange(&mut self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.maker.check("a place in a meeting")?;
        check_length("the bytes of an exchange", bytes)?;
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        self.gather(bytes.to_vec(), deadline).inspect_err(|error| self.failure = Some(error.clone()))
    }

    fn gather(&mut self, bytes: Vec<u8>, deadline: Instant) -> Result<Vec<Vec<u8>>> {
        let start = Instant::now();
        self.channel.queue(Outgoing::data(self.rank, self.round, bytes.into()));
        let frame = match receive(&mut self.channel, deadline)? {
            Some(frame) => frame,
            None => {
                let doing = "the process that made the id did not name the missing ranks";
                let error = Error::exchange_timeout(None, start.elapsed(), doing);
                self.channel.queue(Outgoing::control(FrameKind::Notice, self.rank, encode_error(&error)));
                // The service knows the missing ranks, or has sent the bytes of all ranks at the deadline.
                receive(&mut self.channel, Instant::now() + ANSWER)?.ok_or(error)?
            }
        };
        let all = decode_list(&frame.payload, self.world_size)
            .filter(|_| frame.header.kind == FrameKind::Data && frame.header.sequence == self.round);
        self.round += 1;
        all.ok_or_else(|| {
            Error::bootstrap(format!("the process that made the id sent a {} out of turn", frame.header.kind.name()))
        })
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Joined(rank {} of {}, socket {:?})", self.rank, self.world_size, self.channel.as_fd())
    }
}

fn check_length(what: &str, bytes: &[u8]) -> Result<()> {
    match bytes.len() <= MOST_BYTES {
        true => Ok(()),
        false => {
            Err(Error::invalid(what, format!("{} bytes", bytes.len()), format!("it must be at most {MOST_BYTES}")))
        }
    }
}

/// The next frame of the service, or the error that it sends; `None` if `deadline` passes first.
fn receive(channel: &mut Channel, deadline: Instant) -> Result<Option<Frame>> {
    let received = match channel.receive_by(deadline) {
        // Sending failed, but the service may have sent the reason before it closed.
        Err(Broken::Closed) => channel.receive(),
        received => received,
    };
    match received {
        Ok(Some(frame)) if frame.header.kind == FrameKind::Notice => {
            Err(decode_error(usize::from(frame.header.rank), &frame.payload))
        }
        Ok(frame) => Ok(frame),
        Err(Broken::Closed) => {
            Err(Error::bootstrap("the process that made the id has ended, or closed the connection"))
        }
        Err(Broken::Nonsense(what)) => Err(Error::bootstrap(format!("the process that made the id sent {what}"))),
        Err(Broken::System(errno)) => {
            Err(Error::system("the connection to the process that made the id", &errno.into()))
        }
        Err(Broken::Wait(error)) => Err(error),
    }
}

/// Whether an attempt to connect failed because no process listens at the port.
fn is_refused(why: &str) -> bool {
    why == Errno::CONNREFUSED.to_string()
}

/// Connects to the process that made the id, and claims a place.
fn connect(id: &MeetingId, rank: usize, world_size: usize, deadline: Instant) -> Result<Channel> {
    let endpoint = id.endpoint()?;
    let entrance =
        Entrance { endpoint: &endpoint, secret: &id.secret, number: id.number, host: "the process that made the id" };
    let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        let why = match entrance.claim(rank, world_size, deadline) {
            Ok(mut channel) => {
                channel.set_limit(world_size * (MOST_BYTES + size_of::<u32>()) + message::MOST_FRAME_BYTES);
                return Ok(channel);
            }
            Err(Setback::Final(error)) => return Err(error),
            Err(Setback::Again(why)) => why,
        };
        let now = Instant::now();
        if is_refused(&why) && now - start > REFUSED {
            return Err(Error::bootstrap(format!("{endpoint}: the process that made the id has ended: {why}")));
        }
        if now >= deadline {
            return Err(Error::exchange_timeout(
                None,
                start.elapsed(),
                format!("the maker of the id at {endpoint}: {why}"),
            ));
        }
        std::thread::sleep(pause.min(deadline - now));
        pause = (pause * 2).min(LAST_PAUSE);
    }
}
