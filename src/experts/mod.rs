//! Expert parallelism: the rows of tokens are sent to the ranks of their experts (dispatch), and the results are returned as
//! weighted sums (combine).
//!
//! ```
//! # use symmetra::experts::*;
//! # use symmetra::half::bf16;
//! # use symmetra::*;
//! /// A layer whose experts return their input: the result is the sum of a token's weights times its row.
//! fn layer(
//!     experts: &Experts,
//!     (ids, weights): (&DeviceBuffer<i32>, &DeviceBuffer<f32>),
//!     hidden: &DeviceBuffer<bf16>,
//!     received: &DeviceBuffer<bf16>,
//!     output: &DeviceBuffer<bf16>,
//!     stream: &Stream,
//! ) -> Result<()> {
//!     let routing = Routing::new(ids).weights(weights);
//!     let routed = experts.dispatch(&routing, hidden, &Received::rows(received), stream)?;
//!     // Here the experts work on the rows of `received`.
//!     routed.combine(received, output, Combine::default(), stream)
//! }
//! ```
//!
//! Ranks may have different numbers of tokens, including 0. The rows that a rank receives, their order, and the bits of the
//! sums depend only on the ids of all ranks and on the data. Calls allocate no memory. A call can be captured if the backend
//! of its collectives supports capture, and a replay reads ids, weights and the count of tokens again.

mod ahead;
mod check;
mod choice;
mod config;
mod explain;
mod form;
mod halves;
mod open;
mod operands;
mod packet_calls;
mod packets;
mod pending;
mod routed;
mod slots;
mod steps;
mod survivors;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::GroupCalls;
use crate::collective::Communicator;
use crate::device::Device;
use crate::error::{Error, Operation, Result};
use crate::group::Determinism;
use crate::memory::{DeviceBuffer, Operand, WithView};
use crate::op::Held;
use crate::stream::{Queue, Stream, StreamOrder, Target};
use crate::types::{Dtype, Element};

pub use ahead::{expert_bytes, expert_method};
pub use choice::explain_experts;
pub use config::{ExpertConfig, Layout, Method, Placement, Scales, Wire};
pub use explain::MethodExplanation;
use form::{ExpertForm, table};
pub use halves::{Arriving, Returning};
pub(crate) use operands::TokenRows;
pub use operands::{Combine, ExpertId, Received, Routing, ScaleOrder};
use packets::{PacketForm, PacketStates};
pub use routed::Routed;
use slots::{ExpertRegion, ExpertSlot, ExpertSlots, RecordedExperts, Taken};
use steps::Underway;
use survivors::SurvivorMeeting;
pub use survivors::Survivors;

