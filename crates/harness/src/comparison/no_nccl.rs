//! Replaces `nccl.rs` in builds without NCCL, where every competitor is refused before the comparison.

use std::convert::Infallible;

use symmetra::{Communicator, Element, Ref};

use super::competitor::Competitor;
use super::work::{End, Library, Part, Payload, Work};
use crate::collective::Collective;
use crate::failure::Failure;

pub fn keep_multicast_off() {}

pub fn describe() -> Result<(String, String), Failure> {
    Err(absent())
}

fn absent() -> Failure {
    Failure::usage("this build has no NCCL")
}

pub struct Nccl(Infallible);

pub struct Windows(Infallible);

impl Nccl {
    pub fn among(_: &[Competitor], _: &Communicator) -> Result<Option<Self>, Failure> {
        Ok(None)
    }

    pub fn open(_: &Communicator, _: &[usize]) -> Result<Self, Failure> {
        Err(absent())
    }

    pub fn windows(&self, _: &Communicator, _: usize) -> symmetra::Result<Windows> {
        match self.0 {}
    }

    pub fn on<'s, T: Element>(&'s self, _: Collective, _: [Ref<'s, T>; 2]) -> Work<'s> {
        match self.0 {}
    }

    pub fn check(&self) -> symmetra::Result<()> {
        match self.0 {}
    }
}

impl Windows {
    pub fn operands<T: Element>(&self, _: [usize; 2]) -> symmetra::Result<[Ref<'_, T>; 2]> {
        match self.0 {}
    }
}

impl Library for Nccl {
    fn collective<'s, T: Element>(&'s self, _: Collective, _: [Part<'s, T>; 2]) -> symmetra::Result<Work<'s>> {
        match self.0 {}
    }

    fn exchange<'s>(&'s self, _: Vec<Payload<'s>>) -> Work<'s> {
        match self.0 {}
    }

    fn pairs<'s, T: Element>(&'s self, _: Vec<End<'s, T>>) -> Work<'s> {
        match self.0 {}
    }
}
