//! NVSHMEM as an allocator: its symmetric memory as operands of collectives, without copies (feature `nvshmem`). The
//! library is loaded at run time. All-reduces on its memory have run on 2 and 4 GPUs, and `join`, `adopt` and `map` on
//! one GPU that two processes share.
//!
//! ```no_run
//! # use symmetra::{Communicator, Result, Stream, nvshmem::{Library, Session}};
//! # fn rank(communicator: &Communicator, stream: &Stream) -> Result<()> {
//! let session = Session::open(Library::find(None), communicator)?;
//! let values = session.symmetric::<f32>(1 << 20)?;
//! values.write(&vec![1.0; 1 << 20], stream)?;
//! communicator.all_reduce_in_place(&values, stream)?;
//! communicator.synchronize(stream)?;
//! drop(values);
//! session.close()
//! # }
//! ```
//!
//! A rank is a process: NVSHMEM has one processing element (PE) per process. `NVSHMEM_DISABLE_NVLS` must be 1 on every
//! rank, because NVSHMEM would otherwise use NVLink multicast. `symmetra launch --nvshmem` sets the variable.
//!
//! NVSHMEM's calls have no deadline. A thread of the session makes them. The caller waits for at most `deadlines.open`,
//! and only while the group is healthy. After a wait that ended without a result, NVSHMEM is never called again in the
//! process, because such a call could wait forever or end the process.

mod buffer;
mod calls;
mod heap;
mod library;
mod mapped;
mod plugin;
mod process;
mod session;

pub use buffer::Buffer;
pub use library::{Library, Version};
pub use mapped::Mapped;
pub use plugin::Plugin;
pub use session::Session;
