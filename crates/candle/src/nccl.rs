//! NCCL through cudarc's class, in place of symmetra, for comparisons of the same layers.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::cuda::cudarc::driver::CudaView;
use candle_core::cuda::cudarc::nccl::result::NcclError;
use candle_core::cuda::cudarc::nccl::safe::{Comm, Id, NcclType, ReduceOp};
use candle_core::{DType, Device, Error, Result, Tensor};
use symmetra::How;
use symmetra::half::{bf16, f16};
use symmetra::op::{ALL_GATHER, ALL_REDUCE, Op};

use crate::collective::Rank;
use crate::cuda::{Memory, Value, with_view};
use crate::error::wrap;

/// A rank of a communicator of NCCL.
pub(crate) struct Nccl {
    comm: Mutex<SendComm>,
    rank: Arc<Rank>,
}

/// cudarc's class, which may move between threads.
struct SendComm(Comm);

// SAFETY: NCCL allows calls of a communicator from any thread, one call at a time. The mutex of `Nccl` serialises the calls.
unsafe impl Send for SendComm {}

impl Nccl {
    /// Opens the communicator. Rank 0 makes the id, whose bytes `broadcast` copies to the other ranks.
    pub(crate) fn open(rank: &Arc<Rank>, broadcast: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let Device::Cuda(cuda) = &rank.device else {
            return Err(unsupported("a tensor on the CPU"));
        };
        let [own, ranks] = [rank.communicator.rank(), rank.communicator.world_size()];
        let id = match own {
            0 => *Id::new().map_err(failed)?.internal(),
            _ => [0; 128],
        };
        let bytes = broadcast(&Tensor::new(&id.map(|byte| byte as u8), &rank.device)?)?.to_vec1::<u8>()?;
        let mut id = [0; 128];
        id.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte as std::ffi::c_char);
        let comm = Comm::from_rank(cuda.cuda_stream(), own, ranks, Id::uninit(id)).map_err(failed)?;
        Ok(Self { comm: Mutex::new(SendComm(comm)), rank: rank.clone() })
    }

    /// A sum, or a gather along a dimension: NCCL gathers along the first, and candle moves the parts of the ranks.
    pub(crate) fn apply(&self, op: &'static Op, how: &How<'_>, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        match how.along {
            Some((dim, dims)) if op.operation == ALL_GATHER.operation => {
                let gathered = self.run(op, x, &[&[shape[dim] / dims[dim].max(1)], dims].concat())?;
                let order: Vec<usize> = (1..=dim).chain([0]).chain(dim + 1..=dims.len()).collect();
                gathered.permute(order)?.reshape(shape)
            }
            None if op.operation == ALL_REDUCE.operation => self.run(op, x, shape),
            _ => Err(unsupported(op.operation.name())),
        }
    }

    fn run(&self, op: &'static Op, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        match x.dtype() {
            DType::F32 => self.run_as::<f32>(op, x, shape),
            DType::F16 => self.run_as::<f16>(op, x, shape),
            DType::BF16 => self.run_as::<bf16>(op, x, shape),
            other => Err(unsupported(other.as_str())),
        }
    }

    fn run_as<T: Value + NcclType>(&self, op: &'static Op, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let memory = Memory::new(&self.rank, x.device().as_cuda_device()?)?;
        let mut output = memory.room::<T>(shape.iter().product())?;
        with_view(x, |input: CudaView<'_, T>| {
            let comm = &self.comm.lock().unwrap_or_else(PoisonError::into_inner).0;
            let called = match op.operation == ALL_REDUCE.operation {
                true => comm.all_reduce(&input, &mut output, &ReduceOp::Sum),
                false => comm.all_gather(&input, &mut output),
            };
            called.map(drop).map_err(failed)
        })?;
        Ok(memory.tensor(output, shape))
    }
}

/// The error for a call that a group over NCCL does not have.
pub(crate) fn unsupported(what: &str) -> Error {
    let reason = "a group over NCCL has sums and gathers of f32, f16 and bf16 on GPUs".to_owned();
    wrap(symmetra::Error::Unsupported { what: what.to_owned(), reason })
}

/// The error of a call of NCCL.
fn failed(error: NcclError) -> Error {
    Error::Cuda(format!("NCCL: {error:?}").into()).bt()
}
