//! Messages between pairs of ranks: random messages against a model, eager and in graphs, in worlds of 2 to 8; ranks
//! that take no part; order from call to call; refusals and failures.

use std::collections::BTreeMap;
use std::time::Duration;

use half::{bf16, f16};
use symmetra::bootstrap::{Bootstrap, Threads};
use symmetra::environment::{Backend, Coordinator, GroupConfig};
use symmetra::float8::{F8E4M3, F8E5M2};
use symmetra::{
    Algorithm, AllReduceOptions, Communicator, Config, DeviceBuffer, Error, Operation, Pairs, Result, Stream,
    required_bytes,
};

use crate::support::data::{Data, Random, Sample, mix};
use crate::support::device::device;
use crate::support::extent::full;
use crate::support::world::{Gate, meet, open, until};
use crate::support::{Rank, config, threads};

/// The longest message that the streams of [`small`] carry: 3 streams with room for 47 packets of 8 bytes.
const SHORT: usize = 3 * 47 * 8;
/// Bytes of a slot of [`small`].
const SLOT: usize = 5376;
/// Bytes that all slots of a direction hold then: 2 channels of 2 slots.
const QUEUE: usize = 4 * SLOT;
/// Bytes of the longest message.
const LONGEST: usize = 5 * QUEUE;

/// Small streams and queues, so that short messages take several streams and pieces.
fn small() -> Config {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    config.pair_bytes = 24 << 10;
    config
}

/// One message of a step, at random places of its ranks' memory.
#[derive(Clone, Copy)]
struct Message {
    from: usize,
    to: usize,
    bytes: usize,
    out: usize,
    into: usize,
}

/// One step of all ranks: messages between some of them.
struct Step {
    messages: Vec<Message>,
    /// This rank makes a call of each of its messages; the others make one call.
    slow: usize,
}

/// Byte `index` of the data of rank `from` in round `round`.
fn byte(seed: u64, round: usize, from: usize, index: usize) -> u8 {
    mix(seed ^ (round as u64) << 48 ^ (from as u64) << 40 ^ (index / 8) as u64).to_le_bytes()[index % 8]
}

/// Lengths around the sizes of all streams, a slot, and all slots.
fn length(random: &mut Random) -> usize {
    let known = [0, 0, 1, 2, 7, 16, SHORT / 3 + 1, SHORT, SHORT + 1, SLOT - 1, SLOT + 1, QUEUE, QUEUE + 1];
    match random.below(20) {
        case if case < known.len() => known[case],
        19 => random.below(LONGEST),
        _ => random.below(3 * SHORT),
    }
}

/// The plan of all ranks, which each makes from the seed.
fn plan(seed: u64, world: usize, steps: usize) -> (Vec<Step>, usize) {
    let random = &mut Random(seed);
    let mut room = 64;
    let steps = (0..steps)
        .map(|_| {
            let (mut at_out, mut at_in) = (vec![0; world], vec![0; world]);
            let mut messages = Vec::new();
            let most = 1 + random.below(3 * world);
            for _ in 0..random.below(most) + 1 {
                let (from, to, bytes) = (random.below(world), random.below(world), length(random));
                let skip = random.below(2) * random.below(17);
                at_in[to] += skip;
                messages.push(Message { from, to, bytes, out: at_out[from], into: at_in[to] });
                // Sent messages may overlap, received messages may not.
                at_out[from] += random.below(2) * bytes + random.below(9);
                at_in[to] += bytes;
                room = room.max(at_in[to]).max(at_out[from] + LONGEST);
            }
            Step { messages, slow: random.below(2 * world) }
        })
        .collect();
    (steps, room)
}

/// The calls of a rank in a step. `make` runs one.
fn calls<'m>(step: &'m Step, own: usize, mut make: impl FnMut(&[&'m Message])) {
    let mine: Vec<&Message> = step.messages.iter().filter(|message| message.from == own || message.to == own).collect();
    match own == step.slow {
        // A message to itself stays in one call.
        true => mine.iter().for_each(|message| make(&[*message])),
        false if mine.is_empty() => {}
        false => make(&mine),
    }
}

fn fill<'op>(
    messages: &[&Message],
    own: usize,
    (out, into): (&'op DeviceBuffer<u8>, &'op DeviceBuffer<u8>),
    call: &mut Pairs<'op>,
) -> Result<()> {
    for message in messages {
        if message.from == own {
            call.send(out.borrow().slice(message.out..message.out + message.bytes)?, message.to)?;
        }
        if message.to == own {
            call.receive(into.borrow().slice(message.into..message.into + message.bytes)?, message.from)?;
        }
    }
    Ok(())
}

