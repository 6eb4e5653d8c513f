#![doc = include_str!("../README.md")]

mod collective;
#[cfg(feature = "cuda")]
mod cuda;
mod error;
mod experts;
mod group;
pub mod layers;
#[cfg(feature = "nccl")]
mod nccl;
mod norm;

pub use error::failure;
pub use experts::{Dispatched, Experts};
pub use group::Group;
