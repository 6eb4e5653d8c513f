//! The sum of rows, a residual and a norm as one operation of candle.

use candle_core::backend::BackendStorage;
#[cfg(feature = "cuda")]
use candle_core::cuda::{CudaStorageSlice, cudarc::driver::CudaView};
use candle_core::{CpuStorage, CustomOp2, CustomOp3, Error, Layout, Result, Shape, Tensor, WithDType};
#[cfg(feature = "cuda")]
use candle_core::{CudaDevice, CudaStorage};
use symmetra::{DeviceBuffer, Element, RmsNorm, RowNorm};

use crate::collective::{Rank, contiguous, place, with_values};
#[cfg(feature = "cuda")]
use crate::cuda::{Memory, Value};
use crate::error::wrap;

/// The name in candle's errors.
const NAME: &str = "all_reduce_norm";

/// The rank and the settings of a norm. Its outputs are one tensor with a dimension more: the normed rows, then the rows
/// before the norm.
pub(crate) struct RowsNorm<'a> {
    pub(crate) rank: &'a Rank,
    pub(crate) epsilon: f32,
}

impl RowsNorm<'_> {
    /// The normed rows, and the rows before the norm.
    pub(crate) fn apply(&self, x: &Tensor, residual: Option<&Tensor>, weight: &Tensor) -> Result<(Tensor, Tensor)> {
        let unlike = |lhs: &Tensor, rhs: &Tensor| {
            let [lhs, rhs] = [lhs, rhs].map(|tensor| tensor.shape().clone());
            Error::ShapeMismatchBinaryOp { lhs, rhs, op: NAME }.bt()
        };
        if x.dims().last() != Some(&weight.dims1()?) {
            return Err(unlike(x, weight));
        }
        let (rows, weight) = (contiguous(x)?, contiguous(weight)?);
        let both = match residual {
            Some(residual) if residual.dims() != x.dims() => return Err(unlike(x, residual)),
            Some(residual) => rows.apply_op3_no_bwd(&weight, &contiguous(residual)?, self)?,
            None => rows.apply_op2_no_bwd(&weight, self)?,
        };
        Ok((both.get(0)?, both.get(1)?))
    }

    fn on_cpu(
        &self,
        rows: OperandStorage<'_>,
        weight: OperandStorage<'_>,
        residual: Option<OperandStorage<'_>>,
    ) -> Result<(CpuStorage, Shape)> {
        let shape = Shape::from([&[2][..], rows.layout.dims()].concat());
        let storage = rows.storage;
        let both = with_values!(CpuStorage, storage, storage.dtype(), values => {
            let residual = residual.map(|residual| residual.values()).transpose()?;
            self.run(&values[place(rows.layout, NAME)?], weight.values()?, residual).map_err(wrap)
        })?;
        Ok((both, shape))
    }

    fn run<T: Element + WithDType>(
        &self,
        rows: &[T],
        weight: &[T],
        residual: Option<&[T]>,
    ) -> symmetra::Result<CpuStorage> {
        let Rank { communicator, stream, .. } = self.rank;
        let buffer = |values: &[T]| DeviceBuffer::from_slice(values, stream);
        let (sum, normed) = (buffer(rows)?, DeviceBuffer::new(communicator.device(), rows.len())?);
        let (weight, residual) = (buffer(weight)?, residual.map(buffer).transpose()?);
        let call = RowNorm::new(&sum, &weight, RmsNorm::new(self.epsilon)).output(&normed).residual_out(&sum);
        let call = match &residual {
            Some(residual) => call.residual(residual),
            None => call,
        };
        communicator.all_reduce_norm(call, stream)?;
        communicator.synchronize(stream)?;
        let mut both = vec![T::zeroed(); 2 * rows.len()];
        let (first, second) = both.split_at_mut(rows.len());
        normed.read_into(first, stream)?;
        sum.read_into(second, stream)?;
        Ok(T::to_cpu_storage_owned(both))
    }
}

