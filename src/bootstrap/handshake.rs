//! How a newcomer and rank 0 prove to each other that they know the secret.
//!
//! ```text
//! newcomer                                   rank 0
//!    hello      version, nonce c       -->
//!               <--  challenge  version, nonce s, HMAC("rank 0", c, s)
//!    claim      rank, world size, HMAC("newcomer", c, s, rank, world size)  -->
//!               <--  verdict    welcome, or a refusal in words
//!               <--  start      once every rank was welcomed
//! ```
//!
//! The proofs are HMAC-SHA256 keyed with the 128-bit secret. Each covers both nonces, so none
//! can be replayed, and names its side, so none can be reflected.

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::frame::{Fields, Kind, Outgoing};
use crate::error::{Error, Result};

/// Changes with every change of the protocol.
pub(super) const VERSION: u32 = 1;
/// Longest payload before the newcomer proved itself, in bytes.
pub(super) const MAX_PENDING_BYTES: usize = 256;
/// Longest payload of a verdict or a notice, in bytes.
pub(super) const MAX_VERDICT_BYTES: usize = 4096;

const WELCOME: u8 = 1;
const REFUSED: u8 = 0;
const PROOF_BYTES: usize = 32;

/// What both sides must know.
pub(super) type Secret = [u8; 16];
/// Fresh for each connection.
pub(super) type Nonce = [u8; 16];
type Proof = [u8; PROOF_BYTES];

/// 128 unpredictable bits.
pub(super) fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // Up to 256 bytes come whole.
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(16) => Ok(bytes),
        Ok(short) => Err(Error::Internal { message: format!("getrandom gave {short} of 16 bytes") }),
        Err(errno) => Err(Error::system("getrandom", &errno.into())),
    }
}

/// Both nonces of a connection.
#[derive(Clone, Copy)]
pub(super) struct Nonces {
    pub(super) newcomer: Nonce,
    pub(super) rank0: Nonce,
}

impl Nonces {
    fn proof(&self, secret: &Secret, side: &[u8], what: &[u8]) -> Proof {
        let mut key = [0; 64]; // a block of SHA-256: HMAC pads shorter keys with zeros
        key[..secret.len()].copy_from_slice(secret);
        let mut mac = Hmac::<Sha256>::new(&key.into());
        mac.update(side);
        mac.update(&VERSION.to_le_bytes());
        mac.update(&self.newcomer);
        mac.update(&self.rank0);
        mac.update(what);
        mac.finalize().into_bytes().into()
    }

    fn proof_of_rank0(&self, secret: &Secret) -> Proof {
        self.proof(secret, b"symmetra rank 0\0", &[])
    }

    fn proof_of_newcomer(&self, secret: &Secret, rank: u32, world_size: u32) -> Proof {
        let claim = [rank.to_le_bytes(), world_size.to_le_bytes()].concat();
        self.proof(secret, b"symmetra newcomer\0", &claim)
    }
}

fn same(left: &Proof, right: &Proof) -> bool {
    left.ct_eq(right).into()
}

pub(super) fn hello(nonce: &Nonce) -> Outgoing {
    Outgoing::control(Kind::Hello, 0, [&VERSION.to_le_bytes()[..], nonce].concat())
}

/// The nonce of a hello, or why it is none, in words for the newcomer.
pub(super) fn read_hello(payload: &[u8]) -> Result<Nonce, String> {
    let mut fields = Fields(payload);
    let version = fields.u32().ok_or("a hello without a version")?;
    if version != VERSION {
        return Err(format!("protocol version {version}, but rank 0 speaks version {VERSION}"));
    }
    fields.array().ok_or_else(|| "a hello without a nonce".to_owned())
}

pub(super) fn challenge(secret: &Secret, nonces: &Nonces) -> Outgoing {
    let proof = nonces.proof_of_rank0(secret);
    Outgoing::control(Kind::Challenge, 0, [&VERSION.to_le_bytes()[..], &nonces.rank0, &proof].concat())
}

/// Both nonces, if the challenge proves that who listens knows the secret; else why not.
pub(super) fn read_challenge(secret: &Secret, newcomer: Nonce, payload: &[u8]) -> Result<Nonces, String> {
    let mut fields = Fields(payload);
    let version = fields.u32().ok_or("it sent a challenge without a version")?;
    if version != VERSION {
        return Err(format!("it speaks protocol version {version}, this rank version {VERSION}"));
    }
    let (rank0, proof) = (fields.array(), fields.array::<PROOF_BYTES>());
    let (Some(rank0), Some(proof)) = (rank0, proof) else {
        return Err("it sent a challenge that is too short".to_owned());
    };
    let nonces = Nonces { newcomer, rank0 };
    if !same(&proof, &nonces.proof_of_rank0(secret)) {
        return Err("its secret differs from this rank's".to_owned());
    }
    Ok(nonces)
}