/// The memory of a rank after a step, from 0xEE everywhere.
fn expected(seed: u64, round: usize, step: &Step, own: usize, room: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; room];
    for message in step.messages.iter().filter(|message| message.to == own) {
        for index in 0..message.bytes {
            bytes[message.into + index] = byte(seed, round, message.from, message.out + index);
        }
    }
    bytes
}

fn random_messages(world: usize, config: &Config, steps: usize, rounds: usize) {
    let seed = fastrand::u64(..);
    threads(world, config, |rank| {
        let Rank { communicator, stream, device } = rank;
        let own = rank.rank();
        let (plan, room) = plan(seed, world, steps);
        let out = DeviceBuffer::<u8>::new(device, room).unwrap();
        let into: Vec<_> = plan.iter().map(|_| DeviceBuffer::<u8>::new(device, room).unwrap()).collect();
        let prepare = |round: usize| {
            let bytes: Vec<u8> = (0..room).map(|index| byte(seed, round, own, index)).collect();
            out.write(&bytes, stream).unwrap();
            into.iter().for_each(|into| into.write(&vec![0xEE; room], stream).unwrap());
        };
        let check = |round: usize| {
            for (number, (step, into)) in plan.iter().zip(&into).enumerate() {
                let (got, wanted) = (into.read(stream).unwrap(), expected(seed, round, step, own, room));
                let wrong = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
                assert_eq!(wrong, None, "rank {own} of {world}, round {round}, step {number}, seed {seed}");
            }
        };
        prepare(0);
        for (step, into) in plan.iter().zip(&into) {
            calls(step, own, |messages| {
                communicator.pairs(stream, |call| fill(messages, own, (&out, into), call)).unwrap();
            });
        }
        check(0);
        let graph = stream
            .capture(|capture| {
                for (step, into) in plan.iter().zip(&into) {
                    let mut result = Ok(());
                    calls(step, own, |messages| {
                        let made = communicator.pairs(capture, |call| fill(messages, own, (&out, into), call));
                        result = std::mem::replace(&mut result, Ok(())).and(made);
                    });
                    result?;
                }
                Ok(())
            })
            .unwrap();
        for round in 1..=rounds {
            prepare(round);
            graph.launch(stream).unwrap();
            check(round);
        }
        rank.finish();
    });
}

#[test]
fn random_messages_equal_a_model_eager_and_in_graphs() {
    let (steps, worlds) = if full() { (60, 2..=8) } else { (12, 2..=8) };
    for world in worlds {
        let mut config = small();
        // Fewer blocks than messages, and more.
        config.most_blocks = [None, Some(1), Some(3)][world % 3];
        random_messages(world, &config, steps, 2);
    }
}

#[test]
fn random_messages_through_queues_of_the_default_size_and_in_large_worlds() {
    let mut config = config();
    config.heap_bytes = 1 << 20;
    random_messages(3, &config, 12, 1);
    config.pair_bytes = 4096;
    random_messages(if full() { 16 } else { 9 }, &config, 4, 1);
}

/// A message of each type, from each rank to the next.
fn typed<T: Sample>(rank: &Rank) {
    let Rank { communicator, stream, device } = rank;
    let (own, world) = (rank.rank(), rank.world());
    const COUNT: usize = 333;
    let data = Data::<T>::new(7 + T::DTYPE as u64, world, COUNT + 1);
    let out = DeviceBuffer::from_slice(&data.inputs[own], stream).unwrap();
    let into = DeviceBuffer::<T>::new(device, COUNT).unwrap();
    communicator
        .pairs(stream, |call| {
            call.send(out.borrow().slice(1..).unwrap(), (own + 1) % world)?;
            call.receive(&into, (own + world - 1) % world)
        })
        .unwrap();
    let got: Vec<u64> = into.read(stream).unwrap().into_iter().map(Sample::bits).collect();
    let sent = &data.inputs[(own + world - 1) % world][1..];
    assert_eq!(got, sent.iter().map(|value| value.bits()).collect::<Vec<_>>(), "{}", T::DTYPE);
}

