//! An MLP over tensor, pipeline and data parallel ranks, as an inference engine would run it:
//!
//! ```text
//! symmetra launch -n 8 -- target/release/examples/tensor_parallel_mlp --tp 2 --pp 2 --dp 2
//! ```
//!
//! Each block is `x -> relu(x W1) W2`. A rank of a tensor parallel group holds columns of `W1` and the equal rows of
//! `W2`, so that a block needs one all-reduce, at its end. Block b is on pipeline stage b mod stages, which sends `x`
//! on; data parallel replicas take different batches. On GPUs (`--features cudarc`) cuBLASLt multiplies and the whole
//! step is one graph. The CPU's stream takes no work of the program, so there each exchange between products is a
//! graph. Every rank compares the result with the whole model on one rank; the exit status is 1 unless all are right.
#![allow(clippy::print_stdout)]

#[path = "tensor_parallel_mlp/matmul.rs"]
mod matmul;
#[path = "tensor_parallel_mlp/model.rs"]
mod model;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use matmul::Matmul;
use model::Model;
use serde::{Deserialize, Serialize};
use symmetra::environment::{Coordinator, EnvConfig, Environment, Parallelism};
use symmetra::{Device, DeviceBuffer, Error, Graph, Queue, Result, Stream, SymmetricBuffer};

/// Runs a tensor, pipeline and data parallel MLP and checks it; start it with `symmetra launch`.
#[derive(Parser)]
struct Args {
    /// Ranks that share each block [default: all that pp and dp leave]
    #[arg(long)]
    tp: Option<usize>,
    /// Stages of the pipeline
    #[arg(long, default_value_t = 1)]
    pp: usize,
    /// Replicas, each with its own batch
    #[arg(long, default_value_t = 1)]
    dp: usize,
    #[arg(long, default_value_t = 4)]
    blocks: usize,
    #[arg(long, default_value_t = 512)]
    hidden: usize,
    #[arg(long, default_value_t = 2048)]
    intermediate: usize,
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Steps to replay
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// What weights and inputs are drawn from [default: rank 0 draws it]
    #[arg(long)]
    seed: Option<u64>,
    /// Work on the CPU even where there are GPUs
    #[arg(long)]
    host: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// The weights of a block that this rank holds.
struct Shard {
    first: DeviceBuffer<f32>,
    second: DeviceBuffer<f32>,
}

/// A rank: its share of the model, and the memory that steps run in.
struct Worker {
    tp: Coordinator,
    pp: Coordinator,
    matmul: Matmul,
    stream: Stream,
    model: Model,
    /// `None` if another stage has the block.
    shards: Vec<Option<Shard>>,
    input: SymmetricBuffer<f32>,
    inner: SymmetricBuffer<f32>,
    /// The output of a block: first the sum of this rank's rows of `W2`, then, reduced, of all rows.
    x: SymmetricBuffer<f32>,
}

impl Worker {
    fn new(env: &Environment, model: Model) -> Result<Self> {
        let (tp, pp) = (env.tp().clone(), env.pp().clone());
        let (width, rest) = (model.intermediate / tp.world_size(), model.intermediate % tp.world_size());
        if rest != 0 {
            let message =
                format!("{} intermediate columns do not divide among {} ranks", model.intermediate, tp.world_size());
            return Err(Error::InvalidArgument { message });
        }
        let device = tp.device();
        let (matmul, stream) = Matmul::new(device)?;
        let mine = tp.rank() * width..(tp.rank() + 1) * width;
        let shard = |block: usize| -> Result<Option<Shard>> {
            if block % pp.world_size() != pp.rank() {
                return Ok(None);
            }
            let first = DeviceBuffer::from_slice(&model.first(block, mine.clone()), &stream)?;
            let second = DeviceBuffer::from_slice(&model.second(block, mine.clone()), &stream)?;
            Ok(Some(Shard { first, second }))
        };
        let shards = (0..model.blocks).map(shard).collect::<Result<_>>()?;
        let symmetric = |columns: usize| tp.local().symmetric(model.batch * columns);
        let (input, inner, x) = (symmetric(model.hidden)?, symmetric(width)?, symmetric(model.hidden)?);
        input.write(&model.input(env.dp().rank()), &stream)?;
        Ok(Self { tp, pp, matmul, stream, model, shards, input, inner, x })
    }

    /// The products of a block, if this rank has a shard of it.
    fn multiply(&self, block: usize) -> Result<()> {
        let Some(shard) = &self.shards[block] else { return Ok(()) };
        let x = if block == 0 { &self.input } else { &self.x };
        let width = self.inner.len() / self.model.batch;
        self.matmul.multiply(x, &shard.first, &self.inner, self.model.hidden, true, &self.stream)?;
        self.matmul.multiply(&self.inner, &shard.second, &self.x, width, false, &self.stream)
    }

    /// The exchange after a block: a sum over the ranks that share the block; then the sums go to the next stage, or,
    /// after the last block, to all.
    fn exchange<'op>(&'op self, block: usize, queue: impl Queue<'op> + Copy) -> Result<()> {
        let (stage, stages) = (self.pp.rank(), self.pp.world_size());
        let (owner, next) = (block % stages, (block + 1) % stages);
        if stage == owner {
            self.tp.all_reduce_in_place(&self.x, queue)?;
        }
        if stages == 1 {
            return Ok(());
        }
        if block + 1 == self.model.blocks {
            return self.pp.broadcast(&self.x, owner, queue);
        }
        match stage {
            _ if stage == owner => self.pp.send_next(&self.x, queue),
            _ if stage == next => self.pp.receive_previous(&self.x, queue),
            _ => self.pp.batch(queue, |_| Ok(())),
        }
    }

