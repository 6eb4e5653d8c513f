//! The host of every rank.

use std::fmt;

/// The hosts of a world, numbered by their lowest rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    names: Vec<String>,
    /// The host number of every rank.
    nodes: Vec<usize>,
}

impl Hosts {
    /// The hosts of ranks whose host identities are `identities`, in rank order. Pure.
    pub fn new(identities: &[String]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut nodes = Vec::with_capacity(identities.len());
        for identity in identities {
            let known = names.iter().position(|name| name == identity);
            nodes.push(known.unwrap_or(names.len()));
            if known.is_none() {
                names.push(identity.clone());
            }
        }
        Self { names, nodes }
    }

    /// The number of hosts.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The identity that the ranks of host `node` reported; `None` for an unknown host.
    pub fn name(&self, node: usize) -> Option<&str> {
        self.names.get(node).map(String::as_str)
    }

    /// The number of a rank's host; `None` for a rank outside the world.
    pub fn node_rank(&self, rank: usize) -> Option<usize> {
        self.nodes.get(rank).copied()
    }

    /// The number of a rank among the ranks of its host; `None` for a rank outside the world.
    pub fn local_rank(&self, rank: usize) -> Option<usize> {
        let node = self.node_rank(rank)?;
        Some(self.nodes[..rank].iter().filter(|other| **other == node).count())
    }

    /// The number of ranks on a rank's host, including itself.
    pub fn local_size(&self, rank: usize) -> Option<usize> {
        Some(self.ranks(self.node_rank(rank)?).len())
    }

    /// The ranks of host `node`, in order.
    pub fn ranks(&self, node: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|rank| self.nodes[*rank] == node).collect()
    }

    /// The hosts of a group by name, each with its number of the group's ranks.
    pub(crate) fn of_group(&self, group: &[usize]) -> Vec<(String, usize)> {
        let name = |part: &Vec<usize>| part.first().and_then(|rank| self.names.get(self.node_rank(*rank)?)).cloned();
        self.parts(group).iter().map(|part| (name(part).unwrap_or_default(), part.len())).collect()
    }

    /// The ranks of a group by host, in the order of hosts, without hosts that have none.
    pub(crate) fn parts(&self, group: &[usize]) -> Vec<Vec<usize>> {
        let part = |node| group.iter().copied().filter(|rank| self.node_rank(*rank) == Some(node)).collect();
        (0..self.count()).map(part).filter(|part: &Vec<usize>| !part.is_empty()).collect()
    }
}

impl fmt::Display for Hosts {
    /// `a (ranks 0, 1), b (ranks 2, 3)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, name) in self.names.iter().enumerate() {
            let ranks = self.ranks(node).iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            write!(out, "{}{name} (ranks {ranks})", if node > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/backend/hosts.rs"]
mod tests;
