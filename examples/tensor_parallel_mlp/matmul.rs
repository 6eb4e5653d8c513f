//! Products of row-major matrices: by cuBLASLt on a GPU, by loops on the CPU.

use symmetra::{Device, DeviceBuffer, DeviceKind, Result, Stream, SymmetricBuffer};

use super::model::multiply;

/// A matrix multiplication on a stream.
pub(crate) enum Matmul {
    /// The CPU's stream takes no work of the program, so a product waits for earlier work of the stream and blocks. It
    /// cannot be captured.
    Host,
    /// Enqueues. Can be captured.
    #[cfg(feature = "cudarc")]
    CublasLt(cublaslt::CublasLt),
}

impl Matmul {
    /// For a device, with a new stream of the device.
    pub(crate) fn new(device: &Device) -> Result<(Self, Stream)> {
        #[cfg(feature = "cudarc")]
        if device.kind() == DeviceKind::Cuda {
            let (cublaslt, stream) = cublaslt::CublasLt::new(device)?;
            return Ok((Self::CublasLt(cublaslt), stream));
        }
        match device.kind() {
            DeviceKind::Host => Ok((Self::Host, Stream::new(device)?)),
            kind => Err(symmetra::Error::Unsupported {
                what: format!("a product on {kind}"),
                reason: "this example was built without the feature cudarc".to_owned(),
            }),
        }
    }

    /// Whether products can be part of a graph.
    pub(crate) fn is_captured(&self) -> bool {
        !matches!(self, Self::Host)
    }

    /// `product = x w`, with each element at least 0 if `relu`; `inner` is the columns of `x`.
    pub(crate) fn multiply(
        &self,
        x: &SymmetricBuffer<f32>,
        w: &DeviceBuffer<f32>,
        product: &SymmetricBuffer<f32>,
        inner: usize,
        relu: bool,
        stream: &Stream,
    ) -> Result<()> {
        match self {
            Self::Host => {
                let mut values = multiply(&x.read(stream)?, &w.read(stream)?, inner);
                if relu {
                    values.iter_mut().for_each(|value| *value = value.max(0.0));
                }
                product.write(&values, stream)
            }
            #[cfg(feature = "cudarc")]
            Self::CublasLt(cublaslt) => cublaslt.multiply(x, w, product, inner, relu),
        }
    }
}

#[cfg(feature = "cudarc")]
mod cublaslt {
    #![allow(unsafe_code)]

    use std::sync::Arc;

    use cudarc::cublaslt::result::CublasError;
    use cudarc::cublaslt::{Activation, CudaBlasLT, Matmul, MatmulConfig, MatmulShared, Workspace, sys};
    use cudarc::driver::CudaStream;
    use symmetra::interop::cudarc::{lend, new_stream};
    use symmetra::{Device, DeviceBuffer, Error, Result, Stream, SymmetricBuffer};

    /// cuBLASLt with all 24 bits of f32; cudarc's own choice is TF32.
    pub(crate) struct CublasLt(CudaBlasLT);

    impl MatmulShared for CublasLt {
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

    impl Matmul<f32> for CublasLt {
        fn matrix_type() -> sys::cudaDataType {
            sys::cudaDataType_t::CUDA_R_32F
        }
        fn compute_type() -> sys::cublasComputeType_t {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F
        }
    }

    impl CublasLt {
        /// On a new stream, which both crates use.
        pub(crate) fn new(device: &Device) -> Result<(Self, Stream)> {
            // SAFETY: one stream orders all work; only this library captures it, and the operands of products are its
            // memory, which outlives the graph.
            let (stream, native) = unsafe { new_stream(device) }?;
            // SAFETY: only loads the library.
            if !unsafe { sys::is_culib_present() } {
                let reason = "libcublasLt is not among the libraries the loader finds".to_owned();
                return Err(Error::Unsupported { what: "a product on a GPU".to_owned(), reason });
            }
            let cublaslt = CudaBlasLT::new(native).map_err(cublas)?;
            Ok((Self(cublaslt), stream))
        }

        pub(crate) fn multiply(
            &self,
            x: &SymmetricBuffer<f32>,
            w: &DeviceBuffer<f32>,
            product: &SymmetricBuffer<f32>,
            inner: usize,
            relu: bool,
        ) -> Result<()> {
            let (rows, columns) = (x.len() / inner, w.len() / inner);
            // cuBLASLt stores columns: for it this is product' = w' x'.
            let config = MatmulConfig {
                transa: false,
                transb: false,
                transc: false,
                m: columns as u64,
                n: rows as u64,
                k: inner as u64,
                alpha: 1.0,
                lda: columns as i64,
                ldb: inner as i64,
                beta: 0.0,
                ldc: columns as i64,
                stride_a: None,
                stride_b: None,
                stride_c: None,
                stride_bias: None,
                batch_size: None,
            };
            let native = self.stream();
            let (w, x) = (lend(w.borrow(), native)?, lend(x.borrow(), native)?);
            let mut product = lend(product.borrow(), native)?;
            let (w, x, mut product) = (w.as_view(), x.as_view(), product.as_view_mut());
            let relu = relu.then_some(&Activation::Relu);
            // SAFETY: the shapes are those of the memory.
            unsafe { self.matmul(config, &w, &x, &mut product, None, relu) }.map_err(cublas)
        }
    }

    fn cublas(error: CublasError) -> Error {
        Error::Device { code: error.0 as i64, message: error.to_string() }
    }
}
