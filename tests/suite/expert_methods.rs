//! Every method of experts gives equal bits: rows, counts, places and sums, for any routing, layout, wire and placement.

use half::bf16;
use symmetra::experts::{
    Combine, ExpertConfig, Layout, Method, Placement, Received, Routing, ScaleOrder, Scales, Wire,
};
use symmetra::{Determinism, DeviceBuffer, Dtype};

use crate::support::data::{Random, mix};
use crate::support::extent::one_in;
use crate::support::{Rank, Sample, config, fits, threads};

/// A form of experts, by chance from a seed.
fn any(random: &mut Random, dtype: Dtype, world: usize) -> ExpertConfig {
    let experts = *random.pick(&[1, 2, world, world + 1, 8, 60, 257]);
    let hidden = *random.pick(&[1, 7, 8, 127, 128, 129, 300]);
    let max_tokens = *random.pick(&[1, 3, 17, 33]);
    let mut form = ExpertConfig::new(experts, *random.pick(&[1, 2, 6, 8]), hidden, max_tokens);
    form.dtype = dtype;
    form.wire = *random.pick(&[
        Wire::Same,
        Wire::F8(Scales::F32),
        Wire::F8(Scales::PowersOfTwo),
        Wire::F8(Scales::E8M0),
        Wire::GivenF8,
        Wire::Bytes(5),
        Wire::Bytes(64),
    ]);
    let rows = world * max_tokens * form.top_k;
    form.layout = *random.pick(&[
        Layout::ByRank,
        Layout::ByExpert { align: 1 },
        Layout::ByExpert { align: 8 },
        Layout::Padded { rows },
    ]);
    if experts > 60 && matches!(form.layout, Layout::Padded { .. }) {
        form.layout = Layout::ByExpert { align: 4 };
    }
    form.placement = match random.below(3) {
        0 => Placement::Blocks,
        1 => Placement::RoundRobin,
        // Each rank also has a copy of expert 0, if it is not its own.
        _ => Placement::Table(
            (0..world)
                .map(|rank| {
                    let mut list: Vec<usize> = (0..experts).filter(|expert| expert % world == rank).collect();
                    if rank > 0 {
                        list.push(0);
                    }
                    list
                })
                .collect(),
        ),
    };
    form.determinism = Some(*random.pick(&[Determinism::PerAlgorithm, Determinism::Exact]));
    form
}

/// What one call leaves: bytes of everything that it wrote.
#[derive(Debug, PartialEq)]
struct Found<T> {
    rows: Vec<u8>,
    scales: Vec<u8>,
    numbers: [Vec<u32>; 4],
    ids: Vec<i32>,
    weights: Vec<f32>,
    sums: Vec<T>,
}