/// The experts of a layer, spread over the ranks of a group. Cheap to clone. Any thread may make calls, but the order of calls
/// must be equal on all ranks.
///
/// Every rank opens the experts and makes its calls in the same order. Calls enqueue and return. A call on another stream
/// waits for the previous call.
///
/// A handle of a dispatch keeps its experts open:
/// ```compile_fail,E0505
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn early(experts: Experts, routing: &Routing<'_>, rows: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     let into = Received::rows(rows);
///     let routed = experts.dispatch(routing, rows, &into, stream)?;
///     drop(experts);
///     routed.combine(rows, rows, Combine::default(), stream)
/// }
/// ```
/// Here the handle is dropped first:
/// ```
/// # use symmetra::experts::*;
/// # use symmetra::*;
/// fn late(experts: Experts, routing: &Routing<'_>, rows: &DeviceBuffer<f32>, stream: &Stream) -> Result<()> {
///     let into = Received::rows(rows);
///     let routed = experts.dispatch(routing, rows, &into, stream)?;
///     let combined = routed.combine(rows, rows, Combine::default(), stream);
///     drop(routed);
///     drop(experts);
///     combined
/// }
/// ```
#[derive(Clone)]
#[must_use = "experts do nothing by themselves"]
pub struct Experts(Arc<Inner>);

struct Inner {
    id: u64,
    over: Arc<dyn GroupCalls>,
    config: ExpertConfig,
    form: ExpertForm,
    determinism: Determinism,
    /// Not [`Method::Auto`].
    method: Method,
    /// Why this method serves.
    reason: String,
    /// The experts of every rank.
    lists: Mutex<Vec<Vec<usize>>>,
    /// The placement, as kernels read it.
    table: DeviceBuffer<u32>,
    region: ExpertRegion,
    /// The places and states of packets, if the method uses packets.
    packets: Option<(PacketForm, PacketStates)>,
    memory: Vec<ExpertSlot>,
    /// The state of barriers with the kernels of other ranks.
    barrier: DeviceBuffer<u32>,
    /// Sums of tokens between the steps of an exact combine; with packets, discarded sums.
    sums: DeviceBuffer<f32>,
    slots: ExpertSlots,
    lane: Mutex<StreamOrder>,
    /// A stream for reading counts concurrently with other work.
    side: Stream,
    /// The directories in which survivors can rendezvous after other ranks are lost.
    meeting: SurvivorMeeting,
}

/// The error for a routing without its rows, or rows without their routing.
fn by_packets(what: &str) -> Error {
    Error::unsupported(format!("{what} by packets"), "routing and rows travel together: use another method")
}

impl Experts {
    /// Sends the rows of this rank's tokens to their experts, and receives the rows of this rank's experts. Enqueues and
    /// returns. All ranks call this in the same order. `rows` is `[tokens, hidden]`, or with [`Wire::Bytes`] the bytes of
    /// `tokens` rows.
    ///
    /// The result keeps the routing for [`Routed::combine`], in one of [`ExpertConfig::in_flight`] slots, which dispatches use
    /// in turn.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for operands of another length, type or device than the settings require, and for operands
    /// that overlap; [`Error::Unsupported`] if the next slot is held, or if the call is captured and the backend does not
    /// support capture; the group's error if the group has failed. Errors that only the device can detect fail the group on
    /// every rank, as a timeout does: [`Error::Routing`] for an invalid expert id, [`Error::Capacity`] for more rows than a
    /// rank's capacity, and [`Error::Tokens`] for a count of tokens above the number of ids. Then no row is written.
    pub fn dispatch<'h, 'op, T: Element>(
        &'h self,
        routing: &Routing<'op>,
        rows: impl Operand<'op, T>,
        into: &Received<'op>,
        queue: impl Queue<'op> + 'h,
    ) -> Result<Routed<'h>> {
        let sent = TokenRows { rows: &Held::new(T::DTYPE, &rows.view_of()), scales: None };
        self.dispatched(routing, Some((sent, into)), Target::of(&queue))
    }

    /// [`dispatch`](Self::dispatch) of rows of e4m3 values with f32 scales, `[tokens, groups]` for groups of 128 elements:
    /// [`Wire::GivenF8`].
    ///
    /// # Errors
    /// The errors of [`dispatch`](Self::dispatch).
    pub fn dispatch_f8<'h, 'op, T: Element>(
        &'h self,
        routing: &Routing<'op>,
        rows: impl Operand<'op, T>,
        scales: impl Operand<'op, f32>,
        into: &Received<'op>,
        queue: impl Queue<'op> + 'h,
    ) -> Result<Routed<'h>> {
        let (rows, scales) = (Held::new(T::DTYPE, &rows.view_of()), Held::new(Dtype::F32, &scales.view_of()));
        let sent = TokenRows { rows: &rows, scales: Some(&scales) };
        self.dispatched(routing, Some((sent, into)), Target::of(&queue))
    }

    /// The routing of a dispatch without its rows: [`Routed::counts`] then returns the numbers of rows to receive, and
    /// [`Routed::dispatch`] sends the rows. Enqueues and returns.
    ///
    /// # Errors
    /// The errors of [`dispatch`](Self::dispatch); [`Error::Unsupported`] for [`Method::Packets`], which sends routing and rows
    /// together, and for [`Layout::BySource`], which has no counts.
    pub fn plan<'h, 'op>(&'h self, routing: &Routing<'op>, queue: impl Queue<'op> + 'h) -> Result<Routed<'h>> {
        self.dispatched(routing, None, Target::of(&queue))
    }

    /// A dispatch with operands whose types are checked at run time, or a plan if `sends` is `None`.
    pub(crate) fn dispatched<'h>(
        &self,
        routing: &Routing<'_>,
        sends: Option<(TokenRows<'_>, &Received<'_>)>,
        queue: Target<'_>,
    ) -> Result<Routed<'h>> {
        let inner = &self.0;
        let Inner { config, form, .. } = &**inner;
        let device = inner.over.device();
        device.check_same("stream", queue.stream().device())?;
        inner.over.refuse_within(Operation::Dispatch)?;
        let tokens = check::routing(routing, &inner.form)?;
        let read = check::read(Some(routing), sends.map(|(sent, _)| sent));
        match sends {
            Some((sent, into)) => {
                check::sent(sent, tokens, config, form)?;
                check::received(into, form.capacity, config, form, read, device)?;
            }
            None => check::places(read, device)?,
        }
        if sends.is_none() && inner.config.layout == Layout::BySource {
            return Err(Error::unsupported("a plan by source", "nothing is counted, and every row has its place"));
        }
        if inner.method == Method::Packets {
            let Some((sent, into)) = sends else { return Err(by_packets("a plan")) };
            let underway = inner.dispatch_packets(tokens, routing, sent, into, queue)?;
            let mut routed = Routed::new(self, underway, queue);
            routed.note(queue)?;
            return Ok(routed);
        }
        let recorded = inner.recorded(queue);
        let Taken { slot, number } = inner.slots.take(recorded.is_some())?;
        let underway = Underway { slot, tokens };
        let mut routed = Routed::new(self, underway, queue);
        inner
            .dispatch_by_steps(underway, routing, sends, queue)
            .inspect_err(|_| inner.slots.give_back_number(number))?;
        inner.slots.note_dispatch(recorded.as_deref(), number);
        routed.note(queue)?;
        Ok(routed)
    }

    /// Sends the rows of this rank's tokens to their experts without waiting for other ranks: the first half of a
    /// [`dispatch`](Self::dispatch). [`Arriving::receive`] is the second half. Enqueues and returns. All ranks begin their
    /// calls in the same order. Later work of the queue may overwrite the operands.
    ///
    /// # Errors
    /// The errors of [`dispatch`](Self::dispatch); [`Error::Unsupported`] for another method than [`Method::Packets`].
    pub fn dispatch_begin<'h, 'op, T: Element>(
        &'h self,
        routing: &Routing<'op>,
        rows: impl Operand<'op, T>,
        queue: impl Queue<'op> + 'h,
    ) -> Result<Arriving<'h>> {
        let sent = TokenRows { rows: &Held::new(T::DTYPE, &rows.view_of()), scales: None };
        self.dispatch_begun(routing, sent, Target::of(&queue))
    }

    /// [`dispatch_begin`](Self::dispatch_begin) of rows of e4m3 values with f32 scales, as in
    /// [`dispatch_f8`](Self::dispatch_f8).
    ///
    /// # Errors
    /// The errors of [`dispatch_begin`](Self::dispatch_begin).
    pub fn dispatch_f8_begin<'h, 'op, T: Element>(
        &'h self,
        routing: &Routing<'op>,
        rows: impl Operand<'op, T>,
        scales: impl Operand<'op, f32>,
        queue: impl Queue<'op> + 'h,
    ) -> Result<Arriving<'h>> {
        let (rows, scales) = (Held::new(T::DTYPE, &rows.view_of()), Held::new(Dtype::F32, &scales.view_of()));
        self.dispatch_begun(routing, TokenRows { rows: &rows, scales: Some(&scales) }, Target::of(&queue))
    }

    /// [`dispatch_begin`](Self::dispatch_begin) with operands whose types are checked at run time.
    pub(crate) fn dispatch_begun<'h>(
        &self,
        routing: &Routing<'_>,
        sent: TokenRows<'_>,
        queue: Target<'_>,
    ) -> Result<Arriving<'h>> {
        let inner = &self.0;
        inner.check_halves("a dispatch")?;
        let device = inner.over.device();
        device.check_same("stream", queue.stream().device())?;
        inner.over.refuse_within(Operation::Dispatch)?;
        let tokens = check::routing(routing, &inner.form)?;
        check::sent(sent, tokens, &inner.config, &inner.form)?;
        check::places(check::read(Some(routing), Some(sent)), device)?;
        let (underway, number) = inner.begin_dispatch(tokens, routing, sent, queue)?;
        Ok(Arriving::new(self, underway, number, queue))
    }

    /// Moves experts to other ranks, from the next call on, also in graphs that were captured before. The number of experts of
    /// every rank must not change. All ranks pass the same placement. Collective; blocks until the work of `stream` is done.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank if placements differ; [`Error::InvalidArgument`] for a placement that omits an expert,
    /// or with another number of experts on a rank, and for a stream of another device; [`Error::Unsupported`] while a dispatch
    /// holds a slot, with [`Error::Peer`] on the other ranks. After each of these errors, the placement is unchanged on all
    /// ranks.
    pub fn place(&self, placement: &Placement, stream: &Stream) -> Result<()> {
        let inner = &self.0;
        let Inner { over, form, config, .. } = &**inner;
        let ranks: &dyn fmt::Debug = if let Placement::Table(lists) = placement { lists } else { placement };
        over.agree("the placement of experts", &[("ranks", ranks)])?;
        let lists = placement.lists(config.experts, form.world)?;
        let mut known = inner.lists.lock();
        let moved = known.iter().zip(&lists).position(|(old, new)| old.len() != new.len());
        if let Some(rank) = moved {
            let limit = format!("the rank has {}", known[rank].len());
            return Err(Error::invalid(&format!("the number of experts of rank {rank}"), lists[rank].len(), limit));
        }
        // Dispatches of this rank wait until either all ranks or none have the placement.
        let ring = inner.slots.ring();
        over.together("place experts", ring.refuse_held("a placement of experts"))?;
        let table = table(&lists, form.rank, config.experts);
        let written = inner.lane.lock().call(Target::of(&stream), || inner.table.write(&table, stream));
        over.together("place experts", written)?;
        *known = lists;
        Ok(())
    }

    /// The experts of this rank, in local order.
    pub fn local_experts(&self) -> Vec<usize> {
        self.0.lists.lock()[self.0.form.rank].clone()
    }

    /// The communicator of the ranks of these experts on this host.
    pub fn communicator(&self) -> &Communicator {
        self.0.over.local()
    }

    /// The number of rows that an operand for received rows must have.
    pub fn capacity(&self) -> usize {
        self.0.form.capacity
    }

    /// The method that serves.
    pub fn method(&self) -> Method {
        self.0.method
    }

    /// The device of this rank.
    pub(crate) fn device(&self) -> &Device {
        self.0.over.device()
    }

    /// The settings.
    pub fn config(&self) -> &ExpertConfig {
        &self.0.config
    }
}

