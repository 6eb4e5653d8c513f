//! A layer of experts over expert parallel ranks, as an inference engine would run it:
//!
//! ```text
//! symmetra launch -n 4 -- target/release/examples/mixture_of_experts --experts 16 --top-k 2
//! ```
//!
//! A step routes new tokens on the host: the gate's scores choose each token's experts and their weights. A dispatch sends
//! the tokens to the ranks of their experts, padded, so that one batched product serves all experts of a rank; the experts
//! are `relu(x W1) W2`; a combine sends the results back and sums them. Each step has another number of tokens on each
//! rank, and the count lies on the device. Dispatch, products and combine are one graph, which every step replays. Every rank
//! computes the whole layer for its own tokens and compares; the exit status is 1 unless all are right.
//!
//! When a rank dies, the others open the experts again without that rank, load the weights of its experts, and go on with the
//! first step that not all of them have ended. `--lose 1` lets rank 1 end in the middle, so that this can be tried.
#![allow(clippy::print_stdout)]

#[path = "mixture_of_experts/layer.rs"]
mod layer;
#[path = "support/reference.rs"]
mod reference;

use std::array::TryFromSliceError;
use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::Parser;
use layer::{Layer, Whole};
use symmetra::environment::{EnvConfig, Environment};
use symmetra::experts::{Combine, ExpertConfig, Experts, Layout, Method, Received, Routing, Survivors, expert_bytes};
use symmetra::matmul::{Multiplier, Numeric, Product, Tensor};
use symmetra::{Device, DeviceBuffer, Dtype, Error, Graph, Queue, Result, Stream};

/// Runs a layer of experts and checks it; start it with `symmetra launch`.
#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 16, value_parser = at_least_one())]
    experts: u32,
    /// Experts of a token
    #[arg(long, default_value_t = 2, value_parser = at_least_one())]
    top_k: u32,
    #[arg(long, default_value_t = 256, value_parser = at_least_one())]
    hidden: u32,
    #[arg(long, default_value_t = 512, value_parser = at_least_one())]
    intermediate: u32,
    /// Most tokens of a rank
    #[arg(long, default_value_t = 16, value_parser = at_least_one())]
    tokens: u32,
    #[arg(long, default_value_t = 20, value_parser = at_least_one())]
    steps: u32,
    /// The seed of weights and tokens [default: rank 0 draws it]
    #[arg(long)]
    seed: Option<u64>,
    /// This rank ends in the middle, without notifying the others
    #[arg(long, value_name = "RANK")]
    lose: Option<usize>,
    /// Send rows in packets, which suits few tokens
    #[arg(long)]
    packets: bool,
    /// Work on the CPU even where there are GPUs
    #[arg(long)]
    host: bool,
}

fn at_least_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// The contents of the output before a step.
const UNTOUCHED: f32 = 7.0;

/// A rank: its experts, and the memory that steps run in.
struct Worker {
    /// This rank's number in the beginning, from which its tokens are drawn.
    rank: usize,
    experts: Experts,
    multiplier: Multiplier,
    stream: Stream,
    layer: Layer,
    whole: Whole,
    gate: Vec<f32>,
    /// `W1` and `W2` of this rank's experts.
    weights: [DeviceBuffer<f32>; 2],
    x: DeviceBuffer<f32>,
    ids: DeviceBuffer<i32>,
    factors: DeviceBuffer<f32>,
    /// How many tokens of `x` there are.
    count: DeviceBuffer<u32>,
    /// The rows of this rank's experts: `[experts, rows, hidden]`.
    received: DeviceBuffer<f32>,
    inner: DeviceBuffer<f32>,
    results: DeviceBuffer<f32>,
    output: DeviceBuffer<f32>,
}

