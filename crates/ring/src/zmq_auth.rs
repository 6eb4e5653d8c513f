//! A thread that answers ZeroMQ's authentication requests (ZAP, rfc.zeromq.org/spec/27) and logs refused connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::zeromq::{Context, HANDSHAKE_FAILED, REFUSED, Role, Socket, SocketOption, ZmqMessage, poll};
use symmetra::{Error, Result};

/// The endpoint at which ZeroMQ sends its requests.
const AUTHENTICATOR: &str = "inproc://zeromq.zap.01";
/// Frames of a request before the key: version, request, domain, address, identity, mechanism.
const KEY: usize = 6;

/// The rank of each key that may connect. A key is removed when its reader joins.
pub(super) type Guests = Arc<Mutex<HashMap<[u8; 32], usize>>>;

/// The thread, which ends when the context is shut down.
pub(super) struct Authenticator {
    context: Context,
    thread: Option<JoinHandle<()>>,
    guests: Guests,
}

impl Authenticator {
    /// Starts the thread. Must be called before any socket of the context listens.
    pub(super) fn open(context: &Context) -> Result<(Self, Watch)> {
        let requests = context.socket(Role::Reply)?;
        requests.set(SocketOption::LingerMs, 0)?;
        requests.bind(AUTHENTICATOR)?;
        let guests = Guests::default();
        Ok((Self { context: context.clone(), thread: None, guests: guests.clone() }, Watch { requests, guests }))
    }

    /// Starts to answer for connections to `router`.
    pub(super) fn watch(&mut self, watch: Watch, router: &Socket) -> Result<()> {
        let events = router.monitor(HANDSHAKE_FAILED)?;
        let run = move || {
            let mut strangers = Strangers::default();
            // An error means that the context ended.
            while watch.answer().and_then(|()| strangers.note(&events)).is_ok() {
                if poll(&[&watch.requests, &events], Instant::now() + Duration::from_secs(3600)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("symmetra-zmq-auth".into()).spawn(run);
        self.thread =
            Some(thread.map_err(|error| Error::system("start the thread of the ZeroMQ authenticator", &error))?);
        Ok(())
    }

    /// Lets the owner of this key connect as this rank.
    pub(super) fn admit(&self, key: [u8; 32], rank: usize) {
        self.guests.lock().insert(key, rank);
    }

    /// Refuses further connections of this rank. A reader joins by one connection.
    pub(super) fn dismiss(&self, rank: usize) {
        self.guests.lock().retain(|_, guest| *guest != rank);
    }
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        if !self.context.is_here() {
            // A forked child has no such thread.
            std::mem::forget(self.thread.take());
            return;
        }
        self.context.shut_down();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            symmetra::log!(ERROR, "the thread of the ZeroMQ authenticator panicked");
        }
    }
}

/// The thread's sockets and keys.
pub(super) struct Watch {
    requests: Socket,
    guests: Guests,
}

impl Watch {
    /// Answers every pending request.
    fn answer(&self) -> Result<()> {
        while let Some(frames) = self.requests.receive()? {
            let frame = |index: usize| frames.get(index).map_or(&[][..], ZmqMessage::bytes);
            let key = frame(KEY).try_into().ok().filter(|_| frame(5) == b"CURVE");
            let rank = key.and_then(|key: [u8; 32]| self.guests.lock().get(&key).copied());
            let user = rank.map(|rank| rank.to_string()).unwrap_or_default();
            let (code, words) = if rank.is_some() { ("200", "welcome") } else { ("400", "unknown or used key") };
            let answer = [b"1.0", frame(1), code.as_bytes(), words.as_bytes(), user.as_bytes(), b""];
            let mut answer = answer.into_iter().map(ZmqMessage::new).collect::<Result<Vec<_>>>()?;
            self.requests.send(&mut answer)?;
        }
        Ok(())
    }
}

/// Counts refused connections by reason, so that a flood does not fill the log.
#[derive(Default)]
struct Strangers {
    unknown: u64,
    nonsense: u64,
}

impl Strangers {
    fn note(&mut self, events: &Socket) -> Result<()> {
        while let Some((kind, place)) = events.event()? {
            let (count, why) = match kind {
                REFUSED => (&mut self.unknown, "its key is unknown, or the reader with this key has joined"),
                _ => (&mut self.nonsense, "it did not speak as a reader"),
            };
            *count += 1;
            if count.is_power_of_two() {
                symmetra::log!(WARN, "turned away a connection to {place}: {why} ({count} so far)");
            } else {
                symmetra::log!(DEBUG, "turned away a connection to {place}: {why} ({count} so far)");
            }
        }
        Ok(())
    }
}
