//! Tests of `src/fused/all_gather.rs`, whose module they are: a last part that comes in pieces.

use super::*;
use crate::bootstrap::Threads;
use crate::device::Device;
use crate::float8::F8E4M3;
use crate::fused::Way;
use crate::group::Config;
use crate::matmul::F8;
use crate::memory::{DeviceBuffer, SymmetricBuffer};
use crate::stream::Stream;
use crate::types::Element;

const ROWS: usize = 16;
const INNER: usize = 48;
const COLUMNS: [usize; 2] = [32, 16];

/// Where the shard is: in memory of its own that is plain or symmetric, or in the gathered memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Home {
    Plain,
    Symmetric,
    InPlace,
}

/// The work of one rank.
struct Rank {
    communicator: Communicator,
    stream: Stream,
    device: Device,
}

impl Rank {
    fn buffer<T: Element>(&self, elems: usize, value: impl Fn(usize) -> T) -> DeviceBuffer<T> {
        DeviceBuffer::from_slice(&(0..elems).map(value).collect::<Vec<T>>(), &self.stream).unwrap()
    }

    /// Plans with a last part in so many pieces.
    fn plan(&self, products: &[Product], way: Way, chunks: usize) -> AllGatherMatmul {
        let options = FusedOptions { way, ..FusedOptions::default() };
        let over = Over::Communicator(self.communicator.clone());
        let cost = |work: &Work<'_>| Cost { chunks, ..work.gathered() };
        AllGatherMatmul::new(over, (&[ROWS, INNER], 0), products, &options, cost).unwrap()
    }

    /// The results of a plan, and the gathered shards.
    fn results<T: Element>(
        &self,
        plan: &AllGatherMatmul,
        value: impl Fn(usize) -> T,
        (home, captured): (Home, bool),
    ) -> (Vec<Vec<f32>>, Vec<T>) {
        let Self { communicator, stream, device } = self;
        let (rank, world, elems) = (communicator.rank(), communicator.world_size(), ROWS * INNER);
        let own: Vec<T> = (0..elems).map(|at| value(rank * elems + at)).collect();
        let gathered: SymmetricBuffer<T> = communicator.symmetric(world * elems).unwrap();
        let plain = DeviceBuffer::from_slice(&own, stream).unwrap();
        let symmetric: SymmetricBuffer<T> = communicator.symmetric(elems).unwrap();
        symmetric.write(&own, stream).unwrap();
        let mut whole = vec![T::zeroed(); world * elems];
        whole[rank * elems..(rank + 1) * elems].copy_from_slice(&own);
        gathered.write(&whole, stream).unwrap();
        let scales = self.buffer(ROWS, |row| (row + rank) as f32 / 8.0);
        let column_scales = COLUMNS.map(|columns| self.buffer(columns, |column| column as f32 / 4.0));
        let rights = COLUMNS.map(|columns| self.buffer(INNER * columns, |at| value(at * 7)));
        let results = COLUMNS.map(|columns| DeviceBuffer::<f32>::new(device, world * ROWS * columns).unwrap());
        let scaled = plan.products[0].scaling == Scaling::Rows;
        let operands = || {
            let shard = match home {
                Home::Plain => Tensor::of(&plain),
                Home::Symmetric => Tensor::of(&symmetric),
                Home::InPlace => Tensor::of(gathered.slice(rank * elems..(rank + 1) * elems).unwrap()),
            };
            let factor = |number: usize| {
                let right = Tensor::of(&rights[number]);
                if scaled { right.scaled(&column_scales[number]) } else { right }
            };
            let products = [0, 1].map(|number| (factor(number), Tensor::of(&results[number])));
            (if scaled { shard.scaled(&scales) } else { shard }, products)
        };
        if captured {
            let graph = stream.capture(|capture| {
                let (shard, products) = operands();
                plan.enqueue(shard, Some(Tensor::of(&gathered)), products, capture)
            });
            let graph = graph.unwrap();
            graph.register().unwrap();
            (0..2).for_each(|_| graph.launch(stream).unwrap());
            communicator.synchronize(stream).unwrap();
        } else {
            let (shard, products) = operands();
            plan.enqueue(shard, Some(Tensor::of(&gathered)), products, stream).unwrap();
            communicator.synchronize(stream).unwrap();
        }
        (results.map(|result| result.read(stream).unwrap()).into(), gathered.read(stream).unwrap())
    }

    /// Pieces give the bits of whole parts and of a sequence, and gather what the ranks have.
    fn compare<T: Element>(&self, numeric: Numeric, scaling: Scaling, value: impl Fn(usize) -> T + Copy) {
        let products =
            COLUMNS.map(|columns| Product { result: Dtype::F32, scaling, ..Product::new(INNER, columns, numeric) });
        let sequence = self.plan(&products, Way::Sequence, 4);
        assert_eq!((sequence.explain().parts, sequence.explain().chunks), (1, 1));
        let world = self.communicator.world_size();
        let whole: Vec<T> = (0..world * ROWS * INNER).map(value).collect();
        let (expected, _) = self.results(&sequence, value, (Home::Symmetric, false));
        for chunks in [1, 2, 4] {
            let plan = self.plan(&products, Way::Pipeline, chunks);
            let Planned { parts, chunks: found, .. } = plan.explain();
            assert_eq!((*parts, *found), (world, chunks));
            let words = format!("pipeline in {world} parts, the last in {chunks} pieces, by ");
            assert_eq!(plan.explain().to_string().starts_with(&words), chunks > 1, "{}", plan.explain());
            for home in [Home::Plain, Home::Symmetric, Home::InPlace] {
                for captured in [false, true] {
                    let (results, gathered) = self.results(&plan, value, (home, captured));
                    assert!(bytemuck::cast_slice::<T, u8>(&gathered) == bytemuck::cast_slice::<T, u8>(&whole));
                    assert!(results == expected, "{numeric} in {chunks}, {home:?}, captured: {captured}");
                }
            }
        }
    }
}

#[test]
fn pieces_of_the_last_part_have_the_bits_of_the_whole() {
    for world in [2, 3, 4] {
        let run = |bootstrap: Threads| {
            let device = Device::host().unwrap();
            let stream = Stream::new(&device).unwrap();
            let config = Config { heap_bytes: 1 << 20, ..Config::default() };
            let communicator = Communicator::open(bootstrap, &device, config).unwrap();
            let rank = Rank { communicator, stream, device };
            rank.compare(Numeric::F32, Scaling::None, |at| (at % 101) as f32 / 7.0);
            let codes = Numeric::F8 { left: F8::E4M3, right: F8::E4M3 };
            rank.compare(codes, Scaling::Rows, |at| F8E4M3::from_bits((at % 90) as u8));
            rank.communicator.close().unwrap();
        };
        std::thread::scope(|scope| {
            let ranks = Threads::new(world).unwrap().into_iter().map(|bootstrap| scope.spawn(move || run(bootstrap)));
            ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
        });
    }
}
