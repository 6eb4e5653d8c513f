//! Tests of `src/experts/form.rs`, whose module they are.
