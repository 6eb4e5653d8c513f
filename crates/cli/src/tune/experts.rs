//! The times of a dispatch and its combine: by packets, or by direct access.

use serde::{Deserialize, Serialize};
use symmetra::experts::{Combine, ExpertConfig, Experts, Method, Received, Routing, expert_bytes, expert_method};
use symmetra::half::bf16;
use symmetra::{Communicator, Config, DeviceBuffer, DeviceKind};

use super::calls::{AgreedSize, TunedCalls};
use super::timing::{TimedSize, Timing, ordinary};
use harness::comparison::work::Work;
use harness::experts::ExpertShape;
use harness::failure::CommandFailure;
use harness::ranks::Say;

const METHODS: [Method; 2] = [Method::Packets, Method::Direct];
/// The bytes of a symmetric buffer in addition to its elements, at most.
const BESIDE: u64 = 64 << 10;

/// A layer of experts, by numbers of tokens of a rank, the fewest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TunedLayer {
    pub(super) shape: ExpertShape,
    pub(super) ranks: usize,
    pub(super) tokens: Vec<usize>,
}

impl TunedLayer {
    /// 1, 2, 4 and so on tokens of a rank, up to `max_bytes` bytes of rows.
    pub(super) fn new(shape: ExpertShape, max_bytes: u64) -> Self {
        let fits = |tokens: &usize| *tokens == 1 || row_bytes(shape, *tokens) <= max_bytes;
        Self { shape, ranks: 0, tokens: (0..20).map(|power| 1 << power).take_while(fits).collect() }
    }

    /// The layer on `ranks` ranks, with the numbers of tokens that packets can serve.
    pub(super) fn on(&self, kind: DeviceKind, ranks: usize) -> Result<Self, CommandFailure> {
        let (shape, group) = (self.shape, Config::default());
        let mut tokens = Vec::new();
        for count in self.tokens.iter().copied() {
            match expert_method(kind, ranks, true, &group, &config(shape, count, Method::Packets)) {
                Ok(_) => tokens.push(count),
                Err(symmetra::Error::Unsupported { .. }) => break,
                Err(error) => return Err(CommandFailure::usage(error.to_string())),
            }
        }
        if tokens.is_empty() {
            return Err(CommandFailure::usage(format!(
                "--experts {shape}: packets cannot serve a layer of this many experts"
            )));
        }
        Ok(Self { shape, ranks, tokens })
    }

    /// Bytes of the regions of all experts: a graph that was dropped keeps the regions of its experts for some time.
    pub(super) fn heap_bytes(&self) -> u64 {
        let group = Config::default();
        let bytes = |tokens: usize| {
            let of_method = |method| expert_bytes(self.ranks, &group, &config(self.shape, tokens, method));
            METHODS.into_iter().map(|method| of_method(method).unwrap_or(0) + BESIDE).sum::<u64>()
        };
        self.tokens.iter().map(|tokens| bytes(*tokens)).sum()
    }

    pub(super) fn run(&self, timing: &Timing<'_, '_>, say: Say<'_, AgreedSize>) -> Result<(), CommandFailure> {
        let communicator = timing.communicator;
        let calls = TunedCalls::Experts(self.shape);
        for tokens in self.tokens.iter().copied() {
            let open = |method| communicator.experts(config(self.shape, tokens, method));
            let experts: Vec<Experts> = METHODS.into_iter().map(open).collect::<symmetra::Result<_>>()?;
            let operands = TokenOperands::new(communicator, self.shape, tokens, experts[0].capacity())?;
            let candidates: Vec<_> = METHODS
                .into_iter()
                .zip(&experts)
                .map(|(method, experts)| (method.name().to_owned(), operands.work(experts)))
                .collect();
            let size = TimedSize { calls: &calls, bytes: row_bytes(self.shape, tokens) };
            timing.trial(size, &candidates, |work, operations| timing.graph(work, operations), say)?;
        }
        Ok(())
    }
}

fn config(shape: ExpertShape, tokens: usize, method: Method) -> ExpertConfig {
    let mut config = shape.config(tokens);
    config.method = method;
    config
}

/// Bytes of rows of bf16.
fn row_bytes(shape: ExpertShape, tokens: usize) -> u64 {
    (tokens * shape.hidden * size_of::<bf16>()).next_multiple_of(16) as u64
}

/// The operands of a rank.
struct TokenOperands {
    ids: DeviceBuffer<i32>,
    weights: DeviceBuffer<f32>,
    rows: DeviceBuffer<bf16>,
    received: DeviceBuffer<bf16>,
    output: DeviceBuffer<bf16>,
}

impl TokenOperands {
    /// Tokens whose experts are drawn at random, all with equal chances.
    fn new(communicator: &Communicator, shape: ExpertShape, tokens: usize, capacity: usize) -> symmetra::Result<Self> {
        let (device, ExpertShape { experts, top_k, hidden }) = (communicator.device(), shape);
        let stream = symmetra::Stream::new(device)?;
        let mut random = fastrand::Rng::with_seed(communicator.rank() as u64);
        let mut ids = Vec::with_capacity(tokens * top_k);
        for _ in 0..tokens {
            let drawn = random.choose_multiple(0..experts as i32, top_k);
            ids.extend(drawn.iter().copied().cycle().take(top_k));
        }
        let operands = Self {
            ids: DeviceBuffer::from_slice(&ids, &stream)?,
            weights: DeviceBuffer::from_slice(&vec![1.0 / top_k as f32; ids.len()], &stream)?,
            rows: DeviceBuffer::from_slice(&ordinary::<bf16>(communicator.rank(), tokens * hidden), &stream)?,
            received: DeviceBuffer::from_slice(&vec![bf16::ONE; capacity * hidden], &stream)?,
            output: DeviceBuffer::new(device, tokens * hidden)?,
        };
        Ok(operands)
    }

    /// A dispatch and its combine, by the method of the experts.
    fn work<'o>(&'o self, experts: &'o Experts) -> Work<'o> {
        let Self { ids, weights, rows, received, output } = self;
        Box::new(move |queue| {
            let routing = Routing::new(ids).weights(weights);
            let routed = experts.dispatch(&routing, rows, &Received::rows(received), queue)?;
            routed.combine(received, output, Combine::default(), queue)
        })
    }
}
