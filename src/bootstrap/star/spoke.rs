//! The other ranks' side of a star.

use std::time::{Duration, Instant};

use super::hub::check;
use crate::bootstrap::channel::{Broken, Channel, farewell};
use crate::bootstrap::endpoint::{Endpoint, Setback};
use crate::bootstrap::entrance::Entrance;
use crate::bootstrap::frame::{Frame, FrameKind, MAX_FRAME_BYTES, Outgoing};
use crate::bootstrap::handshake::Secret;
use crate::bootstrap::notice::{notice, read_notice};
use crate::bootstrap::wait::WaitLimit;
use crate::error::{Error, Result};

/// Pause before the second attempt to reach rank 0; it doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause between two attempts.
const LAST_PAUSE: Duration = Duration::from_millis(200);
/// How long a rank that gives up waits for rank 0 to name the missing ranks.
const ANSWER: Duration = Duration::from_millis(500);

/// A rank's channel to rank 0.
pub(super) struct Spoke {
    channel: Channel,
    rank: usize,
    world_size: usize,
}

impl Spoke {
    /// Connects until rank 0 answers, and waits until every rank has joined.
    pub(super) fn join(
        endpoint: &Endpoint,
        secret: &Secret,
        rank: usize,
        world_size: usize,
        limit: &WaitLimit,
    ) -> Result<Self> {
        let (start, deadline) = (Instant::now(), limit.deadline);
        let entrance = Entrance { endpoint, secret, number: 0, host: "rank 0" };
        let mut pause = FIRST_PAUSE;
        let mut channel = loop {
            limit.ask()?;
            let why = match entrance.claim(rank, world_size, deadline) {
                Ok(channel) => break channel,
                Err(Setback::Final(error)) => return Err(error),
                Err(Setback::Again(why)) => why,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::exchange_timeout(Some(0), start.elapsed(), format!("at {endpoint}: {why}")));
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LAST_PAUSE);
        };
        channel.set_limit(MAX_FRAME_BYTES);
        let mut spoke = Self { channel, rank, world_size };
        let doing = "it reported neither that every rank connected nor which ranks are missing";
        spoke.reporting(|spoke| {
            let frame = loop {
                limit.ask()?;
                match receive(&mut spoke.channel, limit.next())? {
                    Some(frame) => break frame,
                    None if Instant::now() < deadline => {}
                    None => return Err(Error::exchange_timeout(Some(0), start.elapsed(), doing)),
                }
            };
            match frame.header.kind {
                FrameKind::Start => Ok(()),
                FrameKind::Notice => Err(read_notice(0, &frame.payload)),
                kind => Err(Error::bootstrap(format!("rank 0 sent a {} instead of a start", kind.name()))),
            }
        })?;
        Ok(spoke)
    }

    pub(super) fn all_gather(&mut self, sequence: u64, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        let start = Instant::now();
        let doing = "it neither gathered the bytes of every rank nor reported which ranks are missing";
        self.reporting(|spoke| {
            let (rank, world_size) = (spoke.rank, spoke.world_size);
            spoke.channel.queue(Outgoing::data(rank, sequence, own.into()));
            let bytes_of = |source| match source == rank {
                true => Ok(own.to_vec()),
                false => check(spoke.next(deadline, start, doing)?, source, sequence),
            };
            (0..world_size).map(bytes_of).collect()
        })
    }

    /// Runs `work`; if it fails, sends the cause to rank 0 before giving up.
    fn reporting<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        work(self).map_err(|error| {
            farewell(std::iter::once(&mut self.channel), &notice(self.rank, &error));
            match error {
                // Rank 0, if it waits too, knows which ranks are late.
                Error::Timeout { .. } => self.last_words().unwrap_or(error),
                error => error,
            }
        })
    }

    /// The cause for which rank 0 also gives up, if it arrives within [`ANSWER`].
    fn last_words(&mut self) -> Option<Error> {
        let deadline = Instant::now() + ANSWER;
        loop {
            let frame = receive(&mut self.channel, deadline).ok()??;
            if frame.header.kind == FrameKind::Notice {
                return Some(read_notice(0, &frame.payload));
            }
        }
    }

    /// The next frame of rank 0. `doing` goes into the message of a timeout.
    fn next(&mut self, deadline: Instant, start: Instant, doing: &str) -> Result<Frame> {
        match receive(&mut self.channel, deadline)? {
            Some(frame) if frame.header.kind == FrameKind::Notice => Err(read_notice(0, &frame.payload)),
            Some(frame) => Ok(frame),
            None => Err(Error::exchange_timeout(Some(0), start.elapsed(), doing)),
        }
    }
}

/// The next frame of rank 0; none if `deadline` passes first.
fn receive(channel: &mut Channel, deadline: Instant) -> Result<Option<Frame>> {
    match channel.receive_by(deadline) {
        Ok(frame) => Ok(frame),
        // Sending failed, but rank 0 may have sent the cause before it closed.
        Err(Broken::Closed) => match channel.receive() {
            Ok(Some(frame)) if frame.header.kind == FrameKind::Notice => Ok(Some(frame)),
            _ => Err(Broken::Closed.of_rank(0)),
        },
        Err(broken) => Err(broken.of_rank(0)),
    }
}
