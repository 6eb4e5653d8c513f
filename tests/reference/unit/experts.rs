//! Tests of `crates/reference/src/experts`, whose module they are: examples that are worked out by hand.

use half::bf16;
use symmetra::Determinism;
use symmetra::experts::{ExpertConfig, Layout, Placement, ScaleOrder, Scales};

use super::arrivals::{Arrivals, RankRouting};
use super::combine::{SumsBefore, combined};
use super::dispatch::RoutedOutputs;
use super::wire::{GROUP, WireRow};

const PADDED: Layout = Layout::Padded { rows: 2 };

fn form(layout: Layout) -> ExpertConfig {
    let mut form = ExpertConfig::new(5, 2, 3, 2);
    form.layout = layout;
    form
}

/// The arrivals of ranks whose tokens have these experts. Each weight is the number of its pair on the rank.
fn arrivals(form: &ExpertConfig, ids: &[&[i32]]) -> Vec<Arrivals> {
    let weights: Vec<f32> = (0..16).map(|pair| pair as f32).collect();
    let routings = ids.iter().map(|ids| RankRouting { ids, weights: Some(&weights), tokens: ids.len() / form.top_k });
    Arrivals::of_ranks(form, &routings.collect::<Vec<_>>())
}

/// Two ranks with two tokens each. Rank 0 has experts 0 and 1, rank 1 has experts 2 to 4.
const IDS: [&[i32]; 2] = [&[4, 0, -1, -1], &[1, 0, 3, 3]];

/// Row, source, token and expert of each pair.
fn rows(layout: Layout, rank: usize) -> Vec<[usize; 4]> {
    let pairs = arrivals(&form(layout), &IDS).swap_remove(rank).pairs;
    pairs.iter().map(|pair| [pair.row, pair.source, pair.token, pair.expert]).collect()
}

#[test]
fn rows_are_in_the_order_of_the_layout() {
    assert_eq!(rows(Layout::ByRank, 0), [[0, 0, 0, 0], [1, 1, 0, 1], [1, 1, 0, 0]]);
    assert_eq!(rows(Layout::ByRank, 1), [[0, 0, 0, 2], [1, 1, 1, 1], [1, 1, 1, 1]]);
    assert_eq!(rows(Layout::ByExpert { align: 1 }, 0), [[0, 0, 0, 0], [2, 1, 0, 1], [1, 1, 0, 0]]);
    assert_eq!(rows(Layout::ByExpert { align: 1 }, 1), [[2, 0, 0, 2], [0, 1, 1, 1], [1, 1, 1, 1]]);
    assert_eq!(rows(Layout::ByExpert { align: 4 }, 0), [[0, 0, 0, 0], [4, 1, 0, 1], [1, 1, 0, 0]]);
    assert_eq!(rows(PADDED, 1), [[4, 0, 0, 2], [2, 1, 1, 1], [3, 1, 1, 1]]);
    assert_eq!(rows(Layout::BySource, 0), [[0, 0, 0, 0], [2, 1, 0, 1], [2, 1, 0, 0]]);
    assert_eq!(rows(Layout::BySource, 1), [[0, 0, 0, 2], [3, 1, 1, 1], [3, 1, 1, 1]]);
}

#[test]
fn counts_and_offsets() {
    for (layout, offsets) in [
        (Layout::ByRank, [0, 0, 2, 3]),
        (Layout::ByExpert { align: 1 }, [0, 0, 2, 3]),
        (Layout::ByExpert { align: 4 }, [0, 0, 4, 8]),
        (PADDED, [0, 2, 4, 6]),
    ] {
        let arrivals = arrivals(&form(layout), &IDS).swap_remove(1);
        assert_eq!((arrivals.counts, arrivals.offsets), (vec![0, 2, 1], offsets.to_vec()), "{layout:?}");
    }
}

/// Expert 0 has replicas on ranks 1 and 2. Rank 0 has none and uses both in turn.
#[test]
fn replicas_have_turns_except_at_home() {
    let mut form = form(Layout::ByRank);
    (form.experts, form.top_k) = (3, 1);
    form.placement = Placement::Table(vec![vec![1], vec![2, 0], vec![0]]);
    let arrivals = arrivals(&form, &[&[0, 0, 1], &[0, 2, 0], &[0, 0, 2]]);
    let pairs = |rank: usize| arrivals[rank].pairs.iter().map(|pair| [pair.source, pair.token, pair.expert]);
    assert_eq!(pairs(0).collect::<Vec<_>>(), [[0, 2, 0]]);
    assert_eq!(pairs(1).collect::<Vec<_>>(), [[0, 0, 1], [1, 0, 1], [1, 1, 0], [1, 2, 1], [2, 2, 0]]);
    assert_eq!(pairs(2).collect::<Vec<_>>(), [[0, 1, 0], [2, 0, 0], [2, 1, 0]]);
}

