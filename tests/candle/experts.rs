//! Dispatch and combine, compared with the sums of each token's experts.

use candle_core::{DType, Device, Result, Tensor};
use symmetra::bootstrap::Bootstrap;
use symmetra::experts::ExpertConfig;
use symmetra::{Config, Dtype};
use symmetra_candle::{Experts, Group, failure};

use crate::{device, difference, on_gpus, ranks, settle, worlds};

const EXPERTS: usize = 8;
const TOP_K: usize = 2;
const HIDDEN: usize = 16;

/// The tokens of a rank: rows, ids and weights.
fn tokens(seed: u64, rank: usize, dtype: DType) -> Result<[Tensor; 3]> {
    let mut random = fastrand::Rng::with_seed(seed + rank as u64);
    // Rank 1 may have none, where candle has tensors without elements.
    let count = random.usize(1..9) * usize::from(rank != 1 || random.bool() || on_gpus());
    let mut numbers = |count: usize| (0..count).map(|_| random.f32() - 0.5).collect::<Vec<_>>();
    let rows = Tensor::from_vec(numbers(count * HIDDEN), (count, HIDDEN), &Device::Cpu)?.to_dtype(dtype)?;
    let weights = Tensor::from_vec(numbers(count * TOP_K), (count, TOP_K), &Device::Cpu)?;
    let ids: Vec<u32> = (0..count * TOP_K).map(|_| random.u32(..EXPERTS as u32)).collect();
    Ok([rows, Tensor::from_vec(ids, (count, TOP_K), &Device::Cpu)?, weights])
}

#[test]
fn tokens_get_the_weighted_results_of_their_experts() {
    let seed = fastrand::u64(..u64::MAX / 2);
    eprintln!("seed {seed}");
    for world_size in worlds([1, 2, 4]) {
        for (dtype, of_symmetra, bound) in [(DType::F32, Dtype::F32, 1e-5), (DType::BF16, Dtype::BF16, 0.1)] {
            ranks(world_size, |group| {
                let config = ExpertConfig::new(EXPERTS, TOP_K, HIDDEN, 16).dtype(of_symmetra);
                let experts = Experts::open(group, config)?;
                let local = experts.local();
                for round in 0..3 {
                    let of_rank = |rank| tokens(seed + 100 * round, rank, dtype);
                    let [rows, ids, weights] = of_rank(group.rank())?;
                    let [rows, ids, weights] = [rows, ids, weights].map(|tensor| tensor.to_device(group.device()));
                    let (rows, ids, weights) = (rows?, ids?, weights?);
                    let dispatched = experts.dispatch(&rows, &ids, Some(&weights))?;
                    let mut counts = [0; EXPERTS];
                    for rank in 0..world_size {
                        let [_, ids, _] = of_rank(rank)?;
                        ids.flatten_all()?.to_vec1::<u32>()?.into_iter().for_each(|id| counts[id as usize] += 1);
                    }
                    let expected: Vec<usize> = local.iter().map(|expert| counts[*expert]).collect();
                    assert_eq!(dispatched.counts(), expected);
                    // Expert e multiplies by e + 1.
                    let mut parts = dispatched.of_experts()?.into_iter().zip(&local).collect::<Vec<_>>();
                    if on_gpus() {
                        parts.retain(|(rows, _)| rows.elem_count() > 0);
                    }
                    let results = parts.into_iter().map(|(rows, expert)| rows * (*expert as f64 + 1.0));
                    let results = match results.collect::<Result<Vec<_>>>()? {
                        none if none.is_empty() => dispatched.rows().clone(),
                        some => Tensor::cat(&some, 0)?,
                    };
                    let combined = dispatched.combine(&results)?;
                    let factors = ((ids.to_dtype(DType::F32)? + 1.0)? * weights)?.sum_keepdim(1)?;
                    let expected = rows.to_dtype(DType::F32)?.broadcast_mul(&factors)?;
                    assert_eq!((combined.dims(), combined.dtype()), (rows.dims(), dtype));
                    assert!(difference(&combined, &expected) < bound, "{combined} and {expected}");
                }
                Ok(())
            });
        }
    }
}

#[test]
fn an_expert_outside_the_layer_is_an_error_of_every_rank() {
    let errors = Group::threads(2, |bootstrap| -> Result<_> {
        let device = &device(bootstrap.rank())?;
        let group = Group::open(bootstrap, device, Config::default())?;
        let experts = Experts::open(&group, ExpertConfig::new(EXPERTS, 1, 2, 4).dtype(Dtype::F32))?;
        let rows = Tensor::zeros((3, 2), DType::F32, device)?;
        let ids = Tensor::zeros((2, 1), DType::U32, device)?;
        let unlike = experts.dispatch(&rows, &ids, None).map(drop).unwrap_err();
        assert!(unlike.to_string().contains("the number of rows of the ids is 2, but there are 3 tokens"), "{unlike}");
        let ids = Tensor::new(&[[0_u32], [1], [EXPERTS as u32]], device)?;
        let error = settle(&group, experts.dispatch(&rows, &ids, None).map(drop)).unwrap_err();
        Ok(matches!(failure(&error), Some(symmetra::Error::Routing { token: 2, expert: 8, .. })))
    });
    assert!(errors.unwrap().into_iter().all(|routing| routing.unwrap()));
}
