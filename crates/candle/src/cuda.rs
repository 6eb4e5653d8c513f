//! Calls on tensors on GPUs, enqueued on the stream of candle's device.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::cuda::cudarc::driver::{CudaSlice, CudaStream, CudaView, DevicePtr, DevicePtrMut, DeviceRepr};
use candle_core::cuda::{CudaDType, CudaStorage, CudaStorageSlice};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, Device, Error, Result, Shape, Storage, Tensor};
use symmetra::bootstrap::Bootstrap;
use symmetra::interop::cudarc::{self, Borrowed};
use symmetra::{Communicator, Config, Element};

use crate::collective::{Collective, Rank, place, with_values};
use crate::error::{invalid, wrap};

/// The element types of tensors on GPUs that symmetra has.
pub(crate) trait Value: Element + CudaDType + DeviceRepr {}

impl<T: Element + CudaDType + DeviceRepr> Value for T {}

impl Rank {
    /// Opens a group on the stream of a device of candle. Collective; blocks.
    pub(crate) fn on_cuda(bootstrap: impl Bootstrap, cuda: &CudaDevice, config: Config) -> symmetra::Result<Self> {
        let native = cuda.cuda_stream();
        let device = cudarc::device(native.context())?;
        // SAFETY: calls hold cudarc's guards of their operands, which order the free of the memory after the calls. The
        // memory of a native graph is the concern of the graph's owner, who needs unsafe code to disable the tracking of
        // events. A per-thread stream is used as the documentation of `Group` requires.
        let stream = unsafe { cudarc::stream(&device, &native) }?;
        let communicator = Communicator::open(bootstrap, &device, config)?;
        Ok(Self { communicator, stream, device: Device::Cuda(cuda.clone()) })
    }
}

/// The memory of the calls of a rank, on the stream of its device.
pub(crate) struct Memory<'a> {
    rank: &'a Rank,
    cuda: &'a CudaDevice,
    native: Arc<CudaStream>,
}

impl<'a> Memory<'a> {
    /// The memory of calls on tensors of the device `of`, which is the device of the rank.
    pub(crate) fn new(rank: &'a Rank, of: &CudaDevice) -> Result<Self> {
        match &rank.device {
            Device::Cuda(cuda) if cuda.same_device(of) => Ok(Self { rank, cuda, native: cuda.cuda_stream() }),
            device => Err(elsewhere(&Device::Cuda(of.clone()), device)),
        }
    }

    /// New memory, whose contents are undefined. Candle's memory has at least one element.
    pub(crate) fn room<T: Value>(&self, elems: usize) -> Result<CudaSlice<T>> {
        // SAFETY: every bit pattern is a valid element, and the callers fill the memory before candle reads it.
        unsafe { self.cuda.alloc(elems.max(1)) }
    }

    /// Memory that a call reads. The result is dropped after the call is enqueued.
    pub(crate) fn input<'m, T: Value>(&'m self, memory: &'m impl DevicePtr<T>) -> Result<Borrowed<'m, T>> {
        // SAFETY: memory of cudarc's, used on the stream of the guard. The guard is dropped after the work is enqueued.
        unsafe { cudarc::input(self.rank.communicator.device(), memory, &self.native) }.map_err(wrap)
    }

    /// Memory that a call writes. The result is dropped after the call is enqueued.
    pub(crate) fn output<'m, T: Value>(&'m self, memory: &'m mut impl DevicePtrMut<T>) -> Result<Borrowed<'m, T>> {
        // SAFETY: as for `input`.
        unsafe { cudarc::borrow(self.rank.communicator.device(), memory, &self.native) }.map_err(wrap)
    }

    /// The tensor of new memory.
    pub(crate) fn tensor<T: Value>(&self, memory: CudaSlice<T>, shape: impl Into<Shape>) -> Tensor {
        let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(memory, self.cuda.clone()));
        Tensor::from_storage(storage, shape, BackpropOp::none(), false)
    }
}

/// Evaluates `call` with the memory of a contiguous tensor on a GPU.
pub(crate) fn with_view<T: Value, R>(tensor: &Tensor, call: impl FnOnce(CudaView<'_, T>) -> Result<R>) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else {
        return Err(invalid(format!("the tensor is on {:?}, but the group is on a GPU", tensor.device().location())));
    };
    call(storage.as_cuda_slice::<T>()?.slice(place(layout, "a call on a GPU")?))
}

/// The error for a tensor on another device than the group's.
fn elsewhere(tensor: &Device, group: &Device) -> Error {
    let [tensor, group] = [tensor, group].map(|device| device.location());
    invalid(format!("the tensor is on {tensor:?}, but the group was opened on another device, on {group:?}"))
}

impl Collective<'_> {
    /// A new storage with the output.
    pub(crate) fn output_on_cuda(&self, storage: &CudaStorage, place: Range<usize>) -> Result<CudaStorage> {
        with_values!(CudaStorageSlice, &storage.slice, storage.dtype(), values => {
            self.fill(values, place, storage.device())
        })
    }

    fn fill<T: Value>(&self, values: &CudaSlice<T>, place: Range<usize>, cuda: &CudaDevice) -> Result<CudaStorage> {
        let (memory, elems) = (Memory::new(self.rank, cuda)?, self.shape.elem_count());
        let mut output = memory.room::<T>(elems)?;
        let input = values.slice(place);
        {
            let mut written = output.slice_mut(..elems);
            let (input, written) = (memory.input(&input)?, memory.output(&mut written)?);
            let operands = [Some((*input).clone()), Some((*written).clone())];
            self.rank.communicator.perform(self.op, &self.how, operands, &self.rank.stream).map_err(wrap)?;
        }
        Ok(CudaStorage::wrap_cuda_slice(output, cuda.clone()))
    }

    /// Runs the operation in a part of a storage.
    pub(crate) fn in_place_on_cuda(&self, storage: &mut CudaStorage, place: Range<usize>) -> Result<()> {
        let (cuda, dtype) = (storage.device().clone(), storage.dtype());
        with_values!(CudaStorageSlice, &mut storage.slice, dtype, values => {
            let memory = Memory::new(self.rank, &cuda)?;
            let mut part = values.slice_mut(place);
            let both = memory.output(&mut part)?;
            let operands = [Some((*both).clone()), Some((*both).clone())];
            self.rank.communicator.perform(self.op, &self.how, operands, &self.rank.stream).map_err(wrap)
        })
    }
}
