//! Quantised rows by their definition, independent of the library's code: a code is the nearest of all values of
//! its format, in double precision.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use symmetra::{Error, Narrow, Quantisation, Result, ScaleLayout};

/// A format of quantised rows: `static-e4m3`, or the name of a [`Quantisation`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    Static(Narrow),
    Scaled(Quantisation),
}

impl Format {
    /// The number by which the width of a row must be divisible.
    pub fn step(self) -> usize {
        match self {
            Self::Scaled(Quantisation::Mx { elems, .. }) => elems,
            Self::Scaled(Quantisation::Nvfp4 { .. }) => 16,
            _ => 1,
        }
    }

    /// The format of values.
    pub fn to(self) -> Narrow {
        match self {
            Self::Static(to) | Self::Scaled(Quantisation::PerToken(to)) => to,
            Self::Scaled(Quantisation::PerGroup { to, .. } | Quantisation::Mx { to, .. }) => to,
            Self::Scaled(_) => Narrow::E2M1,
        }
    }

    /// Where scales are.
    pub fn layout(self) -> ScaleLayout {
        match self {
            Self::Scaled(
                Quantisation::PerGroup { layout, .. }
                | Quantisation::Mx { layout, .. }
                | Quantisation::Nvfp4 { layout },
            ) => layout,
            _ => ScaleLayout::Rows,
        }
    }

