//! One non-blocking socket that carries frames.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::cipher::{Cipher, TAG_BYTES};
use super::frame::{Frame, HEADER_BYTES, Header, MAX_PART_BYTES, Outgoing};
use super::wait::wait;
use crate::error::{Error, Result};

/// How long a rank that gives up tries to send the cause to the other ranks.
const FAREWELL: Duration = Duration::from_millis(250);

/// How long a rank waits before it sends again what the system refused to send.
const AGAIN: Duration = Duration::from_millis(2);

/// The error detail of a rank that closed its connection without a notice.
pub(super) const CLOSED: &str = ": its connection closed";

/// Why a channel can no longer be used.
#[derive(Debug)]
pub(super) enum Broken {
    /// The other side closed it or died.
    Closed,
    /// The other side sent bytes that are no frame.
    Nonsense(String),
    /// The system returned an error.
    System(Errno),
    /// Waiting failed.
    Wait(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Wait(error)
    }
}

impl Broken {
    fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN | Errno::TIMEDOUT => Self::Closed,
            errno => Self::System(errno),
        }
    }

    /// The error for rank `rank`, whose channel broke.
    pub(super) fn of_rank(self, rank: usize) -> Error {
        match self {
            Self::Closed => Error::PeerLost { rank, detail: CLOSED.into() },
            Self::System(Errno::TOOMANYREFS) => Error::system(
                format_args!("send rank {rank} a file descriptor; the user has too many on the way (ulimit -n)"),
                &Errno::TOOMANYREFS.into(),
            ),
            Self::Nonsense(what) => Error::bootstrap(format!("rank {rank} sent {what}")),
            Self::System(errno) => Error::system(format_args!("the connection to rank {rank}"), &errno.into()),
            Self::Wait(error) => error,
        }
    }
}

/// A frame that is sent part by part. The header is in the first part.
struct Sending {
    frame: Outgoing,
    /// The header, until it is in `part`.
    header: Option<[u8; HEADER_BYTES]>,
    /// Bytes of the payload that have been put into `part`.
    taken_bytes: usize,
    sealed: bool,
    /// Whether the other side may have received some of it.
    begun: bool,
    part: Vec<u8>,
    /// Bytes of `part` that the system accepted.
    sent_bytes: usize,
}

impl Sending {
    /// Makes the next part; false if the whole frame was sent.
    fn next_part(&mut self, cipher: Option<&mut Cipher>) -> Result<bool> {
        let rest = &self.frame.payload[self.taken_bytes..];
        if self.header.is_none() && rest.is_empty() {
            return Ok(false);
        }
        self.part.clear();
        self.sent_bytes = 0;
        let (header, payload) = (self.header.take(), &rest[..rest.len().min(MAX_PART_BYTES)]);
        self.taken_bytes += payload.len();
        let pieces = [header.as_ref().map_or(&[][..], |header| header), payload];
        match cipher.filter(|_| self.sealed) {
            None => pieces.iter().for_each(|piece| self.part.extend_from_slice(piece)),
            Some(cipher) => {
                for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                    cipher.seal(piece, &mut self.part)?;
                }
            }
        }
        Ok(true)
    }

    /// One write. The descriptor goes with the first byte.
    fn send_some(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = self.frame.fd.as_ref().map(|fd| [fd.as_fd()]);
        if let Some(fds) = &fds {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let part = IoSlice::new(&self.part[self.sent_bytes..]);
        self.sent_bytes += sendmsg(socket, &[part], &mut control, SendFlags::NOSIGNAL)?;
        self.frame.fd = None;
        self.begun = true;
        Ok(())
    }
}

/// A frame being received.
#[derive(Default)]
struct Receiving {
    /// The header or a part of the payload, as it arrives.
    part: Vec<u8>,
    part_bytes: usize,
    header: Option<Header>,
    payload: Vec<u8>,
    fd: Option<OwnedFd>,
}

/// A socket that carries frames both ways. Only functions with a deadline block, and no function reads past the end of
/// a frame.
pub(super) struct Channel {
    socket: OwnedFd,
    /// Longest payload accepted.
    limit_bytes: usize,
    cipher: Option<Cipher>,
    outbox: VecDeque<Sending>,
    inbox: Receiving,
}

impl Channel {
    /// Takes a connected, non-blocking stream socket.
    pub(super) fn new(socket: OwnedFd, limit_bytes: usize) -> Self {
        Self { socket, limit_bytes, cipher: None, outbox: VecDeque::new(), inbox: Receiving::default() }
    }

    pub(super) fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Encrypts each frame that is queued or received from now on with `cipher`, if there is one.
    pub(super) fn seal(&mut self, cipher: Option<Cipher>) {
        self.cipher = cipher;
    }

    #[cfg(test)]
    pub(super) fn cipher(&mut self) -> Option<&mut Cipher> {
        self.cipher.as_mut()
    }

