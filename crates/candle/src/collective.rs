//! An operation of symmetra as an operation of candle.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Device, Error, InplaceOp1, Layout, Result, Shape, Tensor, WithDType};
use symmetra::bootstrap::Bootstrap;
use symmetra::op::Op;
use symmetra::{Communicator, Config, Element, How, Stream};

use crate::error::wrap;

/// A rank: its communicator, the stream of its calls, and the device of its tensors.
pub(crate) struct Rank {
    pub(crate) communicator: Communicator,
    pub(crate) stream: Stream,
    pub(crate) device: Device,
}

impl Rank {
    /// Opens a group on the CPU. Collective; blocks.
    pub(crate) fn on_cpu(bootstrap: impl Bootstrap, config: Config) -> symmetra::Result<Self> {
        let host = symmetra::Device::host()?;
        let stream = Stream::new(&host)?;
        Ok(Self { communicator: Communicator::open(bootstrap, &host, config)?, stream, device: Device::Cpu })
    }
}

/// A call: the operation, its settings, and the shape of its output.
pub(crate) struct Collective<'a> {
    pub(crate) rank: &'a Rank,
    pub(crate) op: &'static Op,
    pub(crate) how: How<'a>,
    pub(crate) shape: Shape,
}

/// Evaluates an expression with the elements of a storage, whose type `$of` is one that symmetra has.
macro_rules! with_values {
    ($storage:ident, $from:expr, $of:expr, $values:ident => $value:expr) => {
        with_values!($storage, $from, $of, $values => $value; U8 U32 I32 I64 F32 F64 F16 BF16 F8E4M3)
    };
    ($storage:ident, $from:expr, $of:expr, $values:ident => $value:expr; $($dtype:ident)*) => {
        match $from {
            $($storage::$dtype($values) => $value,)*
            _ => Err(crate::collective::unsupported($of)),
        }
    };
}
pub(crate) use with_values;

/// The error for a type that symmetra does not have.
pub(crate) fn unsupported(dtype: candle_core::DType) -> Error {
    let reason = "the types are u8, u32, i32, i64, f32, f64, f16, bf16 and f8e4m3".to_owned();
    wrap(symmetra::Error::Unsupported { what: format!("a tensor of {}", dtype.as_str()), reason })
}

/// The place of a contiguous tensor in its storage.
pub(crate) fn place(layout: &Layout, op: &'static str) -> Result<std::ops::Range<usize>> {
    layout.contiguous_offsets().map(|(start, end)| start..end).ok_or(Error::RequiresContiguous { op })
}

/// The tensor with its elements in row-major order. Candle panics on copies of some tensors without elements.
pub(crate) fn contiguous(x: &Tensor) -> Result<Tensor> {
    match x.elem_count() {
        0 => Tensor::zeros(x.shape(), x.dtype(), x.device()),
        _ => x.contiguous(),
    }
}

impl Collective<'_> {
    pub(crate) fn name(&self) -> &'static str {
        self.op.operation.name()
    }

    fn run<T: Element>(&self, input: Option<&[T]>, output: &mut [T]) -> Result<()> {
        let Rank { communicator, stream, .. } = self.rank;
        communicator.perform_on_slices(self.op, &self.how, input, Some(output), stream).map_err(wrap)
    }

    /// A new storage with the output.
    fn output<T: Element + WithDType>(&self, input: &[T]) -> Result<CpuStorage> {
        let mut output = vec![T::zeroed(); self.shape.elem_count()];
        self.run(Some(input), &mut output)?;
        Ok(T::to_cpu_storage_owned(output))
    }
}

impl CustomOp1 for Collective<'_> {
    fn name(&self) -> &'static str {
        Collective::name(self)
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let place = place(layout, self.name())?;
        let output = with_values!(CpuStorage, storage, storage.dtype(), values => self.output(&values[place]))?;
        Ok((output, self.shape.clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let place = place(layout, self.name())?;
        Ok((self.output_on_cuda(storage, place)?, self.shape.clone()))
    }
}

impl InplaceOp1 for Collective<'_> {
    fn name(&self) -> &'static str {
        Collective::name(self)
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let place = place(layout, self.name())?;
        let dtype = storage.dtype();
        with_values!(CpuStorage, storage, dtype, values => self.run(None, &mut values[place]))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        let place = place(layout, self.name())?;
        self.in_place_on_cuda(storage, place)
    }
}
