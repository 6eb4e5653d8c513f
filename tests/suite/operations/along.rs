//! Collectives along each dimension of a tensor of three, against tensors that are indexed element by element.

use half::bf16;
use symmetra::{Error, Reduction, Transport};

use super::{TRANSPORTS, small};
use crate::support::data::{assert_same, mix};
use crate::support::extent::cases_of;
use crate::support::{Data, Rank, Sample, fits, threads};

/// Shapes of one part. In each, the dimensions after the cut make a row longer than one.
const SHAPES: [[usize; 3]; 6] = [[2, 3, 5], [1, 4, 7], [6, 1, 8], [3, 9, 2], [16, 3, 33], [5, 64, 4]];

/// The index of an element in a row-major tensor.
fn index(shape: [usize; 3], [a, b, c]: [usize; 3]) -> usize {
    (a * shape[1] + b) * shape[2] + c
}

/// Every place in a tensor.
fn places(shape: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..shape[0]).flat_map(move |a| (0..shape[1]).flat_map(move |b| (0..shape[2]).map(move |c| [a, b, c])))
}

/// The shape of all parts along a dimension.
fn all_of(part: [usize; 3], dim: usize, world: usize) -> [usize; 3] {
    let mut whole = part;
    whole[dim] *= world;
    whole
}

fn along<T: Sample>(rank: &Rank, part: [usize; 3], dim: usize, data: &Data<T>) {
    let Rank { communicator, stream, .. } = rank;
    let (own, world) = (rank.rank(), rank.world());
    let whole = all_of(part, dim, world);
    let (part_elems, whole_elems) = (part.iter().product::<usize>(), whole.iter().product::<usize>());
    let small = communicator.symmetric::<T>(part_elems).unwrap();
    let large = communicator.symmetric::<T>(whole_elems).unwrap();
    let context = (T::DTYPE, own, world, part, dim);

    small.write(&data.inputs[own][..part_elems], stream).unwrap();
    communicator.group().barrier().unwrap();
    communicator.all_gather_along(dim, &part, &small, &large, stream).unwrap();
    rank.finish();
    let gathered = places(whole).map(|mut place| {
        let source = place[dim] / part[dim];
        place[dim] %= part[dim];
        data.inputs[source][index(part, place)]
    });
    assert_same(&large.read(stream).unwrap(), &gathered.collect::<Vec<_>>(), &context);

    for reduction in [Reduction::Sum, Reduction::Max] {
        large.write(&data.inputs[own][..whole_elems], stream).unwrap();
        communicator.group().barrier().unwrap();
        communicator.reduce_scatter_along(dim, &whole, &large, &small, reduction, stream).unwrap();
        rank.finish();
        let scattered = places(part).map(|mut place| {
            place[dim] += own * part[dim];
            data.result(reduction)[index(whole, place)]
        });
        assert_same(&small.read(stream).unwrap(), &scattered.collect::<Vec<_>>(), &(context, reduction));
    }
}

fn every_dimension<T: Sample>(world: usize, transport: Transport) {
    let most = SHAPES.map(|shape| shape.iter().product::<usize>()).into_iter().max().unwrap();
    let data = Data::<T>::new(mix(fastrand::u64(..)), world, most * world);
    threads(world, &small(world, transport), |rank| {
        for shape in SHAPES {
            (0..3).for_each(|dim| along(rank, shape, dim, &data));
        }
    });
}

#[test]
fn every_dimension_of_three() {
    let types: [fn(usize, Transport); 3] = [every_dimension::<bf16>, every_dimension::<i64>, every_dimension::<u8>];
    let cases: Vec<_> = TRANSPORTS.into_iter().flat_map(|transport| types.map(|run| (transport, run))).collect();
    for world in [2, 3, 4, 8].into_iter().filter(|world| fits(*world)) {
        for (transport, run) in cases_of(world, 0, cases.clone()) {
            run(world, transport);
        }
    }
}

/// Each rank would write into the outputs of the others by its own rows.
#[test]
fn pitfall_04_ranks_that_cut_differently_are_told_and_write_nothing() {
    const ELEMS: usize = 64 * 64;
    for transport in TRANSPORTS {
        for scatters in [false, true] {
            let mut config = small(4, transport);
            config.check_calls = true;
            crate::support::world::meet(4, |bootstrap| {
                let rank = crate::support::world::open(bootstrap, &config).unwrap();
                let Rank { communicator, stream, .. } = &rank;
                let input = communicator.symmetric::<i32>(4 * ELEMS).unwrap();
                let output = communicator.symmetric::<i32>(4 * ELEMS).unwrap();
                input.write(&vec![rank.rank() as i32; 4 * ELEMS], stream).unwrap();
                output.write(&vec![-1; 4 * ELEMS], stream).unwrap();
                communicator.group().barrier().unwrap();
                // As many bytes on every rank, in the rows of another dimension on the last.
                let dim = usize::from(rank.rank() == 3);
                let part = || input.slice(0..ELEMS).unwrap();
                let called = match scatters {
                    false => communicator.all_gather_along(dim, &[64, 64], part(), &output, stream),
                    true => {
                        let output = output.slice(0..ELEMS).unwrap();
                        communicator.reduce_scatter_along(dim, &[128, 128], &input, output, Reduction::Sum, stream)
                    }
                };
                let error = called.and_then(|()| communicator.synchronize(stream)).unwrap_err();
                assert!(matches!(error, Error::Mismatch { .. }), "rank {}: {error}", rank.rank());
                // A rank may have copied its own part, and no other rank has written there.
                let own = |value: &i32| *value == -1 || *value == rank.rank() as i32;
                assert!(output.borrow().read(stream).unwrap().iter().all(own), "rank {}", rank.rank());
                // It is lost to the others when all have looked.
                rank
            });
        }
    }
}
