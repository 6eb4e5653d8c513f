//! Tests of `src/capi/experts.rs`, whose module they are.

use super::bridge::ExpertsOfRank;
use super::bridge::MaybeSize;
use super::*;
use crate::group::Determinism;

fn settings() -> ExpertSettings {
    let none = MaybeSize { set: false, value: 0 };
    ExpertSettings {
        experts: 8,
        top_k: 2,
        hidden: 64,
        max_tokens: 16,
        dtype: crate::types::Dtype::BF16 as u32,
        wire: 0,
        scales: 0,
        row_bytes: 0,
        layout: 0,
        align: 1,
        padded_rows: 0,
        method: 0,
        placement: AskedPlacement { round_robin: false, is_table: false, table: Vec::<ExpertsOfRank>::new() },
        determinism: none,
        capacity: none,
        in_flight: 1,
        blocks: none,
    }
}

#[test]
fn settings_carry_every_default() {
    assert_eq!(ExpertConfig::try_from(&settings()).unwrap(), ExpertConfig::new(8, 2, 64, 16));
}

/// A number that does not fit the Rust type is refused, and not truncated.
#[test]
fn numbers_that_do_not_fit_are_named() {
    let large = MaybeSize { set: true, value: (1 << 32) + 1 };
    let refused = |settings: &ExpertSettings| ExpertConfig::try_from(settings).unwrap_err().to_string();
    let message = refused(&ExpertSettings { blocks: large, ..settings() });
    assert!(message.contains("a setting is 4294967297, but it must fit 32 bits"), "{message}");
    let message = refused(&ExpertSettings { determinism: large, ..settings() });
    assert!(message.contains("a setting is 4294967297, but it must fit 32 bits"), "{message}");
    let [one, three] = [1, 3].map(|value| MaybeSize { set: true, value });
    let config = ExpertConfig::try_from(&ExpertSettings { blocks: one, determinism: three, ..settings() }).unwrap();
    assert_eq!((config.blocks, config.determinism), (Some(1), Some(Determinism::Exact)));
}
