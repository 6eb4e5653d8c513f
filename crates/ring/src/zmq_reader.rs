//! A reader's side of ZeroMQ.

use std::time::{Duration, Instant};

use super::RingConfig;
use super::member::{given_up, timeout};
use super::wire::{GivenUp, NoteHead, NoteKind};
use super::zeromq::{
    CLOSED, CONNECTED, Context, DISCONNECTED, HANDSHAKE_FAILED, Keys, REFUSED, Role, SendResult, Socket, SocketOption,
    ZmqMessage, poll,
};
use super::zmq_writer::{ZmqAddress, prepare};
use symmetra::{Error, Result};

/// A lost connection is not made again. (ZeroMQ's own value for that, -1, would drop what has come already.)
const NEVER_MS: i32 = i32::MAX;

/// The reader's socket.
pub(super) struct ZmqReader {
    dealer: Socket,
    events: Socket,
    writer: usize,
    rank: usize,
    connected: bool,
    taken: u64,
    /// The state of the writer when the last wait ended in vain.
    in_vain: Option<String>,
    /// The error of every later receive.
    ended: Option<Error>,
}

impl ZmqReader {
    /// Begins to connect to the writer, which knows `keys` as those of `rank`.
    pub(super) fn open(
        config: &RingConfig,
        address: &ZmqAddress,
        near: bool,
        rank: usize,
        keys: &Keys,
    ) -> Result<Self> {
        let endpoint = if near { &address.ipc } else { &address.tcp };
        let endpoint = endpoint.as_ref().ok_or_else(|| Error::bootstrap("the writer sent no address for this rank"))?;
        let dealer = Context::new()?.socket(Role::Dealer)?;
        dealer.trust(keys, &address.server_key)?;
        dealer.set(SocketOption::LingerMs, 100)?;
        dealer.set(SocketOption::Ipv6, i32::from(endpoint.contains('[')))?;
        dealer.set(SocketOption::ReconnectMs, NEVER_MS)?;
        prepare(&dealer, config)?;
        let events = dealer.monitor(CONNECTED | CLOSED | DISCONNECTED | HANDSHAKE_FAILED)?;
        dealer.connect(endpoint)?;
        let (writer, connected, taken, in_vain, ended) = (config.writer, false, 0, None, None);
        let zmq_reader = Self { dealer, events, writer, rank, connected, taken, in_vain, ended };
        zmq_reader.say(NoteKind::Join, rank as u64, None)?;
        Ok(zmq_reader)
    }

    /// Waits until there is a connection. A refused connection is an error at once, since no rank tries again.
    pub(super) fn connected(&mut self, deadline: Instant) -> Result<()> {
        let start = Instant::now();
        while !self.connected {
            if let Some(ended) = &self.ended {
                return Err(ended.clone());
            }
            if self.note()? {
                continue;
            }
            if Instant::now() >= deadline {
                return Err(timeout(self.writer, 0, start.elapsed(), "there is no connection to it by ZeroMQ so far"));
            }
            poll(&[&self.events], deadline)?;
        }
        Ok(())
    }

    /// Waits until every reader joined.
    pub(super) fn ready(&mut self, deadline: Instant) -> Result<()> {
        match self.next(deadline)? {
            (NoteHead { kind: NoteKind::Ready, .. }, _) => Ok(()),
            (head, _) => Err(Error::bootstrap(format!("the writer began with {head:?}"))),
        }
    }

    /// The next message, which has this number.
    ///
    /// # Errors
    /// [`Error::Peer`] if the writer sent a message of another number.
    pub(super) fn receive(&mut self, number: u64, deadline: Instant) -> Result<ZmqMessage> {
        loop {
            match self.next(deadline)? {
                (NoteHead { kind: NoteKind::Message, number: theirs }, Some(payload)) => {
                    (self.taken, self.in_vain) = (self.taken + 1, None);
                    self.say(NoteKind::Taken, self.taken, None)?;
                    if theirs != number {
                        let message = format!("it sent message {theirs} by ZeroMQ instead of message {number}");
                        return Err(Error::Peer { rank: self.writer, message });
                    }
                    return Ok(payload);
                }
                (NoteHead { kind: NoteKind::Leave, .. }, reason) => {
                    // The writer waits for this answer before it closes the connection.
                    self.say(NoteKind::Leave, self.taken, None)?;
                    let reason = reason.and_then(|reason| GivenUp::decode(reason.bytes()));
                    self.ended = Some(self.left(reason));
                }
                _ => {}
            }
        }
    }