#[test]
fn round_robin_and_blocks() {
    let mut form = form(Layout::ByRank);
    assert_eq!(super::arrivals::experts_of_ranks(&form, 2), [vec![0, 1], vec![2, 3, 4]]);
    form.placement = Placement::RoundRobin;
    assert_eq!(super::arrivals::experts_of_ranks(&form, 2), [vec![0, 2, 4], vec![1, 3]]);
}

/// Outputs of rank 1, with room for four rows of one byte, or two rows an expert with padding.
fn outputs(layout: Layout) -> RoutedOutputs<bf16> {
    let rows = if layout == PADDED { 6 } else { 4 };
    let pairs = if matches!(layout, Layout::ByRank | Layout::BySource) { 2 * rows } else { rows };
    let mut outputs = RoutedOutputs {
        rows: vec![9; rows],
        scales: Vec::new(),
        exponents: Vec::new(),
        numbers: [3, 4, 2 * rows, pairs].map(|count| vec![9; count]),
        ids: vec![9; pairs],
        weights: vec![9.0; pairs],
        sums: Vec::new(),
    };
    let form = form(layout);
    let wired = |source, token| WireRow { bytes: vec![(10 * source + token) as u8], ..WireRow::default() };
    outputs.dispatch(&form, &arrivals(&form, &IDS)[1], ScaleOrder::Rows, wired);
    outputs
}

#[test]
fn a_dispatch_writes_what_arrives() {
    let by_rank = outputs(Layout::ByRank);
    assert_eq!(by_rank.rows, [0, 11, 9, 9]);
    assert_eq!(by_rank.numbers[2..], [vec![0, 0, 1, 1, 9, 9, 9, 9], vec![1, 1, 0, 9, 9, 9, 9, 9]]);
    assert_eq!(by_rank.ids, [2, -1, 1, 1, 9, 9, 9, 9]);
    assert_eq!(by_rank.weights, [0.0, 0.0, 2.0, 3.0, 9.0, 9.0, 9.0, 9.0]);
    let by_expert = outputs(Layout::ByExpert { align: 1 });
    assert_eq!((by_expert.rows, by_expert.ids), (vec![11, 11, 0, 9], vec![1, 1, 2, 9]));
    assert_eq!(by_expert.numbers, [vec![0, 2, 1], vec![0, 0, 2, 3], vec![1, 1, 1, 1, 0, 0, 9, 9], vec![9; 4]]);
    assert_eq!(by_expert.weights, [2.0, 3.0, 0.0, 9.0]);
    let padded = outputs(PADDED);
    assert_eq!((padded.rows, padded.ids), (vec![9, 9, 11, 11, 0, 9], vec![9, 9, 1, 1, 2, 9]));
    // All rows by source have ids and weights. Counts, offsets and index are not written.
    let by_source = outputs(Layout::BySource);
    assert_eq!((by_source.rows, by_source.ids), (vec![0, 9, 9, 11], vec![2, -1, -1, -1, -1, -1, 1, 1]));
    assert_eq!(by_source.weights, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 3.0]);
    assert_eq!(by_source.numbers, [vec![9; 3], vec![9; 4], vec![0, 0, 9, 9, 9, 9, 1, 1], vec![9; 8]]);
}

/// Where the scales of the rows 0, 1 and 2, of two groups each, are.
#[test]
fn scales_in_rows_and_in_columns() {
    for (layout, order, right) in [
        (Layout::ByRank, ScaleOrder::Rows, [0.0, 0.5, 11.0, 11.5, 9.0, 9.0, 9.0, 9.0]),
        (Layout::ByRank, ScaleOrder::Columns, [0.0, 11.0, 9.0, 9.0, 0.5, 11.5, 9.0, 9.0]),
    ] {
        let mut form = form(layout);
        form.hidden = GROUP + 1;
        let mut outputs = RoutedOutputs { scales: vec![9.0; 8], ..outputs(layout) };
        let wired = |source, token| {
            let scale = (10 * source + token) as f32;
            WireRow { bytes: vec![1], scales: vec![scale, scale + 0.5], exponents: Vec::new() }
        };
        outputs.dispatch(&form, &arrivals(&form, &IDS)[1], order, wired);
        assert_eq!(outputs.scales, right, "{order:?}");
        // With padding, columns are those of an expert: of two rows.
        form.layout = PADDED;
        let mut outputs = RoutedOutputs { scales: vec![9.0; 12], ..self::outputs(PADDED) };
        outputs.dispatch(&form, &arrivals(&form, &IDS)[1], order, wired);
        let last = if order == ScaleOrder::Rows { [0.0, 0.5, 9.0, 9.0] } else { [0.0, 9.0, 0.5, 9.0] };
        assert_eq!(outputs.scales[8..], last, "{order:?}");
    }
}

