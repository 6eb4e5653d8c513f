//! Tests of `crates/bench/src/moe/oracle.rs`, whose module they are: against what was worked out by hand.

use super::*;

const SHAPE: ExpertShape = ExpertShape { experts: 5, top_k: 2, hidden: 3 };

/// Two ranks with two tokens each. Rank 0 has experts 0 and 1, rank 1 has experts 2 to 4.
fn routes() -> Routes {
    Routes {
        ids: vec![vec![4, 0, -1, -1], vec![1, 0, 3, 3]],
        weights: vec![vec![0.5, 0.25, 1.0, 1.0], vec![0.75, 0.125, 0.5, 2.0]],
    }
}

#[test]
fn operands_have_room_for_the_fullest_rank_or_expert() {
    let routes = routes();
    for (layout, rows) in [
        (RowOrder::ByRank, [2, 2]),
        (RowOrder::ByExpert, [3, 3]),
        (RowOrder::Padded, [4, 6]),
        (RowOrder::BySource, [4, 4]),
    ] {
        let oracle = MoeOracle::new(SHAPE, layout, &routes);
        assert_eq!([oracle.rows(0), oracle.rows(1)], rows, "{layout:?}");
    }
    assert_eq!(
        MoeOracle::new(SHAPE, RowOrder::ByRank, &routes).pairs(1),
        (vec![2, -1, 1, 1], vec![0.5, 0.0, 0.5, 2.0])
    );
}

#[test]
fn rows_are_as_the_wire_and_the_layout_say() {
    let (routes, rows) = (routes(), RowPool::new(7, SHAPE.hidden));
    let expected = |layout, wire| MoeOracle::new(SHAPE, layout, &routes).expected(1, &rows, wire);
    let [token, other] = [rows.token(1, 1).collect(), rows.token(0, 0).collect::<Vec<_>>()];
    let free: Vec<bf16> = vec![unwritten(); 3];
    let padded = expected(RowOrder::Padded, RowWire::Same);
    let all = [&free, &free, &token, &token, &other, &free].map(|row| &row[..]).concat();
    assert_eq!(padded.rows, bytemuck::cast_slice::<bf16, u8>(&all));
    assert_eq!((&padded.numbers[0], padded.numbers[1].len(), padded.ids.len()), (&vec![0, 2, 1], 0, 0));
    let by_source = expected(RowOrder::BySource, RowWire::F8);
    assert_eq!((by_source.rows.len(), by_source.scales.len(), by_source.numbers[0].len()), (12, 4, 0));
    let sent = wired(other.into_iter(), RowWire::F8);
    assert_eq!((&by_source.rows[..3], &by_source.scales[..1]), (&sent.bytes[..], &sent.scales[..]));
    assert_eq!(by_source.rows[3..9], [UNWRITTEN; 6]);
    assert_eq!(by_source.ids, [2, -1, -1, -1, -1, -1, 1, 1]);
    // Token 0 has both experts on rank 0: expert 1 first, in row 2. Token 1 has both on rank 1, in rows 0 and 1.
    let result = |rank, at| rows.result(rank, at).collect::<Vec<_>>();
    let sum = |[one, two]: [f32; 2], [first, second]: [Vec<bf16>; 2]| {
        let of = |i: usize| bf16::from_f32(one * first[i].to_f32() + two * second[i].to_f32());
        [of(0), of(1), of(2)]
    };
    let sums = expected(RowOrder::ByExpert, RowWire::F8).sums;
    assert_eq!(sums[..3], sum([0.75, 0.125], [result(0, 2), result(0, 1)]));
    assert_eq!(sums[3..], sum([0.5, 2.0], [result(1, 0), result(1, 1)]));
}

#[test]
fn rows_are_different_windows() {
    let rows = RowPool::new(7, 100);
    let token = |rank, token| rows.token(rank, token).collect::<Vec<_>>();
    assert_eq!(token(1, 2), token(1, 2));
    assert!(token(1, 2).len() == 100 && token(1, 2) != token(2, 1));
    assert_ne!(token(1, 2), rows.result(1, 2).collect::<Vec<_>>());
    assert_ne!(token(1, 2), RowPool::new(8, 100).token(1, 2).collect::<Vec<_>>());
}
