//! Shared code of the programs of symmetra: ranks as processes and threads, flags, operands, timing, tables and output.
#![allow(missing_docs, reason = "only packages of this repository use it")]

pub mod alone;
pub mod buffer;
pub mod bytes;
pub mod codes;
pub mod collective;
pub mod columns;
pub mod comparison;
pub mod devices;
pub mod experts;
pub mod failure;
pub mod form;
pub mod gathering;
pub mod guarded;
pub mod live;
pub mod margins;
pub mod names;
pub mod norms;
pub mod nvshmem;
pub mod orphan;
pub mod output;
pub mod own;
mod plain;
pub mod program;
pub mod ranks;
pub mod signals;
pub mod sizes;
pub mod statistics;
pub mod table;
pub mod target;
pub mod tensor_file;
mod with_element;
