//! Backends, which serve the calls of a group: symmetra kernels with a codec if one is configured, symmetra kernels,
//! then NCCL, then the CPU with an engine between hosts. All ranks choose the same backend for a call.

mod dispatch;
mod explain;
mod group;
mod host;
mod hosts;
mod nccl;
#[cfg(feature = "nccl")]
mod nccl_library;
mod process_group;
mod quantised;
mod settings;

pub(crate) use dispatch::{Facts, Request};
pub use explain::{Backend, Explanation, Served};
pub(crate) use group::{GroupBackends, GroupHosts};
pub(crate) use host::final_exchange::FinalExchange;
pub(crate) use host::two_level::TwoLevel;
pub(crate) use host::wire::Engines;
pub use hosts::Hosts;
#[cfg(feature = "nccl")]
pub use nccl_library::nccl_library;
pub(crate) use process_group::GroupCalls;
pub use process_group::ProcessGroup;
pub use quantised::QuantisedAllReduce;
pub(crate) use settings::NamedSettings;
