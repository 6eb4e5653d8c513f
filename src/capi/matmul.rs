//! GEMMs.

use super::mirror::{nth, value};
use super::report::guard;
use super::tensor::{held, maybe_held, target};
use super::{Device, Report};
use crate::error::{Error, Result};
use crate::matmul::{Multiplier, Numeric, Product, Scaling, Tensor};
use bridge::{AskedFactor, AskedNumeric, AskedProduct, Operand, Queue};

#[cxx::bridge(namespace = "symmetra::core")]
pub(super) mod bridge {
    /// Mirrors `symmetra::Numeric`.
    #[derive(Clone, Copy)]
    struct AskedNumeric {
        kind: u32,
        left: u32,
        right: u32,
    }

    /// Mirrors `symmetra::Product`.
    struct AskedProduct {
        inner: usize,
        columns: usize,
        count: usize,
        numeric: AskedNumeric,
        scaling: u32,
        left: u32,
        right: u32,
        result: u32,
        bias: bool,
        relu: bool,
        fast_accumulation: bool,
    }

    /// Mirrors `symmetra::Factor`.
    struct AskedFactor {
        operand: Operand,
        scales: MaybeOperand,
        bias: MaybeOperand,
    }

    unsafe extern "C++" {
        include!("symmetra/src/capi/mod.rs.h");

        type MaybeOperand = crate::capi::bridge::MaybeOperand;
        type Device = crate::device::Device;
        type Operand = crate::capi::bridge::Operand;
        type Queue = crate::capi::bridge::Queue;
    }

    extern "Rust" {
        fn product_result(numeric: AskedNumeric) -> Result<u32>;

        type Multiplier;
        fn multiplier_new(device: &Device) -> Result<Box<Multiplier>>;
        fn multiplier_library(multiplier: &Multiplier) -> &str;
        unsafe fn multiplier_enqueue(
            multiplier: &Multiplier,
            product: &AskedProduct,
            rows: usize,
            left: &AskedFactor,
            right: &AskedFactor,
            result: &Operand,
            queue: Queue,
        ) -> Result<()>;
    }
}

impl TryFrom<AskedNumeric> for Numeric {
    type Error = Error;

    fn try_from(asked: AskedNumeric) -> Result<Self> {
        let f8 = Self::F8 { left: value(asked.left)?, right: value(asked.right)? };
        nth("the number of a Numeric::Kind", [Self::F32, Self::Tf32, Self::F16, Self::BF16, f8], asked.kind)
    }
}

impl TryFrom<&AskedProduct> for Product {
    type Error = Error;

    fn try_from(asked: &AskedProduct) -> Result<Self> {
        let scalings = [Scaling::None, Scaling::Tensor, Scaling::Rows];
        let mut product = Self::new(asked.inner, asked.columns, Numeric::try_from(asked.numeric)?);
        product.count = asked.count;
        product.scaling = nth("the number of a Product::Scaling", scalings, asked.scaling)?;
        (product.left, product.right) = (value(asked.left)?, value(asked.right)?);
        product.result = value(asked.result)?;
        (product.bias, product.relu) = (asked.bias, asked.relu);
        product.fast_accumulation = asked.fast_accumulation;
        Ok(product)
    }
}

impl AskedFactor {
    pub(super) fn operands(&self) -> [&Operand; 3] {
        [&self.operand, &self.scales.operand, &self.bias.operand]
    }

    /// # Safety
    /// The pointers of operands are those of the headers: *borrowing*, *caller's duty*.
    pub(super) unsafe fn resolve(&self, device: &Device) -> Result<Tensor<'static>> {
        // SAFETY: passed on.
        let maybe = |asked| unsafe { maybe_held(device, asked) };
        // SAFETY: passed on.
        let mut factor = Tensor::held(unsafe { held(device, &self.operand) }?, maybe(&self.scales)?);
        factor.bias = maybe(&self.bias)?;
        Ok(factor)
    }
}

/// The default type of a result.
fn product_result(numeric: AskedNumeric) -> Result<u32, Report> {
    guard(|| Ok(Product::new(1, 1, numeric.try_into()?).result as u32))
}

fn multiplier_new(device: &Device) -> Result<Box<Multiplier>, Report> {
    guard(|| Multiplier::new(device).map(Box::new))
}

fn multiplier_library(multiplier: &Multiplier) -> &str {
    multiplier.library()
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
unsafe fn multiplier_enqueue(
    multiplier: &Multiplier,
    product: &AskedProduct,
    rows: usize,
    left: &AskedFactor,
    right: &AskedFactor,
    result: &Operand,
    queue: Queue,
) -> Result<(), Report> {
    guard(|| {
        let (product, device) = (Product::try_from(product)?, multiplier.device());
        // SAFETY: passed on.
        let factor = |factor: &AskedFactor| unsafe { factor.resolve(device) };
        // SAFETY: passed on.
        let into = Tensor::held(unsafe { held(device, result) }?, None);
        let operands = [factor(left)?, factor(right)?, into];
        let used = left.operands().into_iter().chain(right.operands()).chain([result]);
        // SAFETY: passed on.
        multiplier.enqueue_on(&product, rows, operands, unsafe { target(queue, used) }?)
    })
}
