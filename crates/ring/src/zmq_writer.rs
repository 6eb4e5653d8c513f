//! The writer's side of ZeroMQ: every message for readers on other hosts, and messages that overflow for readers on
//! this host.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::RingConfig;
use super::member::timeout;
use super::wire::{GivenUp, NoteHead, NoteKind};
use super::zeromq::{Context, Keys, Role, SendResult, Socket, SocketOption, ZmqMessage, key_bytes, poll};
use super::zmq_auth::Authenticator;
use symmetra::bootstrap::Directory;
use symmetra::{Error, Result};

/// Longest handshake of a connection, and time between two pings while the writer waits.
const HANDSHAKE_MS: i32 = 3000;
const PING: Duration = Duration::from_millis(100);
/// Longest frame that a reader sends: of CURVE's handshake. Heads are shorter.
const MOST_FRAME_BYTES: i64 = 1024;
/// How long the last messages may take when the writer ends: until readers have taken them, and then as long again
/// until the rest is sent.
const LINGER: Duration = Duration::from_secs(1);

/// The addresses of the writer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ZmqAddress {
    pub(super) tcp: Option<String>,
    pub(super) ipc: Option<String>,
    pub(super) server_key: String,
}

/// A reader at the other end.
struct RemoteReader {
    rank: usize,
    /// On another host.
    remote: bool,
    /// ZeroMQ's name of the reader, once it joined.
    route: Option<Vec<u8>>,
    sent: u64,
    taken: u64,
    left: bool,
    /// Whether this reader left because it had waited in vain.
    in_vain: bool,
}

/// The writer's socket.
pub(super) struct ZmqWriter {
    // Closed before the authenticator ends the context.
    router: Socket,
    authenticator: Authenticator,
    peers: Vec<RemoteReader>,
    /// Most messages in flight to a reader.
    window: u64,
    address: ZmqAddress,
    /// Holds the ipc socket until all readers of this host have connected.
    directory: Option<Directory>,
}

impl ZmqWriter {
    /// Listens for ranks of the writer's host (`near`, by ipc) and of other hosts (`far`, by tcp).
    pub(super) fn open(config: &RingConfig, near: &[usize], far: &[usize]) -> Result<Self> {
        let context = Context::new()?;
        let (mut authenticator, watch) = Authenticator::open(&context)?;
        let router = context.socket(Role::Router)?;
        let keys = Keys::new()?;
        router.serve_with(&keys)?;
        router.limit_messages(MOST_FRAME_BYTES)?;
        let settings = [
            (SocketOption::LingerMs, LINGER.as_millis() as i32),
            (SocketOption::Backlog, 1024),
            (SocketOption::Mandatory, 1),
            (SocketOption::Ipv6, i32::from(config.bind.is_some_and(|address| address.is_ipv6()))),
            (SocketOption::HandshakeMs, HANDSHAKE_MS),
        ];
        settings.into_iter().try_for_each(|(setting, value)| router.set(setting, value))?;
        prepare(&router, config)?;
        authenticator.watch(watch, &router)?;
        let (mut tcp, mut ipc, mut directory) = (None, None, None);
        if !far.is_empty() {
            tcp = Some(router.bind(&tcp_endpoint(config.bind)?)?);
        }
        if !near.is_empty() {
            let made = Directory::new()?;
            let socket = made.path().join("ring.sock");
            let text = socket.to_str().ok_or_else(|| {
                let limit = "ZeroMQ's sockets need a directory for temporary files (TMPDIR) whose path is UTF-8";
                Error::invalid("the path of a socket", socket.display(), limit)
            })?;
            ipc = Some(router.bind(&format!("ipc://{text}"))?);
            directory = Some(made);
        }
        let peer = |remote| {
            move |rank: &usize| RemoteReader {
                rank: *rank,
                remote,
                route: None,
                sent: 0,
                taken: 0,
                left: false,
                in_vain: false,
            }
        };
        let peers = near.iter().map(peer(false)).chain(far.iter().map(peer(true))).collect();
        let address = ZmqAddress { tcp, ipc, server_key: keys.public };
        Ok(Self { router, authenticator, peers, window: config.slots as u64, address, directory })
    }

