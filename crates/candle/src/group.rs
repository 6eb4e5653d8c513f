//! A rank of a tensor parallel group, and its operations on tensors.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::shape::Dim;
use candle_core::{Device, Result, Tensor};
use candle_nn::var_builder::Shard;
use symmetra::bootstrap::{Bootstrap, Tcp, Threads};
use symmetra::op::{ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, Op, REDUCE_SCATTER};
use symmetra::{AllReduceOptions, Communicator, Config, Error, How};

use crate::collective::{Collective, Rank, contiguous};
use crate::error::{check_divides, wrap};
#[cfg(feature = "nccl")]
use crate::nccl::Nccl;
use crate::norm::RowsNorm;

/// The devices of a build without the feature `cuda`, and with it.
#[cfg(not(feature = "cuda"))]
const BUILT_FOR: &str = "tensors are on the CPU: the feature `cuda` is off";
#[cfg(feature = "cuda")]
const BUILT_FOR: &str = "tensors are on the CPU or on NVIDIA GPUs";

/// The time in which all processes of [`Group::from_env`] have to start.
const START: Duration = Duration::from_secs(120);

/// A rank of a tensor parallel group, on a device of candle. Cheap to clone: each layer holds a clone. Any thread may use a
/// group, but all ranks make the same calls in the same order.
///
/// The operations return new tensors, except [`all_reduce_in_place`](Self::all_reduce_in_place). On the CPU an
/// operation blocks until its result is complete. On a GPU an operation enqueues on the stream of candle's device and
/// returns; errors of the device come from a later call or [`check`](Self::check). In a group of one rank the
/// collectives return their input, and [`all_reduce_norm`](Self::all_reduce_norm) adds the residual and norms the
/// rows.
///
/// [`Device::new_cuda`] makes a device on CUDA's stream of each thread. A group on such a device is opened and used in one
/// thread. Groups on [`Device::new_cuda_with_stream`] may be used in any thread.
#[derive(Clone)]
#[must_use = "dropping the last clone leaves the group"]
pub struct Group {
    rank: Arc<Rank>,
    /// In place of the communicator's operations.
    #[cfg(feature = "nccl")]
    nccl: Option<Arc<Nccl>>,
}

impl Group {
    /// Opens a group of all ranks of `bootstrap` on this rank's `device`. Collective; blocks.
    ///
    /// # Errors
    /// The errors of [`Communicator::open`]; [`Error::Unsupported`] for a device that is neither the CPU nor, with the feature
    /// `cuda`, a CUDA device.
    pub fn open(bootstrap: impl Bootstrap, device: &Device, config: Config) -> Result<Self> {
        let rank = match device {
            Device::Cpu => Rank::on_cpu(bootstrap, config),
            #[cfg(feature = "cuda")]
            Device::Cuda(cuda) => Rank::on_cuda(bootstrap, cuda, config),
            _ => {
                let (what, reason) = (format!("a group on {:?}", device.location()), BUILT_FOR.to_owned());
                Err(Error::Unsupported { what, reason })
            }
        };
        let rank = Arc::new(rank.map_err(wrap)?);
        Ok(Self {
            rank,
            #[cfg(feature = "nccl")]
            nccl: None,
        })
    }

    /// A group with this group's ranks for comparisons: NCCL makes the sums and gathers, through cudarc's class. Operations
    /// other than [`all_reduce`](Self::all_reduce) and [`all_gather`](Self::all_gather) of f32, f16 and bf16 are
    /// [`Error::Unsupported`]. A lost rank is no error there: the call never ends. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for tensors on the CPU; NCCL's errors, as those of candle.
    #[cfg(feature = "nccl")]
    pub fn over_nccl(&self) -> Result<Self> {
        let nccl = Nccl::open(&self.rank, |id| self.broadcast(id, 0))?;
        Ok(Self { rank: self.rank.clone(), nccl: Some(Arc::new(nccl)) })
    }

