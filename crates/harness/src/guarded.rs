//! Guard bytes before and after the operands of a measurement. A changed guard byte shows that a kernel or a copy wrote
//! outside its operands or its scratch. A group has guards around symmetric memory, and [`Guarded`] has margins around
//! plain memory.

use std::ops::Range;

use symmetra::{Communicator, Device, DeviceBuffer, Element, Error, Ref, Result, Stream};

/// Bytes of a guard of a group, and of a margin. Whole pages: operands are aligned as without them.
pub const GUARD_BYTES: u64 = 4 << 10;

/// Compares the guards of this rank's symmetric memory and scratch, once all ranks have called this with their work
/// done.
/// Collective; blocks.
///
/// # Errors
/// A guard that was overwritten, with how many bytes and where.
pub fn check(communicator: &Communicator) -> Result<()> {
    // Peers write into this rank's memory too.
    communicator.group().barrier()?;
    communicator.check_guards()
}

/// Plain device memory between two margins of known bytes.
pub struct Guarded<T: Element> {
    memory: DeviceBuffer<T>,
    /// Where the elements are in the memory.
    elems: Range<usize>,
    /// The contents of the margins: random numbers, so that bytes copied from next to another operand differ.
    margins: [Vec<T>; 2],
}

impl<T: Element> Guarded<T> {
    /// Allocates `len` elements with a margin before and a margin after. The contents of the elements are undefined.
    pub fn new(device: &Device, len: usize) -> Result<Self> {
        let margin = || {
            let mut bytes = [0; GUARD_BYTES as usize];
            fastrand::fill(&mut bytes);
            bytemuck::pod_collect_to_vec(&bytes)
        };
        let margins: [Vec<T>; 2] = [margin(), margin()];
        let start = margins[0].len();
        // A length that overflows is refused with the memory.
        let end = start.saturating_add(len);
        let memory = DeviceBuffer::new(device, end.saturating_add(margins[1].len()))?;
        let guarded = Self { memory, elems: start..end, margins };
        let stream = Stream::new(device)?;
        for (values, place) in guarded.margins.iter().zip(guarded.places()) {
            guarded.memory.borrow().slice(place)?.write(values, &stream)?;
        }
        Ok(guarded)
    }

    /// All elements.
    pub fn elements(&self) -> Result<Ref<'_, T>> {
        self.memory.borrow().slice(self.elems.clone())
    }

    /// # Errors
    /// A margin that was overwritten, with how many bytes and where.
    pub fn check_margins(&self, stream: &Stream) -> Result<()> {
        for (side, (known, place)) in ["before", "behind"].into_iter().zip(self.margins.iter().zip(self.places())) {
            let found = self.memory.borrow().slice(place)?.read(stream)?;
            let [known, found]: [&[u8]; 2] = [known, &found].map(|margin| bytemuck::cast_slice(margin));
            let differs = |at: &usize| known[*at] != found[*at];
            let all = 0..known.len().min(found.len());
            if let Some(first) = all.clone().find(differs) {
                let wrong = all.filter(differs).count();
                return Err(Error::Internal {
                    message: format!(
                        "{wrong} of the {GUARD_BYTES} guard bytes {side} an operand in plain memory were overwritten, the first \
                         at byte {first}. A kernel or a copy of some rank wrote outside its operands"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Where the margins are in the memory.
    fn places(&self) -> [Range<usize>; 2] {
        [0..self.elems.start, self.elems.end..self.memory.len()]
    }
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/guarded.rs"]
mod tests;
