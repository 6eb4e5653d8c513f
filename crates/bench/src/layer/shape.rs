//! The shape of a decoder layer, and the GEMMs of one rank.

use serde::{Deserialize, Serialize};
use symmetra::matmul::{Numeric, Product};

use harness::failure::CommandFailure;

/// The sizes of a dense decoder layer, on all ranks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerShape {
    pub(super) hidden: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) intermediate: usize,
}

/// A half of a layer: the two GEMMs before one sum over the ranks. Ranks have columns of the first right factor and
/// rows of the second. The left factor of the second GEMM is the first elements of the first result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Half {
    pub(super) first: Product,
    pub(super) second: Product,
}

/// The names of the GEMMs of a layer, in their order.
pub(super) const PRODUCTS: [&str; 4] = ["qkv", "o", "gate_up", "down"];

impl LayerShape {
    /// Refuses sizes that ranks cannot share equally.
    pub(super) fn check(self, ranks: usize) -> Result<(), CommandFailure> {
        let Self { hidden, heads, kv_heads, intermediate } = self;
        if !hidden.is_multiple_of(heads) {
            return Err(CommandFailure::usage(format!(
                "--hidden: {heads} heads cannot share {hidden} elements equally"
            )));
        }
        for (option, size) in [("--heads", heads), ("--kv-heads", kv_heads), ("--intermediate", intermediate)] {
            if !size.is_multiple_of(ranks) {
                return Err(CommandFailure::usage(format!("{option}: {ranks} ranks cannot share {size} equally")));
            }
        }
        Ok(())
    }

    /// The GEMMs of a rank: attention without its core, and the MLP.
    pub(super) fn halves(self, ranks: usize) -> [Half; 2] {
        let Self { hidden, heads, kv_heads, intermediate } = self;
        let head = hidden / heads;
        let product = |inner, columns| Product::new(inner, columns, Numeric::BF16);
        let mut gate_up = product(hidden, 2 * intermediate / ranks);
        gate_up.relu = true;
        [
            Half {
                first: product(hidden, (heads + 2 * kv_heads) / ranks * head),
                second: product(heads / ranks * head, hidden),
            },
            Half { first: gate_up, second: product(intermediate / ranks, hidden) },
        ]
    }
}