/// Two calls of a rank through one method, on the data of a seed.
fn calls<T: Sample>(rank: &Rank, form: &ExpertConfig, method: Method, seed: u64) -> Vec<Found<T>> {
    let mut form = form.clone();
    form.method = method;
    let experts = rank.communicator.experts(form.clone()).unwrap();
    let stream = &rank.stream;
    let (local, room) = (experts.local_experts().len(), experts.capacity());
    let by_rank = form.layout == Layout::ByRank;
    let pairs = if by_rank { room * form.top_k } else { room };
    let groups = form.hidden.div_ceil(128);
    let received = match form.wire {
        Wire::Same => form.hidden * form.dtype.bytes(),
        Wire::Bytes(bytes) => bytes,
        _ => form.hidden,
    };
    let mut random = Random(mix(seed ^ rank.rank() as u64));
    (0..2)
        .map(|_| {
            let tokens = random.below(form.max_tokens + 1);
            let crowd = random.below(4) == 0;
            let id = |random: &mut Random| match (random.below(8), crowd) {
                (0, _) => -1,
                (_, true) => 0,
                _ => random.below(form.experts) as i64,
            };
            let ids: Vec<i64> = (0..tokens * form.top_k).map(|_| id(&mut random)).collect();
            let weights: Vec<f32> = ids.iter().map(|_| random.below(1000) as f32 / 999.0).collect();
            let sent = random.below(tokens + 1) as u32;
            let weighted = random.below(3) > 0; // on some ranks, and not on others
            let fill = |len: usize| vec![0xA5u8; len];
            let ids = DeviceBuffer::from_slice(&ids, stream).unwrap();
            let weights = DeviceBuffer::from_slice(&weights, stream).unwrap();
            let sent = DeviceBuffer::from_slice(&[sent], stream).unwrap();
            let mut routing = Routing::new(&ids).tokens(&sent);
            if weighted {
                routing = routing.weights(&weights);
            }
            let rows: Vec<T> = (0..tokens * form.hidden).map(|_| T::sample(random.next())).collect();
            let bytes: Vec<u8> = (0..tokens * received.max(form.hidden)).map(|_| random.next() as u8).collect();
            let codes: Vec<u8> = bytes.iter().map(|byte| if byte & 0x7F == 0x7F { 0x7E } else { *byte }).collect();
            let given: Vec<f32> = (0..tokens * groups).map(|_| random.below(1000) as f32).collect();
            let rows = DeviceBuffer::from_slice(&rows, stream).unwrap();
            let bytes = DeviceBuffer::from_slice(&bytes[..tokens * received], stream).unwrap();
            let codes = DeviceBuffer::from_slice(&codes[..tokens * form.hidden], stream).unwrap();
            let given = DeviceBuffer::from_slice(&given, stream).unwrap();
            let into_rows = DeviceBuffer::from_slice(&vec![T::sample(1); room * form.hidden], stream).unwrap();
            let into_bytes = DeviceBuffer::from_slice(&fill(room * received), stream).unwrap();
            let into_scales = DeviceBuffer::from_slice(&vec![0.5f32; room * groups], stream).unwrap();
            let into_e8m0 = DeviceBuffer::from_slice(&fill(room * groups), stream).unwrap();
            let of = |len: usize| DeviceBuffer::from_slice(&vec![7u32; len], stream).unwrap();
            let [counts, offsets, sources, index] = [of(local), of(local + 1), of(room * 2), of(pairs)];
            let into_ids = DeviceBuffer::from_slice(&vec![7i32; pairs], stream).unwrap();
            let into_weights = DeviceBuffer::from_slice(&vec![7f32; pairs], stream).unwrap();
            let order = if random.below(2) == 0 { ScaleOrder::Rows } else { ScaleOrder::Columns };
            let mut into = match form.wire {
                Wire::Same => Received::rows(&into_rows),
                _ => Received::rows(&into_bytes),
            };
            into = into.counts(&counts).offsets(&offsets).sources(&sources).ids(&into_ids).weights(&into_weights);
            if by_rank {
                into = into.index(&index);
            }
            into = match form.wire {
                Wire::F8(Scales::E8M0) => into.scales(&into_e8m0, order),
                Wire::F8(_) | Wire::GivenF8 => into.scales(&into_scales, order),
                _ => into,
            };
            let routed = match form.wire {
                Wire::Same | Wire::F8(_) => experts.dispatch(&routing, &rows, &into, stream),
                Wire::GivenF8 => experts.dispatch_f8(&routing, (&codes, &given), &into, stream),
                _ => experts.dispatch(&routing, &bytes, &into, stream),
            }
            .unwrap();
            // Results of the experts: each rank makes its own, row by row.
            let mut results = Random(mix(seed ^ 77 ^ rank.rank() as u64));
            let results: Vec<T> = (0..room * form.hidden).map(|_| T::sample(results.next())).collect();
            let results = DeviceBuffer::from_slice(&results, stream).unwrap();
            let more: Vec<T> = (0..tokens * form.hidden).map(|_| T::sample(random.next())).collect();
            let sums = DeviceBuffer::from_slice(&more, stream).unwrap();
            let options = if random.below(2) == 0 { Combine::default().add(&sums) } else { Combine::default() };
            routed.combine(&results, &sums, options, stream).unwrap();
            rank.finish();
            let told = routed.counts().unwrap();
            let counts = counts.read(stream).unwrap();
            assert_eq!(told, counts.iter().map(|count| *count as usize).collect::<Vec<_>>());
            let scales = into_scales.read(stream).unwrap();
            Found {
                rows: match form.wire {
                    Wire::Same => {
                        into_rows.read(stream).unwrap().iter().flat_map(|row| row.bits().to_le_bytes()).collect()
                    }
                    _ => into_bytes.read(stream).unwrap(),
                },
                scales: scales
                    .iter()
                    .flat_map(|scale| scale.to_le_bytes())
                    .chain(into_e8m0.read(stream).unwrap())
                    .collect(),
                numbers: [
                    counts,
                    offsets.read(stream).unwrap(),
                    sources.read(stream).unwrap(),
                    index.read(stream).unwrap(),
                ],
                ids: into_ids.read(stream).unwrap(),
                weights: into_weights.read(stream).unwrap(),
                sums: sums.read(stream).unwrap(),
            }
        })
        .collect()
}

fn every_method<T: Sample>(world: usize, number: u64) {
    if !fits(world) {
        return;
    }
    let mut config = config();
    config.heap_bytes = 64 << 20;
    config.check_calls = world.is_multiple_of(2);
    let mut random = Random(mix(world as u64 * 10 + number));
    let forms: Vec<_> = (0..48 / one_in(world)).map(|_| (any(&mut random, T::DTYPE, world), random.next())).collect();
    threads(world, &config, |rank| {
        for (form, seed) in &forms {
            let expected = calls::<T>(rank, form, Method::Gather, *seed);
            for method in [Method::Broadcast, Method::Direct, Method::Packets] {
                let found = calls::<T>(rank, form, method, *seed);
                assert!(found == expected, "rank {} of {world}, {method:?}, seed {seed}: {form:?}", rank.rank());
            }
        }
    });
}

macro_rules! worlds {
    ($($name:ident: $world:expr;)*) => {$(
        #[test]
        fn $name() {
            every_method::<bf16>($world, 0);
            every_method::<f32>($world, 1);
        }
    )*};
}

worlds! {
    every_method_gives_equal_bits_world_1: 1;
    every_method_gives_equal_bits_world_2: 2;
    every_method_gives_equal_bits_world_3: 3;
    every_method_gives_equal_bits_world_5: 5;
    every_method_gives_equal_bits_world_8: 8;
}
