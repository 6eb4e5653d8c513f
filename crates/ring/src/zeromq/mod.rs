//! Safe wrappers of the few functions of ZeroMQ that a ring uses. No socket is shared by two threads.
#![allow(unsafe_code)]

mod library;

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::library::{INTERRUPTED, RawMessage, RawPoll, ZmqLibrary, library};
use symmetra::internal::Maker;
use symmetra::{Error, Result};

/// Kinds of sockets.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(super) enum Role {
    Pair = 0,
    Reply = 4,
    Dealer = 5,
    Router = 6,
}

/// Options of a socket, by the numbers of `zmq.h`.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(super) enum SocketOption {
    LingerMs = 17,
    ReconnectMs = 18,
    Backlog = 19,
    SendLimit = 23,
    ReceiveLimit = 24,
    Mandatory = 33,
    Ipv6 = 42,
    CurveServer = 47,
    HandshakeMs = 66,
    HeartbeatMs = 75,
    HeartbeatTimeoutMs = 77,
}

const MOST_MESSAGE_BYTES: c_int = 22;
const LAST_ENDPOINT: c_int = 32;
const CURVE_PUBLIC: c_int = 48;
const CURVE_SECRET: c_int = 49;
const CURVE_SERVER_KEY: c_int = 50;
const ZAP_DOMAIN: c_int = 55;
const DONT_WAIT: c_int = 1;
const SEND_MORE: c_int = 2;
const POLL_IN: i16 = 1;
const AGAIN: i32 = 11;
/// `EHOSTUNREACH`: a router does not have such a peer, or no longer has it.
const UNREACHABLE: i32 = 113;

/// Events of a socket's monitor.
pub(super) const CONNECTED: u16 = 0x0001;
/// Also for an attempt to connect.
pub(super) const CLOSED: u16 = 0x0080;
pub(super) const DISCONNECTED: u16 = 0x0200;
pub(super) const HANDSHAKE_FAILED: u16 = 0x0800 | 0x2000 | 0x4000;
pub(super) const REFUSED: u16 = 0x4000;

/// A context, ended when the last of its sockets and users is gone.
#[derive(Clone)]
pub(super) struct Context(Arc<RawContext>);

struct RawContext {
    /// A forked child has none of ZeroMQ's threads, and shares the sockets that these wait for.
    maker: Maker,
    library: &'static ZmqLibrary,
    raw: NonNull<c_void>,
}

// SAFETY: contexts may be used from any thread (zmq_ctx_new(3)).
unsafe impl Send for RawContext {}
// SAFETY: as above.
unsafe impl Sync for RawContext {}

impl Context {
    pub(super) fn new() -> Result<Self> {
        let library = library()?;
        // SAFETY: no preconditions.
        let raw =
            NonNull::new(unsafe { (library.ctx_new)() }).ok_or_else(|| library.failure("make a ZeroMQ context"))?;
        Ok(Self(Arc::new(RawContext { maker: Maker::this(), library, raw })))
    }

    /// Whether this process made the context.
    pub(super) fn is_here(&self) -> bool {
        self.0.maker.is_here()
    }

    pub(super) fn socket(&self, role: Role) -> Result<Socket> {
        // SAFETY: the context lives.
        let raw = unsafe { (self.0.library.socket)(self.0.raw.as_ptr(), role as c_int) };
        let raw = NonNull::new(raw).ok_or_else(|| self.0.library.failure("make a ZeroMQ socket"))?;
        Ok(Socket { context: self.clone(), raw })
    }

    /// Makes every waiting call on sockets of the context fail, now and later.
    pub(super) fn shut_down(&self) {
        if !self.is_here() {
            return;
        }
        // SAFETY: the context lives; may be called from any thread, more than once.
        unsafe { (self.0.library.ctx_shutdown)(self.0.raw.as_ptr()) };
    }
}

impl Drop for RawContext {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            return;
        }
        // SAFETY: the last user: every socket holds the context, and was closed.
        self.library.uninterrupted(|| unsafe { (self.library.ctx_term)(self.raw.as_ptr()) });
    }
}

