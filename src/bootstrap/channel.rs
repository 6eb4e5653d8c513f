//! One non-blocking socket that carries frames.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv,
    recvmsg, sendmsg,
};

use super::frame::{Frame, HEADER_BYTES, Header, Outgoing};
use super::wait::wait;
use crate::error::{Error, Result};

/// Payload read at once, in bytes: memory grows with what really arrives.
const READ_BYTES: usize = 256 << 10;
/// How long a rank that gives up tries to tell the others why.
const FAREWELL: Duration = Duration::from_millis(250);

/// Why a channel is of no further use.
#[derive(Debug)]
pub(super) enum Broken {
    /// The other side closed it or died.
    Closed,
    /// The other side sent what is no frame.
    Nonsense(String),
    /// The system refused.
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

    /// The error of a rank whose channel broke.
    pub(super) fn of_rank(self, rank: usize) -> Error {
        match self {
            Self::Closed => Error::PeerLost { rank, detail: ": its connection closed".into() },
            Self::Nonsense(what) => Error::bootstrap(format!("rank {rank} sent {what}")),
            Self::System(errno) => Error::system(format_args!("the connection to rank {rank}"), &errno.into()),
            Self::Wait(error) => error,
        }
    }
}

/// A frame being sent.
struct Sending {
    frame: Outgoing,
    header: [u8; HEADER_BYTES],
    sent_bytes: usize,
}

/// A frame being received.
struct Receiving {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    decoded: Option<Header>,
    payload: Vec<u8>,
    fd: Option<OwnedFd>,
}

impl Receiving {
    const fn new() -> Self {
        Self { header: [0; HEADER_BYTES], header_bytes: 0, decoded: None, payload: Vec::new(), fd: None }
    }
}

/// A socket that carries frames both ways. Never blocks but in the functions that take a deadline,
/// and never reads past the end of a frame.
pub(super) struct Channel {
    socket: OwnedFd,
    /// Longest payload accepted.
    limit_bytes: usize,
    outbox: VecDeque<Sending>,
    inbox: Receiving,
}

impl Channel {
    /// Takes a connected, non-blocking stream socket.
    pub(super) fn new(socket: OwnedFd, limit_bytes: usize) -> Self {
        Self { socket, limit_bytes, outbox: VecDeque::new(), inbox: Receiving::new() }
    }

    pub(super) fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    pub(super) fn queue(&mut self, frame: Outgoing) {
        let header = frame.header().encode();
        self.outbox.push_back(Sending { frame, header, sent_bytes: 0 });
    }

    /// Whether everything queued was handed to the system.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Forgets what was not sent.
    pub(super) fn discard(&mut self) {
        self.outbox.clear();
    }

    /// Sends what the socket takes now.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        while let Some(sending) = self.outbox.front_mut() {
            match send_some(self.socket.as_fd(), sending) {
                Ok(bytes) => sending.sent_bytes += bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Broken::from_errno(errno)),
            }
            if sending.sent_bytes == HEADER_BYTES + sending.frame.payload.len() {
                self.outbox.pop_front();
            }
        }
        Ok(())
    }

    /// Reads what is there now, up to the end of one frame.
    pub(super) fn receive(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            match self.receive_some() {
                Ok(Some(0)) => return Err(Broken::Closed),
                Ok(Some(_)) => {}
                Ok(None) => {
                    let Receiving { decoded, payload, fd, .. } = std::mem::replace(&mut self.inbox, Receiving::new());
                    return Ok(decoded.map(|header| Frame { header, payload, fd }));
                }
                Err(Broken::System(Errno::AGAIN)) => return Ok(None),
                Err(Broken::System(Errno::INTR)) => {}
                Err(broken) => return Err(broken),
            }
        }
    }

    /// One read; the number of bytes, or none when the frame is complete.
    fn receive_some(&mut self) -> Result<Option<usize>, Broken> {
        let inbox = &mut self.inbox;
        let Some(header) = inbox.decoded else {
            let (bytes, fd) = receive_header(self.socket.as_fd(), &mut inbox.header[inbox.header_bytes..])
                .map_err(Broken::from_errno)?;
            inbox.header_bytes += bytes;
            inbox.fd = fd.or(inbox.fd.take());
            if inbox.header_bytes == HEADER_BYTES {
                inbox.decoded = Some(Header::decode(&inbox.header, self.limit_bytes).map_err(Broken::Nonsense)?);
            }
            return Ok(Some(bytes));
        };
        let missing_bytes = header.length_bytes - inbox.payload.len();
        if missing_bytes == 0 {
            return Ok(None);
        }
        let have_bytes = inbox.payload.len();
        inbox.payload.resize(have_bytes + missing_bytes.min(READ_BYTES), 0);
        let outcome = recv(self.socket.as_fd(), &mut inbox.payload[have_bytes..], RecvFlags::empty());
        let bytes = outcome.as_ref().map_or(0, |(_, bytes)| *bytes);
        inbox.payload.truncate(have_bytes + bytes);
        outcome.map(|_| Some(bytes)).map_err(Broken::from_errno)
    }

    /// What poll is to watch: room to send, if something is queued, and `other`.
    pub(super) fn interest(&self, other: PollFlags) -> PollFd<'_> {
        let sending = if self.is_flushed() { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(&self.socket, sending | other)
    }

    /// Sends what is queued and reads one frame; none when `deadline` passed first.
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

/// Tells every channel `notice`, after what is queued; gives up after a short while.
pub(super) fn farewell<'a>(channels: impl Iterator<Item = &'a mut Channel>, notice: &Outgoing) {
    let deadline = Instant::now() + FAREWELL;
    let mut open: Vec<&mut Channel> = channels.collect();
    for channel in &mut open {
        channel.queue(notice.clone());
    }
    loop {
        open.retain_mut(|channel| channel.flush().is_ok() && !channel.is_flushed());
        if open.is_empty() || Instant::now() >= deadline {
            return;
        }
        let mut fds: Vec<PollFd<'_>> = open.iter().map(|channel| channel.interest(PollFlags::empty())).collect();
        if wait(&mut fds, deadline).is_err() {
            return;
        }
    }
}

/// One write: the rest of the header and of the payload, with the descriptor before the first byte.
fn send_some(socket: BorrowedFd<'_>, sending: &Sending) -> Result<usize, Errno> {
    let header = &sending.header[sending.sent_bytes.min(HEADER_BYTES)..];
    let payload = &sending.frame.payload[sending.sent_bytes.saturating_sub(HEADER_BYTES)..];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = sending.frame.fd.as_ref().filter(|_| sending.sent_bytes == 0).map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(header), IoSlice::new(payload)], &mut control, SendFlags::NOSIGNAL)
}

/// One read of a header, with the descriptor that came along.
fn receive_header(socket: BorrowedFd<'_>, header: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(header)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.into_iter().next().or(fd);
        }
    }
    Ok((received.bytes, fd))
}
