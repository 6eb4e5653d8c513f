//! A step of decoding as a CUDA graph.

use std::sync::Arc;

use candle_core::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use candle_core::cuda::cudarc::driver::{CudaGraph, CudaStream};
use candle_core::{Device, Error, Result, Tensor};

use crate::model::Llama;

/// A device with a stream of its own for a rank that captures. Cudarc tracks no events there: the wait for an event of work
/// before a capture would end the capture. All work is on one stream, so events would order nothing.
#[allow(unsafe_code)]
pub(crate) fn device(ordinal: usize) -> Result<Device> {
    let device = Device::new_cuda_with_stream(ordinal)?;
    // SAFETY: the program uses the memory of the device on this stream alone.
    unsafe { device.as_cuda_device()?.disable_event_tracking() };
    Ok(device)
}

/// Greedy tokens after a prompt, as [`decode`](crate::model::decode) finds them: the prompt and one step outside a graph, and
/// the other steps by one. `each` gets the token of every step.
pub(crate) fn decode(
    model: &Llama,
    prompt: &[u32],
    steps: usize,
    ends: impl Fn(u32) -> bool,
    mut each: impl FnMut(u32),
) -> Result<Vec<u32>> {
    let (mut tokens, mut step) = (Vec::new(), None);
    while tokens.len() < steps {
        let token = match (&mut step, tokens.last()) {
            (_, None) => {
                let token = model.logits(prompt, 0)?.get(0)?.argmax(0)?.to_scalar()?;
                model.group().check()?;
                token
            }
            (None, Some(last)) => {
                let (captured, token) = GraphStep::capture(model, *last, prompt.len())?;
                step = Some(captured);
                token
            }
            (Some(step), Some(_)) => step.launch()?,
        };
        each(token);
        tokens.push(token);
        if ends(token) {
            break;
        }
    }
    Ok(tokens)
}

/// The step after a token, whose launch leaves the next token and the next position in the memory that the step reads.
struct GraphStep<'a> {
    model: &'a Llama,
    /// u32 `[batch, 1]`.
    tokens: Tensor,
    /// u32 `[1]`.
    position: Tensor,
    /// The next position.
    at: usize,
    stream: Arc<CudaStream>,
    graph: Option<CudaGraph>,
}

impl<'a> GraphStep<'a> {
    /// The step that follows `token`, whose place in its sequence is `at`. Runs one step outside a graph, then captures.
    /// Returns the token of the first step too.
    fn capture(model: &'a Llama, token: u32, at: usize) -> Result<(Self, u32)> {
        let device = model.group().device();
        let cuda = device.as_cuda_device()?;
        let mut step = Self {
            model,
            tokens: Tensor::full(token, (model.room().batch, 1), device)?,
            position: Tensor::new(&[at as u32], device)?,
            at,
            stream: cuda.cuda_stream(),
            graph: None,
        };
        // Candle's kernels read small arrays, such as strides, from the device. The first step makes them, and this thread
        // keeps them for the launches.
        let _arrays = cuda.enable_cuda_graph_htod_cache();
        step.enqueue()?;
        let first = step.finish()?;
        step.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(Error::wrap)?;
        let recorded = step.enqueue();
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = step.stream.end_capture(flags);
        recorded?;
        step.graph = graph.map_err(Error::wrap)?;
        Ok((step, first))
    }

    /// Launches the graph, waits for it, and returns the token of the first sequence.
    fn launch(&mut self) -> Result<u32> {
        self.model.check_room(self.at, 1)?;
        match &self.graph {
            Some(graph) => graph.launch().map_err(Error::wrap)?,
            None => return Err(Error::msg("the capture of the step has no graph")),
        }
        self.finish()
    }

    fn enqueue(&self) -> Result<()> {
        let next = self.model.forward(&self.tokens, &self.position)?.argmax_keepdim(1)?;
        self.tokens.slice_set(&next, 0, 0)?;
        self.position.slice_set(&(&self.position + 1.0)?, 0, 0)
    }

    fn finish(&mut self) -> Result<u32> {
        self.at += 1;
        self.stream.synchronize().map_err(Error::wrap)?;
        self.model.group().check()?;
        self.tokens.get(0)?.get(0)?.to_scalar()
    }
}
