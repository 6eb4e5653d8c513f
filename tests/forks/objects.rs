//! Every kind of object: refused in a forked child, where dropping the object harms no process. `tests/source/forks.rs`
//! compares the kinds with the types of the library: the text before `: ` is the type.

use std::time::Instant;

use symmetra::bootstrap::{Bootstrap, Directory, Meeting, Tcp, Threads, UniqueId};
use symmetra::environment::{Coordinator, EnvConfig, Environment, GroupConfig, InitMethod, NamedTensor};
use symmetra::experts::{Combine, ExpertConfig, Layout, Method, Received, Routing};
use symmetra::fused::FusedOptions;
use symmetra::matmul::{self, Multiplier, Numeric, Product};
use symmetra::mixed::{Grid, Mixed, MixedConfig, MixedMode};
use symmetra::{Device, DeviceBuffer, Dtype, Event, HostBuffer, Stream};

use crate::support::process::{Child, Ranks, this};
use crate::support::world::{alone, bounded};
use crate::support::{Rank, config, fits};
use crate::{CHILD, LIMIT, expect_good_end, fork, refused};

/// A copy of an object, as a forked child has one. A call that takes the object drops it.
fn copy<T>(object: &T) -> T {
    // SAFETY: made in a forked child, which ends without the other copy's drop.
    unsafe { std::ptr::read(object) }
}

/// Drops the copies of a forked child, in this order.
macro_rules! drop_copies {
    ($($object:ident)*) => { $(drop(copy(&$object));)* };
}

/// Runs `body` in a forked child of rank 0, and waits for its end.
fn in_child(rank: usize, body: impl FnOnce()) {
    if rank == 0 {
        expect_good_end(fork(body));
    }
}

fn settings() -> GroupConfig {
    let mut settings = GroupConfig::default();
    settings.communicator = config();
    settings
}

/// The objects of a communicator.
fn of_a_communicator(child: &Child) {
    let rank = child.open(&config());
    let Rank { communicator, stream, device } = &rank;
    let group = communicator.group();
    let buffer = communicator.symmetric::<f32>(64).unwrap();
    let slice = buffer.slice(8..16).unwrap();
    let signals = buffer.signals();
    let plain = DeviceBuffer::from_slice(&[1.0f32; 128], stream).unwrap();
    let lent = plain.borrow();
    let mut host = HostBuffer::from_slice(&[1.0f32; 64], device).unwrap();
    // SAFETY: a `DeviceBuffer` that peers can reach stays allocated, also when the handle is dropped.
    let adopted = unsafe { communicator.adopt(plain.borrow()) }.unwrap();
    let part = adopted.slice(..64).unwrap();
    let all = DeviceBuffer::<f32>::new(device, 128).unwrap();
    let bound = communicator.bind_all_reduce(&buffer, &buffer).unwrap();
    let event = Event::new(device).unwrap();
    let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture)).unwrap();
    graph.register().unwrap();
    let spare = [0; 2].map(|_| Stream::new(device).unwrap());
    // SAFETY: nothing is recorded.
    let [capture, empty] = spare.each_ref().map(|stream| unsafe { stream.begin_capture() }.unwrap());
    let native = empty.end().unwrap();
    communicator.reserve_workspace(1 << 10).unwrap();
    let pending = communicator.low_contention_all_gather(&buffer, &all, stream).unwrap();
    communicator.synchronize(stream).unwrap();
    group.barrier().unwrap();
    in_child(child.rank, || {
        refused("Device: new stream", Stream::new(device));
        refused("Stream: synchronize", stream.synchronize());
        refused("Event: done", event.is_done());
        refused("Graph: launch", graph.launch(stream));
        refused("NativeGraph: launch", native.launch(stream));
        refused("NativeCapture: end", copy(&capture).end());
        refused("DeviceBuffer: read", plain.read(stream));
        refused("HostBuffer: elements", copy(&host).elements().map(|_| ()));
        refused("Ref: read", lent.read(stream));
        refused("SymmetricBuffer: call", communicator.all_reduce_in_place(&buffer, stream));
        refused("SymmetricSlice: call", communicator.all_reduce_in_place(slice, stream));
        refused("SignalPad: put", signals.put(1, 0, stream));
        refused("SignalPad: barrier", signals.barrier(0, stream));
        refused("Adopted: call", communicator.all_reduce_in_place(&adopted, stream));
        refused("AdoptedSlice: call", communicator.all_reduce_in_place(part, stream));
        refused("BoundAllReduce: enqueue", bound.enqueue(stream));
        refused("Pending: wait", pending.wait(stream));
        refused("Communicator: split", communicator.split(Some(0), 0));
        refused("Group: barrier", group.barrier());
        communicator.abort();
        refused("Communicator: depart", communicator.clone().depart());
        drop_copies!(pending graph native capture bound adopted all lent plain buffer event rank);
    });
    pending.wait(stream).unwrap();
    graph.launch(stream).unwrap();
    native.launch(stream).unwrap();
    assert_eq!(host.elements().unwrap(), [1.0; 64]);
    capture.end().unwrap().launch(&spare[0]).unwrap();
    bound.enqueue(stream).unwrap();
    communicator.all_reduce_in_place(&adopted, stream).unwrap();
    communicator.synchronize(stream).unwrap();
    drop((pending, graph, bound));
    drop(adopted);
    drop(buffer);
    communicator.clone().close().unwrap();
}

