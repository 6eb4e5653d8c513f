//! Operands whose element type is known at run time.

use symmetra::op::{OPERATIONS, Op};
use symmetra::{DeviceBuffer, How, Reduction, Ref, Untyped};

use crate::operations::calls::effects;
use crate::support::batch::Memory;
use crate::support::call::Call;
use crate::support::data::{Random, assert_same};
use crate::support::refusal::invalid;
use crate::support::{Data, Rank, Sample, config, threads};

const ROOM: usize = 2000;

fn every_operation<T: Sample>(rank: &Rank, seed: u64) {
    let Rank { communicator, device, stream, .. } = rank;
    let (world, mut random) = (rank.world(), Random(seed));
    let data = Data::<T>::new(seed, world, ROOM);
    let own = &data.inputs[rank.rank()];
    let [from, to] = [0; 2].map(|_| DeviceBuffer::from_slice(own, stream).unwrap());
    for op in OPERATIONS {
        let op: &'static Op = op;
        let call = Call {
            op,
            count: 300,
            rows: 1,
            options: (*random.pick(&Reduction::ALL)).into(),
            root: random.below(world),
            memory: Memory::Plain,
            in_place: false,
            from: random.below(16),
            to: random.below(16),
            seed: random.next(),
        };
        let mut expected = own.clone();
        for (start, elements) in effects(&call, &data, rank.rank(), world) {
            expected[start..start + elements.len()].copy_from_slice(&elements);
        }
        to.write(own, stream).unwrap();
        let operands = call.operands(rank.rank(), world, |which, start, len| {
            let memory = [&from, &to][which].borrow().slice(start..start + len).unwrap();
            let address = memory.as_raw().cast();
            match start % 3 {
                0 => memory.untyped(),
                // SAFETY: elements of the buffer, which outlives the work.
                1 => unsafe { Untyped::from_raw(device, T::DTYPE, address, len) }.unwrap(),
                // SAFETY: elements of the buffer, which outlives the work.
                _ => unsafe { Untyped::assume(device, T::DTYPE, address, len) }.unwrap(),
            }
        });
        assert!(operands.iter().flatten().all(|operand| operand.dtype() == T::DTYPE));
        call.how(communicator, |how| communicator.perform_untyped(op, how, operands, stream)).unwrap();
        rank.finish();
        assert_same(&to.read(stream).unwrap(), &expected, &(T::DTYPE, rank.rank(), &call));
    }
}

#[test]
fn every_operation_and_type_has_its_effect_on_operands_without_a_rust_type() {
    let seed = fastrand::u64(..);
    threads(3, &config(), |rank| {
        every_operation::<f32>(rank, seed);
        every_operation::<f64>(rank, seed);
        every_operation::<half::f16>(rank, seed);
        every_operation::<half::bf16>(rank, seed);
        every_operation::<symmetra::float8::F8E4M3>(rank, seed);
        every_operation::<symmetra::float8::F8E5M2>(rank, seed);
        every_operation::<i8>(rank, seed);
        every_operation::<u8>(rank, seed);
        every_operation::<i32>(rank, seed);
        every_operation::<u32>(rank, seed);
        every_operation::<i64>(rank, seed);
        every_operation::<u64>(rank, seed);
    });
}

#[test]
fn operands_of_two_types_and_calls_without_operands_are_refused() {
    threads(1, &config(), |Rank { communicator, device, stream, .. }| {
        let (floats, words) =
            (DeviceBuffer::<f32>::new(device, 8).unwrap(), DeviceBuffer::<u32>::new(device, 8).unwrap());
        let how = How::default();
        for op in OPERATIONS {
            let operands = [Some(floats.borrow().untyped()), Some(words.borrow().untyped())];
            invalid(communicator.perform_untyped(op, &how, operands, stream), &["the output's type is u32", "f32"]);
            invalid(communicator.perform_untyped(op, &how, [None, None], stream), &["the number of operands"]);
        }
        // SAFETY: refused before it is used.
        invalid(unsafe { Untyped::from_raw(device, symmetra::Dtype::F64, 12 as *mut _, 1) }, &["aligned"]);
        // SAFETY: refused before it is used.
        invalid(unsafe { Untyped::assume(device, symmetra::Dtype::F64, 12 as *mut _, 1) }, &["aligned"]);
        // SAFETY: refused before it is used.
        invalid(unsafe { Ref::<f32>::assume(device, std::ptr::null_mut(), 3) }, &["the address is null", "3 elements"]);
        // SAFETY: refused before it is used.
        invalid(unsafe { Ref::<f32>::assume(device, 64 as *mut _, usize::MAX / 2) }, &["address space"]);
        // SAFETY: empty memory is never accessed.
        assert!(unsafe { Ref::<f32>::assume(device, std::ptr::null_mut(), 0) }.unwrap().is_empty());
    });
}