    /// Opens the group of the processes that `symmetra launch` or torchrun started, with the default settings. Reads the
    /// variables of [`TcpConfig::from_env`](symmetra::bootstrap::TcpConfig::from_env). Blocks until all processes have
    /// joined, at most 120 s.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) and of [`Tcp::from_env`].
    pub fn from_env(device: &Device) -> Result<Self> {
        Self::open(Tcp::from_env(Instant::now() + START).map_err(wrap)?, device, Config::default())
    }

    /// Runs `rank` on a thread for each rank, and returns the results in rank order. `rank` opens the group by
    /// [`open`](Self::open). A panic of a rank continues on the calling thread.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a world size outside 1..=256.
    pub fn threads<T: Send>(world_size: usize, rank: impl Fn(Threads) -> T + Sync) -> Result<Vec<T>> {
        let bootstraps = Threads::new(world_size).map_err(wrap)?;
        std::thread::scope(|scope| {
            let rank = &rank;
            let threads: Vec<_> =
                bootstraps.into_iter().map(|bootstrap| scope.spawn(move || rank(bootstrap))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            Ok(joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect())
        })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank.communicator.rank()
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.rank.communicator.world_size()
    }

    /// The device of the tensors.
    pub fn device(&self) -> &Device {
        &self.rank.device
    }

    /// This rank's part of a weight that is cut along `dim`, as candle's sharded loader takes it.
    pub fn shard(&self, dim: usize) -> Shard {
        Shard { dim, rank: self.rank(), world_size: self.world_size() }
    }

    /// The sum of the tensors of all ranks, which have equal shapes and types.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::all_reduce`](symmetra::ProcessGroup::all_reduce); [`Error::Unsupported`] for a type that
    /// symmetra does not have.
    pub fn all_reduce(&self, x: &Tensor) -> Result<Tensor> {
        self.all_reduce_with(x, AllReduceOptions::default())
    }

    /// The reduction of the tensors of all ranks, with a reduction, an algorithm or a codec.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::all_reduce_with`](symmetra::ProcessGroup::all_reduce_with) and of
    /// [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_with(&self, x: &Tensor, options: impl Into<AllReduceOptions>) -> Result<Tensor> {
        self.apply(&ALL_REDUCE, How { options: options.into(), ..How::default() }, x, x.dims())
    }

    /// Sums a tensor over all ranks in place: every tensor that shares its storage has the sum afterwards. The tensor may be
    /// a contiguous part of a storage.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce);
    /// [`RequiresContiguous`](candle_core::Error::RequiresContiguous) for another layout.
    pub fn all_reduce_in_place(&self, x: &Tensor) -> Result<()> {
        self.apply_in_place(&ALL_REDUCE, How::default(), x)
    }

    /// The tensors of all ranks, one after the other along dimension `dim`, in rank order. Their shapes are equal. No data
    /// are copied before or after the call.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::all_gather_along`](symmetra::ProcessGroup::all_gather_along) and of
    /// [`all_reduce`](Self::all_reduce).
    pub fn all_gather(&self, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        let dim = dim.to_index(x.shape(), "all_gather")?;
        let mut shape = x.dims().to_vec();
        shape[dim] *= self.world_size();
        self.apply(&ALL_GATHER, How { along: Some((dim, x.dims())), ..How::default() }, x, &shape)
    }

