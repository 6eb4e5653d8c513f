//! Tests of `src/experts/config.rs`, whose module they are.
