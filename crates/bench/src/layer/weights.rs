//! Random numbers, and the weights of the layers that one rank has.

use std::hash::Hash;

use symmetra::half::bf16;
use symmetra::{Communicator, DeviceBuffer, Stream};

use super::shape::{Half, LayerShape};
use crate::pattern::Pattern;

/// Random numbers of `elems` elements, between `middle - size` and `middle + size`.
pub(super) fn spread(drawn_from: impl Hash, elems: usize, [middle, size]: [f32; 2]) -> Pattern<bf16> {
    Pattern::new(drawn_from, elems, |random| bf16::from_f32(middle + size * (2.0 * random.f32() - 1.0)))
}

/// The random numbers of one rank for all layers: numbers of halves count on from layer to layer.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    pub(super) seed: u64,
    pub(super) shape: LayerShape,
    pub(super) rank: usize,
    pub(super) ranks: usize,
}

impl Drawn {
    pub(super) fn half(self, number: usize) -> Half {
        self.shape.halves(self.ranks)[number % 2]
    }

    /// The right factors of a half, `[N][K]`: column after column. An element of a result has a variance of about 1.
    pub(super) fn factors(self, number: usize) -> [Pattern<bf16>; 2] {
        let Half { first, second } = self.half(number);
        let size = |inner: usize| (3.0 / inner as f32).sqrt();
        let of = |which: &str, elems, size| spread((self.seed, which, number, self.rank), elems, [0.0, size]);
        [
            of("first", first.inner * first.columns, size(first.inner)),
            of("second", second.inner * second.columns, size(second.inner * self.ranks)),
        ]
    }

    /// The weight of the norm after a half, equal on all ranks.
    pub(super) fn norm(self, number: usize) -> Vec<bf16> {
        let hidden = self.shape.hidden;
        spread((self.seed, "norm", number), hidden, [1.0, 0.5]).elems(0..hidden)
    }
}

/// The weights of a half.
pub(super) struct HalfWeights {
    pub(super) first: DeviceBuffer<bf16>,
    pub(super) second: DeviceBuffer<bf16>,
    pub(super) norm: DeviceBuffer<bf16>,
}

/// The weights of `layers` layers: each layer has its own, so that none is in a cache when its layer begins.
pub(super) fn weights(
    drawn: Drawn,
    layers: u32,
    communicator: &Communicator,
    stream: &Stream,
) -> symmetra::Result<Vec<HalfWeights>> {
    let of_half = |number| {
        let Half { first, second } = drawn.half(number);
        let [firsts, seconds] = drawn.factors(number);
        let matrix = |pattern: &Pattern<bf16>, elems| {
            let buffer = DeviceBuffer::new(communicator.device(), elems)?;
            buffer.write(&pattern.elems(0..elems), stream)?;
            Ok::<_, symmetra::Error>(buffer)
        };
        Ok(HalfWeights {
            first: matrix(&firsts, first.inner * first.columns)?,
            second: matrix(&seconds, second.inner * second.columns)?,
            norm: DeviceBuffer::from_slice(&drawn.norm(number), stream)?,
        })
    };
    (0..2 * layers as usize).map(of_half).collect()
}
