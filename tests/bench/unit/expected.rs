//! Tests of `crates/bench/src/expected.rs`, whose module they are.

use symmetra::op::Source;

use super::*;

fn shape(collective: CollectiveCommand) -> CollectiveShape {
    CollectiveShape { collective, elems: 12, ranks: 3 }
}

#[test]
fn every_element_of_an_output_has_one_source() {
    let sizes = [
        (CollectiveCommand::AllReduce, 12),
        (CollectiveCommand::AllGather, 36),
        (CollectiveCommand::ReduceScatter, 4),
        (CollectiveCommand::AllToAll, 12),
        (CollectiveCommand::Broadcast, 12),
    ];
    for (collective, elems) in sizes {
        let shape = shape(collective);
        assert_eq!(shape.output_elems(), elems, "{collective:?}");
        let mut end = 0;
        for stretch in shape.stretches(1) {
            assert_eq!(stretch.at, end, "{collective:?}");
            end += stretch.count;
            assert!(stretch.start + stretch.count <= 12, "{collective:?}: {stretch:?}");
        }
        assert_eq!(end, elems, "{collective:?}");
    }
}

#[test]
fn what_goes_where() {
    let stretch = |at: std::ops::Range<usize>, source, start| (at.start, source, start, at.len());
    let second = |collective| -> Vec<_> {
        let stretches = shape(collective).stretches(1).into_iter();
        stretches.map(|stretch| (stretch.at, stretch.source, stretch.start, stretch.count)).collect()
    };
    assert_eq!(second(CollectiveCommand::ReduceScatter), [stretch(0..4, Source::Reduced, 4)]);
    assert_eq!(second(CollectiveCommand::Broadcast), [stretch(0..12, Source::Rank(ROOT), 0)]);
    assert_eq!(second(CollectiveCommand::AllToAll)[2], stretch(8..12, Source::Rank(2), 4));
    assert_eq!(second(CollectiveCommand::AllGather)[2], stretch(24..36, Source::Rank(2), 0));
    assert_eq!([0, 1].map(|rank| shape(CollectiveCommand::Broadcast).gives_output(rank)), [true, false]);
    assert_eq!(shape(CollectiveCommand::AllGather).larger_elems(), 36);
}
