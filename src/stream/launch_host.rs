//! Kernels of the program on the host device.
#![allow(unsafe_code)]

use super::{Queue, Target};
use crate::device::{DeviceKind, HostShape};
use crate::error::{Error, Result};
use crate::kernel::args::{Geometry, kMaxBlocks};
use crate::sys::device::HostKernel;

/// The most threads of a launch, which all run at once: `kMaxLaunchThreads` of `cpp/device/host/launch.hpp`.
const MOST_THREADS: u64 = 4096;

/// Memory that the threads of a block share, after the bytes that the library reserves.
const SHARED_BYTES: u32 = 48 << 10;
const RESERVED_BYTES: u32 = 16;

/// Runs a function of this process as a kernel of the host device, in the order of a stream or in a graph: each thread
/// of each block calls `kernel` with the address of a copy of `args`. All blocks run at once. Returns without waiting
/// for the kernel.
///
/// A kernel in C++ with the headers of `symmetra/device` finds its place by `platform::thread()` and `platform::block()`. A
/// block has 48 KiB of memory at `platform::shared()`. On a GPU, launch the kernel by the GPU's own runtime.
///
/// Arguments of more than 1024 bytes, or aligned to more than 16, do not compile:
/// ```compile_fail,E0080
/// # use symmetra::{HostShape, Result, Stream, launch_host};
/// # unsafe extern "C" fn kernel<A>(_: *const A) {}
/// # fn main() {
/// #     let _: fn(&Stream) -> Result<()> =
/// // SAFETY: the kernel reads nothing.
/// |stream| unsafe { launch_host(HostShape::default(), kernel, [0u8; 1025], stream) };
/// # }
/// ```
/// These do:
/// ```
/// # use symmetra::{HostShape, Result, Stream, launch_host};
/// # unsafe extern "C" fn kernel<A>(_: *const A) {}
/// # fn main() {
/// #     let _: fn(&Stream) -> Result<()> =
/// // SAFETY: the kernel reads nothing.
/// |stream| unsafe { launch_host(HostShape::default(), kernel, [0u8; 1024], stream) };
/// # }
/// ```
///
/// # Errors
/// [`Error::Unsupported`] on a GPU, and on a stream that [`Stream::capture`](crate::Stream::capture) records (launch on
/// the capture instead); [`Error::InvalidArgument`] for no blocks or more than 256, no threads, or more than 4096
/// threads in all blocks; [`Error::Device`] if the launch fails.
///
/// # Safety
/// `kernel` may be called on any thread, by all threads at once, and does not unwind. Memory that it accesses through
/// `args` lives until the work is done, or as long as a captured graph and its launches. Other code accesses this
/// memory meanwhile only as the kernel expects.
///
/// ```
/// use symmetra::{Device, DeviceBuffer, HostShape, Stream, launch_host};
///
/// #[derive(Clone, Copy)]
/// struct Doubled(*mut f32);
/// // SAFETY: an address, which one thread at a time may dereference.
/// unsafe impl Send for Doubled {}
///
/// unsafe extern "C" fn double(value: *const Doubled) {
///     // SAFETY: the launch below passes the address of a float.
///     unsafe { *(*value).0 *= 2.0 }
/// }
///
/// let device = Device::host()?;
/// let stream = Stream::new(&device)?;
/// let value = DeviceBuffer::from_slice(&[21f32], &stream)?;
/// // SAFETY: the buffer outlives the work, which the read waits for.
/// unsafe { launch_host(HostShape::default(), double, Doubled(value.as_raw()), &stream)? };
/// assert_eq!(value.read(&stream)?, [42.0]);
/// # Ok::<(), symmetra::Error>(())
/// ```
pub unsafe fn launch_host<'op, A: Copy + Send + 'static>(
    shape: HostShape,
    kernel: unsafe extern "C" fn(*const A),
    args: A,
    queue: impl Queue<'op>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { HostLaunch::of_caller(shape).enqueue(&HostKernel::new(kernel, &args), Target::of(&queue)) }
}

/// A launch of a function of this process.
pub(crate) struct HostLaunch {
    /// The name of the operation, for messages.
    pub(crate) call: &'static str,
    pub(crate) shape: HostShape,
    pub(crate) shared_bytes: u32,
}

impl HostLaunch {
    /// The launch of a kernel of the program.
    pub(crate) fn of_caller(shape: HostShape) -> Self {
        Self { call: "launch a kernel on the host", shape, shared_bytes: RESERVED_BYTES + SHARED_BYTES }
    }

    /// Enqueues the launch.
    ///
    /// # Safety
    /// The requirements of [`launch_host`] on the kernel and its arguments.
    pub(crate) unsafe fn enqueue(&self, kernel: &HostKernel, queue: Target<'_>) -> Result<()> {
        let kind = queue.stream().device().kind();
        if kind != DeviceKind::Host {
            let reason = "a kernel of a GPU is launched by the GPU's runtime";
            return Err(Error::unsupported(format!("to {} of a {kind} device", self.call), reason));
        }
        let HostShape { blocks, threads } = self.shape;
        if !(1..=kMaxBlocks).contains(&blocks) {
            return Err(Error::invalid("blocks", blocks, format!("it must be 1 to {kMaxBlocks}")));
        }
        let all = u64::from(blocks) * u64::from(threads);
        if threads == 0 || all > MOST_THREADS {
            let limit = format!("it must be at least 1, and at most {MOST_THREADS} in all {blocks} blocks");
            return Err(Error::invalid("threads", threads, limit));
        }
        let geometry = Geometry { blocks, threads, shared_bytes: self.shared_bytes, programmatic: 0, cluster: 0 };
        // SAFETY: the arguments are copied before this returns; the caller guarantees the rest for the function and its
        // memory.
        queue.enqueue(self.call, |raw| unsafe { raw.launch_host(kernel, &geometry) })
    }
}
