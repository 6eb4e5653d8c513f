//! The peer tables of an arena: the free tables, and the owners of the memory that the others address.
#![allow(unsafe_code)]

use std::collections::HashMap;

use super::owner::KeptMemory;
use crate::group::MAX_WORLD_SIZE;

/// The peer tables, and the owners or mappings that keep the addressed memory alive.
pub(super) struct Slots {
    pub(super) free: Vec<u32>,
    pub(super) used: HashMap<u32, Vec<KeptMemory>>,
    pub(super) addresses: HashMap<u32, Bases>,
    /// Retired tables in order of retirement. Kernels in flight may still read them; they are freed after the device
    /// was idle.
    pub(super) retired: Vec<Retired>,
    /// Memory that no kernel of this rank uses any more. Dropped only inside collective calls: freeing another rank's
    /// memory may wait for that rank's device, which may wait for a call of this rank.
    pub(super) idle: Vec<KeptMemory>,
    pub(super) retirements: u64,
}

impl Slots {
    /// All tables except the first are free. The first is the table of the arenas.
    pub(super) fn new(registrations: u32) -> Self {
        Self {
            free: (1..registrations).rev().collect(),
            used: HashMap::new(),
            addresses: HashMap::new(),
            retired: Vec::new(),
            idle: Vec::new(),
            retirements: 0,
        }
    }
}

/// A table that no newly enqueued kernel uses.
pub(super) struct Retired {
    pub(super) number: u64,
    pub(super) slot: u32,
    pub(super) keep: Vec<KeptMemory>,
}

/// Device addresses. Rust never dereferences them.
#[derive(Clone, Copy)]
pub(super) struct Bases(pub(super) [*mut u8; MAX_WORLD_SIZE]);

// SAFETY: Rust never dereferences the addresses; devices do, and any thread may launch.
unsafe impl Send for Bases {}
// SAFETY: Rust never dereferences the addresses, and the array never changes.
unsafe impl Sync for Bases {}
