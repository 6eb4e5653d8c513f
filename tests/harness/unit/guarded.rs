//! Tests of `crates/harness/src/guarded.rs`, whose module they are.

use super::*;
use crate::buffer::TestBuffer;

const LEN: usize = 100;
const MARGIN: usize = GUARD_BYTES as usize;

/// The message of a failure.
fn message(failed: Result<()>) -> String {
    failed.unwrap_err().to_string()
}

/// Spoils the byte `at` of the whole memory.
fn spoil(guarded: &Guarded<u8>, at: usize, stream: &Stream) {
    let byte = guarded.memory.borrow().slice(at..=at).unwrap();
    let was = byte.read(stream).unwrap()[0];
    byte.write(&[was ^ 1], stream).unwrap();
}

#[test]
fn every_byte_beside_plain_elements_is_guarded() {
    let device = Device::host().unwrap();
    let stream = Stream::new(&device).unwrap();
    let ends = [(0, "before", 0), (MARGIN - 1, "before", MARGIN - 1)];
    let behind = [(MARGIN + LEN, "behind", 0), (2 * MARGIN + LEN - 1, "behind", MARGIN - 1)];
    for (at, side, first) in ends.into_iter().chain(behind) {
        let guarded = Guarded::<u8>::new(&device, LEN).unwrap();
        guarded.check_margins(&stream).unwrap();
        spoil(&guarded, at, &stream);
        let message = message(guarded.check_margins(&stream));
        let expected = format!("1 of the {MARGIN} guard bytes {side} an operand in plain memory were overwritten");
        assert!(message.contains(&expected), "{message}");
        assert!(message.contains(&format!("the first at byte {first}.")), "{message}");
    }
}

/// A copy of the whole memory, which reads the margins of one operand and writes those of the other.
#[test]
fn margins_of_two_operands_differ() {
    let device = Device::host().unwrap();
    let stream = Stream::new(&device).unwrap();
    let [from, into] = [0; 2].map(|_| Guarded::<u8>::new(&device, LEN).unwrap());
    into.memory.write(&from.memory.read(&stream).unwrap(), &stream).unwrap();
    from.check_margins(&stream).unwrap();
    let failed = message(into.check_margins(&stream));
    let wrong: usize = failed.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!(wrong > MARGIN / 2, "{failed}");
}

#[test]
fn elements_are_no_guards() {
    fn check<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
        let device = Device::host().unwrap();
        let stream = Stream::new(&device).unwrap();
        let guarded = Guarded::<T>::new(&device, values.len()).unwrap();
        guarded.write(values, &stream).unwrap();
        assert_eq!(guarded.read(&stream).unwrap(), values);
        let part = guarded.part(0..values.len().min(1)).unwrap();
        assert_eq!(part.read(&stream).unwrap(), values[..values.len().min(1)]);
        assert!(guarded.part(0..values.len() + 1).is_err());
        guarded.check_margins(&stream).unwrap();
    }
    check::<u8>(&[]);
    check(&[1_u8; 3]);
    check(&[f64::NAN.to_bits(); 5]);
    check(&[0.5_f32; 4097]);
    assert!(Guarded::<u64>::new(&Device::host().unwrap(), usize::MAX).is_err());
}
