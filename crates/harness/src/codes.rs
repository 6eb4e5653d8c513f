//! The operands of quantised rows, of any format.

use std::ops::Range;

use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{
    Communicator, Device, DeviceBuffer, Dtype, Element, Narrow, Quantisation, Result, RowNorm, Stream, SymmetricBuffer,
};

use crate::buffer::TestBuffer;
use reference::quantised::{Format, QuantisedBytes};

/// Allocates memory for operands: a device allocates plain memory, a communicator symmetric memory.
pub trait CodeMemory {
    type Of<T: Element>: TestBuffer<T>;
    fn room<T: Element>(&self, elems: usize) -> Result<Self::Of<T>>;
}

impl CodeMemory for Device {
    type Of<T: Element> = DeviceBuffer<T>;

    fn room<T: Element>(&self, elems: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::new(self, elems)
    }
}

impl CodeMemory for Communicator {
    type Of<T: Element> = SymmetricBuffer<T>;

    fn room<T: Element>(&self, elems: usize) -> Result<SymmetricBuffer<T>> {
        self.symmetric(elems)
    }
}

/// A buffer of quantised values.
pub enum Values<M: CodeMemory> {
    E4M3(M::Of<F8E4M3>),
    E5M2(M::Of<F8E5M2>),
    I8(M::Of<i8>),
    Pairs(M::Of<u8>),
}

/// Runs `$body` with the buffer of any type.
macro_rules! with_values {
    ($values:expr, $buffer:ident => $body:expr) => {
        match $values {
            Values::E4M3($buffer) => $body,
            Values::E5M2($buffer) => $body,
            Values::I8($buffer) => $body,
            Values::Pairs($buffer) => $body,
        }
    };
}

/// A buffer of scales.
pub enum RowScales<M: CodeMemory> {
    Single(M::Of<f32>),
    Bytes(M::Of<u8>),
}

/// The operands of quantised rows in device memory.
pub struct Codes<M: CodeMemory = Device> {
    form: Format,
    rows: usize,
    width: usize,
    pub values: Values<M>,
    /// First element of the values in their buffer.
    at: usize,
    pub scales: RowScales<M>,
    known: DeviceBuffer<f32>,
}

/// Elements of values and of scales.
pub fn lens(form: Format, rows: usize, width: usize) -> (usize, usize) {
    match form {
        Format::Static(to) => (if to == Narrow::E2M1 { rows * width / 2 } else { rows * width }, 0),
        Format::Scaled(how) => (how.values_len(rows, width), how.scales_len(rows, width)),
    }
}

impl<M: CodeMemory> Codes<M> {
    /// Operands of `rows` rows of `width` elements, whose values begin `at` elements into their buffer. `known` is the
    /// static scale or the global scale.
    pub fn new(memory: &M, form: Format, [rows, width, at]: [usize; 3], known: f32, stream: &Stream) -> Result<Self> {
        let (values, scales) = lens(form, rows, width);
        let elems = values + at;
        let values = match form.to() {
            Narrow::E4M3 => Values::E4M3(memory.room(elems)?),
            Narrow::E5M2 => Values::E5M2(memory.room(elems)?),
            Narrow::I8 => Values::I8(memory.room(elems)?),
            _ => Values::Pairs(memory.room(elems)?),
        };
        let scales = match form {
            Format::Scaled(how) if how.scales_dtype() == Dtype::F32 => RowScales::Single(memory.room(scales)?),
            _ => RowScales::Bytes(memory.room(scales)?),
        };
        let known = DeviceBuffer::from_slice(&[known], stream)?;
        Ok(Self { form, rows, width, values, at, scales, known })
    }

    /// Writes one byte everywhere, so that a test finds elements that a call does not write.
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<()> {
        fn fill<T: Element, B: TestBuffer<T>>(buffer: &B, elems: usize, byte: u8, stream: &Stream) -> Result<()> {
            buffer.write(&vec![bytemuck::pod_read_unaligned(&[byte; 4][..size_of::<T>()]); elems], stream)
        }
        let (values, scales) = lens(self.form, self.rows, self.width);
        with_values!(&self.values, buffer => fill(buffer, values + self.at, byte, stream))?;
        match &self.scales {
            RowScales::Single(buffer) => fill(buffer, scales, byte, stream),
            RowScales::Bytes(buffer) => fill(buffer, scales, byte, stream),
        }
    }

    /// Asks for quantised rows.
    pub fn asked<'op, T: Element>(&'op self, rows: RowNorm<'op, T>) -> Result<RowNorm<'op, T>> {
        self.asked_as(0..self.rows, rows)
    }

    /// Asks for quantised rows that are these rows of all rows: either all, or rows whose scales are contiguous.
    pub fn asked_as<'op, T: Element>(
        &'op self,
        numbers: Range<usize>,
        rows: RowNorm<'op, T>,
    ) -> Result<RowNorm<'op, T>> {
        with_values!(&self.values, buffer => self.asked_in(numbers, rows, buffer))
    }

    fn asked_in<'op, T: Element, V: Element, B: TestBuffer<V>>(
        &'op self,
        numbers: Range<usize>,
        rows: RowNorm<'op, T>,
        values: &'op B,
    ) -> Result<RowNorm<'op, T>> {
        let [from, to] = [numbers.start, numbers.end].map(|rows| lens(self.form, rows, self.width));
        let values = values.part(self.at + from.0..self.at + to.0)?;
        let how = match self.form {
            Format::Static(to) => return Ok(rows.static_scale(to, &self.known, values)),
            Format::Scaled(how) => how,
        };
        let rows = match &self.scales {
            RowScales::Single(scales) => rows.quantised(how, values, scales.part(from.1..to.1)?),
            RowScales::Bytes(scales) => rows.quantised(how, values, scales.part(from.1..to.1)?),
        };
        Ok(if matches!(how, Quantisation::Nvfp4 { .. }) { rows.global_scale(&self.known) } else { rows })
    }

    /// The contents of the buffers, also before the values.
    pub fn read(&self, stream: &Stream) -> Result<QuantisedBytes> {
        fn bytes<T: Element, B: TestBuffer<T>>(buffer: &B, stream: &Stream) -> Result<Vec<u8>> {
            Ok(bytemuck::cast_slice(&buffer.read(stream)?).to_vec())
        }
        let values = with_values!(&self.values, buffer => bytes(buffer, stream))?;
        let scales = match &self.scales {
            RowScales::Single(buffer) => bytes(buffer, stream),
            RowScales::Bytes(buffer) => bytes(buffer, stream),
        }?;
        Ok(QuantisedBytes { values, scales })
    }
}
