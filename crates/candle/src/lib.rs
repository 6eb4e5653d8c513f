#![doc = include_str!("../README.md")]

mod collective;
mod error;
mod experts;
mod group;
pub mod layers;
mod norm;

pub use error::failure;
pub use experts::{Dispatched, Experts};
pub use group::Group;
