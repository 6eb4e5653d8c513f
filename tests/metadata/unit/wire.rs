//! Tests of `crates/ring/src/wire.rs`, whose module they are.

use super::*;

#[test]
fn heads_read_back_and_anything_else_does_not() {
    for kind in KINDS {
        let head = NoteHead { kind, number: 0x0102_0304_0506_0708 };
        let bytes = head.encode();
        assert_eq!(NoteHead::decode(&bytes), Some(head));
        assert_eq!(bytes[8..], [8, 7, 6, 5, 4, 3, 2, 1]);
        for byte in 0..7 {
            let mut other = bytes;
            other[byte] ^= 0x80;
            assert_eq!(NoteHead::decode(&other), None, "byte {byte}");
        }
        assert_eq!(NoteHead::decode(&bytes[..15]), None);
        assert_eq!(NoteHead::decode(&[&bytes[..], &[0]].concat()), None);
    }
}

#[test]
fn whom_the_writer_gave_up_reads_back_and_anything_else_does_not() {
    for state in ["", "it died, process 7"] {
        let given_up = GivenUp { rank: 300, state: state.to_owned() };
        assert_eq!(GivenUp::decode(&given_up.encode()), Some(given_up));
    }
    assert_eq!(GivenUp::decode(&[0; 7]), None);
    assert_eq!(GivenUp::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff]), None);
}
