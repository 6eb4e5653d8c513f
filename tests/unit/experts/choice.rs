//! Tests of `src/experts/choice.rs`, whose module they are.

use super::*;
use crate::experts::Layout;
use crate::experts::{ExpertConfig, Wire, expert_bytes, expert_method};
use crate::group::{TunedExperts, TunedRow};

const KINDS: [DeviceKind; 3] = [DeviceKind::Host, DeviceKind::Cuda, DeviceKind::Hip];

/// Settings that give the heap room for everything.
fn roomy() -> Config {
    Config { heap_bytes: 1 << 40, ..Config::default() }
}

fn form(config: &ExpertConfig, world: usize) -> ExpertForm {
    ExpertForm::new(config, 0, &config.placement.lists(config.experts, world).unwrap()).unwrap()
}

/// The choice on GPUs.
fn on_gpus(world: usize, group: &Config, config: &ExpertConfig) -> MethodChoice {
    chosen(MethodFacts { kind: DeviceKind::Cuda, own_kernels: true, group }, config, &form(config, world)).unwrap()
}

fn tuning(kind: DeviceKind, rows: &[(Option<u64>, &str)]) -> Tuning {
    let row = |(up_to_bytes, algorithm): &(_, &str)| TunedRow {
        up_to_bytes: *up_to_bytes,
        algorithm: (*algorithm).to_owned(),
    };
    let rows = rows.iter().map(row).collect();
    Tuning {
        kind: kind.name().to_owned(),
        experts: vec![TunedExperts { world_size: 4, experts: 8, top_k: 2, hidden: 64, rows }],
        ..Tuning::default()
    }
}

#[test]
fn built_in_packets_serve_until_the_predicted_times_are_equal() {
    // 10.4 us / 2.66 us, 12.2 us / 3.92 us and 13.8 us / 4.68 us of a megabyte.
    for (world, bytes) in [(2, 3_909_774), (4, 3_112_244), (8, 2_948_717), (16, 2_948_717)] {
        for kind in KINDS {
            let ranges = explain_experts(kind, world, None).unwrap();
            let limit = if kind == DeviceKind::Host { packets_up_to_bytes(kind, world) } else { bytes };
            let methods: Vec<_> = ranges.iter().map(|range| (range.up_to_bytes, range.choice)).collect();
            assert_eq!(methods, [(limit, Method::Packets), (u64::MAX, Method::Direct)]);
            let words = match (kind, world) {
                (DeviceKind::Host, _) => "measured with 2 ranks on a CPU",
                (DeviceKind::Cuda, 2) => "confirmed by measurements on two H100",
                _ => "this number of GPUs was not measured",
            };
            assert!(ranges.iter().all(|range| range.reason.contains(words)), "{ranges:?}");
        }
    }
}

#[test]
fn packets_for_decode_and_direct_access_for_prefill() {
    let group = roomy();
    let serves = |world, tokens| on_gpus(world, &group, &ExpertConfig::new(256, 8, 7168, tokens));
    for world in [2, 4, 8] {
        for tokens in [1, 32, 128] {
            let choice = serves(world, tokens);
            assert_eq!(choice.method, Method::Packets, "{world} ranks, {tokens} tokens");
            let words = format!("at most {} bytes: built-in, from predicted times", tokens * 7168 * 2);
            assert!(choice.reason.contains(&words), "{}", choice.reason);
        }
        assert_eq!(serves(world, 1024).method, Method::Direct);
    }
    // The bytes of a row count: codes have half of them.
    let mut codes = ExpertConfig::new(256, 8, 7168, 380);
    assert_eq!(on_gpus(8, &group, &codes).method, Method::Direct);
    codes.wire = Wire::GivenF8;
    assert_eq!(on_gpus(8, &group, &codes).method, Method::Packets);
}