    /// A step, enqueued or recorded.
    fn step<'op>(&'op self, queue: impl Queue<'op> + Copy) -> Result<()> {
        (0..self.model.blocks).try_for_each(|block| {
            self.multiply(block)?;
            self.exchange(block, queue)
        })
    }

    /// The graphs of a step, captured by all ranks together: one of the whole step, or one of each exchange.
    fn capture(&self, world: &Coordinator) -> Result<Vec<Graph<'_>>> {
        if self.matmul.is_captured() {
            return Ok(vec![world.capture(&self.stream, |capture| self.step(capture))?]);
        }
        let exchange = |block| world.capture(&self.stream, |capture| self.exchange(block, capture));
        (0..self.model.blocks).map(exchange).collect()
    }

    fn replay(&self, graphs: &[Graph<'_>]) -> Result<()> {
        graphs.iter().enumerate().try_for_each(|(block, graph)| {
            if !self.matmul.is_captured() {
                self.multiply(block)?;
            }
            graph.launch(&self.stream)
        })
    }

    /// The result, after the step is done without an error.
    fn result(&self) -> Result<Vec<f32>> {
        self.tp.synchronize(&self.stream)?;
        self.pp.synchronize(&self.stream)?;
        self.x.read(&self.stream)
    }
}

/// The result of a rank.
#[derive(Serialize, Deserialize)]
struct Finding {
    /// The larger error of the eager step and of the last replay.
    error: f64,
    step_us: f64,
}

/// The results of a tensor parallel group, and whether all are right.
#[derive(Serialize)]
struct Row {
    replica: usize,
    stage: usize,
    ranks: Vec<usize>,
    error: f64,
    bound: f64,
    step_us: f64,
    right: bool,
}

fn run(worker: &Worker, env: &Environment, steps: u32) -> Result<Finding> {
    worker.step(&worker.stream)?;
    let eager = worker.result()?;
    let graphs = worker.capture(env.world())?;
    env.world().barrier()?;
    let start = Instant::now();
    (0..steps).try_for_each(|_| worker.replay(&graphs))?;
    let replayed = worker.result()?;
    let step_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(steps);
    let expected = worker.model.reference(env.dp().rank());
    let error = model::error(&eager, &expected).max(model::error(&replayed, &expected));
    Ok(Finding { error, step_us })
}

fn rows(env: &Environment, findings: &[Finding], bound: f64) -> Vec<Row> {
    let row = |ranks: Vec<usize>| {
        let worst = |pick: fn(&Finding) -> f64| ranks.iter().map(|rank| pick(&findings[*rank])).fold(0.0, f64::max);
        let (error, step_us) = (worst(|finding| finding.error), worst(|finding| finding.step_us));
        let place = |parallelism| env.layout().group_of(parallelism, ranks[0]).binary_search(&ranks[0]).unwrap_or(0);
        let (replica, stage) = (place(Parallelism::Data), place(Parallelism::Pipeline));
        Row { replica, stage, ranks, error, bound, step_us, right: error <= bound }
    };
    env.layout().groups(Parallelism::Tensor).into_iter().map(row).collect()
}

fn print(rows: &[Row], args: &Args, device: &Device, seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    if args.json {
        println!("{}", serde_json::json!({ "device": device.kind().to_string(), "seed": seed, "groups": rows }));
        return Ok(());
    }
    println!("{}, {} replayed steps, seed {seed}", device.name(), args.steps);
    println!("{:>7} {:>5} {:>20} {:>10} {:>10} {:>10}", "replica", "stage", "ranks", "error", "bound", "step us");
    for Row { replica, stage, ranks, error, bound, step_us, right } in rows {
        let (ranks, verdict) = (format!("{ranks:?}"), if *right { "" } else { " WRONG" });
        println!("{replica:>7} {stage:>5} {ranks:>20} {error:>10.1e} {bound:>10.1e} {step_us:>10.1}{verdict}");
    }
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args = Args::parse();
    let world = std::env::var("WORLD_SIZE").ok().and_then(|size| size.parse::<usize>().ok()).unwrap_or(1);
    let mut config = EnvConfig::default();
    config.tensor_parallel_size = args.tp.unwrap_or(world / (args.pp * args.dp).max(1));
    (config.pipeline_parallel_size, config.data_parallel_size) = (args.pp, args.dp);
    if args.host || cfg!(not(feature = "cudarc")) {
        config.device = Some(Device::host()?);
    }
    let env = Environment::init(config)?;
    let first = env.world().is_first_rank();
    let seed = first.then(|| args.seed.unwrap_or_else(|| fastrand::u64(..)));
    let seed = env.world().broadcast_object(seed.as_ref(), 0)?;
    let Args { blocks, hidden, intermediate, batch, .. } = args;
    let model = Model { blocks, hidden, intermediate, batch, seed };
    let finding = run(&Worker::new(&env, model)?, &env, args.steps)?;
    let mut right = finding.error <= model.bound();
    if let Some(findings) = env.world().gather_object(&finding, 0)? {
        let rows = rows(&env, &findings, model.bound());
        right = rows.iter().all(|row| row.right);
        print(&rows, &args, env.world().device(), seed)?;
    }
    env.close()?;
    Ok(ExitCode::from(u8::from(!right)))
}
