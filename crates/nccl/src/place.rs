//! The place of a rank in a communicator.

/// The number of a rank and the number of ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RankAndSize {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}
