//! Tables for people, as wide as the terminal at most.

use std::fmt::{self, Display};

use rustix::stdio::stdout;
use rustix::termios::tcgetwinsize;

/// A table without lines. Cells break at spaces, headings also after hyphens. Columns that do not fit side by side
/// follow below, each time next to the first column again.
#[derive(Clone)]
pub struct Table {
    columns: Vec<TableColumn>,
}

/// Widths of the columns of a table that stand side by side, and the spaces between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLayout {
    widths: Vec<usize>,
    gap: usize,
}

/// A heading and the cells below.
#[derive(Clone)]
struct TableColumn {
    heading: String,
    /// A cell that may come; the column has room for it.
    expected: String,
    /// Numbers are aligned to the right.
    right: bool,
    cells: Vec<String>,
}

/// Characters a line if the system does not report a width.
const USUAL_WIDTH: usize = 80;

/// Spaces between columns: the widest gap that fits.
const GAPS: [usize; 2] = [2, 1];

impl Table {
    /// A table with numbers in the columns `right`.
    pub fn new<H: Into<String>>(headings: impl IntoIterator<Item = H>, right: impl IntoIterator<Item = usize>) -> Self {
        let column = |heading: H| TableColumn {
            heading: heading.into(),
            expected: String::new(),
            right: false,
            cells: Vec::new(),
        };
        let mut columns: Vec<TableColumn> = headings.into_iter().map(column).collect();
        for column in right {
            columns[column].right = true;
        }
        Self { columns }
    }

    /// Leaves room for a row that may come.
    pub fn expecting<C: Into<String>>(mut self, cells: impl IntoIterator<Item = C>) -> Self {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.expected = cell.into();
        }
        self
    }

    /// A row has a cell for every column.
    pub fn add_row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.cells.push(cell.into());
        }
    }

    pub fn rows(&self) -> usize {
        self.columns.iter().map(|column| column.cells.len()).max().unwrap_or(0)
    }

    /// The table without its first rows.
    pub fn after(&self, rows: usize) -> Self {
        let mut table = self.clone();
        for column in &mut table.columns {
            column.cells.drain(..rows.min(column.cells.len()));
        }
        table
    }

    /// How the table is laid out on the terminal; `None` if not all columns stand side by side there.
    pub fn layout(&self) -> Option<TableLayout> {
        self.layout_in(terminal_width())
    }

    fn layout_in(&self, width: usize) -> Option<TableLayout> {
        let gap = self.gap(width)?;
        let block: Vec<&TableColumn> = self.columns.iter().collect();
        Some(TableLayout { widths: widths(&block, width, gap), gap })
    }

    /// Whether rows after the first `rows` break no word in this layout.
    pub fn holds(&self, layout: &TableLayout, rows: usize) -> bool {
        let fits = |(column, width): (&TableColumn, &usize)| {
            let cells = column.cells.iter().skip(rows);
            cells.filter_map(|cell| longest_word(cell, &[' '])).all(|least| least <= *width)
        };
        self.columns.iter().zip(&layout.widths).all(fits)
    }

    /// The lines of the headings.
    pub fn heading(&self, layout: &TableLayout) -> Vec<String> {
        heading_lines(&self.columns.iter().collect::<Vec<_>>(), layout)
    }

    /// The lines of the rows after the first `rows`.
    pub fn lines_after(&self, rows: usize, layout: &TableLayout) -> Vec<String> {
        row_lines(&self.columns.iter().collect::<Vec<_>>(), rows, layout)
    }

    /// The widest gap with which all columns fit side by side.
    fn gap(&self, width: usize) -> Option<usize> {
        GAPS.into_iter().find(|gap| total(self.columns.iter().map(TableColumn::least), *gap) <= width)
    }

    /// The lines of the table in a terminal of `width` characters a line.
    fn fitted(&self, width: usize) -> Vec<String> {
        let gap = self.gap(width).unwrap_or(1);
        let mut lines = Vec::new();
        for block in self.blocks(width, gap) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let layout = TableLayout { widths: widths(&block, width, gap), gap };
            lines.extend(heading_lines(&block, &layout));
            lines.extend(row_lines(&block, 0, &layout));
        }
        lines
    }

    /// The columns that stand side by side. The first column leads every block.
    fn blocks(&self, width: usize, gap: usize) -> Vec<Vec<&TableColumn>> {
        let Some((first, others)) = self.columns.split_first() else { return Vec::new() };
        let mut blocks = vec![vec![first]];
        for column in others {
            let fits = |block: &Vec<&TableColumn>| {
                let least = block.iter().chain([&column]).map(|column| column.least());
                block.len() == 1 || total(least, gap) <= width
            };
            match blocks.last_mut().filter(|block| fits(block)) {
                Some(block) => block.push(column),
                None => blocks.push(vec![first, column]),
            }
        }
        blocks
    }
}

