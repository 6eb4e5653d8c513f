//! MoE dispatch and combine on tensors.

#[cfg(feature = "cuda")]
mod cuda;

#[cfg(feature = "cuda")]
use candle_core::Device;
use candle_core::{DType, Result, Tensor, WithDType};
use symmetra::experts::{Combine, ExpertConfig, Layout, Received, Routed, Routing};
use symmetra::half::{bf16, f16};
use symmetra::{DeviceBuffer, Dtype, Element};

use crate::Group;
use crate::collective::contiguous;
use crate::error::{invalid, wrap};

/// The experts of a layer, divided among the ranks of a group. On the CPU, rows are
/// copied from and to tensors of candle.
///
/// ```
/// use candle_core::{Result, Tensor};
/// use symmetra_candle::Experts;
///
/// /// `[tokens, hidden]` of f32 becomes the weighted sums of the results of each token's experts.
/// fn layer(x: &Tensor, ids: &Tensor, weights: &Tensor, experts: &Experts, run: impl Fn(usize, Tensor) -> Result<Tensor>) -> Result<Tensor> {
///     let dispatched = experts.dispatch(x, ids, Some(weights))?;
///     let results = dispatched.of_experts()?.into_iter().enumerate().map(|(expert, rows)| run(expert, rows));
///     dispatched.combine(&Tensor::cat(&results.collect::<Result<Vec<_>>>()?, 0)?)
/// }
/// ```
#[derive(Clone)]
pub struct Experts {
    experts: symmetra::experts::Experts,
    group: Group,
}

impl Experts {
    /// Opens experts with these settings, which are equal on all ranks. The layout is
    /// [`ByExpert`](Layout::ByExpert), whichever the settings name. Collective; blocks.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::experts`](symmetra::ProcessGroup::experts).
    pub fn open(group: &Group, config: ExpertConfig) -> Result<Self> {
        let config = config.layout(Layout::ByExpert { align: 1 });
        let experts = group.communicator().experts(config).map_err(wrap)?;
        Ok(Self { experts, group: group.clone() })
    }

    /// The numbers of this rank's experts, in the order of [`Dispatched::counts`].
    pub fn local(&self) -> Vec<usize> {
        self.experts.local_experts()
    }

    /// Sends the rows of this rank's tokens to their experts, and receives the rows of this rank's experts. Blocks until the
    /// counts are there. All ranks call this in the same order. `x` is `[tokens, hidden]` of the type of the settings. `ids` is `[tokens, top_k]` of u32
    /// or i64, where -1 means no expert. `weights` is `[tokens, top_k]`; without weights each weight is 1.
    ///
    /// # Errors
    /// The errors of [`dispatch`](symmetra::experts::Experts::dispatch) and of
    /// [`Routed::counts`](symmetra::experts::Routed::counts); candle's errors for another type or number of dimensions.
    pub fn dispatch(&self, x: &Tensor, ids: &Tensor, weights: Option<&Tensor>) -> Result<Dispatched<'_>> {
        match self.experts.config().dtype {
            Dtype::F16 => self.dispatch_as::<f16>(x, ids, weights),
            Dtype::BF16 => self.dispatch_as::<bf16>(x, ids, weights),
            _ => self.dispatch_as::<f32>(x, ids, weights),
        }
    }

    fn dispatch_as<T: Number>(&self, x: &Tensor, ids: &Tensor, weights: Option<&Tensor>) -> Result<Dispatched<'_>> {
        let tokens = x.dims2()?.0;
        if ids.dims2()?.0 != tokens {
            return Err(invalid(format!(
                "the number of rows of the ids is {}, but there are {tokens} tokens",
                ids.dim(0)?
            )));
        }
        let (x, ids) = (contiguous(x)?, contiguous(&ids.to_dtype(DType::I64)?)?);
        let weights = weights.map(|weights| contiguous(&weights.to_dtype(DType::F32)?)).transpose()?;
        let sent = Sent { rows: &x, ids: &ids, weights: weights.as_ref() };
        let arrived = match x.device() {
            #[cfg(feature = "cuda")]
            Device::Cuda(cuda) => self.dispatch_on_cuda::<T>(&sent, cuda)?,
            _ => self.dispatch_on_cpu::<T>(&sent)?,
        };
        Ok(Dispatched { experts: self, arrived, tokens })
    }

    fn dispatch_on_cpu<T: Number>(&self, sent: &Sent<'_>) -> Result<Arrived<'_>> {
        let (rank, hidden) = (self.group.parts(), sent.rows.dim(1)?);
        let (rows, ids) = (self.buffer::<T>(sent.rows)?, self.buffer::<i64>(sent.ids)?);
        let weights = sent.weights.map(|weights| self.buffer::<f32>(weights)).transpose()?;
        let dispatched = || -> symmetra::Result<_> {
            let room = DeviceBuffer::<T>::new(rank.communicator.device(), self.experts.capacity() * hidden)?;
            let routing = match &weights {
                Some(weights) => Routing::new(&ids).weights(weights),
                None => Routing::new(&ids),
            };
            let routed = self.experts.dispatch(&routing, &rows, &Received::rows(&room), &rank.stream)?;
            let counts = routed.counts()?;
            rank.communicator.synchronize(&rank.stream)?;
            let values = room.borrow().slice(..counts.iter().sum::<usize>() * hidden)?.read(&rank.stream)?;
            Ok((routed, counts, values))
        };
        let (routed, counts, values) = dispatched().map_err(wrap)?;
        let rows = Tensor::from_vec(values, (counts.iter().sum::<usize>(), hidden), sent.rows.device())?;
        Ok(Arrived { routed, rows, counts })
    }

    /// The elements of a tensor, in memory of symmetra.
    fn buffer<T: Element + WithDType>(&self, tensor: &Tensor) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::from_slice(&tensor.flatten_all()?.to_vec1()?, &self.group.parts().stream).map_err(wrap)
    }
}

