//! The device functions of `cpp/device/device.hpp`, one to one.
// `panic` occurs in cxx's expansion for C++ types that lack the requirements of a pointer.
#![allow(clippy::multiple_unsafe_ops_per_block, clippy::panic, unreachable_pub, missing_docs)]

use cxx::{ExternType, kind::Trivial, type_id};

use crate::kernel::args::{Block, Geometry, Heap, Kind, Multicast, SignalArgs};

pub(crate) const KIND_HOST: u32 = 0;
pub(crate) const KIND_CUDA: u32 = 1;
pub(crate) const KIND_HIP: u32 = 2;

pub(crate) const POINTER_DEVICE: u32 = 3;
pub(crate) const POINTER_VMM: u32 = 4;
pub(crate) const POINTER_FILE: u32 = 6;

/// Mirrors `symmetra::device::Properties`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    pub kind: u32,
    pub ordinal: i32,
    pub memory_bytes: u64,
    pub multiprocessors: u32,
    pub major: u32,
    pub minor: u32,
    pub shared_fd: u32,
    pub legacy_ipc: u32,
    pub warp: u32,
    pub clusters: u32,
    pub uuid: [u8; 16],
    pub multicast: u32,
}

/// Mirrors `symmetra::device::PointerInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerInfo {
    pub kind: u32,
    pub device: i32,
    pub base: u64,
    pub bytes: u64,
}

/// Mirrors `symmetra::device::IpcHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle {
    pub bytes: [u8; 64],
}

/// Mirrors `symmetra::device::FilePart`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FilePart {
    pub offset: u64,
    pub fd: i32,
    pub padding: u32,
}

/// Mirrors `symmetra::device::Keepalive`.
#[repr(C)]
pub struct Keepalive {
    pub data: *mut core::ffi::c_void,
    pub release: extern "C" fn(*mut core::ffi::c_void),
}

/// Mirrors `symmetra::device::HostKernel`.
#[repr(C)]
pub struct HostKernel {
    pub entry: unsafe extern "C" fn(args: *const core::ffi::c_void),
    pub args: *const core::ffi::c_void,
    pub bytes: u64,
}

/// The most bytes of arguments of a [`HostKernel`].
pub(crate) const MOST_HOST_KERNEL_BYTES: usize = 1024;

impl HostKernel {
    /// A function of this process with its arguments, which it receives as the address of a copy.
    pub(crate) fn new<Args: Copy + Send + 'static>(entry: unsafe extern "C" fn(*const Args), args: &Args) -> Self {
        const {
            assert!(size_of::<Args>() <= MOST_HOST_KERNEL_BYTES, "a kernel takes at most 1024 bytes of arguments");
            assert!(align_of::<Args>() <= 16, "arguments of a kernel are aligned to at most 16 bytes");
        }
        // SAFETY: the function receives the address of a copy of `Args`; all pointers to data are passed alike.
        let entry =
            unsafe { std::mem::transmute::<unsafe extern "C" fn(*const Args), unsafe extern "C" fn(*const _)>(entry) };
        Self { entry, args: std::ptr::from_ref(args).cast(), bytes: size_of::<Args>() as u64 }
    }
}

macro_rules! plain_data {
    ($($rust:ty => $cxx:literal, $bytes:literal;)*) => {$(
        // SAFETY: a `#[repr(C)]` struct of integers, pointers and arrays of them, with the same fields as in the C++
        // header, which asserts the same size.
        unsafe impl ExternType for $rust {
            type Id = type_id!($cxx);
            type Kind = Trivial;
        }
        const _: () = assert!(size_of::<$rust>() == $bytes);
    )*};
}

plain_data! {
    Properties => "symmetra::device::Properties", 64;
    PointerInfo => "symmetra::device::PointerInfo", 24;
    IpcHandle => "symmetra::device::IpcHandle", 64;
    FilePart => "symmetra::device::FilePart", 16;
    Keepalive => "symmetra::device::Keepalive", 16;
    HostKernel => "symmetra::device::HostKernel", 24;
    SignalArgs => "symmetra::kernels::SignalArgs", 192;
    Heap => "symmetra::device::Heap", 320;
    Multicast => "symmetra::kernels::Multicast", 32;
    Geometry => "symmetra::kernels::Geometry", 20;
    Kind => "symmetra::kernels::Kind", 4;
}

