//! The candidates of a comparison: the steps of every half of every layer.

use std::ops::Range;

use symmetra::fused::{AllGatherMatmul, FusedOptions, MatmulAllReduce, MatmulReduceScatter};
use symmetra::matmul::Multiplier;
use symmetra::{Communicator, SymmetricSlice, half::bf16};

use super::operands::LayerOperands;
use super::shape::Half;
use super::steps::LayerCall;
use super::way::{LayerWay, PeerWay};
use super::weights::HalfWeights;
use harness::collective::CollectiveCommand;
use harness::comparison::work::{ComparedLibrary, Work};
use harness::form::Form;

/// A candidate that runs layers.
pub(super) struct LayerSide<'s> {
    pub(super) name: &'static str,
    /// Rows whose stream of activations this rank has.
    pub(super) kept: Range<usize>,
    /// Rows that this rank has normed after each half.
    pub(super) normed: Range<usize>,
    /// The place of these rows in their buffer.
    pub(super) normed_at: Range<usize>,
    /// The steps of each half.
    pub(super) halves: Vec<Vec<Work<'s>>>,
}

impl LayerSide<'_> {
    /// The place of a normed row of this rank in its buffer.
    pub(super) fn normed_row(&self, row: usize) -> Range<usize> {
        let at = row - self.normed.start + self.normed_at.start;
        at..at + 1
    }
}

/// The plans of both halves of a layer.
pub(super) enum Plans {
    /// Each rank has a share of the rows.
    Shares(Box<[(AllGatherMatmul, MatmulReduceScatter); 2]>),
    /// Each rank has all rows.
    Whole(Box<[MatmulAllReduce; 2]>),
}

impl Plans {
    /// The plans of a strategy that has plans. Collective; blocks.
    pub(super) fn new(
        way: LayerWay,
        communicator: &Communicator,
        halves: [Half; 2],
        tokens: usize,
        options: &FusedOptions,
    ) -> symmetra::Result<Self> {
        let [attention, mlp] = halves;
        if !way.shares() {
            let of = |Half { second, .. }: Half| {
                communicator.plan_matmul_all_reduce(&[tokens, second.inner], second, options.clone())
            };
            return Ok(Self::Whole(Box::new([of(attention)?, of(mlp)?])));
        }
        let share = tokens / communicator.world_size();
        let of = |Half { first, second }: Half| {
            let gather = communicator.plan_all_gather_matmul(&[share, first.inner], 0, &[first], options.clone())?;
            let scatter =
                communicator.plan_matmul_reduce_scatter(&[tokens, second.inner], 0, second, options.clone())?;
            Ok::<_, symmetra::Error>((gather, scatter))
        };
        Ok(Self::Shares(Box::new([of(attention)?, of(mlp)?])))
    }
}

/// The parts of which candidates are made.
#[derive(Clone, Copy)]
pub(super) struct LayerRound<'s> {
    pub(super) communicator: &'s Communicator,
    /// A group of only this rank, which norms the sums of another call.
    pub(super) alone: &'s Communicator,
    pub(super) multiplier: &'s Multiplier,
    pub(super) halves: [Half; 2],
    pub(super) weights: &'s [HalfWeights],
    pub(super) operands: &'s LayerOperands,
}

impl<'s> LayerRound<'s> {
    fn all(self) -> Range<usize> {
        0..self.operands.tokens
    }

    /// This rank's share of the rows, or all of them.
    fn rows(self, shares: bool) -> Range<usize> {
        self.operands.own.clone().filter(|_| shares).unwrap_or_else(|| self.all())
    }

    /// The place of the normed rows of this rank's share for plans: peers read a shard at the place of their own.
    fn shard(self) -> Range<usize> {
        0..self.rows(true).len()
    }

    /// A candidate of this library, with plans if it needs any.
    pub(super) fn ours(self, way: LayerWay, plans: Option<&'s Plans>) -> symmetra::Result<LayerSide<'s>> {
        let half = |number| match (way, plans) {
            (_, Some(Plans::Shares(plans))) => self.by_plans(number, plans),
            (_, Some(Plans::Whole(plans))) => self.by_sums(number, plans),
            (LayerWay::AllReduceApart, None) => self.by_collectives(number, self.communicator, false),
            (LayerWay::Scatter, None) => {
                let gather = self.gather(self.communicator, number)?;
                Ok([gather].into_iter().chain(self.by_calls(number, Form::ReduceScatter)?).collect())
            }
            (LayerWay::ScatterGather, None) => self.by_calls(number, Form::ReduceScatterAllGather),
            (_, None) => self.by_calls(number, Form::AllReduce),
        };
        let normed = self.rows(way.shares() && way != LayerWay::ScatterGather);
        Ok(LayerSide {
            name: way.name(),
            kept: self.rows(way.shares()),
            normed_at: if matches!(plans, Some(Plans::Shares(_))) { self.shard() } else { normed.clone() },
            normed,
            halves: (0..self.weights.len()).map(half).collect::<symmetra::Result<_>>()?,
        })
    }

    /// A candidate with the collectives of another library, our GEMMs and our norm.
    pub(super) fn peer(self, way: PeerWay, library: &'s impl ComparedLibrary) -> symmetra::Result<LayerSide<'s>> {
        let shares = way == PeerWay::Scatter;
        let rows = self.rows(shares);
        let half = |number| self.by_collectives(number, library, shares);
        let halves = (0..self.weights.len()).map(half).collect::<symmetra::Result<_>>()?;
        Ok(LayerSide { name: way.name(), kept: rows.clone(), normed_at: rows.clone(), normed: rows, halves })
    }

    /// GEMMs, a collective that sums, and a norm. Where ranks share the rows, a gather before.
    fn by_collectives(
        self,
        number: usize,
        library: &'s impl ComparedLibrary,
        shares: bool,
    ) -> symmetra::Result<Vec<Work<'s>>> {
        let (rows, operands) = (self.rows(shares), self.operands);
        let mut steps: Vec<Work<'s>> = Vec::new();
        if shares {
            steps.push(self.gather(library, number)?);
        }
        steps.extend(self.products(number)?);
        let collective = if shares { CollectiveCommand::ReduceScatter } else { CollectiveCommand::AllReduce };
        steps.push(library.collective(collective, [operands.partial_part(), operands.sum_part(&rows)])?);
        let norm = self.norm(number, (self.alone, Form::AllReduce), operands.sum(&rows)?, [&rows; 2])?;
        steps.push(norm);
        Ok(steps)
    }

    /// GEMMs, and one call that sums and norms.
    fn by_calls(self, number: usize, form: Form) -> symmetra::Result<Vec<Work<'s>>> {
        let [kept, normed] = [form != Form::AllReduce, form == Form::ReduceScatter].map(|shares| self.rows(shares));
        let norm = self.norm(number, (self.communicator, form), self.operands.partial()?, [&kept, &normed])?;
        Ok(self.products(number)?.into_iter().chain([norm]).collect())
    }

