//! An MLP over tensor, pipeline and data parallel ranks, as an inference engine would run it:
//!
//! ```text
//! symmetra launch -n 8 -- target/release/examples/tensor_parallel_mlp --tp 2 --pp 2 --dp 2
//! ```
//!
//! Each block is `x -> x + relu(norm(x) W1) W2`, as around the MLP of a decoder. A rank of a tensor parallel group holds
//! columns of `W1` and the equal rows of `W2`. One call ends a block: `all_reduce_norm` sums the products over the
//! ranks, adds `x`, and norms the new `x` for the next block. Block b is on pipeline stage b mod stages, which sends
//! `x` and the normed rows on; data parallel replicas take different batches. The whole step is one graph, products
//! too. Every rank compares the result with the whole model on one rank; the exit status is 1 unless all are right.
//!
//! With `--fp8` the first product of a block is W8A8: the norm before the block writes e4m3 codes with a static scale,
//! `W1` is e4m3 codes with one scale a matrix, and stages send codes. `W2` stays f32. GPUs from compute capability 8.9
//! on have FP8.
#![allow(clippy::print_stdout)]

#[path = "tensor_parallel_mlp/model.rs"]
mod model;
#[path = "support/reference.rs"]
mod reference;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use model::{EPSILON, Model};
use serde::{Deserialize, Serialize};
use symmetra::environment::{Coordinator, EnvConfig, Environment, Parallelism};
use symmetra::float8::F8E4M3;
use symmetra::matmul::{F8, Multiplier, Numeric, Order, Product, Scaling, Tensor};
use symmetra::{
    Device, DeviceBuffer, Dtype, Element, Error, Narrow, Queue, Result, RmsNorm, RowNorm, Stream, SymmetricBuffer,
};

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
    /// The seed of weights and inputs [default: rank 0 draws it]
    #[arg(long)]
    seed: Option<u64>,
    /// Work on the CPU even where there are GPUs
    #[arg(long)]
    host: bool,
    /// Multiply e4m3 codes of normed rows and of W1: on the CPU, and on GPUs from compute capability 8.9 on
    #[arg(long)]
    fp8: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// The weights of a block that this rank holds.
struct Shard {
    first: First,
    second: DeviceBuffer<f32>,
}

/// `W1`: values, or with `--fp8` codes, column after column, and their scale.
enum First {
    Values(DeviceBuffer<f32>),
    Codes(DeviceBuffer<F8E4M3>, DeviceBuffer<f32>),
}

