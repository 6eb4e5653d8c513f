//! The pairs that each rank receives, and their order.

use symmetra::experts::{ExpertConfig, Layout, Placement};

/// The routing of a rank's tokens.
#[derive(Clone, Copy, Debug)]
pub struct RankRouting<'a, I> {
    /// `[tokens, top_k]`; a negative id is no expert.
    pub ids: &'a [I],
    /// As the ids; `None`: each weight is 1.
    pub weights: Option<&'a [f32]>,
    /// The number of tokens that take part.
    pub tokens: usize,
}

/// A pair of a token and one of its experts, on the rank of the expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoutedPair {
    pub source: usize,
    pub token: usize,
    /// The number of the expert among the experts of the token.
    pub k: usize,
    /// The number of the expert among the experts of its rank.
    pub expert: usize,
    pub weight: f32,
    /// The number of the pair in the order of experts.
    pub place: usize,
    /// The received row of the pair: the place, or the row of the token where a token has one row on a rank.
    pub row: usize,
}

/// The pairs that a rank receives.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// By source, token, and number among the experts of the token.
    pub pairs: Vec<RoutedPair>,
    /// Pairs of each expert of the rank.
    pub counts: Vec<u32>,
    /// The first place of each expert, and the end of the last expert.
    pub offsets: Vec<u32>,
}

/// Whether a token has one row on a rank.
pub fn is_by_token(form: &ExpertConfig) -> bool {
    matches!(form.layout, Layout::ByRank | Layout::BySource)
}

/// The experts of every rank.
pub fn experts_of_ranks(form: &ExpertConfig, world: usize) -> Vec<Vec<usize>> {
    let experts = |rank: usize| match &form.placement {
        Placement::Table(lists) => lists[rank].clone(),
        Placement::RoundRobin => (rank..form.experts).step_by(world).collect(),
        _ => (rank * form.experts / world..(rank + 1) * form.experts / world).collect(),
    };
    (0..world).map(experts).collect()
}

impl Arrivals {
    /// The arrivals of every rank. A source sends to its own replica of an expert if it has one, else to the replicas in
    /// turn, by the sum of the numbers of source and token.
    pub fn of_ranks<I: Copy + TryInto<usize>>(form: &ExpertConfig, routings: &[RankRouting<'_, I>]) -> Vec<Self> {
        let lists = experts_of_ranks(form, routings.len());
        // The ranks of each expert, with the number of the expert there.
        let mut replicas = vec![Vec::new(); form.experts];
        for (rank, list) in lists.iter().enumerate() {
            list.iter().enumerate().for_each(|(local, expert)| replicas[*expert].push((rank, local)));
        }
        let mut all = vec![Self::default(); lists.len()];
        for (source, routing) in routings.iter().enumerate() {
            for pair in 0..routing.tokens * form.top_k {
                let Ok(id) = routing.ids[pair].try_into() else { continue };
                let (token, replicas) = (pair / form.top_k, &replicas[id]);
                let own = replicas.iter().find(|(rank, _)| *rank == source);
                let (rank, expert) = *own.unwrap_or(&replicas[(source + token) % replicas.len()]);
                let weight = routing.weights.map_or(1.0, |weights| weights[pair]);
                let pair = RoutedPair { source, token, k: pair % form.top_k, expert, weight, place: 0, row: 0 };
                all[rank].pairs.push(pair);
            }
        }
        for (arrivals, list) in all.iter_mut().zip(lists) {
            arrivals.place(form, list.len());
        }
        all
    }

    /// Gives every pair its place and its row. `experts`: the number of experts of the rank.
    fn place(&mut self, form: &ExpertConfig, experts: usize) {
        self.counts = vec![0; experts];
        self.pairs.iter().for_each(|pair| self.counts[pair.expert] += 1);
        let mut end = 0;
        for (expert, count) in self.counts.iter().enumerate() {
            self.offsets.push(first_place(form, expert, end));
            end = self.offsets[expert] + count;
        }
        self.offsets.push(first_place(form, experts, end));
        let mut next = self.offsets.clone();
        for pair in &mut self.pairs {
            pair.place = next[pair.expert] as usize;
            pair.row = pair.place;
            next[pair.expert] += 1;
        }
        if is_by_token(form) {
            let tokens = self.pairs.chunk_by_mut(|one, other| one.of_same_token(other));
            for (number, pairs) in tokens.enumerate() {
                let row = match form.layout {
                    Layout::BySource => pairs[0].source * form.max_tokens + pairs[0].token,
                    _ => number,
                };
                pairs.iter_mut().for_each(|pair| pair.row = row);
            }
        }
    }

    /// The tokens that have pairs, in order, each with its pairs.
    pub fn tokens(&self) -> impl Iterator<Item = &[RoutedPair]> {
        self.pairs.chunk_by(|one, other| one.of_same_token(other))
    }
}

/// The first place of an expert. `end`: the end of the expert before.
fn first_place(form: &ExpertConfig, expert: usize, end: u32) -> u32 {
    match form.layout {
        Layout::Padded { rows } => (expert * rows) as u32,
        Layout::ByExpert { align } => end.next_multiple_of(align as u32),
        _ => end,
    }
}

impl RoutedPair {
    fn of_same_token(&self, other: &Self) -> bool {
        (self.source, self.token) == (other.source, other.token)
    }
}
