//! Plain memory between margins for rows.

use symmetra::{Device, Element, Result};

use super::codes::Memory;
use crate::guarded::Guarded;

/// A device, for plain memory between margins.
pub(crate) struct Margins(pub(crate) Device);

impl Memory for Margins {
    type Of<T: Element> = Guarded<T>;

    fn room<T: Element>(&self, elems: usize) -> Result<Guarded<T>> {
        Guarded::new(&self.0, elems)
    }
}
