//! The argument block of any expert kernel, and the launch limits of the kernel.

use super::args::{self, Block, ExpertArgs, Kind, PartArgs, ReceiveArgs, RoutingHeader};

/// The argument block of an expert kernel.
#[derive(Clone, Copy)]
pub(crate) enum ExpertBlock {
    Route(args::RouteArgs),
    Move(args::MoveArgs),
    Push(args::PushArgs),
    Send(args::SendArgs),
    Receive(ReceiveArgs),
    Combine(args::CombineArgs),
    CombineDirect(args::CombineDirectArgs),
    CombinePackets(args::CombinePacketArgs),
}

impl ExpertBlock {
    /// The fields of all kernels.
    fn common(&mut self) -> &mut ExpertArgs {
        match self {
            Self::Route(block) => &mut block.base,
            Self::Move(block) => &mut block.base.base,
            Self::Push(block) => &mut block.base.base,
            Self::Send(block) => &mut block.base.base,
            Self::Receive(block) => &mut block.base.base,
            Self::Combine(block) => &mut block.base.base,
            Self::CombineDirect(block) => &mut block.base.base,
            Self::CombinePackets(block) => &mut block.base.base,
        }
    }

    /// The regions of all ranks; `None` for a kernel that runs on one rank alone.
    fn regions(&mut self) -> Option<&mut [*mut u8; args::kMaxWorld as usize]> {
        match self {
            Self::Push(block) => Some(&mut block.peers.regions),
            Self::Send(block) => Some(&mut block.packets.regions),
            Self::Receive(block) => Some(&mut block.packets.regions),
            Self::CombineDirect(block) => Some(&mut block.peers.regions),
            Self::CombinePackets(block) => Some(&mut block.packets.regions),
            Self::Route(_) | Self::Move(_) | Self::Combine(_) => None,
        }
    }

    /// The block for a launch: with its wait, and the regions of ranks that `addresses` lists in order.
    pub(crate) fn ready(mut self, wait: args::Wait, addresses: &[*mut u8]) -> Self {
        self.common().wait = wait;
        if let Some(regions) = self.regions() {
            regions[..addresses.len()].copy_from_slice(addresses);
        }
        self
    }

    /// The kind of launch, and the address of the block.
    pub(crate) fn raw(&self) -> (Kind, *const u8) {
        fn of<T: Block>(block: &T) -> (Kind, *const u8) {
            (T::KIND, std::ptr::from_ref(block).cast())
        }
        match self {
            Self::Route(block) => of(block),
            Self::Move(block) => of(block),
            Self::Push(block) => of(block),
            Self::Send(block) => of(block),
            Self::Receive(block) => of(block),
            Self::Combine(block) => of(block),
            Self::CombineDirect(block) => of(block),
            Self::CombinePackets(block) => of(block),
        }
    }

    /// The parts of a combine; `None` for a kernel of a dispatch.
    pub(crate) fn parts(&self) -> Option<&PartArgs> {
        match self {
            Self::Combine(block) => Some(&block.base),
            Self::CombineDirect(block) => Some(&block.base),
            Self::CombinePackets(block) => Some(&block.base),
            _ => None,
        }
    }

    /// Offsets from the region of a rank to operands that peers access: rows, then scales, ids and weights. `None` if rows go
    /// through the region.
    pub(crate) fn placed(&self) -> Option<[u64; 4]> {
        let offsets = match self {
            Self::Push(block) => {
                let args::PlacedRows { rows, scales, ids, weights } = block.placed;
                [rows, scales, ids, weights]
            }
            Self::CombineDirect(block) => [block.results_offset, args::kStaged, args::kStaged, args::kStaged],
            _ => return None,
        };
        (offsets[0] != args::kStaged).then_some(offsets)
    }

    /// Most threads of a block of the kernel.
    pub(super) fn most_threads(&self) -> u32 {
        match self {
            Self::Combine(block) if block.base.task == args::kCombineReceive => 1024,
            Self::Receive(_) | Self::Combine(_) | Self::CombineDirect(_) | Self::CombinePackets(_) => {
                args::kMostAheadThreads
            }
            _ => 1024,
        }
    }

    /// Words of a block's shared memory, in addition to those of scans: `expert_words` of kernels/experts/geometry.hpp.
    pub(super) fn words(mut self) -> u32 {
        let common = *self.common();
        let usual = args::kExpertWords + common.hidden.div_ceil(args::kCodeGroup);
        match &self {
            Self::Send(_) => usual + args::kMostStagedExperts,
            Self::Receive(block) if common.layout != args::kRowsBySource => receive_words(block),
            _ => usual,
        }
    }
}

/// Words of a receiving block: routing headers, counts and lists.
fn receive_words(block: &ReceiveArgs) -> u32 {
    let (common, rows) = (&block.base.base, block.rows_at_once);
    let pairs = rows * common.top_k;
    let lists = rows * common.top_k.next_multiple_of(4) + pairs.next_multiple_of(4) + pairs;
    let headers = size_of::<RoutingHeader>() as u32 / 4 * common.world;
    let held = match block.holds_replicas {
        0 => 0,
        _ => common.world * 2 * (common.max_tokens * common.top_k).div_ceil(4),
    };
    headers + common.replicas + 2 * common.local + 1 + common.world + lists + held
}
