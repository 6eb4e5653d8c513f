//! Tests of `src/matmul/multiplier.rs`, whose module they are.

use super::*;
use crate::matmul::Numeric;
use crate::stream::Stream;

/// The owner may destroy the stream after the call: the multiplier does not keep it. A stream of the library's own is kept.
#[test]
fn a_borrowed_stream_is_left_behind_each_product() {
    let device = Device::host().unwrap();
    let multiplier = Multiplier::new(&device).unwrap();
    let GemmEngine::Host(order) = &multiplier.0.engine else { panic!("{multiplier:?}") };
    let [borrowed, again] = [(); 2].map(|()| Stream::with_handle(&device, 7).unwrap());
    let own = Stream::new(&device).unwrap();
    let result = DeviceBuffer::<f32>::new(&device, 1).unwrap();
    for (stream, kept) in [(&borrowed, false), (&again, false), (&own, true), (&borrowed, false)] {
        let [left, right] = [3f32, 4.0].map(|value| DeviceBuffer::from_slice(&[value], stream).unwrap());
        let operands = [&left, &right, &result].map(Tensor::of);
        multiplier.enqueue(&Product::new(1, 1, Numeric::F32), 1, operands, stream).unwrap();
        assert_eq!(order.lock().last().is_some_and(|last| last.is_clone_of(stream)), kept);
        assert_eq!(order.lock().last().is_some(), kept);
        assert_eq!(result.read(stream).unwrap(), [12.0]);
    }
}