/// A CURVE key pair in the text form Z85: 40 characters each.
pub(super) struct Keys {
    pub(super) public: String,
    pub(super) secret: String,
}

impl Keys {
    /// A fresh pair.
    pub(super) fn new() -> Result<Self> {
        let library = library()?;
        let (mut public, mut secret) = ([0u8; 41], [0u8; 41]);
        // SAFETY: both have room for 40 characters and a zero.
        let code = unsafe { (library.curve_keypair)(public.as_mut_ptr().cast(), secret.as_mut_ptr().cast()) };
        if code != 0 {
            return Err(library.failure("make a CURVE key pair"));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..40]).into_owned();
        Ok(Self { public: text(&public), secret: text(&secret) })
    }
}

/// The 32 bytes of a key in the text form.
pub(super) fn key_bytes(text: &str) -> Result<[u8; 32]> {
    let library = library()?;
    let invalid = || Error::bootstrap(format!("a key of {} characters that is no CURVE key", text.len()));
    let text_zero = CString::new(text).ok().filter(|_| text.len() == 40).ok_or_else(invalid)?;
    let mut bytes = [0; 32];
    // SAFETY: 40 characters and a zero make 32 bytes.
    let decoded = unsafe { (library.z85_decode)(bytes.as_mut_ptr(), text_zero.as_ptr()) };
    if decoded.is_null() { Err(invalid()) } else { Ok(bytes) }
}

/// A socket, for one thread at a time.
pub(super) struct Socket {
    context: Context,
    raw: NonNull<c_void>,
}

// SAFETY: sockets may move between threads with a full fence (zmq_socket(3)), which any way to move
// a value between threads has.
unsafe impl Send for Socket {}

