//! Ranks that call one operation in different forms.

use symmetra::Reduction;

use crate::support::{Rank, config, threads};

/// The root reduces in place and the others do not, or vice versa: no rank knows the operands of the others.
#[test]
fn ranks_may_mix_reduce_and_reduce_in_place() {
    const ELEMS: usize = 64 << 10;
    for root_in_place in [true, false] {
        let mut config = config();
        config.check_calls = true;
        threads(4, &config, |rank| {
            let Rank { communicator, stream, .. } = rank;
            let (own, root) = (rank.rank(), 1);
            let (input, output) = (communicator.symmetric(ELEMS).unwrap(), communicator.symmetric(ELEMS).unwrap());
            let value = |rank: usize, index: usize| (rank * 7 + index % 1000) as f32;
            let given: Vec<f32> = (0..ELEMS).map(|index| value(own, index)).collect();
            input.write(&given, stream).unwrap();
            communicator.group().barrier().unwrap();
            let called = match (own == root) == root_in_place {
                true => communicator.reduce_in_place(&input, Reduction::Sum, root, stream),
                false => {
                    let output = (own == root).then_some(&output);
                    communicator.reduce(&input, output, Reduction::Sum, root, stream)
                }
            };
            called.unwrap();
            rank.finish();
            if own == root {
                let reduced: Vec<f32> = (0..ELEMS).map(|index| (0..4).map(|rank| value(rank, index)).sum()).collect();
                let result = if root_in_place { &input } else { &output };
                assert_eq!(result.read(stream).unwrap(), reduced);
            }
            if own != root || !root_in_place {
                assert_eq!(input.read(stream).unwrap(), given, "rank {own}: an input was written");
            }
            communicator.group().barrier().unwrap();
        });
    }
}
