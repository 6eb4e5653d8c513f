//! How a rank joins at a listener, as `lobby.rs` serves it.

use std::time::Instant;

use super::channel::{Broken, Channel};
use super::endpoint::{Endpoint, Setback};
use super::frame::{Frame, FrameKind};
use super::handshake::{self, MAX_VERDICT_BYTES, Secret};
use crate::error::Error;

/// A listener at which a rank joins.
pub(super) struct Entrance<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) secret: &'a Secret,
    /// The number of the meeting; 0 at a listener of one meeting.
    pub(super) number: u64,
    /// The name of the listening side in messages.
    pub(super) host: &'static str,
}

impl Entrance<'_> {
    /// Connects once and claims a rank in a world size.
    pub(super) fn claim(&self, rank: usize, world_size: usize, deadline: Instant) -> Result<Channel, Setback> {
        let mut channel = Channel::new(self.endpoint.dial(deadline)?, MAX_VERDICT_BYTES);
        let (noise, hello) = handshake::hello(self.secret, self.number)?;
        channel.queue(hello);
        let payload = self.answer(&mut channel, FrameKind::Challenge, deadline)?;
        let cipher = handshake::read_challenge(self.secret, noise, &payload);
        channel.seal(cipher.map_err(|words| self.stranger(words))?);

        channel.queue(handshake::claim(rank, world_size));
        let payload = self.answer(&mut channel, FrameKind::Verdict, deadline)?;
        handshake::read_verdict(&payload).map_err(|words| self.stranger(self.refused(&words)))?;
        Ok(channel)
    }

    /// The payload of the next frame, which must be of `kind` or a refusal.
    fn answer(&self, channel: &mut Channel, kind: FrameKind, deadline: Instant) -> Result<Vec<u8>, Setback> {
        match channel.receive_by(deadline) {
            Ok(Some(frame)) if frame.header.kind == kind => Ok(frame.payload),
            Ok(Some(Frame { header, payload, .. })) => Err(self.stranger(match header.kind {
                FrameKind::Verdict => self.refused(&handshake::read_verdict(&payload).err().unwrap_or_default()),
                other => format!("it sent a {} instead of a {}", other.name(), kind.name()),
            })),
            Ok(None) => Err(Setback::Again(format!("connected, but no {} came", kind.name()))),
            // The listener dropped this newcomer among too many, or another program had the port before.
            Err(Broken::Closed) => Err(Setback::Again(format!("it closed the connection before its {}", kind.name()))),
            Err(Broken::Nonsense(what)) => Err(self.stranger(format!("the listener is not symmetra: it sent {what}"))),
            Err(broken) => Err(Setback::Final(broken.of_rank(0))),
        }
    }

    fn refused(&self, words: &str) -> String {
        format!("{} refused this rank: {words}", self.host)
    }

    fn stranger(&self, words: String) -> Setback {
        Setback::Final(Error::bootstrap(format!("{}: {words}", self.endpoint)))
    }
}
