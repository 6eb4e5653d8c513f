//! Tests of `src/experts/config.rs`, whose module they are.

use super::*;

fn refused(change: impl FnOnce(&mut ExpertConfig)) -> String {
    let mut config = ExpertConfig::new(8, 2, 64, 16);
    change(&mut config);
    match config.validate(4) {
        Err(Error::InvalidArgument { message }) => message,
        other => panic!("{config:?} gave {other:?}"),
    }
}

#[test]
fn settings_outside_their_limits_are_named_with_value_and_limit() {
    assert_eq!(ExpertConfig::new(8, 2, 64, 16).validate(4), Ok(()));
    let says =
        |message: String, words: [&str; 2]| assert!(words.iter().all(|word| message.contains(word)), "{message}");
    says(refused(|config| config.experts = 0), ["the number of experts is 0", "1 to 65534"]);
    says(refused(|config| config.experts = 65_535), ["65535", "1 to 65534"]);
    says(refused(|config| config.top_k = 65), ["65", "1 to 64"]);
    says(refused(|config| config.hidden = 65_537), ["65537", "1 to 65536"]);
    says(refused(|config| config.max_tokens = 0), ["max_tokens is 0", "1 to"]);
    says(refused(|config| config.max_tokens = 1 << 40), ["max_tokens is 1099511627776", "1 to"]);
    says(refused(|config| config.in_flight = 4), ["in_flight is 4", "1 to 3"]);
    says(refused(|config| config.blocks = Some(0)), ["blocks is 0", "1 to"]);
    says(refused(|config| config.capacity = Some(0)), ["the capacity is 0", "1 to"]);
    says(refused(|config| config.layout = Layout::ByExpert { align: 0 }), ["alignment of rows is 0", "1 to"]);
    says(refused(|config| config.layout = Layout::Padded { rows: 0 }), ["the rows of an expert is 0", "1 to"]);
    says(refused(|config| config.wire = Wire::Bytes(0)), ["the bytes of a row is 0", "1 to 1048576"]);
    says(refused(|config| config.dtype = Dtype::I32), ["i32", "f32, f16 or bf16"]);
}

#[test]
fn every_expert_has_a_rank() {
    let blocks = Placement::Blocks.lists(5, 3).unwrap();
    assert_eq!(blocks, [vec![0], vec![1, 2], vec![3, 4]]);
    assert_eq!(Placement::Blocks.lists(2, 4).unwrap(), [vec![], vec![0], vec![], vec![1]]);
    assert_eq!(Placement::RoundRobin.lists(5, 3).unwrap(), [vec![0, 3], vec![1, 4], vec![2]]);
    let table = vec![vec![2, 0], vec![1, 0]];
    assert_eq!(Placement::Table(table.clone()).lists(3, 2).unwrap(), table);
    let refused = |lists: &[&[usize]], words: &str| {
        let table = Placement::Table(lists.iter().map(|list| list.to_vec()).collect());
        let message = table.lists(3, 2).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(&[&[0, 1, 2]], "the number of lists of experts is 1, but the world size is 2");
    refused(&[&[0, 1], &[0]], "an expert that no rank has is 2");
    refused(&[&[0, 1, 0], &[2]], "an expert of rank 0, listed twice, is 0");
    refused(&[&[0, 1], &[2, 3]], "an expert of rank 1 is 3, but there are 3");
}

#[test]
fn backends_have_names() {
    let config = || ExpertConfig::new(8, 2, 64, 16);
    for (name, method, layout) in [
        ("naive", Method::Broadcast, Layout::ByRank),
        ("allgather_reducescatter", Method::Gather, Layout::ByRank),
        ("mori", Method::Direct, Layout::ByRank),
        ("deepep_high_throughput", Method::Direct, Layout::ByRank),
        ("deepep_low_latency", Method::Packets, Layout::Padded { rows: 16 * 4 }),
    ] {
        let named = config().backend(name, 4).unwrap();
        assert_eq!((named.method, named.layout), (method, layout), "{name}");
    }
    let message = config().backend("pplx", 4).unwrap_err().to_string();
    assert!(message.contains("the backend is pplx") && BACKENDS.iter().all(|name| message.contains(name)), "{message}");
}
