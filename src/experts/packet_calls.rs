//! Calls in packets, whole or in two halves. The receiving kernels of each operation process calls in the order in which the
//! sending kernels were enqueued.

use std::sync::Arc;

use super::Inner;
use super::operands::{Combine, Received, Routing, TokenRows};
use super::slots::{Books, RecordedExperts};
use super::steps::Underway;
use crate::collective::{ExpertStage, ExpertStep};
use crate::error::{Error, Operation, Result};
use crate::group::Announced;
use crate::op::Held;
use crate::stream::Target;

impl Inner {
    /// The part of a queue's graph, if the queue is a capture.
    pub(super) fn recorded(self: &Arc<Self>, queue: Target<'_>) -> Option<Arc<RecordedExperts>> {
        queue.recording().map(|recording| recording.part(self.id, || RecordedExperts::new(self)))
    }

    /// The first kernels of a call.
    fn new_stage(&self, operation: Operation, underway: Underway) -> ExpertStage {
        let row = if operation == Operation::Dispatch { self.form.row_bytes } else { self.form.part_bytes };
        ExpertStage::New { operation, bytes: self.form.max_tokens * row, slot: underway.slot }
    }

    /// Enqueues kernels of a call in a slot.
    fn launch(
        self: &Arc<Self>,
        slot: usize,
        stage: ExpertStage,
        steps: &[ExpertStep],
        queue: Target<'_>,
    ) -> Result<Announced> {
        self.in_order(slot, queue, || self.exchange(stage, steps, queue))
    }

    /// Receives and discards the next calls, as long as their handles were dropped.
    pub(super) fn settle(self: &Arc<Self>, books: &mut Books<'_>, queue: Target<'_>) -> Result<()> {
        for operation in [Operation::Dispatch, Operation::Combine] {
            while let Some(sent) = books.pending(operation).dropped() {
                let step = match operation {
                    Operation::Dispatch => self.receive_step(sent.underway, None, false),
                    _ => self.sum_step(sent.underway, None, &Combine::default(), None),
                };
                self.launch(sent.underway.slot, ExpertStage::Rest(sent.announced), &[step?], queue)?;
                books.pending(operation).end();
                books.give_back(sent.underway.slot);
            }
        }
        Ok(())
    }

    /// Takes a slot for a dispatch of `tokens` tokens, and enqueues its kernels with `launch`.
    fn open_slot<T>(
        books: &mut Books<'_>,
        tokens: usize,
        recorded: Option<&RecordedExperts>,
        launch: impl FnOnce(Underway) -> Result<T>,
    ) -> Result<(Underway, T)> {
        let taken = books.take(recorded.is_some())?;
        let underway = Underway { slot: taken.slot, tokens };
        let launched = launch(underway).inspect_err(|_| books.undo(taken))?;
        books.note_dispatch(recorded, taken.number);
        Ok((underway, launched))
    }

    /// Dispatches as a whole. Takes a slot.
    pub(super) fn dispatch_packets(
        self: &Arc<Self>,
        tokens: usize,
        routing: &Routing<'_>,
        sent: TokenRows<'_>,
        into: &Received<'_>,
        queue: Target<'_>,
    ) -> Result<Underway> {
        let (operation, recorded) = (Operation::Dispatch, self.recorded(queue));
        let books = &mut self.slots.books(recorded.as_deref());
        self.settle(books, queue)?;
        books.pending(operation).refuse_behind("the whole of")?;
        let launched = Self::open_slot(books, tokens, recorded.as_deref(), |underway| {
            let send = self.send_step(underway, routing, sent)?;
            let steps = [send, self.receive_step(underway, Some(into), true)?];
            self.launch(underway.slot, self.new_stage(operation, underway), &steps, queue)
        });
        launched.map(|(underway, _)| underway)
    }

