//! Tests of `src/collective/multicast.rs`, whose module they are.

use super::*;

const BOTH: [Algorithm; 2] = Algorithm::MULTICAST;
const F8: [Dtype; 2] = [Dtype::F8E4M3, Dtype::F8E5M2];

#[test]
fn only_8_bit_floats_ask_more_of_devices() {
    for dtype in Dtype::ALL {
        assert_eq!(unable(dtype, true), None);
        let why = unable(dtype, false);
        assert_eq!(why.is_some(), F8.contains(&dtype));
        assert!(
            why.is_none_or(|why| ["10.0", "10.3", "100a", "103a"].iter().all(|word| why.contains(word))),
            "{why:?}"
        );
    }
}

#[test]
fn sums_of_8_bit_floats_are_never_exact() {
    let kinds = [DeviceKind::Host, DeviceKind::Cuda];
    for (algorithm, kind) in BOTH.into_iter().flat_map(|algorithm| kinds.map(|kind| (algorithm, kind))) {
        let of = |world, dtype| allowance(algorithm, kind, world, dtype);
        assert_eq!([of(2, Dtype::BF16), of(8, Dtype::U32)], [Determinism::Exact; 2]);
        for dtype in F8 {
            assert_eq!(of(2, dtype), Determinism::PerAlgorithm);
            assert_eq!(of(3, dtype), of(3, Dtype::BF16));
            assert!(of(3, dtype) < Determinism::Exact);
        }
    }
}

#[test]
fn the_library_never_chooses_multicast_for_8_bit_floats() {
    for kind in [DeviceKind::Host, DeviceKind::Cuda] {
        let from = |dtype| from_bytes(kind, 8, dtype, Determinism::Free);
        assert!(F8.iter().all(|dtype| Algorithm::MulticastTwoShot.carries(*dtype) && from(*dtype).is_none()));
        assert!(from(Dtype::BF16).is_some());
    }
}