impl Socket {
    fn library(&self) -> &'static ZmqLibrary {
        self.context.0.library
    }

    fn outcome(&self, code: c_int, doing: &str) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.library().failure(doing)) }
    }

    pub(super) fn set(&self, setting: SocketOption, value: i32) -> Result<()> {
        self.set_bytes(setting as c_int, &value.to_ne_bytes())
    }

    fn set_bytes(&self, option: c_int, value: &[u8]) -> Result<()> {
        let address = value.as_ptr().cast();
        // SAFETY: the socket lives; the option is read from `value`.
        let code = unsafe { (self.library().setsockopt)(self.raw.as_ptr(), option, address, value.len()) };
        self.outcome(code, &format!("set ZeroMQ option {option}"))
    }

    /// Longest frame that this socket receives.
    pub(super) fn limit_messages(&self, bytes: i64) -> Result<()> {
        self.set_bytes(MOST_MESSAGE_BYTES, &bytes.to_ne_bytes())
    }

    /// Accepts connections that the context's authenticator accepts.
    pub(super) fn serve_with(&self, keys: &Keys) -> Result<()> {
        self.set(SocketOption::CurveServer, 1)?;
        self.set_bytes(ZAP_DOMAIN, b"symmetra")?;
        self.set_bytes(CURVE_SECRET, &zero_terminated(&keys.secret))
    }

    /// Connects only to the owner of the secret key of `server`.
    pub(super) fn trust(&self, keys: &Keys, server: &str) -> Result<()> {
        self.set_bytes(CURVE_PUBLIC, &zero_terminated(&keys.public))?;
        self.set_bytes(CURVE_SECRET, &zero_terminated(&keys.secret))?;
        self.set_bytes(CURVE_SERVER_KEY, &zero_terminated(server))
    }

    /// Listens at `endpoint`, of which a part may be left to the system. Returns the whole.
    pub(super) fn bind(&self, endpoint: &str) -> Result<String> {
        let text = c_string(endpoint)?;
        // SAFETY: the socket lives; the string ends in zero.
        let bind = || unsafe { (self.library().bind)(self.raw.as_ptr(), text.as_ptr()) };
        let code = self.library().uninterrupted(bind);
        self.outcome(code, &format!("listen at {endpoint}"))?;
        let (mut bytes, mut len) = ([0u8; 256], 256usize);
        let address = bytes.as_mut_ptr().cast();
        // SAFETY: the socket lives; `bytes` has room for `len` bytes.
        let code = unsafe { (self.library().getsockopt)(self.raw.as_ptr(), LAST_ENDPOINT, address, &raw mut len) };
        self.outcome(code, "ask for the endpoint")?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    pub(super) fn connect(&self, endpoint: &str) -> Result<()> {
        let text = c_string(endpoint)?;
        // SAFETY: the socket lives; the string ends in zero.
        let connect = || unsafe { (self.library().connect)(self.raw.as_ptr(), text.as_ptr()) };
        let code = self.library().uninterrupted(connect);
        self.outcome(code, &format!("connect to {endpoint}"))
    }

    /// A socket that receives the events of this one.
    pub(super) fn monitor(&self, events: u16) -> Result<Socket> {
        let name = format!("inproc://monitor-{:p}", self.raw);
        let text = c_string(&name)?;
        // SAFETY: the socket lives; the string ends in zero.
        let watch = || unsafe { (self.library().socket_monitor)(self.raw.as_ptr(), text.as_ptr(), events.into()) };
        let code = self.library().uninterrupted(watch);
        self.outcome(code, "watch a ZeroMQ socket")?;
        let monitor = self.context.socket(Role::Pair)?;
        monitor.set(SocketOption::LingerMs, 0)?;
        monitor.connect(&name)?;
        Ok(monitor)
    }

    /// Sends frames as one message, or none of it.
    pub(super) fn send(&self, frames: &mut [ZmqMessage]) -> Result<SendResult> {
        let last = frames.len().saturating_sub(1);
        for (index, frame) in frames.iter_mut().enumerate() {
            let flags = DONT_WAIT | if index < last { SEND_MORE } else { 0 };
            // SAFETY: socket and message live; a message that was sent is empty, and may be closed.
            let send = || unsafe { (self.library().msg_send)(&raw mut frame.raw, self.raw.as_ptr(), flags) };
            if self.library().uninterrupted(send) < 0 {
                // SAFETY: no preconditions.
                return match unsafe { (self.library().errno)() } {
                    UNREACHABLE => Ok(SendResult::Unreachable),
                    AGAIN => Ok(SendResult::Full),
                    _ => Err(self.library().failure("send by ZeroMQ")),
                };
            }
        }
        Ok(SendResult::All)
    }

    /// The frames of the next message, if there is one now.
    pub(super) fn receive(&self) -> Result<Option<Vec<ZmqMessage>>> {
        let mut frames = Vec::new();
        loop {
            let mut frame = ZmqMessage::empty(self.library());
            // SAFETY: socket and message live.
            let receive = || unsafe { (self.library().msg_recv)(&raw mut frame.raw, self.raw.as_ptr(), DONT_WAIT) };
            if self.library().uninterrupted(receive) < 0 {
                // SAFETY: no preconditions.
                return match unsafe { (self.library().errno)() } {
                    AGAIN if frames.is_empty() => Ok(None),
                    _ => Err(self.library().failure("receive by ZeroMQ")),
                };
            }
            // SAFETY: the message lives.
            let more = unsafe { (self.library().msg_more)(&raw const frame.raw) } != 0;
            frames.push(frame);
            if !more {
                return Ok(Some(frames));
            }
        }
    }

    /// The next event of a monitor, if there is one now: its kind and where.
    pub(super) fn event(&self) -> Result<Option<(u16, String)>> {
        let Some(frames) = self.receive()? else { return Ok(None) };
        let (Some(what), Some(place)) = (frames.first(), frames.get(1)) else { return Ok(None) };
        let kind = what.bytes().first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes));
        Ok(Some((kind, String::from_utf8_lossy(place.bytes()).into_owned())))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.context.is_here() {
            return;
        }
        // SAFETY: the socket lives, and is not used afterwards.
        unsafe { (self.library().close)(self.raw.as_ptr()) };
    }
}

