//! Dispatch and combine in packets, for small numbers of tokens.

use std::ffi::c_void;

use super::Inner;
use super::config::{ExpertConfig, Layout, Wire};
use super::form::ExpertForm;
use super::operands::{Combine, Received, Routing, TokenRows};
use super::steps::{Underway, address, counts_of, routing_of, rows_of};
use crate::collective::ExpertStep;
use crate::device::DeviceKind;
use crate::error::{Error, Operation, Result};
use crate::kernel::expert_block::ExpertBlock;
use crate::kernel::{PACKET_BYTES, args};
use crate::memory::DeviceBuffer;
use crate::op::Held;
use crate::stream::Stream;

/// Threads of a warp, on most devices.
const TEAM: usize = 32;
/// Alignment of all parts of a region.
const ALIGN: usize = 256;
/// Most expert replicas: a receiving block counts all of them in its shared memory.
const MOST_REPLICAS: usize = 2048;
/// Most tokens of all ranks: every receiving block visits all of them.
pub(super) const MOST_TOKENS: usize = 8192;
/// Most rows that a receiving block takes at once.
const MOST_ROWS_AT_ONCE: usize = 8;
/// Most words of routing headers that a receiving block keeps in its shared memory.
const MOST_HELD_WORDS: usize = 4096;
/// Least blocks of a kernel whose work other ranks decide.
const LEAST_BLOCKS: usize = 8;
/// Blocks among which packets are divided if there are fewer tokens than blocks: with one row for each token, and with one row
/// for each expert, whose blocks take longer. `LEAST_PACKETS`: the fewest packets for which a block is used.
const SHARED_BLOCKS: [usize; 2] = [128, 64];
const LEAST_PACKETS: usize = 128;
/// Kernels that each have their own state, by number.
const SEND: usize = 0;
const RECEIVE: usize = 1;
const RETURN: usize = 2;
const SUM: usize = 3;
const KERNELS: usize = 4;

/// The places of packets of experts in a region: a pure function of the settings, equal on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketForm {
    /// Buffers of each kind, which rotate.
    buffers: usize,
    dispatch: PacketArea,
    combine: PacketArea,
    /// Bytes of the region.
    pub(super) region_bytes: usize,
}

/// Packets of one direction. Each buffer contains control packets, followed by rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacketArea {
    control_at: usize,
    /// Control packets from one rank to another.
    control_packets: usize,
    rows_at: usize,
    rows_bytes: usize,
    buffer_bytes: usize,
}

impl PacketArea {
    fn new(start: usize, world: usize, control_packets: usize, row_packets: usize) -> Self {
        let rows_at = start + (world * control_packets * PACKET_BYTES).next_multiple_of(ALIGN);
        let rows_bytes = (row_packets * PACKET_BYTES).next_multiple_of(ALIGN);
        let buffer_bytes = rows_at + rows_bytes - start;
        Self { control_at: start, control_packets, rows_at, rows_bytes, buffer_bytes }
    }
}

impl PacketForm {
    /// The places of packets, which follow the routing headers of all slots.
    pub(super) fn new(config: &ExpertConfig, form: &ExpertForm, exact: bool) -> Self {
        let ExpertForm { world, max_tokens, top_k, .. } = *form;
        let (buffers, pairs) = (2 * config.in_flight, max_tokens * top_k);
        let dispatch_at = form.headers_at(config.in_flight);
        // A packet contains four replica numbers, or two weights. By source, a packet contains one pair.
        let pair_packets =
            if config.layout == Layout::BySource { pairs } else { pairs.div_ceil(4) + pairs.div_ceil(2) };
        let header_packets = size_of::<args::RoutingHeader>() / 8 + pair_packets;
        // Rows of arbitrary bytes use packets of which half is data.
        let per_row = form.row_bytes / if matches!(config.wire, Wire::Bytes(_)) { 8 } else { 16 };
        let dispatch = PacketArea::new(dispatch_at, world, header_packets, world * max_tokens * per_row);
        let parts = if exact { pairs } else { world * max_tokens };
        let combine_at = dispatch_at + buffers * dispatch.buffer_bytes;
        let combine = PacketArea::new(combine_at, world, 1, parts * (form.part_bytes / PACKET_BYTES));
        let region_bytes = combine_at + buffers * combine.buffer_bytes;
        Self { buffers, dispatch, combine, region_bytes }
    }

