//! Objects that ranks send each other, and the objects that a rank receives, bit for bit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::support::data::{Random, mix};

/// Objects that ranks of a group send each other, one after the other. `root` is numbered in the group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Objects {
    pub(crate) group: usize,
    pub(crate) by: By,
    pub(crate) root: usize,
    pub(crate) count: usize,
    pub(crate) seed: u64,
}

/// How objects are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum By {
    /// From the root to all.
    Broadcast,
    /// From all to the root.
    Gather,
    /// Through a metadata ring whose writer is the root: every other message is bytes.
    Ring { slots: usize, chunk_bytes: usize },
}

/// Anything that serde describes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Object {
    Nothing,
    Float(f64),
    Short(f32),
    Whole(i64),
    Large(u64),
    Vast(i128),
    Letter(char),
    Text(String),
    Bytes(Vec<u8>),
    Maybe(Option<Option<f32>>),
    List(Vec<Object>),
    Map(BTreeMap<String, Object>),
    Numbered(BTreeMap<i32, f64>),
    Pair(u8, Box<Object>),
    Named { log: Option<f64>, unit: (), rest: Box<Object> },
}

impl Objects {
    /// The object that a member sends.
    pub(crate) fn given(&self, member: usize, number: usize) -> Object {
        let seed = mix(self.seed ^ (member as u64) << 48 ^ (number as u64) << 32);
        Object::any(&mut Random(seed), 4)
    }

    /// Whether a member sends objects.
    pub(crate) fn gives(&self, member: usize) -> bool {
        self.by == By::Gather || member == self.root
    }

    /// Whether a message of a ring is the bytes of its object.
    pub(crate) fn is_bytes(number: usize) -> bool {
        number % 2 == 1
    }

    /// The bits of the objects that a member of a group of `members` has in the end.
    pub(crate) fn expected(&self, member: usize, members: usize) -> Vec<u8> {
        let is_root = member == self.root;
        let from = match self.by {
            By::Broadcast => self.root..self.root + 1,
            By::Gather => 0..if is_root { members } else { 0 },
            By::Ring { .. } => self.root..self.root + usize::from(!is_root),
        };
        (0..self.count).flat_map(|number| from.clone().flat_map(move |from| self.given(from, number).bits())).collect()
    }
}

impl Object {
    /// An object of at most `levels` levels.
    fn any(random: &mut Random, levels: usize) -> Self {
        let next = |random: &mut Random| Self::any(random, levels - 1);
        match random.below(if levels == 0 { 10 } else { 15 }) {
            0 => Self::Nothing,
            1 | 2 => Self::Float(float(random)),
            3 => Self::Short(short(random)),
            4 => Self::Whole(random.next() as i64 >> random.below(64)),
            5 => Self::Large(random.next() >> random.below(64)),
            6 => Self::Vast((i128::from(random.next()) << 64 | i128::from(random.next())) >> random.below(128)),
            7 => Self::Letter(*random.pick(&['a', '\0', 'é', '𝄞', '"', '\u{2028}'])),
            8 => Self::Text(
                (0..random.below(30)).map(|_| *random.pick(&['x', '\n', '\\', 'ß', '€', '\u{7f}'])).collect(),
            ),
            9 => {
                let len = if random.below(20) == 0 { random.below(100_000) } else { random.below(40) };
                Self::Bytes((0..len).map(|_| random.next() as u8).collect())
            }
            10 => Self::Maybe([None, Some(None), Some(Some(short(random)))][random.below(3)]),
            11 => Self::List((0..random.below(5)).map(|_| next(random)).collect()),
            12 if random.below(2) == 0 => {
                Self::Numbered((0..random.below(6)).map(|_| (random.next() as i32, float(random))).collect())
            }
            12 => Self::Map((0..random.below(5)).map(|_| (format!("{:x}", random.below(40)), next(random))).collect()),
            13 => Self::Pair(random.next() as u8, Box::new(next(random))),
            _ => {
                let log = (random.below(3) > 0).then(|| float(random));
                Self::Named { log, unit: (), rest: Box::new(next(random)) }
            }
        }
    }

    /// Bits that distinguish the object from every other object.
    pub(crate) fn bits(&self) -> Vec<u8> {
        let counted = |count: usize| (count as u64).to_le_bytes().to_vec();
        match self {
            Self::Nothing => vec![0],
            Self::Float(value) => [&[1][..], &value.to_bits().to_le_bytes()].concat(),
            Self::Short(value) => [&[2][..], &value.to_bits().to_le_bytes()].concat(),
            Self::Whole(value) => [&[3][..], &value.to_le_bytes()].concat(),
            Self::Large(value) => [&[4][..], &value.to_le_bytes()].concat(),
            Self::Vast(value) => [&[5][..], &value.to_le_bytes()].concat(),
            Self::Letter(value) => [&[6][..], &(*value as u32).to_le_bytes()].concat(),
            Self::Text(value) => [&[7][..], &counted(value.len()), value.as_bytes()].concat(),
            Self::Bytes(value) => [&[8][..], &counted(value.len()), value].concat(),
            Self::Maybe(None) => vec![9, 0],
            Self::Maybe(Some(None)) => vec![9, 1],
            Self::Maybe(Some(Some(value))) => [&[9, 2][..], &value.to_bits().to_le_bytes()].concat(),
            Self::List(all) => [vec![10], counted(all.len()), all.iter().flat_map(Self::bits).collect()].concat(),
            Self::Map(all) => {
                let entry = |(name, value): (&String, &Self)| [Self::Text(name.clone()).bits(), value.bits()].concat();
                [vec![11], counted(all.len()), all.iter().flat_map(entry).collect()].concat()
            }
            Self::Numbered(all) => {
                let entry =
                    |(key, value): (&i32, &f64)| [key.to_le_bytes().to_vec(), Self::Float(*value).bits()].concat();
                [vec![12], counted(all.len()), all.iter().flat_map(entry).collect()].concat()
            }
            Self::Pair(first, second) => [vec![13, *first], second.bits()].concat(),
            Self::Named { log, rest, .. } => {
                [vec![14], log.map_or(vec![0], |log| Self::Float(log).bits()), rest.bits()].concat()
            }
        }
    }
}

/// Any bits, often special values.
fn float(random: &mut Random) -> f64 {
    match random.below(3) {
        0 => f64::from_bits(random.next()),
        1 => f64::from(short(random)),
        _ => *random.pick(&[f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.1, 5e-324, f64::MAX]),
    }
}

fn short(random: &mut Random) -> f32 {
    match random.below(2) {
        0 => f32::from_bits(random.next() as u32),
        _ => *random.pick(&[f32::NAN, f32::from_bits(0x7f80_0001), f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.1, 1e-45]),
    }
}