/// The outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendResult {
    All,
    /// The queue is full.
    Full,
    /// A router's peer is gone.
    Unreachable,
}

/// Sleeps until one of the sockets has a message, `deadline` passed, or for no reason.
pub(super) fn poll(sockets: &[&Socket], deadline: Instant) -> Result<()> {
    let Some(first) = sockets.first() else { return Ok(()) };
    let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(3600));
    let left_ms = left.as_micros().div_ceil(1000) as std::ffi::c_long; // at most an hour
    let poll = |socket: &&Socket| RawPoll { socket: socket.raw.as_ptr(), fd: 0, events: POLL_IN, ready: 0 };
    let mut polls: Vec<RawPoll> = sockets.iter().map(poll).collect();
    let library = first.library();
    // SAFETY: the sockets live, and `polls` has as many entries.
    let code = unsafe { (library.poll)(polls.as_mut_ptr(), polls.len() as c_int, left_ms) };
    // SAFETY: no preconditions.
    if code < 0 && unsafe { (library.errno)() } != INTERRUPTED {
        return Err(library.failure("wait for a ZeroMQ socket"));
    }
    Ok(())
}

/// One frame.
pub(super) struct ZmqMessage {
    library: &'static ZmqLibrary,
    raw: RawMessage,
}

impl ZmqMessage {
    fn empty(library: &'static ZmqLibrary) -> Self {
        let mut raw = RawMessage([0; 64]);
        // SAFETY: room for a message; it cannot fail. An empty message may be moved.
        unsafe { (library.msg_init)(&raw mut raw) };
        Self { library, raw }
    }

    /// A frame that holds a copy of `bytes`.
    pub(super) fn new(bytes: &[u8]) -> Result<Self> {
        let library = library()?;
        let mut message = Self { library, raw: RawMessage([0; 64]) };
        // SAFETY: room for a message.
        if unsafe { (library.msg_init_size)(&raw mut message.raw, bytes.len()) } != 0 {
            // SAFETY: an empty message, so that dropping it is right.
            unsafe { (library.msg_init)(&raw mut message.raw) };
            return Err(Error::OutOfMemory { message: format!("a ZeroMQ message of {} bytes", bytes.len()) });
        }
        // SAFETY: the message lives.
        let data = unsafe { (library.msg_data)(&raw mut message.raw) };
        // SAFETY: a message of this many bytes, which only this function can address.
        unsafe { data.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(message)
    }

    /// Another frame of the same bytes, which are not copied.
    pub(super) fn share(&mut self) -> Self {
        let mut copy = Self::empty(self.library);
        // SAFETY: both messages live. It fails for invalid messages alone.
        unsafe { (self.library.msg_copy)(&raw mut copy.raw, &raw mut self.raw) };
        copy
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the message lives; the function does not change it, although its type takes a mutable pointer.
        let data = unsafe { (self.library.msg_data)((&raw const self.raw).cast_mut()) };
        // SAFETY: the message lives.
        let bytes = unsafe { (self.library.msg_size)(&raw const self.raw) };
        if bytes == 0 {
            return &[];
        }
        // SAFETY: this many bytes, unchanged while the message is borrowed.
        unsafe { std::slice::from_raw_parts(data.cast(), bytes) }
    }

    /// The user that the authenticator named for the sender.
    pub(super) fn user(&self) -> Option<&str> {
        // SAFETY: the message lives; the string ends in zero.
        let text = unsafe { (self.library.msg_gets)(&raw const self.raw, c"User-Id".as_ptr()) };
        // SAFETY: null, or a string that lives as long as the message.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }).and_then(|text| text.to_str().ok())
    }
}

impl Drop for ZmqMessage {
    fn drop(&mut self) {
        // SAFETY: the message lives, and is not used afterwards.
        unsafe { (self.library.msg_close)(&raw mut self.raw) };
    }
}

fn zero_terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid("endpoint", format!("{text:?}"), "it must not contain a zero"))
}
