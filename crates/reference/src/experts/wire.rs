//! Rows as they travel.

use symmetra::Narrow;
use symmetra::experts::Scales;

use crate::element::Real;
use crate::quantised::nearest;

/// Elements that share a scale.
pub const GROUP: usize = 128;

/// The largest value of e4m3.
const MOST: f32 = 448.0;

/// A row as its receivers get the row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WireRow {
    /// Elements, quantised values, or bytes of the caller.
    pub bytes: Vec<u8>,
    pub scales: Vec<f32>,
    /// Scales in the format e8m0.
    pub exponents: Vec<u8>,
}

impl WireRow {
    pub fn unchanged<T: Real>(row: &[T]) -> Self {
        Self { bytes: bytemuck::cast_slice(row).to_vec(), ..Self::default() }
    }

    /// The nearest e4m3 values of a row, of two as near the even one, with a scale for each [`GROUP`].
    pub fn quantised<T: Real>(row: &[T], format: Scales) -> Self {
        let mut wired = Self::default();
        for group in row.chunks(GROUP) {
            let largest = group.iter().map(|value| value.single().abs()).fold(1e-4f32, f32::max);
            let inverse = match format {
                Scales::F32 => {
                    wired.scales.push(largest / MOST);
                    MOST / largest
                }
                _ => {
                    let covers = |exponent: &i32| f64::from(largest) <= f64::from(MOST) * 2f64.powi(*exponent);
                    let exponent = (-127..=127).find(covers).unwrap_or(127);
                    match format {
                        Scales::E8M0 => wired.exponents.push((exponent + 127) as u8),
                        _ => wired.scales.push(2f64.powi(exponent) as f32),
                    }
                    2f64.powi(-exponent) as f32
                }
            };
            wired.bytes.extend(group.iter().map(|value| nearest(Narrow::E4M3, value.single() * inverse)));
        }
        wired
    }
}