#[test]
fn every_type_moves_bit_by_bit() {
    threads(3, &small(), |rank| {
        typed::<f32>(rank);
        typed::<f64>(rank);
        typed::<f16>(rank);
        typed::<bf16>(rank);
        typed::<i32>(rank);
        typed::<i64>(rank);
        typed::<i8>(rank);
        typed::<u8>(rank);
        typed::<u32>(rank);
        typed::<u64>(rank);
        typed::<F8E4M3>(rank);
        typed::<F8E5M2>(rank);
    });
}

/// Several MiB, in one call with all sends first.
#[test]
fn every_rank_of_a_ring_sends_before_it_receives() {
    let bytes = if full() { (17 << 20) + 3 } else { (3 << 20) + 3 };
    for world in [2, 4] {
        threads(world, &config(), |rank| {
            let Rank { communicator, stream, device } = rank;
            let own = rank.rank();
            let from = |rank: usize| (0..bytes).map(|index| (index * 7 + index / 251 + rank) as u8).collect::<Vec<_>>();
            let out = DeviceBuffer::from_slice(&from(own), stream).unwrap();
            let into: Vec<_> = (0..2).map(|_| DeviceBuffer::<u8>::new(device, bytes).unwrap()).collect();
            communicator
                .pairs(stream, |call| {
                    call.send(&out, (own + 1) % world)?;
                    call.send(&out, (own + world - 1) % world)?;
                    call.receive(&into[0], (own + world - 1) % world)?;
                    call.receive(&into[1], (own + 1) % world)
                })
                .unwrap();
            assert!(into[0].read(stream).unwrap() == from((own + world - 1) % world));
            assert!(into[1].read(stream).unwrap() == from((own + 1) % world));
            rank.finish();
        });
    }
}

/// The messages of a pair keep their order across all calls.
#[test]
fn many_messages_of_a_pair_keep_their_order_from_call_to_call() {
    const COUNT: usize = 300;
    threads(3, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let length = |number: usize| number * 37 % 700;
        let starts: Vec<usize> = (0..=COUNT).scan(0, |sum, n| Some(std::mem::replace(sum, *sum + length(n)))).collect();
        let all: Vec<u8> = (0..starts[COUNT]).map(|index| mix(index as u64) as u8).collect();
        let part = |number: usize| starts[number]..starts[number + 1];
        let out = DeviceBuffer::from_slice(&all, stream).unwrap();
        let into = DeviceBuffer::<u8>::new(device, all.len()).unwrap();
        let send = |range: std::ops::Range<usize>| {
            communicator.pairs(stream, |call| {
                range.clone().try_for_each(|number| call.send(out.borrow().slice(part(number)).unwrap(), 1))
            })
        };
        let receive = |range: std::ops::Range<usize>| {
            communicator.pairs(stream, |call| {
                range.clone().try_for_each(|number| call.receive(into.borrow().slice(part(number)).unwrap(), 0))
            })
        };
        match rank.rank() {
            0 => {
                send(0..COUNT).unwrap();
                (0..COUNT).step_by(100).for_each(|first| send(first..first + 100).unwrap());
            }
            1 => {
                (0..COUNT).step_by(50).for_each(|first| receive(first..first + 50).unwrap());
                assert!(into.read(stream).unwrap() == all);
                into.write(&vec![0; all.len()], stream).unwrap();
                receive(0..COUNT).unwrap();
                assert!(into.read(stream).unwrap() == all);
            }
            _ => {}
        }
        rank.finish();
    });
}

/// A rank's messages to itself are copies, also in a group of one.
#[test]
fn a_rank_sends_itself_messages() {
    for world in [1, 2] {
        threads(world, &small(), |rank| {
            let Rank { communicator, stream, device } = rank;
            let own = rank.rank();
            let out =
                DeviceBuffer::from_slice(&[1u16, 2, 3, 4, 5].map(|value| i64::from(value) << own), stream).unwrap();
            let into = DeviceBuffer::<i64>::new(device, 5).unwrap();
            communicator
                .pairs(stream, |call| {
                    call.send(out.borrow().slice(..2)?, own)?;
                    call.receive(into.borrow().slice(3..)?, own)?;
                    call.send(out.borrow().slice(2..)?, own)?;
                    call.receive(into.borrow().slice(..3)?, own)
                })
                .unwrap();
            assert_eq!(into.read(stream).unwrap(), [3, 4, 5, 1, 2].map(|value: i64| value << own));
            communicator.pairs(stream, |_| Ok(())).unwrap();
            rank.finish();
        });
    }
}

