//! Calls of experts in two halves.

use parking_lot::Mutex;

use super::bridge::{AskedReceived, AskedRouting, AskedSums, Operand, Queue, SentRows};
use super::{Experts, Report, Routed, guard, held, target};
use crate::error::{Error, Result};
use crate::experts;

/// A dispatch that has begun, which owns the resources of its experts that it needs; empty after its receive.
pub struct Arriving(Mutex<Option<experts::Arriving<'static>>>);

/// A combine that has begun, which owns the resources of its experts that it needs; empty after its receive.
pub struct Returning(Mutex<Option<experts::Returning<'static>>>);

/// Takes a call that has begun.
fn take<T>(begun: &Mutex<Option<T>>) -> Result<T> {
    let gone = || Error::invalid("the handle of a call that was begun", "received already", "a call is received once");
    begun.lock().take().ok_or_else(gone)
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn experts_dispatch_begin(
    experts: &Experts,
    routing: &AskedRouting,
    sent: &SentRows,
    queue: Queue,
) -> Result<Box<Arriving>, Report> {
    guard(|| {
        let operands = [&routing.operands()[..], &sent.operands()].concat();
        let device = experts.device();
        // SAFETY: passed on.
        let (routing, (rows, scales)) = unsafe { (routing.resolve(device)?, sent.resolve(device)?) };
        let sent = experts::TokenRows { rows: &rows, scales: scales.as_ref() };
        // SAFETY: passed on.
        let queue = unsafe { target(queue, operands) }?;
        Ok(Box::new(Arriving(Mutex::new(Some(experts.dispatch_begun(&routing, sent, queue)?)))))
    })
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn arriving_receive(
    arriving: &Arriving,
    into: &AskedReceived,
    queue: Queue,
) -> Result<Box<Routed>, Report> {
    guard(|| {
        let arriving = take(&arriving.0)?;
        let operands = into.operands();
        // SAFETY: passed on.
        let into = unsafe { into.resolve(arriving.device()) }?;
        // SAFETY: passed on.
        let queue = unsafe { target(queue, operands) }?;
        Ok(Box::new(Routed(arriving.received(&into, queue)?)))
    })
}

/// # Safety
/// The pointers of operand and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn routed_combine_begin(
    routed: &Routed,
    rows: &Operand,
    queue: Queue,
) -> Result<Box<Returning>, Report> {
    guard(|| {
        // SAFETY: passed on.
        let results = unsafe { held(routed.0.device(), rows) }?;
        // SAFETY: passed on.
        let queue = unsafe { target(queue, [rows]) }?;
        Ok(Box::new(Returning(Mutex::new(Some(routed.0.combine_begun(&results, queue)?)))))
    })
}

/// # Safety
/// The pointers of operands and queue are those of the headers: *borrowing*, *caller's duty*.
pub(super) unsafe fn returning_receive(returning: &Returning, asked: &AskedSums, queue: Queue) -> Result<(), Report> {
    guard(|| {
        let returning = take(&returning.0)?;
        let operands = asked.operands();
        // SAFETY: passed on.
        let (output, options) = unsafe { asked.resolve(returning.device()) }?;
        // SAFETY: passed on.
        returning.received(&output, &options, unsafe { target(queue, operands) }?)
    })
}
