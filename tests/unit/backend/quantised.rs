//! Tests of `src/backend/quantised.rs`, whose module they are.

use super::*;
use crate::group::TunedCodec;

fn tuning() -> Tuning {
    let codec = |codec: Codec, from_bytes| TunedCodec { world_size: 4, codec: codec.name().to_owned(), from_bytes };
    Tuning {
        kind: "host".to_owned(),
        codecs: vec![codec(Codec::Int8, Some(4096)), codec(Codec::Fp8, None)],
        ..Tuning::default()
    }
}

#[test]
fn the_smallest_message_is_the_one_that_was_found() {
    let tuned = |setting: QuantisedAllReduce, kind, world| setting.tuned(Some(&tuning()), kind, world);
    let int8 = QuantisedAllReduce::new(Codec::Int8);
    assert_eq!(tuned(int8, DeviceKind::Host, 4).unwrap().bytes(), 4096..=u64::MAX);
    let set = QuantisedAllReduce { min_bytes: Some(7), ..int8 };
    assert_eq!(tuned(set, DeviceKind::Host, 4), Ok(set));
    // Nothing was measured.
    let int4 = QuantisedAllReduce::new(Codec::Int4);
    for (setting, kind, world) in
        [(int8, DeviceKind::Cuda, 4), (int8, DeviceKind::Host, 3), (int4, DeviceKind::Host, 4)]
    {
        assert_eq!(tuned(setting, kind, world), Ok(setting));
    }
    assert_eq!(int8.tuned(None, DeviceKind::Host, 4), Ok(int8));
}

#[test]
fn a_codec_that_was_never_faster_serves_nothing() {
    let tuned = |setting: QuantisedAllReduce| setting.tuned(Some(&tuning()), DeviceKind::Host, 4).unwrap_err();
    let never = tuned(QuantisedAllReduce::new(Codec::Fp8));
    assert_eq!(never, "the tuning has no size at which fp8 was faster");
    let short = tuned(QuantisedAllReduce { max_bytes: Some(100), ..QuantisedAllReduce::new(Codec::Int8) });
    assert_eq!(short, "the tuning has int8 from 4096 bytes, and it is set to end at 100");
}

#[test]
fn an_end_below_the_usual_smallest_message_waits_for_a_tuning() {
    let setting = QuantisedAllReduce { max_bytes: Some(1 << 20), ..QuantisedAllReduce::new(Codec::Int8) };
    setting.validate().unwrap();
    let tuned = setting.tuned(Some(&tuning()), DeviceKind::Host, 4).unwrap();
    assert_eq!(tuned.bytes(), 4096..=1 << 20);
    let words = "int8 begins at 2097152 bytes, and it is set to end at 1048576";
    assert_eq!(setting.tuned(None, DeviceKind::Host, 4).unwrap_err(), words);
    QuantisedAllReduce { min_bytes: Some((1 << 20) + 1), ..setting }.validate().unwrap_err();
}
