//! Calls that compare as different although operation, type and size are equal: by the offset of an operand that peers access,
//! or by the tag of a thread.

use symmetra::{Communicator, DeviceBuffer, Reduction, Result, RmsNorm, RowNorm, Stream, SymmetricBuffer};

/// Memory of a rank, with room for the parts of all ranks of a large message.
pub(crate) struct Memory {
    pub(crate) symmetric: SymmetricBuffer<f32>,
    pub(crate) plain: DeviceBuffer<f32>,
}

/// A call whose operand begins at element `start` of the symmetric memory, with `count` elements for each rank.
pub(crate) type Placed = fn(&Communicator, &Stream, &Memory, [usize; 2]) -> Result<()>;

/// Calls, and the operand that peers access.
pub(crate) const PLACED: [(&str, &str, Placed); 5] = [
    ("all-reduce", "input", |communicator, stream, memory, [start, count]| {
        communicator.all_reduce_in_place(memory.symmetric.slice(start..start + count)?, stream)
    }),
    ("all-gather", "output", |communicator, stream, memory, [start, count]| {
        let all = communicator.world_size() * count;
        let (input, output) = (memory.plain.borrow().slice(..count)?, memory.symmetric.slice(start..start + all)?);
        communicator.all_gather(input, output, stream)
    }),
    ("reduce-scatter", "input", |communicator, stream, memory, [start, count]| {
        let all = communicator.world_size() * count;
        let (input, output) = (memory.symmetric.slice(start..start + all)?, memory.plain.borrow().slice(..count)?);
        communicator.reduce_scatter(input, output, Reduction::Sum, stream)
    }),
    ("all-to-all", "output", |communicator, stream, memory, [start, count]| {
        let all = communicator.world_size() * count;
        let (input, output) = (memory.plain.borrow().slice(..all)?, memory.symmetric.slice(start..start + all)?);
        communicator.all_to_all(input, output, stream)
    }),
    ("broadcast", "output", |communicator, stream, memory, [start, count]| {
        communicator.broadcast(memory.symmetric.slice(start..start + count)?, 0, stream)
    }),
];

/// A call of a thread with separate operands.
pub(crate) type Threaded = fn(&Communicator, &Stream) -> Result<()>;

pub(crate) const THREADED: [(&str, Threaded); 5] = [
    ("all-reduce", |communicator, stream| {
        communicator.all_reduce_in_place(&DeviceBuffer::<f32>::new(stream.device(), 100)?, stream)
    }),
    ("all-gather", |communicator, stream| {
        let (device, all) = (stream.device(), communicator.world_size() * 100);
        let (input, output) = (DeviceBuffer::<u8>::new(device, 100)?, DeviceBuffer::new(device, all)?);
        communicator.all_gather(&input, &output, stream)
    }),
    ("bound", |communicator, stream| {
        let buffer = DeviceBuffer::<f32>::new(stream.device(), 100)?;
        communicator.bind_all_reduce(&buffer, &buffer)?.enqueue(stream)
    }),
    ("norm", |communicator, stream| {
        let device = stream.device();
        let [input, weight, output] = [32, 16, 32].map(|len| DeviceBuffer::<f32>::new(device, len));
        let (input, weight, output) = (input?, weight?, output?);
        let rows = RowNorm::new(&input, &weight, RmsNorm::new(1e-6)).output(&output);
        communicator.all_reduce_norm(rows, stream)
    }),
    ("low-contention", |communicator, stream| {
        let all = communicator.world_size() * 100;
        let (input, output) = (communicator.symmetric::<f32>(100)?, communicator.symmetric::<f32>(all)?);
        communicator.low_contention_all_gather(&input, &output, stream)?.wait(stream)
    }),
];