/// Ranks 0 and 1 exchange messages. Ranks 2 and 3 make no such call meanwhile, but work in a separate group. Then all
/// reduce, and ranks that made unequal numbers of calls in pairs are found to agree.
#[test]
fn ranks_that_take_no_part_do_something_else() {
    let exchanged = Gate::new(4);
    for check_calls in [true, false] {
        let mut config = small();
        config.check_calls = check_calls;
        threads(4, &config, |rank| {
            let Rank { communicator, stream, device } = rank;
            let own = rank.rank();
            let halves = communicator.split(Some(own as u32 / 2), 0).unwrap().unwrap();
            let out = DeviceBuffer::from_slice(&vec![own as i32; 5000], stream).unwrap();
            let into = DeviceBuffer::<i32>::new(device, 5000).unwrap();
            for round in 0..10 {
                match own {
                    0 | 1 => {
                        communicator
                            .pairs(stream, |call| {
                                call.send(&out, 1 - own)?;
                                call.receive(&into, 1 - own)
                            })
                            .unwrap();
                        assert_eq!(into.read(stream).unwrap(), vec![1 - own as i32; 5000]);
                        exchanged.pass();
                    }
                    _ => {
                        exchanged.pass();
                        halves.all_reduce(&out, &into, stream).unwrap();
                        assert_eq!(into.read(stream).unwrap(), vec![5; 5000]);
                    }
                }
                communicator.all_reduce(&out, &into, stream).unwrap();
                rank.finish();
                assert_eq!(into.read(stream).unwrap(), vec![6; 5000], "round {round}");
            }
            halves.close().unwrap();
        });
    }
}

/// Graphs and eager calls, in an order in which the messages of each pair match.
#[test]
fn graphs_are_replayed_in_any_order_that_matches() {
    threads(3, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let (own, world) = (rank.rank(), rank.world());
        let out = DeviceBuffer::<i32>::new(device, 900).unwrap();
        let into = DeviceBuffer::<i32>::new(device, 900).unwrap();
        let graphs: Vec<_> = (1..world)
            .map(|by| {
                stream
                    .capture(|capture| {
                        communicator.pairs(capture, |call| {
                            call.send(&out, (own + by) % world)?;
                            call.receive(&into, (own + world - by) % world)
                        })
                    })
                    .unwrap()
            })
            .collect();
        let random = &mut Random(99);
        for round in 0..60 {
            let by = 1 + random.below(world - 1);
            out.write(&[(own * 1000 + round) as i32; 900], stream).unwrap();
            match random.below(2) {
                0 => graphs[by - 1].launch(stream).unwrap(),
                _ => communicator
                    .pairs(stream, |call| {
                        call.receive(&into, (own + world - by) % world)?;
                        call.send(&out, (own + by) % world)
                    })
                    .unwrap(),
            }
            let wanted = ((own + world - by) % world * 1000 + round) as i32;
            assert_eq!(into.read(stream).unwrap(), [wanted; 900], "round {round}");
        }
        rank.finish();
        drop(graphs);
    });
}

/// A rank without a message captures nothing, or only the calls that all ranks capture, and registers with no peer.
#[test]
fn ranks_without_a_message_have_empty_captures() {
    for (calls, sums) in [(false, false), (true, false), (false, true), (true, true)] {
        meet(4, |bootstrap| {
            let device = device(bootstrap.rank());
            let mut config = GroupConfig::default();
            config.communicator = small();
            // Sums of plain memory, whose pointers all ranks register.
            config.communicator.heap_bytes = 1 << 20;
            let group = Coordinator::open(bootstrap, &device, config).unwrap();
            let stream = Stream::new(&device).unwrap();
            let own = group.rank();
            let out = DeviceBuffer::from_slice(&[own as i32 + 7; 1000], &stream).unwrap();
            let into = DeviceBuffer::from_slice(&[0; 1000], &stream).unwrap();
            let summed = DeviceBuffer::from_slice(&[1; 1000], &stream).unwrap();
            let options = AllReduceOptions::default().algorithm(Algorithm::TwoShotZeroCopy);
            let graph = group
                .capture(&stream, |capture| {
                    // From 0 to 1 and from 1 to 2.
                    if calls || own < 3 {
                        group.pairs(capture, |messages| {
                            if own < 2 {
                                messages.send(&out, own + 1)?;
                            }
                            if own == 1 || own == 2 {
                                messages.receive(&into, own - 1)?;
                            }
                            Ok(())
                        })?;
                    }
                    if sums {
                        group.all_reduce_with(options, &summed, &summed, capture)?;
                    }
                    Ok(())
                })
                .unwrap();
            for launches in 1..=3u32 {
                into.write(&[0; 1000], &stream).unwrap();
                graph.launch(&stream).unwrap();
                group.synchronize(&stream).unwrap();
                let received = if own == 1 || own == 2 { own as i32 + 6 } else { 0 };
                assert_eq!(into.read(&stream).unwrap(), [received; 1000], "rank {own}");
                let sum = if sums { 4i32.pow(launches) } else { 1 };
                assert_eq!(summed.read(&stream).unwrap(), [sum; 1000], "rank {own}");
            }
            drop(graph);
            // Two ranks alone capture and register.
            if own < 2 {
                let graph = stream.capture(|capture| {
                    group.pairs(capture, |messages| match own {
                        0 => messages.send(&out, 1),
                        _ => messages.receive(&into, 0),
                    })
                });
                let graph = graph.unwrap();
                graph.register().unwrap();
                graph.launch(&stream).unwrap();
                group.synchronize(&stream).unwrap();
                assert_eq!(into.read(&stream).unwrap()[0], if own == 0 { 0 } else { 7 });
            }
            group.barrier().unwrap();
            group.close().unwrap();
        });
    }
}

