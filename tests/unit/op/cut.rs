//! Tests of `src/op/cut.rs`, whose module they are.

use super::*;
use crate::op::Rows;

#[test]
fn a_cut_along_any_dimension() {
    let cut = Cut::of_whole(&[3, 8, 5], 1, 4).unwrap();
    assert_eq!(cut, Cut { rows: 3, part_elems: 10, parts: 4 });
    assert_eq!(cut, Cut::of_parts(&[3, 2, 5], 1, 4).unwrap());
    assert_eq!((cut.part_elems(), cut.whole_elems()), (Some(30), Some(120)));
    assert_eq!(cut.offset_bytes(2, Dtype::F32), 80);
    let rows = Rows::gathering(cut, Dtype::F32);
    assert_eq!((rows.row_bytes, rows.from_pitch_bytes, rows.into_pitch_bytes), (40, 40, 160));
    assert!(Cut::of_whole(&[8, 5], 0, 4).unwrap().is_line());
    assert!(Cut::of_whole(&[1, 8], 1, 4).unwrap().is_line());
}

#[test]
fn shapes_that_cannot_be() {
    let message = |result: Result<Cut>| result.unwrap_err().to_string();
    assert!(message(Cut::of_whole(&[3, 7], 1, 4)).contains('7'));
    assert!(message(Cut::of_whole(&[3, 8], 2, 4)).contains('2'));
    assert!(message(Cut::of_parts(&[], 0, 4)).contains('0'));
    assert!(message(Cut::of_parts(&[usize::MAX, 2], 1, 4)).contains("more elements"));
    assert!(message(Cut::of_parts(&[usize::MAX / 2, 1], 1, 4)).contains("more elements"));
    // No rows, so no elements, of rows whose bytes have no number.
    assert!(message(Cut::of_parts(&[0, 1 << 60], 1, 4)).contains("more elements"));
    let empty = Cut::of_parts(&[0, 1 << 40], 1, 4).unwrap();
    assert_eq!((empty.whole_elems(), empty.offset_bytes(3, Dtype::F64)), (Some(0), 3 << 43));
}