impl TableColumn {
    /// The width that breaks no word.
    fn least(&self) -> usize {
        let cells = self.cells.iter().chain([&self.expected]).filter_map(|cell| longest_word(cell, &[' ']));
        cells.chain(longest_word(&self.heading, HEADING_ENDS)).max().unwrap_or(0)
    }

    /// The width that breaks no line.
    fn most(&self) -> usize {
        self.cells.iter().chain([&self.heading, &self.expected]).map(|cell| length(cell)).max().unwrap_or(0)
    }
}

/// Where a line of a heading may end.
const HEADING_ENDS: &[char] = &[' ', '-'];

fn length(text: &str) -> usize {
    text.chars().count()
}

/// The total width of columns of these widths.
fn total(widths: impl Iterator<Item = usize>, gap: usize) -> usize {
    widths.map(|width| width + gap).sum::<usize>().saturating_sub(gap)
}

fn longest_word(text: &str, ends: &[char]) -> Option<usize> {
    text.split_inclusive(ends).map(|word| length(word.trim_end())).max()
}

/// The widths of columns that stand side by side. The widest columns give way first.
fn widths(block: &[&TableColumn], width: usize, gap: usize) -> Vec<usize> {
    let widths = |most: usize| block.iter().map(move |column| column.most().min(most).max(column.least()));
    let most = (0..=width).rev().find(|most| total(widths(*most), gap) <= width).unwrap_or(0);
    widths(most).collect()
}

fn heading_lines(block: &[&TableColumn], layout: &TableLayout) -> Vec<String> {
    let broken = |(column, width): (&&TableColumn, &usize)| broken(&column.heading, *width, HEADING_ENDS);
    let headings: Vec<_> = block.iter().zip(&layout.widths).map(broken).collect();
    // Headings stand on their columns.
    let height = headings.iter().map(Vec::len).max().unwrap_or(0);
    let raised = |heading: Vec<String>| {
        let above = vec![String::new(); height - heading.len()];
        above.into_iter().chain(heading).collect()
    };
    side_by_side(block, &headings.into_iter().map(raised).collect::<Vec<_>>(), layout)
}

/// The lines of the rows after the first `rows`.
fn row_lines(block: &[&TableColumn], rows: usize, layout: &TableLayout) -> Vec<String> {
    let end = block.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let line = |number: usize| {
        let cell = |column: &TableColumn| column.cells.get(number).cloned().unwrap_or_default();
        let cells = block.iter().zip(&layout.widths).map(|(column, width)| broken(&cell(column), *width, &[' ']));
        side_by_side(block, &cells.collect::<Vec<_>>(), layout)
    };
    (rows..end).flat_map(line).collect()
}

/// The lines of one row, whose cells have several lines each.
fn side_by_side(block: &[&TableColumn], cells: &[Vec<String>], layout: &TableLayout) -> Vec<String> {
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let line = |number: usize| {
        let mut line = String::new();
        for ((cell, column), width) in cells.iter().zip(block).zip(&layout.widths) {
            let text = cell.get(number).map_or("", String::as_str);
            let fill = " ".repeat(width.saturating_sub(length(text)));
            let [before, after] = if column.right { [fill.as_str(), ""] } else { ["", fill.as_str()] };
            line.extend([before, text, after, &" ".repeat(layout.gap)]);
        }
        line.trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

/// A text in lines that fit the terminal.
pub fn wrapped(text: &str) -> String {
    broken(text, terminal_width(), &[' ']).join("\n")
}

/// Lines of at most `width` characters, each as full as can be without breaking a word.
fn broken(text: &str, width: usize, ends: &[char]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(ends) {
        let line = lines.pop().unwrap_or_default();
        if line.is_empty() || length(&line) + length(word.trim_end()) <= width {
            lines.push(line + word);
        } else {
            lines.extend([line.trim_end().to_owned(), word.to_owned()]);
        }
    }
    if let Some(line) = lines.last_mut() {
        line.truncate(line.trim_end().len());
    }
    lines
}

/// Characters a line: of the terminal if standard output is a terminal, else the value of `COLUMNS`.
fn terminal_width() -> usize {
    let terminal = tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col));
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.filter(|width| *width > 0).or_else(told).unwrap_or(USUAL_WIDTH)
}

impl Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.fitted(terminal_width()).join("\n"))
    }
}

#[cfg(test)]
#[path = "../../../tests/harness/unit/table.rs"]
mod tests;
