//! The sizes of a sweep.

use symmetra::Dtype;

use crate::bytes::{self, format};
use crate::failure::CommandFailure;

/// Which sizes. The letters are those of nccl-tests.
#[derive(clap::Args)]
pub struct SizeArgs {
    /// Smallest message of a rank: bytes, or with a unit. K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB,
    /// GB, TB are powers of 1000
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "1KiB", value_parser = bytes::parse)]
    min_bytes: u64,

    /// Largest message of a rank
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "16MiB", value_parser = bytes::parse)]
    max_bytes: u64,

    /// Each message is this many times as large as the previous message
    #[arg(short = 'f', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    step_factor: u64,
}

impl SizeArgs {
    /// Elements of each message, in whole multiples of `parts`.
    pub fn elems(&self, dtype: Dtype, parts: usize) -> Result<Vec<usize>, CommandFailure> {
        sizes_elems([self.min_bytes, self.max_bytes], self.step_factor, dtype, parts)
    }
}

/// The sizes from the smallest to the largest, each `factor` times the size before, in whole multiples of `parts`, each
/// once.
pub fn sizes_elems(
    [min_bytes, max_bytes]: [u64; 2],
    factor: u64,
    dtype: Dtype,
    parts: usize,
) -> Result<Vec<usize>, CommandFailure> {
    let element = dtype.bytes() as u64;
    if min_bytes < element {
        return Err(CommandFailure::usage(format!("--min-bytes is {min_bytes}, but one {dtype} has {element} bytes")));
    }
    if min_bytes > max_bytes {
        let (min, max) = (format(min_bytes), format(max_bytes));
        return Err(CommandFailure::usage(format!("--min-bytes is {min}, but --max-bytes is only {max}")));
    }
    let limit = 1 << 40;
    if max_bytes > limit {
        return Err(CommandFailure::usage(format!(
            "--max-bytes is {max_bytes}, but it must be at most {}",
            format(limit)
        )));
    }
    let next = |bytes: &u64| bytes.checked_mul(factor);
    let sizes = std::iter::successors(Some(min_bytes), next).take_while(|bytes| *bytes <= max_bytes);
    let mut sizes: Vec<usize> = sizes.map(|bytes| ((bytes / element) as usize / parts).max(1) * parts).collect();
    sizes.dedup();
    Ok(sizes)
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/sizes.rs"]
mod tests;
