use super::*;

fn columns() -> Vec<Column<(u64, Option<f64>)>> {
    vec![
        Column::count("bytes", |row: &(u64, Option<f64>)| row.0),
        Column::text("mode", |_: &(u64, Option<f64>)| "\"graph\"".to_owned()),
        Column::number("us", 2, |row: &(u64, Option<f64>)| row.1).expecting("99999.99"),
    ]
}

#[test]
fn cells_are_aligned_and_keep_their_digits() {
    let rows = [(1024, Some(4.2)), (2, None), (3, Some(f64::NAN))];
    let text = table(&columns(), &rows).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "bytes  mode           us");
    assert_eq!(lines[1], " 1024  \"graph\"      4.20");
    assert_eq!(lines[2], "    2  \"graph\"         -");
    let (headings, cells) = json(&columns(), &rows);
    assert_eq!(headings, ["bytes", "mode", "us"]);
    assert_eq!(cells, [r#"[1024, "\"graph\"", 4.20]"#, r#"[2, "\"graph\"", null]"#, r#"[3, "\"graph\"", null]"#]);
}
