//! The program of docs/tutorial.md: the Rust blocks of that page, in order.
#![allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used)]

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symmetra::bootstrap::{Bootstrap, Tcp, Threads};
use symmetra::{Communicator, Config, Device, DeviceKind, Graph, Result, Stream, SymmetricBuffer};

fn sum(bootstrap: impl Bootstrap) -> Result<()> {
    let rank = bootstrap.rank();
    let device = device(rank)?;
    let stream = Stream::new(&device)?;
    let communicator = Communicator::open(bootstrap, &device, Config::default())?;
    let values = communicator.symmetric::<f32>(3)?;
    values.write(&[1.0, 10.0, rank as f32], &stream)?;
    communicator.all_reduce_in_place(&values, &stream)?;
    communicator.synchronize(&stream)?;
    println!("rank {rank}: {:?}", values.read(&stream)?);
    communicator.close()
}

/// The GPU of a rank, or the CPU where there is no GPU.
fn device(rank: usize) -> Result<Device> {
    if Device::count(DeviceKind::Cuda) == 0 { Device::host() } else { Device::cuda(rank) }
}

fn threads() -> Result<()> {
    let ranks = Threads::new(2)?.into_iter().map(|bootstrap| std::thread::spawn(|| sum(bootstrap)));
    ranks.collect::<Vec<_>>().into_iter().try_for_each(|rank| rank.join().unwrap())
}

fn processes() -> Result<Tcp> {
    Tcp::from_env(Instant::now() + Duration::from_secs(60))
}

const INPUTS: usize = 512;
const OUTPUTS: usize = 256;

/// The weight in a row and a column of W.
fn weight(row: usize, column: usize) -> f32 {
    ((row + 3 * column) % 7) as f32 - 3.0
}

/// The product of some elements of x and the matching rows of W.
fn product(x: &[f32], rows: Range<usize>) -> Vec<f32> {
    (0..OUTPUTS).map(|column| rows.clone().map(|row| x[row] * weight(row, column)).sum()).collect()
}

struct Layer {
    communicator: Communicator,
    stream: Stream,
    rows: Range<usize>,
    y: Arc<SymmetricBuffer<f32>>,
    reduce: Graph<'static>,
}

impl Layer {
    fn new(bootstrap: impl Bootstrap) -> Result<Self> {
        let device = device(bootstrap.rank())?;
        let stream = Stream::new(&device)?;
        let mut config = Config::default();
        config.deadlines.steady = Duration::from_secs(2);
        let communicator = Communicator::open(bootstrap, &device, config)?;
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let rows = INPUTS * rank / world..INPUTS * (rank + 1) / world;
        let y = Arc::new(communicator.symmetric(OUTPUTS)?);
        let reduce = stream.capture(|capture| {
            let y = capture.keep(y.clone());
            communicator.all_reduce_in_place(y, capture)
        })?;
        Ok(Self { communicator, stream, rows, y, reduce })
    }

    fn forward(&self, x: &[f32]) -> Result<Vec<f32>> {
        self.y.write(&product(x, self.rows.clone()), &self.stream)?;
        self.reduce.launch(&self.stream)?;
        self.communicator.synchronize(&self.stream)?;
        self.y.read(&self.stream)
    }
}

fn layer(bootstrap: impl Bootstrap) -> Result<()> {
    let layer = Layer::new(bootstrap)?;
    let rank = layer.communicator.rank();
    for step in 0..3 {
        let x: Vec<f32> = (0..INPUTS).map(|input| ((input + step) % 5) as f32).collect();
        let y = layer.forward(&x)?;
        assert_eq!(y, product(&x, 0..INPUTS), "equal to the product on one rank");
        println!("rank {rank}, step {step}: {:?}", &y[..3]);
    }
    layer.communicator.close()
}

fn serve(bootstrap: impl Bootstrap, trouble: fn()) -> Result<()> {
    let layer = Layer::new(bootstrap)?;
    let rank = layer.communicator.rank();
    for step in 0.. {
        if (rank, step) == (1, 2) {
            trouble();
        }
        if let Err(error) = layer.forward(&[1.0; INPUTS]) {
            println!("rank {rank}, step {step}: {error}");
            break;
        }
    }
    layer.communicator.close().or(Ok(()))
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("threads") => threads(),
        Some("sum") => sum(processes()?),
        Some("layer") => layer(processes()?),
        Some("late") => serve(processes()?, || std::thread::sleep(Duration::from_secs(4))),
        Some("death") => serve(processes()?, || {
            std::thread::sleep(Duration::from_millis(500));
            std::process::abort()
        }),
        _ => panic!("the argument must be threads, sum, layer, late or death"),
    }
}
