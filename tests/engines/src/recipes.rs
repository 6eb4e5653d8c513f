//! The snippets of `docs/engines.md`: the changes of maintainers. The page has the same text.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use symmetra::bootstrap::Bootstrap;
use symmetra::interop::cudarc::comm::{Comm, CommError, Id, ReduceOp};
use symmetra::{Communicator, Config, Deadlines, Device, Error, Ref, Stream};

/// Writes an id into a file that only this user can read.
pub fn write_id(id: &Id, path: &Path) -> std::io::Result<()> {
    let part = path.with_extension("part");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(&id.internal().map(|byte| byte as u8))?;
    // Readers find the whole id or no file.
    std::fs::rename(&part, path)
}

/// Ends a step: the engine's own wait, then the health of the group.
pub fn end_step(comm: &Comm) -> Result<(), CommError> {
    comm.stream().synchronize().map_err(Error::from)?;
    comm.check()
}

/// Opens a group whose ranks may wait for each other for 10 minutes, as when one of them compiles kernels in mid-run.
pub fn open(bootstrap: impl Bootstrap, stream: Arc<CudaStream>) -> Result<Comm, CommError> {
    let steady = Duration::from_secs(600);
    Comm::open(bootstrap, stream, Config::default().deadlines(Deadlines::default().steady(steady)))
}

/// Captures a step, after one eager step on all ranks.
pub fn capture(comm: &Comm, step: impl Fn() -> Result<(), CommError>) -> Result<Option<CudaGraph>, CommError> {
    step()?;
    end_step(comm)?;
    let stream = comm.stream();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(Error::from)?;
    let recorded = step();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).map_err(Error::from)?;
    recorded.map(|()| graph)
}

/// Two communicators for each rank, of which each has its own order of calls.
pub fn two_groups(decode: Vec<Arc<CudaStream>>, experts: Vec<Arc<CudaStream>>) -> Result<[Vec<Comm>; 2], CommError> {
    Ok([Comm::from_devices(decode)?, Comm::from_devices(experts)?])
}

/// Sums hidden states of all ranks in place, from one thread for each rank or from one for all.
pub fn sum(comms: &[Comm], hidden: &mut [CudaSlice<f32>]) -> Result<(), CommError> {
    let mut calls = comms.iter().zip(hidden);
    calls.try_for_each(|(comm, hidden)| comm.all_reduce_in_place(hidden, &ReduceOp::Sum))
}

/// Wraps the stream of an engine that has raw handles. Once for each stream.
///
/// # Safety
/// The requirements of [`Stream::borrow_raw`].
pub unsafe fn queue(device: &Device, stream: u64) -> symmetra::Result<Stream> {
    // SAFETY: the caller's promise.
    unsafe { Stream::borrow_raw(device, stream) }
}

/// Sums `len` floats at one address into another address.
///
/// # Safety
/// The requirements of [`Ref::from_raw`] and [`Ref::from_const`].
pub unsafe fn sum_raw(
    communicator: &Communicator,
    from: u64,
    to: u64,
    len: usize,
    queue: &Stream,
) -> symmetra::Result<()> {
    let device = communicator.device();
    if from == to {
        // SAFETY: the caller's promise.
        let both = unsafe { Ref::<f32>::from_raw(device, to as *mut f32, len) }?;
        return communicator.all_reduce_in_place(both, queue);
    }
    // SAFETY: the caller's promise.
    let (input, output) = unsafe {
        (Ref::<f32>::from_const(device, from as *const f32, len)?, Ref::from_raw(device, to as *mut f32, len)?)
    };
    communicator.all_reduce(input, output, queue)
}
