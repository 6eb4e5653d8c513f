//! Operations through the CPU: operands are copied out, an engine moves the bytes between all ranks of
//! a group, results are copied back. Slow and general: any operation, memory, type and size.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::across::Across;
use super::announcement::Announcement;
use super::call::Call;
use crate::error::{Error, Result};
use crate::group::Deadlines;
use crate::memory::{Ref, View};
use crate::stream::Stream;
use crate::types::{Dtype, Reduction};

/// This rank's connections to all others of a group.
pub(super) struct Mesh {
    /// None after a failure.
    wire: Mutex<Option<Box<dyn Across>>>,
    rank: usize,
    world_size: usize,
    deadlines: Deadlines,
    used: AtomicBool,
}

impl Mesh {
    pub(super) fn new(wire: Box<dyn Across>, rank: usize, world_size: usize, deadlines: Deadlines) -> Self {
        Self { wire: Mutex::new(Some(wire)), rank, world_size, deadlines, used: AtomicBool::new(false) }
    }

    /// Breaks the connections, so that nobody waits for this rank.
    pub(super) fn end(&self) {
        drop(self.wire.lock().take());
    }

    /// Compares a checked call with those of all other ranks. Blocks until all made one. All ranks fail
    /// together where they call differently.
    pub(super) fn agree(&self, dtype: Dtype, call: &Call<'_>, stream: &Stream) -> Result<()> {
        self.turn(dtype, stream, |turn| turn.agree(call))
    }

    /// Runs a call that all agreed on, after what `stream` does so far. Blocks until its result is there.
    pub(super) fn run(&self, dtype: Dtype, call: &Call<'_>, stream: &Stream) -> Result<()> {
        self.turn(dtype, stream, |turn| turn.run(call))
    }

    fn turn(&self, dtype: Dtype, stream: &Stream, body: impl FnOnce(&mut Turn<'_>) -> Result<()>) -> Result<()> {
        let limit =
            if self.used.swap(true, Ordering::Relaxed) { self.deadlines.steady } else { self.deadlines.first_use };
        let mut wire = self.wire.lock();
        let wire = wire.as_mut().ok_or(Error::Closed)?;
        let Self { rank, world_size, .. } = *self;
        let deadline = Instant::now() + limit;
        body(&mut Turn { wire: &mut **wire, rank, world_size, dtype, stream, deadline })
    }
}

/// One call.
struct Turn<'a> {
    wire: &'a mut dyn Across,
    rank: usize,
    world_size: usize,
    dtype: Dtype,
    stream: &'a Stream,
    deadline: Instant,
}

