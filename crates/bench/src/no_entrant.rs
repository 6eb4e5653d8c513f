//! Replaces `entrant.rs` in builds without NCCL, where every competitor is refused before the comparison.

use std::convert::Infallible;

use symmetra::{Communicator, Element, SymmetricBuffer};

use super::side::Side;
use harness::collective::Collective;
use harness::contest::competitor::Competitor;
use harness::failure::Failure;

pub(super) struct Entrant(Infallible);

impl Entrant {
    pub(super) fn open(_: &[Competitor], _: &Communicator, _: Collective, _: usize) -> Result<Option<Self>, Failure> {
        Ok(None)
    }

    pub(super) fn side<'s, T: Element>(
        &'s self,
        _: Competitor,
        _: &'s SymmetricBuffer<T>,
        _: &'s SymmetricBuffer<T>,
    ) -> symmetra::Result<Box<dyn Side<'s, T> + 's>> {
        match self.0 {}
    }
}
