//! *How*: launch shapes and the argument blocks the kernels take. Names no stage.

pub(crate) mod args;
