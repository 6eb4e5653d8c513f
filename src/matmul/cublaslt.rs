//! GEMMs on NVIDIA GPUs, by cuBLASLt.
//!
//! cuBLASLt uses column-major matrices. For cuBLASLt a row-major matrix is its transpose, so cuBLASLt computes `result' = right'
//! left'`, with the right factor first.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::Mutex;

use super::gemm::Gemm;
use super::library::{FoundAlgorithm, GemmAlgorithm, GemmHandle, GemmLibrary};
use super::product::{Numeric, Order, Product, Scaling};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fork::Maker;
use crate::types::Dtype;

/// The size that NVIDIA recommends for Hopper.
pub(super) const WORKSPACE_BYTES: usize = 32 << 20;

/// The first version with a scale for each row and column.
const FIRST_WITH_ROW_SCALES: usize = 120_900;

/// The number of kinds of GEMMs that one handle caches.
const MOST_KINDS: usize = 512;

/// Attributes of a GEMM: `cublasLtMatmulDescAttributes_t`.
mod product_attribute {
    pub(super) const TRANSPOSE_FIRST: i32 = 3;
    pub(super) const TRANSPOSE_SECOND: i32 = 4;
    pub(super) const EPILOGUE: i32 = 7;
    pub(super) const BIAS: i32 = 8;
    pub(super) const FIRST_SCALE: i32 = 17;
    pub(super) const SECOND_SCALE: i32 = 18;
    pub(super) const FAST_ACCUMULATION: i32 = 25;
    pub(super) const BIAS_TYPE: i32 = 26;
    pub(super) const FIRST_SCALE_MODE: i32 = 31;
    pub(super) const SECOND_SCALE_MODE: i32 = 32;
}

/// Attributes of a matrix: `cublasLtMatrixLayoutAttribute_t`.
const BATCH_COUNT: i32 = 5;
const BATCH_STRIDE: i32 = 6;

/// Attributes of a preference: `cublasLtMatmulPreferenceAttributes_t`.
const WORKSPACE: i32 = 1;
const SPLIT_SUMS: i32 = 3;
const ALIGNMENTS: [i32; 4] = [5, 6, 7, 8];

/// `CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F`.
const SCALE_ROWS: i32 = 3;
/// Values of `cublasLtEpilogue_t`; the last two are also bits.
const PLAIN: i32 = 1;
const RELU: i32 = 2;
const ADD_BIAS: i32 = 4;
/// A placeholder address for a bias or scales until a call sets its own, because the library's choice depends on whether an
/// address is set.
const SOMEWHERE: usize = 256;

/// How the partial sums of blocks over `inner` may be added: values of `cublasLtReductionScheme_t`. Not in the result's type,
/// which would round each partial sum.
const NOT_SPLIT: u32 = 0;
const JOINED_IN_F32: u32 = 2;

/// `cudaDataType_t`.
fn data_type(dtype: Dtype) -> i32 {
    match dtype {
        Dtype::F16 => 2,
        Dtype::BF16 => 14,
        Dtype::F8E4M3 => 28,
        Dtype::F8E5M2 => 29,
        _ => 0,
    }
}

/// `cublasComputeType_t`: f32, or f32 with factors that are rounded to TF32.
fn compute_type(numeric: Numeric) -> i32 {
    match numeric {
        Numeric::Tf32 => 77,
        _ => 68,
    }
}

/// An object of cuBLASLt, which is destroyed when it is dropped.
struct Descriptor {
    maker: Maker,
    handle: GemmHandle,
    unmake: unsafe extern "C" fn(GemmHandle) -> i32,
}

// SAFETY: descriptors are plain memory of the library, which is not bound to a thread.
unsafe impl Send for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // A forked child has no context of the device.
        if !self.maker.is_here() {
            return;
        }
        // SAFETY: the last use of a valid handle. An error cannot be handled here.
        unsafe { (self.unmake)(self.handle) };
    }
}

/// One kind of GEMM: its descriptors and its algorithm.
struct PreparedGemm {
    product: Descriptor,
    /// Right factor, left factor and result, in the order of the library.
    layouts: [Descriptor; 3],
    algorithm: GemmAlgorithm,
    workspace_bytes: usize,
}

