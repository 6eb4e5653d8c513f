//! The device of a rank: the CPU or a GPU, as one type.

mod assembly;
mod memory;
mod multicast;

use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use cxx::SharedPtr;

use crate::error::{Error, Result};
use crate::fork::OfMaker;
use crate::settings::setters;
use crate::sys::Caught;
use crate::sys::device as sys;

pub(crate) use crate::sys::device::{IpcHandle, POINTER_DEVICE, POINTER_FILE, POINTER_VMM, PointerInfo};
pub(crate) use assembly::{Assembly, MappedPiece};
pub(crate) use memory::Allocation;
pub(crate) use multicast::MulticastSupport;

/// The kind of a device: the CPU, or a GPU of one vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The CPU, with the GPU kernels compiled by the host compiler.
    Host = sys::KIND_HOST,
    /// An NVIDIA GPU (feature `cuda`).
    Cuda = sys::KIND_CUDA,
    /// An AMD GPU (feature `hip`).
    Hip = sys::KIND_HIP,
}

impl DeviceKind {
    /// The name used on the command line and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }

    const fn is_built(self) -> bool {
        match self {
            Self::Host => true,
            Self::Cuda => cfg!(feature = "cuda"),
            Self::Hip => cfg!(feature = "hip"),
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The launch geometry of the host device. Ranks of one group must agree on it.
///
/// The default, one block of one thread, is the fastest; the stream's own worker runs it. More threads exercise the
/// kernels' synchronisation, for example under a race detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostShape {
    /// Blocks per launch, 1 to 16.
    pub blocks: u32,
    /// Threads per block, 1 to 64.
    pub threads: u32,
}

setters! { HostShape { blocks: u32, threads: u32 } }

impl Default for HostShape {
    fn default() -> Self {
        Self { blocks: 1, threads: 1 }
    }
}

/// An open device. Cheap to clone; usable from any thread of the process that opened it. In a child that the process
/// forked, every use of the device, of its streams, events, graphs and groups fails with [`Error::Unsupported`], and
/// dropping them does nothing. The child may open devices of its own.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    /// A forked child has none of the device's threads.
    raw: OfMaker<SharedPtr<sys::Device>>,
    properties: sys::Properties,
    shape: HostShape,
}

impl Device {
    /// Opens the CPU. Every call opens a separate device, like a separate GPU. Memory, streams and communicators that
    /// work together must use clones of one device.
    ///
    /// # Errors
    /// [`Error::System`] when the system refuses memory or threads.
    pub fn host() -> Result<Self> {
        Self::open(DeviceKind::Host, 0, HostShape::default())
    }

    /// Opens the CPU as a separate device with the given launch geometry.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a shape outside its limits; [`Error::System`] when the system refuses memory or
    /// threads.
    pub fn host_with(shape: HostShape) -> Result<Self> {
        if !(1..=16).contains(&shape.blocks) {
            return Err(Error::invalid("blocks", shape.blocks, "it must be 1 to 16"));
        }
        if !(1..=64).contains(&shape.threads) {
            return Err(Error::invalid("threads", shape.threads, "it must be 1 to 64"));
        }
        Self::open(DeviceKind::Host, 0, shape)
    }

    /// Opens the CUDA device with this ordinal among the visible devices.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the feature `cuda`, [`Error::InvalidArgument`] for an ordinal that does not
    /// exist, [`Error::Device`] when the driver fails.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Self::gpu(DeviceKind::Cuda, ordinal)
    }

    /// Opens the HIP device with this ordinal among the visible devices.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the feature `hip`, [`Error::InvalidArgument`] for an ordinal that does not exist,
    /// [`Error::Device`] when the HIP runtime fails.
    pub fn hip(ordinal: usize) -> Result<Self> {
        Self::gpu(DeviceKind::Hip, ordinal)
    }

