//! Properties of every layer of experts: exact sums by any number of ranks, experts that return their inputs, several
//! dispatches in flight, operands of every place, special values, and large shapes.

use half::bf16;
use reference::element::Real;
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Backend, Coordinator, EnvConfig, Environment, InitMethod};
use symmetra::experts::{Combine, ExpertConfig, Experts, Layout, Method, Placement, Received, Routing, expert_bytes};
use symmetra::{Determinism, DeviceBuffer, Dtype, Error, Operand, Stream};

use crate::support::data::{Random, Sample, mix};
use crate::support::device::device;
use crate::support::extent::full;
use crate::support::world::meet;
use crate::support::{Rank, config, fits, threads};

const METHODS: [Method; 4] = [Method::Gather, Method::Broadcast, Method::Direct, Method::Packets];

/// The tokens of a rank, their experts and weights. Without weights each is 1.
#[derive(Clone)]
struct Tokens<T> {
    rows: Vec<T>,
    ids: Vec<i32>,
    weights: Option<Vec<f32>>,
}

impl<T: Real + Sample> Tokens<T> {
    /// Any rows, experts and weights, by chance from a seed; a few pairs have no expert.
    fn any(form: &ExpertConfig, tokens: usize, seed: u64) -> Self {
        let mut random = Random(mix(seed));
        let pairs = tokens * form.top_k;
        let mut id = || if random.below(8) == 0 { -1 } else { random.below(form.experts) as i32 };
        let ids = (0..pairs).map(|_| id()).collect();
        let weights = (0..pairs).map(|_| random.below(1000) as f32 / 999.0 - 0.25).collect();
        let rows = (0..tokens * form.hidden).map(|_| T::sample(random.next())).collect();
        Self { rows, ids, weights: Some(weights) }
    }

    /// Some of the tokens.
    fn part(&self, form: &ExpertConfig, tokens: std::ops::Range<usize>) -> Self {
        let of = |each: usize| tokens.start * each..tokens.end * each;
        Self {
            rows: self.rows[of(form.hidden)].to_vec(),
            ids: self.ids[of(form.top_k)].to_vec(),
            weights: self.weights.as_ref().map(|weights| weights[of(form.top_k)].to_vec()),
        }
    }

    /// The exact sums, where `apply` computes the result of an expert for a row.
    fn exact(&self, form: &ExpertConfig, apply: impl Fn(usize, &[T]) -> Vec<T>) -> Vec<T> {
        let token = |(token, row): (usize, &[T])| {
            let mut sums = vec![0f32; form.hidden];
            for pair in token * form.top_k..(token + 1) * form.top_k {
                let Ok(expert) = usize::try_from(self.ids[pair]) else { continue };
                let weight = self.weights.as_ref().map_or(1.0, |weights| weights[pair]);
                sums.iter_mut().zip(apply(expert, row)).for_each(|(sum, result)| *sum += result.single() * weight);
            }
            sums.into_iter().map(T::of_single).collect::<Vec<_>>()
        };
        self.rows.chunks_exact(form.hidden).enumerate().flat_map(token).collect()
    }
}

/// The combined rows for the tokens of this rank, whose experts are applied on the host.
fn round_trip<T: Real + Sample>(
    (experts, stream): (&Experts, &Stream),
    tokens: &Tokens<T>,
    options: Combine<'_>,
    finish: impl Fn(),
    apply: impl Fn(usize, &[T]) -> Vec<T>,
) -> Vec<T> {
    let (hidden, own) = (experts.config().hidden, experts.local_experts());
    let rows = DeviceBuffer::from_slice(&tokens.rows, stream).unwrap();
    let ids = DeviceBuffer::from_slice(&tokens.ids, stream).unwrap();
    let weights = DeviceBuffer::from_slice(tokens.weights.as_deref().unwrap_or_default(), stream).unwrap();
    let received = DeviceBuffer::from_slice(&vec![T::of_single(7.0); experts.capacity() * hidden], stream).unwrap();
    let locals = DeviceBuffer::from_slice(&vec![-1i32; experts.capacity()], stream).unwrap();
    let output = DeviceBuffer::from_slice(&vec![T::of_single(7.0); tokens.rows.len()], stream).unwrap();
    let mut routing = Routing::new(&ids);
    if tokens.weights.is_some() {
        routing = routing.weights(&weights);
    }
    let routed = experts.dispatch(&routing, &rows, &Received::rows(&received).ids(&locals), stream).unwrap();
    finish();
    let mut results = received.read(stream).unwrap();
    for (row, local) in results.chunks_exact_mut(hidden).zip(locals.read(stream).unwrap()) {
        if let Ok(local) = usize::try_from(local) {
            row.copy_from_slice(&apply(own[local], row));
        }
    }
    received.write(&results, stream).unwrap();
    routed.combine(&received, &output, options, stream).unwrap();
    finish();
    output.read(stream).unwrap()
}

