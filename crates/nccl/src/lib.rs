//! `libsymmetra_nccl.so`: a library with the names of NCCL. A communicator whose ranks are on one host runs on symmetra's
//! kernels; the real NCCL serves all others.
#![allow(non_snake_case)]

mod abi;
mod assembly;
mod at_once;
mod birth;
mod calls;
mod comm;
mod config;
mod ending;
mod error;
mod exports;
mod group;
mod log;
mod memory;
mod numbers;
mod opening;
mod operations;
mod out;
mod parting;
mod parts;
mod place;
mod queries;
mod real;
mod reductions;
mod registering;
mod registrations;
mod registry;
mod reunion;
mod route;
mod scaled;
mod served;
mod settings;
mod streams;
mod variables;
mod verdict;
mod version;
mod windows;
mod wish;
