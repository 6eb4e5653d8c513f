//! How a mesh comes to be: every rank listens in a directory of its own, tells the others where,
//! and dials them all.
//!
//! The connection a higher rank dials to a lower one stays. The one a lower rank dials to a
//! higher one is a tell-tale: while the lower rank waits to be dialled, it breaks if the higher
//! rank dies. A rank dials everybody before it stops listening, so a tell-tale that breaks when
//! its rank has not dialled means that it never will.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use once_cell::sync::OnceCell;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, bind, listen};
use subtle::ConstantTimeEq;

use super::{Mesh, Process};
use crate::bootstrap::Bootstrap;
use crate::bootstrap::channel::Channel;
use crate::bootstrap::directory::Directory;
use crate::bootstrap::endpoint::{BACKLOG, Endpoint, Setback, stream, unix_address};
use crate::bootstrap::frame::{Fields, Frame, Kind, MAX_FRAME_BYTES, Outgoing, check_rank};
use crate::bootstrap::handshake::random;
use crate::bootstrap::hello::check_count;
use crate::bootstrap::wait::wait;
use crate::error::{Error, Result};

const TOKEN_BYTES: usize = 16;
const OPENED: u8 = 1;
const FAILED: u8 = 0;
const IN_ITS_WAKE: u8 = 2;

impl Mesh {
    /// Connects every rank of `bootstrap` with every other. All must run on this host, as the same
    /// user, with a common directory for temporary files (TMPDIR). Blocks until every rank called it.
    pub fn open(bootstrap: &mut dyn Bootstrap, deadline: Instant) -> Result<Self> {
        let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
        check_rank(rank, world_size)?;
        if world_size == 1 {
            return Ok(Self::new(0, vec![None], vec![Process::current()?]));
        }
        // A rank that cannot listen tells the others, instead of leaving them to wait for it.
        let door = Door::open();
        let card = match &door {
            Ok(door) => door.card(),
            Err(error) => [&[FAILED], error.to_string().as_bytes()].concat(),
        };
        let cards = bootstrap.all_gather(&card, deadline)?;
        let door = door?;
        check_count(cards.len(), world_size)?;
        let cards: Vec<Card> =
            cards.iter().enumerate().map(|(peer, card)| Card::read(card, peer)).collect::<Result<_>>()?;

        if cards[rank].token != door.token {
            return Err(Error::bootstrap(format!("the all-gather gave another rank's bytes at rank {rank}")));
        }
        let processes = cards.iter().map(|card| card.process).collect();
        let peers = Meeting { rank, deadline, cards: &cards }.connect(&door);
        drop(door); // who still waits for us to dial sees that we do not
        conclude(bootstrap, peers, deadline).map(|peers| Self::new(rank, peers, processes))
    }
}

/// What to make of an attempt to connect, once every rank tells how it went. A rank that died makes
/// others fail in its wake: the bootstrap knows who it was, and names the same one to everybody.
fn conclude<T>(bootstrap: &mut dyn Bootstrap, outcome: Result<T>, deadline: Instant) -> Result<T> {
    let own = match &outcome {
        Ok(_) => Vec::new(),
        Err(Error::PeerLost { .. }) => vec![IN_ITS_WAKE],
        Err(error) => [&[FAILED], error.to_string().as_bytes()].concat(),
    };
    let all = match (bootstrap.all_gather(&own, deadline), own.first()) {
        (_, Some(&FAILED)) => return outcome,
        (all, _) => all?,
    };
    match all.iter().enumerate().find(|(_, words)| words.first() == Some(&FAILED)) {
        Some((rank, words)) => Err(Error::Peer { rank, message: String::from_utf8_lossy(&words[1..]).into_owned() }),
        None => match all.iter().position(|words| !words.is_empty()) {
            Some(rank) => outcome.and(Err(Error::Peer { rank, message: "it lost another rank while opening".into() })),
            None => outcome,
        },
    }
}

impl Process {
    fn current() -> Result<Self> {
        static NONCE: OnceCell<[u8; 16]> = OnceCell::new();
        Ok(Self { id: std::process::id(), nonce: *NONCE.get_or_try_init(random)? })
    }
}

/// Where this rank listens. Closing it removes the directory.
pub(super) struct Door {
    listener: OwnedFd,
    path: PathBuf,
    token: [u8; TOKEN_BYTES],
    process: Process,
    _directory: Directory,
}

impl Door {
    pub(super) fn open() -> Result<Self> {
        let directory = Directory::new()?;
        let path = directory.path().join("mesh.sock");
        let listener = stream(AddressFamily::UNIX)?;
        let system =
            |errno: rustix::io::Errno| Error::system(format_args!("listen at {}", path.display()), &errno.into());
        bind(&listener, &unix_address(&path)?).map_err(system)?;
        listen(&listener, BACKLOG).map_err(system)?;
        Ok(Self { listener, path, token: random()?, process: Process::current()?, _directory: directory })
    }

    /// What the others must know to dial.
    pub(super) fn card(&self) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        [&[OPENED], &self.process.id.to_le_bytes()[..], &self.process.nonce, &self.token, path].concat()
    }
}

/// What a rank told of itself.
struct Card {
    process: Process,
    token: [u8; TOKEN_BYTES],
    endpoint: Endpoint,
}

impl Card {
    fn read(bytes: &[u8], rank: usize) -> Result<Self> {
        let mut fields = Fields(bytes);
        let read = match fields.array() {
            Some([OPENED]) => (fields.u32(), fields.array(), fields.array()),
            Some([FAILED]) => return Err(Error::Peer { rank, message: fields.text() }),
            _ => (None, None, None),
        };
        let (Some(id), Some(nonce), Some(token)) = read else {
            return Err(Error::bootstrap(format!("rank {rank} gave {} bytes that tell no socket", bytes.len())));
        };
        let path = Path::new(&std::ffi::OsString::from_vec(fields.0.to_vec())).to_owned();
        Ok(Self { process: Process { id, nonce }, token, endpoint: Endpoint::Unix(path) })
    }
}

