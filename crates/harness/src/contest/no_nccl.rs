//! Replaces `nccl.rs` in builds without NCCL, where every competitor is refused before the comparison.

use std::convert::Infallible;

use symmetra::{Capture, Communicator, Element, Ref, Stream};

use super::competitor::Competitor;
use super::step::{Cargo, Library, Part, Step};
use crate::collective::Collective;
use crate::failure::Failure;

pub fn keep_multicast_off() {}

pub fn describe() -> Result<String, Failure> {
    Err(absent())
}

fn absent() -> Failure {
    Failure::usage("this build has no NCCL")
}

pub struct Nccl(Infallible);

impl Nccl {
    pub fn among(_: &[Competitor], _: &Communicator) -> Result<Option<Self>, Failure> {
        Ok(None)
    }

    pub fn open(_: &Communicator, _: &[usize]) -> Result<Self, Failure> {
        Err(absent())
    }

    pub fn on<'s, T: Element>(&'s self, _: Collective, _: [Ref<'s, T>; 2]) -> Call {
        match self.0 {}
    }
}

/// A collective that cannot exist.
pub struct Call(Infallible);

impl<'a> Step<'a> for Call {
    fn enqueue(&self, _: &Stream) -> symmetra::Result<()> {
        match self.0 {}
    }

    fn record(&self, _: &Capture<'_, 'a>) -> symmetra::Result<()> {
        match self.0 {}
    }
}

impl Library for Nccl {
    fn step<'s, T: Element>(&'s self, _: Collective, _: [Part<'s, T>; 2]) -> symmetra::Result<Box<dyn Step<'s> + 's>> {
        match self.0 {}
    }

    fn exchange<'s>(&'s self, _: Vec<Cargo<'s>>) -> Box<dyn Step<'s> + 's> {
        match self.0 {}
    }
}
