//! Opening of a mesh: every rank listens in a directory of its own, sends its address to the others, and connects to
//! all of them.
//!
//! A connection from a higher rank to a lower rank stays. A connection from a lower rank to a higher rank only
//! detects failures (`tell_tales`): it breaks if the higher rank dies before it has connected to the lower rank. A rank
//! connects to all others before it stops listening. So if the connection to a rank breaks before that rank has
//! connected, the rank never will.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use once_cell::sync::OnceCell;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, bind, listen};

use super::{LIMIT_BYTES, Mesh, Peer, ProcessIdentity};
use crate::bootstrap::all_gather::Bootstrap;
use crate::bootstrap::channel::Channel;
use crate::bootstrap::directory::Directory;
use crate::bootstrap::endpoint::{BACKLOG, Endpoint, Setback, stream, unix_address};
use crate::bootstrap::frame::{Fields, Frame, FrameKind, Outgoing, check_rank};
use crate::bootstrap::handshake::random;
use crate::bootstrap::hello::check_count;
use crate::bootstrap::peer::Life;
use crate::bootstrap::wait::wait;
use crate::error::{Error, Result};

const TOKEN_BYTES: usize = 16;
const OPENED: u8 = 1;
const FAILED: u8 = 0;
pub(super) const IN_ITS_WAKE: u8 = 2;

impl Mesh {
    /// Connects every rank of `bootstrap` with every other. All must run on this host, as the same user, with a common
    /// directory for temporary files (TMPDIR). Blocks until every rank has called it.
    pub fn open(bootstrap: &mut dyn Bootstrap, deadline: Instant) -> Result<Self> {
        let (rank, world_size) = (bootstrap.rank(), bootstrap.world_size());
        check_rank(rank, world_size)?;
        if world_size == 1 {
            return Ok(Self::new(0, vec![None], vec![ProcessIdentity::current()?]));
        }
        // A rank that cannot listen reports the error, so that the others do not wait for it.
        let door = Door::open();
        let card = match &door {
            Ok(door) => door.card(),
            Err(error) => [&[FAILED], error.to_string().as_bytes()].concat(),
        };
        let cards = bootstrap.all_gather(&card, deadline)?;
        let door = door?;
        check_count(cards.len(), world_size)?;
        let cards: Vec<MeshCard> =
            cards.iter().enumerate().map(|(peer, card)| MeshCard::read(card, peer)).collect::<Result<_>>()?;

        if cards[rank].token != door.token {
            return Err(Error::bootstrap(format!("the all-gather gave another rank's bytes at rank {rank}")));
        }
        let processes = cards.iter().map(|card| card.process).collect();
        let meeting = MeshMeeting { rank, deadline, cards: &cards };
        let peers = meeting.connect(&door).and_then(|channels| meeting.watch(channels));
        drop(door); // shows waiting ranks that this rank will not connect any more
        conclude(bootstrap, peers, deadline).map(|peers| Self::new(rank, peers, processes))
    }
}

/// Compares the outcomes of all ranks. A rank that dies makes other ranks fail too: the bootstrap knows which rank
/// died, and reports it to every rank.
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
        None if all.iter().any(|words| !words.is_empty()) => Err(apart(outcome.err())),
        None => outcome,
    }
}

/// The error of ranks that all live and cannot reach each other's sockets. `lost` is this rank's error.
fn apart(lost: Option<Error>) -> Error {
    let met = match lost {
        Some(Error::PeerLost { rank, detail }) => format!("; rank {rank}{detail}"),
        _ => String::new(),
    };
    Error::bootstrap(format!(
        "all ranks live, but some cannot reach the sockets of others: all need one directory for temporary files \
         (TMPDIR), mounted at one place; here it is {}{met}",
        std::env::temp_dir().display()
    ))
}

impl ProcessIdentity {
    fn current() -> Result<Self> {
        static NONCE: OnceCell<[u8; 16]> = OnceCell::new();
        Ok(Self { id: std::process::id(), nonce: *NONCE.get_or_try_init(random)? })
    }
}

/// The listener of this rank. Dropping it removes the directory.
pub(super) struct Door {
    listener: OwnedFd,
    path: PathBuf,
    token: [u8; TOKEN_BYTES],
    process: ProcessIdentity,
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
        Ok(Self { listener, path, token: random()?, process: ProcessIdentity::current()?, _directory: directory })
    }

    /// The data that the other ranks need to connect to this rank.
    pub(super) fn card(&self) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        [&[OPENED], &self.process.id.to_le_bytes()[..], &self.process.nonce, &self.token, path].concat()
    }
}

/// The address and the process of a rank's listener.
struct MeshCard {
    process: ProcessIdentity,
    token: [u8; TOKEN_BYTES],
    endpoint: Endpoint,
}

impl MeshCard {
    fn read(bytes: &[u8], rank: usize) -> Result<Self> {
        let mut fields = Fields(bytes);
        let read = match fields.array() {
            Some([OPENED]) => (fields.u32(), fields.array(), fields.array()),
            Some([FAILED]) => return Err(Error::Peer { rank, message: fields.text() }),
            _ => (None, None, None),
        };
        let (Some(id), Some(nonce), Some(token)) = read else {
            return Err(Error::bootstrap(format!("rank {rank} gave {} bytes that name no socket", bytes.len())));
        };
        let path = Path::new(&std::ffi::OsString::from_vec(fields.0.to_vec())).to_owned();
        Ok(Self { process: ProcessIdentity { id, nonce }, token, endpoint: Endpoint::Unix(path) })
    }
}

