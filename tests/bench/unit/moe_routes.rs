//! Tests of `crates/bench/src/moe/routes.rs`, whose module they are.

use super::*;

const SHAPE: ExpertShape = ExpertShape { experts: 16, top_k: 4, hidden: 8 };

/// How many tokens of all ranks go to each expert. A token names no expert twice.
fn counts(traffic: &Traffic, [tokens, ranks]: [usize; 2]) -> Vec<usize> {
    let routes = traffic.routes(7, SHAPE, [tokens, ranks]);
    assert_eq!((routes.ids.len(), routes.weights.len()), (ranks, ranks));
    let mut counts = vec![0; SHAPE.experts];
    for (ids, weights) in routes.ids.iter().zip(&routes.weights) {
        assert_eq!((ids.len(), weights.len()), (tokens * SHAPE.top_k, tokens * SHAPE.top_k));
        for (ids, weights) in ids.chunks(SHAPE.top_k).zip(weights.chunks(SHAPE.top_k)) {
            assert!(ids.iter().enumerate().all(|(k, id)| !ids[..k].contains(id)), "{ids:?}");
            ids.iter().for_each(|id| counts[*id as usize] += 1);
            assert!(weights.iter().all(|weight| *weight > 0.0), "{weights:?}");
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{weights:?}");
        }
    }
    counts
}

#[test]
fn tokens_go_where_the_name_says() {
    // Of 4000 tokens a quarter goes to each expert, give or take five deviations.
    let uniform = counts(&Traffic::Uniform, [2000, 2]);
    assert!(uniform.iter().all(|count| count.abs_diff(1000) < 140), "{uniform:?}");
    let mut zipf = counts(&Traffic::Zipf, [2000, 2]);
    zipf.sort_unstable();
    assert!(zipf[15] > 3000 && zipf[0] < 500, "{zipf:?}");
    let one = counts(&Traffic::One, [5, 3]);
    assert_eq!(one[..4], [15; 4]);
    assert_eq!(one[4..], [0; 12]);
}

#[test]
fn a_file_gives_its_first_tokens() {
    // Token t of rank r goes only to expert 4 r + t.
    let ids: Vec<i32> = (0..3).flat_map(|rank| (0..4).flat_map(move |token| [4 * rank + token, -1, -1, -1])).collect();
    let traffic = Traffic::Given { name: "ids.npy".to_owned(), tokens: 4, ids };
    let routes = traffic.routes(7, SHAPE, [2, 3]);
    assert_eq!(routes.ids[2], [8, -1, -1, -1, 9, -1, -1, -1]);
    assert_eq!(routes.ids[0][..2], [0, -1]);
}

#[test]
fn routes_follow_from_seed_tokens_and_rank() {
    let ids = |seed| Traffic::Uniform.routes(seed, SHAPE, [3, 2]).ids;
    assert_eq!(ids(7), ids(7));
    assert_ne!(ids(7), ids(8));
    assert_ne!(ids(7)[0], ids(7)[1]);
    assert_eq!(Traffic::Uniform.routes(7, ExpertShape { top_k: 16, ..SHAPE }, [1, 1]).ids[0].len(), 16);
}