    /// Refuses experts that packets do not support.
    pub(super) fn check(form: &ExpertForm) -> Result<()> {
        let refuse = |what: &str, value: usize, most: usize| {
            let reason = format!("{what} is {value}, and at most {most} go by packets");
            Err(Error::unsupported("experts by packets", reason))
        };
        match form.world * form.max_tokens {
            tokens if tokens > MOST_TOKENS => refuse("the number of tokens of all ranks", tokens, MOST_TOKENS),
            _ if form.replicas > MOST_REPLICAS => refuse("the number of expert replicas", form.replicas, MOST_REPLICAS),
            _ => Ok(()),
        }
    }
}

/// The states of the kernels, in this rank's device memory.
pub(super) struct PacketStates(DeviceBuffer<u32>);

impl PacketStates {
    /// Marks all packets of rows in this rank's region as not arrived, and allocates the states. Blocks.
    pub(super) fn new(region: *mut u8, form: &PacketForm, stream: &Stream) -> Result<Self> {
        if stream.device().kind() != DeviceKind::Host {
            for area in [form.dispatch, form.combine] {
                for buffer in 0..form.buffers {
                    let to = region.wrapping_add(area.rows_at + buffer * area.buffer_bytes);
                    // SAFETY: the rows of a buffer lie in this rank's part of the region (liveness, bounds).
                    #[allow(unsafe_code)]
                    stream.enqueue("fill", |raw| unsafe { raw.fill(to, 0xFF, area.rows_bytes) })?;
                }
            }
        }
        let words = KERNELS * args::kMaxBlocks as usize * size_of::<args::BlockState>() / 4;
        let states = DeviceBuffer::from_slice(&vec![0; words], stream)?;
        stream.synchronize()?;
        Ok(Self(states))
    }

    /// The states of blocks of a kernel.
    fn of(&self, kernel: usize) -> *mut args::BlockState {
        self.0.as_raw().cast::<args::BlockState>().wrapping_add(kernel * args::kMaxBlocks as usize)
    }
}

impl Inner {
    /// The packets of an operation, and the states of blocks of a kernel.
    fn packet_args(
        &self,
        kernel: usize,
        operation: Operation,
    ) -> Result<(args::ExpertPacketArea, *mut args::BlockState)> {
        let (form, states) = self.packets("an exchange of packets")?;
        let area = if operation == Operation::Dispatch { form.dispatch } else { form.combine };
        let packets = args::ExpertPacketArea {
            buffer_bytes: area.buffer_bytes as u64,
            control_offset: area.control_at as u64,
            data_offset: area.rows_at as u64,
            buffers: form.buffers as u32,
            control_packets: area.control_packets as u32,
            ..args::ExpertPacketArea::NONE
        };
        Ok((packets, states.of(kernel)))
    }

    /// A kernel of packets, and the size of its work.
    fn packed(&self, block: ExpertBlock, work: [usize; 2]) -> ExpertStep {
        ExpertStep { block, work, most_blocks: self.config.blocks }
    }

    /// For a kernel that works on parts of `tokens` tokens: the number of blocks that share a token, and the size of the work. If
    /// there are fewer tokens than blocks, several blocks share a token.
    pub(super) fn shared(&self, tokens: usize) -> (u32, [usize; 2]) {
        let packets = self.form.part_bytes / PACKET_BYTES;
        let blocks = SHARED_BLOCKS[usize::from(!self.config.layout.is_by_token())];
        let sharers = (blocks / tokens).clamp(1, packets.div_ceil(LEAST_PACKETS));
        // All threads of a block have the same number of packets.
        let packets = packets.div_ceil(sharers);
        let items = packets.div_ceil(packets.div_ceil(args::kMostAheadThreads as usize));
        (sharers as u32, [tokens * sharers, items])
    }