/// Everybody dialling everybody.
struct Meeting<'a> {
    rank: usize,
    deadline: Instant,
    cards: &'a [Card],
}

impl Meeting<'_> {
    fn connect(&self, door: &Door) -> Result<Vec<Option<Channel>>> {
        let mut peers: Vec<Option<Channel>> = self.cards.iter().map(|_| None).collect();
        for (peer, card) in self.cards.iter().enumerate().take(self.rank) {
            let mut channel = Channel::new(self.dial(peer)?, MAX_FRAME_BYTES);
            channel.queue(Outgoing::control(Kind::Hello, self.rank, card.token.to_vec()));
            channel.flush().map_err(|broken| broken.of_rank(peer))?;
            peers[peer] = Some(channel);
        }
        // A rank that stopped listening has dialled us already, or died: the same as a broken tell-tale.
        let higher = self.rank + 1..self.cards.len();
        let tell_tales = higher.map(|peer| {
            self.dial(peer).map(Some).or_else(|error| match error {
                Error::PeerLost { .. } => Ok(None),
                error => Err(error),
            })
        });
        let tell_tales = tell_tales.collect::<Result<Vec<_>>>()?;
        self.be_dialled(door, &tell_tales, &mut peers)?;
        Ok(peers)
    }

    /// A connection to a listener, which accepts only later.
    fn dial(&self, peer: usize) -> Result<OwnedFd> {
        self.cards[peer].endpoint.dial(self.deadline).map_err(|setback| match setback {
            Setback::Final(error) => error,
            Setback::Again(why) => {
                let detail = format!(": it does not listen at {}: {why}", self.cards[peer].endpoint);
                Error::PeerLost { rank: peer, detail }
            }
        })
    }

    /// Accepts until every higher rank dialled.
    fn be_dialled(&self, door: &Door, tell_tales: &[Option<OwnedFd>], peers: &mut [Option<Channel>]) -> Result<()> {
        let start = Instant::now();
        let mut callers: Vec<Channel> = Vec::new();
        loop {
            // Looked at before accepting: who is gone has dialled by now, or never will.
            let gone = self.gone(tell_tales)?;
            while let Some(socket) = self.accept(door)? {
                callers.push(Channel::new(socket, TOKEN_BYTES));
            }
            for mut caller in std::mem::take(&mut callers) {
                match caller.receive() {
                    Ok(None) => callers.push(caller),
                    Ok(Some(frame)) => self.seat(caller, &frame, door, peers),
                    Err(_) => {} // a stranger
                }
            }
            let Some(missing) = (self.rank + 1..peers.len()).find(|peer| peers[*peer].is_none()) else {
                return Ok(());
            };
            if let Some(&rank) = gone.iter().find(|peer| peers[**peer].is_none()) {
                return Err(Error::PeerLost { rank, detail: ": it died before it connected".into() });
            }
            if Instant::now() >= self.deadline {
                return Err(Error::exchange_timeout(Some(missing), start.elapsed(), "it did not connect to this rank"));
            }
            let mut fds = vec![PollFd::new(&door.listener, PollFlags::IN)];
            fds.extend(callers.iter().map(|caller| caller.interest(PollFlags::IN)));
            fds.extend(self.watched(tell_tales, peers));
            wait(&mut fds, self.deadline)?;
        }
    }

    fn accept(&self, door: &Door) -> Result<Option<OwnedFd>> {
        self.cards[self.rank]
            .endpoint
            .accept(door.listener.as_fd())
            .map_err(|errno| Error::system("accept", &errno.into()))
    }

    /// Takes a caller that shows our token for the rank it says it is.
    fn seat(&self, mut caller: Channel, frame: &Frame, door: &Door, peers: &mut [Option<Channel>]) {
        let peer = frame.header.rank as usize;
        let known: bool = frame.payload.ct_eq(&door.token).into();
        let free = peer > self.rank && peers.get(peer).is_some_and(Option::is_none);
        if known && free && frame.header.kind == Kind::Hello {
            caller.set_limit(MAX_FRAME_BYTES);
            peers[peer] = Some(caller);
        }
    }

    /// The tell-tales of ranks that have not dialled: only their breaking says something.
    fn watched<'a>(
        &self,
        tell_tales: &'a [Option<OwnedFd>],
        peers: &[Option<Channel>],
    ) -> impl Iterator<Item = PollFd<'a>> {
        let missing = tell_tales.iter().zip(&peers[self.rank + 1..]).filter(|(_, peer)| peer.is_none());
        missing.filter_map(|(tell_tale, _)| Some(PollFd::new(tell_tale.as_ref()?, PollFlags::empty())))
    }

    /// The higher ranks that stopped listening.
    fn gone(&self, tell_tales: &[Option<OwnedFd>]) -> Result<Vec<usize>> {
        let open = tell_tales.iter().zip(self.rank + 1..);
        let (mut gone, mut fds, mut ranks) = (Vec::new(), Vec::new(), Vec::new());
        for (tell_tale, peer) in open {
            match tell_tale {
                Some(socket) => {
                    fds.push(PollFd::new(socket, PollFlags::empty()));
                    ranks.push(peer);
                }
                None => gone.push(peer),
            }
        }
        let ready = wait(&mut fds, Instant::now())?;
        gone.extend(ranks.into_iter().zip(ready).filter(|(_, flags)| !flags.is_empty()).map(|(peer, _)| peer));
        Ok(gone)
    }
}