/// Experts, and GEMM plans.
fn of_experts_and_plans(child: &Child) {
    let rank = child.open(&config());
    let Rank { communicator, stream, device } = &rank;
    let mut form = ExpertConfig::new(6, 2, 4, 8);
    (form.dtype, form.method, form.layout) = (Dtype::F32, Method::Packets, Layout::ByExpert { align: 1 });
    let experts = communicator.experts(form).unwrap();
    let ids = DeviceBuffer::from_slice(&[0i32, 1, 2, 3], stream).unwrap();
    let rows = DeviceBuffer::from_slice(&[1.0f32; 8], stream).unwrap();
    let received = DeviceBuffer::<f32>::new(device, experts.capacity() * 4).unwrap();
    let output = DeviceBuffer::<f32>::new(device, 8).unwrap();
    let weights = DeviceBuffer::from_slice(&[0.5f32; 4], stream).unwrap();
    let routing = Routing::new(&ids).weights(&weights);
    let product = Product::new(4, 4, Numeric::F32);
    let options = FusedOptions::default;
    let gather = communicator.plan_all_gather_matmul(&[2, 4], 0, &[product], options()).unwrap();
    let scatter = communicator.plan_matmul_reduce_scatter(&[4, 4], 0, product, options()).unwrap();
    let reduce = communicator.plan_matmul_all_reduce(&[4, 4], product, options()).unwrap();
    let multiplier = Multiplier::new(device).unwrap();
    let [left, right, result] = [(); 3].map(|()| DeviceBuffer::from_slice(&[1.0f32; 16], stream).unwrap());
    let half = DeviceBuffer::from_slice(&[1.0f32; 8], stream).unwrap();
    let tensor = matmul::Tensor::of;
    // Each before another call holds the slot.
    in_child(child.rank, || {
        refused("Experts: dispatch", experts.dispatch(&routing, &rows, &Received::rows(&received), stream));
        drop(copy(&experts));
    });
    let arriving = experts.dispatch_begin(&routing, &rows, stream).unwrap();
    in_child(child.rank, || {
        refused("Arriving: receive", copy(&arriving).receive(&Received::rows(&received), stream));
    });
    let routed = arriving.receive(&Received::rows(&received), stream).unwrap();
    in_child(child.rank, || {
        refused("Routed: combine", routed.combine(&received, &output, Combine::default(), stream));
        drop(copy(&routed));
    });
    let returning = routed.combine_begin(&received, stream).unwrap();
    communicator.synchronize(stream).unwrap();
    in_child(child.rank, || {
        refused("Returning: receive", copy(&returning).receive(&output, Combine::default(), stream));
        let factors = || [tensor(&left), tensor(&right), tensor(&result)];
        refused("Multiplier: enqueue", multiplier.enqueue(&product, 4, factors(), stream));
        let [whole, columns, sums] = factors();
        refused("MatmulAllReduce: enqueue", reduce.enqueue(whole, columns, sums, stream));
        let [whole, columns, sums] = factors();
        refused("MatmulReduceScatter: enqueue", scatter.enqueue(whole, columns, tensor(&half), stream));
        refused("AllGatherMatmul: enqueue", gather.enqueue(tensor(&half), None, [(tensor(&right), sums)], stream));
        drop_copies!(routed experts multiplier reduce scatter gather rank);
    });
    returning.receive(&output, Combine::default(), stream).unwrap();
    drop(routed);
    reduce.enqueue(tensor(&left), tensor(&right), tensor(&result), stream).unwrap();
    communicator.synchronize(stream).unwrap();
    // Of both ranks.
    assert_eq!(result.read(stream).unwrap(), [8.0; 16]);
    drop((experts, gather, scatter, reduce));
    communicator.clone().close().unwrap();
}

