//! A kernel's accesses to a peer's memory by the functions of `symmetra/device/heap.cuh`.

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use symmetra::{Capture, Communicator, DeviceKind, Stream, SymmetricBuffer};

use harness::comparison::turns::Turns;
use harness::failure::CommandFailure;
use harness::statistics::{median, slowest};

use crate::limits::LimitLine;

/// Lines of a chain of loads: more than one launch loads, so that no load hits a line that an earlier load fetched.
const LINES: usize = 2048;

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeapOperation {
    Load,
    Add,
    Message,
    Put,
}

const QUANTITIES: [(&str, HeapOperation); 4] = [
    ("kernel: dependent load from the next rank", HeapOperation::Load),
    ("kernel: dependent fetch_add to the next rank", HeapOperation::Add),
    ("kernel: put_signal of 16 bytes, one way", HeapOperation::Message),
    ("kernel: put to the next rank, 8 blocks", HeapOperation::Put),
];

impl HeapOperation {
    /// Launches of the kernel in one graph.
    fn operations(self, device: DeviceKind) -> u32 {
        match (self, device) {
            (Self::Put, DeviceKind::Cuda) => 8,
            (Self::Put, _) => 2,
            _ => 1,
        }
    }

    /// Loads, additions, or messages each way, in one launch.
    fn rounds(self, device: DeviceKind) -> u32 {
        match (self, device) {
            (Self::Put, _) => 1,
            (_, DeviceKind::Cuda) => 1000,
            _ => 100,
        }
    }

    /// The number by which a graph's time is divided.
    fn parts(self, device: DeviceKind) -> f64 {
        let each = f64::from(self.operations(device) * self.rounds(device));
        // A round of messages is one there and one back.
        if self == Self::Message { 2.0 * each } else { each }
    }
}

/// The measurement of one quantity on one rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    times_us: Vec<f64>,
    /// Received words that differ from the words that the peer sent.
    wrong: u64,
    /// Why there are no times.
    skipped: Option<String>,
}

/// The random data of a rank: every rank can compute the data of all ranks.
struct HeapData {
    /// A word for every line: its lowest bits are the number of the next line, in one circle through all lines.
    chain: Vec<u64>,
    /// The first word of a chain.
    start: u64,
    /// The word to which another rank adds.
    word: u64,
    messages: [u64; Communicator::PROBE_SLOT_WORDS],
}

impl HeapData {
    fn new(seed: u64, rank: usize) -> Self {
        let mut random = generator(seed, rank);
        let mut order: Vec<usize> = (0..LINES).collect();
        random.shuffle(&mut order);
        let mut chain = vec![0; LINES];
        for (place, line) in order.iter().enumerate() {
            chain[*line] = random.u64(..) / LINES as u64 * LINES as u64 + order[(place + 1) % LINES] as u64;
        }
        let messages = std::array::from_fn(|_| random.u64(..));
        Self { chain, start: random.u64(..), word: random.u64(..), messages }
    }
}