    /// Both GEMMs of a half by plans, and the norm of this rank's share.
    fn by_plans(
        self,
        number: usize,
        plans: &'s [(AllGatherMatmul, MatmulReduceScatter); 2],
    ) -> symmetra::Result<Vec<Work<'s>>> {
        let (operands, own, weights) = (self.operands, self.rows(true), &self.weights[number]);
        let ((gather, scatter), Half { first, second }) = (&plans[number % 2], self.halves[number % 2]);
        let tokens = operands.tokens;
        Ok(vec![
            LayerCall::GatherMultiply {
                plan: gather,
                shard: operands.normed(number, &self.shard())?,
                right: &weights.first,
                result: operands.first(number, 0..tokens * first.columns)?,
            }
            .work(),
            LayerCall::MultiplyScatter {
                plan: scatter,
                left: operands.first(number, 0..tokens * second.inner)?,
                right: &weights.second,
                result: operands.sum(&own)?,
            }
            .work(),
            self.norm(number, (self.alone, Form::AllReduce), operands.sum(&own)?, [&own, &self.shard()])?,
        ])
    }

    /// The first GEMM of a half alone, the second by a plan that sums, and the norm of all rows.
    fn by_sums(self, number: usize, plans: &'s [MatmulAllReduce; 2]) -> symmetra::Result<Vec<Work<'s>>> {
        let (operands, all, second) = (self.operands, self.all(), self.halves[number % 2].second);
        let [first, _] = self.products(number)?;
        Ok(vec![
            first,
            LayerCall::MultiplySum {
                plan: &plans[number % 2],
                left: operands.first(number, 0..operands.tokens * second.inner)?,
                right: &self.weights[number].second,
                result: operands.sum(&all)?,
            }
            .work(),
            self.norm(number, (self.alone, Form::AllReduce), operands.sum(&all)?, [&all, &all])?,
        ])
    }

    /// Gathers the normed rows before a half.
    fn gather(self, library: &'s impl ComparedLibrary, number: usize) -> symmetra::Result<Work<'s>> {
        let part = |rows: &Range<usize>| self.operands.normed_part(number, rows);
        library.collective(CollectiveCommand::AllGather, [part(&self.rows(true)), part(&self.all())])
    }

    /// Both GEMMs of a half, without plans.
    fn products(self, number: usize) -> symmetra::Result<[Work<'s>; 2]> {
        let (operands, weights, multiplier) = (self.operands, &self.weights[number], self.multiplier);
        let Half { first, second } = self.halves[number % 2];
        let rows = operands.tokens;
        Ok([
            LayerCall::Multiply {
                multiplier,
                product: first,
                rows,
                left: operands.normed_here(number, &self.all())?,
                right: &weights.first,
                result: operands.first(number, 0..rows * first.columns)?,
            }
            .work(),
            LayerCall::Multiply {
                multiplier,
                product: second,
                rows,
                left: operands.first(number, 0..rows * second.inner)?,
                right: &weights.second,
                result: operands.partial_here(),
            }
            .work(),
        ])
    }

    /// The end of a half: a sum over the ranks of a group, the residual and the norm.
    fn norm(
        self,
        number: usize,
        (communicator, form): (&'s Communicator, Form),
        input: SymmetricSlice<'s, bf16>,
        [kept, normed]: [&Range<usize>; 2],
    ) -> symmetra::Result<Work<'s>> {
        let operands = self.operands;
        let norm = LayerCall::Norm {
            communicator,
            form,
            input,
            weight: &self.weights[number].norm,
            residual: operands.x(number, kept)?,
            residual_out: operands.x(number + 1, kept)?,
            output: operands.normed(number + 1, normed)?,
        };
        Ok(norm.work())
    }
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/layer_sides.rs"]
mod tests;
