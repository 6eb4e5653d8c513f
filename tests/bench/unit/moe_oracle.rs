//! Tests of `crates/bench/src/moe/oracle.rs`, whose module they are: against what was worked out by hand.

use super::*;

const SHAPE: Shape = Shape { experts: 5, top_k: 2, hidden: 3 };

/// Two ranks with two tokens each. Rank 0 has experts 0 and 1, rank 1 has experts 2 to 4.
fn routes() -> Routes {
    Routes {
        ids: vec![vec![4, 0, -1, -1], vec![1, 0, 3, 3]],
        weights: vec![vec![0.5, 0.25, 1.0, 1.0], vec![0.75, 0.125, 0.5, 2.0]],
    }
}

/// Row, source and token.
fn places(layout: Layout, rank: usize) -> Vec<[usize; 3]> {
    let routes = routes();
    let oracle = Oracle::new(SHAPE, layout, &routes);
    oracle.places[rank].iter().map(|place| [place.at, place.source, place.token]).collect()
}

#[test]
fn rows_lie_as_the_layout_says() {
    assert_eq!(places(Layout::ByRank, 0), [[0, 0, 0], [1, 1, 0]]);
    assert_eq!(places(Layout::ByRank, 1), [[0, 0, 0], [1, 1, 1]]);
    assert_eq!(places(Layout::ByExpert, 0), [[0, 0, 0], [1, 1, 0], [2, 1, 0]]);
    assert_eq!(places(Layout::ByExpert, 1), [[0, 1, 1], [1, 1, 1], [2, 0, 0]]);
    // Two pairs go to expert 0, and two to expert 3.
    assert_eq!(places(Layout::Padded, 0), [[0, 0, 0], [1, 1, 0], [2, 1, 0]]);
    assert_eq!(places(Layout::Padded, 1), [[2, 1, 1], [3, 1, 1], [4, 0, 0]]);
    assert_eq!(places(Layout::BySource, 0), [[0, 0, 0], [2, 1, 0]]);
    assert_eq!(places(Layout::BySource, 1), [[0, 0, 0], [3, 1, 1]]);
    let routes = routes();
    let oracle = Oracle::new(SHAPE, Layout::BySource, &routes);
    assert_eq!([oracle.most, oracle.rows(0), oracle.rows(1)], [4; 3]);
}

#[test]
fn numbers_beside_the_rows() {
    let (routes, rows) = (routes(), Rows::new(7, SHAPE.hidden));
    let expected = |layout, rank| Oracle::new(SHAPE, layout, &routes).expected(rank, &rows, Wire::Same);
    let by_rank = expected(Layout::ByRank, 1);
    assert_eq!((by_rank.counts, by_rank.ids), (vec![0, 2, 1], vec![2, -1, 1, 1]));
    assert_eq!((by_rank.weights, by_rank.offsets.len()), (vec![0.5, 0.0, 0.5, 2.0], 0));
    let by_expert = expected(Layout::ByExpert, 1);
    assert_eq!((by_expert.offsets, by_expert.ids.len()), (vec![0, 0, 2, 3], 0));
    assert_eq!(expected(Layout::Padded, 0).counts, [2, 1]);
    // All rows have ids and weights, also those that do not come.
    let by_source = expected(Layout::BySource, 1);
    assert_eq!(by_source.ids, [2, -1, -1, -1, -1, -1, 1, 1]);
    assert_eq!(by_source.weights, [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 2.0]);
    assert_eq!([by_source.counts.len(), by_source.offsets.len()], [0; 2]);
}