    pub(super) fn queue(&mut self, frame: Outgoing) {
        let (header, sealed) = (Some(frame.header().encode()), self.cipher.is_some());
        let (taken_bytes, sent_bytes) = (0, 0);
        self.outbox.push_back(Sending {
            frame,
            header,
            taken_bytes,
            sealed,
            begun: false,
            part: Vec::new(),
            sent_bytes,
        });
    }

    /// Whether the system accepted everything that was queued.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Discards unsent data. Nothing can be sent afterwards.
    pub(super) fn discard(&mut self) {
        self.outbox.clear();
    }

    /// Discards the frames of which the other side has received nothing.
    pub(super) fn retract(&mut self) {
        // Keeps sealed frames: without them the other side could not decrypt later frames.
        self.outbox.retain(|sending| sending.begun || (sending.sealed && sending.header.is_none()));
    }

    /// Sends as much as the socket accepts now.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        while let Some(sending) = self.outbox.front_mut() {
            if sending.sent_bytes == sending.part.len() && !sending.next_part(self.cipher.as_mut())? {
                self.outbox.pop_front();
                continue;
            }
            match sending.send_some(self.socket.as_fd()) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(Broken::from_errno(errno)),
            }
        }
        Ok(())
    }

    /// Reads the available data, up to the end of one frame.
    pub(super) fn receive(&mut self) -> Result<Option<Frame>, Broken> {
        let inbox = &mut self.inbox;
        loop {
            let missing_bytes = inbox.header.map_or(HEADER_BYTES, |header| header.length_bytes - inbox.payload.len());
            if missing_bytes == 0 {
                let Receiving { header, payload, fd, .. } = std::mem::take(inbox);
                return Ok(header.map(|header| Frame { header, payload, fd }));
            }
            // Memory grows only with the bytes that arrive.
            let tag_bytes = if self.cipher.is_some() { TAG_BYTES } else { 0 };
            inbox.part.resize(missing_bytes.min(MAX_PART_BYTES) + tag_bytes, 0);
            match receive_some(self.socket.as_fd(), &mut inbox.part[inbox.part_bytes..]) {
                Ok((0, _)) => return Err(Broken::Closed),
                Ok((bytes, fd)) => {
                    inbox.part_bytes += bytes;
                    inbox.fd = fd.or(inbox.fd.take());
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Broken::from_errno(errno)),
            }
            if inbox.part_bytes < inbox.part.len() {
                continue;
            }
            inbox.part_bytes = 0;
            match &mut self.cipher {
                None => inbox.payload.extend_from_slice(&inbox.part),
                Some(cipher) => cipher.open(&inbox.part, &mut inbox.payload).map_err(Broken::Nonsense)?,
            }
            if inbox.header.is_none() {
                inbox.header = Some(Header::decode(&inbox.payload, self.limit_bytes).map_err(Broken::Nonsense)?);
                inbox.payload.clear();
            }
        }
    }

    /// The events that poll watches: `other`, and room to send if a frame is queued.
    pub(super) fn interest(&self, other: PollFlags) -> PollFd<'_> {
        let sending = if self.is_flushed() { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(&self.socket, sending | other)
    }

    /// Sends the queue and reads one frame; none if `deadline` passes first.
    pub(super) fn receive_by(&mut self, deadline: Instant) -> Result<Option<Frame>, Broken> {
        loop {
            self.flush()?;
            if let Some(frame) = self.receive()? {
                return Ok(Some(frame));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            wait(&mut [self.interest(PollFlags::IN)], deadline)?;
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends `notice` on every channel, after the queued frames. Retries if the system refuses to send. Gives up after
/// [`FAREWELL`].
pub(super) fn farewell<'a>(channels: impl Iterator<Item = &'a mut Channel>, notice: &Outgoing) {
    let deadline = Instant::now() + FAREWELL;
    let mut open: Vec<&mut Channel> = channels.collect();
    for channel in &mut open {
        channel.queue(notice.clone());
    }
    loop {
        let mut refused = false;
        open.retain_mut(|channel| {
            let flushed = channel.flush();
            refused |= matches!(flushed, Err(Broken::System(_)));
            matches!(flushed, Ok(()) | Err(Broken::System(_))) && !channel.is_flushed()
        });
        if open.is_empty() || Instant::now() >= deadline {
            return;
        }
        if refused {
            // The sockets may be writable nevertheless, so poll would return at once.
            std::thread::sleep(AGAIN);
            continue;
        }
        let mut fds: Vec<PollFd<'_>> = open.iter().map(|channel| channel.interest(PollFlags::empty())).collect();
        if wait(&mut fds, deadline).is_err() {
            return;
        }
    }
}

/// One read. Returns the number of bytes and the descriptor that came with them.
fn receive_some(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.into_iter().next().or(fd);
        }
    }
    Ok((received.bytes, fd))
}
