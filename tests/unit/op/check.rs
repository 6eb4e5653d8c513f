use super::*;
use crate::memory::{Ref, WithView};
use crate::op::ALL_REDUCE;

/// The result of the check for sums of groups of `ranks` ranks in a world of four, with f32 operands at made-up
/// addresses. No code accesses these addresses.
fn check(ranks: usize, rows: usize, [input, output]: [(usize, usize); 2]) -> Result<u64, String> {
    let device = Device::host().unwrap();
    let operand = |(address, elems): (usize, usize)| Ref::<f32>::new(address as *mut f32, elems, &device);
    let (input, output) = (operand(input), operand(output));
    let call = Call::new(&ALL_REDUCE, Dtype::F32).numbers(Numbers::Apart(Apart { ranks, rows }));
    let checked = call.input(input.view_of()).output(output.view_of()).check(0, 4, &device);
    checked.map(|shape| shape.bytes()).map_err(|error| error.to_string())
}

#[test]
fn sums_of_a_few_ranks_each_fit_their_operands() {
    assert_eq!(check(2, 1, [(0, 6), (24, 12)]), Ok(24));
    assert_eq!(check(1, 3, [(1024, 6), (64, 24)]), Ok(24));
    assert_eq!(check(4, 2, [(0, 0), (0, 0)]), Ok(0));
    let refused = [
        (check(3, 1, [(0, 6), (64, 12)]), ["the ranks of a result", "3", "must divide the world size, 4"]),
        (check(0, 1, [(0, 6), (64, 12)]), ["the ranks of a result", "0", "must divide the world size, 4"]),
        (check(2, 4, [(0, 6), (64, 12)]), ["the rows of the input", "4", "must divide its 6 elements"]),
        (check(2, 1, [(0, 6), (64, 6)]), ["the output's length", "6", "results of 2 of 4 ranks make 12"]),
        (check(2, 1, [(0, 6), (20, 12)]), ["the input", "the output", "may not overlap"]),
    ];
    for (checked, words) in refused {
        let said = checked.unwrap_err();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}