/// The properties of a GEMM that decide its algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct GemmKey {
    product: Product,
    rows: usize,
    steps: [usize; 3],
    /// Alignments of the addresses of right factor, left factor and result, as powers of two in bytes.
    alignments: [u32; 3],
    whole_sums: bool,
}

/// cuBLASLt with a handle for one device.
pub(super) struct CublasLt {
    library: GemmLibrary,
    handle: Descriptor,
    device: Device,
    kinds: Mutex<HashMap<GemmKey, Arc<Mutex<PreparedGemm>>>>,
}

// SAFETY: several threads may use cuBLASLt's handle; locks protect the descriptors.
unsafe impl Sync for CublasLt {}

impl CublasLt {
    /// # Errors
    /// [`Error::Unsupported`] without the library; [`Error::Device`] if the library refuses the device.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let library = GemmLibrary::find()?;
        let _current = device.enter()?;
        let handle = made(&library, "cublasLtCreate", library.symbols.cublasLtDestroy, |handle| {
            // SAFETY: writes a handle.
            unsafe { (library.symbols.cublasLtCreate)(handle) }
        })?;
        Ok(Self { library, handle, device: device.clone(), kinds: Mutex::default() })
    }

    pub(super) fn name(&self) -> &str {
        &self.library.name
    }

    /// Checks that library and device support a GEMM.
    pub(super) fn check(&self, product: &Product) -> Result<()> {
        let Numeric::F8 { .. } = product.numeric else { return Ok(()) };
        let (major, minor) = self.device.compute_capability();
        let refused = |reason| Err(Error::unsupported(product.to_string(), reason));
        if (major, minor) < (8, 9) {
            return refused(format!(
                "8-bit floats need compute capability 8.9, and {:?} has {major}.{minor}",
                self.device
            ));
        }
        if product.scaling == Scaling::Rows
            && ((major, minor) != (9, 0) || self.library.version < FIRST_WITH_ROW_SCALES)
        {
            return refused(format!(
                "scales of rows need compute capability 9.0 and cuBLASLt 12.9, and {:?} has {major}.{minor} with {}",
                self.device, self.library.name
            ));
        }
        Ok(())
    }

    /// Looks up and caches the algorithm of a GEMM with well aligned operands.
    pub(super) fn prepare(&self, product: &Product, rows: usize, whole_sums: bool) -> Result<()> {
        self.check(product)?;
        let _current = self.device.enter()?;
        self.kind(product, &Gemm::nowhere(product, rows), whole_sums).map(drop)
    }

    /// Enqueues a GEMM on a stream. `whole_sums`: whether sums over `inner` must not be split among blocks.
    ///
    /// # Safety
    /// The memory of the operands and the workspace, of [`WORKSPACE_BYTES`], lives until the stream has done the work, and no
    /// other work writes the memory meanwhile. The stream is a stream of this device.
    pub(super) unsafe fn enqueue(
        &self,
        product: &Product,
        gemm: &Gemm,
        whole_sums: bool,
        workspace: *mut u8,
        stream: u64,
    ) -> Result<()> {
        let _current = self.device.enter()?;
        let kind = self.kind(product, gemm, whole_sums)?;
        let kind = kind.lock();
        for (attribute, address) in [
            (product_attribute::BIAS, gemm.bias),
            (product_attribute::FIRST_SCALE, gemm.scales[1]),
            (product_attribute::SECOND_SCALE, gemm.scales[0]),
        ] {
            if !address.is_null() {
                self.set_product(&kind.product, attribute, &address)?;
            }
        }
        let (one, zero) = (1f32, 0f32);
        let [right, left, result] = kind.layouts.each_ref().map(|layout| layout.handle);
        // SAFETY: descriptors and layouts are valid and describe the memory, which is valid by the caller's promise; the
        // factors one and zero are read before the call returns.
        let code = unsafe {
            (self.library.symbols.cublasLtMatmul)(
                self.handle.handle,
                kind.product.handle,
                (&raw const one).cast(),
                gemm.right.cast(),
                right,
                gemm.left.cast(),
                left,
                (&raw const zero).cast(),
                gemm.result.cast_const().cast(),
                result,
                gemm.result.cast(),
                result,
                &raw const kind.algorithm,
                workspace.cast(),
                kind.workspace_bytes,
                stream as *mut c_void,
            )
        };
        self.library.check("cublasLtMatmul", code)
    }

    /// The kind of a GEMM, cached after the first use.
    fn kind(&self, product: &Product, gemm: &Gemm, whole_sums: bool) -> Result<Arc<Mutex<PreparedGemm>>> {
        let alignment = |address: *const u8| 1 << (address as usize).trailing_zeros().min(8);
        let alignments = [gemm.right, gemm.left, gemm.result.cast_const()].map(alignment);
        let key = GemmKey { product: *product, rows: gemm.rows, steps: gemm.steps, alignments, whole_sums };
        let mut kinds = self.kinds.lock();
        if let Some(kind) = kinds.get(&key) {
            return Ok(kind.clone());
        }
        let kind = Arc::new(Mutex::new(self.describe(&key)?));
        if kinds.len() >= MOST_KINDS {
            kinds.clear();
        }
        kinds.insert(key, kind.clone());
        Ok(kind)
    }

    fn describe(&self, key: &GemmKey) -> Result<PreparedGemm> {
        let GemmKey { product, rows, steps, alignments, whole_sums } = *key;
        let symbols = &self.library.symbols;
        let description =
            made(&self.library, "cublasLtMatmulDescCreate", symbols.cublasLtMatmulDescDestroy, |handle| {
                // SAFETY: writes a handle. Scales of the sums are f32.
                unsafe {
                    (symbols.cublasLtMatmulDescCreate)(handle, compute_type(product.numeric), data_type(Dtype::F32))
                }
            })?;
        // A row-major right factor is, read as column-major, its transpose, which is the needed factor.
        let transposes = [product.right == Order::Columns, product.left == Order::Columns].map(i32::from);
        self.set_product(&description, product_attribute::TRANSPOSE_FIRST, &transposes[0])?;
        self.set_product(&description, product_attribute::TRANSPOSE_SECOND, &transposes[1])?;
        let epilogue = match (product.relu, product.bias) {
            (false, false) => PLAIN,
            (relu, bias) => i32::from(relu) * RELU + i32::from(bias) * ADD_BIAS,
        };
        self.set_product(&description, product_attribute::EPILOGUE, &epilogue)?;
        if product.bias {
            self.set_product(&description, product_attribute::BIAS_TYPE, &data_type(product.result))?;
            self.set_product(&description, product_attribute::BIAS, &SOMEWHERE)?;
        }
        if product.scaling != Scaling::None {
            self.set_product(&description, product_attribute::FIRST_SCALE, &SOMEWHERE)?;
            self.set_product(&description, product_attribute::SECOND_SCALE, &SOMEWHERE)?;
        }
        if product.fast_accumulation {
            self.set_product(&description, product_attribute::FAST_ACCUMULATION, &1i8)?;
        }
        if product.scaling == Scaling::Rows {
            self.set_product(&description, product_attribute::FIRST_SCALE_MODE, &SCALE_ROWS)?;
            self.set_product(&description, product_attribute::SECOND_SCALE_MODE, &SCALE_ROWS)?;
        }
        let [left, right, result] = product.dtypes();
        // A row-major matrix is, read as column-major, its transpose.
        let layout = |dtype, order, height, width, step| match order {
            Order::Rows => self.layout(dtype, width, height, product.count, step),
            Order::Columns => self.layout(dtype, height, width, product.count, step),
        };
        let layouts = [
            layout(right, product.right, product.inner, product.columns, steps[1])?,
            layout(left, product.left, rows, product.inner, steps[0])?,
            layout(result, Order::Rows, rows, product.columns, steps[2])?,
        ];
        let found = self.find(&description, &layouts, alignments, whole_sums)?;
        let found = found.ok_or_else(|| {
            Error::unsupported(format!("{product} of {rows} rows"), format!("{} knows no algorithm", self.library.name))
        })?;
        let FoundAlgorithm { algorithm, workspace_bytes, .. } = found;
        Ok(PreparedGemm { product: description, layouts, algorithm, workspace_bytes })
    }

    /// The layout of a column-major matrix.
    fn layout(&self, dtype: Dtype, height: usize, width: usize, count: usize, step: usize) -> Result<Descriptor> {
        let symbols = &self.library.symbols;
        let made = made(&self.library, "cublasLtMatrixLayoutCreate", symbols.cublasLtMatrixLayoutDestroy, |handle| {
            let (height, width, pitch) = (height as u64, width as u64, height as i64);
            // SAFETY: writes a handle.
            unsafe { (symbols.cublasLtMatrixLayoutCreate)(handle, data_type(dtype), height, width, pitch) }
        })?;
        if count > 1 {
            let (count, step) = (count as i32, step as i64);
            // SAFETY: the layout is valid, and the attribute is a number of 32 bits, which is copied.
            let set = unsafe {
                (symbols.cublasLtMatrixLayoutSetAttribute)(made.handle, BATCH_COUNT, (&raw const count).cast(), 4)
            };
            self.library.check("cublasLtMatrixLayoutSetAttribute", set)?;
            // SAFETY: the layout is valid, and the attribute is a number of 64 bits, which is copied.
            let set = unsafe {
                (symbols.cublasLtMatrixLayoutSetAttribute)(made.handle, BATCH_STRIDE, (&raw const step).cast(), 8)
            };
            self.library.check("cublasLtMatrixLayoutSetAttribute", set)?;
        }
        Ok(made)
    }

    /// The library's first choice; `None` if it has none.
    fn find(
        &self,
        description: &Descriptor,
        layouts: &[Descriptor; 3],
        alignments: [u32; 3],
        whole_sums: bool,
    ) -> Result<Option<FoundAlgorithm>> {
        let symbols = &self.library.symbols;
        let preference =
            made(&self.library, "cublasLtMatmulPreferenceCreate", symbols.cublasLtMatmulPreferenceDestroy, |handle| {
                // SAFETY: writes a handle.
                unsafe { (symbols.cublasLtMatmulPreferenceCreate)(handle) }
            })?;
        self.set_preference(&preference, WORKSPACE, &(WORKSPACE_BYTES as u64))?;
        self.set_preference(&preference, SPLIT_SUMS, if whole_sums { &NOT_SPLIT } else { &JOINED_IN_F32 })?;
        let [right, left, into] = alignments;
        for (attribute, bytes) in ALIGNMENTS.into_iter().zip([right, left, into, into]) {
            self.set_preference(&preference, attribute, &bytes)?;
        }
        let (mut found, mut count) = (FoundAlgorithm::NONE, 0);
        let [first, second, result] = layouts.each_ref().map(|layout| layout.handle);
        // SAFETY: all handles are valid; one result is requested, and there is room for one.
        let code = unsafe {
            (symbols.cublasLtMatmulAlgoGetHeuristic)(
                self.handle.handle,
                description.handle,
                first,
                second,
                result,
                result,
                preference.handle,
                1,
                &raw mut found,
                &raw mut count,
            )
        };
        /// `CUBLAS_STATUS_NOT_SUPPORTED`.
        const NOT_SUPPORTED: i32 = 15;
        if code != NOT_SUPPORTED {
            self.library.check("cublasLtMatmulAlgoGetHeuristic", code)?;
        }
        Ok((count > 0 && found.state == 0).then_some(found))
    }

    fn set_product<T: Copy>(&self, product: &Descriptor, attribute: i32, value: &T) -> Result<()> {
        let set = self.library.symbols.cublasLtMatmulDescSetAttribute;
        // SAFETY: the descriptor is valid; the value has the attribute's size, and is copied.
        let code = unsafe { set(product.handle, attribute, std::ptr::from_ref(value).cast(), size_of::<T>()) };
        self.library.check("cublasLtMatmulDescSetAttribute", code)
    }

    fn set_preference<T: Copy>(&self, preference: &Descriptor, attribute: i32, value: &T) -> Result<()> {
        let set = self.library.symbols.cublasLtMatmulPreferenceSetAttribute;
        // SAFETY: the preference is valid; the value has the attribute's size, and is copied.
        let code = unsafe { set(preference.handle, attribute, std::ptr::from_ref(value).cast(), size_of::<T>()) };
        self.library.check("cublasLtMatmulPreferenceSetAttribute", code)
    }
}

/// Creates an object of the library.
fn made(
    library: &GemmLibrary,
    call: &str,
    unmake: unsafe extern "C" fn(GemmHandle) -> i32,
    make: impl FnOnce(*mut GemmHandle) -> i32,
) -> Result<Descriptor> {
    let mut handle = std::ptr::null_mut();
    library.check(call, make(&raw mut handle))?;
    Ok(Descriptor { maker: Maker::this(), handle, unmake })
}
