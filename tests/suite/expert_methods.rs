//! Dispatch and combine, bit for bit against their definition, by every method, for any routing, layout, wire and placement.

use half::{bf16, f16};
use reference::element::Real;
use reference::experts::arrivals::{experts_of_ranks, is_by_token};
use reference::experts::dispatch::RoutedOutputs;
use symmetra::experts::{Combine, ExpertConfig, Experts, Layout, Method, Placement, Received, Routing, Scales, Wire};
use symmetra::{Determinism, DeviceBuffer, Dtype, Element, Error, Operand, Stream, SymmetricBuffer};

use crate::expert_cases::{Inputs, before, dispatched, inputs_of, room, sums};
use crate::support::Sample;
use crate::support::data::{Random, mix};
use crate::support::extent::one_in;
use crate::support::{Rank, config, fits, threads};

const METHODS: [Method; 4] = [Method::Gather, Method::Broadcast, Method::Direct, Method::Packets];

/// A form of experts, by chance from a seed.
fn any(random: &mut Random, dtype: Dtype, world: usize) -> ExpertConfig {
    let experts = *random.pick(&[1, 2, world, world + 1, 8, 60, 257]);
    let hidden = *random.pick(&[1, 7, 8, 127, 128, 129, 300]);
    let (mut max_tokens, top_k) = (*random.pick(&[1, 3, 17, 33]), *random.pick(&[1, 2, 6, 8, 22]));
    // A debug build walks every element that may come.
    while world * max_tokens * top_k * hidden > 1 << 18 {
        max_tokens = max_tokens.div_ceil(2);
    }
    let mut form = ExpertConfig::new(experts, top_k, hidden, max_tokens);
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
    let layouts = [
        Layout::ByRank,
        Layout::ByExpert { align: 1 },
        Layout::ByExpert { align: 8 },
        Layout::Padded { rows },
        Layout::BySource,
    ];
    form.layout = *random.pick(&layouts);
    let padded = rows * (experts.div_ceil(world) + 1) * hidden;
    if matches!(form.layout, Layout::Padded { .. }) && padded > 1 << 18 {
        form.layout = Layout::ByExpert { align: 4 };
    }
    form.placement = match random.below(3) {
        0 => Placement::Blocks,
        1 => Placement::RoundRobin,
        // Each rank also has a copy of expert 0, if it is not its own.
        _ => {
            let list = |rank: usize| {
                let mut list: Vec<usize> = (0..experts).filter(|expert| expert % world == rank).collect();
                list.extend((rank > 0).then_some(0));
                list
            };
            Placement::Table((0..world).map(list).collect())
        }
    };
    form.determinism = Some(*random.pick(&[Determinism::PerAlgorithm, Determinism::Exact]));
    form
}

/// Random inputs of a rank for a call, from a seed. `room`: rows that its experts may receive.
fn inputs<T: Real + Sample>(form: &ExpertConfig, rank: usize, room: usize, seed: u64) -> Inputs<T> {
    let tokens = Random(mix(seed ^ (rank as u64) << 40)).below(form.max_tokens + 1);
    inputs_of(form, rank, [tokens, room], seed)
}

/// Memory that a dispatch writes or a combine reads.
trait Memory<T: Element>: Sized {
    fn of(rank: &Rank, values: &[T]) -> Self;
    fn values(&self, stream: &Stream) -> Vec<T>;
}

/// A kind of memory.
trait Home {
    type Of<T: Element>: Memory<T>;
}

struct Plain;
impl Home for Plain {
    type Of<T: Element> = DeviceBuffer<T>;
}

/// Peers can address it: with a row a token, rows then go straight to their places and come straight from there.
struct Shared;
impl Home for Shared {
    type Of<T: Element> = SymmetricBuffer<T>;
}

impl<T: Element> Memory<T> for DeviceBuffer<T> {
    fn of(rank: &Rank, values: &[T]) -> Self {
        Self::from_slice(values, &rank.stream).unwrap()
    }
    fn values(&self, stream: &Stream) -> Vec<T> {
        self.read(stream).unwrap()
    }
}

impl<T: Element> Memory<T> for SymmetricBuffer<T> {
    fn of(rank: &Rank, values: &[T]) -> Self {
        let buffer = rank.communicator.symmetric(values.len()).unwrap();
        buffer.write(values, &rank.stream).unwrap();
        buffer
    }
    fn values(&self, stream: &Stream) -> Vec<T> {
        self.read(stream).unwrap()
    }
}

/// How a call is made.
#[derive(Clone, Copy)]
struct How {
    /// In two halves.
    halves: bool,
    /// The caller asks for the sources of rows. Otherwise peers write all metadata of rows by source in symmetric
    /// memory.
    sources: bool,
}

