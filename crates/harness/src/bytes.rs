//! Sizes in bytes, as people write them.

/// Letters of the units. The first means 1024 or 1000, and each further letter 1024 or 1000 times the letter before.
const LETTERS: [char; 4] = ['K', 'M', 'G', 'T'];

/// Reads `4096`, `64K`, `64KiB` and `64KB`, in letters of either case. A bare letter is a power of 1024, as in nccl-tests.
pub fn parse(text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let scale = scale(unit.trim_start()).ok_or_else(|| {
        format!("the unit `{unit}` is none of K, M, G, T, KiB, MiB, GiB, TiB, KB, MB, GB, TB; a bare number is bytes")
    })?;
    let number: u64 = digits.parse().map_err(|_| "it must be a whole number and a unit, like 64KiB".to_owned())?;
    number.checked_mul(scale).ok_or_else(|| "it must be below 2^64 bytes".to_owned())
}

/// Bytes of a unit.
fn scale(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    let mut letters = unit.chars();
    let Some(first) = letters.next().filter(|letter| *letter != 'B') else {
        return letters.as_str().is_empty().then_some(1);
    };
    let power = LETTERS.iter().position(|letter| *letter == first)? as u32 + 1;
    match letters.as_str() {
        "" | "IB" => Some(1024_u64.pow(power)),
        "B" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// Writes a size in the largest power of 1024 that leaves a whole number.
pub fn format(bytes: u64) -> String {
    let units = LETTERS.into_iter().zip([1 << 10, 1 << 20, 1 << 30, 1 << 40]).rev();
    let unit = units.into_iter().find(|(_, scale)| bytes > 0 && bytes.is_multiple_of(*scale));
    unit.map_or_else(|| format!("{bytes} B"), |(letter, scale)| format!("{} {letter}iB", bytes / scale))
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/bytes.rs"]
mod tests;
