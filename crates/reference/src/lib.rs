//! The results of the operations of symmetra by their definitions, independent of the library's own code: for the
//! command, the benchmarks and the tests. Random data come from seeds, so that every rank knows the inputs of all
//! ranks.
#![allow(missing_docs, reason = "only packages of this repository use it")]

pub mod bounds;
pub mod data;
pub mod element;
pub mod experts;
pub mod found;
pub mod gemm;
pub mod mesh;
pub mod norm;
pub mod quantised;