/// The random numbers of a rank.
fn generator(seed: u64, rank: usize) -> Rng {
    Rng::with_seed(seed ^ (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The data that a rank sends in copies.
fn sent(seed: u64, rank: usize, words: usize) -> Vec<u64> {
    let mut random = generator(!seed, rank);
    (0..words).map(|_| random.u64(..)).collect()
}

/// The last word of a chain and the fold of all its words, after `count` steps from `start`.
fn follow(start: u64, count: u64, mut step: impl FnMut(u64) -> u64) -> [u64; 2] {
    (0..count).fold([start, 0], |[last, folded], _| {
        let word = step(last);
        [word, Communicator::probe_fold(folded, word)]
    })
}

/// The last word and the fold of a chain of loads.
fn loaded(start: u64, chain: &[u64], count: u64) -> [u64; 2] {
    follow(start, count, |last| chain[last as usize % LINES])
}

/// The last word and the fold of a chain of additions to `word`, and the value of `word` afterwards.
fn added(start: u64, mut word: u64, count: u64) -> ([u64; 2], u64) {
    let found = follow(start, count, |last| {
        let before = word;
        word = word.wrapping_add(last.wrapping_mul(2).wrapping_add(1));
        before
    });
    (found, word)
}

/// The fold of the messages of `launches` launches: each launch begins with the first slot.
fn received(mut words: [u64; Communicator::PROBE_SLOT_WORDS], launches: u32, rounds: u32) -> u64 {
    let mut folded = 0;
    for round in (0..launches).flat_map(|_| 0..rounds) {
        for number in [0, 1].map(|half| (round % 2 * 2 + half) as usize) {
            folded = Communicator::probe_fold(folded, words[number]);
            words[number] = Communicator::probe_fold(words[number], number as u64 + 1);
        }
    }
    folded
}

/// How many words differ.
fn unequal(found: &[u64], expected: &[u64]) -> u64 {
    let missing = found.len().abs_diff(expected.len());
    (missing + found.iter().zip(expected).filter(|(is, must)| is != must).count()) as u64
}

/// Operands of the measured kernels.
struct Probes<'a> {
    communicator: &'a Communicator,
    chain: &'a SymmetricBuffer<u64>,
    word: &'a SymmetricBuffer<u64>,
    slots: [&'a SymmetricBuffer<u64>; 2],
    found: &'a SymmetricBuffer<u64>,
    copies: [&'a SymmetricBuffer<u64>; 2],
    seed: u64,
}

/// Bytes of the heap, with copies of `bytes`.
pub(super) fn heap_bytes(bytes: u64) -> u64 {
    let chain = (LINES * Communicator::PROBE_LINE_WORDS * size_of::<u64>()) as u64;
    4 * (64 << 10) + chain + 2 * bytes
}

/// One rank's part, in the order of [`QUANTITIES`]. Collective; blocks.
pub(super) fn measure(
    communicator: &Communicator,
    turns: &Turns<'_>,
    bytes: u64,
    seed: u64,
) -> Result<Vec<Measured>, CommandFailure> {
    let symmetric = |words: usize| communicator.symmetric::<u64>(words);
    let (chain, word) = (symmetric(LINES * Communicator::PROBE_LINE_WORDS)?, symmetric(1)?);
    let slots = [symmetric(Communicator::PROBE_SLOT_WORDS)?, symmetric(Communicator::PROBE_SLOT_WORDS)?];
    let words = bytes as usize / size_of::<u64>();
    let (found, copies) = (symmetric(2)?, [symmetric(words)?, symmetric(words)?]);
    let probes = Probes {
        communicator,
        chain: &chain,
        word: &word,
        slots: slots.each_ref(),
        found: &found,
        copies: copies.each_ref(),
        seed,
    };
    QUANTITIES.iter().map(|(_, kind)| probes.measure(*kind, turns)).collect()
}

impl<'a> Probes<'a> {
    /// The next rank, in whose memory this rank works.
    fn next(&self) -> usize {
        (self.communicator.rank() + 1) % self.communicator.world_size()
    }

    fn previous(&self) -> usize {
        let world = self.communicator.world_size();
        (self.communicator.rank() + world - 1) % world
    }

    /// Messages go between pairs: the last rank of an odd number has no partner.
    fn partner(&self) -> Option<usize> {
        Some(self.communicator.rank() ^ 1).filter(|partner| *partner < self.communicator.world_size())
    }

    fn measure(&self, kind: HeapOperation, turns: &Turns<'_>) -> Result<Measured, CommandFailure> {
        if kind == HeapOperation::Add && !self.communicator.has_native_atomics() {
            let why = "links between the devices have no atomics".to_owned();
            return Ok(Measured { times_us: Vec::new(), wrong: 0, skipped: Some(why) });
        }
        let (device, stream) = (self.communicator.device().kind(), turns.stream());
        let operations = kind.operations(device);
        self.prepare(kind, stream)?;
        // No rank may write to a rank that still prepares.
        self.communicator.group().barrier()?;
        let graph = stream.capture(|capture| (0..operations).try_for_each(|_| self.record(kind, capture)))?;
        let times_us = turns.times_us(kind.parts(device), || graph.launch(stream))?;
        // No rank may read memory to which another rank still writes.
        self.communicator.group().barrier()?;
        let wrong = self.count_wrong(kind, turns.launches().total() * operations, stream)?;
        Ok(Measured { times_us, wrong, skipped: None })
    }

    fn prepare(&self, kind: HeapOperation, stream: &Stream) -> symmetra::Result<()> {
        let own = HeapData::new(self.seed, self.communicator.rank());
        self.found.write(&[own.start, 0], stream)?;
        match kind {
            HeapOperation::Load => {
                let mut words = vec![0; self.chain.len()];
                for (line, word) in own.chain.iter().enumerate() {
                    words[line * Communicator::PROBE_LINE_WORDS] = *word;
                }
                self.chain.write(&words, stream)
            }
            HeapOperation::Add => self.word.write(&[own.word], stream),
            HeapOperation::Message => {
                self.slots[0].write(&own.messages, stream)?;
                self.slots[1].write(&own.messages.map(|word| !word), stream)
            }
            HeapOperation::Put => {
                let [from, to] = self.copies;
                let words = sent(self.seed, self.communicator.rank(), from.len());
                from.write(&words, stream)?;
                to.write(&words.iter().map(|word| !word).collect::<Vec<_>>(), stream)
            }
        }
    }

    fn record(&self, kind: HeapOperation, capture: &Capture<'_, 'a>) -> symmetra::Result<()> {
        let communicator = self.communicator;
        let rounds = kind.rounds(communicator.device().kind());
        match kind {
            HeapOperation::Load => communicator.probe_loads(self.chain, self.found, self.next(), rounds, capture),
            HeapOperation::Add => communicator.probe_additions(self.word, self.found, self.next(), rounds, capture),
            HeapOperation::Message => match self.partner() {
                Some(partner) => {
                    communicator.probe_messages(self.slots[0], self.slots[1], self.found, partner, rounds, capture)
                }
                None => communicator.probe_launches(1, 32, 1, capture),
            },
            HeapOperation::Put => communicator.probe_put(self.copies[0], self.copies[1], self.next(), capture),
        }
    }

    /// How many words differ from the expected words after `launches` launches of the kernel.
    fn count_wrong(&self, kind: HeapOperation, launches: u32, stream: &Stream) -> symmetra::Result<u64> {
        let drawn = |rank: usize| HeapData::new(self.seed, rank);
        let rounds = kind.rounds(self.communicator.device().kind());
        let (own, count) = (drawn(self.communicator.rank()), u64::from(launches) * u64::from(rounds));
        let found = self.found.read(stream)?;
        match kind {
            HeapOperation::Load => Ok(unequal(&found, &loaded(own.start, &drawn(self.next()).chain, count))),
            HeapOperation::Add => {
                let (expected, _) = added(own.start, drawn(self.next()).word, count);
                let (_, left) = added(drawn(self.previous()).start, own.word, count);
                Ok(unequal(&found, &expected) + unequal(&self.word.read(stream)?, &[left]))
            }
            HeapOperation::Message => {
                let come = self.partner().map_or(0, |partner| received(drawn(partner).messages, launches, rounds));
                Ok(unequal(&found, &[own.start, come]))
            }
            HeapOperation::Put => {
                let to = self.copies[1];
                Ok(unequal(&to.read(stream)?, &sent(self.seed, self.previous(), to.len())))
            }
        }
    }
}

/// Combines the measurements of all ranks. Copies are of `bytes`.
pub(super) fn lines(ranks: &[&[Measured]], bytes: u64) -> Vec<LimitLine> {
    let line = |(number, (name, kind)): (usize, &(&'static str, HeapOperation))| {
        let measured = || ranks.iter().filter_map(|rank| rank.get(number));
        let skipped = measured().find_map(|one| one.skipped.clone());
        let time_us = median(slowest(measured().map(|one| one.times_us.as_slice())));
        let time_us = skipped.is_none().then_some(time_us);
        let gbps =
            time_us.filter(|time| *kind == HeapOperation::Put && *time > 0.0).map(|time| bytes as f64 / time / 1e3);
        let wrong = skipped.is_none().then(|| measured().map(|one| one.wrong).sum());
        LimitLine { name, time_us, gbps, wrong, skipped }
    };
    QUANTITIES.iter().enumerate().map(line).collect()
}

#[cfg(test)]
#[path = "../../../../tests/bench/unit/floor_heap.rs"]
mod tests;
