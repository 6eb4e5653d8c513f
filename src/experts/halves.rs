//! Calls in two halves: the first half sends without waiting for other ranks, the second half receives. Other work may run
//! between the halves.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::operands::{Combine, Received};
use super::routed::{Routed, owned};
use super::slots::RecordedExperts;
use super::steps::Underway;
use super::{Experts, check};
use crate::device::Device;
use crate::error::{Error, Operation, Result};
use crate::group::Determinism;
use crate::memory::{Operand, WithView};
use crate::op::Held;
use crate::stream::{Queue, Recording, Stream, Target};
use crate::types::Element;

/// A call that was begun. When the half is dropped, the call is received and its data are discarded.
struct HalfCall {
    experts: Experts,
    operation: Operation,
    /// The number of the call, among the calls of its operation on streams or in its capture.
    number: u64,
    underway: Underway,
    /// The stream of the first half; `None` in a capture.
    stream: Option<Stream>,
    /// The capture of the first half, with its part of the graph.
    captured: Option<(u64, Arc<RecordedExperts>)>,
}

impl HalfCall {
    fn new(experts: &Experts, operation: Operation, underway: Underway, number: u64, queue: Target<'_>) -> Self {
        let captured = queue.recording().map(Recording::id).zip(experts.0.recorded(queue));
        let stream = captured.is_none().then(|| queue.stream().clone());
        Self { experts: experts.clone(), operation, number, underway, stream, captured }
    }

    /// Refuses a queue of another device, or of another capture than the first half.
    fn check_queue(&self, queue: Target<'_>) -> Result<()> {
        let recording = self.captured.as_ref().map(|(recording, _)| *recording);
        self.experts.0.check_queue(self.operation, recording, queue)
    }
}

impl Drop for HalfCall {
    fn drop(&mut self) {
        if !self.experts.0.over.device().is_here() {
            return;
        }
        let recorded = self.captured.as_ref().map(|(_, recorded)| &**recorded);
        let queue = self.stream.as_ref().map(Target::Eager);
        self.experts.0.drop_half(self.operation, self.number, recorded, queue);
        if let Some(stream) = self.stream.take() {
            stream.let_go();
        }
    }
}