    /// This rank's part of the sum of the tensors of all ranks, cut along dimension `dim` in rank order.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::reduce_scatter_along`](symmetra::ProcessGroup::reduce_scatter_along) and of
    /// [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter(&self, x: &Tensor, dim: impl Dim) -> Result<Tensor> {
        let dim = dim.to_index(x.shape(), "reduce_scatter")?;
        let mut shape = x.dims().to_vec();
        check_divides(format_args!("dimension {dim} of the tensor"), shape[dim], self.world_size())?;
        shape[dim] /= self.world_size();
        self.apply(&REDUCE_SCATTER, How { along: Some((dim, x.dims())), ..How::default() }, x, &shape)
    }

    /// The tensor of rank `root`. All ranks pass tensors of equal shape and type.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::broadcast`](symmetra::ProcessGroup::broadcast) and of [`all_reduce`](Self::all_reduce).
    pub fn broadcast(&self, x: &Tensor, root: usize) -> Result<Tensor> {
        let output = if x.elem_count() == 0 { contiguous(x)? } else { x.force_contiguous()? };
        self.apply_in_place(&BROADCAST, How { parameter: root, ..How::default() }, &output)?;
        Ok(output)
    }

    /// Cuts dimension 0 into a part for every rank, in rank order, and returns the parts from every rank.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::all_to_all`](symmetra::ProcessGroup::all_to_all) and of
    /// [`all_reduce`](Self::all_reduce).
    pub fn all_to_all(&self, x: &Tensor) -> Result<Tensor> {
        check_divides("dimension 0 of the tensor", x.dim(0)?, self.world_size())?;
        self.apply(&ALL_TO_ALL, How::default(), x, x.dims())
    }

    /// Sums rows over all ranks, adds a residual, and norms each row (RMSNorm), by one kernel. Returns the normed rows, and
    /// the rows before the norm, which are the residual of the next layer. A row is the last dimension of `x`, of f32, f16 or
    /// bf16. `residual` has the shape of `x` and `weight` the length of a row; both are equal on all ranks.
    ///
    /// # Errors
    /// The errors of [`ProcessGroup::all_reduce_norm`](symmetra::ProcessGroup::all_reduce_norm) and of
    /// [`all_reduce`](Self::all_reduce); candle's errors for shapes or types that differ.
    pub fn all_reduce_norm(
        &self,
        x: &Tensor,
        residual: Option<&Tensor>,
        weight: &Tensor,
        epsilon: f32,
    ) -> Result<(Tensor, Tensor)> {
        self.refuse_nccl("all_reduce_norm")?;
        RowsNorm { rank: &self.rank, epsilon }.apply(x, residual, weight)
    }

    /// Checks, without blocking, that the group is open and every rank is healthy as far as this rank knows.
    ///
    /// # Errors
    /// [`Error::Closed`], or the group's first failure.
    pub fn check(&self) -> Result<()> {
        self.rank.communicator.check().map_err(wrap)
    }

    /// Closes the group, also for all clones. Collective; blocks.
    ///
    /// # Errors
    /// The errors of [`Communicator::close`]. The group is closed nevertheless.
    pub fn close(self) -> Result<()> {
        self.rank.communicator.clone().close().map_err(wrap)
    }

    /// The communicator, for calls of symmetra that have no tensor operation.
    pub fn communicator(&self) -> &Communicator {
        &self.rank.communicator
    }

    pub(crate) fn parts(&self) -> &Arc<Rank> {
        &self.rank
    }

    /// Runs an operation on a tensor, into a new tensor of the given shape.
    fn apply(&self, op: &'static Op, how: How<'_>, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        if self.world_size() == 1 {
            return Ok(x.clone());
        }
        #[cfg(feature = "nccl")]
        if let Some(nccl) = &self.nccl {
            return nccl.apply(op, &how, &contiguous(x)?, shape);
        }
        contiguous(x)?.apply_op1_no_bwd(&Collective { rank: &self.rank, op, how, shape: shape.into() })
    }

    /// Refuses an operation that a group over NCCL does not have.
    fn refuse_nccl(&self, what: &str) -> Result<()> {
        #[cfg(feature = "nccl")]
        if self.nccl.is_some() {
            return Err(crate::nccl::unsupported(what));
        }
        let _ = what;
        Ok(())
    }

    /// Runs an operation in the storage of a tensor. A group of one rank changes nothing, as [`apply`](Self::apply).
    fn apply_in_place(&self, op: &'static Op, how: How<'_>, x: &Tensor) -> Result<()> {
        // The operation refuses another root.
        if self.world_size() == 1 && how.parameter == 0 {
            return Ok(());
        }
        if x.elem_count() == 0 {
            // Candle refuses the strides of some empty tensors as those of an output.
            return self.apply(op, how, x, x.dims()).map(drop);
        }
        self.refuse_nccl(op.operation.name())?;
        x.inplace_op1(&Collective { rank: &self.rank, op, how, shape: x.shape().clone() })
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Group(rank {} of {} on {:?})", self.rank(), self.world_size(), self.device().location())
    }
}