/// One call of a rank. `H`: the kind of memory of the rows, of their metadata, and of results.
fn call<T: Real + Sample, H: Home>(
    rank: &Rank,
    (form, experts): (&ExpertConfig, &Experts),
    own: &Inputs<T>,
    How { halves, sources: asks_sources }: How,
) -> RoutedOutputs<T>
where
    for<'op> &'op H::Of<T>: Operand<'op, T>,
    for<'op> &'op H::Of<u8>: Operand<'op, u8>,
    for<'op> &'op H::Of<f32>: Operand<'op, f32>,
    for<'op> &'op H::Of<i32>: Operand<'op, i32>,
{
    let stream = &rank.stream;
    let RoutedOutputs { rows: patterns, scales, exponents, numbers, ids: ids_before, weights: weights_before, sums } =
        before(form, [experts.capacity(), experts.local_experts().len()], own);
    let ids = DeviceBuffer::from_slice(&own.ids, stream).unwrap();
    let weights = DeviceBuffer::from_slice(own.weights.as_deref().unwrap_or_default(), stream).unwrap();
    let sent = DeviceBuffer::from_slice(&[own.sent as u32], stream).unwrap();
    let mut routing = Routing::new(&ids).tokens(&sent);
    if own.weights.is_some() {
        routing = routing.weights(&weights);
    }
    let rows = DeviceBuffer::from_slice(&own.rows, stream).unwrap();
    let bytes = DeviceBuffer::from_slice(&own.bytes, stream).unwrap();
    let given = DeviceBuffer::from_slice(&own.given_scales, stream).unwrap();
    let into_rows = H::Of::<T>::of(rank, &vec![T::sample(1); experts.capacity() * form.hidden]);
    let into_bytes = H::Of::<u8>::of(rank, if form.wire == Wire::Same { &[] } else { &patterns });
    let into_scales = H::Of::<f32>::of(rank, &scales);
    let into_e8m0 = H::Of::<u8>::of(rank, &exponents);
    let [counts, offsets, sources, index] = numbers.map(|words| DeviceBuffer::from_slice(&words, stream).unwrap());
    let into_ids = H::Of::<i32>::of(rank, &ids_before);
    let into_weights = H::Of::<f32>::of(rank, &weights_before);
    let mut into = match form.wire {
        Wire::Same => Received::rows(&into_rows),
        _ => Received::rows(&into_bytes),
    };
    into = into.ids(&into_ids).weights(&into_weights);
    if asks_sources {
        into = into.sources(&sources);
    }
    if form.layout != Layout::BySource {
        into = into.counts(&counts).offsets(&offsets);
    }
    if form.layout == Layout::ByRank {
        into = into.index(&index);
    }
    into = match form.wire {
        Wire::F8(Scales::E8M0) => into.scales(&into_e8m0, own.order),
        Wire::F8(_) | Wire::GivenF8 => into.scales(&into_scales, own.order),
        _ => into,
    };
    let arriving = halves.then(|| match form.wire {
        Wire::Same | Wire::F8(_) => experts.dispatch_begin(&routing, &rows, stream),
        Wire::GivenF8 => experts.dispatch_f8_begin(&routing, &bytes, &given, stream),
        _ => experts.dispatch_begin(&routing, &bytes, stream),
    });
    let routed = match form.wire {
        _ if halves => arriving.unwrap().and_then(|arriving| arriving.receive(&into, stream)),
        Wire::Same | Wire::F8(_) => experts.dispatch(&routing, &rows, &into, stream),
        Wire::GivenF8 => experts.dispatch_f8(&routing, &bytes, &given, &into, stream),
        _ => experts.dispatch(&routing, &bytes, &into, stream),
    };
    let routed = routed.unwrap();
    // The same rows come once more, the last time to memory of the rank's own.
    let again = form.method != Method::Packets && matches!(form.wire, Wire::Same | Wire::F8(_));
    let own_rows = <Plain as Home>::Of::<T>::of(rank, &vec![T::sample(1); experts.capacity() * form.hidden]);
    let own_bytes = <Plain as Home>::Of::<u8>::of(rank, &patterns);
    let own_ids = <Plain as Home>::Of::<i32>::of(rank, &ids_before);
    let own_weights = <Plain as Home>::Of::<f32>::of(rank, &weights_before);
    if again {
        routed.dispatch(&rows, &into, stream).unwrap();
        let rows_into = match form.wire {
            Wire::Same => Received::rows(&own_rows),
            _ => Received::rows(&own_bytes),
        };
        routed.dispatch(&rows, &rows_into.ids(&own_ids).weights(&own_weights), stream).unwrap();
    }
    let results = H::Of::<T>::of(rank, &own.results);
    let sums = DeviceBuffer::from_slice(&sums, stream).unwrap();
    let options = if own.adds { Combine::default().add(&sums) } else { Combine::default() };
    if halves {
        routed.combine_begin(&results, stream).unwrap().receive(&sums, options, stream).unwrap();
    } else {
        routed.combine(&results, &sums, options, stream).unwrap();
    }
    rank.finish();
    if again {
        assert_eq!(own_ids.values(stream), into_ids.values(stream));
        assert_eq!(own_weights.values(stream), into_weights.values(stream));
    }
    let counts = counts.read(stream).unwrap();
    if form.layout == Layout::BySource {
        let Err(Error::Unsupported { what, .. }) = routed.counts() else { panic!("rows by source were counted") };
        assert_eq!(what, "the counts of a dispatch");
    } else {
        assert_eq!(routed.counts().unwrap(), counts.iter().map(|count| *count as usize).collect::<Vec<_>>());
    }
    RoutedOutputs {
        rows: match form.wire {
            Wire::Same => bytemuck::cast_slice(&into_rows.values(stream)).to_vec(),
            _ => into_bytes.values(stream),
        },
        scales: into_scales.values(stream),
        exponents: into_e8m0.values(stream),
        numbers: [counts, offsets.read(stream).unwrap(), sources.read(stream).unwrap(), index.read(stream).unwrap()],
        ids: into_ids.values(stream),
        weights: into_weights.values(stream),
        sums: sums.read(stream).unwrap(),
    }
}