#[cxx::bridge(namespace = "symmetra::device")]
mod bridge {
    unsafe extern "C++" {
        include!("symmetra/cpp/core/bridge.hpp");
        include!("symmetra/cpp/device/device.hpp");

        type Properties = super::Properties;
        type PointerInfo = super::PointerInfo;
        type IpcHandle = super::IpcHandle;
        type FilePart = super::FilePart;
        type Keepalive = super::Keepalive;
        type HostKernel = super::HostKernel;
        #[namespace = "symmetra::kernels"]
        type Geometry = super::Geometry;
        #[namespace = "symmetra::kernels"]
        type Kind = super::Kind;

        type Memory;
        fn address(self: &Memory) -> *mut u8;
        fn bytes(self: &Memory) -> usize;
        fn export_fd(self: &Memory) -> Result<i32>;

        type MulticastObject;
        fn export_fd(self: &MulticastObject) -> Result<i32>;
        fn add(self: Pin<&mut MulticastObject>) -> Result<()>;
        fn bind(self: Pin<&mut MulticastObject>, memory: &Memory) -> Result<()>;
        fn map(self: Pin<&mut MulticastObject>) -> Result<()>;
        fn address(self: &MulticastObject) -> *mut u8;

        type Assembly;
        fn add(self: Pin<&mut Assembly>, fd: i32, bytes: usize) -> Result<()>;
        unsafe fn alias(self: Pin<&mut Assembly>, base: *const u8, bytes: usize) -> Result<()>;
        fn address(self: &Assembly) -> *mut u8;

        type Scope;
        fn enter(self: &Device) -> Result<UniquePtr<Scope>>;

        type Device;
        fn count(kind: u32) -> u32;
        fn open(kind: u32, ordinal: i32) -> Result<SharedPtr<Device>>;
        fn current(kind: u32) -> Result<i32>;
        fn properties(self: &Device) -> Properties;
        fn name(self: &Device) -> &CxxString;
        fn versions(self: &Device) -> &CxxString;
        fn describe(self: &Device, native_code: i32) -> *const c_char;
        fn allocate(self: &Device, bytes: usize) -> Result<UniquePtr<Memory>>;
        unsafe fn pin(self: &Device, address: *mut u8, bytes: usize) -> Result<UniquePtr<Memory>>;
        fn allocate_shared(self: &Device, bytes: usize) -> Result<UniquePtr<Memory>>;
        fn shared_granularity(self: &Device) -> Result<usize>;
        fn open_to_peers(self: &Device, memory: &Memory) -> Result<()>;
        fn import_shared(self: &Device, fd: i32, bytes: usize) -> Result<UniquePtr<Memory>>;
        fn alias_shared(self: &Device, memory: &Memory) -> Result<UniquePtr<Memory>>;
        unsafe fn classify(self: &Device, pointer: *const u8) -> Result<PointerInfo>;
        unsafe fn export_ipc(self: &Device, base: *const u8) -> Result<IpcHandle>;
        fn import_ipc(self: &Device, handle: &IpcHandle, bytes: usize) -> Result<UniquePtr<Memory>>;
        unsafe fn export_file(self: &Device, base: *const u8) -> Result<FilePart>;
        fn import_file(self: &Device, part: &FilePart, bytes: usize) -> Result<UniquePtr<Memory>>;
        unsafe fn piece(self: &Device, pointer: *const u8) -> Result<PointerInfo>;
        unsafe fn export_piece(self: &Device, base: *const u8) -> Result<i32>;
        fn assemble(self: &Device, bytes: usize) -> Result<UniquePtr<Assembly>>;
        fn multicast_granularity(self: &Device, devices: u32) -> Result<usize>;
        fn create_multicast(self: &Device, bytes: usize, devices: u32) -> Result<UniquePtr<MulticastObject>>;
        fn import_multicast(self: &Device, fd: i32, bytes: usize) -> Result<UniquePtr<MulticastObject>>;
        fn enable_peer(self: &Device, ordinal: i32) -> Result<()>;
        fn can_access(self: &Device, ordinal: i32) -> Result<bool>;
        fn ordinal_of(self: &Device, uuid: &[u8; 16]) -> Result<i32>;
        fn native_atomics(self: &Device, uuid: &[u8; 16]) -> Result<bool>;
        fn create_stream(self: &Device, urgent: bool) -> Result<UniquePtr<Stream>>;
        unsafe fn borrow_stream(self: &Device, raw: u64) -> Result<UniquePtr<Stream>>;
        fn create_event(self: &Device, timed: bool) -> Result<UniquePtr<Event>>;
        #[cfg(any(feature = "nccl", feature = "nvshmem"))]
        fn make_current(self: &Device) -> Result<()>;
        fn synchronize(self: &Device) -> Result<()>;

        type Event;
        fn done(self: &Event) -> Result<bool>;
        fn synchronize(self: &Event) -> Result<()>;
        fn elapsed_us(self: &Event, start: &Event) -> Result<f64>;

        type Graph;
        fn launch(self: &Graph, stream: &Stream) -> i32;

        type Capture<'stream>;
        unsafe fn finish<'stream>(self: Pin<&mut Capture<'stream>>, keepalive: Keepalive) -> Result<UniquePtr<Graph>>;

