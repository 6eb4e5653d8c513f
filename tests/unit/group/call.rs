//! Tests of `src/group/call.rs`, whose module they are.

use super::*;
use crate::kernel::args;
use crate::types::{WAY_COPY_ENGINES, WAY_LEARNED};

#[test]
fn a_call_reads_as_it_was_packed() {
    let call = EnqueuedCall::new(64, args::kOpAllReduce, Dtype::BF16, Reduction::Max, args::kTwoShotSentinel, 1);
    assert_eq!(call.to_string(), "all-reduce (max) of 64 bytes of bf16 by two-shot-sentinel");
    assert_eq!(call.descriptor >> 32, 1);
    let quantised =
        EnqueuedCall::new(64, args::kOpAllReduce, Dtype::BF16, Reduction::Sum, 1, args::kCodecInt6 << CODEC_SHIFT);
    assert_eq!(quantised.to_string(), "all-reduce (sum) of 64 bytes of bf16 by one-shot-sentinel in int6");
    let at = |[input, output]: [u64; 2]| call.at([Some(input), Some(output), None, None]);
    assert_eq!(at([64, 128]), at([64, 128]));
    for others in [[128, 64], [64, 64], [0, 0], [1 << 40, 128]] {
        assert!(!at([64, 128]).compares_as(&at(others)), "{others:?}");
    }
    let words = call.to_string();
    assert_eq!(at([64, 128]).in_full(), format!("{words}, input at offset 64, output at offset 128"));
    assert_eq!(
        call.at([None, Some(0), None, Some(7)]).in_full(),
        format!("{words}, output at offset 0, scales at offset 7")
    );
    assert_eq!(call.in_form(1), call);
    assert_eq!(call.tagged(0), call);
    for [one, other] in [
        [call.in_form(2), call.in_form(4)],
        [call.in_form(2), call.tagged(2)],
        [call.tagged(1), call.tagged(2)],
        [call.in_form(2).at([Some(64); 4]), call.at([Some(64); 4])],
    ] {
        assert!(!one.compares_as(&other), "{} and {}", one.in_full(), other.in_full());
    }
    let all = at([64, 128]).in_form(20).tagged(3);
    assert_eq!(all.to_string(), words);
    assert_eq!(all.in_full(), format!("{words}, settings 14, input at offset 64, output at offset 128, tag 3"));
    assert_eq!(EnqueuedCall::from_words(all.words()), all);
    // Where only the words of a kernel are known.
    let seen = EnqueuedCall::of_kernel(all.bytes, all.descriptor);
    assert!(seen.compares_as(&all) && seen.in_full().starts_with(&format!("{words}, settings and operands ")));
    let call = EnqueuedCall::new(64, 200, Dtype::F32, Reduction::Sum, 0, 0);
    assert_eq!(call.to_string(), "operation 200 of 64 bytes of f32 by packets");
    let ways = [
        (args::kExchangePackets, "packets"),
        (args::kExchangePush, "direct access"),
        (args::kExchangeRelay, "direct relay"),
        (args::kReducePackets, "packets"),
        (args::kReducePull, "direct access"),
        (args::kRelayPackets, "relayed packets"),
        (args::kReduceSentinels, "sentinel packets"),
        (args::kExchangeEscaped, "escaped packets"),
        (WAY_LEARNED, "packets or direct access"),
        (WAY_COPY_ENGINES | 2, "copy engines"),
        (0x40, "?"),
    ];
    for (way, name) in ways {
        let call = EnqueuedCall::new(8, Operation::AllGather.number(), Dtype::U64, Reduction::Sum, way, 0);
        assert_eq!(call.is_counted(), name != "copy engines", "{name}");
        assert_eq!(call.to_string(), format!("all-gather of 8 bytes of u64 by {name}"));
    }
    let norm =
        |rest| EnqueuedCall::new(8, args::kOpAllReduceNorm, Dtype::F16, Reduction::Sum, args::kTwoShotSentinel, rest);
    assert_eq!(norm(0).to_string(), "all-reduce-norm of 8 bytes of f16 by two-shot-sentinel");
    assert_eq!(norm(FUSED).to_string(), "all-reduce-norm of 8 bytes of f16 in one kernel by two-shot-sentinel");
    let call = EnqueuedCall::new(0, Operation::Reduce.number(), Dtype::I8, Reduction::Min, WAY_NOTHING, 5);
    assert_eq!(call.to_string(), "reduce (min) of root 5 of 0 bytes of i8");
    let nccl = EnqueuedCall::new(8, Operation::Reduce.number(), Dtype::I8, Reduction::Min, BY_NCCL, 5);
    assert!(!call.is_counted() && !nccl.is_counted());
}
