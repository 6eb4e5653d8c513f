//! Random experts and calls on them.

use super::{Opened, Writer};
use crate::experts::{Layer, Lists, Misrouted, ROWS, Round, Rounds, survivors_lists};
use crate::program::Step;
use crate::support::data::shuffle;

/// Most elements of the rows of all pairs of a token and an expert, so that programs are quick.
const MOST_ELEMS: usize = 1 << 13;
/// The numbers of the methods in the headers.
const AUTO: usize = 0;
const PACKETS: usize = 4;
/// The numbers of some layouts in the headers.
const BY_RANK: usize = 0;
const BY_SOURCE: usize = 3;

impl Writer {
    /// New experts with their first calls, or calls on experts that are there.
    pub(super) fn experts(&mut self) {
        let open = self.experts.len();
        if open == 0 || (open < 3 && self.random.below(4) == 0) {
            let (group, members) = self.random.pick(&self.groups).clone();
            self.open_experts((group, members.len()));
        }
        let open = self.random.pick(&self.experts).clone();
        self.calls_of(&open);
    }

    /// Opens experts of a group of `members` members.
    pub(super) fn open_experts(&mut self, (group, members): (usize, usize)) -> Opened {
        let (number, layer) = (self.number(), self.layer(members));
        self.push(Step::Experts { experts: number, group, layer: layer.clone() });
        let opened = Opened { number, group, layer };
        self.experts.push(opened.clone());
        opened
    }

    /// The experts of the ranks that are left, and calls on them. `lost`: in the group, and in the world.
    pub(super) fn without(&mut self, opened: &Opened, (culprit, lost): (usize, usize)) {
        let mut layer = opened.layer.clone();
        layer.lists = survivors_lists(&layer.lists, culprit, layer.experts);
        let (from, number, group) = (opened.number, self.number(), self.number());
        self.push(Step::Without { lost, from, experts: number, group, layer: layer.clone() });
        let left = Opened { number, group, layer };
        self.experts.push(left.clone());
        self.calls_of(&left);
    }

    fn calls_of(&mut self, open: &Opened) {
        let (rounds, on) = (self.rounds(open), self.streams());
        if let Some(lists) = &rounds.place {
            let known = self.experts.iter_mut().find(|experts| experts.number == open.number);
            known.into_iter().for_each(|experts| experts.layer.lists.clone_from(lists));
        }
        self.push(Step::Rounds { rounds, on });
    }

    fn layer(&mut self, world: usize) -> Layer {
        let random = &mut self.random;
        let experts = *random.pick(&[1, 2, world, world + 1, 7, 20]);
        let mut hidden = *random.pick(&[1, 7, 8, 127, 128, 129, 300]);
        let (mut max_tokens, top_k) = (*random.pick(&[1, 2, 5, 9, 17]), *random.pick(&[1, 2, 3, 6]));
        while world * max_tokens * top_k * hidden > MOST_ELEMS {
            if max_tokens > 2 { max_tokens /= 2 } else { hidden /= 2 }
        }
        let lists = self.lists(experts, world);
        let random = &mut self.random;
        let rows = world * max_tokens * top_k;
        let most_local = lists.iter().map(Vec::len).max().unwrap_or(0);
        let padded = rows * most_local * hidden <= 4 * MOST_ELEMS;
        let layout = match random.below(4) {
            0 => [BY_RANK, 1],
            1 if padded => [2, rows],
            2 => [BY_SOURCE, 1],
            _ => [1, *random.pick(&[1, 1, 4, 8])],
        };
        Layer {
            experts,
            top_k,
            hidden,
            max_tokens,
            dtype: random.pick(&ROWS).name().to_owned(),
            wire: [random.below(4), random.below(3), *random.pick(&[1, 5, 64])],
            layout,
            method: *random.pick(&[0, 1, 1, 2, 3, PACKETS, PACKETS, PACKETS]),
            lists,
            exact: *random.pick(&[None, Some(false), Some(true)]),
            in_flight: 1 + random.below(3),
            blocks: (random.below(3) == 0).then(|| 1 + random.below(3) as u32),
            capacity: None,
        }
    }