impl Worker {
    fn new(rank: usize, experts: Experts, layer: Layer) -> Result<Self> {
        let (tokens, device) = (experts.config().max_tokens, experts.communicator().device().clone());
        let (multiplier, stream) = (Multiplier::new(&device)?, Stream::new(&device)?);
        let own = experts.local_experts();
        let of_own = |matrix: fn(&Layer, usize) -> Vec<f32>| {
            let values: Vec<f32> = own.iter().flat_map(|expert| matrix(&layer, *expert)).collect();
            DeviceBuffer::from_slice(&values, &stream)
        };
        let weights = [of_own(Layer::first)?, of_own(Layer::second)?];
        let (rows, hidden) = (experts.capacity(), layer.hidden);
        let floats = |len| DeviceBuffer::new(&device, len);
        Ok(Self {
            weights,
            x: floats(tokens * hidden)?,
            ids: DeviceBuffer::new(&device, tokens * layer.top_k)?,
            factors: floats(tokens * layer.top_k)?,
            count: DeviceBuffer::new(&device, 1)?,
            received: floats(rows * hidden)?,
            inner: floats(rows * layer.intermediate)?,
            results: floats(rows * hidden)?,
            output: floats(tokens * hidden)?,
            gate: layer.gate(),
            whole: Whole::new(layer),
            rank,
            experts,
            multiplier,
            stream,
            layer,
        })
    }

    /// Dispatch, experts, combine: enqueued or recorded.
    fn forward<'op>(&'op self, queue: impl Queue<'op> + Copy) -> Result<()> {
        let routing = Routing::new(&self.ids).weights(&self.factors).tokens(&self.count);
        let into = Received::rows(&self.received);
        let routed = self.experts.dispatch(&routing, &self.x, &into, queue)?;
        self.multiply(queue)?;
        routed.combine(&self.results, &self.output, Combine::default(), queue)
    }

    /// The experts of this rank, on all rows that may come. The results of rows that did not come are never read.
    fn multiply<'op>(&'op self, queue: impl Queue<'op> + Copy) -> Result<()> {
        let [first, second] = &self.weights;
        let (count, Layer { hidden, intermediate, .. }) = (self.experts.local_experts().len(), self.layer);
        if count == 0 {
            return Ok(());
        }
        let rows = self.experts.capacity() / count;
        let product = |inner, columns, relu| {
            let mut product = Product::new(inner, columns, Numeric::F32);
            (product.count, product.right, product.relu) = (count, symmetra::matmul::Order::Rows, relu);
            product
        };
        let operands = [Tensor::of(&self.received), Tensor::of(first), Tensor::of(&self.inner)];
        self.multiplier.enqueue(&product(hidden, intermediate, true), rows, operands, queue)?;
        let operands = [Tensor::of(&self.inner), Tensor::of(second), Tensor::of(&self.results)];
        self.multiplier.enqueue(&product(intermediate, hidden, false), rows, operands, queue)
    }

    /// Runs new tokens through the layer, by the graph if there is one. Returns the error of the result.
    fn step(&self, step: usize, graph: Option<&Graph<'_>>) -> Result<f64> {
        let (stream, most) = (&self.stream, self.output.len() / self.layer.hidden);
        let x = self.layer.tokens(self.rank, step, most);
        let routing = self.layer.route(&self.gate, &x);
        let (ids, factors) = &routing;
        self.x.write(&padded(&x, self.x.len()), stream)?;
        self.ids.write(&padded(ids, self.ids.len()), stream)?;
        self.factors.write(&padded(factors, self.factors.len()), stream)?;
        self.count.write(&[(x.len() / self.layer.hidden) as u32], stream)?;
        self.output.write(&vec![UNTOUCHED; self.output.len()], stream)?;
        match graph {
            Some(graph) => graph.launch(stream)?,
            None => self.forward(stream)?,
        }
        self.experts.synchronize(stream)?;
        let output = self.output.read(stream)?;
        let (found, rest) = output.split_at(x.len());
        if rest.iter().any(|value| *value != UNTOUCHED) {
            return Ok(f64::MAX);
        }
        Ok(if x.is_empty() { 0.0 } else { reference::error(found, &self.whole.result(&x, &routing)) })
    }

    /// An eager step, and more steps that replay one graph. Keeps the largest error, also where a later step fails.
    /// Ends this process before step `last`.
    fn run(&self, mut steps: RangeInclusive<usize>, last: Option<usize>, worst: &mut f64) -> Result<()> {
        let Some(first) = steps.next() else { return Ok(()) };
        *worst = worst.max(self.step(first, None)?);
        let graph = self.stream.capture(|capture| self.forward(capture))?;
        graph.register()?;
        for step in steps {
            if last == Some(step) {
                std::process::exit(0);
            }
            *worst = worst.max(self.step(step, Some(&graph))?);
        }
        Ok(())
    }
}

