//! Communication as an engine writes it: slices and streams of cudarc, and a communicator of symmetra.

#[allow(clippy::missing_errors_doc, reason = "the errors are those of the calls")]
pub mod recipes;

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DriverError};
use symmetra::interop::cudarc::{Owned, device, stream};
use symmetra::{Communicator, Config, Result, bootstrap::Tcp};

/// Sums a tensor over all ranks on the stream of the engine.
///
/// # Errors
/// The errors of the communicator.
///
/// # Safety
/// No other code captures the stream.
pub unsafe fn all_reduce(native: &Arc<CudaStream>, tensor: CudaSlice<f32>, bootstrap: Tcp) -> Result<CudaSlice<f32>> {
    let device = device(native.context())?;
    // SAFETY: the caller's promise.
    let stream = unsafe { stream(&device, native) }?;
    let communicator = Communicator::open(bootstrap, &device, Config::default())?;
    let tensor = Owned::new(&device, tensor)?;
    communicator.all_reduce_in_place(&tensor.borrow(), &stream)?;
    communicator.synchronize(&stream)?;
    tensor.into_inner()
}

/// Errors of cudarc are errors of symmetra, so that one `?` serves both.
///
/// # Errors
/// The errors of the driver.
pub fn zeros(stream: &Arc<CudaStream>, len: usize) -> Result<CudaSlice<f32>> {
    let zeros = || -> std::result::Result<_, DriverError> { stream.alloc_zeros(len) };
    Ok(zeros()?)
}

/// NCCL of cudarc and NCCL of symmetra are in one build.
#[cfg(any(feature = "pegainfer", feature = "cubecl"))]
pub mod nccl {
    /// The type of a count in both libraries' calls.
    pub type Communicators = (Option<cudarc::nccl::sys::ncclComm_t>, Option<symmetra::nccl::Communicator>);
}

/// An engine over NCCL, by the class of cudarc.
#[cfg(any(feature = "pegainfer", feature = "cubecl"))]
#[allow(clippy::missing_errors_doc, reason = "the text of an engine")]
pub mod over_nccl {
    use cudarc::nccl::safe::{Comm, Id, ReduceOp};

    use super::engine::*;

    include!("class.rs");
}

/// The same engine over symmetra. One line differs.
#[allow(clippy::missing_errors_doc, reason = "the text of an engine")]
pub mod over_symmetra {
    use symmetra::interop::cudarc::comm::{Comm, Id, ReduceOp};

    use super::engine::*;

    include!("class.rs");
}

/// The names that an engine uses in both cases.
mod engine {
    pub(super) use std::ffi::c_char;
    pub(super) use std::ops::Range;
    pub(super) use std::sync::Arc;

    pub(super) use cudarc::driver::{CudaSlice, CudaStream, CudaView};
}