/// The element types of rows.
#[cfg(not(feature = "cuda"))]
trait Number: Element + WithDType {}
#[cfg(not(feature = "cuda"))]
impl<T: Element + WithDType> Number for T {}
/// The element types of rows.
#[cfg(feature = "cuda")]
trait Number: WithDType + crate::cuda::Value {}
#[cfg(feature = "cuda")]
impl<T: WithDType + crate::cuda::Value> Number for T {}

/// The operands of a dispatch: contiguous tensors, with ids of i64 and weights of f32.
struct Sent<'a> {
    rows: &'a Tensor,
    ids: &'a Tensor,
    weights: Option<&'a Tensor>,
}

/// The results of a dispatch.
struct Arrived<'a> {
    routed: Routed<'a>,
    rows: Tensor,
    counts: Vec<usize>,
}

/// The rows that this rank's experts received, and the way back of their results.
#[must_use = "the tokens wait for their results"]
pub struct Dispatched<'a> {
    experts: &'a Experts,
    arrived: Arrived<'a>,
    tokens: usize,
}

impl Dispatched<'_> {
    /// The received rows, `[rows, hidden]`, ordered by expert.
    pub fn rows(&self) -> &Tensor {
        &self.arrived.rows
    }

    /// The number of rows of each expert of this rank.
    pub fn counts(&self) -> &[usize] {
        &self.arrived.counts
    }

    /// The rows of each expert of this rank, `[rows of the expert, hidden]`.
    ///
    /// # Errors
    /// Candle's errors.
    pub fn of_experts(&self) -> Result<Vec<Tensor>> {
        let mut start = 0;
        let part = |count: &usize| {
            let part = self.arrived.rows.narrow(0, start, *count);
            start += count;
            part
        };
        self.arrived.counts.iter().map(part).collect()
    }

    /// Sends the results of this rank's experts back, and returns the weighted sums of this rank's tokens,
    /// `[tokens, hidden]`. Blocks on the CPU. All ranks call this in the same order. `results` has the shape, type and order of
    /// [`rows`](Self::rows).
    ///
    /// # Errors
    /// The errors of [`Routed::combine`](symmetra::experts::Routed::combine); candle's errors for another shape or type.
    pub fn combine(self, results: &Tensor) -> Result<Tensor> {
        if results.dims() != self.arrived.rows.dims() {
            let [lhs, rhs] = [results, &self.arrived.rows].map(|tensor| tensor.shape().clone());
            return Err(candle_core::Error::ShapeMismatchBinaryOp { lhs, rhs, op: "combine" }.bt());
        }
        match self.experts.experts.config().dtype {
            Dtype::F16 => self.combine_as::<f16>(results),
            Dtype::BF16 => self.combine_as::<bf16>(results),
            _ => self.combine_as::<f32>(results),
        }
    }

    fn combine_as<T: Number>(&self, results: &Tensor) -> Result<Tensor> {
        match results.device() {
            #[cfg(feature = "cuda")]
            Device::Cuda(cuda) => self.combine_on_cuda::<T>(&contiguous(results)?, cuda),
            _ => self.combine_on_cpu::<T>(results),
        }
    }

    fn combine_on_cpu<T: Number>(&self, results: &Tensor) -> Result<Tensor> {
        let (rank, hidden, device) = (self.experts.group.parts(), results.dim(1)?, results.device());
        let results = self.experts.buffer::<T>(results)?;
        let combined = || -> symmetra::Result<_> {
            let sums = DeviceBuffer::<T>::new(rank.communicator.device(), self.tokens * hidden)?;
            self.arrived.routed.combine(&results, &sums, Combine::default(), &rank.stream)?;
            rank.communicator.synchronize(&rank.stream)?;
            sums.read(&rank.stream)
        };
        Tensor::from_vec(combined().map_err(wrap)?, (self.tokens, hidden), device)
    }
}
