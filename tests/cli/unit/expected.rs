//! Tests of `crates/cli/src/bench/expected.rs`, whose module they are.

use super::*;

fn shape(collective: Collective) -> Shape {
    Shape { collective, elems: 12, ranks: 3 }
}

#[test]
fn every_element_of_an_output_has_one_source() {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter};
    for (collective, elems) in [(AllReduce, 12), (AllGather, 36), (ReduceScatter, 4), (AllToAll, 12), (Broadcast, 12)] {
        let shape = shape(collective);
        assert_eq!(shape.output_elems(), elems, "{collective:?}");
        let mut end = 0;
        for stretch in shape.stretches(1) {
            assert_eq!(stretch.at.start, end, "{collective:?}");
            end = stretch.at.end;
            assert!(stretch.start + stretch.at.len() <= 12, "{collective:?}: {stretch:?}");
        }
        assert_eq!(end, elems, "{collective:?}");
    }
}

#[test]
fn what_goes_where() {
    let stretch = |at, source, start| Stretch { at, source, start };
    let second = |collective| shape(collective).stretches(1);
    assert_eq!(second(Collective::ReduceScatter), [stretch(0..4, Source::Sum, 4)]);
    assert_eq!(second(Collective::Broadcast), [stretch(0..12, Source::Rank(ROOT), 0)]);
    assert_eq!(second(Collective::AllToAll)[2], stretch(8..12, Source::Rank(2), 4));
    assert_eq!(second(Collective::AllGather)[2], stretch(24..36, Source::Rank(2), 0));
    assert_eq!([0, 1].map(|rank| shape(Collective::Broadcast).gives_output(rank)), [true, false]);
    assert_eq!(shape(Collective::AllGather).larger_elems(), 36);
}
