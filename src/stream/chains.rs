//! Calls that the owners of streams capture: in each capture they are a chain, which runs one call after another.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;
use std::thread::ThreadId;

use cxx::UniquePtr;

use super::keepalive::keepalive;
use super::{Event, Kept, Stream};
use crate::error::Result;
use crate::sys::device as sys;
use crate::sys::{Caught, made};

/// The most chains that are kept. Nothing reports the end of a capture, and captures in progress are few.
const MOST: usize = 16;

/// The chains of the last captures, the latest one last.
#[derive(Default)]
pub(super) struct Chains(VecDeque<CapturedChain>);

/// The chain of a capture.
struct CapturedChain {
    capture: u64,
    /// The handle of the last call's stream, and the thread, if the handle is another stream on each thread. A stream is not
    /// destroyed while it is captured, so handles are not reused here.
    last: (u64, Option<ThreadId>),
    chain: UniquePtr<sys::Chain>,
    /// Dropped after the chain, which refers to the event.
    _event: Option<Arc<Event>>,
}

/// A value that a captured graph holds, with the event that the graph waits for and records.
struct HeldValue {
    _kept: Kept,
    _event: Option<Arc<Event>>,
}

impl Chains {
    /// Makes the next work of `stream`, which `capture` records, wait for the last call of this capture. The first call of a
    /// capture begins a chain: with an event, launches of the graph wait for the event and record the event. The graph then
    /// holds the result of `kept`.
    pub(super) fn order(
        &mut self,
        capture: u64,
        stream: &Stream,
        event: Option<&Arc<Event>>,
        kept: impl FnOnce() -> Kept,
    ) -> Result<()> {
        let last = (stream.0.handle, stream.thread());
        if let Some(captured) = self.find(capture) {
            if captured.last != last {
                captured.chain.pin_mut().follow(stream.raw()?).caught()?;
            }
            captured.last = last;
            return Ok(());
        }
        let recorded = stream.raw()?;
        let held = keepalive(Arc::new(HeldValue { _kept: kept(), _event: event.cloned() }))?;
        let awaited = event.map_or(ptr::null(), |event| ptr::from_ref::<sys::Event>(&event.raw));
        // SAFETY: the captured graph and the chain hold the event.
        let chain = unsafe { recorded.begin_chain(awaited, held) }.caught()?;
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(CapturedChain { capture, last, chain: made(chain, "chain")?, _event: event.cloned() });
        Ok(())
    }

    /// Ends a call that [`order`](Self::order) began.
    pub(super) fn end(&mut self, capture: u64, stream: &Stream) -> Result<()> {
        match self.find(capture) {
            Some(captured) => captured.chain.pin_mut().extend(stream.raw()?).caught(),
            None => Ok(()),
        }
    }

    fn find(&mut self, capture: u64) -> Option<&mut CapturedChain> {
        self.0.iter_mut().rev().find(|captured| captured.capture == capture)
    }
}
