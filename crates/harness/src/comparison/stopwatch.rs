//! Times work of all ranks. The ranks meet on their devices right before the work.

use std::time::Instant;

use symmetra::{DeviceKind, Event, Graph, Stream, SymmetricBuffer};

use super::lockstep::Lockstep;

/// The times of one trial on this rank, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Time from the last meeting to the end of the work, on the device.
    pub device_us: f64,
    /// Time to enqueue the work, on the host.
    pub host_us: f64,
}

/// Starts and stops on one stream.
pub struct Stopwatch<'a> {
    ranks: &'a dyn Lockstep,
    stream: &'a Stream,
    /// Barriers. The first barrier waits for the slowest host.
    lead_in: Graph<'a>,
    start: Event,
    end: Event,
}

impl<'a> Stopwatch<'a> {
    /// For graphs: after the ranks met, the devices wait until every host has enqueued the timed work, so that no rank
    /// is charged for a late launch of another rank. On GPUs these are barriers of about 40 us. `meeting` lends its
    /// signals.
    pub fn new(
        ranks: &'a dyn Lockstep,
        meeting: &'a SymmetricBuffer<f32>,
        stream: &'a Stream,
    ) -> symmetra::Result<Self> {
        let barriers = if stream.device().kind() == DeviceKind::Host { 1 } else { 16 };
        Self::after(barriers, ranks, meeting, stream)
    }

    /// For calls, with one barrier: the time starts where the ranks meet, so it includes the time of the hosts.
    pub fn after(
        barriers: usize,
        ranks: &'a dyn Lockstep,
        meeting: &'a SymmetricBuffer<f32>,
        stream: &'a Stream,
    ) -> symmetra::Result<Self> {
        let device = stream.device();
        let signals = meeting.signals();
        let lead_in = stream.capture(|capture| (0..barriers).try_for_each(|_| signals.barrier(0, capture)))?;
        Ok(Self { ranks, stream, lead_in, start: Event::new(device)?, end: Event::new(device)? })
    }

    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Blocks until all is done.
    pub fn time(&self, enqueue: impl FnOnce() -> symmetra::Result<()>) -> symmetra::Result<Time> {
        self.ranks.meet()?;
        self.lead_in.launch(self.stream)?;
        self.stream.record(&self.start)?;
        let began = Instant::now();
        enqueue()?;
        let host_us = began.elapsed().as_secs_f64() * 1e6;
        self.stream.record(&self.end)?;
        self.ranks.synchronize(self.stream)?;
        Ok(Time { device_us: self.end.elapsed_us(&self.start)?, host_us })
    }
}