/// A batch of the full length, whose tail no token owns.
fn padded<T: Copy + Default>(values: &[T], len: usize) -> Vec<T> {
    let rest = std::iter::repeat_n(T::default(), len - values.len());
    values.iter().copied().chain(rest).collect()
}

fn main() -> std::result::Result<ExitCode, Box<dyn std::error::Error>> {
    let args = Args::parse();
    let ranks = std::env::var("WORLD_SIZE").ok().and_then(|size| size.parse::<usize>().ok()).unwrap_or(1);
    let [experts, top_k, hidden, intermediate] =
        [args.experts, args.top_k, args.hidden, args.intermediate].map(|number| number as usize);
    if top_k > experts {
        return Err(format!("a token has {top_k} experts, and there are {experts}").into());
    }
    let tokens = args.tokens as usize;
    let mut layout = ExpertConfig::new(experts, top_k, hidden, tokens);
    layout.dtype = Dtype::F32;
    // The experts of a token differ, so an expert gets at most each token once.
    layout.layout = Layout::Padded { rows: ranks * tokens };
    layout.method = if args.packets { Method::Packets } else { Method::Auto };
    let mut config = EnvConfig::default();
    config.tensor_parallel_size = ranks;
    config.communicator.heap_bytes += expert_bytes(ranks, &config.communicator, &layout)?;
    if args.host {
        config.device = Some(Device::host()?);
    }
    let env = Environment::init(config)?;
    let first = env.world().is_first_rank();
    let seed = first.then(|| args.seed.unwrap_or_else(|| fastrand::u64(..)));
    let seed = env.world().broadcast_object(seed.as_ref(), 0)?;
    let layer = Layer { experts, top_k, hidden, intermediate, seed };
    let (rank, steps) = (env.world().rank(), args.steps as usize);
    let last = args.lose.filter(|lost| *lost == rank).map(|_| steps / 2 + 1);
    let mut worker = Worker::new(rank, env.ep().experts(layout)?, layer)?;
    // The ranks of the world that work, and the step that is next on all of them.
    let (mut working, mut next, mut error) = ((0..ranks).collect::<Vec<_>>(), 0, 0.0);
    while let Err(failed) = worker.run(next..=steps, last, &mut error) {
        let Error::PeerLost { rank: lost, .. } = failed else { return Err(failed.into()) };
        let Survivors { experts, lost, ended, .. } = worker.experts.without(&[lost])?;
        // A step has one dispatch, and those since the experts were opened began with `next`.
        next += ended as usize;
        let names: Vec<usize> = lost.iter().map(|lost| working[*lost]).collect();
        working.retain(|rank| !names.contains(rank));
        if working[0] == rank {
            println!("without ranks {names:?}: the others go on with step {next}");
        }
        worker = Worker::new(rank, experts, layer)?;
    }
    let (bound, communicator) = (layer.bound(), worker.experts.communicator().clone());
    let errors = communicator.group().all_gather_bytes(&error.to_le_bytes())?;
    let errors = errors.iter().map(|error| Ok(f64::from_le_bytes(error.as_slice().try_into()?)));
    let worst = errors.collect::<std::result::Result<Vec<_>, TryFromSliceError>>()?.into_iter().fold(0.0, f64::max);
    let right = worst <= bound;
    if working[0] == rank {
        let (device, ranks, verdict) = (communicator.device().name(), working.len(), if right { "" } else { " WRONG" });
        println!(
            "{device}, {top_k} of {experts} experts on {ranks} ranks, {:?}, {steps} steps, seed {seed}: \
             error {worst:.1e}, bound {bound:.1e}{verdict}",
            worker.experts.method()
        );
    }
    drop(worker);
    match working.len() == ranks {
        true => env.close()?,
        // The groups of the environment have failed, and end with it.
        false => communicator.close()?,
    }
    Ok(ExitCode::from(u8::from(!right)))
}
