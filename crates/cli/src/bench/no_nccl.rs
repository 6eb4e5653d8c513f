//! In place of `nccl.rs` in builds without NCCL, where every competitor is refused before the race.

use std::convert::Infallible;

use symmetra::{Communicator, Element, SymmetricBuffer};

use super::competitor::Competitor;
use super::side::Side;
use super::step::{Cargo, Library, Part, Step};
use crate::all_reduce::Collective;
use crate::failure::Failure;

pub(super) fn keep_multicast_off() {}

pub(super) fn describe() -> Result<String, Failure> {
    Err(Failure::usage("this build has no NCCL"))
}

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

impl Library for Entrant {
    fn step<'s, T: Element>(&'s self, _: Collective, _: [Part<'s, T>; 2]) -> symmetra::Result<Box<dyn Step<'s> + 's>> {
        match self.0 {}
    }

    fn exchange<'s>(&'s self, _: Vec<Cargo<'s>>) -> Box<dyn Step<'s> + 's> {
        match self.0 {}
    }
}
