//! Quantised rows of a norm: their format, their memory, and its contents. The definition and the operands are
//! those of the command.

use serde::{Deserialize, Serialize};
use symmetra::{
    Communicator, Dtype, Element, Narrow as To, Quantisation, Result, RowNorm,
    ScaleLayout::{Columns, PackedColumns, Rows, Swizzled128x4},
    Stream,
};

use crate::support::data::Random;
use harness::codes::{Codes, lens};
use reference::quantised::{Format, QuantisedBytes, quantised};

/// A byte of memory that nothing was written to.
const BEFORE: u8 = 0xA5;

/// The quantised rows that a norm writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Narrow {
    /// The name on the command line.
    pub(crate) format: String,
    /// The static scale, or the global one.
    pub(crate) known: f32,
    /// First element of the values in their memory.
    pub(crate) at: usize,
    /// Whether peers can address values and scales.
    pub(crate) symmetric: bool,
}

/// The size of an operand.
pub(crate) struct Extent {
    pub(crate) dtype: Dtype,
    pub(crate) elems: usize,
}

impl Narrow {
    /// Any format there is.
    pub(crate) fn any(random: &mut Random) -> Self {
        let to = *random.pick(&[To::E4M3, To::E5M2, To::I8]);
        let float = *random.pick(&[To::E4M3, To::E5M2, To::E2M1]);
        let elems = *random.pick(&[16, 32, 48, 128]);
        let format = match random.below(5) {
            0 => Format::Static(to),
            1 => Format::Scaled(Quantisation::PerToken(to)),
            2 => Format::Scaled(Quantisation::PerGroup { to, elems, layout: *random.pick(&[Rows, Columns]) }),
            3 => {
                let layout = *random.pick(&[Rows, PackedColumns, Swizzled128x4]);
                Format::Scaled(Quantisation::Mx { to: float, elems, layout })
            }
            _ => Format::Scaled(Quantisation::Nvfp4 { layout: *random.pick(&[Rows, Swizzled128x4]) }),
        };
        Self {
            format: format.to_string(),
            known: *random.pick(&[1.0, 0.011, 0.37, 341.3]),
            at: if random.below(2) == 0 { 0 } else { random.below(20) },
            symmetric: random.below(2) == 0,
        }
    }

    fn format(&self) -> Format {
        self.format.parse().unwrap()
    }

    /// The divisor of the width of a row.
    pub(crate) fn step(&self) -> usize {
        self.format().step()
    }

    /// The outputs of `rows` rows of `width` elements: values, and scales if the format has any.
    pub(crate) fn extents(&self, rows: usize, width: usize) -> [Extent; 2] {
        let (format, (values, scales)) = (self.format(), lens(self.format(), rows, width));
        let dtype = match format {
            Format::Scaled(how) => how.scales_dtype(),
            Format::Static(_) => Dtype::U8,
        };
        [Extent { dtype: format.to().dtype(), elems: values }, Extent { dtype, elems: scales }]
    }

    /// The numbers of scaling, format and layout in the headers, and the elements of a group.
    pub(crate) fn numbers(&self) -> [usize; 4] {
        let (format, [to, layout]) = (self.format(), [self.format().to() as usize, self.format().layout() as usize]);
        let (scaling, elems) = match format {
            Format::Scaled(Quantisation::PerToken(_)) => (1, 0),
            Format::Scaled(Quantisation::PerGroup { elems, .. }) => (2, elems),
            Format::Scaled(Quantisation::Mx { elems, .. }) => (3, elems),
            Format::Scaled(_) => (4, 0),
            Format::Static(_) => (0, 0),
        };
        [scaling, to, layout, elems]
    }

    /// The first contents of the memory.
    pub(crate) fn before(&self, rows: usize, width: usize) -> Vec<u8> {
        let bytes = self.extents(rows, width).map(|extent| extent.elems * extent.dtype.bytes());
        vec![BEFORE; self.at + bytes[0] + bytes[1]]
    }

    /// The contents of the memory after a norm whose rows are `y`, each of `width` elements.
    pub(crate) fn after(&self, y: &[f32], width: usize) -> Vec<u8> {
        // The factor of a row is finite, because its epsilon is not 0.
        let QuantisedBytes { values, scales } = quantised(y, width, self.format(), self.known, BEFORE, |_| false);
        [vec![BEFORE; self.at], values, scales].concat()
    }
}

/// The memory of one call.
pub(crate) enum Memory {
    Plain(Codes),
    Symmetric(Codes<Communicator>),
}

/// Runs `$body` with the memory of either kind.
macro_rules! with_codes {
    ($memory:expr, $codes:ident => $body:expr) => {
        match $memory {
            Memory::Plain($codes) => $body,
            Memory::Symmetric($codes) => $body,
        }
    };
}

impl Memory {
    /// Collective where the memory is symmetric.
    pub(crate) fn new(
        communicator: &Communicator,
        narrow: &Narrow,
        [rows, width]: [usize; 2],
        stream: &Stream,
    ) -> Result<Self> {
        let (format, shape, known) = (narrow.format(), [rows, width, narrow.at], narrow.known);
        let memory = match narrow.symmetric {
            true => Self::Symmetric(Codes::new(communicator, format, shape, known, stream)?),
            false => Self::Plain(Codes::new(communicator.device(), format, shape, known, stream)?),
        };
        with_codes!(&memory, codes => codes.fill(BEFORE, stream))?;
        Ok(memory)
    }

    pub(crate) fn asked<'op, T: Element>(&'op self, rows: RowNorm<'op, T>) -> Result<RowNorm<'op, T>> {
        with_codes!(self, codes => codes.asked(rows))
    }

    /// All bytes.
    pub(crate) fn read(&self, stream: &Stream) -> Result<Vec<u8>> {
        let QuantisedBytes { values, scales } = with_codes!(self, codes => codes.read(stream))?;
        Ok([values, scales].concat())
    }
}
