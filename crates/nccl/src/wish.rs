//! The color and the key that a rank passes to a split, and the parts that follow from the wishes of all ranks.

use std::collections::BTreeMap;
use std::ffi::c_int;

use crate::error::{CallFailure, Result};

/// The color of a rank without a part.
pub(crate) const NO_PART: c_int = -1;

/// The numbers of one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitRequest {
    pub(crate) color: c_int,
    pub(crate) key: c_int,
}

impl SplitRequest {
    /// The color of the part, if the rank has one.
    pub(crate) fn color(self) -> Option<u32> {
        u32::try_from(self.color).ok()
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        [self.color, self.key].into_iter().flat_map(c_int::to_le_bytes).collect()
    }

    fn read(bytes: &[u8]) -> Result<Self> {
        match bytes.as_chunks() {
            ([color, key], []) => Ok(Self { color: c_int::from_le_bytes(*color), key: c_int::from_le_bytes(*key) }),
            _ => {
                Err(CallFailure::system(format!("a rank sent {} bytes of a color and a key: 8 are right", bytes.len())))
            }
        }
    }

    /// The wishes of all ranks, in rank order.
    pub(crate) fn read_all(all: &[Vec<u8>]) -> Result<Vec<Self>> {
        all.iter().map(|bytes| Self::read(bytes)).collect()
    }
}

/// The ranks of the part of each color, in the order of the part: by key, and by rank where keys are equal.
pub(crate) fn parts(wishes: &[SplitRequest]) -> BTreeMap<u32, Vec<usize>> {
    let mut parts: BTreeMap<u32, Vec<(c_int, usize)>> = BTreeMap::new();
    for (rank, wish) in wishes.iter().enumerate() {
        if let Some(color) = wish.color() {
            parts.entry(color).or_default().push((wish.key, rank));
        }
    }
    let ordered = |mut ranks: Vec<(c_int, usize)>| {
        ranks.sort_unstable();
        ranks.into_iter().map(|(_, rank)| rank).collect()
    };
    parts.into_iter().map(|(color, ranks)| (color, ordered(ranks))).collect()
}