/// Groups of an environment, a group alone, and a grid.
fn of_environments(child: &Child) {
    let device = Device::host().unwrap();
    let stream = Stream::new(&device).unwrap();
    let meet = |name: &str| child.meet(name, child.rank, child.world).unwrap();
    let mut configuration = EnvConfig::default();
    (configuration.device, configuration.communicator) = (Some(device.clone()), config());
    configuration.init_method = InitMethod::bootstrap(meet("environment"));
    configuration.tensor_parallel_size = 2;
    let environment = Environment::init(configuration).unwrap();
    let alone = Coordinator::open(meet("alone"), &device, settings()).unwrap();
    let mut grid = Grid::default();
    (grid.local_tensor, grid.local_data) = (Some(2), Some(1));
    let mut configuration = MixedConfig::default();
    (configuration.grid, configuration.most_bytes) = (grid, 4 << 10);
    let mixed = Mixed::open(&alone, &configuration).unwrap();
    let tensor = NamedTensor::new(&device, Dtype::F32, &[4, 2]).unwrap();
    let values = DeviceBuffer::from_slice(&[1.0f32; 8], &stream).unwrap();
    in_child(child.rank, || {
        let tp = environment.tp();
        refused("Coordinator: call", tp.all_reduce_in_place(&values, &stream));
        refused("Coordinator: object", tp.broadcast_object(Some(&1), 0));
        refused("Coordinator: barrier", alone.barrier());
        refused("Coordinator: split", alone.split(Some(0), 0));
        refused("NamedTensor: read", tensor.elements::<f32>().unwrap().read(&stream));
        refused("Mixed: call", mixed.all_reduce(&values, &values, MixedMode::Auto, &stream));
        alone.abort("a forked child is no rank");
        refused("Coordinator: close", alone.clone().close());
        refused("Mixed: close", copy(&mixed).close());
        refused("Environment: close", copy(&environment).close());
        drop_copies!(tensor values alone stream device);
    });
    mixed.all_reduce(&values, &values, MixedMode::Auto, &stream).unwrap();
    environment.tp().all_reduce_in_place(&values, &stream).unwrap();
    environment.tp().synchronize(&stream).unwrap();
    assert_eq!(values.read(&stream).unwrap(), [4.0; 8]);
    mixed.close().unwrap();
    alone.close().unwrap();
    environment.close().unwrap();
}

