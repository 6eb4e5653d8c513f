//! Opens experts on a group: checks the settings, and makes the region, the slots and the state of kernels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::choice::{MethodChoice, MethodFacts, chosen, is_exact};
use super::config::{ExpertConfig, Method};
use super::form::{ExpertForm, table};
use super::packets::{PacketForm, PacketStates};
use super::slots::{ExpertRegion, ExpertSlot, ExpertSlots};
use super::survivors::SurvivorMeeting;
use super::{Experts, Inner};
use crate::backend::{GroupCalls, ProcessGroup};
use crate::error::{Error, Result};
use crate::kernel::args;
use crate::memory::DeviceBuffer;
use crate::stream::{Stream, StreamOrder};

/// Source of numbers of experts, unique in the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl ProcessGroup {
    /// Opens experts on the ranks of this group, over any backend. If symmetra kernels serve the group, the region is a part of
    /// the symmetric heap, whose size [`expert_bytes`](super::expert_bytes) computes. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank if settings differ; [`Error::InvalidArgument`] for a setting outside its limits;
    /// [`Error::Unsupported`] for [`Method::Packets`] with more than 8192 tokens of all ranks or 2048 expert replicas, and for
    /// [`Method::Direct`] and [`Method::Packets`] if symmetra kernels do not serve the group; [`Error::OutOfMemory`] if the
    /// heap has no room for the region, or the device for the rest.
    pub fn experts(&self, config: ExpertConfig) -> Result<Experts> {
        Experts::open(self.calls.share(), config)
    }
}

impl Experts {
    pub(super) fn open(over: Arc<dyn GroupCalls>, config: ExpertConfig) -> Result<Self> {
        let world = over.world_size();
        over.agree("the settings of experts", &[("", &config)])?;
        // All ranks have equal settings, so all ranks fail in the same way.
        config.validate(world)?;
        let lists = config.placement.lists(config.experts, world)?;
        let form = ExpertForm::new(&config, over.rank(), &lists)?;
        let device = over.device().clone();
        let group = over.local().group().config();
        let determinism = config.determinism.unwrap_or(group.determinism);
        let facts = MethodFacts { kind: device.kind(), own_kernels: over.own().is_some(), group };
        let (MethodChoice { method, reason }, exact) = (chosen(facts, &config, &form)?, is_exact(group, &config));
        let packets = (method == Method::Packets).then(|| PacketForm::new(&config, &form, exact));
        let meeting = SurvivorMeeting::new(&*over)?;
        let bytes = |packets: &PacketForm| packets.region_bytes;
        let region = packets.as_ref().map_or_else(|| form.region_bytes(config.in_flight, method), bytes);
        let region = ExpertRegion::new(&*over, region)?;
        let own = || -> Result<_> {
            let side = Stream::new(&device)?;
            let table = DeviceBuffer::from_slice(&table(&lists, form.rank, config.experts), &side)?;
            let memory = (0..config.in_flight).map(|_| ExpertSlot::new(&*over, &form)).collect::<Result<Vec<_>>>()?;
            // The last entry, after the entries of blocks, counts the units that blocks have taken.
            let words = (args::kMaxBlocks as usize + 1) * size_of::<args::BlockState>() / 4;
            let barrier = DeviceBuffer::from_slice(&vec![0; words], &side)?;
            let packets = packets.map(|form| Ok::<_, Error>((form, PacketStates::new(region.at(0), &form, &side)?)));
            let sums = if exact || packets.is_some() { form.max_tokens * form.hidden.next_multiple_of(8) } else { 0 };
            let memory = (memory, barrier, DeviceBuffer::new(&device, sums)?);
            side.synchronize()?;
            Ok((side, table, packets.transpose()?, memory, StreamOrder::new(&device)?))
        };
        // No rank sends before the packets of all ranks are marked as not arrived.
        let (side, table, packets, (memory, barrier, sums), lane) = over.together("open experts", own())?;
        let (id, slots) = (NEXT_ID.fetch_add(1, Ordering::Relaxed), ExpertSlots::new(config.in_flight));
        let (lists, lane) = (Mutex::new(lists), Mutex::new(lane));
        let inner = Inner {
            id,
            over,
            config,
            form,
            determinism,
            method,
            reason,
            lists,
            table,
            region,
            packets,
            memory,
            barrier,
            sums,
            slots,
            lane,
            side,
            meeting,
        };
        Ok(Self(Arc::new(inner)))
    }
}