    /// The kernel that sends routing headers and rows.
    pub(super) fn send_step(
        &self,
        underway: Underway,
        routing: &Routing<'_>,
        sent: TokenRows<'_>,
    ) -> Result<ExpertStep> {
        let (packets, calls) = self.packet_args(SEND, Operation::Dispatch)?;
        let send = args::SendArgs {
            base: self.row_args(underway, calls),
            rows: rows_of(sent),
            routing: routing_of(routing),
            packets,
        };
        // A block sends a run of header pairs, one pair for each thread. By source, the blocks of tokens send the pairs.
        let items = self.form.row_bytes / PACKET_BYTES;
        let pairs = if self.config.layout == Layout::BySource { 0 } else { underway.tokens * self.form.top_k };
        let runs = pairs.div_ceil(items.next_multiple_of(TEAM)).max(1);
        Ok(self.packed(ExpertBlock::Send(send), [underway.tokens + runs, items]))
    }

    /// The kernel that receives rows, and discards them if `into` is `None`. `follows`: whether the kernel is launched
    /// directly after [`send_step`](Self::send_step).
    pub(super) fn receive_step(
        &self,
        underway: Underway,
        into: Option<&Received<'_>>,
        follows: bool,
    ) -> Result<ExpertStep> {
        let form = &self.form;
        // The host does not know the tokens of other ranks, so it assumes the number of this rank for all of them.
        let expected = (underway.tokens * form.world).max(LEAST_BLOCKS);
        let by_source = self.config.layout == Layout::BySource;
        let most_at_once = if by_source { 1 } else { MOST_ROWS_AT_ONCE };
        let at_once = expected.div_ceil(args::kMaxBlocks as usize / 2).min(most_at_once);
        let (packets, calls) = self.packet_args(RECEIVE, Operation::Dispatch)?;
        let receive = args::ReceiveArgs {
            base: self.row_args(underway, calls),
            rows_at_once: at_once as u32,
            follows: follows.into(),
            holds_replicas: (form.held_words() <= MOST_HELD_WORDS).into(),
            reserved: 0,
            packets,
            counts: counts_of(into),
            into: self.outputs(into),
        };
        // Control packets get their own warps: in a warp with rows they would wait for packets of rows, one after the other.
        let control = at_once * form.top_k + if by_source { form.world } else { 0 };
        let items = (form.row_bytes / PACKET_BYTES * at_once).next_multiple_of(TEAM) + control;
        Ok(self.packed(ExpertBlock::Receive(receive), [expected.div_ceil(at_once), items]))
    }

    /// The kernel that sends this rank's results back. `whole`: whether the sums follow in the same call, so that rows of this
    /// rank's own tokens are not sent.
    pub(super) fn return_step(
        &self,
        underway: Underway,
        results: &Held,
        unweighted: bool,
        whole: bool,
    ) -> Result<ExpertStep> {
        let own_stays = whole && self.config.layout.is_by_token();
        let ranks = self.form.world - usize::from(own_stays);
        let (sharers, work) = self.shared((underway.tokens * ranks).max(LEAST_BLOCKS));
        let (packets, calls) = self.packet_args(RETURN, Operation::Combine)?;
        let base = args::PartArgs {
            results: address::<c_void>(Some(results)).cast_const(),
            sharers,
            task: args::kCombineSend,
            ..self.part_args(underway, calls, unweighted)
        };
        let back = args::CombinePacketArgs { base, own_stays: own_stays.into(), follows: 0, packets };
        Ok(self.packed(ExpertBlock::CombinePackets(back), work))
    }

    /// The kernel that sums the results of this rank's tokens. Without `output`, the sums go to scratch memory. `results`: this
    /// rank's results, if the kernel is launched directly after [`return_step`](Self::return_step).
    pub(super) fn sum_step(
        &self,
        underway: Underway,
        output: Option<&Held>,
        options: &Combine<'_>,
        results: Option<&Held>,
    ) -> Result<ExpertStep> {
        let follows = results.is_some();
        let own_stays = follows && self.config.layout.is_by_token();
        let (sharers, work) = self.shared(underway.tokens.max(1));
        let (packets, calls) = self.packet_args(SUM, Operation::Combine)?;
        let base = args::PartArgs {
            results: address::<c_void>(results).cast_const(),
            output: output.map_or(self.sums.as_raw().cast(), |output| address(Some(output))),
            add: address::<c_void>(options.add.as_ref()).cast_const(),
            sharers,
            task: args::kCombineReceive,
            ..self.part_args(underway, calls, options.unweighted)
        };
        let sum = args::CombinePacketArgs { base, own_stays: own_stays.into(), follows: follows.into(), packets };
        Ok(self.packed(ExpertBlock::CombinePackets(sum), work))
    }
}
