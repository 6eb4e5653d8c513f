//! Owners of memory, and how ranks that are threads of one process share them.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::sync::Lazy;
use parking_lot::Mutex;

use crate::fork::Maker;

/// Owner of an allocation. The memory is freed when the last owner is dropped.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// The object that keeps a peer's memory addressable here: a mapping, or an owner in this process.
pub(super) struct KeptMemory {
    /// The lending rank and its token for the memory; token 0 if that rank does not know the owner.
    pub(super) from: (usize, u64),
    pub(super) _owner: Owner,
}

static OFFERS: Lazy<Mutex<HashMap<u64, Owner>>> = Lazy::new(Mutex::default);
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

/// Offers an owner to other threads of this process that know its token, until this is dropped.
pub(super) struct Offer {
    maker: Maker,
    token: u64,
}

impl Offer {
    pub(super) fn new(owner: Owner) -> Self {
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        OFFERS.lock().insert(token, owner);
        Self { maker: Maker::this(), token }
    }

    /// The token; never 0.
    pub(super) fn token(&self) -> u64 {
        self.token
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            return;
        }
        let owner = OFFERS.lock().remove(&self.token);
        // This may be the last owner, whose drop waits for a device, so it is dropped without the lock.
        drop(owner);
    }
}

pub(super) fn offered(token: u64) -> Option<Owner> {
    OFFERS.lock().get(&token).cloned()
}
