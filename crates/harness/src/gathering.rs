//! Gathers the samples of all ranks by size. The rows of a size are printed once every rank has measured the size.

use indicatif::ProgressBar;
use serde::Serialize;

use crate::columns::{Column, table};
use crate::failure::CommandFailure;
use crate::live::Live;
use crate::output;

/// The samples of type `S` so far, and the rows of type `R` made from them.
pub struct Gathering<S, R> {
    ranks: usize,
    /// By size.
    samples: Vec<Vec<S>>,
    rows: Vec<R>,
    columns: Vec<Column<R>>,
    /// The table; `None` with --json, where each row is an object in a line of its own.
    live: Option<Live>,
    progress: ProgressBar,
}

impl<S, R: Serialize> Gathering<S, R> {
    pub fn new(ranks: usize, sizes: usize, columns: Vec<Column<R>>, json: bool) -> Result<Self, CommandFailure> {
        Ok(Self {
            ranks,
            samples: std::iter::repeat_with(Vec::new).take(sizes).collect(),
            rows: Vec::new(),
            columns,
            live: (!json).then(Live::new).transpose()?,
            progress: output::progress(sizes as u64),
        })
    }

    /// Adds the sample of a rank. `rows` makes the rows of the size from the samples of all ranks.
    ///
    /// # Errors
    /// A sample of an unknown size.
    pub fn add(
        &mut self,
        rank: usize,
        size: usize,
        sample: S,
        rows: impl FnOnce(&[S]) -> Vec<R>,
    ) -> Result<(), CommandFailure> {
        let samples = self.samples.get_mut(size);
        let samples =
            samples.ok_or_else(|| CommandFailure::failed(format!("rank {rank} measured an unknown size {size}")))?;
        samples.push(sample);
        if samples.len() < self.ranks {
            return Ok(());
        }
        let first = self.rows.len();
        self.rows.extend(rows(samples));
        self.progress.inc(1);
        let Self { rows, columns, live, progress, .. } = self;
        progress.suspend(|| match live {
            Some(live) => live.show(&table(columns, rows)),
            None => rows[first..].iter().try_for_each(output::json),
        })
    }

    /// Prints the rest of the table, and below it a line about all rows if there is one.
    pub fn finish(self, below: impl FnOnce(&[R]) -> Option<String>) -> Result<Vec<R>, CommandFailure> {
        self.progress.finish_and_clear();
        if let Some(live) = self.live {
            live.finish()?;
            below(&self.rows).map_or(Ok(()), output::line)?;
        }
        Ok(self.rows)
    }
}
