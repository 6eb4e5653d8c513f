//! Plain memory between margins for rows.

use symmetra::{Device, Element, Result};

use crate::codes::CodeMemory;
use crate::guarded::Guarded;

/// A device, for plain memory between margins.
pub struct Margins(pub Device);

impl CodeMemory for Margins {
    type Of<T: Element> = Guarded<T>;

    fn room<T: Element>(&self, elems: usize) -> Result<Guarded<T>> {
        Guarded::new(&self.0, elems)
    }
}
