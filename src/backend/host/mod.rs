//! The host backend: copies operands to the CPU, moves bytes between all ranks by an engine, and copies results back.
//! Slow but general: any operation, memory, type and size.

mod announcement;
pub(crate) mod failure_cause;
pub(crate) mod final_exchange;
pub(crate) mod late;
pub(crate) mod two_level;
pub(crate) mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::group::Deadlines;
use crate::memory::{Ref, View};
use crate::op::{Call, CheckedShape, Host, Numbers, Strip, Strips};
use crate::stream::Stream;

use announcement::Announcement;
use wire::Across;

/// This rank's connections to all other ranks of a group.
pub(crate) struct HostBackend {
    /// `None` after a failure.
    wire: Mutex<Option<Box<dyn Across>>>,
    deadlines: Deadlines,
    used: AtomicBool,
}

impl HostBackend {
    pub(crate) fn new(wire: Box<dyn Across>, deadlines: Deadlines) -> Self {
        Self { wire: Mutex::new(Some(wire)), deadlines, used: AtomicBool::new(false) }
    }

    /// Breaks the connections, so that peers stop waiting for this rank.
    pub(crate) fn end(&self) {
        drop(self.wire.lock().take());
    }

    /// Compares a checked call with those of all other ranks. All ranks fail together if calls differ. Blocks until all
    /// ranks have called.
    pub(crate) fn agree(&self, call: &Call<'_>, shape: &CheckedShape, stream: &Stream) -> Result<()> {
        self.turn(call, shape, stream, |turn| turn.agree())
    }

    /// Runs a compared call after earlier work of `stream`. Blocks until the result is complete.
    pub(crate) fn run(&self, call: &Call<'_>, shape: &CheckedShape, stream: &Stream) -> Result<()> {
        self.turn(call, shape, stream, |turn| turn.run())
    }

    fn turn(
        &self,
        call: &Call<'_>,
        shape: &CheckedShape,
        stream: &Stream,
        body: impl FnOnce(&mut HostCall<'_>) -> Result<()>,
    ) -> Result<()> {
        let limit =
            if self.used.swap(true, Ordering::Relaxed) { self.deadlines.steady } else { self.deadlines.first_use };
        let mut wire = self.wire.lock();
        let wire = wire.as_mut().ok_or(Error::Closed)?;
        let deadline = Instant::now() + limit;
        let done = body(&mut HostCall { wire: &mut **wire, call, shape, stream, deadline });
        done.map_err(|error| late::in_group(error, limit, |rank| (rank, String::new())))
    }
}

/// One call.
struct HostCall<'a> {
    wire: &'a mut dyn Across,
    call: &'a Call<'a>,
    shape: &'a CheckedShape,
    stream: &'a Stream,
    deadline: Instant,
}

