//! The layer: its weights, its gate, its result on one rank, and the error bound of a result.

use fastrand::Rng;

use super::reference::{multiply, widen};

/// `y = sum over a token's experts e of w_e relu(x W1_e) W2_e`, where the gate `x G` chooses the experts and their weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    /// How many experts there are.
    pub(crate) experts: usize,
    /// How many experts a token goes to.
    pub(crate) top_k: usize,
    /// Elements of a token.
    pub(crate) hidden: usize,
    /// Columns of `W1`.
    pub(crate) intermediate: usize,
    /// The seed of weights and tokens.
    pub(crate) seed: u64,
}

impl Layer {
    /// `W1` of an expert. It preserves the mean square of tokens.
    pub(crate) fn first(&self, expert: usize) -> Vec<f32> {
        let scale = (3.0 / self.hidden as f32).sqrt();
        draw(&mut self.rng(2 * expert as u64), self.hidden * self.intermediate, scale)
    }

    /// `W2` of an expert. The factor 2 compensates for the ReLU before it.
    pub(crate) fn second(&self, expert: usize) -> Vec<f32> {
        let scale = (6.0 / self.intermediate as f32).sqrt();
        draw(&mut self.rng(2 * expert as u64 + 1), self.intermediate * self.hidden, scale)
    }

    /// `G`.
    pub(crate) fn gate(&self) -> Vec<f32> {
        draw(&mut self.rng(1 << 20), self.hidden * self.experts, (3.0 / self.hidden as f32).sqrt())
    }

    /// The tokens of a rank in a step: `most` at most, and sometimes none.
    pub(crate) fn tokens(&self, rank: usize, step: usize, most: usize) -> Vec<f32> {
        let mut rng = self.rng((1 << 21) + ((rank as u64) << 32) + step as u64);
        let count = rng.usize(..=most);
        draw(&mut rng, count * self.hidden, 3f32.sqrt())
    }

    /// Where tokens go: the experts with the largest scores, and the softmax of their scores.
    pub(crate) fn route(&self, gate: &[f32], x: &[f32]) -> (Vec<i32>, Vec<f32>) {
        let (mut ids, mut weights) = (Vec::new(), Vec::new());
        for scores in multiply(x, gate, self.hidden).chunks_exact(self.experts) {
            let mut order: Vec<usize> = (0..self.experts).collect();
            order.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]));
            order.truncate(self.top_k);
            let sizes: Vec<f32> = order.iter().map(|expert| (scores[*expert] - scores[order[0]]).exp()).collect();
            let sum: f32 = sizes.iter().sum();
            ids.extend(order.iter().map(|expert| *expert as i32));
            weights.extend(sizes.iter().map(|size| size / sum));
        }
        (ids, weights)
    }

    /// The largest [`error`](super::reference::error) of a correct result.
    ///
    /// A sum of n products rounds n times, each time by at most u = 2^-24 of a partial sum, in any order of kernels. Such
    /// errors are independent to first order, so together about u sqrt(n) of the result (Higham and Mary, SIAM J. Sci.
    /// Comput. 41, 2019). Each of a token's results is multiplied by its weight and added, and errors and results of experts
    /// add in squares alike. Eight standard deviations leave room for the largest of all elements, and for tokens with
    /// more than the mean square. A result of another expert, or a weight of another token, has an error of about 1.
    pub(crate) fn bound(&self) -> f64 {
        let roundings = self.hidden + self.intermediate + 2 * self.top_k;
        8.0 * (roundings as f64).sqrt() * 0.5f64.powi(24)
    }

    fn rng(&self, what: u64) -> Rng {
        Rng::with_seed(self.seed.wrapping_add(what.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// Uniform in `-scale..scale`.
fn draw(rng: &mut Rng, len: usize, scale: f32) -> Vec<f32> {
    (0..len).map(|_| scale * (2.0 * rng.f32() - 1.0)).collect()
}

/// The whole layer on one rank, in f64.
pub(crate) struct Whole {
    layer: Layer,
    /// `W1` and `W2` of every expert.
    experts: Vec<[Vec<f64>; 2]>,
}

impl Whole {
    pub(crate) fn new(layer: Layer) -> Self {
        let expert = |expert| [widen(&layer.first(expert)), widen(&layer.second(expert))];
        Self { layer, experts: (0..layer.experts).map(expert).collect() }
    }

    /// The result of the tokens `x`, with the experts and weights that [`Layer::route`] returned.
    pub(crate) fn result(&self, x: &[f32], (ids, weights): &(Vec<i32>, Vec<f32>)) -> Vec<f64> {
        let Layer { top_k, hidden, intermediate, .. } = self.layer;
        let token = |(token, x): (usize, &[f32])| {
            let mut sum = vec![0.0; hidden];
            for pair in token * top_k..(token + 1) * top_k {
                let [first, second] = &self.experts[ids[pair] as usize];
                let mut inner = multiply(&widen(x), first, hidden);
                inner.iter_mut().for_each(|value| *value = value.max(0.0));
                let result = multiply(&inner, second, intermediate);
                sum.iter_mut().zip(result).for_each(|(sum, value)| *sum += f64::from(weights[pair]) * value);
            }
            sum
        };
        x.chunks_exact(hidden).enumerate().flat_map(token).collect()
    }
}
