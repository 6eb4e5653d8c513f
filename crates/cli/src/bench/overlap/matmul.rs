//! Products of square matrices by cuBLASLt, on a stream that both crates use.
#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::{CudaBlasLT, Matmul as CublasLt, MatmulConfig, MatmulShared, Workspace, sys};
use cudarc::driver::CudaStream;
use half::bf16;
use symmetra::interop::cudarc::{lend, new_stream};
use symmetra::{Device, DeviceBuffer, Error, Result, Stream};

/// Some products, one after the other.
pub(super) struct Matmul {
    cublaslt: Bf16,
    /// Two factors and the product.
    matrices: [DeviceBuffer<bf16>; 3],
    size: usize,
    matmuls: u32,
}

/// cuBLASLt for a type that cudarc itself multiplies only with one more feature.
struct Bf16(CudaBlasLT);

impl MatmulShared for Bf16 {
    fn handle(&self) -> &sys::cublasLtHandle_t {
        self.0.handle()
    }
    fn workspace(&self) -> &Workspace {
        self.0.workspace()
    }
    fn stream(&self) -> &Arc<CudaStream> {
        self.0.stream()
    }
}

impl CublasLt<bf16> for Bf16 {
    fn matrix_type() -> sys::cudaDataType {
        sys::cudaDataType_t::CUDA_R_16BF
    }
    fn compute_type() -> sys::cublasComputeType_t {
        sys::cublasComputeType_t::CUBLAS_COMPUTE_32F
    }
}

impl Matmul {
    /// With random factors, since zeros are multiplied at less power; and the stream it works on.
    pub(super) fn new(device: &Device, size: usize, matmuls: u32, seed: u64) -> Result<(Self, Stream)> {
        // SAFETY: one stream orders all work; nobody captures it but this library, of whose memory all operands are.
        let (stream, native) = unsafe { new_stream(device) }?;
        // SAFETY: only loads the library.
        if !unsafe { sys::is_culib_present() } {
            let reason = "libcublasLt is not among the libraries the loader finds".to_owned();
            return Err(Error::Unsupported { what: "a matmul on a GPU".to_owned(), reason });
        }
        let cublaslt = Bf16(CudaBlasLT::new(native).map_err(cublas)?);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut draw = || bf16::from_f32(random.f32() - 0.5);
        let mut matrix = || {
            let values: Vec<bf16> = (0..size * size).map(|_| draw()).collect();
            DeviceBuffer::from_slice(&values, &stream)
        };
        let matrices = [matrix()?, matrix()?, matrix()?];
        Ok((Self { cublaslt, matrices, size, matmuls }, stream))
    }

    /// Enqueues them.
    pub(super) fn enqueue(&self) -> Result<()> {
        (0..self.matmuls).try_for_each(|_| self.multiply())
    }

    fn multiply(&self) -> Result<()> {
        let size = self.size as u64;
        let pitch = self.size as i64;
        let config = MatmulConfig {
            transa: false,
            transb: false,
            transc: false,
            m: size,
            n: size,
            k: size,
            alpha: 1.0,
            lda: pitch,
            ldb: pitch,
            beta: 0.0,
            ldc: pitch,
            stride_a: None,
            stride_b: None,
            stride_c: None,
            stride_bias: None,
            batch_size: None,
        };
        let [left, right, product] = &self.matrices;
        let lend = |matrix| lend(DeviceBuffer::borrow(matrix), self.cublaslt.stream());
        let (left, right, mut product) = (lend(left)?, lend(right)?, lend(product)?);
        let (left, right, mut product) = (left.as_view(), right.as_view(), product.as_view_mut());
        // SAFETY: the shapes are those of the memory.
        unsafe { self.cublaslt.matmul(config, &left, &right, &mut product, None, None) }.map_err(cublas)
    }
}

fn cublas(error: CublasError) -> Error {
    Error::Device { code: error.0 as i64, message: error.to_string() }
}