fn identity<T: Real + Sample>(_: usize, row: &[T]) -> Vec<T> {
    row.to_vec()
}

/// Results that depend on the expert.
fn scaled(expert: usize, row: &[bf16]) -> Vec<bf16> {
    let factor = |at: usize| f32::sample(mix((expert << 16 | at) as u64));
    row.iter().enumerate().map(|(at, value)| bf16::of_single(value.single() * factor(at))).collect()
}

fn bits<T: Real + Sample>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

fn exact(experts: usize, top_k: usize, hidden: usize, max_tokens: usize) -> ExpertConfig {
    let mut form = ExpertConfig::new(experts, top_k, hidden, max_tokens);
    (form.layout, form.determinism) = (Layout::ByExpert { align: 1 }, Some(Determinism::Exact));
    form
}

/// One batch, cut among the ranks, whose sums have the same bits everywhere.
#[test]
fn exact_sums_depend_on_neither_the_world_nor_the_placement() {
    const TOKENS: usize = 10;
    let mut form = exact(7, 3, 9, TOKENS);
    let batch = Tokens::<bf16>::any(&form, TOKENS, 5);
    let right = bits(&batch.exact(&form, scaled));
    let methods: &[Method] = if full() { &METHODS } else { &[Method::Direct, Method::Packets] };
    for world in 1..=4 {
        // Every rank has a copy of expert 3.
        let copies = |rank: usize| (0..7).rev().filter(|expert| expert % world == rank || *expert == 3).collect();
        let placements = [Placement::Blocks, Placement::RoundRobin, Placement::Table((0..world).map(copies).collect())];
        for placement in placements {
            form.placement = placement;
            for method in methods {
                form.method = *method;
                let parts = threads(world, &config(), |rank| {
                    let experts = rank.communicator.experts(form.clone()).unwrap();
                    let cut = |rank: usize| rank * TOKENS / world;
                    let own = batch.part(&form, cut(rank.rank())..cut(rank.rank() + 1));
                    let context = (&experts, &rank.stream);
                    bits(&round_trip(context, &own, Combine::default(), || rank.finish(), scaled))
                });
                if fits(world) {
                    assert_eq!(parts.concat(), right, "{world} ranks, {form:?}");
                }
            }
        }
    }
}

/// n experts of a token, each with weight 1/n, that return the token.
#[test]
fn experts_that_give_back_what_they_get_give_the_tokens_back() {
    threads(3, &config(), |rank| {
        for method in METHODS {
            for (determinism, live) in [(Determinism::Exact, [0, 1, 3, 5]), (Determinism::PerAlgorithm, [0, 1, 2, 4])] {
                let mut form = exact(8, 5, 11, 4);
                (form.method, form.determinism) = (method, Some(determinism));
                form.layout = Layout::Padded { rows: 3 * 4 * 5 };
                let experts = rank.communicator.experts(form.clone()).unwrap();
                // One rank has no tokens.
                let count = if rank.rank() == 1 { 0 } else { live.len() };
                let mut tokens = Tokens::<bf16>::any(&form, count, rank.rank() as u64);
                let mut weights = vec![0.0; tokens.ids.len()];
                for (token, live) in live.into_iter().take(count).enumerate() {
                    for k in 0..5 {
                        // Places without an expert are among the others.
                        let (pair, goes) = (token * 5 + k, (k + token) % 5 < live);
                        tokens.ids[pair] = if goes { (token * 3 + k * 2 + rank.rank()) as i32 % 8 } else { -1 };
                        weights[pair] = 1.0 / live.max(1) as f32;
                    }
                }
                tokens.weights = Some(weights);
                let mut right = tokens.rows.clone();
                right[..count.min(1) * 11].fill(bf16::ZERO);
                let context = (&experts, &rank.stream);
                let found = round_trip(context, &tokens, Combine::default(), || rank.finish(), identity);
                assert_eq!(bits(&found), bits(&right), "{method:?}, {determinism:?}");
            }
        }
    });
}

