use super::*;

fn words(divided: Result<Division>) -> String {
    divided.unwrap_err().to_string()
}

#[test]
fn parts_follow_each_other() {
    let division = Division::of_part(&[1, 3, 4], 1, Some(&[2, 3, 0]), 1, 3).unwrap();
    assert_eq!(division.shape, [1, 5, 4]);
    assert_eq!([0, 1, 2].map(|rank| division.part(rank)), [0..8, 8..20, 20..20]);
    assert_eq!(division.largest_part(), 12);
    assert!(!division.is_equal() && division.is_contiguous() && !division.cuts_rows());
    assert_eq!(Division::of_whole(&[1, 5, 4], 1, Some(&[2, 3, 0]), 3).unwrap(), division);
    assert_eq!(division.with_last(Some(7)).shape, [1, 5, 7]);
    assert_eq!(division.with_last(None).shape, [1, 5]);
}

#[test]
fn equal_parts_behind_other_dimensions_are_not_contiguous() {
    let division = Division::of_whole(&[2, 6, 4], 1, None, 3).unwrap();
    assert_eq!(
        (division.lens.as_slice(), division.part_shape(2).as_slice()),
        ([2; 3].as_slice(), [2, 2, 4].as_slice())
    );
    assert!(division.is_equal() && !division.is_contiguous());
    assert!(Division::of_part(&[2, 3], 1, None, 0, 4).unwrap().cuts_rows());
}

#[test]
fn what_cannot_be_divided_says_the_value_and_the_limit() {
    for (found, expected) in [
        (words(Division::of_part(&[3], 0, None, 0, 2)), "the number of dimensions is 1, but a matrix has 2 or more"),
        (words(Division::of_whole(&[3, 4], 2, None, 2)), "the dimension is 2, but the shape [3, 4] has 2"),
        (
            words(Division::of_whole(&[3, 4], 0, None, 2)),
            "dimension 0 of [3, 4] is 3, but it must be a multiple of the world size, 2",
        ),
        (
            words(Division::of_whole(&[3, 4], 0, Some(&[1, 1]), 2)),
            "the sum of rows is 2, but dimension 0 of [3, 4] is 3",
        ),
        (words(Division::of_whole(&[3, 4], 0, Some(&[3]), 2)), "the length of rows is 1, but the world size is 2"),
        (words(Division::of_part(&[3, 4], 0, Some(&[2, 3]), 0, 2)), "dimension 0 of [3, 4] is 3, but rows[0] is 2"),
        (
            words(Division::of_part(&[usize::MAX / 4, 4], 0, None, 0, 2)),
            "the shape is [9223372036854775806, 4], but 4 bytes an element for each of 2 ranks must be at most 2305843009213693951",
        ),
        (words(Division::of_part(&[usize::MAX, 4], 0, None, 0, 2)), "the sum of rows is [18446744073709551615, 18446"),
        (words(Division::of_part(&[1 << 59, 8], 0, None, 0, 2)), "4 bytes an element for each of 2 ranks"),
        (words(Division::of_whole(&[0, 1 << 40, 1 << 40], 0, None, 2)), "4 bytes an element for each of 2 ranks"),
        (words(Division::of_part(&[2, 1, 4], 1, Some(&[1, 2]), 0, 2)), "dimensions before the cut one must be 1"),
    ] {
        assert!(found.contains(expected), "{found}\n{expected}");
    }
}