/// The first half of a dispatch: rows are in flight. [`receive`](Self::receive) is the second half.
///
/// Dispatches are received in the order in which they were begun. A dropped dispatch is received as well, and its rows are
/// discarded, so that ranks stay in step. This happens on the stream of the first half, or after the reception of earlier
/// dispatches; in a capture at the latest when the closure ends. Until then the dispatch holds a slot. A forgotten dispatch
/// ([`std::mem::forget`]) holds its slot forever, and no later dispatch can be received.
///
/// An `Arriving` made in a capture cannot leave the closure:
/// ```compile_fail,E0521
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn escape<'env>(
///     experts: &'env Experts,
///     routing: &Routing<'env>,
///     rows: &'env DeviceBuffer<f32>,
///     stream: &Stream,
///     half: &mut Option<Arriving<'env>>,
/// ) -> Result<Graph<'env>> {
///     stream.capture(|capture| {
///         *half = Some(experts.dispatch_begin(routing, rows, capture)?);
///         Ok(())
///     })
/// }
/// ```
/// Receive it inside the closure:
/// ```
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn layer<'env>(
///     experts: &'env Experts,
///     ids: &'env DeviceBuffer<i32>,
///     [rows, received, output]: [&'env DeviceBuffer<f32>; 3],
///     stream: &Stream,
/// ) -> Result<Graph<'env>> {
///     stream.capture(|capture| {
///         let arriving = experts.dispatch_begin(&Routing::new(ids), rows, capture)?;
///         // Other work goes here, while rows are in flight.
///         let routed = arriving.receive(&Received::rows(received), capture)?;
///         let returning = routed.combine_begin(received, capture)?;
///         returning.receive(output, Combine::default(), capture)
///     })
/// }
/// ```
/// An `Arriving` that is never received is a warning:
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn begin(experts: &Experts, ids: &DeviceBuffer<i32>, rows: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     experts.dispatch_begin(&Routing::new(ids), rows, stream)?;
///     Ok(())
/// }
/// ```
/// Here it is received:
/// ```
/// #![deny(unused_must_use)]
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn begin(experts: &Experts, ids: &DeviceBuffer<i32>, rows: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     let arriving = experts.dispatch_begin(&Routing::new(ids), rows, stream)?;
///     arriving.receive(&Received::rows(rows), stream).map(drop)
/// }
/// ```
#[must_use = "the rows of a dropped dispatch are discarded"]
pub struct Arriving<'a> {
    half: HalfCall,
    _experts: PhantomData<&'a Experts>,
}

impl<'a> Arriving<'a> {
    /// The handle of a dispatch that was begun.
    pub(super) fn new(experts: &Experts, underway: Underway, number: u64, queue: Target<'_>) -> Self {
        Self { half: HalfCall::new(experts, Operation::Dispatch, underway, number, queue), _experts: PhantomData }
    }

    /// The half without the lifetimes of the experts and of the stream of the first half: see [`Routed::into_owned`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a dispatch of a capture. The dispatch then counts as dropped.
    pub fn into_owned(self) -> Result<Arriving<'static>> {
        owned(self.half.captured.is_some())?;
        Ok(Arriving { half: self.half, _experts: PhantomData })
    }

    /// Receives the rows of this rank's experts. Enqueues and returns. All ranks receive their dispatches in the order of the
    /// first halves. `into` may be memory that the first half read.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands of another length, type or device than the
    /// settings require, or that overlap, and for a queue of another capture than the first half;
    /// [`Error::Unsupported`] while an earlier dispatch is not received; the group's
    /// error if the group has failed. After an error the dispatch counts as dropped.
    pub fn receive<'op>(self, into: &Received<'op>, queue: impl Queue<'op> + 'a) -> Result<Routed<'a>> {
        self.received(into, Target::of(&queue))
    }

    /// [`receive`](Self::receive) with operands whose types are checked at run time.
    pub(crate) fn received(self, into: &Received<'_>, queue: Target<'_>) -> Result<Routed<'a>> {
        let HalfCall { experts, operation, number, underway, .. } = &self.half;
        let inner = &experts.0;
        self.half.check_queue(queue)?;
        let (config, form, device) = (&inner.config, &inner.form, inner.over.device());
        check::received(into, form.capacity, config, form, check::OperandList::default(), device)?;
        let step = inner.receive_step(*underway, Some(into), false)?;
        inner.receive_next(*operation, *number, &step, queue)?;
        let mut routed = Routed::new(experts, *underway, queue);
        routed.note(queue)?;
        Ok(routed)
    }

    /// The device of the experts.
    pub(crate) fn device(&self) -> &Device {
        self.half.experts.device()
    }
}

/// The first half of a combine: results are in flight. [`receive`](Self::receive) is the second half.
///
/// Combines are received in the order in which they were begun. A dropped combine is received as well, and its results are
/// discarded, as for a dropped [`Arriving`]. A combine holds the slot of its dispatch until it is received, even if the
/// [`Routed`] is dropped first.
///
/// A `Returning` made in a capture cannot leave the closure:
/// ```compile_fail,E0521
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn escape<'env>(
///     experts: &'env Experts,
///     ids: &'env DeviceBuffer<i32>,
///     [rows, received]: [&'env DeviceBuffer<f32>; 2],
///     stream: &Stream,
///     half: &mut Option<Returning<'env>>,
/// ) -> Result<Graph<'env>> {
///     stream.capture(|capture| {
///         let routed = experts.dispatch(&Routing::new(ids), rows, &Received::rows(received), capture)?;
///         *half = Some(routed.combine_begin(received, capture)?);
///         Ok(())
///     })
/// }
/// ```
/// A `Returning` may outlive the handle of its dispatch:
/// ```
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn begin<'a>(routed: Routed<'a>, rows: &DeviceBuffer<f32>, stream: &'a Stream) -> Result<Returning<'a>> {
///     routed.combine_begin(rows, stream)
/// }
/// ```
#[must_use = "the results of a dropped combine are discarded"]
pub struct Returning<'a> {
    half: HalfCall,
    _experts: PhantomData<&'a Experts>,
}

