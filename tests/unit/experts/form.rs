//! Tests of `src/experts/form.rs`, whose module they are.

use super::*;
use crate::experts::{Method, Placement};
use crate::group::{Config, Determinism};

fn form(config: &ExpertConfig, world: usize, rank: usize) -> ExpertForm {
    let lists = config.placement.lists(config.experts, world).unwrap();
    ExpertForm::new(config, rank, &lists).unwrap()
}

#[test]
fn a_table_says_where_copies_are() {
    // Experts 0, 1, 2 on two ranks; expert 0 on both, so each rank takes its own copy.
    let lists = [vec![2, 0], vec![1, 0]];
    let one = 1 << 20;
    let (firsts, choices) = ([0, 2, 4], [0; 4]);
    assert_eq!(table(&lists, 0, 3), [&firsts[..], &[one | 1, one | 1 << 16 | 2, one], &choices].concat());
    assert_eq!(table(&lists, 1, 3), [&firsts[..], &[one | 1 << 16 | 3, one | 1 << 16 | 2, one], &choices].concat());
    // A rank without a copy of expert 0 takes both in turn.
    let words = [0, 1, 2, 3, 2 << 20, one | 2 << 16 | 2, 0, 1 << 16 | 1, 0];
    assert_eq!(table(&[vec![0], vec![0], vec![1]], 2, 2), words);
}

#[test]
fn sizes_of_a_model() {
    let mut config = ExpertConfig::new(256, 8, 7168, 128);
    config.wire = Wire::F8(Scales::F32);
    let first = form(&config, 8, 0);
    assert_eq!((first.replicas, first.local, first.first_replica, first.groups), (256, 32, 0, 56));
    assert_eq!((first.payload_bytes, first.scales_offset, first.row_bytes), (7168, 7168, 7168 + 224));
    assert_eq!((first.part_bytes, first.capacity), (7168 * 2, 8 * 128));
    assert_eq!(form(&config, 8, 3).first_replica, 96);
    config.wire = Wire::F8(Scales::E8M0);
    assert_eq!(form(&config, 8, 0).row_bytes, 7168 + 64);
    config.layout = Layout::ByExpert { align: 16 };
    assert_eq!(form(&config, 8, 0).capacity, 8 * 128 * 8 + 32 * 15);
    config.capacity = Some(500);
    assert_eq!(form(&config, 8, 0).capacity, 500);
    config.layout = Layout::Padded { rows: 64 };
    assert_eq!((form(&config, 8, 0).capacity, form(&config, 8, 0).most_rows), (64 * 32, 64));
}

/// Every expert may leave rows free, at any capacity.
#[test]
fn aligned_rows_are_counted_in_32_bits() {
    let mut config = ExpertConfig::new(65_534, 1, 1, 300_000);
    (config.layout, config.capacity) = (Layout::ByExpert { align: 1 << 16 }, Some(1000));
    let lists = config.placement.lists(config.experts, 1).unwrap();
    let message = ExpertForm::new(&config, 0, &lists).unwrap_err().to_string();
    let words = "the number of aligned rows that may come at worst is 4295070690, but kernels count up to 4294967295";
    assert!(message.contains(words), "{message}");
    // At most one expert for each pair has rows.
    config.max_tokens = 60_000;
    assert_eq!(form(&config, 1, 0).capacity, 1000);
}

/// The parts of a head and of a region follow each other, at whole packets.
#[test]
fn nothing_overlaps() {
    for (experts, top_k, hidden, max_tokens, world) in
        [(1, 1, 1, 1, 1), (5, 3, 7, 9, 3), (257, 22, 129, 33, 5), (60, 64, 2880, 17, 16)]
    {
        let mut config = ExpertConfig::new(experts, top_k, hidden, max_tokens);
        config.placement = Placement::RoundRobin;
        config.in_flight = 3;
        for wire in [Wire::Same, Wire::F8(Scales::E8M0), Wire::GivenF8, Wire::Bytes(5)] {
            config.wire = wire;
            let form = form(&config, world, world - 1);
            let pairs = max_tokens * top_k;
            assert!(form.replicas_offset >= size_of::<args::RoutingHeader>() + 4 * (form.replicas + world));
            assert!(form.weights_offset >= form.replicas_offset + 2 * pairs);
            assert!(form.header_bytes >= form.weights_offset + 4 * pairs);
            assert!(
                [form.header_bytes, form.row_bytes, form.part_bytes, form.scales_offset]
                    .iter()
                    .all(|bytes| bytes % 16 == 0)
            );
            assert!(form.headers_at(1) >= world * form.header_bytes);
            assert!(form.parts_at(3) - form.rows_at(3) >= world * max_tokens * form.row_bytes.max(form.part_bytes));
            for (method, comes) in [(Method::Gather, true), (Method::Broadcast, true), (Method::Direct, world == 1)] {
                let parts = form.region_bytes(3, method) - form.parts_at(3);
                assert_eq!(parts > 0, comes, "{method:?}");
                assert!(!comes || parts >= world * max_tokens * form.part_bytes);
            }
            config.method = Method::Packets;
            assert!(crate::experts::expert_bytes(world, &Config::default(), &config).unwrap() > 0);
        }
    }
}

/// Settings without a determinism have the group's determinism; if it is exact, every result is sent.
#[test]
fn the_group_says_what_bits_depend_on() {
    let bytes = |of_group, of_experts| {
        let mut config = ExpertConfig::new(8, 4, 64, 16);
        (config.method, config.layout) = (Method::Packets, Layout::ByExpert { align: 1 });
        config.determinism = of_experts;
        let group = Config { determinism: of_group, ..Config::default() };
        crate::experts::expert_bytes(2, &group, &config).unwrap()
    };
    let (any, exact) = (Determinism::PerAlgorithm, Determinism::Exact);
    assert!(bytes(exact, Some(exact)) > bytes(any, Some(any)));
    assert_eq!([bytes(exact, None), bytes(any, Some(exact))], [bytes(exact, Some(exact)); 2]);
    assert_eq!([bytes(any, None), bytes(exact, Some(any))], [bytes(any, Some(any)); 2]);
}
