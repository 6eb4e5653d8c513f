//! GEMMs: by cuBLASLt on NVIDIA GPUs, by `matrixmultiply` on the CPU. cuBLASLt is found at run time.

mod cublaslt;
mod gemm;
mod host;
mod library;
mod multiplier;
mod product;
mod tensor;

pub use multiplier::Multiplier;
pub use product::{F8, Numeric, Order, Product, Scaling};
pub use tensor::Tensor;

pub(crate) use tensor::check_unit;
