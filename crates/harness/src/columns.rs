//! The columns of a table: a heading, and the cell of each row.

use serde_json::Value;

use crate::table::Table;

/// The content of a cell.
pub enum Cell {
    Text(String),
    Count(u64),
    /// A number that may be absent, with digits after the point.
    Number(Option<f64>, usize),
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(Some(number), digits) => format!("{number:.digits$}"),
            Self::Number(None, _) => "-".to_owned(),
        }
    }

    /// As JSON, with the digits of the text: 4.20 does not become 4.2.
    fn json(&self) -> String {
        match self {
            Self::Text(text) => Value::from(text.as_str()).to_string(),
            Self::Number(number, _) if !number.is_some_and(f64::is_finite) => Value::Null.to_string(),
            number => number.text(),
        }
    }
}

/// A column of a table of such rows.
pub struct Column<R> {
    heading: String,
    /// Numbers are aligned to the right.
    right: bool,
    /// A cell that may come; the column has room for it.
    expected: String,
    cell: Box<dyn Fn(&R) -> Cell>,
}

impl<R> Column<R> {
    fn new(heading: impl Into<String>, right: bool, cell: impl Fn(&R) -> Cell + 'static) -> Self {
        Self { heading: heading.into(), right, expected: String::new(), cell: Box::new(cell) }
    }

    pub fn text(heading: impl Into<String>, text: impl Fn(&R) -> String + 'static) -> Self {
        Self::new(heading, false, move |row| Cell::Text(text(row)))
    }

    pub fn count(heading: impl Into<String>, count: impl Fn(&R) -> u64 + 'static) -> Self {
        Self::new(heading, true, move |row| Cell::Count(count(row)))
    }

    pub fn number(heading: impl Into<String>, digits: usize, number: impl Fn(&R) -> Option<f64> + 'static) -> Self {
        Self::new(heading, true, move |row| Cell::Number(number(row), digits))
    }

    /// Leaves room for a cell that may come.
    pub fn expecting(self, cell: impl Into<String>) -> Self {
        Self { expected: cell.into(), ..self }
    }
}

/// The table of the text output.
pub fn table<R>(columns: &[Column<R>], rows: &[R]) -> Table {
    let right = columns.iter().enumerate().filter(|(_, column)| column.right).map(|(number, _)| number);
    let mut table = Table::new(columns.iter().map(|column| column.heading.as_str()), right)
        .expecting(columns.iter().map(|column| column.expected.as_str()));
    for row in rows {
        table.add_row(columns.iter().map(|column| (column.cell)(row).text()));
    }
    table
}

/// The headings, and the cells of each row in a line of JSON.
pub fn json<R>(columns: &[Column<R>], rows: &[R]) -> (Vec<String>, Vec<String>) {
    let of_row = |row: &R| {
        let cells: Vec<String> = columns.iter().map(|column| (column.cell)(row).json()).collect();
        format!("[{}]", cells.join(", "))
    };
    (columns.iter().map(|column| column.heading.clone()).collect(), rows.iter().map(of_row).collect())
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/columns.rs"]
mod tests;
