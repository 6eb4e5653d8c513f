//! Operations on random shapes, types and layouts, compared with a computation by candle.

use candle_core::{DType, Device, Result, Tensor};
use fastrand::Rng;
use symmetra::Reduction;
use symmetra_candle::Group;

use crate::{bits, on_cpu, on_gpus, ranks, worlds};

const TYPES: [DType; 9] =
    [DType::F32, DType::F64, DType::F16, DType::BF16, DType::F8E4M3, DType::U8, DType::U32, DType::I32, DType::I64];

/// A call: a type, a shape that the ranks divide in dimension `dim` and in dimension 0, and a layout.
struct Case {
    seed: u64,
    dtype: DType,
    shape: Vec<usize>,
    dim: usize,
    layout: usize,
}

impl Case {
    fn new(random: &mut Rng, world_size: usize) -> Self {
        // Tensors of candle on GPUs have elements.
        let least = usize::from(on_gpus());
        let mut shape: Vec<usize> = (0..random.usize(1..4)).map(|_| random.usize(least..7)).collect();
        let dim = random.usize(..shape.len());
        shape[0] *= world_size;
        if dim > 0 {
            shape[dim] *= world_size;
        }
        let (seed, dtype, layout) = (random.u64(..), TYPES[random.usize(..TYPES.len())], random.usize(..3));
        // Candle finds no kernel that copies another layout of i32 or f8e4m3.
        let layout = if on_gpus() && matches!(dtype, DType::I32 | DType::F8E4M3) { 0 } else { layout };
        Self { seed, dtype, shape, dim, layout }
    }

    /// The tensor of a rank: contiguous, transposed, or a part of a larger tensor.
    fn tensor(&self, rank: usize) -> Result<Tensor> {
        let mut random = Rng::with_seed(self.seed ^ rank as u64);
        let mut made = self.shape.clone();
        match self.layout {
            1 => made.reverse(),
            2 => made[self.dim] += 3,
            _ => {}
        }
        // Sums of small whole numbers are exact in every type. Others are rounded.
        let whole = !matches!(self.dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
        let value = |random: &mut Rng| if whole { random.u8(0..4).into() } else { random.f64() - 0.5 };
        let values: Vec<f64> = (0..made.iter().product()).map(|_| value(&mut random)).collect();
        let tensor = Tensor::from_vec(values, made, &Device::Cpu)?.to_dtype(self.dtype)?;
        match self.layout {
            1 => tensor.permute((0..self.shape.len()).rev().collect::<Vec<_>>()),
            2 => tensor.narrow(self.dim, 2, self.shape[self.dim]),
            _ => Ok(tensor),
        }
    }

    /// The sum in rank order, rounded once.
    fn sum(&self, tensors: &[Tensor]) -> Result<Tensor> {
        let wide = match self.dtype {
            DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F32 => DType::F32,
            _ => DType::F64,
        };
        let mut sum = tensors[0].to_dtype(wide)?;
        for tensor in &tensors[1..] {
            sum = (sum + tensor.to_dtype(wide)?)?;
        }
        sum.to_dtype(self.dtype)
    }

    fn check(&self, group: &Group) -> Result<()> {
        let (rank, world_size, dim) = (group.rank(), group.world_size(), self.dim);
        let all = (0..world_size).map(|rank| dense(&self.tensor(rank)?)).collect::<Result<Vec<_>>>()?;
        let (own, sum) = (&self.tensor(rank)?.to_device(group.device())?, self.sum(&all)?);
        let same = |found: Tensor, expected: Tensor, operation: &str| {
            assert_eq!((found.dims(), found.dtype()), (expected.dims(), self.dtype), "{operation}");
            let what = format!("{operation}, {:?} along {dim} of {:?}, layout {}", self.dtype, self.shape, self.layout);
            let [found, expected] = [found, expected].map(|tensor| bits(&dense(&tensor).unwrap()));
            assert_eq!(found, expected, "{what}");
        };
        let length = self.shape[dim] / world_size;
        same(group.all_reduce(own)?, sum.clone(), "all-reduce");
        same(group.reduce_scatter(own, dim)?, sum.narrow(dim, rank * length, length)?, "reduce-scatter");
        same(group.all_gather(own, dim)?, Tensor::cat(&all, dim)?, "all-gather");
        let root = self.seed as usize % world_size;
        same(group.broadcast(own, root)?, all[root].clone(), "broadcast");
        let length = self.shape[0] / world_size;
        let from = |tensor: &Tensor| tensor.narrow(0, rank * length, length);
        same(group.all_to_all(own)?, Tensor::cat(&all.iter().map(from).collect::<Result<Vec<_>>>()?, 0)?, "all-to-all");
        same(dense(own)?, all[rank].clone(), "the input");
        // In place: rows in the middle of a storage.
        let own = &all[rank];
        let storage = Tensor::cat(&[own, own, own], 0)?.to_device(group.device())?;
        group.all_reduce_in_place(&storage.narrow(0, self.shape[0], self.shape[0])?)?;
        same(storage, Tensor::cat(&[own, &sum, own], 0)?, "all-reduce in place");
        Ok(())
    }
}

/// The tensor in row-major order. Candle panics on copies of some tensors without elements.
fn dense(tensor: &Tensor) -> Result<Tensor> {
    match tensor.elem_count() {
        0 => Tensor::zeros(tensor.shape(), tensor.dtype(), &Device::Cpu),
        _ => on_cpu(tensor).contiguous(),
    }
}

#[test]
fn results_are_those_of_cat_and_sums_in_rank_order() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    for world_size in worlds([1, 2, 3, 4]) {
        ranks(world_size, |group| {
            let mut random = Rng::with_seed(seed);
            (0..60).try_for_each(|_| Case::new(&mut random, world_size).check(group))
        });
    }
}

#[test]
fn a_reduction_and_an_empty_tensor_and_a_scalar_are_reduced() {
    let world_size = if on_gpus() { 2 } else { 3 };
    for (rank, found) in ranks(world_size, |group| {
        let own = Tensor::new(&[group.rank() as f32, -(group.rank() as f32)], group.device())?;
        let largest = group.all_reduce_with(&own, Reduction::Max)?.to_vec1::<f32>()?;
        if !on_gpus() {
            let none = group.all_reduce(&Tensor::zeros((0, 3), DType::F32, group.device())?)?;
            assert_eq!(none.dims(), [0, 3]);
        }
        let one = group.all_reduce(&Tensor::new(1_u32, group.device())?)?.to_scalar::<u32>()?;
        Ok((group.rank(), largest, one))
    })
    .into_iter()
    .enumerate()
    {
        assert_eq!(found, (rank, vec![world_size as f32 - 1.0, 0.0], world_size as u32));
    }
}

#[test]
fn a_lone_rank_gets_its_own_tensors() {
    ranks(1, |group| {
        let own = Tensor::new(&[[1_i16, 2], [3, 4]], group.device())?;
        for found in [group.all_reduce(&own)?, group.all_gather(&own, 1)?, group.reduce_scatter(&own, 0)?] {
            assert_eq!(found.to_vec2::<i16>()?, own.to_vec2::<i16>()?);
        }
        group.all_reduce_in_place(&Tensor::zeros((2, 2), DType::F32, group.device())?)?;
        assert_eq!(group.all_to_all(&own)?.dims(), [2, 2]);
        Ok(())
    });
}
