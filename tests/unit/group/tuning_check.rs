//! Tests of `src/group/tuning/check.rs`, whose module they are.

use super::*;
use crate::experts::Method;
use crate::group::{TunedCodec, TunedExperts, TunedGrid, TunedNorm, TunedTable, TunedTiming};
use crate::mixed::{MixedMode, MixedOperation};
use crate::op::{Algorithm, Codec};

fn rows(name: &str) -> Vec<TunedRow> {
    vec![TunedRow { up_to_bytes: None, algorithm: name.to_owned() }]
}

/// A tuning with one choice of each kind.
fn whole() -> Tuning {
    Tuning {
        kind: "host".to_owned(),
        tables: vec![TunedTable { world_size: 16, floating: true, direct: false, exact: false, rows: rows("ring") }],
        timings: vec![TunedTiming {
            world_size: 1,
            floating: true,
            direct: false,
            bytes: 8,
            times_ns: [("ring".to_owned(), 7)].into(),
        }],
        codecs: vec![TunedCodec { world_size: 2, codec: "int8".to_owned(), from_bytes: None }],
        norms: vec![TunedNorm { world_size: 2, hidden: 64, rows: rows("apart") }],
        experts: vec![TunedExperts { world_size: 2, experts: 8, top_k: 2, hidden: 64, rows: rows("direct") }],
        grids: vec![TunedGrid {
            local_tensor: 2,
            local_data: 8,
            across_tensor: 2,
            across_data: 128,
            operation: "all-gather".to_owned(),
            direct: true,
            measured_bytes: Some([7, 7]),
            rows: rows("two-shot"),
        }],
        ..Tuning::default()
    }
}

/// The words of the error for a tuning with one change.
fn refused(change: impl FnOnce(&mut Tuning)) -> String {
    let mut tuning = whole();
    change(&mut tuning);
    let Error::InvalidArgument { message } = check(&tuning, "the tuning file T").unwrap_err() else { panic!() };
    message
}

#[test]
fn what_tune_writes_is_taken() {
    check(&whole(), "").unwrap();
    check(&Tuning::default(), "").unwrap();
}

#[test]
fn a_world_that_cannot_be_is_refused_wherever_it_stands() {
    for size in [0, 17, 1000] {
        let words = |field: &str| format!("{field}.world_size of the tuning file T is {size}, but it must be 1 to 16");
        assert_eq!(refused(|tuning| tuning.tables[0].world_size = size), words("tables[0]"));
        assert_eq!(refused(|tuning| tuning.codecs[0].world_size = size), words("codecs[0]"));
        assert_eq!(refused(|tuning| tuning.norms[0].world_size = size), words("norms[0]"));
        assert_eq!(refused(|tuning| tuning.experts[0].world_size = size), words("experts[0]"));
        assert_eq!(refused(|tuning| tuning.timings[0].world_size = size), words("timings[0]"));
    }
    let grid = |field: &str, words: &str| format!("grids[0].{field} of the tuning file T is {words}");
    assert_eq!(refused(|t| t.grids[0].local_tensor = 0), grid("local_tensor", "0, but it must be 1 to 16"));
    assert_eq!(refused(|t| t.grids[0].local_data = 9), grid("local_data", "9, but it must be 1 to 8"));
    assert_eq!(refused(|t| t.grids[0].across_tensor = 0), grid("across_tensor", "0, but it must be 1 to 256"));
    assert_eq!(refused(|t| t.grids[0].across_data = 129), grid("across_data", "129, but it must be 1 to 128"));
}