    /// Opens the GPU that is current on the calling thread: the device of the thread's CUDA context, or the HIP device of
    /// the thread. It is GPU 0 on a thread that has chosen none.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without the features `cuda` and `hip`, and if no GPU is visible; [`Error::Device`] when the
    /// driver fails.
    pub fn current() -> Result<Self> {
        let kinds = [DeviceKind::Cuda, DeviceKind::Hip];
        let Some(kind) = kinds.into_iter().find(|kind| Self::count(*kind) > 0) else {
            let reason = match kinds.iter().any(|kind| kind.is_built()) {
                true => "no GPU is visible",
                false => "this library was built without the features `cuda` and `hip`",
            };
            return Err(Error::unsupported("the current device", reason));
        };
        Self::open(kind, sys::current(kind as u32).caught()?, HostShape::default())
    }

    fn gpu(kind: DeviceKind, ordinal: usize) -> Result<Self> {
        if !kind.is_built() {
            let vendor = kind.name().to_uppercase();
            return Err(Error::unsupported(
                format!("a {vendor} device"),
                format!("this library was built without the feature `{kind}`"),
            ));
        }
        let count = Self::count(kind);
        if ordinal >= count {
            let vendor = kind.name().to_uppercase();
            return Err(Error::invalid("device ordinal", ordinal, format!("there are {count} {vendor} devices")));
        }
        let ordinal =
            i32::try_from(ordinal).map_err(|_| Error::invalid("device ordinal", ordinal, "it must fit an i32"))?;
        Self::open(kind, ordinal, HostShape::default())
    }

    /// The number of visible devices of a kind; 0 when the kind is not built or has no driver.
    pub fn count(kind: DeviceKind) -> usize {
        sys::count(kind as u32) as usize
    }

    fn open(kind: DeviceKind, ordinal: i32, shape: HostShape) -> Result<Self> {
        let raw = sys::open(kind as u32, ordinal).caught()?;
        let properties = raw.properties();
        Ok(Self(Arc::new(Inner { raw: OfMaker::new(raw), properties, shape })))
    }

    /// The device's kind.
    pub fn kind(&self) -> DeviceKind {
        match self.0.properties.kind {
            sys::KIND_CUDA => DeviceKind::Cuda,
            sys::KIND_HIP => DeviceKind::Hip,
            _ => DeviceKind::Host,
        }
    }

    /// The device's number among the visible devices of its kind.
    pub fn ordinal(&self) -> i32 {
        self.0.properties.ordinal
    }

    /// The vendor's name of the device.
    pub fn name(&self) -> String {
        self.0.raw.name().to_string_lossy().into_owned()
    }

    /// Versions of the device's driver and runtime.
    pub fn versions(&self) -> String {
        self.0.raw.versions().to_string_lossy().into_owned()
    }

