//! Sizes in bytes, as people write them.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_write() {
        for (text, bytes) in [("0", 0), ("1000", 1000), ("64KiB", 64 << 10), ("16 MiB", 16 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "64KB", "64k", "-1", "1.5MiB", "99999999999999999999", "99999999TiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!([0, 1000, 1024, 3 << 20].map(format), ["0 B", "1000 B", "1 KiB", "3 MiB"]);
    }
}
