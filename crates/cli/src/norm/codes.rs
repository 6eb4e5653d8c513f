//! The operands of quantised rows, of any format.

use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{Device, DeviceBuffer, Dtype, Element, Narrow, Quantisation, Result, RowNorm, Stream};

use super::quantised::{Bytes, Format};

/// A buffer of quantised values.
enum Values {
    E4M3(DeviceBuffer<F8E4M3>),
    E5M2(DeviceBuffer<F8E5M2>),
    I8(DeviceBuffer<i8>),
    Pairs(DeviceBuffer<u8>),
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
enum Scales {
    Single(DeviceBuffer<f32>),
    Bytes(DeviceBuffer<u8>),
}

/// The operands of quantised rows in device memory.
pub(crate) struct Codes {
    form: Format,
    values: Values,
    /// First element of the values in their buffer.
    at: usize,
    scales: Scales,
    known: DeviceBuffer<f32>,
}

/// Elements of values and of scales.
fn lens(form: Format, rows: usize, width: usize) -> (usize, usize) {
    match form {
        Format::Static(to) => (if to == Narrow::E2M1 { rows * width / 2 } else { rows * width }, 0),
        Format::Scaled(how) => (how.values_len(rows, width), how.scales_len(rows, width)),
    }
}

impl Codes {
    /// Operands of `rows` rows of `width` elements, whose values begin `at` elements into their buffer. `known`: the static
    /// scale, or the global one.
    pub(crate) fn new(
        device: &Device,
        form: Format,
        [rows, width, at]: [usize; 3],
        known: f32,
        stream: &Stream,
    ) -> Result<Self> {
        let (values, scales) = lens(form, rows, width);
        let elems = values + at;
        let values = match form.to() {
            Narrow::E4M3 => Values::E4M3(DeviceBuffer::new(device, elems)?),
            Narrow::E5M2 => Values::E5M2(DeviceBuffer::new(device, elems)?),
            Narrow::I8 => Values::I8(DeviceBuffer::new(device, elems)?),
            _ => Values::Pairs(DeviceBuffer::new(device, elems)?),
        };
        let scales = match form {
            Format::Scaled(how) if how.scales_dtype() == Dtype::F32 => {
                Scales::Single(DeviceBuffer::new(device, scales)?)
            }
            _ => Scales::Bytes(DeviceBuffer::new(device, scales)?),
        };
        Ok(Self { form, values, at, scales, known: DeviceBuffer::from_slice(&[known], stream)? })
    }

    /// Writes one byte everywhere, so that what a call leaves out is found.
    pub(crate) fn fill(&self, byte: u8, stream: &Stream) -> Result<()> {
        fn fill<T: Element>(buffer: &DeviceBuffer<T>, byte: u8, stream: &Stream) -> Result<()> {
            buffer.write(&vec![bytemuck::pod_read_unaligned(&[byte; 4][..size_of::<T>()]); buffer.len()], stream)
        }
        with_values!(&self.values, buffer => fill(buffer, byte, stream))?;
        match &self.scales {
            Scales::Single(buffer) => fill(buffer, byte, stream),
            Scales::Bytes(buffer) => fill(buffer, byte, stream),
        }
    }

    /// Asks for quantised rows.
    pub(crate) fn asked<'op, T: Element>(&'op self, rows: RowNorm<'op, T>) -> Result<RowNorm<'op, T>> {
        with_values!(&self.values, buffer => self.asked_in(rows, buffer))
    }

    fn asked_in<'op, T: Element, V: Element>(
        &'op self,
        rows: RowNorm<'op, T>,
        values: &'op DeviceBuffer<V>,
    ) -> Result<RowNorm<'op, T>> {
        let values = values.borrow().slice(self.at..values.len())?;
        let how = match self.form {
            Format::Static(to) => return Ok(rows.static_scale(to, &self.known, values)),
            Format::Scaled(how) => how,
        };
        let rows = match &self.scales {
            Scales::Single(scales) => rows.quantised(how, values, scales),
            Scales::Bytes(scales) => rows.quantised(how, values, scales),
        };
        Ok(if matches!(how, Quantisation::Nvfp4 { .. }) { rows.global_scale(&self.known) } else { rows })
    }

    /// What the buffers hold, also before the values.
    pub(crate) fn read(&self, stream: &Stream) -> Result<Bytes> {
        fn bytes<T: Element>(buffer: &DeviceBuffer<T>, stream: &Stream) -> Result<Vec<u8>> {
            Ok(bytemuck::cast_slice(&buffer.read(stream)?).to_vec())
        }
        let values = with_values!(&self.values, buffer => bytes(buffer, stream))?;
        let scales = match &self.scales {
            Scales::Single(buffer) => bytes(buffer, stream),
            Scales::Bytes(buffer) => bytes(buffer, stream),
        }?;
        Ok(Bytes { values, scales })
    }
}
