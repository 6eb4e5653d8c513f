//! Tests of `src/backend/settings.rs`, whose module they are.

use super::*;

#[derive(Debug, Clone)]
#[allow(dead_code)]
struct Outer {
    count: usize,
    inner: Inner,
    lists: Vec<Vec<usize>>,
    name: Option<&'static str>,
}

#[derive(Debug, Clone)]
#[allow(dead_code)]
enum Inner {
    Plain,
    Padded { rows: usize, align: usize },
    Table(Vec<usize>),
}

fn outer() -> Outer {
    let inner = Inner::Padded { rows: 4, align: 1 };
    Outer { count: 1, inner, lists: vec![vec![1, 2], vec![3]], name: None }
}

/// The field that differs after `change`, and both values.
fn changed(change: impl FnOnce(&mut Outer)) -> (String, [String; 2]) {
    let ours = outer();
    let mut theirs = ours.clone();
    change(&mut theirs);
    let of = |outer: &Outer| texts(&[("first", &7), ("", outer)]);
    assert_eq!(difference(&of(&ours), &of(&ours)), None);
    difference(&of(&ours), &of(&theirs)).unwrap()
}

#[test]
fn the_field_that_differs_is_named_with_both_values() {
    let is = |found: (String, [String; 2]), name: &str, ours: &str, theirs: &str| {
        assert_eq!(found, (name.to_owned(), [ours.to_owned(), theirs.to_owned()]));
    };
    is(changed(|outer| outer.count = 20), "count", "1", "20");
    is(changed(|outer| outer.inner = Inner::Plain), "inner", "Padded { rows: 4, align: 1 }", "Plain");
    is(changed(|outer| outer.inner = Inner::Padded { rows: 4, align: 8 }), "inner.align", "1", "8");
    let table = Inner::Table(vec![5, 6]);
    is(changed(|outer| outer.inner = table), "inner", "Padded { rows: 4, align: 1 }", "Table([5, 6])");
    is(changed(|outer| outer.lists[1][0] = 9), "lists[1][0]", "3", "9");
    is(changed(|outer| outer.lists[0].push(8)), "lists[0]", "[1, 2]", "[1, 2, 8]");
    is(changed(|outer| drop(outer.lists.pop())), "lists", "[[1, 2], [3]]", "[[1, 2]]");
    is(changed(|outer| outer.name = Some("a: b")), "name", "None", "Some(\"a: b\")");
    let [ours, theirs] = [Some(3), Some(4)].map(|rows| texts(&[("rows", &rows)]));
    is(difference(&ours, &theirs).unwrap(), "rows", "3", "4");
    let [ours, theirs] = [[2, 3], [2, 4]].map(|shape| texts(&[("shape", &shape)]));
    is(difference(&ours, &theirs).unwrap(), "shape[1]", "3", "4");
}
