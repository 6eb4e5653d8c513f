//! The chunks of bytes that go from rank to rank in a call.

use std::array;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use super::Cut;
use crate::group::MAX_WORLD_SIZE;
use crate::memory::View;
use crate::types::Dtype;

/// The bytes to one rank, or from one rank.
#[derive(Clone, Copy)]
pub(crate) struct Strip {
    pub(crate) address: *mut u8,
    pub(crate) bytes: u64,
}

impl Strip {
    pub(crate) const NONE: Self = Self { address: std::ptr::null_mut(), bytes: 0 };

    /// The whole operand.
    pub(crate) fn whole(view: &View<'_>, dtype: Dtype) -> Self {
        Self { address: view.address, bytes: (view.elems * dtype.bytes()) as u64 }
    }

    /// Part `number` of an operand that holds parts of `bytes` bytes.
    pub(crate) fn part(view: &View<'_>, number: usize, bytes: u64) -> Self {
        Self { address: view.address.wrapping_add(number * bytes as usize), bytes }
    }

    /// Bytes from the start of an operand to a chunk in the operand; 0 for an empty chunk.
    pub(crate) fn offset_bytes(self, operand: &View<'_>) -> u64 {
        if self.bytes == 0 { 0 } else { self.address as u64 - operand.address as u64 }
    }
}

/// Rows of chunks that are parts of a tensor. All zero: each chunk is one row.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rows {
    pub(crate) row_bytes: u64,
    pub(crate) from_pitch_bytes: u64,
    pub(crate) into_pitch_bytes: u64,
}

impl Rows {
    /// From separate parts into the whole.
    pub(crate) fn gathering(cut: Cut, dtype: Dtype) -> Self {
        let row_bytes = cut.row_bytes(dtype);
        Self { row_bytes, from_pitch_bytes: row_bytes, into_pitch_bytes: row_bytes * cut.parts() as u64 }
    }

    /// From the whole into separate parts.
    pub(crate) fn scattering(cut: Cut, dtype: Dtype) -> Self {
        let Self { row_bytes, from_pitch_bytes, into_pitch_bytes } = Self::gathering(cut, dtype);
        Self { row_bytes, from_pitch_bytes: into_pitch_bytes, into_pitch_bytes: from_pitch_bytes }
    }
}

/// A chunk for each rank. At least [`MAX_WORLD_SIZE`] chunks, of which the last are empty in a smaller world: kernels take as
/// many. A group on several hosts may have more ranks, and then no kernel runs the call.
#[derive(Clone)]
pub(crate) struct Chunks(SmallVec<[Strip; MAX_WORLD_SIZE]>);

impl Chunks {
    fn empty(world: usize) -> Self {
        Self(SmallVec::from_elem(Strip::NONE, world.max(MAX_WORLD_SIZE)))
    }

    /// A value of each chunk, for a kernel.
    #[inline]
    pub(crate) fn map<T>(&self, of: impl Fn(Strip) -> T) -> [T; MAX_WORLD_SIZE] {
        array::from_fn(|rank| of(self.0[rank]))
    }

    /// The chunks that `of` makes of these.
    pub(crate) fn cut(&self, of: impl Fn(Strip) -> Strip) -> Self {
        Self(self.iter().map(|strip| of(*strip)).collect())
    }
}

impl Deref for Chunks {
    type Target = [Strip];

    fn deref(&self) -> &[Strip] {
        &self.0
    }
}

impl DerefMut for Chunks {
    fn deref_mut(&mut self) -> &mut [Strip] {
        &mut self.0
    }
}

/// The chunks that a rank sends to every rank and receives from every rank.
#[derive(Clone)]
pub(crate) struct Strips {
    pub(crate) from: Chunks,
    pub(crate) into: Chunks,
    pub(crate) rows: Rows,
}

impl Strips {
    /// Empty chunks for `world` ranks.
    pub(crate) fn empty(world: usize) -> Self {
        Self { from: Chunks::empty(world), into: Chunks::empty(world), rows: Rows::default() }
    }

    /// Strips from the functions `from` and `into`, which give the chunk to and from each rank.
    pub(crate) fn each(world: usize, from: impl Fn(usize) -> Strip, into: impl Fn(usize) -> Strip) -> Self {
        let mut strips = Self::empty(world);
        for peer in 0..world {
            strips.from[peer] = from(peer);
            strips.into[peer] = into(peer);
        }
        strips
    }
}
