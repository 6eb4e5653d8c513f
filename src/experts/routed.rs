//! A dispatch before its combine.

use std::fmt;
use std::marker::PhantomData;

use once_cell::sync::OnceCell;

use super::config::{Layout, Method};
use super::operands::{Combine, Received, TokenRows};
use super::steps::Underway;
use super::{Experts, Inner, by_packets, check};
use crate::device::Device;
use crate::error::{Error, Operation, Result};
use crate::memory::{Operand, WithView};
use crate::op::Held;
use crate::stream::{Queue, Target};
use crate::types::{Dtype, Element};

/// The routing of a dispatch: the sources of the received rows. A `Routed` holds a slot of its [`Experts`] until it is dropped.
///
/// A `Routed` made in a capture cannot leave the closure:
/// ```compile_fail,E0521
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn escape<'env>(
///     experts: &'env Experts,
///     routing: &Routing<'env>,
///     rows: &'env DeviceBuffer<f32>,
///     stream: &Stream,
///     slot: &mut Option<Routed<'env>>,
/// ) -> Result<Graph<'env>> {
///     stream.capture(|capture| {
///         *slot = Some(experts.plan(routing, capture)?);
///         Ok(())
///     })
/// }
/// ```
/// Use it inside the closure:
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
///         let routed = experts.dispatch(&Routing::new(ids), rows, &Received::rows(received), capture)?;
///         routed.combine(received, output, Combine::default(), capture)
///     })
/// }
/// ```
/// The operands of a graph must outlive the graph:
/// ```compile_fail,E0373
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn leak<'env>(
///     experts: &'env Experts,
///     [ids, received]: [&'env DeviceBuffer<i32>; 2],
///     stream: &Stream,
/// ) -> Result<Graph<'env>> {
///     let rows = DeviceBuffer::<f32>::new(stream.device(), 8)?;
///     stream.capture(|capture| {
///         experts.dispatch(&Routing::new(ids), &rows, &Received::rows(received), capture).map(drop)
///     })
/// }
/// ```
/// Here the caller owns the rows:
/// ```
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn keep<'env>(
///     experts: &'env Experts,
///     [ids, received]: [&'env DeviceBuffer<i32>; 2],
///     rows: &'env DeviceBuffer<f32>,
///     stream: &Stream,
/// ) -> Result<Graph<'env>> {
///     stream.capture(|capture| {
///         experts.dispatch(&Routing::new(ids), rows, &Received::rows(received), capture).map(drop)
///     })
/// }
/// ```
/// An unused `Routed` is a warning:
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn send(experts: &Experts, ids: &DeviceBuffer<i32>, rows: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     experts.dispatch(&Routing::new(ids), rows, &Received::rows(rows), stream)?;
///     Ok(())
/// }
/// ```
/// Here it is dropped explicitly:
/// ```
/// #![deny(unused_must_use)]
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn send(experts: &Experts, ids: &DeviceBuffer<i32>, rows: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     experts.dispatch(&Routing::new(ids), rows, &Received::rows(rows), stream).map(drop)
/// }
/// ```
#[must_use = "a dispatch holds its slot until its handle is dropped"]
pub struct Routed<'a> {
    pub(super) slot: HeldSlot,
    /// The capture of the dispatch, if any.
    recording: Option<u64>,
    /// Whether the slot's event is recorded after the counts.
    counted: bool,
    /// Number of received rows, when the host has read it.
    rows: OnceCell<usize>,
    _experts: PhantomData<&'a Experts>,
}

impl Routed<'_> {
    /// The handle of a dispatch whose slot is held.
    pub(super) fn new(experts: &Experts, underway: Underway, queue: Target<'_>) -> Self {
        let recording = queue.recording().map(crate::stream::Recording::id);
        let (experts, rows) = (experts.clone(), OnceCell::new());
        Self { slot: HeldSlot { experts, underway }, recording, counted: false, rows, _experts: PhantomData }
    }

    /// The handle without the lifetimes of the experts and of the stream of the dispatch: it owns the parts that it needs. For
    /// an engine's struct that keeps micro-batches in flight.
    /// ```
    /// # use symmetra::experts::*;
    /// # use symmetra::*;
    /// struct MicroBatch {
    ///     rows: DeviceBuffer<f32>,
    ///     routed: Option<Routed<'static>>,
    /// }
    /// fn dispatch(batch: &mut MicroBatch, experts: &Experts, ids: &DeviceBuffer<i32>, stream: &Stream) -> Result<()> {
    ///     let received = Received::rows(&batch.rows);
    ///     batch.routed = Some(experts.dispatch(&Routing::new(ids), &batch.rows, &received, stream)?.into_owned()?);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a dispatch of a capture, which ends with its closure.
    pub fn into_owned(self) -> Result<Routed<'static>> {
        owned(self.recording.is_some())?;
        let Self { slot, recording, counted, rows, .. } = self;
        Ok(Routed { slot, recording, counted, rows, _experts: PhantomData })
    }

    /// Records an event after the counts of an eager call, if there are counts.
    pub(super) fn note(&mut self, queue: Target<'_>) -> Result<()> {
        if self.recording.is_none() && self.slot.experts.0.config.layout != Layout::BySource {
            queue.record(&self.slot.experts.0.memory[self.slot.underway.slot].counted)?;
            self.counted = true;
        }
        Ok(())
    }

    /// Sends the results of this rank's experts back, and sums the results of this rank's tokens. Enqueues and returns. All
    /// ranks call this in the same order. May be called more than once.
    ///
    /// `rows` has a row of the caller's type at the place of each received row. A token's sum is made in f32, of rounded
    /// products `w y` of each of its experts, with weight 1 if the routing has no weights. A rank adds the results of its own
    /// experts in the order of the token's ids and rounds the sum to the type. The token's rank adds the sums of the ranks in
    /// rank order and rounds. With [`Determinism::Exact`](crate::Determinism::Exact) the token's rank adds all results in the
    /// order of the token's ids and rounds once, so that the bits depend neither on the world size nor on the placement. By
    /// rank and by source, a row already is the caller's sum for its token, and is added unweighted. The sum of no results is 0.
    /// `output` is `[tokens, hidden]`. With rows by rank or by source and [`Method::Direct`], symmetric `rows` are fastest: peers
    /// read directly from them, so all ranks must pass the same buffer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands of another length, type or device, that overlap, and for a queue of another
    /// capture than that of the dispatch; the group's error if the group has failed.
    pub fn combine<'op, T: Element>(
        &self,
        rows: impl Operand<'op, T>,
        output: impl Operand<'op, T>,
        options: Combine<'op>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let [results, output] = [Held::new(T::DTYPE, &rows.view_of()), Held::new(T::DTYPE, &output.view_of())];
        self.combined(&results, &output, &options, Target::of(&queue))
    }

    /// [`combine`](Self::combine) with operands whose types are checked at run time.
    pub(crate) fn combined(
        &self,
        results: &Held,
        output: &Held,
        options: &Combine<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        let inner = &self.slot.experts.0;
        self.check_queue(queue)?;
        let (config, form, device) = (&inner.config, &inner.form, inner.over.device());
        check::results(results, self.needed(), config, form)?;
        check::sums(output, options, self.slot.underway.tokens, config, form, check::given(results), device)?;
        if inner.method == Method::Packets {
            return inner.combine_packets(self.slot.underway, results, output, options, queue);
        }
        let underway = self.slot.underway;
        inner.in_order(underway.slot, queue, || inner.combine_by_steps(underway, results, output, options, queue))
    }

    /// Enqueues the sending kernel of a combine. Returns the number of the call.
    pub(super) fn begin(&self, results: &Held, queue: Target<'_>) -> Result<u64> {
        let inner = &self.slot.experts.0;
        inner.check_halves("a combine")?;
        self.check_queue(queue)?;
        let (config, form, device) = (&inner.config, &inner.form, inner.over.device());
        check::results(results, self.needed(), config, form)?;
        check::places(check::given(results), device)?;
        inner.begin_combine(self.slot.underway, results, queue)
    }

    /// Sends other rows of the same tokens with the same routing, as a backward pass does. Enqueues and returns. All ranks call
    /// this in the same order.
    ///
    /// # Errors
    /// The errors of [`Experts::dispatch`]; [`Error::Unsupported`] for [`Method::Packets`].
    pub fn dispatch<'op, T: Element>(
        &self,
        rows: impl Operand<'op, T>,
        into: &Received<'op>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let sent = TokenRows { rows: &Held::new(T::DTYPE, &rows.view_of()), scales: None };
        self.again(sent, into, Target::of(&queue))
    }

    /// [`dispatch`](Self::dispatch) of rows of e4m3 values, with their f32 scales, as in [`Experts::dispatch_f8`].
    ///
    /// # Errors
    /// The errors of [`Experts::dispatch`].
    pub fn dispatch_f8<'op, T: Element>(
        &self,
        rows: impl Operand<'op, T>,
        scales: impl Operand<'op, f32>,
        into: &Received<'op>,
        queue: impl Queue<'op>,
    ) -> Result<()> {
        let (rows, scales) = (Held::new(T::DTYPE, &rows.view_of()), Held::new(Dtype::F32, &scales.view_of()));
        self.again(TokenRows { rows: &rows, scales: Some(&scales) }, into, Target::of(&queue))
    }

    /// [`dispatch`](Self::dispatch) with operands whose types are checked at run time.
    pub(crate) fn again(&self, sent: TokenRows<'_>, into: &Received<'_>, queue: Target<'_>) -> Result<()> {
        let inner = &self.slot.experts.0;
        let (config, form, device) = (&inner.config, &inner.form, inner.over.device());
        self.check_queue(queue)?;
        check::sent(sent, self.slot.underway.tokens, config, form)?;
        let read = check::read(None, Some(sent));
        check::received(into, self.needed(), config, form, read, device)?;
        if inner.method == Method::Packets {
            return Err(by_packets("another dispatch of a routing"));
        }
        let underway = self.slot.underway;
        inner.in_order(underway.slot, queue, || {
            if !inner.headers_with_rows() {
                inner.count(underway, Some(into), queue)?;
            }
            if into.index.is_some() {
                // The first dispatch, or the plan, may have had no index.
                inner.place_rows(underway, Some(into), queue)?;
            }
            inner.move_rows(underway, None, sent, into, queue)
        })
    }

    /// The number of pairs that each expert of this rank received. Blocks until the device has counted, up to a deadline.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the routing of a capture, which counts again in every launch, and for [`Layout::BySource`],
    /// which has no counts; the group's error if the group has failed.
    pub fn counts(&self) -> Result<Vec<usize>> {
        let inner = &self.slot.experts.0;
        if inner.config.layout == Layout::BySource {
            let reason = "rows by source are not counted: their ids show which rows were received";
            return Err(Error::unsupported("the counts of a dispatch", reason));
        }
        if !self.counted {
            let reason = "a graph counts in every launch: name an operand for the counts";
            return Err(Error::unsupported("the counts of a captured dispatch", reason));
        }
        let slot = &inner.memory[self.slot.underway.slot];
        inner.side.wait(&slot.counted)?;
        inner.over.synchronize(&inner.side)?;
        let state = slot.state.read(&inner.side)?;
        if let [0, rows, ..] = state[..] {
            let _ = self.rows.set(rows as usize);
            return Ok(state[2..2 + inner.form.local].iter().map(|count| *count as usize).collect());
        }
        inner.over.check()?;
        Err(Error::internal("a dispatch failed without a recorded cause"))
    }

    /// The device of the experts.
    pub(crate) fn device(&self) -> &Device {
        self.slot.experts.device()
    }

    /// The number of rows that operands must have.
    fn needed(&self) -> usize {
        self.rows.get().copied().unwrap_or(self.slot.experts.0.form.capacity)
    }

    /// Refuses a queue of another device, or of another capture than the dispatch.
    fn check_queue(&self, queue: Target<'_>) -> Result<()> {
        self.slot.experts.0.check_queue(Operation::Dispatch, self.recording, queue)
    }
}