        type Chain;
        fn follow(self: Pin<&mut Chain>, stream: &Stream) -> Result<()>;
        fn extend(self: Pin<&mut Chain>, stream: &Stream) -> Result<()>;

        type Stream;
        fn raw(self: &Stream) -> u64;
        fn id(self: &Stream) -> u64;
        fn done(self: &Stream) -> Result<bool>;
        fn synchronize(self: &Stream) -> Result<()>;
        unsafe fn copy(self: &Stream, to: *mut u8, from: *const u8, bytes: usize) -> i32;
        unsafe fn fill(self: &Stream, to: *mut u8, value: u8, bytes: usize) -> i32;
        unsafe fn store(self: &Stream, word: *mut u32, value: u32) -> i32;
        fn record(self: &Stream, event: &Event) -> i32;
        fn wait(self: &Stream, event: &Event) -> i32;
        #[cxx_name = "launch"]
        unsafe fn launch_block(self: &Stream, kind: Kind, args: *const u8, geometry: &Geometry) -> i32;
        unsafe fn launch_host(self: &Stream, kernel: &HostKernel, geometry: &Geometry) -> i32;
        fn take_over(self: &Stream) -> bool;
        fn hand_back(self: &Stream);
        fn capturing(self: &Stream) -> Result<bool>;
        unsafe fn begin_capture<'stream>(self: &'stream Stream) -> Result<UniquePtr<Capture<'stream>>>;
        fn capture_id(self: &Stream) -> Result<u64>;
        unsafe fn begin_chain(self: &Stream, event: *const Event, keepalive: Keepalive) -> Result<UniquePtr<Chain>>;
    }

    impl<'stream> UniquePtr<Capture<'stream>> {}
}

pub(crate) use bridge::{
    Assembly, Capture, Chain, Device, Event, Graph, Memory, MulticastObject, Scope, Stream, count, current, open,
};

impl Stream {
    /// Launches the kernel of an argument block.
    ///
    /// # Safety
    /// Memory that the kernel reads and writes through the block's addresses lives until the kernel ends.
    pub(crate) unsafe fn launch<Args: Block>(&self, args: &Args, geometry: &Geometry) -> i32 {
        let bytes = std::ptr::from_ref(args).cast();
        // SAFETY: the block is of the kind of its type, and C++ copies it before it returns; the caller is responsible
        // for the addresses in it.
        unsafe { self.launch_block(Args::KIND, bytes, geometry) }
    }
}

macro_rules! any_thread {
    ($($opaque:ty)*) => {$(
        // SAFETY: `cpp/device/device.hpp` promises that every object may be used from any thread.
        unsafe impl Send for $opaque {}
        // SAFETY: `cpp/device/device.hpp` promises it; the methods bound here are const and synchronise inside.
        unsafe impl Sync for $opaque {}
    )*};
}

any_thread! { Assembly Chain Device Event Graph Memory MulticastObject Stream }