/// A rank: its share of the model, and the memory that steps run in.
struct Worker {
    tp: Coordinator,
    pp: Coordinator,
    multiplier: Multiplier,
    stream: Stream,
    model: Model,
    /// `None` if another stage has the block.
    shards: Vec<Option<Shard>>,
    /// The weights of all norms: norm b is before block b, and the last norm after all blocks.
    norms: Vec<DeviceBuffer<f32>>,
    /// This rank's part of the first `x`; the sum over ranks is the batch.
    input: SymmetricBuffer<f32>,
    inner: SymmetricBuffer<f32>,
    /// The residual, to which blocks add.
    x: SymmetricBuffer<f32>,
    /// The normed rows; between a block's products and its norm, the sums of this rank's rows of `W2`.
    normed: SymmetricBuffer<f32>,
    /// With `--fp8`, the codes of the normed rows before a block, and their scale.
    narrow: Option<(SymmetricBuffer<F8E4M3>, DeviceBuffer<f32>)>,
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
        let (multiplier, stream) = (Multiplier::new(device)?, Stream::new(device)?);
        let mine = tp.rank() * width..(tp.rank() + 1) * width;
        let shard = |block: usize| -> Result<Option<Shard>> {
            if block % pp.world_size() != pp.rank() {
                return Ok(None);
            }
            let first = match model.fp8 {
                true => First::Codes(
                    DeviceBuffer::from_slice(&model.first_codes(block, mine.clone()), &stream)?,
                    DeviceBuffer::from_slice(&[model.weight_scale()], &stream)?,
                ),
                false => First::Values(DeviceBuffer::from_slice(&model.first(block, mine.clone()), &stream)?),
            };
            let second = DeviceBuffer::from_slice(&model.second(block, mine.clone()), &stream)?;
            Ok(Some(Shard { first, second }))
        };
        let shards = (0..model.blocks).map(shard).collect::<Result<_>>()?;
        let norms = (0..=model.blocks).map(|norm| DeviceBuffer::from_slice(&model.norm(norm), &stream));
        let norms = norms.collect::<Result<_>>()?;
        let symmetric = |columns: usize| tp.local().symmetric(model.batch * columns);
        let (input, inner) = (symmetric(model.hidden)?, symmetric(width)?);
        let (x, normed) = (symmetric(model.hidden)?, symmetric(model.hidden)?);
        let narrow = || -> Result<_> {
            let codes = tp.local().symmetric(model.batch * model.hidden)?;
            Ok((codes, DeviceBuffer::from_slice(&[model.row_scale()], &stream)?))
        };
        let narrow = model.fp8.then(narrow).transpose()?;
        // As from an embedding that is divided among the ranks: one rank has a row, and the others have zeros.
        let mut part = model.input(env.dp().rank());
        let others = part.chunks_mut(model.hidden).enumerate().filter(|(row, _)| row % tp.world_size() != tp.rank());
        others.for_each(|(_, row)| row.fill(0.0));
        input.write(&part, &stream)?;
        Ok(Self { tp, pp, multiplier, stream, model, shards, norms, input, inner, x, normed, narrow })
    }

    /// The products of a block, if this rank has a shard of it.
    fn multiply<'op>(&'op self, block: usize, queue: impl Queue<'op> + Copy) -> Result<()> {
        let Some(shard) = &self.shards[block] else { return Ok(()) };
        let (rows, hidden, width) = (self.model.batch, self.model.hidden, self.inner.len() / self.model.batch);
        let mut product = Product::new(hidden, width, Numeric::F32);
        product.relu = true;
        let [left, right] = match (&shard.first, &self.narrow) {
            (First::Codes(weights, scale), Some((codes, row_scale))) => {
                product.numeric = Numeric::F8 { left: F8::E4M3, right: F8::E4M3 };
                (product.scaling, product.result) = (Scaling::Tensor, Dtype::F32);
                [Tensor::of(codes).scaled(row_scale), Tensor::of(weights).scaled(scale)]
            }
            (First::Values(weights), _) => {
                product.right = Order::Rows;
                [Tensor::of(&self.normed), Tensor::of(weights)]
            }
            (First::Codes(..), None) => {
                let message = "W1 is codes, and the normed rows are values".to_owned();
                return Err(Error::InvalidArgument { message });
            }
        };
        self.multiplier.enqueue(&product, rows, [left, right, Tensor::of(&self.inner)], queue)?;
        let mut product = Product::new(width, hidden, Numeric::F32);
        product.right = Order::Rows;
        let operands = [Tensor::of(&self.inner), Tensor::of(&shard.second), Tensor::of(&self.normed)];
        self.multiplier.enqueue(&product, rows, operands, queue)
    }

    /// A norm, on the stage of the block before, or the first of all on the first stage; then `x` and the normed rows go
    /// to the next stage, or the last normed rows to all.
    fn norm<'op>(&'op self, norm: usize, queue: impl Queue<'op> + Copy) -> Result<()> {
        let (stage, stages) = (self.pp.rank(), self.pp.world_size());
        let (owner, next) = (norm.saturating_sub(1) % stages, norm % stages);
        if stage == owner {
            let (weight, epsilon) = (&self.norms[norm], RmsNorm::new(EPSILON));
            let rows = match norm {
                0 => RowNorm::new(&self.input, weight, epsilon),
                _ => RowNorm::new(&self.normed, weight, epsilon).residual(&self.x),
            };
            let rows = rows.residual_out(&self.x);
            let rows = match &self.narrow {
                // Only a product takes codes, and none is after the last norm.
                Some((codes, scale)) if norm < self.model.blocks => rows.static_scale(Narrow::E4M3, scale, codes),
                _ => rows.output(&self.normed),
            };
            self.tp.all_reduce_norm(rows, queue)?;
        }
        if stages == 1 || norm == 0 {
            return Ok(());
        }
        if norm == self.model.blocks {
            return self.pp.broadcast(&self.normed, owner, queue);
        }
        // A batch holds one message to a rank.
        self.pass(&self.x, (owner, next), queue)?;
        match &self.narrow {
            Some((codes, _)) => self.pass(codes, (owner, next), queue),
            None => self.pass(&self.normed, (owner, next), queue),
        }
    }

    /// Rows from a stage to the next.
    fn pass<'op, T: Element>(
        &'op self,
        rows: &'op SymmetricBuffer<T>,
        (owner, next): (usize, usize),
        queue: impl Queue<'op> + Copy,
    ) -> Result<()> {
        match self.pp.rank() {
            stage if stage == owner => self.pp.send_next(rows, queue),
            stage if stage == next => self.pp.receive_previous(rows, queue),
            _ => self.pp.batch(queue, |_| Ok(())),
        }
    }

    /// A step, enqueued or recorded.
    fn step<'op>(&'op self, queue: impl Queue<'op> + Copy) -> Result<()> {
        self.norm(0, queue)?;
        (0..self.model.blocks).try_for_each(|block| {
            self.multiply(block, queue)?;
            self.norm(block + 1, queue)
        })
    }

    /// The result, after the step is done without an error.
    fn result(&self) -> Result<Vec<f32>> {
        self.tp.synchronize(&self.stream)?;
        self.pp.synchronize(&self.stream)?;
        self.normed.read(&self.stream)
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
    let graph = env.world().capture(&worker.stream, |capture| worker.step(capture))?;
    env.world().barrier()?;
    let start = Instant::now();
    (0..steps).try_for_each(|_| graph.launch(&worker.stream))?;
    let replayed = worker.result()?;
    let step_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(steps);
    let expected = worker.model.reference(env.dp().rank());
    let error = reference::error(&eager, &expected).max(reference::error(&replayed, &expected));
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
    if args.host {
        config.device = Some(Device::host()?);
    }
    let env = Environment::init(config)?;
    let first = env.world().is_first_rank();
    let seed = first.then(|| args.seed.unwrap_or_else(|| fastrand::u64(..)));
    let seed = env.world().broadcast_object(seed.as_ref(), 0)?;
    let Args { blocks, hidden, intermediate, batch, fp8, .. } = args;
    let model = Model { blocks, hidden, intermediate, batch, seed, fp8 };
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
