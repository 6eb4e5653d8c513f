//! Tests of `src/group/timed.rs`, whose module they are.

use super::*;
use crate::group::control_page::PageMapping;

#[test]
fn a_kind_of_call_has_one_label_until_all_are_used() {
    let page = PageMapping::create("symmetra-test").unwrap();
    let labels = Labels::default();
    for bytes in 1..=LABELS as u64 {
        assert_eq!(labels.of([bytes, 0], &page.timeline), bytes as u16);
    }
    assert_eq!(labels.of([7, 0], &page.timeline), 7);
    assert_eq!(labels.of([7, 1], &page.timeline), 0);
}