    /// Notifies the writer that this reader ends, and whether it had waited in vain.
    pub(super) fn leave(&self) {
        let why = self.in_vain.clone().map(|state| GivenUp { rank: self.writer, state });
        if self.say(NoteKind::Leave, self.taken, why).is_err() {
            symmetra::log!(DEBUG, "the writer was gone before this reader left");
        }
    }

    fn say(&self, kind: NoteKind, number: u64, why: Option<GivenUp>) -> Result<()> {
        let mut frames = vec![ZmqMessage::new(&NoteHead { kind, number }.encode())?];
        if let Some(why) = why {
            frames.push(ZmqMessage::new(&why.encode())?);
        }
        match self.dealer.send(&mut frames)? {
            SendResult::All => Ok(()),
            // A dealer without a connection: the events that are still to be read contain the reason.
            SendResult::Full | SendResult::Unreachable => Ok(()),
        }
    }

    /// The error that the writer left, for this reason.
    fn left(&self, reason: Option<GivenUp>) -> Error {
        match reason {
            Some(GivenUp { rank, state }) if rank != self.rank => given_up(rank, &state, self.writer, self.taken),
            Some(_) => self.gone("it left the ring because this rank was too slow"),
            None => self.gone("it left the ring"),
        }
    }

    fn gone(&self, how: &str) -> Error {
        Error::PeerLost { rank: self.writer, detail: format!(": {how}, after {} messages by ZeroMQ", self.taken) }
    }

    fn next(&mut self, deadline: Instant) -> Result<(NoteHead, Option<ZmqMessage>)> {
        let start = Instant::now();
        loop {
            if let Some(frames) = self.dealer.receive()? {
                let mut frames = frames.into_iter();
                let head = frames.next().and_then(|head| NoteHead::decode(head.bytes()));
                let head = head.ok_or_else(|| Error::bootstrap("the writer of a ring sent what is no head"))?;
                return Ok((head, frames.next()));
            }
            if let Some(ended) = &self.ended {
                return Err(ended.clone());
            }
            if self.note()? {
                // Messages that came before the end are read first.
                continue;
            }
            if Instant::now() >= deadline {
                let state = format!("it is connected and has sent {} messages by ZeroMQ", self.taken);
                self.in_vain = Some(state.clone());
                return Err(timeout(self.writer, self.taken, start.elapsed(), &state));
            }
            poll(&[&self.dealer, &self.events], deadline.min(Instant::now() + Duration::from_secs(60)))?;
        }
    }

    /// Notes an event of the connection. Returns false if there was none.
    fn note(&mut self) -> Result<bool> {
        let Some((kind, place)) = self.events.event()? else { return Ok(false) };
        let ended = match kind {
            CONNECTED => {
                self.connected = true;
                return Ok(true);
            }
            CLOSED if self.connected => return Ok(true),
            CLOSED => Error::bootstrap(format!(
                "this host cannot connect to {place}, where the writer, rank {}, listens: its RingConfig::bind must \
                 be the address of an interface that other hosts reach",
                self.writer
            )),
            DISCONNECTED => self.gone("its connection closed"),
            REFUSED => Error::bootstrap(format!("the writer at {place} refused this rank's key")),
            _ => Error::bootstrap(format!("what listens at {place} is not the writer")),
        };
        self.ended.get_or_insert(ended);
        Ok(true)
    }
}

#[cfg(test)]
#[path = "../../../tests/metadata/unit/zmq_reader.rs"]
mod tests;
