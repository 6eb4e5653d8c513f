//! Operands of GEMMs, and their checks.

use std::fmt;
use std::marker::PhantomData;

use super::product::{F8_UNIT, Product, Scaling};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{Operand, WithView};
use crate::op::{Held, NamedSpan, check_apart, span};
use crate::types::{Dtype, Element};

/// An operand of a GEMM. Its element type is checked at run time.
#[must_use = "an operand does nothing by itself"]
pub struct Tensor<'op> {
    pub(crate) memory: Held,
    pub(crate) scales: Option<Held>,
    pub(crate) bias: Option<Held>,
    _operands: PhantomData<&'op ()>,
}

impl<'op> Tensor<'op> {
    /// The elements of a factor or a result.
    pub fn of<T: Element>(memory: impl Operand<'op, T>) -> Self {
        let memory = Held::new(T::DTYPE, &memory.view_of());
        Self { memory, scales: None, bias: None, _operands: PhantomData }
    }

    /// The elements of memory whose type is checked at run time.
    pub(crate) fn held(memory: Held, scales: Option<Held>) -> Self {
        Self { memory, scales, bias: None, _operands: PhantomData }
    }

    /// Other memory with the operand's scales and bias.
    pub(crate) fn with_memory(&self, memory: Held) -> Self {
        Self { memory, ..self.again() }
    }

    /// A second handle to the same operand memory.
    pub(crate) fn again(&self) -> Self {
        let again = |held: &Option<Held>| held.as_ref().map(Held::again);
        Self {
            memory: self.memory.again(),
            scales: again(&self.scales),
            bias: again(&self.bias),
            _operands: PhantomData,
        }
    }

    /// A factor with the scales by which its elements are multiplied: one scale, or a scale for each row of the left factor
    /// and each column of the right factor: see [`Scaling`](super::Scaling).
    pub fn scaled(mut self, scales: impl Operand<'op, f32>) -> Self {
        self.scales = Some(Held::new(Dtype::F32, &scales.view_of()));
        self
    }

    /// A right factor with the bias that is added to each row of the result.
    pub fn biased<T: Element>(mut self, bias: impl Operand<'op, T>) -> Self {
        self.bias = Some(Held::new(T::DTYPE, &bias.view_of()));
        self
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tensor({} of {})", self.memory.elems, self.memory.dtype)
    }
}

/// The names of the operands in errors.
const NAMES: [&str; 3] = ["left factor", "right factor", "result"];
const SCALES: [&str; 2] = ["left factor's scales", "right factor's scales"];

/// Checks that operands fit a GEMM of `rows` rows on a device.
pub(super) fn check(product: &Product, rows: usize, operands: &[Tensor<'_>; 3], device: &Device) -> Result<()> {
    product.check()?;
    let elems = product.elems(rows).ok_or_else(|| too_large(rows))?;
    for (((name, operand), elems), dtype) in NAMES.iter().zip(operands).zip(elems).zip(product.dtypes()) {
        check_one(name, &operand.memory, elems, dtype, device)?;
        if dtype.bytes() == 1 {
            check_unit(name, operand.memory.strip().address as usize)?;
        }
    }
    let [left, right, result] = operands;
    let scales = product.scales(rows);
    if product.scaling == Scaling::Rows {
        for (name, operand) in NAMES.iter().zip(operands).take(2) {
            let address = operand.scales.as_ref().map_or(0, |scales| scales.strip().address as usize);
            check_unit(&format!("{name}'s scales"), address)?;
        }
    }
    for (side, operand) in [left, right].into_iter().enumerate() {
        let needed = scales.map(|scales| scales[side]);
        check_extra(SCALES[side], operand.scales.as_ref(), needed, Dtype::F32, device)?;
    }
    check_extra("bias", right.bias.as_ref(), product.bias.then_some(product.columns), product.result, device)?;
    for (what, absent) in [
        ("scales of the result", result.scales.is_some()),
        ("a bias of the left factor", left.bias.is_some()),
        ("a bias of the result", result.bias.is_some()),
    ] {
        if absent {
            return Err(Error::invalid(
                "operand",
                what,
                "the bias belongs to the right factor, scales to both factors",
            ));
        }
    }
    result.memory.view().check_writable("the result")?;
    let place = |held: &Held| span(&held.view(), held.dtype);
    let read = [("the left factor", Some(&left.memory)), ("the right factor", Some(&right.memory))].into_iter();
    let scales =
        [("the left factor's scales", left.scales.as_ref()), ("the right factor's scales", right.scales.as_ref())];
    for (name, held) in read.chain(scales).chain([("the bias", right.bias.as_ref())]) {
        if let Some(held) = held {
            let written = NamedSpan::new("the result", place(&result.memory));
            check_apart(written, NamedSpan::new(name, place(held)), None)?;
        }
    }
    Ok(())
}

/// The error for more rows than a GEMM can have.
pub(super) fn too_large(rows: usize) -> Error {
    Error::invalid("rows", rows, "the product has more elements than memory has bytes")
}

/// Refuses addresses of 8-bit floats, and of scales of rows, that cuBLASLt does not support.
pub(crate) fn check_unit(name: &str, address: usize) -> Result<()> {
    if address.is_multiple_of(F8_UNIT) {
        return Ok(());
    }
    let value = format!("{} modulo {F8_UNIT}", address % F8_UNIT);
    let limit = format!("8-bit floats and scales of rows must begin at a multiple of {F8_UNIT} bytes");
    Err(Error::invalid(&format!("the {name}'s address"), value, limit))
}

fn check_one(name: &str, held: &Held, elems: usize, dtype: Dtype, device: &Device) -> Result<()> {
    if held.dtype != dtype {
        return Err(Error::invalid(&format!("the {name}'s type"), held.dtype, format!("the product has {dtype}")));
    }
    if held.elems != elems {
        return Err(Error::invalid(
            &format!("the {name}'s length"),
            held.elems,
            format!("the product has {elems} elements"),
        ));
    }
    device.check_same(name, held.view().device)
}

fn check_extra(name: &str, held: Option<&Held>, elems: Option<usize>, dtype: Dtype, device: &Device) -> Result<()> {
    match (held, elems) {
        (Some(held), Some(elems)) => check_one(name, held, elems, dtype, device),
        (None, None) => Ok(()),
        (Some(_), None) => Err(Error::invalid(&format!("the {name}"), "given", "the product has none")),
        (None, Some(elems)) => {
            Err(Error::invalid(&format!("the {name}"), "not given", format!("the product has {elems} elements")))
        }
    }
}