#[test]
fn rows_and_sums_to_the_bit() {
    let (routes, rows) = (routes(), Rows::new(7, SHAPE.hidden));
    let expected = |layout, rank| Oracle::new(SHAPE, layout, &routes).expected(rank, &rows, Wire::Same);
    let row = |values: &mut dyn Iterator<Item = bf16>| values.collect::<Vec<_>>();
    let free: bf16 = unwritten();
    let Image::Same(received) = expected(Layout::Padded, 1).received else { panic!("rows as they are") };
    let [token, other] = [row(&mut rows.token(1, 1)), row(&mut rows.token(0, 0))];
    assert_eq!(received[..6], [free; 6]);
    assert_eq!([&received[6..9], &received[9..12], &received[12..15]], [&token[..], &token[..], &other[..]]);
    assert_eq!(received[15..], [free; 3]);
    let Image::Same(received) = expected(Layout::BySource, 1).received else { panic!("rows as they are") };
    assert_eq!([&received[..3], &received[3..9], &received[9..]], [&other[..], &[free; 6], &token[..]]);

    let result = |rank, at| row(&mut rows.result(rank, at));
    let scaled = |weight: f32, value: bf16| weight * value.to_f32();
    // Token 0 of rank 0: from rank 0 its row 0, from rank 1 its row 2, in that order.
    let part = |rank, at, weight, i: usize| bf16::from_f32(scaled(weight, result(rank, at)[i])).to_f32();
    let first: Vec<bf16> = (0..3).map(|i| bf16::from_f32(part(0, 0, 0.25, i) + part(1, 2, 0.5, i))).collect();
    let output = expected(Layout::ByExpert, 0).output;
    assert_eq!(output[..3], first);
    // Token 1 has no expert.
    assert_eq!(output[3..], [bf16::ZERO; 3]);
    // Token 0 of rank 1 has both experts on rank 0: expert 1 first, in row 2.
    let sum = |i: usize| bf16::from_f32(scaled(0.75, result(0, 2)[i]) + scaled(0.125, result(0, 1)[i]));
    assert_eq!(expected(Layout::ByExpert, 1).output[..3], [sum(0), sum(1), sum(2)]);
    // By rank a row is a sum already.
    let by_rank = expected(Layout::ByRank, 0).output;
    let both = |i: usize| bf16::from_f32(result(0, 0)[i].to_f32() + result(1, 0)[i].to_f32());
    assert_eq!(by_rank[..3], [both(0), both(1), both(2)]);
    // By source token 0 of rank 1 has its sum in row 2 of rank 0, and token 1 in row 3 of rank 1.
    let by_source = expected(Layout::BySource, 1).output;
    assert_eq!([&by_source[..3], &by_source[3..]], [&result(0, 2)[..], &result(1, 3)[..]]);
}

#[test]
fn codes_are_the_nearest() {
    let mut row = vec![0.0; GROUP + 3];
    row[..5].copy_from_slice(&[448.0, -224.0, 17.0, 19.0, 0.0009]);
    row[GROUP..].copy_from_slice(&[0.0, 0.0, -1e-5]);
    let (mut codes, mut scales) = (vec![UNWRITTEN; row.len()], vec![0.0; 2]);
    encode(&row, &mut codes, &mut scales);
    // 17 lies between 16 and 18, 19 between 18 and 20: ties to even. The least code is 2^-9.
    assert_eq!(codes[..5], [0x7e, 0xf6, 0x58, 0x5a, 0x00]);
    assert_eq!(scales, [1.0, 1e-4 / 448.0]);
    // A group counts as at least 1e-4: -1e-5 becomes -44.8, which lies next to -44.
    assert_eq!(codes[GROUP..], [0, 0, 0xe3]);
}

#[test]
fn rows_are_different_windows() {
    let rows = Rows::new(7, 100);
    let token = |rank, token| rows.token(rank, token).collect::<Vec<_>>();
    assert_eq!(token(1, 2), token(1, 2));
    assert!(token(1, 2).len() == 100 && token(1, 2) != token(2, 1));
    assert_ne!(token(1, 2), rows.result(1, 2).collect::<Vec<_>>());
    assert_ne!(token(1, 2), Rows::new(8, 100).token(1, 2).collect::<Vec<_>>());
}
