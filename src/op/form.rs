//! One number for settings on which ranks must agree.

/// A hash of settings on which ranks must agree. Different settings have equal hashes in one case in 2^63. The history of
/// calls keeps 24 bits of the hash. Never 1, which stands for no settings.
pub(super) fn form_of(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let mix = |sum: u64, number: u64| (sum.rotate_left(29) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    numbers.into_iter().fold(0, mix) | 2
}
