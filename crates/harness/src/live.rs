//! Results that are printed as they come. Results that are not printed yet are printed when a signal ends the command.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::write;
use rustix::stdio::stdout;
use serde::Serialize;

use crate::failure::CommandFailure;
use crate::output;
use crate::signals::{Guard, guard};
use crate::table::{Table, TableLayout};

/// The output of a command whose results come one by one.
pub struct Live {
    /// Rows of the table that are printed, and how.
    printed: usize,
    layout: Option<TableLayout>,
    rest: Guard<PartialLine>,
}

/// The text that is not printed yet.
struct PartialLine(String);

impl Drop for PartialLine {
    /// Runs on the thread of a signal. Another thread may hold the lock of standard output, and a reader may read no more.
    fn drop(&mut self) {
        let mut text = self.0.as_bytes();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while !text.is_empty() && poll(&mut [PollFd::new(&stdout(), PollFlags::OUT)], Some(&now)) == Ok(1) {
            // A pipe with room takes this much at once.
            match write(stdout(), &text[..text.len().min(4096)]) {
                Ok(written) if written > 0 => text = &text[written..],
                _ => return,
            }
        }
    }
}

impl Live {
    pub fn new() -> Result<Self, CommandFailure> {
        let (rest, ()) = guard(|| Ok(PartialLine(String::new())), |_| ())?;
        Ok(Self { printed: 0, layout: None, rest })
    }

    /// Prints the rows of a table that are new. A table whose columns do not stand side by side waits for
    /// [`finish`](Self::finish).
    pub fn show(&mut self, table: &Table) -> Result<(), CommandFailure> {
        let Some(wanted) = table.layout() else {
            self.keep(table.after(self.printed).to_string() + "\n");
            return Ok(());
        };
        if table.rows() == self.printed {
            return Ok(());
        }
        let mut lines = Vec::new();
        let kept = self.layout.take().map(|kept| Some(kept).filter(|kept| table.holds(kept, self.printed)));
        let layout = match kept {
            Some(Some(kept)) => kept,
            before => {
                // Wider cells have come: the headings again, for the new widths.
                lines.extend(before.map(|_| String::new()));
                lines.extend(table.heading(&wanted));
                wanted
            }
        };
        lines.extend(table.lines_after(self.printed, &layout));
        (self.printed, self.layout) = (table.rows(), Some(layout));
        self.keep(String::new());
        output::line(lines.join("\n"))
    }

    /// Keeps an object that is printed only if a signal ends the command.
    pub fn keep_object(&mut self, object: &impl Serialize) -> Result<(), CommandFailure> {
        let text = serde_json::to_string(object).map_err(CommandFailure::doing("write JSON"))?;
        self.keep(text + "\n");
        Ok(())
    }

    fn keep(&mut self, text: String) {
        // No signal has come, or the command ends.
        let _ = self.rest.change(|rest| rest.0 = text);
    }

    /// Prints the rows that waited.
    pub fn finish(self) -> Result<(), CommandFailure> {
        let rest = self.rest.take(|mut rest| std::mem::take(&mut rest.0)).unwrap_or_default();
        match rest.trim_end_matches('\n') {
            "" => Ok(()),
            text => output::line(text),
        }
    }

    /// Forgets what waited: it is printed otherwise.
    pub fn forget(mut self) {
        self.keep(String::new());
    }
}
