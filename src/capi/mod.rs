//! The functions that C++ calls, one for each method of the public headers.
//!
//! Every function that can fail runs under [`report::guard`]: an error becomes text that `cpp/core/error.cc` parses, a
//! panic an internal error. Successful calls allocate only for messages, experts and grids. Others read a field.
//!
//! Invariants, cited by the SAFETY comments of this folder:
//! * *Borrowing*: references and pointers from C++ are to objects that its public classes hold, which live through the
//!   call.
//! * *Keeping*: [`Graph`] owns the objects of this library that a graph uses, and drops them after the graph.
//! * *Caller's duty*: memory given by address, and native streams, live as long as the headers require.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block, unreachable_pub, missing_docs)]

mod bootstrap;
mod capture;
mod collectives;
mod communicator;
mod config;
mod coordinator;
mod copies;
mod device;
mod environment;
mod experts;
mod explain;
mod fused;
mod group;
mod heap;
mod log;
mod matmul;
mod mirror;
mod mixed;
mod named;
mod norm;
mod nvshmem;
mod observe;
mod report;
mod tensor;

use crate::collective::Communicator;
use crate::device::Device;
use crate::environment::{Coordinator, Environment};
use crate::stream::Stream;
use bootstrap::*;
use capture::*;
use collectives::*;
use communicator::*;
use config::*;
use coordinator::*;
use device::*;
use environment::*;
use group::*;
use named::*;
use report::Report;
use tensor::*;

#[cxx::bridge(namespace = "symmetra::core")]
mod bridge {
    /// Mirrors `symmetra::Deadlines`, in milliseconds.
    struct DeadlinesMs {
        open: u64,
        first_use: u64,
        steady: u64,
    }

    /// Mirrors `symmetra::Config`.
    struct Settings {
        deadlines: DeadlinesMs,
        heap_bytes: u64,
        heap_channels: u32,
        one_shot_ll_bytes: u64,
        one_shot_sentinel_bytes: MaybeSize,
        two_shot_ll_bytes: u64,
        two_shot_sentinel_bytes: u64,
        ring_bytes: u64,
        recursive_doubling_bytes: u64,
        pair_bytes: u64,
        determinism: u32,
        transport: u32,
        multicast: u32,
        registrations: u32,
        most_blocks: MaybeSize,
        check_calls: bool,
        guard_bytes: u64,
        silence: bool,
        hold_after_failure: bool,
        graph_mixing: bool,
        timing: bool,
        /// Path of a tuning file; empty: none.
        tuning: String,
    }

    /// Mirrors `std::optional` of a number.
    #[derive(Clone, Copy)]
    struct MaybeSize {
        set: bool,
        value: usize,
    }

    /// Mirrors `std::optional<std::string>`.
    struct MaybeText {
        set: bool,
        value: String,
    }

    /// Mirrors `std::optional<symmetra::QuantisedAllReduce>`.
    struct MaybeQuantised {
        set: bool,
        codec: u32,
        min_bytes: MaybeSize,
        max_bytes: MaybeSize,
    }

    /// Mirrors `symmetra::EnvConfig`.
    struct EnvSettings {
        tensor_parallel_size: usize,
        pipeline_parallel_size: usize,
        data_parallel_size: usize,
        data_parallel_rank: MaybeSize,
        rank: MaybeSize,
        world_size: MaybeSize,
        local_rank: MaybeSize,
        init_method: String,
        /// Null: the default.
        device: *const Device,
        host: MaybeText,
        interface: MaybeText,
        /// The number of a backend.
        backend: MaybeSize,
        quantised: MaybeQuantised,
        communicator: Settings,
    }

    /// Mirrors `symmetra::GroupConfig`.
    struct GroupSettings {
        communicator: Settings,
        host: MaybeText,
        interface: MaybeText,
        /// The number of a backend.
        backend: MaybeSize,
    }

    /// Mirrors `symmetra::Host`.
    struct Machine {
        name: String,
        ranks: Vec<usize>,
    }

    struct Bytes {
        bytes: Vec<u8>,
    }

    /// Mirrors `symmetra::Setting`.
    struct Entry {
        name: String,
        value: String,
        source: String,
    }

    /// Mirrors `std::optional<std::uint32_t>`.
    struct Color {
        set: bool,
        value: u32,
    }

    /// The queue of a call: exactly one is not null.
    #[derive(Clone, Copy)]
    struct Queue {
        stream: *const Stream,
        capture: *const Capture,
    }

    /// Elements from `start` of `tensor`, or `typed` from byte `start`; if null, elements at `address`, maybe `pushed`.
    #[derive(Clone, Copy)]
    struct Operand {
        tensor: *const Tensor,
        address: *mut u8,
        start: usize,
        count: usize,
        dtype: u32,
        typed: bool,
        pushed: bool,
    }

