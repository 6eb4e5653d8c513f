//! The C types and numbers of NCCL's interface.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// An `ncclResult_t`.
pub(crate) type Code = c_int;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const UNHANDLED_CUDA_ERROR: Code = 1;
pub(crate) const SYSTEM_ERROR: Code = 2;
pub(crate) const INTERNAL_ERROR: Code = 3;
pub(crate) const INVALID_ARGUMENT: Code = 4;
pub(crate) const INVALID_USAGE: Code = 5;
pub(crate) const REMOTE_ERROR: Code = 6;
pub(crate) const IN_PROGRESS: Code = 7;

/// An `ncclComm_t`, an `ncclWindow_t`, or another handle that only its maker understands.
pub(crate) type Handle = *mut c_void;
/// A `cudaStream_t` or a `hipStream_t`.
pub(crate) type CudaStream = *mut c_void;

/// An `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId {
    pub(crate) internal: [c_char; 128],
}

impl UniqueId {
    pub(crate) fn bytes(&self) -> [u8; 128] {
        self.internal.map(|byte| byte as u8)
    }
}

impl From<[u8; 128]> for UniqueId {
    fn from(bytes: [u8; 128]) -> Self {
        Self { internal: bytes.map(|byte| byte as c_char) }
    }
}

/// An `ncclTeam`: some ranks of a communicator, at equal distances.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Team {
    pub(crate) ranks: c_int,
    pub(crate) rank: c_int,
    pub(crate) stride: c_int,
}

/// An `ncclSimInfo_t`.
#[repr(C)]
pub(crate) struct SimInfo {
    _size: usize,
    pub(crate) magic: c_uint,
    _version: c_uint,
    pub(crate) estimated_time: f32,
}

impl SimInfo {
    pub(crate) const MAGIC: c_uint = 0x7468_5283;
}

/// An `ncclCommProperties_t`.
#[repr(C)]
pub(crate) struct CommProperties {
    pub(crate) size: usize,
    pub(crate) magic: c_uint,
    _version: c_uint,
    pub(crate) rank: c_int,
    pub(crate) ranks: c_int,
    pub(crate) device: c_int,
    pub(crate) nvml_device: c_int,
    pub(crate) device_api: bool,
    pub(crate) multimem: bool,
    pub(crate) gin_type: c_int,
    pub(crate) lsa_teams: c_int,
    pub(crate) host_rma: bool,
    pub(crate) railed_gin_type: c_int,
}

/// The magic number of the structs of NCCL that start with a size.
pub(crate) const MAGIC: c_uint = 0xcafe_beef;
