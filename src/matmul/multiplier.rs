//! GEMMs without collectives.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::cublaslt::{CublasLt, WORKSPACE_BYTES};
use super::gemm::Gemm;
use super::host::{self, HostGemm};
use super::product::Product;
use super::tensor::{Tensor, check, too_large};
use crate::device::{Device, DeviceKind, HostShape};
use crate::error::{Error, Result};
use crate::memory::DeviceBuffer;
use crate::stream::{HostLaunch, Queue, Recording, StreamOrder, Target};
use crate::sys::device::HostKernel;

const CALL: &str = "launch a product";

/// Multiplies matrices on a device. Cheap to clone.
///
/// ```
/// use symmetra::matmul::{Multiplier, Numeric, Product, Tensor};
/// use symmetra::{Device, DeviceBuffer, Stream};
///
/// let device = Device::host()?;
/// let stream = Stream::new(&device)?;
/// let rows = DeviceBuffer::from_slice(&[1f32, 2.0, 3.0, 4.0], &stream)?; // 2 x 2
/// let weight = DeviceBuffer::from_slice(&[1f32, 1.0, 1.0, -1.0, 0.0, 1.0], &stream)?; // [3][2]: 2 x 3, column after column
/// let result = DeviceBuffer::<f32>::new(&device, 6)?;
/// let product = Product::new(2, 3, Numeric::F32);
/// let operands = [Tensor::of(&rows), Tensor::of(&weight), Tensor::of(&result)];
/// Multiplier::new(&device)?.enqueue(&product, 2, operands, &stream)?;
/// assert_eq!(result.read(&stream)?, [3.0, -1.0, 2.0, 7.0, -1.0, 4.0]);
/// # Ok::<(), symmetra::Error>(())
/// ```
#[derive(Clone)]
pub struct Multiplier(Arc<Inner>);

struct Inner {
    device: Device,
    engine: GemmEngine,
}

enum GemmEngine {
    /// With the order of eager calls.
    Host(Box<Mutex<StreamOrder>>),
    GpuEngine(Box<GpuEngine>),
}

/// cuBLASLt with the memory for sums that it splits among blocks.
struct GpuEngine {
    library: CublasLt,
    eager: Mutex<EagerWorkspace>,
    captured: Mutex<Vec<CaptureWorkspace>>,
}

/// The workspace and the order that eager calls share.
struct EagerWorkspace {
    workspace: DeviceBuffer<u8>,
    order: StreamOrder,
}

/// A capture, by its number, and the workspace of its graph.
struct CaptureWorkspace {
    recording: u64,
    workspace: Weak<DeviceBuffer<u8>>,
}

impl Multiplier {
    /// Finds the library for a device, and makes a workspace of 32 MiB on a GPU.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on AMD GPUs, and on NVIDIA GPUs if no cuBLASLt can be loaded. The error lists the tried names
    /// (`SYMMETRA_CUBLASLT_LIBRARY` sets another name) and the function that a library lacks. [`Error::Device`] if the library
    /// or the runtime fails.
    pub fn new(device: &Device) -> Result<Self> {
        let engine = match device.kind() {
            DeviceKind::Host => GemmEngine::Host(Box::new(Mutex::new(StreamOrder::new(device)?))),
            DeviceKind::Cuda => {
                let library = CublasLt::new(device)?;
                let eager = EagerWorkspace {
                    workspace: DeviceBuffer::new(device, WORKSPACE_BYTES)?,
                    order: StreamOrder::new(device)?,
                };
                GemmEngine::GpuEngine(Box::new(GpuEngine {
                    library,
                    eager: Mutex::new(eager),
                    captured: Mutex::default(),
                }))
            }
            kind @ DeviceKind::Hip => {
                return Err(Error::unsupported(
                    format!("a product on {kind}"),
                    "there is no table of hipBLASLt's functions yet",
                ));
            }
        };
        Ok(Self(Arc::new(Inner { device: device.clone(), engine })))
    }

    /// The implementation: a library with its version and the name by which it was loaded, or the crate on the CPU.
    pub fn library(&self) -> &str {
        match &self.0.engine {
            GemmEngine::Host(_) => "matrixmultiply",
            GemmEngine::GpuEngine(gpu) => gpu.library.name(),
        }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.0.device
    }

    /// Enqueues `result = left right`, where `operands` are left factor, right factor and result. Returns at once; on a
    /// stream, the first call of a shape takes some tens of microseconds more, because the library selects an algorithm.
    /// Calls on different streams run one after another; calls of a graph use a workspace of the graph.
    ///
    /// With `rows` = 0 nothing is enqueued. Elements are exact if the sum is exact; else the error of an element is at
    /// most `K 2^-24` times the sum of the absolute products, for 8-bit floats on Hopper GPUs `(K + K / 32) 2^-13` times that sum, plus
    /// a rounding to the result's type.
    ///
    /// # Errors
    /// The errors of [`Product::check`]; [`Error::InvalidArgument`] for operands whose type, length or device does not fit,
    /// missing or unneeded scales or bias, 8-bit floats that do not begin at a multiple of 16 bytes, and a result that overlaps
    /// another operand; [`Error::Unsupported`] for GEMMs that the library or the GPU does not support, and on a stream that is
    /// being captured; [`Error::Device`] if the launch fails.
    pub fn enqueue<'op>(
        &self,
        product: &Product,
        rows: usize,
        operands: [Tensor<'op>; 3],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.enqueue_on(product, rows, operands, Target::of(&queue))
    }

