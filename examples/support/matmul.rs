//! Products of row-major matrices: by cuBLASLt on a GPU, by loops on the CPU.

use symmetra::float8::F8E4M3;
use symmetra::{Device, DeviceBuffer, DeviceKind, Ref, Result, Stream, SymmetricBuffer};

use super::reference::multiply;

/// Products of equal shapes, whose factors and results lie one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Products {
    /// How many.
    pub(crate) count: usize,
    /// Columns of the factors on the left.
    pub(crate) inner: usize,
    /// Whether each element is at least 0.
    pub(crate) relu: bool,
}

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

    /// `result = x w`, for each of `products`.
    pub(crate) fn multiply(
        &self,
        x: Ref<'_, f32>,
        w: &DeviceBuffer<f32>,
        result: Ref<'_, f32>,
        products: Products,
        stream: &Stream,
    ) -> Result<()> {
        let Products { count, inner, relu } = products;
        if count == 0 {
            return Ok(());
        }
        match self {
            Self::Host => {
                let (x, w) = (x.read(stream)?, w.read(stream)?);
                let factors = x.chunks_exact(x.len() / count).zip(w.chunks_exact(w.len() / count));
                let mut values: Vec<f32> = factors.flat_map(|(x, w)| multiply(x, w, inner)).collect();
                if relu {
                    values.iter_mut().for_each(|value| *value = value.max(0.0));
                }
                result.write(&values, stream)
            }
            #[cfg(feature = "cudarc")]
            Self::CublasLt(cublaslt) => cublaslt.multiply(x, w, result, products),
        }
    }

    /// `product = scale x w`, with each element at least 0; `inner` is the columns of `x`, and `w` is stored column after
    /// column.
    pub(crate) fn multiply_codes(
        &self,
        x: &SymmetricBuffer<F8E4M3>,
        w: &DeviceBuffer<F8E4M3>,
        product: &SymmetricBuffer<f32>,
        inner: usize,
        scale: f32,
        stream: &Stream,
    ) -> Result<()> {
        match self {
            Self::Host => {
                let decode = |codes: Vec<F8E4M3>| codes.iter().map(F8E4M3::to_f32).collect::<Vec<_>>();
                let (x, w) = (decode(x.read(stream)?), decode(w.read(stream)?));
                let dot = |row: &[f32], column: &[f32]| row.iter().zip(column).map(|(x, w)| x * w).sum::<f32>();
                let element = |row, column| (scale * dot(row, column)).max(0.0);
                let row = |row| w.chunks_exact(inner).map(move |column| element(row, column));
                product.write(&x.chunks_exact(inner).flat_map(row).collect::<Vec<_>>(), stream)
            }
            #[cfg(feature = "cudarc")]
            Self::CublasLt(cublaslt) => cublaslt.multiply_codes(x, w, product, inner, scale),
        }
    }
}

#[cfg(feature = "cudarc")]
mod cublaslt {
    #![allow(unsafe_code)]

    use std::sync::Arc;

    use cudarc::cublaslt::result::{self, CublasError};
    use cudarc::cublaslt::{Activation, CudaBlasLT, Matmul, MatmulConfig, MatmulShared, Workspace, sys};
    use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
    use symmetra::float8::F8E4M3;
    use symmetra::interop::cudarc::{lend, new_stream};
    use symmetra::{Device, DeviceBuffer, Error, Ref, Result, Stream, SymmetricBuffer};

    use super::Products;

    /// cuBLASLt with all 24 bits of f32; cudarc's own choice is TF32.
    pub(crate) struct CublasLt {
        library: CudaBlasLT,
        /// Memory for products of codes: cudarc keeps its own to itself.
        scratch: CudaSlice<u8>,
    }

    /// What cuBLASLt creates and `destroy` destroys.
    struct Created<T: Copy> {
        handle: T,
        destroy: unsafe fn(T) -> std::result::Result<(), CublasError>,
    }

    impl<T: Copy> Drop for Created<T> {
        fn drop(&mut self) {
            // SAFETY: the last use of the handle, which is valid. An error leaves nothing to do.
            let _ = unsafe { (self.destroy)(self.handle) };
        }
    }

    impl MatmulShared for CublasLt {
        fn handle(&self) -> &sys::cublasLtHandle_t {
            self.library.handle()
        }
        fn workspace(&self) -> &Workspace {
            self.library.workspace()
        }
        fn stream(&self) -> &Arc<CudaStream> {
            self.library.stream()
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
            let library = CudaBlasLT::new(native.clone()).map_err(cublas)?;
            // As large as NVIDIA advises for Hopper.
            let scratch = native.alloc_zeros(32 << 20)?;
            Ok((Self { library, scratch }, stream))
        }