    /// Combines as a whole.
    pub(super) fn combine_packets(
        self: &Arc<Self>,
        underway: Underway,
        results: &Held,
        output: &Held,
        options: &Combine<'_>,
        queue: Target<'_>,
    ) -> Result<()> {
        let (operation, recorded) = (Operation::Combine, self.recorded(queue));
        let books = &mut self.slots.books(recorded.as_deref());
        self.settle(books, queue)?;
        books.pending(operation).refuse_behind("the whole of")?;
        let back = self.return_step(underway, results, options.unweighted, true)?;
        let steps = [back, self.sum_step(underway, Some(output), options, Some(results))?];
        self.launch(underway.slot, self.new_stage(operation, underway), &steps, queue).map(drop)
    }

    /// Sends routing headers and rows. Takes a slot. Returns the number of the call.
    pub(super) fn begin_dispatch(
        self: &Arc<Self>,
        tokens: usize,
        routing: &Routing<'_>,
        sent: TokenRows<'_>,
        queue: Target<'_>,
    ) -> Result<(Underway, u64)> {
        let (operation, recorded) = (Operation::Dispatch, self.recorded(queue));
        let books = &mut self.slots.books(recorded.as_deref());
        self.settle(books, queue)?;
        let (underway, announced) = Self::open_slot(books, tokens, recorded.as_deref(), |underway| {
            let stage = self.new_stage(operation, underway);
            self.launch(underway.slot, stage, &[self.send_step(underway, routing, sent)?], queue)
        })?;
        Ok((underway, books.pending(operation).begin(underway, announced)))
    }

    /// Sends weighed results back. Adds a holder to the slot of the dispatch. Returns the number of the call.
    pub(super) fn begin_combine(
        self: &Arc<Self>,
        underway: Underway,
        results: &Held,
        queue: Target<'_>,
    ) -> Result<u64> {
        let (operation, recorded) = (Operation::Combine, self.recorded(queue));
        let books = &mut self.slots.books(recorded.as_deref());
        self.settle(books, queue)?;
        let (begun, most) = (books.pending(operation).len(), self.config.in_flight);
        if begun == most {
            let reason = format!("{begun} of {most} combines (`in_flight`) were begun and are not received");
            return Err(Error::unsupported("another combine", reason));
        }
        let step = self.return_step(underway, results, false, false)?;
        let announced = self.launch(underway.slot, self.new_stage(operation, underway), &[step], queue)?;
        books.share(underway.slot);
        Ok(books.pending(operation).begin(underway, announced))
    }

    /// Enqueues the receiving kernel of the call with this number.
    pub(super) fn receive_next(
        self: &Arc<Self>,
        operation: Operation,
        number: u64,
        step: &ExpertStep,
        queue: Target<'_>,
    ) -> Result<()> {
        let recorded = self.recorded(queue);
        let books = &mut self.slots.books(recorded.as_deref());
        self.settle(books, queue)?;
        let sent = books.pending(operation).turn(number)?;
        self.launch(sent.underway.slot, ExpertStage::Rest(sent.announced), &[*step], queue)?;
        books.pending(operation).end();
        // The handle of a dispatch continues to hold the slot.
        if operation == Operation::Combine {
            books.give_back(sent.underway.slot);
        }
        // Receives the dropped calls after this call. If this fails, the next call tries again.
        let _ = self.settle(books, queue);
        Ok(())
    }

    /// Marks the handle of a call as dropped, and receives and discards the dropped calls that are next.
    pub(super) fn drop_half(
        self: &Arc<Self>,
        operation: Operation,
        number: u64,
        recorded: Option<&RecordedExperts>,
        queue: Option<Target<'_>>,
    ) {
        // In a callback of a call nothing is enqueued. The next call of experts, or the end of the capture, receives the call.
        if self.over.refuse_within(operation).is_err() {
            match recorded {
                Some(recorded) => recorded.note_call(operation, number),
                None => self.slots.note_call(operation, number),
            }
            return;
        }
        let books = &mut self.slots.books(recorded);
        if books.pending(operation).drop_handle(number)
            && let Some(queue) = queue
        {
            // If this fails, the next call tries again.
            let _ = self.settle(books, queue);
        }
    }
}
