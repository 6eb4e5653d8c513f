//! Replaces `nccl.rs` in builds without NCCL, where every competitor is refused before the comparison.

use std::convert::Infallible;

use symmetra::{Communicator, Element, Ref};

use super::competitor::Competitor;
use super::work::{BufferPart, ComparedLibrary, MessageEnd, Payload, Work};
use crate::collective::CollectiveCommand;
use crate::failure::CommandFailure;

pub fn keep_multicast_off() {}

pub fn describe() -> Result<(String, String), CommandFailure> {
    Err(absent())
}

fn absent() -> CommandFailure {
    CommandFailure::usage("this build has no NCCL")
}

pub struct Nccl(Infallible);

pub struct Windows(Infallible);

impl Nccl {
    pub fn among(_: &[Competitor], _: &Communicator) -> Result<Option<Self>, CommandFailure> {
        Ok(None)
    }

    pub fn open(_: &Communicator, _: &[usize]) -> Result<Self, CommandFailure> {
        Err(absent())
    }

    pub fn windows(&self, _: &Communicator, _: usize) -> symmetra::Result<Windows> {
        match self.0 {}
    }

    pub fn on<'s, T: Element>(&'s self, _: CollectiveCommand, _: [Ref<'s, T>; 2]) -> Work<'s> {
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

impl ComparedLibrary for Nccl {
    fn collective<'s, T: Element>(
        &'s self,
        _: CollectiveCommand,
        _: [BufferPart<'s, T>; 2],
    ) -> symmetra::Result<Work<'s>> {
        match self.0 {}
    }

    fn exchange<'s>(&'s self, _: Vec<Payload<'s>>) -> Work<'s> {
        match self.0 {}
    }

    fn pairs<'s, T: Element>(&'s self, _: Vec<MessageEnd<'s, T>>) -> Work<'s> {
        match self.0 {}
    }
}
