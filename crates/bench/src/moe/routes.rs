//! The experts of the tokens of all ranks, and their weights.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use symmetra::Dtype;

use harness::experts::ExpertShape;
use harness::failure::CommandFailure;
use harness::tensor_file::FileFormat;

/// How experts are drawn, or the experts of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Traffic {
    /// Any experts.
    Uniform,
    /// An expert has a share of 1 / n of the most popular expert's, where n is its place by popularity.
    Zipf,
    /// The first experts, for every token.
    One,
    /// The experts of a file: by rank, token, and place among the token's experts.
    Given { name: String, tokens: usize, ids: Vec<i32> },
}

/// The experts of all tokens, and their weights.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    /// Expert ids of each rank: `[tokens, top_k]`; -1 is no expert.
    pub(super) ids: Vec<Vec<i32>>,
    /// Weights of each rank: `[tokens, top_k]`.
    pub(super) weights: Vec<Vec<f32>>,
}

impl Traffic {
    /// By name, or from a file. Errors name the option.
    pub(super) fn asked(text: &str, shape: ExpertShape, ranks: usize) -> Result<Self, CommandFailure> {
        let traffic = match text {
            "uniform" => Self::Uniform,
            "zipf" => Self::Zipf,
            "one" => Self::One,
            path if path.ends_with(".npy") => return Self::read(path, shape, ranks),
            other => {
                let limit = "uniform, zipf, one, or a file of ids that ends in .npy";
                return Err(CommandFailure::usage(format!("--routing is `{other}`, but it must be {limit}")));
            }
        };
        let ExpertShape { experts, top_k, .. } = shape;
        if top_k > experts {
            let limit = format!("a token goes to different experts, of which there are {experts}");
            return Err(CommandFailure::usage(format!("--shape: {top_k} experts of a token: {limit}")));
        }
        Ok(traffic)
    }

    fn read(name: &str, shape: ExpertShape, ranks: usize) -> Result<Self, CommandFailure> {
        let refused = |why: String| CommandFailure::usage(format!("--routing {name}: {why}"));
        let unread = |failure: CommandFailure| refused(failure.message().unwrap_or_default());
        let mut source = FileFormat::Npy.open(Path::new(name)).map_err(unread)?;
        let tensor = source.header().tensors[0].clone();
        let of_rank = match *tensor.shape() {
            [world, tokens, top_k] if world == ranks as u64 && top_k == shape.top_k as u64 => tokens,
            [all, top_k] if all.is_multiple_of(ranks as u64) && top_k == shape.top_k as u64 => all / ranks as u64,
            _ => {
                let limit = format!("[{ranks}, tokens, {}]", shape.top_k);
                return Err(refused(format!("it has {tensor}, but its shape must be {limit}")));
            }
        };
        if of_rank == 0 || tensor.is_fortran() {
            return Err(refused(format!("it has {tensor}, but there must be tokens, in C order")));
        }
        let ids: Vec<i64> = match tensor.dtype {
            Dtype::I32 => source.read::<i32>(0).map_err(unread)?.into_iter().map(i64::from).collect(),
            Dtype::I64 => source.read(0).map_err(unread)?,
            other => return Err(refused(format!("its ids are {other}, but they must be i32 or i64"))),
        };
        let tokens = of_rank as usize;
        if let Some(pair) = ids.iter().position(|id| *id < -1 || *id >= shape.experts as i64) {
            let (token, id) = (pair / shape.top_k, ids[pair]);
            let whose = format!("token {} of rank {}", token % tokens, token / tokens);
            let limit = format!("it must be -1 to {}", shape.experts - 1);
            return Err(refused(format!("{whose} goes to expert {id}, but {limit}")));
        }
        Ok(Self::Given { name: name.to_owned(), tokens, ids: ids.into_iter().map(|id| id as i32).collect() })
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::One => "one",
            Self::Given { name, .. } => name,
        }
    }

    /// The routes of `tokens` tokens a rank; from a file, the first tokens of every rank.
    pub(super) fn routes(&self, seed: u64, shape: ExpertShape, [tokens, ranks]: [usize; 2]) -> Routes {
        let top_k = shape.top_k;
        let shares = self.shares(seed, shape.experts);
        let of_rank = |rank: usize| {
            let mut random = random(seed, &(tokens, rank));
            let ids = match self {
                Self::One => (0..tokens * top_k).map(|pair| (pair % top_k) as i32).collect(),
                Self::Given { tokens: all, ids, .. } => ids[rank * all * top_k..][..tokens * top_k].to_vec(),
                Self::Uniform | Self::Zipf => (0..tokens).flat_map(|_| drawn(&mut random, &shares, top_k)).collect(),
            };
            let weights = (0..tokens).flat_map(|_| weights(&mut random, top_k)).collect();
            (ids, weights)
        };
        let (ids, weights) = (0..ranks).map(of_rank).unzip();
        Routes { ids, weights }
    }

    /// The share of tokens of each expert.
    fn shares(&self, seed: u64, experts: usize) -> Vec<f64> {
        let mut shares = match self {
            Self::Zipf => (1..=experts).map(|place| 1.0 / place as f64).collect(),
            _ => vec![1.0; experts],
        };
        random(seed, "shares").shuffle(&mut shares);
        shares
    }
}

/// Numbers that follow from a seed and a name.
pub(super) fn random(seed: u64, name: &(impl Hash + ?Sized)) -> Rng {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    name.hash(&mut hasher);
    Rng::with_seed(hasher.finish())
}

/// Different experts, one after the other by their shares: the order of exponential times with these rates.
fn drawn(random: &mut Rng, shares: &[f64], top_k: usize) -> Vec<i32> {
    let time = |(expert, share): (usize, &f64)| (-(1.0 - random.f64()).ln() / share, expert as i32);
    let mut times: Vec<(f64, i32)> = shares.iter().enumerate().map(time).collect();
    let order = |a: &(f64, i32), b: &(f64, i32)| a.0.total_cmp(&b.0);
    if top_k < times.len() {
        times.select_nth_unstable_by(top_k, order);
        times.truncate(top_k);
    }
    times.sort_by(order);
    times.into_iter().map(|(_, expert)| expert).collect()
}

/// Positive weights of about 1 in all.
fn weights(random: &mut Rng, top_k: usize) -> Vec<f32> {
    let parts: Vec<f32> = (0..top_k).map(|_| random.f32() + 0.05).collect();
    let all: f32 = parts.iter().sum();
    parts.into_iter().map(|part| part / all).collect()
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/moe_routes.rs"]
mod tests;
