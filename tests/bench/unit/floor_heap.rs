//! Tests of `crates/bench/src/floor/heap.rs`, whose module they are.

use super::*;

#[test]
fn a_chain_goes_through_all_lines() {
    let drawn = HeapData::new(5, 3);
    let (mut line, mut seen) = (drawn.start as usize % LINES, vec![false; LINES]);
    for _ in 0..LINES {
        assert!(!std::mem::replace(&mut seen[line], true), "line {line} comes twice");
        line = drawn.chain[line] as usize % LINES;
    }
    assert_eq!(line, drawn.start as usize % LINES);
    assert_ne!(drawn.chain, HeapData::new(5, 4).chain);
}

#[test]
fn sums_and_messages_depend_on_every_word() {
    let ([last, _], left) = added(3, 100, 2);
    // 100 + 7, and then 2 * 100 + 1 more.
    assert_eq!((last, left), (107, 308));
    let words = [1, 2, 3, 4];
    for number in 0..4 {
        let mut other = words;
        other[number] ^= 1 << 40;
        assert_ne!(received(words, 2, 3), received(other, 2, 3));
    }
    // A launch begins with the first slot, so one of one message has no second.
    assert_ne!(received(words, 2, 1), received(words, 1, 2));
    assert_eq!(unequal(&[1, 2, 3], &[1, 5]), 2);
}

#[test]
fn a_line_that_a_rank_skips_has_no_time() {
    let measured = |skipped: Option<&str>, wrong| Measured {
        times_us: if skipped.is_some() { Vec::new() } else { vec![2.0; 3] },
        wrong,
        skipped: skipped.map(str::to_owned),
    };
    let rank = || vec![measured(None, 1), measured(Some("no atomics"), 0), measured(None, 0), measured(None, 2)];
    let (first, second) = (rank(), rank());
    let lines = lines(&[&first, &second], 1_000_000);
    assert_eq!((lines[0].time_us, lines[0].gbps, lines[0].wrong), (Some(2.0), None, Some(2)));
    assert_eq!((lines[1].time_us, lines[1].wrong, lines[1].skipped.as_deref()), (None, None, Some("no atomics")));
    assert_eq!((lines[3].gbps, lines[3].wrong), (Some(500.0), Some(4)));
}
