//! Four ranks as threads sum a vector on the CPU: eager, then in a graph.

use symmetra::bootstrap::Threads;
use symmetra::{Communicator, Config, Device, Result, Stream};

fn main() -> Result<()> {
    let ranks = Threads::new(4)?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| run(rank))).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn run(bootstrap: Threads) -> Result<()> {
    let device = Device::host()?;
    let stream = Stream::new(&device)?;
    let communicator = Communicator::open(bootstrap, &device, Config::default())?;
    let buffer = communicator.symmetric::<f32>(1 << 20)?;
    buffer.write(&vec![1.0; buffer.len()], &stream)?;
    communicator.all_reduce_in_place(&buffer, &stream)?;
    let graph = stream.capture(|capture| communicator.all_reduce_in_place(&buffer, capture))?;
    graph.launch(&stream)?;
    communicator.synchronize(&stream)?;
    assert_eq!(buffer.read(&stream)?, vec![16.0; buffer.len()]);
    drop(graph);
    communicator.close()
}
