//! How a newcomer and rank 0 prove to each other that they know the secret, and agree on keys.
//!
//! ```text
//! newcomer                                    rank 0
//!    hello      version, Noise message "e"    -->
//!               <--  challenge  version, Noise message "e, ee, psk"
//!    claim      rank, world size              -->
//!               <--  verdict    welcome, or a refusal as text
//!               <--  start      once every rank was welcomed
//! ```
//!
//! This is pattern NNpsk2 of the [Noise protocol](https://noiseprotocol.org/noise.html) with the 128-bit secret as the
//! pre-shared key and the version as the prologue. If there is a secret, everything after the challenge is encrypted. A
//! challenge that opens proves that rank 0 knows the secret, a claim that opens proves that the newcomer does. Both
//! draw a new key for each connection, so nothing can be replayed in another connection. Without a secret, which is all
//! zeros, only the challenge is encrypted. It distinguishes ranks with a secret from ranks without.

use std::io::ErrorKind;

use rustix::rand::{GetRandomFlags, getrandom};
use snow::{Builder, HandshakeState};

use super::cipher::Cipher;
use super::frame::{Fields, FrameKind, Outgoing, shown};
use crate::error::{Error, Result};

/// Changes with every change of the protocol.
pub(super) const VERSION: u32 = 4;
/// Longest payload before the newcomer proved itself, in bytes.
pub(super) const MAX_PENDING_BYTES: usize = 256;
/// Longest payload of a verdict or a notice, in bytes.
pub(super) const MAX_VERDICT_BYTES: usize = 4096;

const PATTERN: &str = "Noise_NNpsk2_25519_ChaChaPoly_BLAKE2s";
const WELCOME: u8 = 1;
const REFUSED: u8 = 0;

/// The pre-shared secret of both sides.
pub(super) type Secret = [u8; 16];
/// No secret: every process that can connect may join, and nothing is encrypted.
pub(super) const NO_SECRET: Secret = [0; 16];

/// 128 unpredictable bits.
pub(crate) fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // The system returns up to 256 bytes at once.
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(16) => Ok(bytes),
        Ok(_) => Err(Error::system("getrandom of 16 bytes", &ErrorKind::UnexpectedEof.into())),
        Err(errno) => Err(Error::system("getrandom", &errno.into())),
    }
}

/// One side of a handshake for the meeting with a number.
fn noise(secret: &Secret, number: u64, initiates: bool) -> Result<HandshakeState, snow::Error> {
    let mut key = [0; 32]; // Noise has no shorter ones
    key[..secret.len()].copy_from_slice(secret);
    // A number that is changed in transit ends the handshake.
    let prologue = [b"symmetra bootstrap ", &VERSION.to_le_bytes()[..], &number.to_le_bytes()].concat();
    let builder = Builder::new(PATTERN.parse()?).psk(2, &key)?.prologue(&prologue)?;
    if initiates { builder.build_initiator() } else { builder.build_responder() }
}

/// A frame with the version and the next message of Noise.
fn say(kind: FrameKind, noise: &mut HandshakeState) -> Result<Outgoing, snow::Error> {
    let mut message = [0; MAX_PENDING_BYTES];
    let length = noise.write_message(&[], &mut message)?;
    Ok(Outgoing::control(kind, 0, [&VERSION.to_le_bytes()[..], &message[..length]].concat()))
}

/// The cipher of the rest of the connection; none without a secret.
fn cipher(secret: &Secret, noise: HandshakeState) -> Result<Option<Cipher>, snow::Error> {
    let transport = noise.into_transport_mode()?;
    Ok((*secret != NO_SECRET).then(|| Cipher(Box::new(transport))))
}

/// A newcomer's first frame, which names the meeting, and its side of the handshake.
pub(super) fn hello(secret: &Secret, number: u64) -> Result<(HandshakeState, Outgoing)> {
    let begin = || {
        let mut noise = noise(secret, number, true)?;
        let hello = Outgoing { sequence: number, ..say(FrameKind::Hello, &mut noise)? };
        Ok((noise, hello))
    };
    begin().map_err(|error: snow::Error| Error::bootstrap(format!("cannot begin a handshake: {error}")))
}

/// Rank 0's answer to a hello and the cipher of the following frames, or a refusal as text for the newcomer.
pub(super) fn challenge(secret: &Secret, number: u64, hello: &[u8]) -> Result<(Outgoing, Option<Cipher>), String> {
    let mut fields = Fields(hello);
    let version = fields.u32().ok_or("a hello without a version")?;
    if version != VERSION {
        return Err(format!("protocol version {version}, but rank 0 speaks version {VERSION}"));
    }
    let answer = || {
        let mut noise = noise(secret, number, false)?;
        noise.read_message(fields.0, &mut [0; MAX_PENDING_BYTES])?;
        Ok((say(FrameKind::Challenge, &mut noise)?, cipher(secret, noise)?))
    };
    answer().map_err(|error: snow::Error| format!("a malformed hello: {error}"))
}

/// The cipher of the following frames if the challenge proves that rank 0 knows the secret, else the reason of the
/// failure.
pub(super) fn read_challenge(
    secret: &Secret,
    mut noise: HandshakeState,
    challenge: &[u8],
) -> Result<Option<Cipher>, String> {
    let mut fields = Fields(challenge);
    let version = fields.u32().ok_or("it sent a challenge without a version")?;
    if version != VERSION {
        return Err(format!("it speaks protocol version {version}, this rank version {VERSION}"));
    }
    let read = noise.read_message(fields.0, &mut [0; MAX_VERDICT_BYTES]);
    read.and_then(|_| cipher(secret, noise)).map_err(|_| "its secret differs from this rank's".to_owned())
}

/// The rank and the world size that a newcomer claims.
pub(super) fn claim(rank: usize, world_size: usize) -> Outgoing {
    let (rank32, world32) = (rank as u32, world_size as u32); // below MAX_WORLD_SIZE
    Outgoing::control(FrameKind::Claim, rank, [rank32.to_le_bytes(), world32.to_le_bytes()].concat())
}

/// The rank and the world size of a claim; none if it is too short.
pub(super) fn read_claim(payload: &[u8]) -> Option<(u32, u32)> {
    let mut fields = Fields(payload);
    Some((fields.u32()?, fields.u32()?))
}

pub(super) fn welcome() -> Outgoing {
    Outgoing::control(FrameKind::Verdict, 0, vec![WELCOME])
}

pub(super) fn refusal(why: &str) -> Outgoing {
    Outgoing::control(FrameKind::Verdict, 0, [&[REFUSED], why.as_bytes()].concat())
}

/// Whether the newcomer was welcomed, or the refusal of the listener.
pub(super) fn read_verdict(payload: &[u8]) -> Result<(), String> {
    match payload.split_first() {
        Some((&WELCOME, _)) => Ok(()),
        Some((_, why)) => Err(shown(why)),
        None => Err("without a word".to_owned()),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/bootstrap/handshake.rs"]
mod tests;