    pub(super) fn address(&self) -> &ZmqAddress {
        &self.address
    }

    /// Lets the owner of this key connect as this rank.
    pub(super) fn admit(&self, key: &str, rank: usize) -> Result<()> {
        self.authenticator.admit(key_bytes(key)?, rank);
        Ok(())
    }

    /// Waits until every reader joined, then notifies all readers.
    pub(super) fn gather(&mut self, deadline: Instant) -> Result<()> {
        let start = Instant::now();
        loop {
            self.hear()?;
            let Some(absent) = self.peers.iter().find(|peer| peer.route.is_none()) else { break };
            if Instant::now() >= deadline {
                return Err(timeout(absent.rank, 0, start.elapsed(), "it never joined by ZeroMQ"));
            }
            poll(&[&self.router], deadline)?;
        }
        // All have connected, so the directory can go: a writer that is killed later then leaves none.
        self.directory = None;
        let head = NoteHead { kind: NoteKind::Ready, number: self.peers.len() as u64 };
        (0..self.peers.len()).try_for_each(|peer| self.send_head(peer, head))
    }

    /// Waits until message `number` may be sent to all its receivers: to readers on other hosts, and if the message
    /// overflows to all.
    pub(super) fn make_room(&mut self, overflows: bool, number: u64, deadline: Instant) -> Result<()> {
        let start = Instant::now();
        let mut ping = start + PING;
        loop {
            self.hear()?;
            if let Some(peer) = self.peers.iter().find(|peer| peer.left) {
                return Err(peer.gone("it left the ring"));
            }
            let behind = |peer: &&RemoteReader| (peer.remote || overflows) && peer.sent - peer.taken >= self.window;
            let Some(peer) = self.peers.iter().position(|peer| behind(&peer)) else { return Ok(()) };
            let now = Instant::now();
            if now >= deadline {
                let peer = &self.peers[peer];
                return Err(timeout(peer.rank, number, start.elapsed(), &peer.behind()));
            }
            if now >= ping {
                // Finds out whether the reader is still there.
                self.send_head(peer, NoteHead { kind: NoteKind::Here, number })?;
                ping = now + PING;
            }
            poll(&[&self.router], deadline.min(ping))?;
        }
    }

    /// Whether a reader left because it had waited in vain.
    pub(super) fn waited_in_vain(&self, rank: usize) -> bool {
        self.peers.iter().any(|peer| peer.rank == rank && peer.in_vain)
    }

    /// A reader other than `rank` to which no more messages may be sent, and its state in words.
    pub(super) fn in_the_way(&self, rank: usize) -> Option<GivenUp> {
        let full = |peer: &&RemoteReader| peer.rank != rank && !peer.left && peer.sent - peer.taken >= self.window;
        self.peers.iter().find(full).map(|peer| GivenUp { rank: peer.rank, state: peer.behind() })
    }

    /// Sends a message for which there is room. A reader that cannot be reached is marked as left. The other readers get the
    /// message.
    ///
    /// # Errors
    /// The error of the first reader that was marked.
    pub(super) fn send(&mut self, overflows: bool, number: u64, bytes: &[u8]) -> Result<()> {
        let mut payload = ZmqMessage::new(bytes)?;
        let mut outcome = Ok(());
        for peer in 0..self.peers.len() {
            if self.peers[peer].remote || overflows {
                let head = ZmqMessage::new(&NoteHead { kind: NoteKind::Message, number }.encode());
                match head.and_then(|head| self.send_to(peer, [head, payload.share()].into())) {
                    Ok(()) => self.peers[peer].sent += 1,
                    Err(error) => {
                        self.peers[peer].left = true;
                        outcome = outcome.and(Err(error));
                    }
                }
            }
        }
        outcome
    }

    fn send_head(&self, peer: usize, head: NoteHead) -> Result<()> {
        self.send_to(peer, vec![ZmqMessage::new(&head.encode())?])
    }

    fn send_to(&self, peer: usize, frames: Vec<ZmqMessage>) -> Result<()> {
        let peer = &self.peers[peer];
        let mut all = vec![ZmqMessage::new(peer.route.as_deref().unwrap_or_default())?];
        all.extend(frames);
        match self.router.send(&mut all)? {
            SendResult::All => Ok(()),
            SendResult::Unreachable => Err(peer.gone("its connection closed")),
            SendResult::Full => Err(peer.gone("its connection takes no more messages")),
        }
    }

