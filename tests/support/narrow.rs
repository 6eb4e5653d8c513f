//! 8-bit floats by the definition of their formats: the nearest of all values, a tie to the even code.

use std::sync::LazyLock;

use symmetra::float8::{F8E4M3, F8E5M2};

/// The NaN that every reduction returns.
pub const NAN: u8 = 0x7F;

/// The finite values without a sign, by code.
static E4M3: LazyLock<Vec<f64>> = LazyLock::new(|| values(3, 7, 0x7E));
static E5M2: LazyLock<Vec<f64>> = LazyLock::new(|| values(2, 15, 0x7B));

fn values(fraction_bits: i32, bias: i32, largest: u8) -> Vec<f64> {
    let value = |code: u8| {
        let exponent = i32::from(code >> fraction_bits);
        let fraction = f64::from(code & ((1 << fraction_bits) - 1)) * f64::from(-fraction_bits).exp2();
        match exponent {
            0 => fraction * f64::from(1 - bias).exp2(),
            _ => (1.0 + fraction) * f64::from(exponent - bias).exp2(),
        }
    };
    (0..=largest).map(value).collect()
}

fn nearest(values: &[f64], value: f32) -> u8 {
    if value.is_nan() {
        return NAN;
    }
    let size = f64::from(value).abs();
    let above = values.partition_point(|known| *known < size);
    let code = if above == 0 || above == values.len() {
        above.min(values.len() - 1)
    } else {
        let [down, up] = [size - values[above - 1], values[above] - size];
        let even = above - above % 2;
        if down == up { even } else { above - usize::from(down < up) }
    };
    code as u8 | u8::from(value.is_sign_negative()) << 7
}

/// Saturates.
pub fn e4m3(value: f32) -> F8E4M3 {
    F8E4M3::from_bits(nearest(&E4M3, value))
}

/// Saturates.
pub fn e5m2(value: f32) -> F8E5M2 {
    F8E5M2::from_bits(nearest(&E5M2, value))
}