#[test]
fn a_combine_without_weights_adds_results_as_they_are() {
    threads(2, &config(), |rank| {
        for method in METHODS {
            let mut form = exact(5, 3, 6, 4);
            form.method = method;
            let experts = rank.communicator.experts(form.clone()).unwrap();
            let given = Tokens::<bf16>::any(&form, 4, rank.rank() as u64);
            let without = Tokens { weights: None, ..given.clone() };
            let right = bits(&without.exact(&form, scaled));
            assert_ne!(right, bits(&given.exact(&form, scaled)));
            for (tokens, options) in [(&given, Combine::default().unweighted()), (&without, Combine::default())] {
                let found = round_trip((&experts, &rank.stream), tokens, options, || rank.finish(), scaled);
                assert_eq!(bits(&found), right, "{method:?}");
            }
        }
    });
}

/// Three dispatches with different routings, combined in another order and again.
#[test]
fn three_dispatches_in_flight_keep_their_routings() {
    threads(2, &config(), |rank| {
        let stream = &rank.stream;
        for method in METHODS {
            let mut form = exact(6, 2, 5, 4);
            (form.method, form.in_flight) = (method, 3);
            let experts = rank.communicator.experts(form.clone()).unwrap();
            let tokens = [4, 0, 3].map(|count| Tokens::<bf16>::any(&form, count, (rank.rank() * 8 + count) as u64));
            let room = experts.capacity() * 5;
            let memory = tokens.each_ref().map(|tokens| {
                let rows = DeviceBuffer::from_slice(&tokens.rows, stream).unwrap();
                let ids = DeviceBuffer::from_slice(&tokens.ids, stream).unwrap();
                let weights = DeviceBuffer::from_slice(tokens.weights.as_deref().unwrap(), stream).unwrap();
                let received = DeviceBuffer::<bf16>::new(&rank.device, room).unwrap();
                let output = DeviceBuffer::<bf16>::new(&rank.device, tokens.rows.len()).unwrap();
                (rows, ids, weights, received, output)
            });
            let dispatch = |number: usize| {
                let (rows, ids, weights, received, _) = &memory[number];
                experts.dispatch(&Routing::new(ids).weights(weights), rows, &Received::rows(received), stream)
            };
            let mut held = Vec::from([0, 1, 2].map(|number| dispatch(number).unwrap()));
            match dispatch(0) {
                Err(Error::Unsupported { reason, .. }) => assert!(reason.contains("3 of 3 slots"), "{reason}"),
                other => panic!("{other:?}"),
            }
            let combine = |number: usize, routed: &symmetra::experts::Routed<'_>| {
                let (.., received, output) = &memory[number];
                output.write(&vec![bf16::ONE; output.len()], stream).unwrap();
                routed.combine(received, output, Combine::default(), stream).unwrap();
                rank.finish();
                let right = bits(&tokens[number].exact(&form, identity));
                assert_eq!(bits(&output.read(stream).unwrap()), right, "{method:?}, dispatch {number}");
            };
            [2, 0, 1, 2].into_iter().for_each(|number| combine(number, &held[number]));
            // The slot that comes free serves the next dispatch, while the other slots are held.
            drop(held.swap_remove(0));
            let again = dispatch(0).unwrap();
            combine(1, &held[1]);
            combine(0, &again);
        }
    });
}

/// More experts, experts of a token and elements than kernels take at once.
#[test]
fn a_thousand_experts_of_which_a_token_has_64() {
    let methods: &[Method] = if full() { &METHODS } else { &[Method::Direct, Method::Packets] };
    for method in methods {
        let mut form = exact(1000, 64, 2880, 2);
        form.method = *method;
        let mut config = config();
        config.heap_bytes = (1 << 20) + expert_bytes(2, &config, &form).unwrap();
        threads(2, &config, |rank| {
            let experts = rank.communicator.experts(form.clone()).unwrap();
            let mut tokens = Tokens::<bf16>::any(&form, 2 - rank.rank(), rank.rank() as u64);
            // Different experts all over the range.
            tokens.ids.iter_mut().enumerate().for_each(|(pair, id)| *id = (pair * 617 % 1000) as i32);
            let right = bits(&tokens.exact(&form, identity));
            let context = (&experts, &rank.stream);
            let found = round_trip(context, &tokens, Combine::default(), || rank.finish(), identity);
            assert!(bits(&found) == right, "{method:?}");
        });
    }
}