impl Inner {
    /// Refuses a queue of another device, or of another capture than the earlier call of `operation`.
    pub(super) fn check_queue(&self, operation: Operation, recording: Option<u64>, queue: Target<'_>) -> Result<()> {
        self.over.device().check_same("stream", queue.stream().device())?;
        self.over.refuse_within(operation)?;
        let place = |recording: Option<u64>| match recording {
            Some(recording) => format!("capture {recording}"),
            None => "a stream".to_owned(),
        };
        let found = queue.recording().map(crate::stream::Recording::id);
        if found == recording {
            return Ok(());
        }
        let limit = format!("the {} went to {}", operation.name(), place(recording));
        Err(Error::invalid("the queue", place(found), limit))
    }
}

/// Refuses to own the handle of a call that a capture records.
pub(super) fn owned(captured: bool) -> Result<()> {
    if !captured {
        return Ok(());
    }
    let reason = "the call belongs to the capture, which ends with its closure";
    Err(Error::unsupported("to own the handle of a captured call", reason))
}

/// The slot of a dispatch, which the handle holds.
pub(super) struct HeldSlot {
    pub(super) experts: Experts,
    pub(super) underway: Underway,
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        if !self.experts.0.over.device().is_here() {
            return;
        }
        self.experts.0.slots.note_slot(self.underway.slot);
    }
}

impl fmt::Debug for Routed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "Routed({} tokens in slot {} of {:?})",
            self.slot.underway.tokens, self.slot.underway.slot, self.slot.experts
        )
    }
}