    pub(crate) fn enqueue_on(
        &self,
        product: &Product,
        rows: usize,
        operands: [Tensor<'_>; 3],
        queue: Target<'_>,
    ) -> Result<()> {
        self.check(product, rows, &operands)?;
        self.enqueue_checked(product, rows, &operands, false, queue)
    }

    /// Checks that operands fit a GEMM that library and device support.
    pub(crate) fn check(&self, product: &Product, rows: usize, operands: &[Tensor<'_>; 3]) -> Result<()> {
        check(product, rows, operands, &self.0.device)?;
        match &self.0.engine {
            GemmEngine::Host(_) => Ok(()),
            GemmEngine::GpuEngine(gpu) => gpu.library.check(product),
        }
    }

    /// Selects the algorithm of a GEMM whose operands begin at multiples of 256 bytes, so that calls need not.
    ///
    /// # Errors
    /// The errors of [`enqueue`](Self::enqueue) that do not depend on operands.
    pub(crate) fn prepare(&self, product: &Product, rows: usize, whole_sums: bool) -> Result<()> {
        product.check()?;
        if product.elems(rows).is_none() {
            return Err(too_large(rows));
        }
        match &self.0.engine {
            GemmEngine::GpuEngine(gpu) if rows > 0 => gpu.library.prepare(product, rows, whole_sums),
            _ => Ok(()),
        }
    }

    /// Refuses streams of other devices, and streams that are being captured. In a capture the queue must be the capture.
    pub(crate) fn refuse_captured(&self, what: &str, queue: Target<'_>) -> Result<()> {
        self.0.device.check_same("stream", queue.stream().device())?;
        if queue.recording().is_none() && queue.stream().is_capturing()? {
            let reason = "in Stream::capture enqueue on the capture";
            return Err(Error::unsupported(format!("{what} on a stream that is being captured"), reason));
        }
        Ok(())
    }

    /// Enqueues a GEMM that [`check`](Self::check) has accepted. `whole_sums`: whether sums over `inner` must not be split among
    /// blocks.
    pub(crate) fn enqueue_checked(
        &self,
        product: &Product,
        rows: usize,
        operands: &[Tensor<'_>; 3],
        whole_sums: bool,
        queue: Target<'_>,
    ) -> Result<()> {
        self.refuse_captured("a product", queue)?;
        if rows == 0 {
            return Ok(());
        }
        let gemm = Gemm::new(product, rows, operands);
        // SAFETY: operands are memory of these lengths, which the caller lends for as long as the queue uses them.
        unsafe { self.multiply(product, &gemm, whole_sums, queue) }
    }

    /// Enqueues a product that was checked.
    ///
    /// # Safety
    /// The memory of the product lives until the queue has done the work.
    unsafe fn multiply(&self, product: &Product, gemm: &Gemm, whole_sums: bool, queue: Target<'_>) -> Result<()> {
        match &self.0.engine {
            GemmEngine::Host(order) => {
                let work = HostGemm { product: *product, gemm: *gemm };
                let launch = HostLaunch { call: CALL, shape: HostShape::default(), shared_bytes: 0 };
                let mut order = order.lock();
                order.order_call(queue)?;
                // SAFETY: the memory is valid by the caller's promise; the function takes such work.
                let launched = unsafe { launch.enqueue(&HostKernel::new(host::multiply, &work), queue) };
                launched.and(order.end_call(queue))
            }
            // SAFETY: passed on.
            GemmEngine::GpuEngine(gpu) => unsafe { gpu.multiply(&self.0, product, gemm, whole_sums, queue) },
        }
    }
}

impl GpuEngine {
    /// Enqueues a product that was checked.
    ///
    /// # Safety
    /// The memory of the product lives until the queue has done the work.
    unsafe fn multiply(
        &self,
        owner: &Arc<Inner>,
        product: &Product,
        gemm: &Gemm,
        whole_sums: bool,
        queue: Target<'_>,
    ) -> Result<()> {
        let mut multiplied = Ok(());
        let mut enqueue = |workspace: *mut u8| {
            queue.enqueue(CALL, |raw| {
                // SAFETY: the memory of the operands is valid by the caller's promise; the workspace belongs to this order of
                // calls, or to the graph, which lives until its work is done.
                multiplied = unsafe { self.library.enqueue(product, gemm, whole_sums, workspace, raw.raw()) };
                0
            })
        };
        match queue.recording() {
            None => {
                let mut eager = self.eager.lock();
                eager.order.order_call(queue)?;
                let enqueued = enqueue(eager.workspace.as_raw());
                enqueued.and(eager.order.end_call(queue))?;
            }
            Some(recording) => enqueue(self.workspace_of(owner, recording)?.as_raw())?,
        }
        multiplied
    }

    /// The workspace of a capture's graph. The graph owns the workspace from now on.
    fn workspace_of(&self, owner: &Arc<Inner>, recording: &Recording) -> Result<Arc<DeviceBuffer<u8>>> {
        let mut captured = self.captured.lock();
        captured.retain(|of| of.workspace.strong_count() > 0);
        let known = captured.iter().find(|of| of.recording == recording.id());
        if let Some(known) = known.and_then(|of| of.workspace.upgrade()) {
            return Ok(known);
        }
        let made = Arc::new(DeviceBuffer::new(&owner.device, WORKSPACE_BYTES)?);
        recording.keep(made.clone());
        recording.keep(owner.clone());
        captured.push(CaptureWorkspace { recording: recording.id(), workspace: Arc::downgrade(&made) });
        Ok(made)
    }
}

impl fmt::Debug for Multiplier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Multiplier({}, {:?})", self.library(), self.0.device)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/matmul/multiplier.rs"]
mod tests;