    /// Size of the device's memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.0.properties.memory_bytes
    }

    /// Number of multiprocessors; number of hardware threads on the host.
    pub fn multiprocessors(&self) -> u32 {
        self.0.properties.multiprocessors
    }

    /// Compute capability (major, minor); (0, 0) on the host.
    pub fn compute_capability(&self) -> (u32, u32) {
        (self.0.properties.major, self.0.properties.minor)
    }

    /// The device's UUID, equal in every process and order of devices; zero on the host.
    pub fn uuid(&self) -> [u8; 16] {
        self.0.properties.uuid
    }

    /// Whether the driver reports that this device can address memory of device `ordinal` of the same kind.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver fails.
    pub fn can_access(&self, ordinal: i32) -> Result<bool> {
        self.raw()?.can_access(ordinal).caught()
    }

    /// The number in this process of the GPU with this UUID, of the kind of this device. `None` if the GPU is not visible to this
    /// process, and on the host. Opens no device.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver fails.
    pub fn ordinal_of(&self, uuid: &[u8; 16]) -> Result<Option<i32>> {
        let ordinal = self.raw()?.ordinal_of(uuid).caught()?;
        Ok(Some(ordinal).filter(|ordinal| *ordinal >= 0))
    }

    /// Whether kernels of this device change words atomically in memory of the device with this UUID. False for a
    /// device that is not visible to this process.
    pub(crate) fn native_atomics(&self, uuid: &[u8; 16]) -> Result<bool> {
        self.raw()?.native_atomics(uuid).caught()
    }

    /// Blocks until all work that this process enqueued on the device is done.
    ///
    /// # Errors
    /// [`Error::Device`] when some of that work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.raw()?.synchronize().caught()
    }

    /// Makes the device current in the calling thread, for libraries that work on the current device.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    pub(crate) fn make_current(&self) -> Result<()> {
        self.raw()?.make_current().caught()
    }

    /// Makes the device current in the calling thread until the result is dropped, for libraries that load kernels at
    /// their first use, also while a stream is being captured.
    pub(crate) fn enter(&self) -> Result<cxx::UniquePtr<sys::Scope>> {
        self.raw()?.enter().caught()
    }

    /// Runs `run` with the device current in the calling thread, for libraries that work on the current device.
    #[doc(hidden)]
    pub fn with_current<T>(&self, run: impl FnOnce() -> T) -> Result<T> {
        let _entered = self.enter()?;
        Ok(run())
    }

    pub(crate) fn shape(&self) -> HostShape {
        self.0.shape
    }

    /// Whether the device reports that it supports multicast; the host device emulates it. A group also needs the
    /// feature `multicast` of the build and [`Multicast::is_allowed`](crate::Multicast::is_allowed). Calls no driver.
    pub fn can_multicast(&self) -> bool {
        self.0.properties.multicast != 0
    }

    /// Whether kernels of this build can add 8-bit floats by multicast on the device. An NVIDIA GPU needs code for
    /// exactly its architecture; the driver must have no other code to choose for the chip.
    pub(crate) fn adds_f8(&self) -> bool {
        match (self.kind(), self.compute_capability()) {
            (DeviceKind::Host, _) => true,
            (DeviceKind::Cuda, (10, 0)) => cfg!(symmetra_own_code = "100"),
            (DeviceKind::Cuda, (10, 3)) => cfg!(symmetra_own_code = "103"),
            _ => false,
        }
    }

    /// Whether blocks may form clusters.
    pub(crate) fn has_clusters(&self) -> bool {
        self.0.properties.clusters != 0
    }

    /// Whether memory can be shared by file descriptor.
    pub(crate) fn shares_memory(&self) -> bool {
        self.0.properties.shared_fd != 0
    }

    /// Whether plain allocations can be exported to other processes.
    pub(crate) fn exports_plain_memory(&self) -> bool {
        self.0.properties.legacy_ipc != 0
    }

    /// The runtime's device, in the process that opened it.
    pub(crate) fn raw(&self) -> Result<&sys::Device> {
        self.check_process("a device")?;
        Ok(&self.0.raw)
    }

    /// Refuses to use `what`, which belongs to the device, in a forked child. Costs one load.
    #[inline]
    pub(crate) fn check_process(&self, what: &str) -> Result<()> {
        self.0.raw.maker().check(what)
    }

    /// Whether this process opened the device. Otherwise it is a forked child, which must not use the device.
    pub(crate) fn is_here(&self) -> bool {
        self.0.raw.maker().is_here()
    }

    /// Whether waiting for one device waits for the other, so that streams and memory of both may be used in one call.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let opened_twice = || self.kind() == other.kind() && self.ordinal() == other.ordinal();
        Arc::ptr_eq(&self.0, &other.0) || (self.kind() != DeviceKind::Host && opened_twice())
    }

    /// Refuses `what` if it belongs to another device, on which its addresses would not be valid.
    pub(crate) fn check_same(&self, what: &str, other: &Self) -> Result<()> {
        if self.same(other) {
            return Ok(());
        }
        let limit = match (self.kind(), other.kind()) {
            (DeviceKind::Host, DeviceKind::Host) => {
                "this rank works on another: each `Device::host()` is a new one, so use clones of one".to_owned()
            }
            _ => format!("this rank works on {self:?}"),
        };
        Err(Error::invalid(&format!("the {what}'s device"), format!("{other:?}"), limit))
    }

    /// Converts the status of a frequent call to an error.
    pub(crate) fn check(&self, call: &'static str, status: i32) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let words = self.0.raw.describe(status);
        let words = if words.is_null() {
            "no description".into()
        } else {
            // SAFETY: `Device::describe` returns a static NUL-terminated string.
            #[allow(unsafe_code)]
            unsafe { CStr::from_ptr(words) }.to_string_lossy()
        };
        Err(Error::Device { code: status.into(), message: format!("{call}: {words}") })
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Device({} {})", self.kind(), self.ordinal())
    }
}
