//! The functions of Gloo: `cpp/gloo/wire.hpp`, one to one.
// `panic` occurs in cxx's expansion for C++ types that lack the requirements of a pointer.
#![allow(clippy::multiple_unsafe_ops_per_block, clippy::panic, unreachable_pub, missing_docs)]

#[cxx::bridge(namespace = "symmetra::gloo_wire")]
mod bridge {
    unsafe extern "C++" {
        include!("symmetra/cpp/core/bridge.hpp");
        include!("symmetra/cpp/gloo/wire.hpp");

        type Interface;
        fn open_interface(name: &str) -> Result<SharedPtr<Interface>>;

        type Wire;
        fn open_wire(interface: &Interface, rank: u32, world_size: u32, timeout_ms: u64) -> Result<UniquePtr<Wire>>;
        fn address(self: &Wire, peer: u32) -> Result<Vec<u8>>;
        fn connect(self: Pin<&mut Wire>, peer: u32, address: &[u8]) -> Result<()>;
        fn wait_first(self: Pin<&mut Wire>, ranks: &[u32]) -> Result<()>;
        fn all_to_all(self: Pin<&mut Wire>, send: &[u8], receive: &mut [u8], timeout_ms: u64) -> Result<()>;
        fn all_gather(self: Pin<&mut Wire>, own: &[u8], all: &mut [u8], timeout_ms: u64) -> Result<()>;
    }
}

pub(crate) use bridge::{Interface, Wire, open_interface, open_wire};

// SAFETY: the header promises that any thread may use an interface: the device is only read.
unsafe impl Send for Interface {}
// SAFETY: as above.
unsafe impl Sync for Interface {}
// SAFETY: the header requires one thread at a time, not always the same.
unsafe impl Send for Wire {}
