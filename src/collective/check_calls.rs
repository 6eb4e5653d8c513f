//! What all ranks tell each other by a kernel: which call is about to run, or, when they open, known bits.
#![allow(unsafe_code)]

use super::{Inner, shape_of};
use crate::error::{Error, Result};
use crate::group::{Call, Finding};
use crate::kernel::{args, geometry};
use crate::memory::Scratch;
use crate::stream::Enqueue;

/// Bits of every sort, behind the operation that a rank waits in which does not get them.
const HERE: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3200 | args::kOpAgree as u64];

impl Inner {
    /// Compares a call with those of all ranks, on the device, before it runs.
    pub(super) fn agree(&self, call: Call, fresh: bool, queue: &impl Enqueue) -> Result<()> {
        let wait = self.arena.wait(fresh);
        self.tell([call.bytes, call.descriptor], &self.arena.layout().agree, wait, queue)
    }

    /// Lets every rank reach every other as operations do, and see what arrives: a driver may report access that
    /// does not work. Collective; blocks, for at most `deadlines.open`.
    pub(super) fn probe_peers(&self) -> Result<()> {
        self.probe_peers_with(HERE)
    }

    /// The same for a rank that says this.
    fn probe_peers_with(&self, ours: [u64; 2]) -> Result<()> {
        if self.group.world_size() == 1 {
            return Ok(());
        }
        let seen = self.see_peers(ours);
        self.group.exchange_unchecked(|mesh, deadline| mesh.agree("reach the memory of the others", seen, deadline))
    }

    fn see_peers(&self, ours: [u64; 2]) -> Result<()> {
        let stream = self.arena.stream();
        // Those who see all wait for the word of those who do not.
        let wait = self.arena.wait_for(self.group.config().deadlines.open / 2);
        self.tell(ours, &self.arena.layout().meet, wait, &stream)?;
        stream.synchronize()?;
        let (peer, detail) = match self.group.own_finding() {
            // A rank that was stopped leaves the word to the one that stopped it.
            None => return Ok(()),
            Some(Finding::Late(peer)) => (peer, "does not arrive"),
            Some(Finding::Different(peer)) => (peer, "arrives with other bits"),
        };
        Err(Error::unsupported(
            format!("access of rank {peer} to the memory of rank {}", self.group.rank()),
            format!("what it stores there {detail} (`symmetra doctor` probes every pair of devices)"),
        ))
    }

    fn tell(&self, ours: [u64; 2], scratch: &Scratch, wait: args::Wait, queue: &impl Enqueue) -> Result<()> {
        let args = args::AgreeArgs {
            peers: self.arena.everywhere(scratch.region.offset),
            state: self.arena.own(scratch.state.offset).cast(),
            ours,
            wait,
            rank: self.group.rank() as u32,
            world: self.group.world_size() as u32,
        };
        let launch = geometry::single(shape_of(self.group.device()), 2 * args.world);
        // SAFETY: scratch lies in arenas that live until the device is idle (liveness, bounds); the lane, or
        // that there is no other call yet, orders its use (exclusion).
        queue.enqueue("launch an agreement", |raw| unsafe { raw.launch(&args, &launch.geometry) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::bootstrap::Threads;
    use crate::collective::Communicator;
    use crate::device::{Device, Memory};
    use crate::group::{Config, Group};
    use crate::memory::Arena;
    use crate::stream::Stream;

    /// What three ranks get when rank 2 does `spoil` before it probes, and says `says`.
    fn opened(spoil: impl Fn(&Device, &mut Arc<Arena>) -> Option<Memory> + Sync, says: [u64; 2]) -> Vec<String> {
        let rank = |bootstrap: Threads| {
            let device = Device::host().unwrap();
            let mut config = Config { heap_bytes: 1 << 16, ..Config::default() };
            config.deadlines.open = Duration::from_secs(2);
            let group = Group::open(bootstrap, &device, config).unwrap();
            let mut arena = Arena::open(&group).unwrap();
            let spoils = group.rank() == 2;
            let _kept = spoils.then(|| spoil(&device, &mut arena));
            let communicator = Communicator::over(group, arena).unwrap();
            let probed = communicator.0.probe_peers_with(if spoils { says } else { HERE });
            probed.map_or_else(|error| error.to_string(), |()| String::new())
        };
        std::thread::scope(|scope| {
            let ranks = Threads::new(3).unwrap().into_iter();
            let ranks: Vec<_> = ranks.map(|bootstrap| scope.spawn(|| rank(bootstrap))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn pitfall_31_memory_that_only_seems_to_be_mapped_is_found_when_opening() {
        assert_eq!(opened(|_, _| None, HERE), ["", "", ""]);
        let elsewhere = |device: &Device, arena: &mut Arc<Arena>| {
            let memory = Memory::shared(device, arena.layout().bytes as usize).unwrap();
            arena.misdirect(0, memory.address());
            Some(memory)
        };
        let [zero, one, two] = <[String; 3]>::try_from(opened(elsewhere, HERE)).unwrap();
        assert!(
            zero.starts_with(
                "access of rank 2 to the memory of rank 0 is not supported: what it stores there does not arrive"
            ),
            "{zero}"
        );
        for told in [one, two] {
            assert!(told.contains("rank 0 failed: ") && told.contains(&zero), "{told}");
        }
    }

    #[test]
    fn pitfall_31_memory_that_changes_what_is_stored_is_found_when_opening() {
        let mut says = HERE;
        says[1] ^= 1 << 40;
        for (rank, words) in opened(|_, _| None, says).iter().enumerate() {
            assert!(words.contains("arrives with other bits"), "rank {rank}: {words}");
            assert!(words.contains("access of rank 2 to the memory of rank") || rank == 2, "rank {rank}: {words}");
        }
    }

    /// The history of rank 0 holds a call that its stream's owner captured, and so numbers others differently.
    #[test]
    fn pitfall_04_calls_that_differ_behind_a_native_capture_are_not_named_wrong() {
        let run = |bootstrap: Threads| {
            let device = Device::host().unwrap();
            let stream = Stream::new(&device).unwrap();
            let config = Config { check_calls: true, heap_bytes: 1 << 16, ..Config::default() };
            let communicator = Communicator::open(bootstrap, &device, config).unwrap();
            let sums = communicator.symmetric::<i32>(64).unwrap();
            let sum = |len: usize| communicator.all_reduce_in_place(sums.slice(0..len).unwrap(), &stream);
            let rank = communicator.rank();
            if rank == 0 {
                stream.capture_natively(|| sum(64)).unwrap().unwrap();
            }
            sum(32).unwrap();
            communicator.synchronize(&stream).unwrap();
            let outcome = sum(8 + 8 * rank).and_then(|()| communicator.synchronize(&stream));
            let Err(Error::Mismatch { against, ours, rank, theirs, .. }) = outcome else { panic!("{outcome:?}") };
            for (rank, words) in [(against, ours), (rank, theirs)] {
                let right = format!("all-reduce (sum) of {} bytes of i32", 32 + 32 * rank);
                // Rank 1 knows all of its own; what a rank was told of another's is right as well.
                assert!(words.starts_with(&right) || (rank == 0 && words == "unknown"), "rank {rank}: {words}");
            }
        };
        std::thread::scope(|scope| {
            let ranks = Threads::new(2).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
            ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
        });
    }
}