/// Calls of one rank on two streams follow each other.
#[test]
fn streams_take_turns() {
    threads(2, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let other = Stream::new(device).unwrap();
        let own = rank.rank();
        let buffers: Vec<_> =
            (0..20i32).map(|value| DeviceBuffer::from_slice(&[value; 700], stream).unwrap()).collect();
        let into: Vec<_> = (0..20).map(|_| DeviceBuffer::<i32>::new(device, 700).unwrap()).collect();
        for (number, (out, into)) in buffers.iter().zip(&into).enumerate() {
            let stream = if number % 2 == own { stream } else { &other };
            communicator
                .pairs(stream, |call| {
                    call.send(out, 1 - own)?;
                    call.receive(into, 1 - own)
                })
                .unwrap();
        }
        communicator.synchronize(&other).unwrap();
        rank.finish();
        for (value, into) in (0..20).zip(&into) {
            assert_eq!(into.read(stream).unwrap(), [value; 700]);
        }
    });
}

/// The error that a rank gets in the end.
fn failure(rank: &Rank) -> Error {
    let mut told = None;
    until(Duration::from_secs(40), "a rank learns of the failure", || {
        told = rank.communicator.synchronize(&rank.stream).err();
        told.is_some()
    });
    told.unwrap()
}

/// Lengths that differ, by little and by much, in the first message or a later one: both ranks get both lengths, and so
/// does a rank that takes no part.
#[test]
fn other_lengths_at_the_two_ends_are_an_error_on_all_ranks() {
    for (sent, expected, before) in [(10, 12, 0), (12, 0, 1), (0, 1, 2), (LONGEST, SHORT, 1), (SLOT, LONGEST, 3)] {
        let gate = Gate::new(3);
        meet(3, |bootstrap| {
            let rank = open(bootstrap, &small()).unwrap();
            let Rank { communicator, stream, device } = &rank;
            let buffer = DeviceBuffer::<u8>::new(device, LONGEST).unwrap();
            let part = |bytes: usize| buffer.borrow().slice(..bytes);
            let made = (0..=before).try_for_each(|number| {
                communicator.pairs(stream, |call| match rank.rank() {
                    0 => call.send(part(if number == before { sent } else { SLOT })?, 2),
                    2 => call.receive(part(if number == before { expected } else { SLOT })?, 0),
                    _ => Ok(()),
                })
            });
            // A call may learn of the call before.
            assert!(matches!(made, Ok(()) | Err(Error::Mismatch { .. })), "{made:?}");
            let wanted = Error::Mismatch {
                what: "how much rank 0 sends rank 2".to_owned(),
                against: 0,
                ours: format!("{sent} bytes"),
                rank: 2,
                theirs: format!("{expected} bytes"),
            };
            // The receiver's device has found it. The others learn that before the receiver's program looks.
            if rank.rank() == 2 {
                gate.pass();
            }
            assert_eq!(failure(&rank), wanted, "rank {}", rank.rank());
            assert_eq!(communicator.pairs(stream, |call| call.send(part(1)?, 1)), Err(wanted));
            if rank.rank() != 2 {
                gate.pass();
            }
            gate.pass();
        });
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_enqueued() {
    threads(2, &small(), |rank| {
        let Rank { communicator, stream, device } = rank;
        let (own, peer) = (rank.rank(), 1 - rank.rank());
        let buffer = DeviceBuffer::<i32>::new(device, 100).unwrap();
        let part = |range: std::ops::Range<usize>| buffer.borrow().slice(range).unwrap();
        type Fill<'a, 'op> = &'a dyn Fn(&mut Pairs<'op>) -> Result<()>;
        let refused: [(Fill<'_, '_>, &str); 6] = [
            (&|call| call.send(part(0..1), 2), "the peer is 2, but the world size is 2"),
            (&|call| call.receive(part(0..1), usize::MAX), "but the world size is 2"),
            (
                &|call| {
                    call.receive(part(0..10), peer)?;
                    call.receive(part(9..20), peer)
                },
                "they may not overlap",
            ),
            (
                &|call| {
                    call.send(part(0..10), peer)?;
                    call.receive(part(5..6), own)?;
                    call.send(part(50..51), own)
                },
                "they may not overlap",
            ),
            (&|call| call.send(part(0..10), own), "the number of messages that a rank sends itself is 1"),
            (
                &|call| {
                    call.send(part(0..10), own)?;
                    call.receive(part(10..21), own)
                },
                "message 0 that a rank sends itself is 40 bytes, but it expects 44 bytes",
            ),
        ];
        for (fill, words) in refused {
            let error = communicator.pairs(stream, fill).unwrap_err();
            assert!(matches!(&error, Error::InvalidArgument { message } if message.contains(words)), "{error}");
        }
        let failed = communicator.pairs(stream, |call| {
            call.send(part(0..10), peer)?;
            Err(Error::Closed)
        });
        assert_eq!(failed, Err(Error::Closed));
        // A stream that is being captured takes no eager messages.
        let mut eager = Ok(());
        drop(stream.capture(|_| {
            eager = communicator.pairs(stream, |call| call.send(part(0..10), peer));
            Ok(())
        }));
        assert!(matches!(eager, Err(Error::Unsupported { .. })), "{eager:?}");
        // Nothing of all this was sent.
        buffer.write(&[own as i32; 100], stream).unwrap();
        communicator
            .pairs(stream, |call| {
                call.send(part(0..50), peer)?;
                call.receive(part(50..100), peer)
            })
            .unwrap();
        assert_eq!(buffer.read(stream).unwrap()[50..], [peer as i32; 50]);
        rank.finish();
    });
}

/// A rank that does not send is named, however many other ranks have no message.
#[test]
fn who_waits_in_vain_learns_for_whom() {
    let gate = Gate::new(3);
    let mut config = small();
    config.deadlines.steady = Duration::from_millis(300);
    config.deadlines.first_use = config.deadlines.steady;
    meet(3, |bootstrap| {
        let rank = open(bootstrap, &config).unwrap();
        let Rank { communicator, stream, device } = &rank;
        let into = DeviceBuffer::<u8>::new(device, 10).unwrap();
        if rank.rank() == 0 {
            communicator.pairs(stream, |call| call.receive(&into, 2)).unwrap();
        }
        let error = failure(&rank);
        match (&error, rank.rank()) {
            (Error::Timeout { operation: Operation::Pairs, rank: Some(2), .. }, 0 | 1) => {}
            (Error::Aborted { detail }, 2) => assert!(detail.contains("for this one in pairs"), "{error}"),
            _ => panic!("rank {} got {error:?}", rank.rank()),
        }
        gate.pass();
    });
}

/// Before its first collective a group waits as long as its first use may take.
#[test]
fn a_late_peer_is_waited_for_at_first_use() {
    let mut config = small();
    config.deadlines.steady = Duration::from_secs(1);
    for captured in [false, true] {
        threads(2, &config, |rank| {
            let Rank { communicator, stream, device } = rank;
            let (own, peer) = (rank.rank(), 1 - rank.rank());
            if own == 1 {
                std::thread::sleep(Duration::from_millis(2500));
            }
            let out = DeviceBuffer::<u8>::new(device, 3 * QUEUE).unwrap();
            let into = DeviceBuffer::<u8>::new(device, 3 * QUEUE).unwrap();
            match captured {
                true => {
                    let graph = stream.capture(|capture| {
                        communicator.pairs(capture, |call| {
                            call.send(&out, peer)?;
                            call.receive(&into, peer)
                        })
                    });
                    graph.unwrap().launch(stream).unwrap();
                }
                false => communicator
                    .pairs(stream, |call| {
                        call.send(&out, peer)?;
                        call.receive(&into, peer)
                    })
                    .unwrap(),
            }
            rank.finish();
        });
    }
}

/// A stage of a pipeline receives nothing from the next stage, so no message shows that the next stage works. When
/// every stage has called, a call waits no longer than `deadlines.steady`, eager and in a graph, and the error counts
/// the calls.
#[test]
fn a_sender_that_receives_nothing_waits_the_steady_deadline_after_the_first_call() {
    let gate = Gate::new(3);
    let mut config = small();
    config.deadlines.steady = Duration::from_millis(500);
    for captured in [false, true] {
        meet(3, |bootstrap| {
            let rank = open(bootstrap, &config).unwrap();
            let Rank { communicator, stream, device } = &rank;
            let own = rank.rank();
            let out = DeviceBuffer::from_slice(&[own as u8; SLOT], stream).unwrap();
            let into = DeviceBuffer::<u8>::new(device, SLOT).unwrap();
            // Each rank sends to the next; the last only receives.
            let call = || {
                communicator.pairs(stream, |messages| {
                    if own < 2 {
                        messages.send(&out, own + 1)?;
                    }
                    if own > 0 {
                        messages.receive(&into, own - 1)?;
                    }
                    Ok(())
                })
            };
            for _ in 0..3 {
                call().unwrap();
            }
            communicator.synchronize(stream).unwrap();
            gate.pass();
            if own == 0 {
                // More than the queue holds, to a rank that makes no call any more.
                let more = DeviceBuffer::<u8>::new(device, 2 * QUEUE).unwrap();
                match captured {
                    true => {
                        let graph =
                            stream.capture(|capture| communicator.pairs(capture, |call| call.send(&more, 1))).unwrap();
                        graph.launch(stream).unwrap();
                    }
                    false => communicator.pairs(stream, |call| call.send(&more, 1)).unwrap(),
                }
                match failure(&rank) {
                    Error::Timeout { operation: Operation::Pairs, rank: Some(1), waited, detail, .. } => {
                        assert_eq!(waited, config.deadlines.steady);
                        let counts =
                            "it had enqueued 0 operations and 3 calls of pairs; this rank had enqueued 0 and 4";
                        assert!(detail.contains(counts), "{detail}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            gate.pass();
        });
    }
}

/// A rank that departed ends calls that need it and are made after that, and no others.
#[test]
fn ranks_go_on_beside_one_that_departed() {
    let (called, departed) = (Gate::new(3), Gate::new(3));
    meet(3, |bootstrap| {
        let rank = open(bootstrap, &small()).unwrap();
        let Rank { communicator, stream, device } = &rank;
        let own = rank.rank();
        let out = DeviceBuffer::from_slice(&[own as u8; 1000], stream).unwrap();
        let into = DeviceBuffer::<u8>::new(device, 1000).unwrap();
        if own == 2 {
            communicator.pairs(stream, |call| call.send(&out, 0)).unwrap();
            called.pass();
            communicator.clone().depart().unwrap();
            departed.pass();
            departed.pass();
            return;
        }
        if own == 0 {
            communicator.pairs(stream, |call| call.receive(&into, 2)).unwrap();
        }
        called.pass();
        if own == 0 {
            assert_eq!(into.read(stream).unwrap(), [2; 1000]);
        }
        departed.pass();
        for _ in 0..5 {
            communicator
                .pairs(stream, |call| {
                    call.send(&out, 1 - own)?;
                    call.receive(&into, 1 - own)
                })
                .unwrap();
            rank.finish();
            assert_eq!(into.read(stream).unwrap(), [1 - own as u8; 1000]);
        }
        departed.pass();
        // The monitor sees the departure a little later.
        let mut refused = Ok(());
        until(Duration::from_secs(20), "the departure is known", || {
            refused = communicator.pairs(stream, |call| call.send(out.borrow().slice(..0)?, 2));
            refused.is_err()
        });
        match refused {
            Err(Error::PeerLost { rank: 2, detail }) => assert!(detail.contains("it left in good order"), "{detail}"),
            other => panic!("{other:?}"),
        }
    });
}

/// A rank may leave before its peer receives the messages that the rank has sent. No further message comes.
#[test]
fn messages_of_a_departed_rank_are_received() {
    let departed = Gate::new(2);
    meet(2, |bootstrap| {
        let rank = open(bootstrap, &small()).unwrap();
        let Rank { communicator, stream, device } = &rank;
        if rank.rank() == 1 {
            for value in [7u8, 8] {
                let out = DeviceBuffer::from_slice(&[value; 100], stream).unwrap();
                communicator.pairs(stream, |call| call.send(&out, 0)).unwrap();
                rank.finish();
            }
            communicator.clone().depart().unwrap();
            departed.pass();
            departed.pass();
            return;
        }
        departed.pass();
        // The monitor sees the departure within a second.
        std::thread::sleep(Duration::from_millis(1500));
        let into = DeviceBuffer::<u8>::new(device, 100).unwrap();
        let receive = || communicator.pairs(stream, |call| call.receive(&into, 1));
        for value in [7, 8] {
            receive().unwrap();
            rank.finish();
            assert_eq!(into.read(stream).unwrap(), [value; 100]);
        }
        assert!(matches!(receive(), Err(Error::PeerLost { rank: 1, .. })));
        departed.pass();
    });
}

/// Coordinators of one host run messages on own kernels; the CPU's engine needs all ranks, so it refuses.
#[test]
fn coordinators_choose_a_backend() {
    meet(2, |bootstrap| {
        let mut config = GroupConfig::default();
        (config.communicator, config.interface) = (small(), Some("127.0.0.1".to_owned()));
        let device = device(bootstrap.rank());
        let group = Coordinator::open(bootstrap, &device, config).unwrap();
        let stream = Stream::new(&device).unwrap();
        let (own, peer) = (group.rank(), 1 - group.rank());
        let out = DeviceBuffer::from_slice(&[own as f32; 77], &stream).unwrap();
        let into = DeviceBuffer::<f32>::new(&device, 77).unwrap();
        for group in [group.clone(), group.through(Backend::Own).unwrap()] {
            into.write(&[0.5; 77], &stream).unwrap();
            group
                .pairs(&stream, |call| {
                    call.send(&out, peer)?;
                    call.receive(&into, peer)
                })
                .unwrap();
            group.synchronize(&stream).unwrap();
            assert_eq!(into.read(&stream).unwrap(), [peer as f32; 77]);
        }
        let host = group.through(Backend::Host).unwrap();
        let refused = host.pairs(&stream, |call| call.send(&out, peer)).unwrap_err().to_string();
        assert!(refused.starts_with("pairs of u8 by the group group on 1 host"), "{refused}");
        if cfg!(feature = "gloo") {
            assert!(refused.contains("host: every rank takes part in each of its calls"), "{refused}");
        }
        let captured = stream.capture(|capture| host.pairs(capture, |call| call.send(&out, peer)));
        assert!(matches!(captured, Err(Error::Unsupported { .. })), "{captured:?}");
        host.barrier().unwrap();
        group.close().unwrap();
    });
}

/// Bytes for each peer, exactly, in addition to counts that depend on no setting.
#[test]
fn queues_are_part_of_what_a_group_requires() {
    let bytes = |world, pair_bytes| {
        let mut config = Config::default();
        config.pair_bytes = pair_bytes;
        required_bytes(world, &config).unwrap()
    };
    for world in [1, 2, 5, 8, 9, 16] {
        let (less, more) = (bytes(world, 64 << 10), bytes(world, 1 << 20));
        assert_eq!(more - less, (world as u64 - 1) * ((1 << 20) - (64 << 10)), "{world} ranks");
    }
    assert_eq!(Config::default().pair_bytes, 512 << 10);
    let differ = |bootstrap: Threads| {
        let mut config = small();
        config.pair_bytes += bootstrap.rank() as u64 * 16;
        let device = device(bootstrap.rank());
        Communicator::open(bootstrap, &device, config).map(drop).unwrap_err()
    };
    let named = |error: &Error| matches!(error, Error::Mismatch { what, .. } if what == "pair_bytes");
    assert!(meet(2, differ).iter().all(named));
}

/// Every rank draws the same plan from the same seed, with messages of every kind.
#[test]
fn plans_have_messages_of_every_kind() {
    let (steps, _) = plan(5, 4, 200);
    let mut kinds = BTreeMap::new();
    for message in steps.iter().flat_map(|step| &step.messages) {
        let size = [0, 1, SHORT, SHORT + 1, SLOT - 1, QUEUE + 1].iter().position(|size| *size == message.bytes);
        *kinds.entry((size, message.from == message.to)).or_insert(0) += 1;
    }
    assert_eq!(kinds.len(), 14, "{kinds:?}");
}
