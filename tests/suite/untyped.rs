//! Operands whose element type is known at run time.

use symmetra::internal::{Factor, Scale};
use symmetra::op::{OPERATIONS, Op};
use symmetra::{DeviceBuffer, Dtype, How, Reduction, Ref, Untyped};

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

/// Rows with gaps, times a factor that each launch of a graph reads again. Elements between the rows stay.
#[test]
fn a_graph_reads_the_factor_of_a_scale_at_each_launch() {
    threads(2, &config(), |rank| {
        let Rank { communicator, stream, .. } = rank;
        let numbers: Vec<f32> = (0..40).map(|index| index as f32).collect();
        let [input, factor] =
            [numbers.as_slice(), &[1.0]].map(|values| DeviceBuffer::from_slice(values, stream).unwrap());
        let products = communicator.symmetric::<u8>(24 * 4).unwrap();
        fn of(factor: &DeviceBuffer<f32>) -> Factor<'_> {
            Factor::Memory(factor.borrow().untyped())
        }
        let into = |dtype| Scale::new(input.borrow().untyped(), products.untyped(dtype, 0..24).unwrap(), of(&factor));
        let scale = into(Dtype::F32).rows(3, 7).pitches(13, 8);
        let graph = stream.capture(|capture| communicator.scale(&scale, capture)).unwrap();
        for launch in [2.0_f32, -3.0] {
            factor.write(&[launch], stream).unwrap();
            graph.launch(stream).unwrap();
            rank.finish();
            let found = products.read(stream).unwrap();
            let found = found.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()));
            let product = |index: usize| if index % 8 < 7 { (index / 8 * 13 + index % 8) as f32 * launch } else { 0.0 };
            assert_eq!(found.collect::<Vec<_>>(), (0..24).map(product).collect::<Vec<_>>());
        }
        let refused = |scale: Scale<'_>, what: &str| invalid(communicator.scale(&scale, stream), &[what]);
        refused(scale.clone().rows(17, 1), "the number of rows");
        refused(scale.clone().rows(3, 9), "the distance of rows");
        refused(scale.clone().pitches(17, 8), "the distance of rows");
        refused(scale.clone().rows(3, 1 << 40), "the elements of a row");
        refused(into(Dtype::F32), "the distance of rows");
        refused(into(Dtype::I32), "the output's type");
        refused(Scale::new(input.borrow().untyped(), input.borrow().untyped(), of(&input)), "the factor");
    });
}
