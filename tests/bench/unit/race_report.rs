//! Tests of `crates/bench/src/report.rs`, whose module they are.

use symmetra::{Algorithm, Dtype};

use super::*;
use harness::collective::Collective;
use harness::contest::repeats::Repeats;

fn race(collective: Collective) -> Race {
    Race {
        dtype: Dtype::F32,
        collective,
        algorithm: Algorithm::Auto,
        ranks: 3,
        sizes_elems: vec![256],
        with: Vec::new(),
        competitors: Vec::new(),
        modes: vec![Mode::Graph],
        operations: None,
        launches: Repeats { timed: 1, warmup: 0 },
        floor_bytes: 0,
        seed: 7,
    }
}

/// The result of the reports of ranks whose results have these checksums.
fn heard(collective: Collective, checksums: [u64; 3]) -> Result<usize, Failure> {
    let race = race(collective);
    let mut hearing = Hearing::new(&[RankDevice::Host; 3], RanksAs::Threads, &race, None);
    for (rank, checksum) in checksums.into_iter().enumerate() {
        let side = SideLap { times_us: vec![1.0], host_us: vec![1.0], wrong: 0, checksum };
        let algorithm = String::new();
        hearing.hear(rank, Lap { size: 0, mode: Mode::Graph, algorithm, operations: 1, sides: vec![side] })?;
    }
    Ok(hearing.finish().rows.len())
}

#[test]
fn ranks_with_different_bits_are_named() {
    assert_eq!(heard(Collective::AllReduce, [5, 5, 5]).unwrap(), 1);
    let unequal = heard(Collective::AllReduce, [5, 5, 6]).unwrap_err();
    let words = "ranks 0 and 2 differ in their bits at 1024 bytes (seed 7)";
    assert!(matches!(&unequal, Failure::Failed(message) if message.contains(words)), "{unequal:?}");
    // Every rank has a part of its own.
    assert_eq!(heard(Collective::ReduceScatter, [5, 6, 7]).unwrap(), 1);
}