#[test]
fn values_are_the_nearest() {
    let mut row = vec![0.0; GROUP + 3];
    row[..5].copy_from_slice(&[448.0, -224.0, 17.0, 19.0, 0.0009]);
    row[GROUP..].copy_from_slice(&[0.0, 0.0, -1e-5]);
    let WireRow { bytes, scales, exponents } = WireRow::quantised(&row, Scales::F32);
    // 17 lies between 16 and 18, 19 between 18 and 20: ties to even. The least value is 2^-9.
    assert_eq!(bytes[..5], [0x7e, 0xf6, 0x58, 0x5a, 0x00]);
    assert_eq!((scales, exponents), (vec![1.0, 1e-4 / 448.0], vec![]));
    // A group counts as at least 1e-4: -1e-5 becomes -44.8, which lies next to -44.
    assert_eq!(bytes[GROUP..], [0, 0, 0xe3]);
    // Powers of two that cover 448, and 449.
    for (largest, scale, byte) in [(448.0, 1.0, 127), (449.0, 2.0, 128), (0.0, 2f32.powi(-22), 105)] {
        let row = |scales| WireRow::quantised(&[largest, 0.0], scales);
        assert_eq!((row(Scales::PowersOfTwo).scales, row(Scales::E8M0).exponents), (vec![scale], vec![byte]));
    }
}

/// The output of rank 0, where experts return 256 for row 0 of rank 0, and 1 for all other rows.
fn sums(layout: Layout, exact: bool, adds: bool) -> Vec<f32> {
    let mut form = form(layout);
    form.hidden = 1;
    form.determinism = Some(if exact { Determinism::Exact } else { Determinism::PerAlgorithm });
    (form.top_k, form.max_tokens) = (3, 3);
    // Token 0 has experts 0 and 1 of rank 0 and expert 2 of rank 1; token 1 has none; token 2 does not take part.
    let ids: [&[i32]; 2] = [&[0, 2, 1, -1, -1, -1], &[]];
    let mut arrivals = arrivals(&form, &ids);
    arrivals.iter_mut().flat_map(|arrivals| &mut arrivals.pairs).for_each(|pair| pair.weight = 1.0);
    let result = |rank: usize, row: usize| [bf16::from_f32(if (rank, row) == (0, 0) { 256.0 } else { 1.0 })];
    let rows = [4.0, 5.0, 6.0].map(bf16::from_f32);
    let before = SumsBefore { rows: &rows, adds, tokens: 2 };
    combined(&form, &arrivals, 0, before, result).into_iter().map(f32::from).collect()
}

/// bf16 has 256 and 258: 257 is rounded to 256.
#[test]
fn sums_to_the_bit() {
    let by_expert = Layout::ByExpert { align: 1 };
    assert_eq!(sums(by_expert, false, false), [256.0, 0.0, 6.0]);
    assert_eq!(sums(by_expert, true, false), [258.0, 0.0, 6.0]);
    assert_eq!(sums(by_expert, false, true), [260.0, 5.0, 6.0]);
    // The experts of a rank have summed already: 256 and 1.
    assert_eq!(sums(Layout::ByRank, true, true), [260.0, 5.0, 6.0]);
    assert_eq!(sums(Layout::BySource, true, false), [256.0, 0.0, 6.0]);
}

#[test]
fn sums_are_weighted() {
    let mut form = form(PADDED);
    form.hidden = 1;
    let arrivals = arrivals(&form, &IDS);
    let before = SumsBefore { rows: &[0f32; 2], adds: false, tokens: 2 };
    // Token 0 has rows 2 and 1 of rank 0, with weights 0 and 1; token 1 has rows 2 and 3 of rank 1, with weights 2 and 3.
    let result = |rank: usize, row: usize| [(1000 * rank + row) as f32];
    assert_eq!(combined(&form, &arrivals, 1, before, result), [1.0, 2.0 * 1002.0 + 3.0 * 1003.0]);
}
