//! Tests of `src/bootstrap/handshake.rs`, whose module they are.

use super::*;

const SECRET: Secret = [7; 16];

/// Both ends of a connection.
fn meet() -> (Cipher, Cipher) {
    let (noise, hello) = hello(&SECRET, 7).unwrap();
    let (challenge, rank0) = challenge(&SECRET, 7, &hello.payload).ok().unwrap();
    let newcomer = read_challenge(&SECRET, noise, &challenge.payload).ok().unwrap();
    (newcomer.unwrap(), rank0.unwrap())
}

fn sealed(cipher: &mut Cipher, plain: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::new();
    cipher.seal(plain, &mut sealed).unwrap();
    sealed
}

fn opened(cipher: &mut Cipher, sealed: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    cipher.open(sealed, &mut plain).ok().map(|()| plain)
}

#[test]
fn proofs_hold_only_for_their_secret_their_connection_and_their_claim() {
    let (mut newcomer, mut rank0) = meet();
    let claim = claim(3, 4).payload;
    assert_eq!(read_claim(&claim), Some((3, 4)));
    let proof = sealed(&mut newcomer, &claim);
    assert_eq!(opened(&mut meet().1, &proof), None, "of another connection");
    assert_eq!(opened(&mut newcomer, &proof), None, "of the other side");
    for byte in 0..proof.len() {
        let mut forged = proof.clone();
        forged[byte] ^= 1;
        assert_eq!(opened(&mut rank0, &forged), None, "byte {byte}");
        assert_eq!(opened(&mut rank0, &proof[..byte]), None, "{byte} bytes");
    }
    assert_eq!(opened(&mut rank0, &proof).as_deref(), Some(&*claim));
    assert_eq!(opened(&mut rank0, &proof), None, "a second time");
    assert!((0..8).all(|bytes| read_claim(&claim[..bytes]).is_none()));
}

#[test]
fn a_challenge_of_another_secret_or_version_is_refused_in_words() {
    for other in [NO_SECRET, [8; 16]] {
        for (ours, theirs) in [(SECRET, other), (other, SECRET)] {
            let (noise, hello) = hello(&ours, 0).unwrap();
            let (challenge, _) = challenge(&theirs, 0, &hello.payload).ok().unwrap();
            let words = read_challenge(&ours, noise, &challenge.payload).err();
            assert_eq!(words.as_deref(), Some("its secret differs from this rank's"));
        }
    }
    // The number of another meeting.
    let (noise, hello) = hello(&SECRET, 7).unwrap();
    assert!(hello.sequence == 7 && challenge(&SECRET, 8, &hello.payload).is_err());
    let mut newer = challenge(&SECRET, 7, &hello.payload).ok().unwrap().0.payload.to_vec();
    newer[0] = 9;
    let words = read_challenge(&SECRET, noise, &newer).err();
    assert_eq!(words.as_deref(), Some("it speaks protocol version 9, this rank version 4"));
}

#[test]
fn a_handshake_that_was_changed_on_the_way_opens_nothing() {
    let (_, hello) = hello(&SECRET, 7).unwrap();
    for byte in 0..hello.payload.len() {
        let mut changed = hello.payload.to_vec();
        changed[byte] ^= 1;
        assert!(challenge(&SECRET, 7, &changed).is_err(), "byte {byte} of the hello");
        assert!(challenge(&SECRET, 7, &hello.payload[..byte]).is_err(), "{byte} bytes of the hello");
    }
    let length = challenge(&SECRET, 7, &hello.payload).ok().unwrap().0.payload.len();
    for byte in 0..length {
        let (noise, hello) = super::hello(&SECRET, 7).unwrap();
        let mut changed = challenge(&SECRET, 7, &hello.payload).ok().unwrap().0.payload.to_vec();
        changed[byte] ^= 1;
        assert!(read_challenge(&SECRET, noise, &changed).is_err(), "byte {byte} of the challenge");
    }
}

#[test]
fn without_a_secret_nothing_is_encrypted() {
    let (noise, hello) = hello(&NO_SECRET, 0).unwrap();
    let (challenge, rank0) = challenge(&NO_SECRET, 0, &hello.payload).ok().unwrap();
    assert!(rank0.is_none());
    assert!(read_challenge(&NO_SECRET, noise, &challenge.payload).is_ok_and(|newcomer| newcomer.is_none()));
}