fn every_method<T: Real + Sample>(world: usize, number: u64) {
    let mut random = Random(mix(world as u64 * 10 + number));
    let forms = (0..6 / one_in(world).min(3)).map(|_| (any(&mut random, T::DTYPE, world), random.next()));
    equal_definition::<T>(world, &forms.collect::<Vec<_>>(), &METHODS);
}

/// Layouts with one row a token, in whole packets except in one wire format, by direct access: symmetric rows go to their places.
fn in_place<T: Real + Sample>(world: usize, layout: Layout) {
    let mut random = Random(mix(world as u64));
    let wires =
        [Wire::Same, Wire::F8(Scales::F32), Wire::F8(Scales::E8M0), Wire::GivenF8, Wire::Bytes(64), Wire::Bytes(20)];
    let forms = wires.map(|wire| {
        let mut form = any(&mut random, T::DTYPE, world);
        (form.layout, form.wire, form.hidden) = (layout, wire, *random.pick(&[16, 144, 304]));
        form.max_tokens = form.max_tokens.min(9);
        (form, random.next())
    });
    equal_definition::<T>(world, &forms, &[Method::Direct]);
}

/// Two calls of each form by each method. With a row a token, the second is all in symmetric memory, some without sources.
fn equal_definition<T: Real + Sample>(world: usize, forms: &[(ExpertConfig, u64)], methods: &[Method]) {
    if !fits(world) {
        return;
    }
    let mut config = config();
    config.heap_bytes = 64 << 20;
    config.check_calls = world.is_multiple_of(2);
    threads(world, &config, |rank| {
        for (form, seed) in forms {
            let me = rank.rank();
            let sizes = [room(form, world, me), experts_of_ranks(form, world)[me].len()];
            let shared = [false, is_by_token(form)];
            let calls = [0, 1].map(|number| {
                let seed = seed ^ number as u64;
                let mut all: Vec<Inputs<T>> =
                    (0..world).map(|rank| inputs(form, rank, room(form, world, rank), seed)).collect();
                if shared[number] {
                    let order = all[0].order;
                    all.iter_mut().for_each(|inputs| inputs.order = order);
                }
                let mut expected = dispatched(form, &all, me, before(form, sizes, &all[me]));
                expected.sums = sums(form, &all, me);
                let sources = !shared[number] || seed.is_multiple_of(3);
                if !sources {
                    expected.numbers[2].fill(7);
                }
                (all, expected, sources)
            });
            for method in methods.iter().copied() {
                let mut form = form.clone();
                form.method = method;
                let experts = rank.communicator.experts(form.clone()).unwrap();
                assert_eq!([experts.capacity(), experts.local_experts().len()], sizes);
                for (number, (all, expected, sources)) in calls.iter().enumerate() {
                    let how = How { halves: method == Method::Packets && number == 1, sources: *sources };
                    let found = match shared[number] {
                        true => call::<T, Shared>(rank, (&form, &experts), &all[me], how),
                        false => call::<T, Plain>(rank, (&form, &experts), &all[me], how),
                    };
                    let context = || format!("rank {me} of {world}, seed {seed}: {form:?}");
                    assert_eq!(found.numbers, expected.numbers, "{}", context());
                    assert_eq!(found.ids, expected.ids, "{}", context());
                    assert!(found.rows == expected.rows, "rows, {}", context());
                    assert_eq!(found.scales, expected.scales, "{}", context());
                    assert_eq!(found.exponents, expected.exponents, "{}", context());
                    assert_eq!(found.weights, expected.weights, "{}", context());
                    assert!(found.sums == expected.sums, "sums, {}", context());
                }
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
            every_method::<f16>($world, 2);
        }
    )*};
}

worlds! {
    every_method_world_1: 1;
    every_method_world_2: 2;
    every_method_world_3: 3;
    every_method_world_5: 5;
    every_method_world_8: 8;
    every_method_world_16: 16;
}

#[test]
fn rows_in_symmetric_memory_go_straight_to_their_places() {
    for (world, layout) in [(2, Layout::ByRank), (2, Layout::BySource), (3, Layout::BySource), (8, Layout::ByRank)] {
        in_place::<bf16>(world, layout);
        in_place::<f32>(world, layout);
    }
}
