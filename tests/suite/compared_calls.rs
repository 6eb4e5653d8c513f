//! The comparison of calls beyond operation, type and size: the offsets of operands that peers access, and the caller's
//! tags.

use std::time::{Duration, Instant};

use symmetra::environment::{Coordinator, GroupConfig};
use symmetra::experts::{Combine, Method, Received};
use symmetra::{Config, DeviceBuffer, Error, Result, Stream};

use crate::differing_calls::{Memory, PLACED, THREADED};
use crate::expert_errors::{Operands, small};
use crate::support::world::{Gate, meet, open};
use crate::support::{Rank, config, is_host};

/// Elements of a rank's part of a small message.
const SMALL: usize = 64;

/// Elements of a rank's part of a large message, whose operands peers access: GPUs send up to 4 MiB as packets.
fn large() -> usize {
    if is_host() { 1 << 18 } else { 1 << 22 }
}

fn checked(check_calls: bool) -> Config {
    let mut config = config();
    config.check_calls = check_calls;
    config.heap_bytes = 64 << 20;
    let limit = Duration::from_secs(20);
    (config.deadlines.first_use, config.deadlines.steady) = (limit, limit);
    config
}

/// The error that a rank learns of after it made its calls. No deadline of `checked` is as long as this wait.
fn failure(made: Result<()>, synchronize: impl Fn() -> Result<()>) -> Error {
    let start = Instant::now();
    let mut result = made;
    loop {
        match result {
            Ok(()) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return error,
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the calls differ, and no rank found it in 60 s");
        result = synchronize();
    }
}

/// Both offsets are named with their operand. Small messages are compared where the ranks compare every call.
#[test]
fn pitfall_04_operands_at_other_offsets_are_named_with_both() {
    for (what, operand, call) in PLACED {
        for (check_calls, count) in [(true, SMALL), (true, large()), (false, large())] {
            let gate = Gate::new(2);
            meet(2, |bootstrap| {
                let rank = open(bootstrap, &checked(check_calls)).unwrap();
                let Rank { communicator, stream, device } = &rank;
                let symmetric = communicator.symmetric(2 * large() + 64).unwrap();
                let memory = Memory { symmetric, plain: DeviceBuffer::new(device, 2 * large()).unwrap() };
                // Equal places first, which are no error.
                call(communicator, stream, &memory, [16, count]).unwrap();
                rank.finish();
                let made = call(communicator, stream, &memory, [if rank.rank() == 1 { 32 } else { 16 }, count]);
                let error = failure(made, || communicator.synchronize(stream));
                let message = format!("{what} of {count}, check_calls {check_calls}: {error}");
                let Error::Mismatch { ours, theirs, .. } = &error else { panic!("{message}") };
                let offset = |words: &str| -> u64 {
                    let (_, offset) =
                        words.split_once(&format!("{operand} at offset ")).unwrap_or_else(|| panic!("{message}"));
                    offset.split([',', ';']).next().unwrap().parse().unwrap()
                };
                assert_eq!(offset(ours).abs_diff(offset(theirs)), 64, "{message}");
                gate.pass();
            });
        }
    }
}

/// Two threads call side by side, here in turn: rank 1 makes the second thread's call first. All calls are alike but for the
/// tags of the threads.
#[test]
fn calls_of_two_threads_in_another_order_are_found_by_their_tags() {
    for (what, call) in THREADED {
        for check_calls in [true, false] {
            let gate = Gate::new(2);
            meet(2, |bootstrap| {
                let rank = open(bootstrap, &checked(check_calls)).unwrap();
                let Rank { communicator, stream, .. } = &rank;
                let threads = [3, 4].map(|tag| communicator.tagged(tag));
                for thread in &threads {
                    call(thread, stream).unwrap();
                }
                rank.finish();
                let made = match rank.rank() {
                    0 => call(&threads[0], stream).and_then(|()| call(&threads[1], stream)),
                    _ => call(&threads[1], stream).and_then(|()| call(&threads[0], stream)),
                };
                let error = failure(made, || communicator.synchronize(stream));
                let message = format!("{what}, check_calls {check_calls}: {error}");
                let Error::Mismatch { ours, theirs, .. } = &error else { panic!("{message}") };
                let mut tags = [ours, theirs].map(|words| words.rsplit_once(", tag ").map(|(_, tag)| tag.to_owned()));
                tags.sort();
                assert_eq!(tags, [Some("3".to_owned()), Some("4".to_owned())], "{message}");
                gate.pass();
            });
        }
    }
}

/// A tag of a coordinator is that of its calls, and of experts that are opened over the handle.
#[test]
fn tags_go_with_the_calls_of_a_handle() {
    meet(2, |bootstrap| {
        let mut config = GroupConfig::default();
        config.communicator = checked(true);
        let device = crate::support::device::device(symmetra::bootstrap::Bootstrap::rank(&bootstrap));
        let group = Coordinator::open(bootstrap, &device, config).unwrap();
        let stream = Stream::new(&device).unwrap();
        let buffer = DeviceBuffer::<i32>::from_slice(&[2; 10], &stream).unwrap();
        for tag in [0, 7, u64::MAX] {
            group.tagged(tag).all_reduce_in_place(&buffer, &stream).unwrap();
        }
        group.synchronize(&stream).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), [16; 10]);
        let made = group.tagged(5 + group.rank() as u64).all_reduce_in_place(&buffer, &stream);
        let message = failure(made, || group.synchronize(&stream)).to_string();
        assert!(message.contains(", tag 5") && message.contains(", tag 6"), "{message}");
        drop(group);
    });
    let gate = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &checked(true)).unwrap();
        let experts = rank.communicator.tagged(1 + rank.rank() as u64).experts(small(Method::Packets)).unwrap();
        let operands = Operands::new(&rank, &experts, &[0, 5]);
        let routed =
            experts.dispatch(&operands.routing(), &operands.rows, &Received::rows(&operands.received), &rank.stream);
        let made = routed
            .and_then(|routed| routed.combine(&operands.received, &operands.output, Combine::default(), &rank.stream));
        let message = failure(made, || rank.communicator.synchronize(&rank.stream)).to_string();
        assert!(message.contains(", tag 1") && message.contains(", tag 2"), "{message}");
        gate.pass();
    });
}
