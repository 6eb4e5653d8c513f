//! Random objects that ranks send each other.

use super::Writer;
use crate::objects::{By, Objects};
use crate::program::{Step, Through};

impl Writer {
    pub(super) fn objects(&mut self) {
        let by = match self.random.below(3) {
            0 => By::Broadcast,
            1 => By::Gather,
            _ => By::Ring { slots: 1 + self.random.below(5), chunk_bytes: 1 + self.random.below(300) },
        };
        // Rings are for Rust alone, and for two ranks or more.
        let rings: Vec<usize> =
            self.groups.iter().filter(|(_, members)| members.len() > 1).map(|(group, _)| *group).collect();
        let rings = if self.program.settings.through == Through::Cpp { Vec::new() } else { rings };
        let (by, group) = match by {
            By::Ring { .. } if !rings.is_empty() => (by, *self.random.pick(&rings)),
            By::Ring { .. } => (By::Broadcast, self.coordinator()),
            _ => (by, self.coordinator()),
        };
        let members = self.groups.iter().find(|(number, _)| *number == group).map_or(1, |(_, members)| members.len());
        let (root, count) = (self.random.below(members), 1 + self.random.below(6));
        let seed = self.random.next();
        self.push(Step::Objects(Objects { group, by, root, count, seed }));
    }
}