        pub(crate) fn multiply(
            &self,
            x: Ref<'_, f32>,
            w: &DeviceBuffer<f32>,
            result: Ref<'_, f32>,
            Products { count, inner, relu }: Products,
        ) -> Result<()> {
            let (rows, columns) = (x.len() / count / inner, w.len() / count / inner);
            // cuBLASLt stores columns: for it this is result' = w' x'.
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
                stride_a: Some((inner * columns) as i64),
                stride_b: Some((rows * inner) as i64),
                stride_c: Some((rows * columns) as i64),
                stride_bias: None,
                batch_size: Some(count as i32),
            };
            let native = self.stream();
            let (w, x) = (lend(w.borrow(), native)?, lend(x, native)?);
            let mut result = lend(result, native)?;
            let (w, x, mut result) = (w.as_view(), x.as_view(), result.as_view_mut());
            let relu = relu.then_some(&Activation::Relu);
            // SAFETY: the shapes are those of the memory.
            unsafe { self.matmul(config, &w, &x, &mut result, None, relu) }.map_err(cublas)
        }
    }

    impl CublasLt {
        /// FP8 needs compute capability 8.9, both operands with `inner` contiguous, and rows of 16 bytes' multiples.
        pub(crate) fn multiply_codes(
            &self,
            x: &SymmetricBuffer<F8E4M3>,
            w: &DeviceBuffer<F8E4M3>,
            product: &SymmetricBuffer<f32>,
            inner: usize,
            scale: f32,
        ) -> Result<()> {
            use sys::cublasLtMatmulDescAttributes_t::{CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_TRANSA};
            let (rows, columns) = (x.len() / inner, w.len() / inner);
            self.check(inner, columns)?;
            let layout = |kind, height: usize, width: usize| {
                let handle = result::create_matrix_layout(kind, height as u64, width as u64, height as i64);
                Ok::<_, Error>(Created { handle: handle.map_err(cublas)?, destroy: result::destroy_matrix_layout })
            };
            // cuBLASLt stores columns: for it the codes of both operands have `inner` rows, and product' = w' x.
            let codes = sys::cudaDataType_t::CUDA_R_8F_E4M3;
            let (w_layout, x_layout) = (layout(codes, inner, columns)?, layout(codes, inner, rows)?);
            let product_layout = layout(sys::cudaDataType_t::CUDA_R_32F, columns, rows)?;
            let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
            let handle = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F).map_err(cublas)?;
            let call = Created { handle, destroy: result::destroy_matmul_desc };
            let relu = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU as i32;
            for (attribute, value) in [(CUBLASLT_MATMUL_DESC_TRANSA, 1), (CUBLASLT_MATMUL_DESC_EPILOGUE, relu)] {
                // SAFETY: the descriptor is valid, and both attributes are numbers of 32 bits, which are copied.
                let set =
                    unsafe { result::set_matmul_desc_attribute(call.handle, attribute, (&raw const value).cast(), 4) };
                set.map_err(cublas)?;
            }
            let handle = result::create_matmul_pref().map_err(cublas)?;
            let preference = Created { handle, destroy: result::destroy_matmul_pref };
            let (bytes, library) = (self.scratch.len(), *self.handle());
            let limit = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            // SAFETY: the preference is valid, and the attribute is a number of 64 bits, which is copied.
            let set =
                unsafe { result::set_matmul_pref_attribute(preference.handle, limit, (&raw const bytes).cast(), 8) };
            set.map_err(cublas)?;
            let (a, b, d) = (w_layout.handle, x_layout.handle, product_layout.handle);
            // SAFETY: all handles are valid.
            let found =
                unsafe { result::get_matmul_algo_heuristic(library, call.handle, a, b, d, d, preference.handle) };
            let algorithm = found.map_err(cublas)?.algo;
            let native = self.stream();
            let (scratch, _ordered) = self.scratch.device_ptr(native);
            let (w, x, product) = (w.borrow().as_raw(), x.borrow().as_raw(), product.borrow().as_raw());
            let zero = 0f32;
            // SAFETY: the layouts are those of the memory, which this library owns and frees after the device's work; one
            // stream orders all its uses. The two factors are read before the call returns.
            let multiplied = unsafe {
                result::matmul(
                    library,
                    call.handle,
                    (&raw const scale).cast(),
                    (&raw const zero).cast(),
                    w as *const _,
                    a,
                    x as *const _,
                    b,
                    product as *const _,
                    d,
                    product as *mut _,
                    d,
                    &algorithm,
                    scratch as *mut _,
                    bytes,
                    native.cu_stream() as *mut _,
                )
            };
            multiplied.map_err(cublas)
        }

        /// Whether the device and cuBLASLt take a product of codes of these shapes.
        fn check(&self, inner: usize, columns: usize) -> Result<()> {
            let (major, minor) = self.stream().context().compute_capability()?;
            let reason = if (major, minor) < (8, 9) {
                format!("FP8 needs compute capability 8.9 or later, and this GPU has {major}.{minor}")
            } else if !inner.is_multiple_of(16) || !columns.is_multiple_of(16) {
                format!("cuBLASLt needs multiples of 16, and W1 is {inner} x {columns} on a rank")
            } else {
                return Ok(());
            };
            Err(Error::Unsupported { what: "a product of FP8 codes".to_owned(), reason })
        }
    }

    fn cublas(error: CublasError) -> Error {
        Error::Device { code: error.0 as i64, message: error.to_string() }
    }
}
