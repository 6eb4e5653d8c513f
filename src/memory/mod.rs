//! Memory that devices and peers address. Rust never forms a reference to this memory.

mod adopted;
mod arena;
mod block;
mod copy;
mod exported;
mod guard;
mod heap;
mod host_copies;
mod layout;
mod mapping;
mod multicast;
mod operand;
mod owner;
mod pinned;
mod plain;
mod pools;
mod range;
mod registration;
mod signal;
mod slots;
mod symmetric;
mod untyped;
mod view;

pub use adopted::{Adopted, AdoptedSlice};
pub use copy::{copy, copy_from_host, copy_to_host};
pub use layout::{SIGNAL_CHANNELS, required_bytes};
pub use operand::Operand;
pub use pinned::HostBuffer;
pub use plain::{DeviceBuffer, Ref};
pub use signal::SignalPad;
pub use symmetric::{SymmetricBuffer, SymmetricSlice};
pub use untyped::Untyped;
pub use view::{HeapView, MulticastData, MulticastView, PadView, PeerView};

pub(crate) use arena::Arena;
pub(crate) use copy::enqueue_copy;
#[cfg(feature = "nvshmem")]
pub(crate) use host_copies::group_copies;
pub(crate) use host_copies::host_copies;
pub(crate) use layout::{ArenaLayout, Scratch, buffer_bytes, escaped_groups, escaped_room};
#[cfg(feature = "nvshmem")]
pub(crate) use operand::Sealed;
pub(crate) use operand::{Place, View, WithView};
pub(crate) use owner::Owner;
#[cfg(feature = "nvshmem")]
pub(crate) use plain::size_bytes;
pub(crate) use pools::{Pooled, Pools};
pub(crate) use registration::{Pointer, Registration, Use, Used, register};