#[cfg(feature = "cuda")]
impl RowsNorm<'_> {
    fn on_cuda(
        &self,
        rows: OperandStorage<'_, CudaStorage>,
        weight: OperandStorage<'_, CudaStorage>,
        residual: Option<OperandStorage<'_, CudaStorage>>,
    ) -> Result<(CudaStorage, Shape)> {
        let shape = Shape::from([&[2][..], rows.layout.dims()].concat());
        let storage = rows.storage;
        let both = with_values!(CudaStorageSlice, &storage.slice, storage.dtype(), values => {
            let rows = values.slice(place(rows.layout, NAME)?);
            self.enqueue(&rows, storage.device(), weight, residual)
        })?;
        Ok((both, shape))
    }

    fn enqueue<T: Value>(
        &self,
        rows: &CudaView<'_, T>,
        cuda: &CudaDevice,
        weight: OperandStorage<'_, CudaStorage>,
        residual: Option<OperandStorage<'_, CudaStorage>>,
    ) -> Result<CudaStorage> {
        let (memory, elems) = (Memory::new(self.rank, cuda)?, rows.len());
        let mut both = memory.room::<T>(2 * elems)?;
        {
            let (mut normed, mut sum) = both.split_at_mut(elems);
            let mut sum = sum.slice_mut(..elems);
            let (normed, sum) = (memory.output(&mut normed)?, memory.output(&mut sum)?);
            let (weight, residual) = (weight.view::<T>()?, residual.map(|residual| residual.view::<T>()).transpose()?);
            let (rows, weight) = (memory.input(rows)?, memory.input(&weight)?);
            let residual = residual.as_ref().map(|residual| memory.input(residual)).transpose()?;
            let call = RowNorm::new(&*rows, &*weight, RmsNorm::new(self.epsilon)).output(&*normed).residual_out(&*sum);
            let call = match &residual {
                Some(residual) => call.residual(&**residual),
                None => call,
            };
            self.rank.communicator.all_reduce_norm(call, &self.rank.stream).map_err(wrap)?;
        }
        Ok(CudaStorage::wrap_cuda_slice(both, cuda.clone()))
    }
}

/// An operand, on the CPU or on a GPU.
struct OperandStorage<'a, S = CpuStorage> {
    storage: &'a S,
    layout: &'a Layout,
}

impl<'a> OperandStorage<'a> {
    fn values<T: WithDType>(&self) -> Result<&'a [T]> {
        Ok(&T::cpu_storage_as_slice(self.storage)?[place(self.layout, NAME)?])
    }
}

#[cfg(feature = "cuda")]
impl<'a> OperandStorage<'a, CudaStorage> {
    fn view<T: Value>(&self) -> Result<CudaView<'a, T>> {
        Ok(self.storage.as_cuda_slice::<T>()?.slice(place(self.layout, NAME)?))
    }
}

impl CustomOp2 for RowsNorm<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        self.on_cpu(OperandStorage { storage: s1, layout: l1 }, OperandStorage { storage: s2, layout: l2 }, None)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, s1: &CudaStorage, l1: &Layout, s2: &CudaStorage, l2: &Layout) -> Result<(CudaStorage, Shape)> {
        self.on_cuda(OperandStorage { storage: s1, layout: l1 }, OperandStorage { storage: s2, layout: l2 }, None)
    }
}

impl CustomOp3 for RowsNorm<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let residual = OperandStorage { storage: s3, layout: l3 };
        self.on_cpu(
            OperandStorage { storage: s1, layout: l1 },
            OperandStorage { storage: s2, layout: l2 },
            Some(residual),
        )
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        s1: &CudaStorage,
        l1: &Layout,
        s2: &CudaStorage,
        l2: &Layout,
        s3: &CudaStorage,
        l3: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let residual = OperandStorage { storage: s3, layout: l3 };
        self.on_cuda(
            OperandStorage { storage: s1, layout: l1 },
            OperandStorage { storage: s2, layout: l2 },
            Some(residual),
        )
    }
}
