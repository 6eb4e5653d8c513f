//! The steps of a layer other than single collectives: GEMMs, norms and calls of plans.

use symmetra::fused::{AllGatherMatmul, MatmulAllReduce, MatmulReduceScatter};
use symmetra::half::bf16;
use symmetra::matmul::{Multiplier, Product, Tensor};
use symmetra::{AnyQueue, Communicator, DeviceBuffer, Ref, RowNorm, SymmetricSlice};

use super::NORM;
use harness::comparison::work::Work;
use harness::form::Form;

/// A call with its operands.
pub(super) enum LayerCall<'s> {
    Multiply {
        multiplier: &'s Multiplier,
        product: Product,
        rows: usize,
        left: Ref<'s, bf16>,
        right: &'s DeviceBuffer<bf16>,
        result: Ref<'s, bf16>,
    },
    /// The sum over the ranks of `communicator`, the residual and the norm.
    Norm {
        communicator: &'s Communicator,
        form: Form,
        input: SymmetricSlice<'s, bf16>,
        weight: &'s DeviceBuffer<bf16>,
        residual: Ref<'s, bf16>,
        residual_out: Ref<'s, bf16>,
        output: SymmetricSlice<'s, bf16>,
    },
    GatherMultiply {
        plan: &'s AllGatherMatmul,
        shard: SymmetricSlice<'s, bf16>,
        right: &'s DeviceBuffer<bf16>,
        result: Ref<'s, bf16>,
    },
    MultiplyScatter {
        plan: &'s MatmulReduceScatter,
        left: Ref<'s, bf16>,
        right: &'s DeviceBuffer<bf16>,
        result: SymmetricSlice<'s, bf16>,
    },
    MultiplySum {
        plan: &'s MatmulAllReduce,
        left: Ref<'s, bf16>,
        right: &'s DeviceBuffer<bf16>,
        result: SymmetricSlice<'s, bf16>,
    },
}

impl<'s> LayerCall<'s> {
    pub(super) fn work(self) -> Work<'s> {
        Box::new(move |queue| self.call(queue))
    }

    fn call(&self, queue: AnyQueue<'_, 's>) -> symmetra::Result<()> {
        match self {
            Self::Multiply { multiplier, product, rows, left, right, result } => {
                let operands = [Tensor::of(left), Tensor::of(*right), Tensor::of(result)];
                multiplier.enqueue(product, *rows, operands, queue)
            }
            Self::Norm { communicator, form, input, weight, residual, residual_out, output } => {
                let rows = RowNorm::new(*input, *weight, NORM).residual(residual).residual_out(residual_out);
                form.enqueue(communicator, rows.output(*output), queue)
            }
            Self::GatherMultiply { plan, shard, right, result } => {
                plan.enqueue(Tensor::of(*shard), None, [(Tensor::of(*right), Tensor::of(result))], queue)
            }
            Self::MultiplyScatter { plan, left, right, result } => {
                plan.enqueue(Tensor::of(left), Tensor::of(*right), Tensor::of(*result), queue)
            }
            Self::MultiplySum { plan, left, right, result } => {
                plan.enqueue(Tensor::of(left), Tensor::of(*right), Tensor::of(*result), queue)
            }
        }
    }
}
