//! Tests of `crates/harness/src/table.rs`, whose module they are.

use super::*;

fn table() -> Table {
    let mut table = Table::new(["bytes", "two-shot-sentinel us", "why"], [0, 1]);
    table.add_row(["1024", "1.50", "no barrier, and one hop"]);
    table.add_row(["16777216", "12.25", "-"]);
    table
}

#[test]
fn a_wide_terminal_gets_a_line_a_row() {
    let lines = [
        "   bytes  two-shot-sentinel us  why",
        "    1024                  1.50  no barrier, and one hop",
        "16777216                 12.25  -",
    ];
    assert_eq!(table().fitted(80), lines);
    assert_eq!(table().fitted(1000), lines);
}

#[test]
fn texts_and_headings_break_before_numbers_do() {
    let lines = [
        "              two-",
        "             shot-",
        "          sentinel",
        "   bytes        us  why",
        "    1024      1.50  no",
        "                    barrier,",
        "                    and one",
        "                    hop",
        "16777216     12.25  -",
    ];
    assert_eq!(table().fitted(28), lines);
    // With a space between columns instead of two.
    let narrow = table().fitted(26);
    assert!(narrow.iter().all(|line| line.len() <= 26) && !narrow.contains(&String::new()), "{narrow:#?}");
}

#[test]
fn columns_without_room_follow_below() {
    let narrow = table().fitted(20);
    assert!(narrow.iter().all(|line| line.len() <= 20), "{narrow:#?}");
    let blocks: Vec<_> = narrow.split(|line| line.is_empty()).collect();
    assert_eq!(blocks.len(), 2, "{narrow:#?}");
    for block in blocks {
        assert!(block.iter().any(|line| line.contains("bytes")) && block.iter().any(|line| line.contains("16777216")));
    }
}

/// A path can still be copied.
#[test]
fn no_word_is_broken() {
    let mut table = Table::new(["name", "value"], []);
    table.add_row(["a", "/a/very/long/path/of/a/library.so"]);
    assert_eq!(table.fitted(10), ["name value", "a    /a/very/long/path/of/a/library.so"]);
}

#[test]
fn a_table_without_rows_has_headings() {
    assert_eq!(Table::new(["one", "two"], [1]).fitted(80), ["one  two"]);
    assert_eq!(Table::new(Vec::<String>::new(), []).fitted(80), Vec::<String>::new());
}

/// Later rows align with the columns of printed rows.
#[test]
fn a_table_grows_by_rows() {
    let whole = table();
    let layout = whole.layout_in(80).unwrap();
    let lines = whole.fitted(80);
    assert_eq!(whole.heading(&layout), lines[..1]);
    assert_eq!(
        (whole.lines_after(0, &layout), whole.lines_after(1, &layout)),
        (lines[1..].to_vec(), lines[2..].to_vec())
    );
    assert_eq!(whole.after(1).fitted(80)[1], lines[2]);
    assert_eq!((whole.rows(), whole.after(1).rows(), whole.after(9).rows()), (2, 1, 0));
    // Columns that follow below leave no place for rows.
    assert_eq!(whole.layout_in(20), None);

    let mut first = Table::new(["bytes", "us"], [0, 1]).expecting(["16777216", "1.00"]);
    first.add_row(["1024", "1.50"]);
    let layout = first.layout_in(80).unwrap();
    assert_eq!(first.lines_after(0, &layout), ["    1024  1.50"]);
    first.add_row(["16777216", "2.50"]);
    assert!(first.holds(&layout, 1));
    first.add_row(["16777216", "1234.50"]);
    assert!(!first.holds(&layout, 2) && first.holds(&layout, 3));
}
