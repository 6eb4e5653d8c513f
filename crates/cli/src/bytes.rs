//! Sizes in bytes: how people write them, and the sizes of a sweep.

use symmetra::Dtype;

use crate::failure::Failure;

const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Reads `4096`, `64KiB`, `16MiB`, `1GiB`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let scale = match unit.trim_start() {
        "" => 1,
        unit => UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, scale)| *scale)
            .ok_or_else(|| format!("the unit `{unit}` is none of KiB, MiB, GiB, TiB; a bare number is bytes"))?,
    };
    let number: u64 = digits.parse().map_err(|_| "it must be a whole number and a unit, like 64KiB".to_owned())?;
    number.checked_mul(scale).ok_or_else(|| "it must be below 2^64 bytes".to_owned())
}

/// Writes a size in the largest unit that leaves a whole number.
pub(crate) fn format(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, scale)| bytes > 0 && bytes.is_multiple_of(*scale));
    unit.map_or_else(|| format!("{bytes} B"), |(name, scale)| format!("{} {name}", bytes / scale))
}

/// Doubles from the smallest to the largest, in whole multiples of `parts`, each once.
pub(crate) fn sizes_elems(min_bytes: u64, max_bytes: u64, dtype: Dtype, parts: usize) -> Result<Vec<usize>, Failure> {
    let element = dtype.bytes() as u64;
    if min_bytes < element {
        return Err(Failure::usage(format!("--min-bytes is {min_bytes}, but one {dtype} has {element} bytes")));
    }
    if min_bytes > max_bytes {
        let (min, max) = (format(min_bytes), format(max_bytes));
        return Err(Failure::usage(format!("--min-bytes is {min}, but --max-bytes is only {max}")));
    }
    let limit = 1 << 40;
    if max_bytes > limit {
        return Err(Failure::usage(format!("--max-bytes is {max_bytes}, but it must be at most {}", format(limit))));
    }
    let sizes = std::iter::successors(Some(min_bytes), |bytes| Some(bytes * 2)).take_while(|bytes| *bytes <= max_bytes);
    let mut sizes: Vec<usize> = sizes.map(|bytes| ((bytes / element) as usize / parts).max(1) * parts).collect();
    sizes.dedup();
    Ok(sizes)
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/bytes.rs"]
mod tests;