impl HostCall<'_> {
    fn run(&mut self) -> Result<()> {
        let (call, shape) = (self.call, self.shape);
        match call.op.host {
            Host::Strips => {
                let strips = call.op.strips(call, shape);
                let arrived = self.exchange(&strips)?;
                self.distribute(&strips, &arrived)
            }
            Host::ReducedStrips => {
                let strips = call.op.strips(call, shape);
                let parts = self.collect(&strips, shape.bytes() as usize)?;
                let arrived = self.all_to_all(&parts)?;
                let reduced = self.fold(&arrived)?;
                self.write(call.output.as_ref(), &reduced[..strips.into[shape.rank].bytes as usize])
            }
            Host::Reduced => {
                let reduced = self.reduced()?;
                let has_output = !call.op.output.at_root || shape.rank == shape.parameter;
                self.write(call.output.as_ref().filter(|_| has_output), &reduced)
            }
            Host::Broadcast => {
                let bytes = shape.bytes() as usize;
                let is_root = shape.rank == shape.parameter;
                let mut shares = match &call.output {
                    Some(buffer) if is_root => self.read(buffer)?,
                    _ => Vec::new(),
                };
                shares.resize(bytes.div_ceil(shape.world) * shape.world, 0);
                let arrived = self.all_to_all(&shares)?;
                let share = block(&arrived, shape.world, shape.parameter).to_vec();
                let whole = self.all_gather(&share)?;
                self.write(call.output.as_ref().filter(|_| !is_root), &whole[..bytes])
            }
        }
    }

    fn agree(&mut self) -> Result<()> {
        let ours = Announcement::call(self.call);
        let all = self.all_gather(bytemuck::cast_slice(&ours.to_words()))?;
        let words: Vec<u64> = all.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let (all, _) = words.as_chunks::<{ Announcement::WORDS }>();
        let mut others = all.iter().map(|words| Announcement::from_words(*words)).enumerate();
        match others.find(|(_, theirs)| *theirs != ours) {
            None => Ok(()),
            Some((rank, theirs)) => Err(ours.mismatch(self.shape.rank, rank, &theirs)),
        }
    }

    /// Every rank reduces a share of all inputs; then the shares are gathered.
    fn reduced(&mut self) -> Result<Vec<u8>> {
        let mut own = self.call.input.as_ref().map_or(Ok(Vec::new()), |input| self.read(input))?;
        let (bytes, dtype_bytes) = (own.len(), self.shape.dtype.bytes());
        let share_elems = (bytes / dtype_bytes).div_ceil(self.shape.world);
        own.resize(share_elems * dtype_bytes * self.shape.world, 0);
        let arrived = self.all_to_all(&own)?;
        let share = self.fold(&arrived)?;
        let mut whole = self.all_gather(&share)?;
        whole.truncate(bytes);
        Ok(whole)
    }

    /// The bytes from each rank, at the start of its block. A block is as long as the longest chunk of any pair of
    /// ranks.
    fn exchange(&mut self, strips: &Strips) -> Result<Vec<u8>> {
        let longest = match self.call.op.knows_sizes() {
            true => self.shape.bytes() as usize,
            false => self.exchange_lengths(strips)?,
        };
        let parts = self.collect(strips, longest)?;
        self.all_to_all(&parts)
    }

    /// The longest chunk of any pair of ranks, if each rank knows only its own chunks.
    fn exchange_lengths(&mut self, strips: &Strips) -> Result<usize> {
        let world = self.shape.world;
        let lengths = |side: &[Strip]| side[..world].iter().map(|strip| strip.bytes).collect::<Vec<_>>();
        let own = [lengths(&strips.from), lengths(&strips.into)].concat();
        let told = self.all_gather(bytemuck::cast_slice(&own))?;
        let told: Vec<u64> = told.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let sent = |from: usize, to: usize| told[from * 2 * world + to];
        let expected = |from: usize, to: usize| told[to * 2 * world + world + from];
        let pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to)));
        if let Some((from, to)) = pairs.clone().find(|(from, to)| sent(*from, *to) != expected(*from, *to)) {
            let what = format!("what rank {from} sends to rank {to}");
            let [ours, theirs] = [sent(from, to), expected(from, to)].map(|bytes| format!("{bytes} bytes"));
            return Err(Error::Mismatch { what, against: from, ours, rank: to, theirs });
        }
        Ok(pairs.map(|(from, to)| sent(from, to) as usize).max().unwrap_or(0))
    }

    /// Whether chunks that are adjacent in memory belong to one operand. Messages have separate operands, and a copy
    /// must not cross from one allocation into the next.
    fn joins_adjacent(&self) -> bool {
        !matches!(self.call.numbers, Numbers::Messages(_))
    }

    /// The bytes for each rank, at the start of a block of `block_bytes`.
    fn collect(&self, strips: &Strips, block_bytes: usize) -> Result<Vec<u8>> {
        let mut parts = vec![0; block_bytes * self.shape.world];
        let sends = (0..self.shape.world).filter(|to| strips.from[*to].bytes > 0);
        let mut pieces: Vec<_> = sends
            .flat_map(|to| {
                let rows = rows(strips.from[to], strips.rows.row_bytes, strips.rows.from_pitch_bytes);
                rows.enumerate().map(move |(row, piece)| (piece, to * block_bytes + row * piece.1))
            })
            .collect();
        pieces.sort_unstable_by_key(|((address, _), _)| *address);
        // Chunks of one operand are read together, and a chunk for several ranks is read once.
        let mut start = 0;
        while start < pieces.len() {
            let base = pieces[start].0.0;
            let mut end = base;
            let run = pieces[start..].iter().take_while(|((address, bytes), _)| {
                let joins = end == base || *address < end || (*address == end && self.joins_adjacent());
                end = if joins { end.max(address + bytes) } else { end };
                joins
            });
            let count = run.count();
            let memory = self.bytes_at(base, end - base).read(self.stream)?;
            for ((address, bytes), to) in &pieces[start..start + count] {
                parts[*to..to + bytes].copy_from_slice(&memory[address - base..][..*bytes]);
            }
            start += count;
        }
        Ok(parts)
    }

    /// Copies the bytes from each rank to their places. Pieces that are adjacent in memory take one copy.
    fn distribute(&self, strips: &Strips, arrived: &[u8]) -> Result<()> {
        let block_bytes = arrived.len() / self.shape.world;
        let mut pieces: Vec<_> = (0..self.shape.world)
            .filter(|from| strips.into[*from].bytes > 0)
            .flat_map(|from| {
                let rows = rows(strips.into[from], strips.rows.row_bytes, strips.rows.into_pitch_bytes);
                rows.enumerate().map(move |(row, piece)| (piece, from * block_bytes + row * piece.1))
            })
            .collect();
        pieces.sort_unstable_by_key(|((address, _), _)| *address);
        let joins = self.joins_adjacent();
        for run in pieces.chunk_by(|((address, bytes), _), ((next, _), _)| joins && address + bytes == *next) {
            let mut bytes = Vec::with_capacity(run.iter().map(|((_, bytes), _)| bytes).sum());
            run.iter().for_each(|((_, piece), from)| bytes.extend_from_slice(&arrived[*from..from + piece]));
            self.bytes_at(run[0].0.0, bytes.len()).write(&bytes, self.stream)?;
        }
        Ok(())
    }

    fn fold(&self, blocks: &[u8]) -> Result<Vec<u8>> {
        let mut result = vec![0; blocks.len() / self.shape.world];
        self.wire.reduce(self.shape.dtype, self.call.options.reduction, blocks, &mut result)?;
        Ok(result)
    }

    fn all_gather(&mut self, own: &[u8]) -> Result<Vec<u8>> {
        let mut all = vec![0; own.len() * self.shape.world];
        if !own.is_empty() {
            self.wire.all_gather(own, &mut all, self.deadline)?;
        }
        Ok(all)
    }

    fn all_to_all(&mut self, parts: &[u8]) -> Result<Vec<u8>> {
        let mut arrived = vec![0; parts.len()];
        if !parts.is_empty() {
            self.wire.all_to_all(parts, &mut arrived, self.deadline)?;
        }
        Ok(arrived)
    }

    fn read(&self, view: &View<'_>) -> Result<Vec<u8>> {
        Ref::<u8>::new(view.address, view.elems * self.shape.dtype.bytes(), view.device).read(self.stream)
    }

    fn write(&self, view: Option<&View<'_>>, bytes: &[u8]) -> Result<()> {
        let Some(view) = view else { return Ok(()) };
        // The copy refuses a length that differs from that of the operand.
        Ref::<u8>::new(view.address, view.elems * self.shape.dtype.bytes(), view.device).write(bytes, self.stream)
    }

    /// Memory of this rank's device, in which the check of the call found operands.
    fn bytes_at(&self, address: usize, bytes: usize) -> Ref<'_, u8> {
        Ref::new(address as *mut u8, bytes, self.stream.device())
    }
}

/// Block `number` of `count` equal blocks.
fn block(blocks: &[u8], count: usize, number: usize) -> &[u8] {
    let bytes = blocks.len() / count;
    &blocks[number * bytes..(number + 1) * bytes]
}

/// Address and length of every row of a chunk; a chunk without rows is one row.
fn rows(strip: Strip, row_bytes: u64, pitch_bytes: u64) -> impl Iterator<Item = (usize, usize)> {
    let (row_bytes, pitch_bytes) = if row_bytes == 0 { (strip.bytes, 0) } else { (row_bytes, pitch_bytes) };
    let count = strip.bytes.checked_div(row_bytes).unwrap_or(0);
    (0..count).map(move |row| (strip.address as usize + (row * pitch_bytes) as usize, row_bytes as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_strip_lie_a_pitch_apart() {
        let strip = Strip { address: 64 as *mut u8, bytes: 12 };
        assert_eq!(rows(strip, 0, 0).collect::<Vec<_>>(), [(64, 12)]);
        assert_eq!(rows(strip, 4, 20).collect::<Vec<_>>(), [(64, 4), (84, 4), (104, 4)]);
        assert_eq!(rows(Strip::NONE, 0, 0).count(), 0);
    }
}
