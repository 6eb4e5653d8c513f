//! Ranks as threads: all suites that share a process, one module each. `cargo test --test suite graphs::` runs one.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod abandoned;
mod adopted;
mod all_reduce;
#[path = "../support/allocations.rs"]
mod allocations;
mod alone;
mod bound;
mod closing;
mod compared_calls;
mod coordinator;
mod copies;
#[cfg(feature = "cudarc")]
mod cudarc;
mod cut_calls;
#[path = "../harness/differing_calls.rs"]
mod differing_calls;
#[cfg(feature = "cudarc")]
mod engine_class;
mod environment;
mod expert_cases;
mod expert_errors;
mod expert_halves;
mod expert_methods;
mod expert_properties;
mod expert_slots;
mod expert_survivors;
mod explained;
mod fused;
mod graphs;
mod guards;
mod heap;
mod held;
mod host_calls;
mod hostile;
#[cfg(feature = "gloo")]
mod hosts;
mod layers;
mod low_contention;
mod mixed;
mod mixed_tuning;
mod most_blocks;
mod native;
mod norm;
mod numerics;
mod operations;
mod other_device;
mod pairs;
mod pools;
mod products;
mod put;
mod quantised;
mod several;
mod signals;
mod slices;
#[path = "../support/mod.rs"]
mod support;
mod timings;
mod tuning;
mod untyped;