impl Inner {
    /// The places and states of packets.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the method does not send and receive with separate kernels.
    fn packets(&self, what: impl fmt::Display) -> Result<&(PacketForm, PacketStates)> {
        self.packets.as_ref().ok_or_else(|| {
            let method = self.method;
            let reason =
                format!("the method is {method:?}, whose ranks meet between sending and receiving: use Packets");
            Error::unsupported(what.to_string(), reason)
        })
    }

    /// Refuses halves of a call if the method does not send and receive with separate kernels.
    fn check_halves(&self, what: &str) -> Result<()> {
        self.packets(format_args!("{what} in two halves")).map(drop)
    }

    /// Dispatches with kernels that run on this rank only, and collectives, or kernels that synchronise with the kernels of all
    /// ranks. A plan sends no rows.
    fn dispatch_by_steps(
        self: &Arc<Self>,
        underway: Underway,
        routing: &Routing<'_>,
        sends: Option<(TokenRows<'_>, &Received<'_>)>,
        queue: Target<'_>,
    ) -> Result<()> {
        self.in_order(underway.slot, queue, || {
            let into = sends.map(|(_, into)| into);
            if !self.headers_with_rows() {
                self.send_headers(underway, routing, queue)?;
                self.count(underway, into, queue)?;
                self.place_rows(underway, into, queue)?;
            }
            match sends {
                Some((sent, into)) => self.move_rows(underway, Some(routing), sent, into, queue),
                None => Ok(()),
            }
        })
    }

    /// Enqueues a call in the order of the calls of these experts, and records in a graph the slot that the call writes.
    fn in_order<T>(self: &Arc<Self>, slot: usize, queue: Target<'_>, enqueue: impl FnOnce() -> Result<T>) -> Result<T> {
        self.over.check()?;
        if let Some(recording) = queue.recording() {
            recording.part(self.id, || RecordedExperts::new(self)).uses(slot);
        }
        self.lane.lock().call(queue, enqueue)
    }
}

impl fmt::Debug for Experts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = &self.0.form;
        write!(out, "Experts({} on rank {} of {}, {:?})", form.experts, form.rank, form.world, self.0.config.layout)
    }
}

/// Any thread may use experts, and the handles of their dispatches.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<Experts>();
    any_thread::<Routed<'_>>();
    any_thread::<Arriving<'_>>();
    any_thread::<Returning<'_>>();
};
