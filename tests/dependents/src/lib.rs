//! A crate that depends on symmetra and calls its C++ API from its own C++: through a bridge, and through C.

/// The functions that cxx bridges.
#[cxx::bridge]
pub mod bridge {
    unsafe extern "C++" {
        include!("dependent/src/bridged.hpp");

        fn reduced(value: f32) -> Result<f32>;
    }
}

/// The argument block of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Counting {
    /// The memory of all ranks.
    pub heap: symmetra::HeapView,
    /// A word of each rank.
    pub counters: symmetra::PeerView,
    /// Signals of the words' buffer.
    pub pad: symmetra::PadView,
}

unsafe extern "C" {
    /// Behind C.
    pub safe fn plain_required_bytes(world_size: usize) -> u64;

    /// A kernel of the CPU.
    ///
    /// # Safety
    /// `counting` is valid, and its group is open.
    pub unsafe fn count_threads(counting: *const Counting);
}