/// A round trip with identity experts, from and to operands of any place. Returns when the device is done.
fn passed<'op>(
    rank: &Rank,
    experts: &Experts,
    routing: &Routing<'op>,
    [rows, received, output]: [impl Operand<'op, bf16> + Clone; 3],
) {
    let routed = experts.dispatch(routing, rows, &Received::rows(received.clone()), &rank.stream).unwrap();
    routed.combine(received, output, Combine::default(), &rank.stream).unwrap();
    rank.finish();
}

#[test]
fn operands_are_unaligned_and_symmetric() {
    threads(2, &config(), |rank| {
        let (stream, device) = (&rank.stream, &rank.device);
        for method in METHODS {
            for hidden in [7, 64] {
                let mut form = exact(4, 2, hidden, 5);
                form.method = method;
                let experts = rank.communicator.experts(form.clone()).unwrap();
                let tokens = Tokens::<bf16>::any(&form, 5, rank.rank() as u64);
                let ids = DeviceBuffer::from_slice(&tokens.ids, stream).unwrap();
                let weights = DeviceBuffer::from_slice(tokens.weights.as_deref().unwrap(), stream).unwrap();
                let routing = Routing::new(&ids).weights(&weights);
                let right = bits(&tokens.exact(&form, identity));
                let room = [tokens.rows.len(), experts.capacity() * hidden, tokens.rows.len()];
                for skipped in [0, 1, 3] {
                    let context = format!("{method:?}, {hidden} elements, {skipped} before them");
                    let shifted = |values: &[bf16]| [&vec![bf16::ONE; skipped][..], values].concat();

                    let plain = room.map(|room| DeviceBuffer::<bf16>::new(device, skipped + room).unwrap());
                    plain[0].write(&shifted(&tokens.rows), stream).unwrap();
                    let parts = plain.each_ref().map(|buffer| buffer.borrow().slice(skipped..).unwrap());
                    passed(rank, &experts, &routing, parts);
                    assert_eq!(bits(&plain[2].read(stream).unwrap()[skipped..]), right, "plain, {context}");

                    let symmetric = room.map(|room| rank.communicator.symmetric::<bf16>(skipped + room).unwrap());
                    symmetric[0].write(&shifted(&tokens.rows), stream).unwrap();
                    let parts = symmetric.each_ref().map(|buffer| buffer.slice(skipped..).unwrap());
                    passed(rank, &experts, &routing, parts);
                    assert_eq!(bits(&symmetric[2].read(stream).unwrap()[skipped..]), right, "symmetric, {context}");
                }
            }
        }
    });
}

/// Infinities, NaNs, zeros, denormals, and the words that mean "not arrived" in packets.
#[test]
fn special_values_travel_and_are_summed() {
    const SPECIAL: [u32; 9] =
        [!0, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFFF_0000, 0x8000_0000, 1, 0x7F7F_7F7F, 0x7FFF_FFFF];
    let value = |source: usize, token: usize, h: usize| {
        let place = source * 1009 + token * 31 + h;
        f32::from_bits(if place.is_multiple_of(3) { mix(place as u64) as u32 } else { SPECIAL[place / 3 % 9] })
    };
    let hidden = 21;
    let same = |found: f32, right: f32, method: Method| match method {
        Method::Packets => found.to_bits() == right.to_bits() || found.is_nan() && right.is_nan(),
        _ => found.to_bits() == right.to_bits(),
    };
    threads(3, &config(), |rank| {
        for method in METHODS {
            let mut form = exact(3, 1, hidden, 6);
            (form.method, form.dtype) = (method, Dtype::F32);
            let experts = rank.communicator.experts(form).unwrap();
            let (stream, me) = (&rank.stream, rank.rank());
            let own: Vec<f32> = (0..6).flat_map(|token| (0..hidden).map(move |h| value(me, token, h))).collect();
            let rows = DeviceBuffer::from_slice(&own, stream).unwrap();
            let ids: Vec<i32> = (0..6).map(|token| (token + me as i32) % 3).collect();
            let ids = DeviceBuffer::from_slice(&ids, stream).unwrap();
            let sources = DeviceBuffer::<u32>::new(&rank.device, experts.capacity() * 2).unwrap();
            let received = DeviceBuffer::<f32>::new(&rank.device, experts.capacity() * hidden).unwrap();
            let output = DeviceBuffer::<f32>::new(&rank.device, own.len()).unwrap();
            let into = Received::rows(&received).sources(&sources);
            let routed = experts.dispatch(&Routing::new(&ids), &rows, &into, stream).unwrap();
            routed.combine(&received, &output, Combine::default(), stream).unwrap();
            rank.finish();
            let count: usize = routed.counts().unwrap().iter().sum();
            assert_eq!(count, 6);
            let (received, sources) = (received.read(stream).unwrap(), sources.read(stream).unwrap());
            for (place, found) in received[..count * hidden].iter().enumerate() {
                let (source, token) = (sources[place / hidden * 2] as usize, sources[place / hidden * 2 + 1] as usize);
                let right = value(source, token, place % hidden);
                assert!(same(*found, right, method), "{method:?}, {place}: {found:?}, not {right:?}");
            }
            // A sum begins at +0, and which NaN it is is open.
            for (found, right) in output.read(stream).unwrap().into_iter().zip(&own) {
                assert!(found == *right || found.is_nan() && right.is_nan(), "{method:?}: {found:?}, not {right:?}");
            }
        }
    });
}

