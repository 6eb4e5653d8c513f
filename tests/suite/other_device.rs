//! Streams and events of another device than the communicator's: every call that takes one refuses it, before anything is
//! enqueued or awaited, and the ranks go on.

use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::experts::{Combine, Method, Placement, Received};
use symmetra::fused::FusedOptions;
use symmetra::matmul::{Numeric, Product, Tensor};
use symmetra::mixed::{Mixed, MixedConfig, MixedMode, MixedOperation};
use symmetra::{Device, DeviceBuffer, DeviceKind, Error, Event, Result, Stream};

use crate::expert_errors::{Operands, small};
use crate::support::world::meet;
use crate::support::{config, fits, is_host, threads};

/// A stream of a device that no rank works on.
fn elsewhere() -> Stream {
    Stream::new(&Device::host().unwrap()).unwrap()
}

fn refused<R>(what: &str, result: Result<R>) {
    let error = result.map(drop).expect_err(what);
    let message = error.to_string();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{what}: {message}");
    assert!(message.contains("the stream's device"), "{what}: {message}");
}

/// A GPU on machines with one, and elsewhere an error that names the reason.
#[test]
fn the_current_device_is_a_gpu() {
    let gpus = Device::count(DeviceKind::Cuda) + Device::count(DeviceKind::Hip);
    match Device::current() {
        Ok(device) => assert!(device.kind() != DeviceKind::Host && device.ordinal() == 0 && gpus > 0, "{device:?}"),
        Err(error) => {
            let reason = if cfg!(feature = "cuda") { "no GPU is visible" } else { "features `cuda` and `hip`" };
            assert!(gpus == 0 && matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}

#[test]
fn calls_of_a_communicator_refuse_streams_of_another_device() {
    threads(2, &config(), |rank| {
        let (communicator, far) = (&rank.communicator, elsewhere());
        let plain = DeviceBuffer::from_slice(&[1.0f32; 8], &rank.stream).unwrap();
        let whole = DeviceBuffer::<f32>::new(&rank.device, 16).unwrap();
        let symmetric = communicator.symmetric::<f32>(8).unwrap();
        refused("synchronize", communicator.synchronize(&far));
        refused("leave", communicator.leave(&far));
        refused("an all-reduce", communicator.all_reduce_in_place(&plain, &far));
        refused("an empty all-reduce", communicator.all_reduce_in_place(plain.borrow().slice(0..0).unwrap(), &far));
        refused("an all-gather", communicator.all_gather(&plain, &whole, &far));
        refused("messages of pairs", communicator.pairs(&far, |_| Ok(())));
        refused("a batch", communicator.batch(&far, |_| Ok(())));
        refused("a copy to a peer", communicator.put(&plain, &symmetric, 0, &far));
        refused("a signal", symmetric.signals().barrier(0, &far));
        refused("a heap", communicator.heap(&far));
        refused("a bound all-reduce", communicator.bind_all_reduce(&plain, &plain).unwrap().enqueue(&far));
        refused("a write", plain.write(&[0.0; 8], &far));
        refused("a read", plain.read(&far));
        refused("a write to symmetric memory", symmetric.write(&[0.0; 8], &far));
        refused("a read of symmetric memory", symmetric.read(&far));
        refused("an all-gather by copy engines", communicator.low_contention_all_gather(&plain, &whole, &far));
        let pending = communicator.low_contention_all_gather(&plain, &whole, &rank.stream).unwrap();
        refused("a wait for copy engines", pending.wait(&far));
        pending.wait(&rank.stream).unwrap();
        let graph = rank.stream.capture(|capture| communicator.all_reduce_in_place(&symmetric, capture)).unwrap();
        communicator.group().barrier().unwrap();
        refused("a launch of a graph", graph.launch(&far));
        // The last stream of the order is the communicator's own.
        graph.launch(&rank.stream).unwrap();
        communicator.all_reduce_in_place(&plain, &rank.stream).unwrap();
        rank.finish();
        assert_eq!(plain.read(&rank.stream).unwrap(), [2.0; 8]);
    });
}

#[test]
fn events_of_another_device_are_refused() {
    threads(1, &config(), |rank| {
        let far = elsewhere();
        let event = Event::new(&rank.device).unwrap();
        let error = far.record(&event).unwrap_err();
        assert!(error.to_string().contains("the event's device"), "{error}");
        rank.stream.record(&event).unwrap();
        let other = Event::new(far.device()).unwrap();
        far.record(&other).unwrap();
        if !is_host() {
            // Events of another runtime are laid out otherwise.
            let found = [far.wait(&event), rank.stream.wait(&other), event.elapsed_us(&other).map(drop)];
            for error in found.map(Result::unwrap_err) {
                assert!(error.to_string().contains("the kind of the event's device"), "{error}");
            }
        }
        rank.finish();
        assert_eq!(event.is_done(), Ok(true));
    });
}

#[test]
fn experts_refuse_streams_of_another_device() {
    threads(2, &config(), |rank| {
        let far = elsewhere();
        for method in [Method::Gather, Method::Direct, Method::Packets] {
            let experts = rank.communicator.experts(small(method)).unwrap();
            let operands = Operands::new(rank, &experts, &[0, 1, 2, 3]);
            let into = Received::rows(&operands.received);
            refused("synchronize", experts.synchronize(&far));
            refused("a dispatch", experts.dispatch(&operands.routing(), &operands.rows, &into, &far));
            let placement = Placement::Blocks;
            refused("a placement", experts.place(&placement, &far));
            experts.place(&placement, &rank.stream).unwrap();
            let routed = experts.dispatch(&operands.routing(), &operands.rows, &into, &rank.stream).unwrap();
            refused("a combine", routed.combine(&operands.received, &operands.output, Combine::default(), &far));
            routed.combine(&operands.received, &operands.output, Combine::default(), &rank.stream).unwrap();
            drop(routed);
            rank.finish();
        }
    });
}

#[test]
fn plans_refuse_streams_of_another_device() {
    threads(2, &config(), |rank| {
        let far = elsewhere();
        let product = Product::new(4, 2, Numeric::F32);
        let plan = rank.communicator.plan_matmul_all_reduce(&[2, 4], product, FusedOptions::default()).unwrap();
        let [left, right, result] =
            [8, 8, 4].map(|len| DeviceBuffer::from_slice(&vec![1.0f32; len], &rank.stream).unwrap());
        let run = |stream: &Stream| plan.enqueue(Tensor::of(&left), Tensor::of(&right), Tensor::of(&result), stream);
        refused("a plan", run(&far));
        run(&rank.stream).unwrap();
        rank.finish();
        assert_eq!(result.read(&rank.stream).unwrap(), [8.0; 4]);
    });
}

#[test]
fn coordinators_and_grids_refuse_streams_of_another_device() {
    if !fits(2) {
        return;
    }
    meet(2, |bootstrap| {
        let device = crate::support::device::device(symmetra::bootstrap::Bootstrap::rank(&bootstrap));
        let mut settings = GroupConfig::default();
        settings.communicator = config();
        let group = Coordinator::open(bootstrap, &device, settings).unwrap();
        let (far, stream) = (elsewhere(), Stream::new(&device).unwrap());
        let mixed = Mixed::open(&group, &MixedConfig::default()).unwrap();
        let buffer = DeviceBuffer::from_slice(&[1.0f32; 8], &stream).unwrap();
        let none = DeviceBuffer::<f32>::new(&device, 0).unwrap();
        refused("synchronize", group.synchronize(&far));
        refused("leave", group.leave(&far));
        refused("an all-reduce", group.all_reduce_in_place(&buffer, &far));
        refused("synchronize of a grid", mixed.synchronize(&far));
        for x in [&buffer, &none] {
            refused("a call of a grid", mixed.perform(MixedOperation::AllReduce, x, x, MixedMode::Auto, &far));
        }
        mixed.all_reduce(&buffer, &buffer, MixedMode::Auto, &stream).unwrap();
        mixed.synchronize(&stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [2.0; 8]);
        mixed.close().unwrap();
        group.close().unwrap();
    });
}
