use super::*;

#[test]
fn every_element_must_be_there_and_equal() {
    let right = [1f32, 0.0, -3.0];
    assert_eq!(compare(&right, &right).wrong, 0);
    assert_eq!(compare(&[1.0, -0.0, -3.0], &right).wrong, 0, "a zero has either sign");
    assert_eq!(compare(&[1.0, 0.5, f32::NAN], &right).wrong, 2);
    assert_eq!(compare(&right[..1], &right).wrong, 2);
    assert_eq!(compare(&right, &right[..2]).wrong, 1);
}