    /// Mirrors `std::optional<symmetra::Operand>`.
    #[derive(Clone, Copy)]
    struct MaybeOperand {
        set: bool,
        operand: Operand,
    }

    /// A tensor, or another value as JSON. Text comes from the program, and may not be UTF-8.
    struct Named {
        name: Vec<u8>,
        is_tensor: bool,
        /// The reason why there is no operand; empty if there is one.
        refusal: String,
        operand: Operand,
        shape: Vec<usize>,
        other: Vec<u8>,
    }

    /// A call of the operation named `operation`, without operands and counts.
    struct Asked<'a> {
        operation: &'a str,
        reduction: u32,
        algorithm: u32,
        codec: u32,
        /// The root, or the distance between ranks.
        parameter: usize,
        has_input: bool,
        has_output: bool,
        /// Whether the operation works along dimension `dim` of a shape.
        along: bool,
        dim: usize,
    }

    /// One message of a batch, or between a pair of ranks.
    struct Message {
        operand: Operand,
        peer: usize,
        sends: bool,
    }

    unsafe extern "C++" {
        include!("symmetra/cpp/core/bridge.hpp");
        include!("symmetra/cpp/core/foreign.hpp");
        include!("symmetra/cpp/core/recorder.hpp");
        include!("symmetra/kernels/args.hpp");

        #[namespace = "symmetra"]
        type Bootstrap = crate::sys::foreign::Bootstrap;
        #[namespace = "symmetra::kernels"]
        type SignalArgs = crate::kernel::args::SignalArgs;
        #[namespace = "symmetra::kernels"]
        type Multicast = crate::kernel::args::Multicast;

        type Recorder;
        fn record(self: Pin<&mut Recorder>, capture: &Capture) -> Result<()>;
    }

    extern "Rust" {
        fn dtype_bytes(dtype: u32) -> Result<usize>;
        fn dtype_name(dtype: u32) -> Result<&'static str>;
        fn reduction_name(reduction: u32) -> Result<&'static str>;
        fn reduction_named(name: &CxxString) -> Result<u32>;
        fn algorithm_name(algorithm: u32) -> Result<&'static str>;
        fn algorithm_named(name: &CxxString) -> Result<u32>;
        fn codec_name(codec: u32) -> Result<&'static str>;
        fn codec_named(name: &CxxString) -> Result<u32>;
        fn settings_default() -> Settings;
        fn settings_small() -> Settings;
        fn required_bytes(world_size: usize, settings: &Settings) -> Result<u64>;
    }

    extern "Rust" {
        #[derive(ExternType)]
        type Device;
        fn device_host() -> Result<Box<Device>>;
        fn device_cuda(ordinal: usize) -> Result<Box<Device>>;
        fn device_hip(ordinal: usize) -> Result<Box<Device>>;
        fn device_count(kind: u32) -> Result<usize>;
        fn device_kind(device: &Device) -> u32;
        fn device_ordinal(device: &Device) -> i32;
        fn device_name(device: &Device) -> Result<String>;
        fn device_synchronize(device: &Device) -> Result<()>;
        type Stream;
        fn stream_new(device: &Device) -> Result<Box<Stream>>;
        unsafe fn stream_borrow(device: &Device, raw: u64) -> Result<Box<Stream>>;
        fn stream_native(stream: &Stream) -> u64;
        fn stream_done(stream: &Stream) -> Result<bool>;
        fn stream_synchronize(stream: &Stream) -> Result<()>;
        type Capture;
        type Graph;
        fn stream_capture(stream: &Stream, recorder: Pin<&mut Recorder>) -> Result<Box<Graph>>;
        fn graph_register(graph: &Graph) -> Result<()>;
        fn graph_launch(graph: &Graph, stream: &Stream) -> Result<()>;
        type NativeCapture;
        unsafe fn capture_begin(stream: &Stream) -> Result<Box<NativeCapture>>;
        fn capture_end(capture: &mut NativeCapture) -> Result<Box<Graph>>;
    }

    extern "Rust" {
        type World;
        type Ready;
        #[cxx_name = "UniqueId"]
        type Id;
        fn world_of_threads(world_size: usize) -> Result<Box<World>>;
        fn world_take(world: &World) -> Result<Box<Ready>>;
        fn ready_local(directory: &CxxString, rank: usize, world_size: usize, timeout_ms: u64) -> Result<Box<Ready>>;
        fn ready_tcp_from_env(timeout_ms: u64) -> Result<Box<Ready>>;
        fn ready_tcp(id: &Id, rank: usize, world_size: usize, timeout_ms: u64) -> Result<Box<Ready>>;
        fn ready_of(bootstrap: UniquePtr<Bootstrap>) -> Result<Box<Ready>>;
        fn ready_rank(ready: &Ready) -> usize;
        fn ready_world_size(ready: &Ready) -> usize;
        fn ready_all_gather(ready: &mut Ready, send: &[u8], receive: &mut [u8], timeout_ms: u64) -> Result<()>;
        fn unique_id_listen() -> Result<Box<Id>>;
        fn unique_id_listen_at(interface: &CxxString) -> Result<Box<Id>>;
        fn unique_id_parse(text: &CxxString) -> Result<Box<Id>>;
        fn unique_id_text(id: &Id) -> Result<String>;
    }

    extern "Rust" {
        #[derive(ExternType)]
        type Communicator;
        type Part;
        fn communicator_open(
            bootstrap: Pin<&mut Bootstrap>,
            device: &Device,
            settings: &Settings,
        ) -> Result<Box<Communicator>>;
        fn communicator_open_ready(
            ready: &mut Ready,
            device: &Device,
            settings: &Settings,
        ) -> Result<Box<Communicator>>;
        fn communicator_split(communicator: &Communicator, color: Color, key: i32) -> Result<Box<Part>>;
        fn part_is_member(part: &Part) -> bool;
        fn part_take(part: &Part) -> Result<Box<Communicator>>;
        fn communicator_again(communicator: &Communicator) -> Box<Communicator>;
        fn communicator_tagged(communicator: &Communicator, tag: u64) -> Box<Communicator>;
        fn communicator_rank(communicator: &Communicator) -> usize;
        fn communicator_world_size(communicator: &Communicator) -> usize;
        fn communicator_device(communicator: &Communicator) -> Box<Device>;
        fn communicator_barrier(communicator: &Communicator) -> Result<()>;
        fn communicator_all_gather(communicator: &Communicator, send: &[u8], receive: &mut [u8]) -> Result<()>;
        fn communicator_synchronize(communicator: &Communicator, stream: &Stream) -> Result<()>;
        fn communicator_leave(communicator: &Communicator, stream: &Stream) -> Result<()>;
        fn communicator_check(communicator: &Communicator) -> Result<()>;
        fn communicator_check_guards(communicator: &Communicator) -> Result<()>;
        fn communicator_abort(communicator: &Communicator);
        fn communicator_abandon(communicator: &Communicator);
        fn communicator_close(communicator: &Communicator) -> Result<()>;
        fn communicator_depart(communicator: &Communicator) -> Result<()>;
        #[derive(ExternType)]
        type GroupHandle;
        fn communicator_group(communicator: &Communicator) -> Box<GroupHandle>;
        fn coordinator_group(coordinator: &Coordinator) -> Box<GroupHandle>;
        unsafe fn run(
            group: &GroupHandle,
            asked: &Asked,
            input: Operand,
            output: Operand,
            first: &[usize],
            second: &[usize],
            queue: Queue,
        ) -> Result<()>;
        unsafe fn run_messages(group: &GroupHandle, messages: &[Message], in_pairs: bool, queue: Queue) -> Result<()>;
        type BoundAllReduce;
        unsafe fn bind(
            group: &GroupHandle,
            asked: &Asked,
            input: Operand,
            output: Operand,
        ) -> Result<Box<BoundAllReduce>>;
        unsafe fn bound_enqueue(bound: &BoundAllReduce, queue: Queue) -> Result<()>;

        type Pending;
        fn reserve_workspace(group: &GroupHandle, bytes: usize) -> Result<()>;
        unsafe fn run_low_contention(
            group: &GroupHandle,
            asked: &Asked,
            input: Operand,
            output: Operand,
            queue: Queue,
        ) -> Result<Box<Pending>>;
        unsafe fn pending_wait(pending: &Pending, queue: Queue) -> Result<()>;
    }

    extern "Rust" {
        type Environment;
        unsafe fn environment_init(settings: &EnvSettings) -> Result<Box<Environment>>;
        unsafe fn environment_init_on(
            bootstrap: Pin<&mut Bootstrap>,
            settings: &EnvSettings,
        ) -> Result<Box<Environment>>;
        unsafe fn environment_init_ready(ready: &mut Ready, settings: &EnvSettings) -> Result<Box<Environment>>;
        unsafe fn environment_init_taking(ready: Box<Ready>, settings: &EnvSettings) -> Result<Box<Environment>>;
        fn environment_hosts(environment: &Environment) -> Vec<Machine>;
        fn environment_settings(environment: &Environment) -> Vec<Entry>;
        fn environment_close(environment: &Environment) -> Result<()>;

        #[derive(ExternType)]
        type Coordinator;
        fn environment_coordinator(environment: &Environment, group: usize) -> Result<Box<Coordinator>>;
        fn coordinator_open(ready: Box<Ready>, device: &Device, settings: &GroupSettings) -> Result<Box<Coordinator>>;
        type CoordinatorPart;
        fn coordinator_split(coordinator: &Coordinator, color: Color, key: i32) -> Result<Box<CoordinatorPart>>;
        fn coordinator_part_is_member(part: &CoordinatorPart) -> bool;
        fn coordinator_part_take(part: &CoordinatorPart) -> Result<Box<Coordinator>>;
        fn coordinator_close(coordinator: &Coordinator) -> Result<()>;
        fn coordinator_depart(coordinator: &Coordinator) -> Result<()>;
        fn coordinator_tagged(coordinator: &Coordinator, tag: u64) -> Box<Coordinator>;
        fn coordinator_name(coordinator: &Coordinator) -> &'static str;
        fn coordinator_rank(coordinator: &Coordinator) -> usize;
        fn coordinator_ranks(coordinator: &Coordinator) -> Vec<usize>;
        fn coordinator_local(coordinator: &Coordinator) -> Box<Communicator>;
        fn coordinator_abort(coordinator: &Coordinator, reason: &str) -> Result<()>;
        fn coordinator_is_local(coordinator: &Coordinator) -> Result<()>;
        fn coordinator_through(coordinator: &Coordinator, backend: u32) -> Result<Box<Coordinator>>;
        fn backend_name(backend: u32) -> Result<&'static str>;
        fn backend_named(name: &CxxString) -> Result<u32>;
        fn coordinator_synchronize(coordinator: &Coordinator, stream: &Stream) -> Result<()>;
        fn coordinator_leave(coordinator: &Coordinator, stream: &Stream) -> Result<()>;
        fn coordinator_check(coordinator: &Coordinator) -> Result<()>;
        fn coordinator_barrier(coordinator: &Coordinator) -> Result<()>;
        fn coordinator_capture(
            coordinator: &Coordinator,
            stream: &Stream,
            recorder: Pin<&mut Recorder>,
        ) -> Result<Box<Graph>>;
        fn coordinator_broadcast(coordinator: &Coordinator, given: bool, bytes: &[u8], root: usize) -> Result<Vec<u8>>;
        fn coordinator_gather(coordinator: &Coordinator, bytes: &[u8], root: usize) -> Result<Vec<Bytes>>;
        type Received;
        unsafe fn coordinator_broadcast_named(
            coordinator: &Coordinator,
            given: bool,
            map: &[Named],
            root: usize,
            stream: &Stream,
        ) -> Result<Box<Received>>;
        fn received_entries(received: &Received) -> Vec<Named>;
        fn received_tensor(received: &Received, index: usize) -> Result<Box<Tensor>>;
    }

    extern "Rust" {
        type Tensor;
        fn tensor_symmetric(communicator: &Communicator, count: usize, dtype: u32) -> Result<Box<Tensor>>;
        unsafe fn tensor_adopt(
            communicator: &Communicator,
            memory: &Operand,
            mapped: bool,
            peers: &[usize],
        ) -> Result<Box<Tensor>>;
        fn tensor_on_device(device: &Device, count: usize, dtype: u32) -> Result<Box<Tensor>>;
        fn tensor_count(tensor: &Tensor) -> usize;
        fn tensor_dtype(tensor: &Tensor) -> u32;
        fn tensor_address(tensor: &Tensor) -> usize;
        fn tensor_is_shared(tensor: &Tensor) -> bool;
        fn tensor_peer_address(tensor: &Tensor, rank: usize) -> Result<usize>;
        fn tensor_peer_table(tensor: &Tensor) -> Result<usize>;
        fn tensor_offset_bytes(tensor: &Tensor) -> Result<u64>;
        fn tensor_multicast(tensor: &Tensor, start: usize) -> Result<Multicast>;
        unsafe fn tensor_write(tensor: &Tensor, values: *const u8, stream: &Stream) -> Result<()>;
        unsafe fn tensor_read(tensor: &Tensor, values: *mut u8, stream: &Stream) -> Result<()>;

        unsafe fn signal_put(tensor: &Tensor, peer: usize, channel: usize, queue: Queue) -> Result<()>;
        unsafe fn signal_wait(tensor: &Tensor, peer: usize, channel: usize, queue: Queue) -> Result<()>;
        unsafe fn signal_barrier(tensor: &Tensor, channel: usize, queue: Queue) -> Result<()>;
        fn signal_view(tensor: &Tensor) -> Result<SignalArgs>;
    }
}