/// The bootstraps.
fn of_bootstraps(child: &Child) {
    let until = || Instant::now() + CHILD;
    let mut local = child.meet("local", child.rank, child.world).unwrap();
    let own = UniqueId::listen().unwrap();
    let ids = local.all_gather(own.to_string().as_bytes(), until()).unwrap();
    let id = if child.rank == 0 { own } else { std::str::from_utf8(&ids[0]).unwrap().parse().unwrap() };
    let mut tcp = Tcp::from_id(id, child.rank, child.world, until()).unwrap();
    let spare = UniqueId::listen().unwrap();
    let mut threads = Threads::new(1).unwrap().remove(0);
    let directory = Directory::new().unwrap();
    // Made by rank 0, which serves all ranks.
    let ids = [0; 2].map(|_| local.all_gather(&Meeting::id(Some("=lo")).unwrap(), until()).unwrap().swap_remove(0));
    let [id, unused] = ids.map(|id| <[u8; Meeting::ID_BYTES]>::try_from(id).unwrap());
    let mut joined = Meeting::join(&id, child.rank, child.world, b"claim", until()).unwrap();
    in_child(child.rank, || {
        refused("Local: barrier", copy(&local).barrier(until()));
        refused("Tcp: barrier", copy(&tcp).barrier(until()));
        refused("UniqueId: meet", Tcp::from_id(copy(&spare), 0, 2, until()));
        refused("Threads: barrier", copy(&threads).barrier(until()));
        refused("Joined: exchange", copy(&joined).exchange(b"bytes", until()));
        // The child serves ids of its own.
        let own = Meeting::id(Some("=lo")).unwrap();
        assert_eq!(Meeting::join(&own, 0, 1, b"child", until()).unwrap().claims(), [b"child"]);
        let path = directory.path().to_owned();
        drop(copy(&directory));
        assert!(path.exists(), "Directory: the child removed it");
    });
    assert!(directory.path().exists());
    assert_eq!(joined.exchange(b"bytes", until()).unwrap(), [b"bytes"; 2]);
    // The parent goes on serving.
    assert_eq!(Meeting::join(&unused, child.rank, child.world, b"claim", until()).unwrap().claims(), [b"claim"; 2]);
    threads.barrier(until()).unwrap();
    tcp.barrier(until()).unwrap();
    local.barrier(until()).unwrap();
}

/// A group of ranks on two hosts, by name.
#[cfg(feature = "gloo")]
fn between_hosts(child: &Child) {
    let device = Device::host().unwrap();
    let stream = Stream::new(&device).unwrap();
    let mut settings = settings();
    (settings.host, settings.interface) = (Some(format!("host {}", child.rank)), Some("lo".into()));
    let meet = child.meet("hosts", child.rank, child.world).unwrap();
    let group = Coordinator::open(meet, &device, settings).unwrap();
    let values = DeviceBuffer::from_slice(&[1.0f32; 8], &stream).unwrap();
    in_child(child.rank, || {
        refused("Coordinator: call between hosts", group.all_reduce_in_place(&values, &stream));
        refused("Coordinator: object between hosts", group.broadcast_object(Some(&1), 0));
        group.abort("a forked child is no rank");
        refused("Coordinator: close between hosts", group.clone().close());
        drop_copies!(group values stream device);
    });
    group.all_reduce_in_place(&values, &stream).unwrap();
    assert_eq!(values.read(&stream).unwrap(), [2.0; 8]);
    assert_eq!(group.broadcast_object((child.rank == 0).then_some(&7), 0), Ok(7));
    group.close().unwrap();
}

#[test]
fn pitfall_33_every_object_is_refused_in_a_forked_child_and_harms_nobody() {
    const NAME: &str = "objects::pitfall_33_every_object_is_refused_in_a_forked_child_and_harms_nobody";
    type Uses = fn(&Child);
    let kinds: Vec<(&str, Uses)> = vec![
        ("communicator", of_a_communicator),
        ("experts and plans", of_experts_and_plans),
        ("environments", of_environments),
        ("bootstraps", of_bootstraps),
        #[cfg(feature = "gloo")]
        ("between hosts", between_hosts),
    ];
    if let Some(child) = this() {
        return bounded(LIMIT, || {
            let (_, kind) = kinds.iter().find(|(name, _)| *name == child.part).unwrap();
            kind(&child);
            child.say("done");
        });
    }
    for (name, _) in kinds {
        if fits(2) {
            let _alone = alone();
            let ranks = Ranks::start(NAME, 2, name);
            ranks.expect(&[0, 1], "done");
            ranks.finish(&[0, 1]);
        }
    }
}