    /// Bytes of the scales of rows of `width` elements.
    pub fn scales_bytes(self, rows: usize, width: usize) -> usize {
        match self {
            Self::Static(_) => 0,
            Self::Scaled(how) => how.scales_len(rows, width) * how.scales_dtype().bytes(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(to) => write!(out, "static-{to}"),
            Self::Scaled(how) => how.fmt(out),
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name.strip_prefix("static-") {
            Some(to) => match to.parse()? {
                Narrow::E2M1 => {
                    let message = format!("the format of a static scale is {to}, but it must be e4m3, e5m2 or int8");
                    Err(Error::InvalidArgument { message })
                }
                to => Ok(Self::Static(to)),
            },
            None => name.parse().map(Self::Scaled),
        }
    }
}

/// The bytes of values and of scales.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantisedBytes {
    pub values: Vec<u8>,
    pub scales: Vec<u8>,
}

/// Quantises rows of `width` elements. `known`: the static scale or the global scale. `before`: the bytes of scales
/// that have no group. `endless(row)`: whether the factor of the row's norm is infinite.
pub fn quantised(
    y: &[f32],
    width: usize,
    form: Format,
    known: f32,
    before: u8,
    endless: impl Fn(usize) -> bool,
) -> QuantisedBytes {
    let rows = y.len() / width;
    // Packed columns have zeros where there is no group.
    let before = if form.layout() == ScaleLayout::PackedColumns { 0 } else { before };
    let mut found = QuantisedBytes { values: Vec::new(), scales: vec![before; form.scales_bytes(rows, width)] };
    let elems = match form {
        Format::Scaled(Quantisation::PerGroup { elems, .. } | Quantisation::Mx { elems, .. }) => elems,
        Format::Scaled(Quantisation::Nvfp4 { .. }) => 16,
        _ => width,
    };
    let place = ScalePlace { rows, groups: width.div_ceil(elems) };
    for (row, values) in y.chunks(width).enumerate() {
        let mut codes = Vec::new();
        for (group, values) in values.chunks(elems).enumerate() {
            let largest = if matches!(form, Format::Scaled(Quantisation::PerToken(_))) && endless(row) {
                f32::NAN
            } else {
                // A NaN wins, which f32::max would drop.
                values.iter().fold(0.0f32, |most, y| if most.is_nan() || y.abs() <= most { most } else { y.abs() })
            };
            let (inverse, scale) = scale(form, largest, known);
            let at = place.of(form.layout(), row, group) * scale.len();
            found.scales[at..at + scale.len()].copy_from_slice(&scale);
            codes.extend(values.iter().map(|y| nearest(form.to(), y * inverse)));
        }
        match form.to() {
            Narrow::E2M1 => found.values.extend(codes.chunks(2).map(|pair| pair[0] | pair[1] << 4)),
            _ => found.values.extend(codes),
        }
    }
    found
}

/// The factor by which values are multiplied, and the bytes of the scale.
fn scale(form: Format, largest: f32, known: f32) -> (f32, Vec<u8>) {
    let most = *values(form.to()).last().unwrap_or(&0.0) as f32;
    match form {
        Format::Static(_) => (1.0 / known, Vec::new()),
        Format::Scaled(Quantisation::Mx { .. }) => {
            if !largest.is_finite() {
                return (f32::NAN, vec![255]);
            }
            let covers = |exponent: &i32| f64::from(largest) <= f64::from(most) * f64::from(*exponent).exp2();
            let exponent = (-127..=127).find(covers).unwrap_or(127);
            (f64::from(-exponent).exp2() as f32, vec![(exponent + 127) as u8])
        }
        Format::Scaled(Quantisation::Nvfp4 { .. }) => {
            let byte = nearest(Narrow::E4M3, known * (largest * (1.0f32 / 6.0)));
            let held = if byte == 0x7F { f32::NAN } else { decoded(3, 7, byte) as f32 };
            (if held == 0.0 { 0.0 } else { known / held }, vec![byte])
        }
        Format::Scaled(_) => {
            // The NaN of the library.
            let canonical = f32::from_bits(0x7FFF_FFFF);
            let scale = match largest {
                0.0 => 1.0,
                _ if largest.is_nan() => canonical,
                _ => (largest / most).max(f32::MIN_POSITIVE),
            };
            (1.0 / scale, scale.to_le_bytes().to_vec())
        }
    }
}

/// Where scales are.
struct ScalePlace {
    rows: usize,
    groups: usize,
}

impl ScalePlace {
    fn of(&self, layout: ScaleLayout, row: usize, group: usize) -> usize {
        let words = self.groups.div_ceil(4);
        match layout {
            ScaleLayout::Columns => group * self.rows + row,
            ScaleLayout::PackedColumns => ((group / 4) * self.rows.next_multiple_of(4) + row) * 4 + group % 4,
            ScaleLayout::Swizzled128x4 => {
                (row / 128 * words + group / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + group % 4
            }
            _ => row * self.groups + group,
        }
    }
}

/// The value of a code without a sign.
fn decoded(fraction_bits: u32, bias: i32, code: u8) -> f64 {
    let (exponent, fraction) = (i32::from(code >> fraction_bits), code & ((1 << fraction_bits) - 1));
    let fraction = f64::from(fraction) / f64::from(1 << fraction_bits);
    match exponent {
        0 => fraction * f64::from(1 - bias).exp2(),
        _ => (1.0 + fraction) * f64::from(exponent - bias).exp2(),
    }
}

/// The values of every format that have no sign, by code.
static VALUES: LazyLock<[Vec<f64>; 4]> = LazyLock::new(|| {
    let of = |to: &Narrow| match to {
        Narrow::E4M3 => (0..=0x7E).map(|code| decoded(3, 7, code)).collect(),
        Narrow::E5M2 => (0..=0x7B).map(|code| decoded(2, 15, code)).collect(),
        Narrow::E2M1 => (0..=7).map(|code| decoded(1, 1, code)).collect(),
        _ => (0..=127).map(f64::from).collect(),
    };
    Narrow::ALL.each_ref().map(of)
});

fn values(to: Narrow) -> &'static [f64] {
    &VALUES[to as usize]
}

/// The code of the nearest value; of two as near, the even code.
pub fn nearest(to: Narrow, value: f32) -> u8 {
    if to == Narrow::I8 {
        // The negative range has one more code. NaN becomes 0.
        return f64::from(value).round_ties_even().clamp(-128.0, 127.0) as i8 as u8;
    }
    let (sign, nan) = if to == Narrow::E2M1 { (8, 7) } else { (0x80, 0x7F) };
    if value.is_nan() {
        return nan;
    }
    let (known, size) = (values(to), f64::from(value).abs());
    let above = known.partition_point(|known| *known < size);
    let code = match above {
        0 => 0,
        _ if above == known.len() => above - 1,
        _ => {
            let [down, up] = [size - known[above - 1], known[above] - size];
            if down < up || (down == up && above % 2 == 1) { above - 1 } else { above }
        }
    };
    code as u8 | if value.is_sign_negative() { sign } else { 0 }
}

#[cfg(test)]
#[path = "../../../tests/reference/unit/quantised.rs"]
mod tests;
