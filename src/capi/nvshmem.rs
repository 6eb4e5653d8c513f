//! Memory of NVSHMEM. In builds without the feature every call returns an error.

#[cfg_attr(not(feature = "nvshmem"), path = "nvshmem/absent.rs")]
mod session;

use super::Communicator;
use bridge::Operand;
use session::{
    ShmemMapped, ShmemSession, shmem_address_of, shmem_adopt, shmem_bytes, shmem_close, shmem_map, shmem_open,
    shmem_reclaim, shmem_symmetric,
};

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    unsafe extern "C++" {
        include!("symmetra/src/capi/mod.rs.h");

        type Communicator = crate::collective::Communicator;
        type Operand = crate::capi::bridge::Operand;
    }

    extern "Rust" {
        type ShmemSession;
        fn shmem_open(communicator: &Communicator, library: &[u8], joins: bool) -> Result<Box<ShmemSession>>;
        /// The caller owns the tensor of the operand.
        fn shmem_symmetric(session: &ShmemSession, count: usize, dtype: u32) -> Result<Operand>;
        /// The caller owns the tensor of the operand.
        unsafe fn shmem_adopt(session: &ShmemSession, memory: &Operand) -> Result<Operand>;
        type ShmemMapped;
        fn shmem_map(session: &ShmemSession, communicator: &Communicator) -> Result<Box<ShmemMapped>>;
        unsafe fn shmem_address_of(mapped: &ShmemMapped, buffer: &Operand) -> Result<usize>;
        fn shmem_reclaim(session: &ShmemSession) -> Result<()>;
        fn shmem_bytes(session: &ShmemSession) -> usize;
        fn shmem_close(session: &ShmemSession) -> Result<()>;
    }
}
