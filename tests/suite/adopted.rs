//! Slices of the caller's memory, which the library registered or the caller mapped: every operation on memory that
//! peers address has the values of a model and writes nothing outside its operands. Memory that cannot be adopted is
//! refused on every rank.

use symmetra::{Adopted, Algorithm, Communicator, DeviceBuffer, Dtype, Error, Operand, Queue, Reduction, Result};

use crate::support::data::mix;
use crate::support::{Rank, config, is_host, threads};

/// Elements of a part of a message.
const COUNT: usize = 1001;
/// Where slices begin: at no multiple of a packet.
const INPUT: usize = 37;
const OUTPUT: usize = 5;
const UNTOUCHED: i64 = -77;

#[derive(Clone, Copy, Debug)]
enum Call {
    AllReduce(Algorithm),
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Reduce,
    LowContentionAllGather,
    LowContentionReduceScatter,
}

fn calls() -> Vec<Call> {
    let carried = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.carries(Dtype::I64));
    let others = [
        Call::AllGather,
        Call::ReduceScatter,
        Call::AllToAll,
        Call::Broadcast,
        Call::Reduce,
        Call::LowContentionAllGather,
        Call::LowContentionReduceScatter,
    ];
    carried.map(Call::AllReduce).chain(others).collect()
}

impl Call {
    /// Elements of input and output, in parts of `COUNT`.
    fn parts(self, world: usize) -> [usize; 2] {
        match self {
            Self::AllReduce(_) | Self::Broadcast | Self::Reduce => [1, 1],
            Self::AllGather | Self::LowContentionAllGather => [1, world],
            Self::ReduceScatter | Self::LowContentionReduceScatter => [world, 1],
            Self::AllToAll => [world, world],
        }
    }

    fn enqueue<'op>(
        self,
        communicator: &'op Communicator,
        [from, to]: [impl Operand<'op, i64>; 2],
        queue: impl Queue<'op>,
    ) -> Result<()> {
        match self {
            Self::AllReduce(algorithm) => communicator.all_reduce_with(algorithm, from, to, queue),
            Self::AllGather => communicator.all_gather(from, to, queue),
            Self::ReduceScatter => communicator.reduce_scatter(from, to, Reduction::Sum, queue),
            Self::AllToAll => communicator.all_to_all(from, to, queue),
            Self::Broadcast => communicator.broadcast(to, 1, queue),
            Self::Reduce => {
                let output = (communicator.rank() == 1).then_some(to);
                communicator.reduce(from, output, Reduction::Sum, 1, queue)
            }
            Self::LowContentionAllGather => communicator.low_contention_all_gather(from, to, queue).map(drop),
            Self::LowContentionReduceScatter => {
                communicator.low_contention_reduce_scatter(from, to, Reduction::Sum, queue).map(drop)
            }
        }
    }

    /// The output of a rank; `None`: the output is not written.
    fn effect(self, rank: usize, world: usize) -> Option<Vec<i64>> {
        let part = |from: usize, number: usize| (0..COUNT).map(move |index| value(from, number * COUNT + index));
        let sum = |number: usize| {
            (0..COUNT).map(move |index| (0..world).map(|from| value(from, number * COUNT + index)).sum())
        };
        Some(match self {
            Self::AllReduce(_) => sum(0).collect(),
            Self::AllGather | Self::LowContentionAllGather => (0..world).flat_map(|from| part(from, 0)).collect(),
            Self::ReduceScatter | Self::LowContentionReduceScatter => sum(rank).collect(),
            Self::AllToAll => (0..world).flat_map(|from| part(from, rank)).collect(),
            Self::Broadcast => part(1, 0).collect(),
            Self::Reduce if rank == 1 => sum(0).collect(),
            Self::Reduce => return None,
        })
    }
}

fn value(rank: usize, index: usize) -> i64 {
    (mix((rank * 1_000_003 + index) as u64) >> 8) as i64
}

/// Adopts a buffer, and if `mapped` once more, by the addresses by which this rank reaches it.
fn adopt<'a>(communicator: &Communicator, buffer: &'a DeviceBuffer<i64>, mapped: bool) -> Vec<Adopted<'a, i64>> {
    // SAFETY: ranks are threads, and drop it after calls that succeeded.
    let registered = unsafe { communicator.adopt(buffer.borrow()) }.unwrap();
    if !mapped {
        return vec![registered];
    }
    let peers: Vec<_> = (0..communicator.world_size()).map(|rank| registered.peer_address(rank).unwrap()).collect();
    // SAFETY: the addresses are those of the registration, which is kept as long.
    let again = unsafe { communicator.adopt_mapped(buffer.borrow(), &peers) }.unwrap();
    assert_eq!(peers, (0..peers.len()).map(|rank| again.peer_address(rank).unwrap()).collect::<Vec<_>>());
    vec![again, registered]
}

/// How a part of adopted memory is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    AsSlice,
    /// A slice of memory whose addresses the caller passed.
    Mapped,
    ByAddress,
}