pub(super) fn claim(secret: &Secret, nonces: &Nonces, rank: usize, world_size: usize) -> Outgoing {
    let (rank32, world32) = (rank as u32, world_size as u32); // below MAX_WORLD_SIZE
    let proof = nonces.proof_of_newcomer(secret, rank32, world32);
    let payload = [&rank32.to_le_bytes()[..], &world32.to_le_bytes(), &proof].concat();
    Outgoing::control(Kind::Claim, rank, payload)
}

/// The rank and world size a newcomer claims, if it proved that it knows the secret.
pub(super) fn read_claim(secret: &Secret, nonces: &Nonces, payload: &[u8]) -> Result<(u32, u32), String> {
    let mut fields = Fields(payload);
    let (rank, world_size, proof) = (fields.u32(), fields.u32(), fields.array::<PROOF_BYTES>());
    let (Some(rank), Some(world_size), Some(proof)) = (rank, world_size, proof) else {
        return Err("a claim that is too short".to_owned());
    };
    if !same(&proof, &nonces.proof_of_newcomer(secret, rank, world_size)) {
        return Err("a secret that differs from that of rank 0".to_owned());
    }
    Ok((rank, world_size))
}

pub(super) fn welcome() -> Outgoing {
    Outgoing::control(Kind::Verdict, 0, vec![WELCOME])
}

pub(super) fn refusal(why: &str) -> Outgoing {
    Outgoing::control(Kind::Verdict, 0, [&[REFUSED], why.as_bytes()].concat())
}

/// Whether the newcomer was welcomed, or rank 0's words.
pub(super) fn read_verdict(payload: &[u8]) -> Result<(), String> {
    match payload.split_first() {
        Some((&WELCOME, _)) => Ok(()),
        Some((_, why)) => Err(String::from_utf8_lossy(why).into_owned()),
        None => Err("without a word".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = [7; 16];
    const NONCES: Nonces = Nonces { newcomer: [1; 16], rank0: [2; 16] };

    #[test]
    fn proofs_hold_only_for_their_secret_their_nonces_and_their_claim() {
        let payload = claim(&SECRET, &NONCES, 3, 4).payload;
        assert_eq!(read_claim(&SECRET, &NONCES, &payload), Ok((3, 4)));
        assert!(read_claim(&[8; 16], &NONCES, &payload).is_err());
        assert!(read_claim(&SECRET, &Nonces { rank0: [3; 16], ..NONCES }, &payload).is_err());
        for byte in 0..payload.len() {
            let mut forged = payload.to_vec();
            forged[byte] ^= 1;
            assert!(read_claim(&SECRET, &NONCES, &forged).is_err(), "byte {byte}");
            assert!(read_claim(&SECRET, &NONCES, &payload[..byte]).is_err(), "{byte} bytes");
        }
    }

    #[test]
    fn a_challenge_of_another_secret_or_version_is_refused_in_words() {
        let payload = challenge(&SECRET, &NONCES).payload;
        assert!(read_challenge(&SECRET, NONCES.newcomer, &payload).is_ok());
        let words = read_challenge(&[0; 16], NONCES.newcomer, &payload).err();
        assert_eq!(words.as_deref(), Some("its secret differs from this rank's"));
        let mut newer = payload.to_vec();
        newer[0] = 9;
        let words = read_challenge(&SECRET, NONCES.newcomer, &newer).err();
        assert_eq!(words.as_deref(), Some("it speaks protocol version 9, this rank version 1"));
    }

    #[test]
    fn hmac_is_that_of_the_standard() {
        // Python: hmac.new(bytes([7] * 16), b"symmetra rank 0\0" + (1).to_bytes(4, "little")
        //                  + bytes([1] * 16) + bytes([2] * 16), "sha256").hexdigest()
        let expected = "bf7c5ead6705ee22db6e9f61697960dd006818ff1e015945dbf0ab9e8473d105";
        let proof: String = NONCES.proof_of_rank0(&SECRET).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(proof, expected);
    }
}
