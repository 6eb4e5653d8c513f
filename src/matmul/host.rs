//! GEMMs on the CPU, as work of a host stream, by `matrixmultiply`.
//!
//! Tiles of the factors are widened to f32 and multiplied; tiles of the result are rounded. A sum over `inner` is cut into
//! blocks of a fixed size, independent of the number of rows and columns. So an element has the same bits in a GEMM of all rows
//! and in a GEMM of some rows.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ops::Range;

use half::{bf16, f16};

use super::gemm::Gemm;
use super::product::{Order, Product, Scaling};
use crate::types::Dtype;

/// The sizes of a tile.
const ROWS: usize = 64;
const COLUMNS: usize = 256;
const INNER: usize = 256;

/// The argument of the work that a host stream runs.
#[derive(Clone, Copy)]
pub(super) struct HostGemm {
    pub(super) product: Product,
    pub(super) gemm: Gemm,
}

// SAFETY: addresses of device memory, which work of any thread may use; the caller of a GEMM ensures that they are valid.
unsafe impl Send for HostGemm {}

/// Tiles of both factors and of the result.
struct Tiles {
    left: Box<[f32]>,
    right: Box<[f32]>,
    result: Box<[f32]>,
}

thread_local! {
    /// The tiles of a stream's thread, which runs one GEMM at a time.
    static TILES: RefCell<Tiles> = RefCell::new(Tiles {
        left: vec![0.0; ROWS * INNER].into(),
        right: vec![0.0; INNER * COLUMNS].into(),
        result: vec![0.0; ROWS * COLUMNS].into(),
    });
}

/// Multiplies.
///
/// # Safety
/// `work` is valid, its memory lives, and no other work writes the memory meanwhile.
pub(super) unsafe extern "C" fn multiply(work: *const HostGemm) {
    // SAFETY: the caller's promise.
    let HostGemm { product, gemm } = unsafe { work.read() };
    TILES.with_borrow_mut(|tiles| {
        for number in 0..product.count {
            for row in (0..gemm.rows).step_by(ROWS) {
                for column in (0..product.columns).step_by(COLUMNS) {
                    // SAFETY: the tile lies in the result, and the memory is valid by the caller's promise.
                    unsafe { tile(&product, &gemm, tiles, number, row, column) };
                }
            }
        }
    });
}

/// Computes one tile of a result.
///
/// # Safety
/// As for [`multiply`]; the tile begins inside the result.
unsafe fn tile(product: &Product, gemm: &Gemm, tiles: &mut Tiles, number: usize, row: usize, column: usize) {
    let (height, width) = (ROWS.min(gemm.rows - row), COLUMNS.min(product.columns - column));
    let [left_type, right_type, result_type] = product.dtypes();
    tiles.result.fill(0.0);
    for start in (0..product.inner).step_by(INNER) {
        let depth = INNER.min(product.inner - start);
        let left = Matrix {
            address: gemm.left,
            first: number * gemm.steps[0],
            pitches: pitches(product.left, gemm.rows, product.inner),
        };
        let right = Matrix {
            address: gemm.right,
            first: number * gemm.steps[1],
            pitches: pitches(product.right, product.inner, product.columns),
        };
        // SAFETY: rows, columns and inner lie inside the factors.
        unsafe { left.widen(left_type, row..row + height, start..start + depth, &mut tiles.left) };
        // SAFETY: as above.
        unsafe { right.widen(right_type, start..start + depth, column..column + width, &mut tiles.right) };
        let (across, one) = (width as isize, 1);
        // SAFETY: the three tiles have room for these elements, row after row.
        unsafe {
            matrixmultiply::sgemm(
                height,
                depth,
                width,
                1.0,
                tiles.left.as_ptr(),
                depth as isize,
                one,
                tiles.right.as_ptr(),
                across,
                one,
                1.0,
                tiles.result.as_mut_ptr(),
                across,
                one,
            );
        }
    }
    let scale = |side: usize, place: usize| match product.scaling {
        Scaling::None => 1.0,
        // SAFETY: the factor has a scale.
        Scaling::Tensor => unsafe { read::<f32>(gemm.scales[side], 0) },
        // SAFETY: the factor has a scale for each of its rows or columns.
        Scaling::Rows => unsafe { read::<f32>(gemm.scales[side], place) },
    };
    for (line, values) in tiles.result.chunks_exact(width).take(height).enumerate() {
        for (place, value) in values.iter().enumerate() {
            let (row, column) = (row + line, column + place);
            let mut value = value * (scale(0, row) * scale(1, column));
            if product.bias {
                // SAFETY: the bias has an element for each column.
                value += unsafe { widened(result_type, gemm.bias, column) };
            }
            if product.relu && value < 0.0 {
                value = 0.0;
            }
            let place = number * gemm.steps[2] + row * product.columns + column;
            // SAFETY: the place lies inside the result.
            unsafe { store(result_type, gemm.result, place, value) };
        }
    }
}

/// Elements from one row to the next, and from one column to the next.
fn pitches(order: Order, rows: usize, columns: usize) -> [usize; 2] {
    match order {
        Order::Rows => [columns, 1],
        Order::Columns => [1, rows],
    }
}

/// A factor in memory.
struct Matrix {
    address: *const u8,
    /// The first element of the factor.
    first: usize,
    pitches: [usize; 2],
}

impl Matrix {
    /// Writes a part of the factor as f32, row after row.
    ///
    /// # Safety
    /// The part lies inside the factor, whose elements have this type.
    unsafe fn widen(&self, dtype: Dtype, rows: Range<usize>, columns: Range<usize>, into: &mut [f32]) {
        let width = columns.len();
        for (row, values) in rows.zip(into.chunks_exact_mut(width)) {
            for (column, value) in columns.clone().zip(values) {
                let place = self.first + row * self.pitches[0] + column * self.pitches[1];
                // SAFETY: the caller's promise.
                *value = unsafe { widened(dtype, self.address, place) };
            }
        }
    }
}

/// # Safety
/// There is an element of this type.
unsafe fn read<T: Copy>(address: *const u8, place: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { address.cast::<T>().wrapping_add(place).read() }
}

/// An element as f32; exact.
///
/// # Safety
/// There is an element of this type, which is a type of factors or biases.
unsafe fn widened(dtype: Dtype, address: *const u8, place: usize) -> f32 {
    match dtype {
        // SAFETY: the caller's promise.
        Dtype::F16 => unsafe { read::<f16>(address, place) }.to_f32(),
        // SAFETY: as above.
        Dtype::BF16 => unsafe { read::<bf16>(address, place) }.to_f32(),
        // SAFETY: as above.
        Dtype::F8E4M3 => unsafe { read::<float8::F8E4M3>(address, place) }.to_f32(),
        // SAFETY: as above.
        Dtype::F8E5M2 => unsafe { read::<float8::F8E5M2>(address, place) }.to_f32(),
        // SAFETY: as above.
        _ => unsafe { read::<f32>(address, place) },
    }
}

/// Rounds a value to the nearest of a result's type, ties to even, and writes it.
///
/// # Safety
/// There is an element of this type.
unsafe fn store(dtype: Dtype, address: *mut u8, place: usize, value: f32) {
    match dtype {
        // SAFETY: the caller's promise.
        Dtype::F16 => unsafe { address.cast::<f16>().wrapping_add(place).write(f16::from_f32(value)) },
        // SAFETY: as above.
        Dtype::BF16 => unsafe { address.cast::<bf16>().wrapping_add(place).write(bf16::from_f32(value)) },
        // SAFETY: as above.
        _ => unsafe { address.cast::<f32>().wrapping_add(place).write(value) },
    }
}