/// The settings of a rank of a group of one host, or of as many hosts as `host` names.
fn settings(bootstrap: Threads, world: usize, host: Option<String>) -> EnvConfig {
    let mut environment = EnvConfig::default();
    environment.device = Some(device(bootstrap.rank()));
    environment.host = host;
    environment.interface = Some("127.0.0.1".to_owned());
    environment.init_method = InitMethod::bootstrap(bootstrap);
    environment.tensor_parallel_size = world;
    environment.communicator = config();
    environment
}

/// Opens experts of a group, and checks the sums of a few dispatches bit for bit. `serves`: the method that serves `asked`.
fn serve(group: &Coordinator, form: &ExpertConfig, [asked, serves]: [Method; 2]) {
    let stream = Stream::new(group.device()).unwrap();
    let tokens = Tokens::<bf16>::any(form, 4 - group.rank(), group.rank() as u64);
    let right = bits(&tokens.exact(form, scaled));
    let mut form = form.clone();
    (form.method, form.in_flight) = (asked, 2);
    let experts = group.experts(form).unwrap();
    assert_eq!(experts.method(), serves);
    for _ in 0..3 {
        let finish = || group.synchronize(&stream).unwrap();
        let found = round_trip((&experts, &stream), &tokens, Combine::default(), finish, scaled);
        assert_eq!(bits(&found), right, "{serves:?}");
    }
}

/// Experts of a group through a backend that is not own kernels, which two methods serve.
fn serve_through(group: &Coordinator, form: &ExpertConfig) {
    serve(group, form, [Method::Auto, Method::Gather]);
    serve(group, form, [Method::Broadcast; 2]);
    for method in [Method::Direct, Method::Packets] {
        let mut form = form.clone();
        form.method = method;
        match group.experts(form).map(drop) {
            Err(Error::Unsupported { reason, .. }) => assert!(reason.contains("own kernels"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Experts of a coordinator, by own kernels and, with feature `gloo`, through the CPU.
#[test]
fn experts_of_a_coordinator_serve_through_every_backend() {
    let form = exact(5, 2, 6, 4);
    meet(3, |bootstrap| {
        let environment = Environment::init(settings(bootstrap, 3, None)).unwrap();
        let group = environment.ep();
        serve(group, &form, [Method::Auto, Method::Packets]);
        METHODS.into_iter().for_each(|method| serve(group, &form, [method; 2]));
        if cfg!(feature = "gloo") {
            serve_through(&group.through(Backend::Host).unwrap(), &form);
        }
        environment.close().unwrap();
    });
}

/// Experts of a coordinator through NCCL, where GPUs and the library are.
#[cfg(feature = "nccl")]
#[test]
fn experts_serve_through_nccl() {
    if crate::support::lacks_nccl() {
        return;
    }
    let form = exact(5, 2, 6, 4);
    meet(2, |bootstrap| {
        let environment = Environment::init(settings(bootstrap, 2, None)).unwrap();
        serve_through(&environment.ep().through(Backend::Nccl).unwrap(), &form);
        environment.close().unwrap();
    });
}

/// Experts of a group of two hosts, by name. Rows and results go through the CPU.
#[cfg(feature = "gloo")]
#[test]
fn experts_serve_between_hosts() {
    let form = exact(5, 2, 6, 4);
    meet(4, |bootstrap| {
        let host = format!("host-{}", bootstrap.rank() / 2);
        let environment = Environment::init(settings(bootstrap, 4, Some(host))).unwrap();
        assert_eq!(environment.hosts().count(), 2);
        serve(environment.ep(), &form, [Method::Auto, Method::Gather]);
        serve(environment.ep(), &form, [Method::Broadcast; 2]);
        environment.close().unwrap();
    });
}
