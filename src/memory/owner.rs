//! Who keeps memory allocated, and how ranks that are threads of one process keep that of each other.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::sync::Lazy;
use parking_lot::Mutex;

/// Memory is given back when the last owner is dropped.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// What a rank keeps so that it may address memory of another: a mapping, or an owner of the same process.
pub(super) struct Borrowed {
    /// The rank, and by which token it lent the memory; 0 where nobody there knows the owner.
    pub(super) from: (usize, u64),
    pub(super) _owner: Owner,
}

static OFFERS: Lazy<Mutex<HashMap<u64, Owner>>> = Lazy::new(Mutex::default);
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

/// An owner that other threads of this process may share, who were told its token, as long as this lives.
pub(super) struct Offer(u64);

impl Offer {
    pub(super) fn new(owner: Owner) -> Self {
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        OFFERS.lock().insert(token, owner);
        Self(token)
    }

    /// Never 0.
    pub(super) fn token(&self) -> u64 {
        self.0
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let owner = OFFERS.lock().remove(&self.0);
        // Perhaps the last: what it frees waits for a device, and nobody should for the lock meanwhile.
        drop(owner);
    }
}

/// What is offered by this token.
pub(super) fn offered(token: u64) -> Option<Owner> {
    OFFERS.lock().get(&token).cloned()
}
