//! Tests of `crates/harness/src/experts.rs`, whose module they are.

use super::*;

#[test]
fn shapes_by_name_and_by_numbers() {
    let shape = |experts, top_k, hidden| Ok(ExpertShape { experts, top_k, hidden });
    assert_eq!("deepseek".parse(), shape(256, 8, 7168));
    assert_eq!("mixtral".parse(), shape(8, 2, 4096));
    assert_eq!("60,4,129".parse(), shape(60, 4, 129));
    assert_eq!(ExpertShape { experts: 60, top_k: 4, hidden: 129 }.to_string(), "60,4,129");
    for wrong in ["", "8,2", "8,2,4096,1", "8,x,64", "8,-2,64", "llama"] {
        let refused = wrong.parse::<ExpertShape>().unwrap_err();
        assert!(refused.contains("deepseek, mixtral") && refused.contains("256,8,7168"), "{wrong}: {refused}");
    }
}

/// A group of a row may be short.
#[test]
fn bytes_of_a_row() {
    assert_eq!([1, 128, 129, 7168].map(|hidden| RowWire::F8.row_bytes(hidden)), [5, 132, 137, 7392]);
    assert_eq!([1, 128, 129, 7168].map(|hidden| RowWire::GivenF8.row_bytes(hidden)), [5, 132, 137, 7392]);
    assert_eq!([1, 129].map(|hidden| RowWire::Same.row_bytes(hidden)), [2, 258]);
}
