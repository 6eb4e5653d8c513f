//! Tables for people, as wide as the terminal at most.

use std::fmt::{self, Display};

use rustix::stdio::stdout;
use rustix::termios::tcgetwinsize;

/// A table without lines. Cells break at spaces, headings also after hyphens. Columns that find no room side by side
/// follow below, beside the first column again.
pub(crate) struct Table {
    columns: Vec<Column>,
}

/// A heading and the cells below.
struct Column {
    heading: String,
    /// Numbers stand to the right.
    right: bool,
    cells: Vec<String>,
}

/// Characters a line where nobody says how many there are.
const USUAL_WIDTH: usize = 80;

/// Spaces between columns: as many as there is room for.
const GAPS: [usize; 2] = [2, 1];

impl Table {
    /// A table with numbers in the columns `right`.
    pub(crate) fn new<H: Into<String>>(
        headings: impl IntoIterator<Item = H>,
        right: impl IntoIterator<Item = usize>,
    ) -> Self {
        let column = |heading: H| Column { heading: heading.into(), right: false, cells: Vec::new() };
        let mut columns: Vec<Column> = headings.into_iter().map(column).collect();
        for column in right {
            columns[column].right = true;
        }
        Self { columns }
    }

    /// A row has a cell for every column.
    pub(crate) fn add_row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.cells.push(cell.into());
        }
    }

    /// The lines of the table in a terminal with so many characters a line.
    fn fitted(&self, width: usize) -> Vec<String> {
        let gap = GAPS.into_iter().find(|gap| total(self.columns.iter().map(Column::least), *gap) <= width);
        let mut lines = Vec::new();
        for block in self.blocks(width, gap.unwrap_or(1)) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(lines_of(&block, width, gap.unwrap_or(1)));
        }
        lines
    }

    /// The columns that stand side by side. The first column leads every block.
    fn blocks(&self, width: usize, gap: usize) -> Vec<Vec<&Column>> {
        let Some((first, others)) = self.columns.split_first() else { return Vec::new() };
        let mut blocks = vec![vec![first]];
        for column in others {
            let fits = |block: &Vec<&Column>| {
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

impl Column {
    /// The width that breaks no word.
    fn least(&self) -> usize {
        let words = |text: &str, ends: &[char]| text.split_inclusive(ends).map(|word| length(word.trim_end())).max();
        let cells = self.cells.iter().filter_map(|cell| words(cell, &[' ']));
        cells.chain(words(&self.heading, HEADING_ENDS)).max().unwrap_or(0)
    }

    /// The width that breaks no line.
    fn most(&self) -> usize {
        self.cells.iter().chain([&self.heading]).map(|cell| length(cell)).max().unwrap_or(0)
    }
}

/// Where a line of a heading may end.
const HEADING_ENDS: &[char] = &[' ', '-'];

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Of columns of these widths.
fn total(widths: impl Iterator<Item = usize>, gap: usize) -> usize {
    widths.map(|width| width + gap).sum::<usize>().saturating_sub(gap)
}

/// The lines of columns that stand side by side.
fn lines_of(block: &[&Column], width: usize, gap: usize) -> Vec<String> {
    // The widest columns give way first.
    let widths = |most: usize| block.iter().map(move |column| column.most().min(most).max(column.least()));
    let most = (0..=width).rev().find(|most| total(widths(*most), gap) <= width).unwrap_or(0);
    let widths: Vec<usize> = widths(most).collect();
    let row = |cells: Vec<Vec<String>>, bottom: bool| {
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |number: usize| {
            let mut line = String::new();
            for ((cell, column), width) in cells.iter().zip(block).zip(&widths) {
                // Headings stand on their columns.
                let above = if bottom { height - cell.len() } else { 0 };
                let text = number.checked_sub(above).and_then(|number| cell.get(number)).map_or("", String::as_str);
                let fill = " ".repeat(width.saturating_sub(length(text)));
                let [before, after] = if column.right { [fill.as_str(), ""] } else { ["", fill.as_str()] };
                line.extend([before, text, after, &" ".repeat(gap)]);
            }
            line.trim_end().to_owned()
        };
        (0..height).map(line).collect::<Vec<_>>()
    };
    let headings = block.iter().zip(&widths).map(|(column, width)| broken(&column.heading, *width, HEADING_ENDS));
    let mut lines = row(headings.collect(), true);
    for number in 0..block.iter().map(|column| column.cells.len()).max().unwrap_or(0) {
        let cell = |column: &Column| column.cells.get(number).cloned().unwrap_or_default();
        let cells = block.iter().zip(&widths).map(|(column, width)| broken(&cell(column), *width, &[' ']));
        lines.extend(row(cells.collect(), false));
    }
    lines
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

/// Characters a line: of the terminal that standard output is, else what COLUMNS says.
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
#[path = "../../../tests/cli/unit/table.rs"]
mod tests;