/// The ranks that connect to each other.
struct MeshMeeting<'a> {
    rank: usize,
    deadline: Instant,
    cards: &'a [MeshCard],
}

impl MeshMeeting<'_> {
    fn connect(&self, door: &Door) -> Result<Vec<Option<Channel>>> {
        let mut peers: Vec<Option<Channel>> = self.cards.iter().map(|_| None).collect();
        for (peer, card) in self.cards.iter().enumerate().take(self.rank) {
            let mut channel = Channel::new(self.dial(peer)?, LIMIT_BYTES);
            channel.queue(Outgoing::control(FrameKind::Hello, self.rank, card.token.to_vec()));
            channel.flush().map_err(|broken| broken.of_rank(peer))?;
            peers[peer] = Some(channel);
        }
        // A rank that has stopped listening has connected to this rank already, or died.
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

    /// The peers, with their processes if they are not threads of this process.
    fn watch(&self, channels: Vec<Option<Channel>>) -> Result<Vec<Option<Peer>>> {
        let watch = |(rank, channel): (usize, Option<Channel>)| {
            let Some(channel) = channel else { return Ok(None) };
            let life = match self.cards[rank].process == self.cards[self.rank].process {
                true => Ok(None),
                false => Life::of_peer(channel.as_fd()),
            };
            match life {
                Ok(life) => Ok(Some(Peer::new(channel, life))),
                Err(Errno::SRCH) => Err(Error::PeerLost { rank, detail: ": it died after it connected".into() }),
                Err(errno) => Err(Error::system(format_args!("watch the process of rank {rank}"), &errno.into())),
            }
        };
        channels.into_iter().enumerate().map(watch).collect()
    }

    /// Connects to a listener, which accepts only later.
    fn dial(&self, peer: usize) -> Result<OwnedFd> {
        let start = Instant::now();
        self.cards[peer].endpoint.dial(self.deadline).map_err(|setback| match setback {
            Setback::Final(error) => error,
            Setback::Again(why) if Instant::now() >= self.deadline => {
                Error::exchange_timeout(Some(peer), start.elapsed(), format!("at {}: {why}", self.cards[peer].endpoint))
            }
            Setback::Again(why) => {
                let detail = format!(": it does not listen at {}: {why}", self.cards[peer].endpoint);
                Error::PeerLost { rank: peer, detail }
            }
        })
    }

    /// Accepts until every higher rank has connected.
    fn be_dialled(&self, door: &Door, tell_tales: &[Option<OwnedFd>], peers: &mut [Option<Channel>]) -> Result<()> {
        let start = Instant::now();
        let tell_tales: Vec<_> = (self.rank + 1..).zip(tell_tales).collect();
        // Ranks that have stopped listening. Each has connected before, or never will.
        let mut gone: Vec<usize> = tell_tales.iter().filter(|(_, fd)| fd.is_none()).map(|(peer, _)| *peer).collect();
        let mut callers: Vec<Channel> = Vec::new();
        loop {
            while let Some(socket) = self.accept(door)? {
                callers.push(Channel::new(socket, TOKEN_BYTES));
            }
            for mut caller in std::mem::take(&mut callers) {
                match caller.receive() {
                    Ok(None) => callers.push(caller),
                    Ok(Some(frame)) => self.seat(caller, &frame, door, peers),
                    Err(_) => {} // an unknown process
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
            // Only the break of such a connection matters, and only if its rank has not connected.
            let waited = tell_tales.iter().filter(|(peer, _)| peers[*peer].is_none());
            let watched: Vec<_> = waited.filter_map(|(peer, fd)| Some((*peer, fd.as_ref()?))).collect();
            let mut fds = vec![PollFd::new(&door.listener, PollFlags::IN)];
            fds.extend(callers.iter().map(|caller| caller.interest(PollFlags::IN)));
            fds.extend(watched.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::empty())));
            let ready = wait(&mut fds, self.deadline)?;
            let broken = watched.iter().zip(&ready[1 + callers.len()..]).filter(|(_, flags)| !flags.is_empty());
            gone.extend(broken.map(|((peer, _), _)| *peer));
        }
    }

    fn accept(&self, door: &Door) -> Result<Option<OwnedFd>> {
        self.cards[self.rank]
            .endpoint
            .accept(door.listener.as_fd())
            .map_err(|errno| Error::system("accept", &errno.into()))
    }

    /// Assigns the claimed rank to a caller that has the token of this rank.
    fn seat(&self, mut caller: Channel, frame: &Frame, door: &Door, peers: &mut [Option<Channel>]) {
        let peer = frame.header.rank as usize;
        // The comparison need not take constant time: only processes of this user get here, and they can read the
        // token.
        let known = frame.payload == door.token;
        let free = peer > self.rank && peers.get(peer).is_some_and(Option::is_none);
        if known && free && frame.header.kind == FrameKind::Hello {
            caller.set_limit(LIMIT_BYTES);
            peers[peer] = Some(caller);
        }
    }
}