#[test]
fn direct_access_serves_what_packets_cannot() {
    let group = roomy();
    let most = ExpertConfig::new(64, 1, 8, 1024);
    assert_eq!(on_gpus(8, &group, &most).method, Method::Packets);
    let choice = on_gpus(8, &group, &ExpertConfig { max_tokens: 1025, ..most });
    assert_eq!((choice.method, choice.reason.contains("8200, and at most 8192")), (Method::Direct, true));
    let choice = on_gpus(2, &group, &ExpertConfig::new(2049, 1, 8, 1));
    assert_eq!((choice.method, choice.reason.contains("2049")), (Method::Direct, true));
    // Without room in the heap for the region of packets.
    let small = ExpertConfig::new(256, 8, 7168, 128);
    let bytes = expert_bytes(4, &group, &ExpertConfig { method: Method::Packets, ..small.clone() }).unwrap();
    for (heap_bytes, method) in [(bytes, Method::Packets), (bytes - 1, Method::Direct)] {
        let choice = on_gpus(4, &Config { heap_bytes, ..Config::default() }, &small);
        assert_eq!((choice.method, choice.reason.contains("of the heap")), (method, method == Method::Direct));
    }
    // Exact sums take more room: every result is sent.
    let exact = Config { heap_bytes: bytes, determinism: Determinism::Exact, ..Config::default() };
    let by_expert = ExpertConfig { layout: Layout::ByExpert { align: 1 }, ..small.clone() };
    assert_eq!(on_gpus(4, &exact, &small).method, Method::Packets);
    assert_eq!(on_gpus(4, &exact, &by_expert).method, Method::Direct);
}

#[test]
fn other_backends_and_a_rank_alone_gather() {
    let (group, config) = (roomy(), ExpertConfig::new(8, 2, 64, 4));
    let others = MethodFacts { kind: DeviceKind::Host, own_kernels: false, group: &group };
    assert_eq!(chosen(others, &config, &form(&config, 4)).unwrap().method, Method::Gather);
    assert_eq!(on_gpus(1, &group, &config), MethodChoice { method: Method::Gather, reason: ALONE.to_owned() });
    for asked in [Method::Packets, Method::Direct] {
        let config = ExpertConfig { method: asked, ..config.clone() };
        assert!(matches!(chosen(others, &config, &form(&config, 4)), Err(Error::Unsupported { .. })));
        assert_eq!(on_gpus(4, &group, &config).method, asked);
    }
}

#[test]
fn a_tuning_of_the_device_and_the_world_size_decides() {
    // 128 bytes a row, 2 tokens.
    let config = ExpertConfig::new(8, 2, 64, 2);
    for (rows, method) in [
        (&[(Some(256), "packets"), (None, "direct")][..], Method::Packets),
        (&[(Some(255), "packets"), (None, "direct")], Method::Direct),
        (&[(Some(256), "direct"), (None, "packets")], Method::Direct),
        (&[(None, "direct")], Method::Direct),
    ] {
        let group = Config { tuning: Some(tuning(DeviceKind::Cuda, rows)), ..roomy() };
        let choice = on_gpus(4, &group, &config);
        assert_eq!((choice.method, choice.reason.contains("symmetra tune")), (method, true), "{choice:?}");
        assert_eq!(expert_method(DeviceKind::Cuda, 4, true, &group, &config), Ok(method));
        // The built-in table serves worlds and devices that the tuning does not have.
        assert_eq!(on_gpus(2, &group, &config).method, Method::Packets);
        assert_eq!(expert_method(DeviceKind::Hip, 4, true, &group, &config), Ok(Method::Packets));
    }
    let group = Config { tuning: Some(tuning(DeviceKind::Cuda, &[(None, "gather")])), ..roomy() };
    let message = expert_method(DeviceKind::Cuda, 4, true, &group, &config).unwrap_err().to_string();
    assert!(message.contains("a tuned method of experts is gather, but it must be packets or direct"), "{message}");
}

/// Every method that the library may choose fits the heap bytes that `expert_bytes` reports.
#[test]
fn the_heap_has_room_for_any_choice() {
    for tokens in [1, 100, 300, 1000, 4000] {
        for world in [1, 2, 3, 8] {
            for exact in [Determinism::PerAlgorithm, Determinism::Exact] {
                let tuned = [None, Some(tuning(DeviceKind::Cuda, &[(None, "packets")]))];
                for tuning in tuned {
                    let group = Config { tuning, determinism: exact, ..roomy() };
                    let mut config = ExpertConfig::new(64, 4, 2048, tokens);
                    config.layout = Layout::ByExpert { align: 1 };
                    let bytes = expert_bytes(world, &group, &config).unwrap();
                    for kind in KINDS {
                        let method = expert_method(kind, world, true, &group, &config).unwrap();
                        config.method = method;
                        assert!(expert_bytes(world, &group, &config).unwrap() <= bytes, "{method:?}");
                        config.method = Method::Auto;
                    }
                }
            }
        }
    }
}