    /// Takes in what readers sent.
    fn hear(&mut self) -> Result<()> {
        while let Some(frames) = self.router.receive()? {
            let [route, head, why @ ..] = &frames[..] else { continue };
            let rank = head.user().and_then(|user| user.parse().ok());
            let peer = self.peers.iter_mut().find(|peer| Some(peer.rank) == rank);
            let (Some(peer), Some(head)) = (peer, NoteHead::decode(head.bytes())) else { continue };
            match head.kind {
                NoteKind::Join if peer.route.is_none() && head.number == peer.rank as u64 => {
                    peer.route = Some(route.bytes().to_vec());
                    self.authenticator.dismiss(peer.rank);
                }
                NoteKind::Taken if peer.route.as_deref() == Some(route.bytes()) => {
                    peer.taken = head.number.clamp(peer.taken, peer.sent);
                }
                NoteKind::Leave if peer.route.as_deref() == Some(route.bytes()) => {
                    (peer.left, peer.in_vain) = (true, !why.is_empty());
                }
                kind => symmetra::log!(WARN, "rank {}, a reader, sent {kind:?} {} out of turn", peer.rank, head.number),
            }
        }
        Ok(())
    }

    /// Notifies every reader that the ring ends, and because of which reader. Then waits a little until all readers
    /// have taken everything and the readers of other hosts have confirmed that: a connection that is closed while an
    /// answer is in flight loses its data.
    pub(super) fn leave(&mut self, number: u64, given_up: Option<&GivenUp>) {
        let deadline = Instant::now() + LINGER;
        let head = NoteHead { kind: NoteKind::Leave, number }.encode().to_vec();
        let frames = [Some(head), given_up.map(GivenUp::encode)];
        for peer in 0..self.peers.len() {
            let frames = frames.iter().flatten().map(|frame| ZmqMessage::new(frame)).collect::<Result<_>>();
            let told = frames.and_then(|frames| self.send_to(peer, frames)).is_ok();
            self.peers[peer].left |= !told;
        }
        // A reader of this host answers only when a marker in the ring points it to a message by ZeroMQ.
        let done = |peer: &RemoteReader| peer.left || (!peer.remote && peer.taken == peer.sent);
        while !self.peers.iter().all(done) && Instant::now() < deadline {
            if self.hear().and_then(|()| poll(&[&self.router], deadline)).is_err() {
                return;
            }
        }
    }
}

/// The settings of both ends of a connection: no limit of ZeroMQ's own, since the window of the ring limits messages,
/// and heartbeats that detect a lost host.
pub(super) fn prepare(socket: &Socket, config: &RingConfig) -> Result<()> {
    let patience = config.steady.max(Duration::from_secs(10));
    let patience_ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    let settings = [
        (SocketOption::SendLimit, 0),
        (SocketOption::ReceiveLimit, 0),
        (SocketOption::HeartbeatMs, patience_ms / 4),
        (SocketOption::HeartbeatTimeoutMs, patience_ms),
    ];
    settings.into_iter().try_for_each(|(setting, value)| socket.set(setting, value))
}

impl RemoteReader {
    fn behind(&self) -> String {
        format!("it is connected, with {} unread messages", self.sent - self.taken)
    }

    fn gone(&self, how: &str) -> Error {
        let Self { rank, taken, sent, .. } = *self;
        Error::PeerLost { rank, detail: format!(": {how}, having taken {taken} of {sent} messages") }
    }
}

/// Any free port of one interface.
fn tcp_endpoint(interface: Option<IpAddr>) -> Result<String> {
    match interface.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)) {
        all if all.is_unspecified() => {
            Err(Error::invalid("bind", all, "it must be the address of one interface, which readers can reach"))
        }
        IpAddr::V4(address) => Ok(format!("tcp://{address}:*")),
        IpAddr::V6(address) => Ok(format!("tcp://[{address}]:*")),
    }
}

#[cfg(test)]
#[path = "../../../tests/metadata/unit/zmq_writer.rs"]
mod tests;