impl Turn<'_> {
    fn run(&mut self, call: &Call<'_>) -> Result<()> {
        let (rank, cut) = (self.rank, call.cut(self.world_size)?);
        match call {
            Call::AllReduce { options, input, output } => {
                let reduced = self.reduced(options.reduction, input)?;
                self.write(output, &reduced)
            }
            Call::Reduce { reduction, root, input, output } => {
                let reduced = self.reduced(*reduction, input)?;
                let output = output.as_ref().filter(|_| rank == *root);
                output.map_or(Ok(()), |output| self.write(output, &reduced))
            }
            Call::ReduceScatter { reduction, input, output, .. } => {
                let parts = regroup(&self.read(input)?, [cut.rows(), self.world_size]);
                let arrived = self.all_to_all(&parts)?;
                let reduced = self.fold(*reduction, &arrived);
                self.write(output, &reduced)
            }
            Call::AllGather { input, output, .. } => {
                let own = self.read(input)?;
                let parts = self.all_gather(&own)?;
                self.write(output, &regroup(&parts, [self.world_size, cut.rows()]))
            }
            Call::AllToAll { input, output } => {
                let parts = self.read(input)?;
                let arrived = self.all_to_all(&parts)?;
                self.write(output, &arrived)
            }
            Call::Broadcast { root, buffer } => {
                let whole = self.of_root(*root, Some(buffer), self.bytes(buffer).div_ceil(self.world_size))?;
                let share = self.all_to_all(&whole)?;
                let share = block(&share, self.world_size, *root).to_vec();
                let whole = self.all_gather(&share)?;
                if rank == *root { Ok(()) } else { self.write(buffer, &whole[..self.bytes(buffer)]) }
            }
            Call::Gather { root, input, output } => {
                let own = self.read(input)?;
                let all = self.all_gather(&own)?;
                let output = output.as_ref().filter(|_| rank == *root);
                output.map_or(Ok(()), |output| self.write(output, &all))
            }
            Call::Scatter { root, input, output } => {
                let parts = self.of_root(*root, input.as_ref(), self.bytes(output))?;
                let arrived = self.all_to_all(&parts)?;
                self.write(output, block(&arrived, self.world_size, *root))
            }
            Call::AllToAllV { .. } | Call::SendReceive { .. } => self.strips(call),
        }
    }

    /// Compares what the ranks call.
    fn agree(&mut self, call: &Call<'_>) -> Result<()> {
        let ours = Announcement::call(self.dtype, call);
        let all = self.all_gather(bytemuck::cast_slice(&ours.to_words()))?;
        let words: Vec<u64> = all.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let (all, _) = words.as_chunks::<{ Announcement::WORDS }>();
        let mut others = all.iter().map(|words| Announcement::from_words(*words)).enumerate();
        match others.find(|(_, theirs)| *theirs != ours) {
            None => Ok(()),
            Some((rank, theirs)) => Err(ours.mismatch(self.rank, rank, &theirs)),
        }
    }

    /// Every rank reduces a share of what all sent it; then all have all.
    fn reduced(&mut self, reduction: Reduction, input: &View<'_>) -> Result<Vec<u8>> {
        let mut own = self.read(input)?;
        let (bytes, share_elems) = (own.len(), input.elems.div_ceil(self.world_size));
        own.resize(share_elems * self.dtype.bytes() * self.world_size, 0);
        let arrived = self.all_to_all(&own)?;
        let share = self.fold(reduction, &arrived);
        let mut whole = self.all_gather(&share)?;
        whole.truncate(bytes);
        Ok(whole)
    }

    /// Strips of any length from rank to rank, told before they are sent.
    fn strips(&mut self, call: &Call<'_>) -> Result<()> {
        let (sends, receives) = self.lengths(call);
        let told = self.all_gather(bytemuck::cast_slice(&[sends.as_slice(), receives.as_slice()].concat()))?;
        let told: Vec<u64> = told.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let world = self.world_size;
        let sent = |from: usize, to: usize| told[from * 2 * world + to];
        let expected = |from: usize, to: usize| told[to * 2 * world + world + from];
        let pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to)));
        if let Some((from, to)) = pairs.clone().find(|(from, to)| sent(*from, *to) != expected(*from, *to)) {
            let what = format!("what rank {from} sends to rank {to}");
            let [ours, theirs] = [sent(from, to), expected(from, to)].map(|bytes| format!("{bytes} bytes"));
            return Err(Error::Mismatch { what, against: from, ours, rank: to, theirs });
        }
        let longest = pairs.map(|(from, to)| sent(from, to) as usize).max().unwrap_or(0);
        let mut parts = vec![0; longest * world];
        self.collect(call, &mut parts, longest)?;
        let arrived = self.all_to_all(&parts)?;
        self.distribute(call, &arrived, longest)
    }

    /// How many bytes go to each rank, and come from it.
    fn lengths(&self, call: &Call<'_>) -> (Vec<u64>, Vec<u64>) {
        let bytes = |counts: &[usize]| counts.iter().map(|count| (count * self.dtype.bytes()) as u64).collect();
        match call {
            Call::AllToAllV { send_counts, receive_counts, .. } => (bytes(send_counts), bytes(receive_counts)),
            Call::SendReceive { messages } => {
                let (mut sends, mut receives) = (vec![0; self.world_size], vec![0; self.world_size]);
                for message in *messages {
                    let lengths = if message.sends { &mut sends } else { &mut receives };
                    lengths[message.peer] = message.bytes() as u64;
                }
                (sends, receives)
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    /// Puts what goes to each rank at the start of its part.
    fn collect(&self, call: &Call<'_>, parts: &mut [u8], longest: usize) -> Result<()> {
        match call {
            Call::AllToAllV { input, send_counts, .. } => {
                let all = self.read(input)?;
                let mut rest = all.as_slice();
                for (rank, count) in send_counts.iter().enumerate() {
                    let (strip, after) = rest.split_at(count * self.dtype.bytes());
                    parts[rank * longest..][..strip.len()].copy_from_slice(strip);
                    rest = after;
                }
            }
            Call::SendReceive { messages } => {
                for message in messages.iter().filter(|message| message.sends) {
                    let strip = bytes_of(&message.view(), message.bytes()).read(self.stream)?;
                    parts[message.peer * longest..][..strip.len()].copy_from_slice(&strip);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Copies what came from each rank to where it belongs.
    fn distribute(&self, call: &Call<'_>, arrived: &[u8], longest: usize) -> Result<()> {
        match call {
            Call::AllToAllV { output, receive_counts, .. } => {
                let strip = |(rank, count): (usize, &usize)| &arrived[rank * longest..][..count * self.dtype.bytes()];
                let all: Vec<u8> = receive_counts.iter().enumerate().flat_map(strip).copied().collect();
                bytes_of(output, all.len()).write(&all, self.stream)
            }
            Call::SendReceive { messages } => {
                messages.iter().filter(|message| !message.sends).try_for_each(|message| {
                    let strip = &arrived[message.peer * longest..][..message.bytes()];
                    bytes_of(&message.view(), strip.len()).write(strip, self.stream)
                })
            }
            _ => Ok(()),
        }
    }

    /// The root's operand as a part of `part_bytes` for each rank, zeros behind it; zeros elsewhere.
    fn of_root(&self, root: usize, view: Option<&View<'_>>, part_bytes: usize) -> Result<Vec<u8>> {
        let mut parts = match view.filter(|_| self.rank == root) {
            Some(view) => self.read(view)?,
            None => Vec::new(),
        };
        parts.resize(part_bytes * self.world_size, 0);
        Ok(parts)
    }

    fn fold(&self, reduction: Reduction, blocks: &[u8]) -> Vec<u8> {
        let mut result = vec![0; blocks.len() / self.world_size];
        self.wire.reduce(self.dtype, reduction, blocks, &mut result);
        result
    }

    fn all_gather(&mut self, own: &[u8]) -> Result<Vec<u8>> {
        let mut all = vec![0; own.len() * self.world_size];
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

    fn bytes(&self, view: &View<'_>) -> usize {
        view.elems * self.dtype.bytes()
    }

    fn read(&self, view: &View<'_>) -> Result<Vec<u8>> {
        bytes_of(view, self.bytes(view)).read(self.stream)
    }

    fn write(&self, view: &View<'_>, bytes: &[u8]) -> Result<()> {
        bytes_of(view, self.bytes(view)).write(bytes, self.stream)
    }
}

/// The first bytes of an operand.
fn bytes_of<'a>(view: &View<'a>, bytes: usize) -> Ref<'a, u8> {
    Ref::new(view.address, bytes, view.device)
}

/// Block `number` of `count` equal ones.
fn block(blocks: &[u8], count: usize, number: usize) -> &[u8] {
    let bytes = blocks.len() / count;
    &blocks[number * bytes..(number + 1) * bytes]
}

/// Pieces in the order [outer][inner], in the order [inner][outer].
fn regroup(pieces: &[u8], [outer, inner]: [usize; 2]) -> Vec<u8> {
    let bytes = pieces.len() / (outer * inner).max(1);
    let order = (0..inner).flat_map(|within| (0..outer).map(move |piece| piece * inner + within));
    let mut regrouped = Vec::with_capacity(pieces.len());
    order.for_each(|piece| regrouped.extend_from_slice(&pieces[piece * bytes..(piece + 1) * bytes]));
    regrouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_change_places() {
        // Two rows of three parts become three parts of two rows, and back.
        assert_eq!(regroup(b"aAbBcCdDeEfF", [2, 3]), b"aAdDbBeEcCfF");
        assert_eq!(regroup(b"aAdDbBeEcCfF", [3, 2]), b"aAbBcCdDeEfF");
        assert_eq!(regroup(b"", [0, 3]), b"");
    }
}