impl Returning<'_> {
    /// The handle of a combine that was begun.
    pub(super) fn new(experts: &Experts, underway: Underway, number: u64, queue: Target<'_>) -> Self {
        Self { half: HalfCall::new(experts, Operation::Combine, underway, number, queue), _experts: PhantomData }
    }

    /// The half without the lifetimes of the experts and of the stream of the first half: see [`Routed::into_owned`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a combine of a capture. The combine then counts as dropped.
    pub fn into_owned(self) -> Result<Returning<'static>> {
        owned(self.half.captured.is_some())?;
        Ok(Returning { half: self.half, _experts: PhantomData })
    }

    /// Sums the results of this rank's tokens, as [`Routed::combine`] does. Enqueues and returns. All ranks receive their
    /// combines in the order of the first halves. `output` is `[tokens, hidden]`, and may be memory that the first half read.
    ///
    /// # Errors
    /// The errors of [`Arriving::receive`]; [`Error::Unsupported`] for [`Combine::unweighted`] if ranks weigh results before
    /// sending: with [`Determinism::PerAlgorithm`](crate::Determinism::PerAlgorithm), unless rows are by rank or by source.
    pub fn receive<'op, T: Element>(
        self,
        output: impl Operand<'op, T>,
        options: Combine<'op>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        self.received(&Held::new(T::DTYPE, &output.view_of()), &options, Target::of(&queue))
    }

    /// [`receive`](Self::receive) with an operand whose type is checked at run time.
    pub(crate) fn received(self, output: &Held, options: &Combine<'_>, queue: Target<'_>) -> Result<()> {
        let HalfCall { experts, operation, number, underway, .. } = &self.half;
        let inner = &experts.0;
        self.half.check_queue(queue)?;
        if options.unweighted && !inner.config.layout.is_by_token() && inner.determinism != Determinism::Exact {
            let reason =
                "ranks weighed the results when the combine was begun: dispatch without weights, or combine as a whole";
            return Err(Error::unsupported("an unweighted sum of weighed results", reason));
        }
        let (config, form, device) = (&inner.config, &inner.form, inner.over.device());
        check::sums(output, options, underway.tokens, config, form, check::OperandList::default(), device)?;
        let step = inner.sum_step(*underway, Some(output), options, None)?;
        inner.receive_next(*operation, *number, &step, queue)
    }

    /// The device of the experts.
    pub(crate) fn device(&self) -> &Device {
        self.half.experts.device()
    }
}

impl<'a> Routed<'a> {
    /// Sends the results of this rank's experts back without waiting for other ranks: the first half of a
    /// [`combine`](Self::combine). [`Returning::receive`] is the second half. Enqueues and returns. All ranks begin their calls
    /// in the same order. At most [`ExpertConfig::in_flight`](super::ExpertConfig::in_flight) combines may be begun and not
    /// received. Later work of the queue may overwrite `rows`.
    ///
    /// # Errors
    /// The errors of [`combine`](Self::combine); [`Error::Unsupported`] for another method than
    /// [`Method::Packets`](super::Method::Packets), and if the limit of combines that are begun and not received is reached.
    pub fn combine_begin<'h, 'op, T: Element>(
        &self,
        rows: impl Operand<'op, T>,
        queue: impl Queue<'op> + 'h,
    ) -> Result<Returning<'h>>
    where
        'a: 'h,
    {
        self.combine_begun(&Held::new(T::DTYPE, &rows.view_of()), Target::of(&queue))
    }

    /// [`combine_begin`](Self::combine_begin) with an operand whose type is checked at run time.
    pub(crate) fn combine_begun<'h>(&self, results: &Held, queue: Target<'_>) -> Result<Returning<'h>>
    where
        'a: 'h,
    {
        let number = self.begin(results, queue)?;
        Ok(Returning::new(&self.slot.experts, self.slot.underway, number, queue))
    }
}

impl fmt::Debug for Arriving<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HalfCall { experts, number, underway, .. } = &self.half;
        write!(out, "Arriving(dispatch {number}, {} tokens in slot {} of {experts:?})", underway.tokens, underway.slot)
    }
}

impl fmt::Debug for Returning<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HalfCall { experts, number, underway, .. } = &self.half;
        write!(out, "Returning(combine {number}, {} tokens in slot {} of {experts:?})", underway.tokens, underway.slot)
    }
}