#[test]
fn a_name_of_nothing_is_refused_wherever_it_stands() {
    let words = |message: String, field: &str, first: &str| {
        let start = format!("{field} of the tuning file T is nothing, but it must be one of {first}");
        assert!(message.starts_with(&start), "{message}");
    };
    let nothing = || "nothing".to_owned();
    words(refused(|tuning| tuning.kind = nothing()), "kind", "host, cuda, hip");
    words(refused(|tuning| tuning.tables[0].rows = rows("nothing")), "tables[0].rows[0].algorithm", "one-shot-ll, ");
    words(refused(|tuning| tuning.codecs[0].codec = nothing()), "codecs[0].codec", "fp8, int8, int6, int4");
    words(refused(|tuning| tuning.norms[0].rows = rows("nothing")), "norms[0].rows[0].algorithm", "one-shot-sentinel");
    words(
        refused(|tuning| tuning.experts[0].rows = rows("nothing")),
        "experts[0].rows[0].algorithm",
        "packets, direct",
    );
    words(refused(|tuning| tuning.grids[0].operation = nothing()), "grids[0].operation", "all-reduce, all-gather");
    words(refused(|tuning| tuning.grids[0].rows = rows("nothing")), "grids[0].rows[0].algorithm", "one-shot, two-shot");
    assert!(refused(|tuning| tuning.codecs[0].codec = "none".to_owned()).contains("codecs[0].codec"));
    assert!(refused(|tuning| tuning.grids[0].rows = rows("auto")).contains("grids[0].rows[0].algorithm"));
}

/// Of two tables the second decided nothing.
#[test]
fn a_second_table_for_the_same_calls_is_refused() {
    let words = |field: &str| {
        format!(
            "{field} of the tuning file T is a second choice for the same calls, but each kind of call must have one"
        )
    };
    assert_eq!(refused(|tuning| tuning.tables.push(tuning.tables[0].clone())), words("tables[1]"));
    assert_eq!(refused(|tuning| tuning.codecs.push(tuning.codecs[0].clone())), words("codecs[1]"));
    let norm = TunedNorm { hidden: 128, ..whole().norms[0].clone() };
    assert_eq!(refused(|tuning| tuning.norms.push(norm)), words("norms[1]"));
    let experts = TunedExperts { hidden: 128, ..whole().experts[0].clone() };
    assert_eq!(refused(|tuning| tuning.experts.push(experts)), words("experts[1]"));
    assert_eq!(refused(|tuning| tuning.grids.push(tuning.grids[0].clone())), words("grids[1]"));
    let mut others = whole();
    others.tables.push(TunedTable { exact: true, ..others.tables[0].clone() });
    others.codecs.push(TunedCodec { codec: "fp8".to_owned(), ..others.codecs[0].clone() });
    others.norms.push(TunedNorm { world_size: 3, ..others.norms[0].clone() });
    others.grids.push(TunedGrid { direct: false, ..others.grids[0].clone() });
    check(&others, "").unwrap();
}

#[test]
fn sizes_out_of_order_and_layers_of_nothing_are_refused() {
    let rows = |limits: &[Option<u64>]| {
        let row = |limit: &Option<u64>| TunedRow { up_to_bytes: *limit, algorithm: "ring".to_owned() };
        limits.iter().map(row).collect::<Vec<_>>()
    };
    for limits in [&[Some(5)][..], &[None, None], &[Some(5), Some(4), None], &[]] {
        let words = refused(|tuning| tuning.tables[0].rows = rows(limits));
        assert!(words.starts_with("tables[0].rows of the tuning file T is ["), "{words}");
    }
    let words = refused(|tuning| tuning.grids[0].measured_bytes = Some([8, 7]));
    assert!(words.starts_with("grids[0].measured_bytes of the tuning file T is [8, 7]"), "{words}");
    assert!(refused(|tuning| tuning.experts[0].top_k = 9).ends_with("is 9, but it must be 1 to 8"));
    assert!(refused(|tuning| tuning.norms[0].hidden = 0).ends_with("is 0, but it must be at least 1"));
}

#[test]
fn the_names_are_those_of_the_library() {
    assert_eq!(ALGORITHMS, Algorithm::ALL.map(Algorithm::name));
    assert_eq!(CODECS[..], Codec::ALL.map(Codec::name)[1..]);
    assert_eq!(METHODS, [Method::Packets, Method::Direct].map(Method::name));
    assert_eq!(OPERATIONS, MixedOperation::ALL.map(MixedOperation::name));
    assert_eq!(MODES, MixedMode::ALL.map(MixedMode::name));
}
