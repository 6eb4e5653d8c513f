//! A crate that depends on symmetra and calls its C++ API from C++ of its own: behind a bridge, and behind C.

/// Behind a bridge.
#[cxx::bridge]
pub mod bridge {
    unsafe extern "C++" {
        include!("dependent/src/bridged.hpp");

        fn reduced(value: f32) -> Result<f32>;
    }
}

unsafe extern "C" {
    /// Behind C.
    pub safe fn plain_required_bytes(world_size: usize) -> u64;
}