fn slices_are_operands(world: usize, given: Given) {
    let room = world * COUNT + 64;
    threads(world, &config(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let mut filled = vec![UNTOUCHED; room];
        (0..world * COUNT).for_each(|index| filled[INPUT + index] = value(rank.rank(), index));
        let from = DeviceBuffer::from_slice(&filled, stream).unwrap();
        let to = DeviceBuffer::<i64>::new(device, room).unwrap();
        let mapped = given == Given::Mapped;
        let (inputs, outputs) = (adopt(communicator, &from, mapped), adopt(communicator, &to, mapped));
        assert!(!is_host() || (inputs[0].is_shared() && outputs[0].is_shared()));
        for call in calls() {
            for captured in [false, true] {
                let [sent, got] = call.parts(world).map(|parts| parts * COUNT);
                let mut expected = vec![UNTOUCHED; room];
                if matches!(call, Call::Broadcast) && rank.rank() == 1 {
                    expected[OUTPUT..OUTPUT + got].copy_from_slice(&filled[INPUT..INPUT + got]);
                }
                to.write(&expected, stream).unwrap();
                communicator.group().barrier().unwrap();
                let [input, output] = [INPUT..INPUT + sent, OUTPUT..OUTPUT + got];
                let slices = || [inputs[0].slice(input.clone()).unwrap(), outputs[0].slice(output.clone()).unwrap()];
                let (part_in, part_out) = (from.borrow().slice(input.clone()), to.borrow().slice(output.clone()));
                let parts = [&part_in.unwrap(), &part_out.unwrap()];
                let low = matches!(call, Call::LowContentionAllGather | Call::LowContentionReduceScatter);
                if captured && !low {
                    let graph = stream.capture(|capture| match given {
                        Given::ByAddress => call.enqueue(communicator, parts, capture),
                        _ => call.enqueue(communicator, slices(), capture),
                    });
                    let graph = graph.unwrap();
                    communicator.group().barrier().unwrap();
                    graph.launch(stream).unwrap();
                } else if given == Given::ByAddress {
                    call.enqueue(communicator, parts, stream).unwrap();
                } else {
                    call.enqueue(communicator, slices(), stream).unwrap();
                }
                rank.finish();
                if let Some(effect) = call.effect(rank.rank(), world) {
                    expected[OUTPUT..OUTPUT + got].copy_from_slice(&effect);
                }
                assert!(to.read(stream).unwrap() == expected, "{call:?}, {given:?}, captured: {captured}");
                assert!(from.read(stream).unwrap() == filled, "{call:?} wrote the input");
            }
        }
    });
}

#[test]
fn slices_of_registered_memory_are_operands() {
    [2, 3, 4].into_iter().for_each(|world| slices_are_operands(world, Given::AsSlice));
}

/// Graphs need no registration for the addresses.
#[test]
fn addresses_in_adopted_memory_are_operands() {
    [2, 3, 4].into_iter().for_each(|world| slices_are_operands(world, Given::ByAddress));
}

/// Engines hand over memory that they have mapped: PyTorch's symmetric memory, NVSHMEM.
#[test]
fn slices_of_mapped_memory_are_operands() {
    [2, 3].into_iter().for_each(|world| slices_are_operands(world, Given::Mapped));
}

#[test]
fn a_slice_outside_the_memory_is_refused() {
    threads(2, &config(), |rank| {
        let buffer = DeviceBuffer::<i64>::new(&rank.device, 10).unwrap();
        let adopted = adopt(&rank.communicator, &buffer, false).remove(0);
        let error = adopted.slice(3..11).unwrap_err();
        assert_eq!(error.to_string(), "invalid argument: the range is 3..11, but there are 10 elements");
        assert!(adopted.slice(10..).unwrap().is_empty());
        assert_eq!(adopted.slice(..4).unwrap().len(), 4);
    });
}

/// An error of one rank is an error of all, names the wrong argument, and leaves the group usable.
#[test]
fn pitfall_04_what_cannot_be_adopted_is_refused_on_every_rank() {
    threads(3, &config(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let own = rank.rank();
        let buffer = DeviceBuffer::<i64>::new(device, 100).unwrap();
        let registered = adopt(communicator, &buffer, false).remove(0);
        let right: Vec<_> = (0..3).map(|rank| registered.peer_address(rank).unwrap()).collect();
        // SAFETY: the adopted memory is valid, or refused.
        let mapped = |peers: &[*mut i64]| unsafe { communicator.adopt_mapped(buffer.borrow(), peers) }.map(drop);
        let refused = |wrong: Vec<*mut i64>, words: &str| {
            let error = mapped(if own == 1 { &wrong } else { &right }).unwrap_err();
            if own == 1 {
                assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
                assert!(error.to_string().contains(words), "{error}");
            } else {
                assert!(matches!(error, Error::Peer { rank: 1, .. }), "{error}");
            }
        };
        refused(right[..2].to_vec(), "the number of addresses is 2, but the world size is 3");
        refused(Vec::new(), "the number of addresses is 0, but the world size is 3");
        refused(vec![right[0], right[1], std::ptr::null_mut()], "the address of rank 2's memory is 0x0");
        refused(vec![right[0].wrapping_byte_add(4), right[1], right[2]], "i64 is aligned to 8 bytes");
        refused(vec![right[0], right[2], right[2]], "this rank's memory is at");
        // Lengths and types differ.
        let part = buffer.borrow().slice(..if own == 2 { 50 } else { 100 }).unwrap();
        // SAFETY: refused.
        let error = unsafe { communicator.adopt_mapped(part, &right) }.map(drop).unwrap_err();
        assert!(matches!(&error, Error::Mismatch { against: 0, rank: 2, theirs, .. } if theirs == "50 i64"), "{error}");
        let halves: Vec<_> = right.iter().map(|address| address.cast::<i32>()).collect();
        let error = if own == 0 {
            let half = DeviceBuffer::<i32>::new(device, 100).unwrap();
            let peers = [half.as_raw(), halves[1], halves[2]];
            // SAFETY: refused.
            unsafe { communicator.adopt_mapped(half.borrow(), &peers) }.map(drop).unwrap_err()
        } else {
            mapped(&right).unwrap_err()
        };
        assert!(matches!(error, Error::Mismatch { against: 0, rank: 1, .. }), "{error}");
        // No other rank is affected.
        mapped(&right).unwrap();
        communicator.all_reduce_in_place(&registered, stream).unwrap();
        rank.finish();
    });
}