    /// The experts of every rank: neighbours together, in turn, or at random; in half of the cases with copies.
    fn lists(&mut self, experts: usize, world: usize) -> Lists {
        let (kind, random) = (self.random.below(3), &mut self.random);
        let mut lists = vec![Vec::new(); world];
        for expert in 0..experts {
            let rank = match kind {
                0 => expert * world / experts,
                1 => expert % world,
                _ => random.below(world),
            };
            lists[rank].push(expert);
        }
        if random.below(2) == 0 {
            for _ in 0..1 + random.below(4) {
                let (rank, expert) = (random.below(world), random.below(experts));
                if !lists[rank].contains(&expert) {
                    lists[rank].push(expert);
                }
            }
        }
        lists
    }

    fn round(&mut self, layer: &Layer) -> Round {
        let random = &mut self.random;
        let tokens = |random: &mut crate::support::data::Random| match random.below(5) {
            0 => 0,
            1 => layer.max_tokens,
            _ => random.below(layer.max_tokens + 1),
        };
        Round { seed: random.next(), tokens: layer.lists.iter().map(|_| tokens(random)).collect() }
    }

    fn rounds(&mut self, open: &Opened) -> Rounds {
        let layer = &open.layer;
        let count = 1 + self.random.below(4);
        let rounds = (0..count).map(|_| self.round(layer)).collect();
        let random = &mut self.random;
        let packets = layer.method == PACKETS;
        // With an automatic method, the library decides whether plans are served.
        let plans = ![AUTO, PACKETS].contains(&layer.method);
        let halves = [packets && random.below(2) == 0, packets && random.below(2) == 0];
        let exact = layer.exact.unwrap_or(self.program.settings.exact);
        // Combines in halves apply the weights before the options of the receive are known.
        let either = !halves[1] || exact || [BY_RANK, BY_SOURCE].contains(&layer.layout[0]);
        let place = (random.below(5) == 0).then(|| {
            let mut names: Vec<usize> = (0..layer.experts).collect();
            shuffle(random.next(), &mut names);
            layer.lists.iter().map(|list| list.iter().map(|expert| names[*expert]).collect()).collect()
        });
        let replays = [0, 0, 1, 3][random.below(4)];
        Rounds {
            experts: open.number,
            rounds,
            // By source nothing is counted or planned.
            counts: replays == 0 && layer.layout[0] != BY_SOURCE && random.below(3) == 0,
            together: 1 + random.below(layer.in_flight),
            halves,
            plans: plans && layer.layout[0] != BY_SOURCE && random.below(3) == 0,
            again: plans && random.below(3) == 0,
            reversed: random.below(2) == 0,
            unweighted: either && random.below(4) == 0,
            replays,
            place,
        }
    }

    /// A call that fails on every rank, of separate experts.
    pub(super) fn misrouted(&mut self, group: usize, members: usize) -> Misrouted {
        let mut layer = self.layer(members);
        let mut round = self.round(&layer);
        let culprit = self.random.below(members);
        // The culprit has a token, whose first id is wrong or which goes where there is no room.
        round.tokens[culprit] = round.tokens[culprit].max(1);
        if layer.method == AUTO {
            layer.method = PACKETS;
        }
        let tokens: usize = round.tokens.iter().sum();
        if self.random.below(2) == 0 && tokens > 1 {
            // All go to the copies of expert 0, and there is one.
            layer.lists =
                (0..members).map(|rank| if rank == 0 { (0..layer.experts).collect() } else { vec![] }).collect();
            (layer.layout, layer.capacity) = ([BY_RANK, 1], Some(1));
        }
        Misrouted { group, culprit, layer, round }
    }
}
