//! The calls of each rank over time, as a picture in SVG.

use std::fmt::Write;

use symmetra::observe::{Record, RecordedCall};

use super::merge::{Merged, call};

/// Sizes in pixels.
const WIDTH: f64 = 1080.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 30.0;
const ROW: f64 = 34.0;
const TITLE: f64 = 66.0;
const AXIS: f64 = 64.0;

/// Colours of operations, by the order in which they appear.
const COLOURS: [&str; 8] = ["#2f6db5", "#d9822b", "#3a9a5b", "#b5423f", "#7d5bb0", "#7f6a58", "#c65d97", "#6f7f1f"];

/// The most calls that are connected over the ranks.
const CONNECTED: usize = 24;

/// Room for the number of a call.
const LABEL: f64 = 44.0;

/// The time that a picture shows, in nanoseconds since 1970.
struct ShownTime {
    first_ns: u64,
    last_ns: u64,
}

impl ShownTime {
    fn of(records: &[Record]) -> Self {
        let times = || records.iter().flat_map(|record| record.calls.iter().map(|call| call.at_ns));
        let written = records.iter().map(|record| record.written_ns).max().unwrap_or(0);
        let last = times().max().unwrap_or(written);
        let first_ns = times().min().unwrap_or(written);
        // The files may be written long after the last call: the calls keep most of the width.
        let room = (last.saturating_sub(first_ns) / 4).max(1_000_000);
        Self { first_ns, last_ns: written.clamp(last, last.saturating_add(room)) }
    }

    fn x(&self, at_ns: u64) -> f64 {
        let length = self.last_ns.saturating_sub(self.first_ns).max(1);
        let part = at_ns.clamp(self.first_ns, self.last_ns).saturating_sub(self.first_ns) as f64 / length as f64;
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }
}

/// Draws groups, one below the other.
pub(super) fn draw<'a>(groups: impl Iterator<Item = (&'a [Record], &'a Merged)>) -> String {
    let (mut body, mut top) = (String::new(), 0.0);
    for (records, merged) in groups {
        // A string takes any text.
        let _ = group(&mut body, top, records, merged);
        top += TITLE + ROW * merged.world_size as f64 + AXIS;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn group(out: &mut String, top: f64, records: &[Record], merged: &Merged) -> std::fmt::Result {
    let span = ShownTime::of(records);
    writeln!(out, "<text x=\"12\" y=\"{}\" font-size=\"15\">{}</text>", top + 24.0, escaped(&merged.title()))?;
    let words = clipped(&merged.words, 165);
    writeln!(out, "<text x=\"12\" y=\"{}\" fill=\"#b5423f\">{}</text>", top + 44.0, escaped(&words))?;
    let row = |rank: usize| top + TITLE + ROW * (rank as f64 + 0.5);
    let mut operations: Vec<&str> = Vec::new();
    for rank in 0..merged.world_size {
        let culprit = if merged.culprits.contains(&rank) { "#b5423f" } else { "#222" };
        let y = row(rank);
        let record = records.iter().find(|record| record.rank == rank);
        let label = record.map_or_else(
            || format!("rank {rank}: no file"),
            |record| format!("rank {rank}: {} calls", record.enqueued),
        );
        writeln!(out, "<text x=\"12\" y=\"{}\" fill=\"{culprit}\">{label}</text>", y + 4.0)?;
        writeln!(out, "<path d=\"M{LEFT} {y}H{}\" stroke=\"#ddd\"/>", WIDTH - RIGHT)?;
        for (from, to) in blocks(record.map_or(&[], |record| &record.calls), &span) {
            let number = operations.iter().position(|known| *known == from.operation).unwrap_or_else(|| {
                operations.push(&from.operation);
                operations.len() - 1
            });
            let (x, width) = (span.x(from.at_ns), (span.x(to.at_ns) - span.x(from.at_ns)).max(2.0));
            let calls = match to.number - from.number {
                0 => from.number.to_string(),
                _ => format!("{} to {}", from.number, to.number),
            };
            writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"18\" fill=\"{}\"><title>{} {calls}: \
                 {}</title></rect>",
                y - 9.0,
                COLOURS[number % COLOURS.len()],
                escaped(&from.operation),
                escaped(&from.text),
            )?;
        }
    }
    connect(out, records, &span, row)?;
    mark(out, &span, records, merged, row)?;
    axis(out, &span, top + TITLE + ROW * merged.world_size as f64, &operations)
}

/// The first and the last call of each block: calls of one operation that share a pixel, or follow within two pixels.
fn blocks<'a>(calls: &'a [RecordedCall], span: &ShownTime) -> Vec<(&'a RecordedCall, &'a RecordedCall)> {
    let mut blocks: Vec<(&RecordedCall, &RecordedCall)> = Vec::new();
    for call in calls {
        match blocks.last_mut() {
            Some((first, last))
                if first.operation == call.operation && span.x(call.at_ns) - span.x(last.at_ns) <= 2.0 =>
            {
                *last = call;
            }
            _ => blocks.push((call, call)),
        }
    }
    blocks
}

/// Connects some calls over the ranks: a slanted line is a rank that made the call later.
fn connect(out: &mut String, records: &[Record], span: &ShownTime, row: impl Fn(usize) -> f64) -> std::fmt::Result {
    let Some(longest) = records.iter().max_by_key(|record| record.calls.len()) else { return Ok(()) };
    let step = longest.calls.len().div_ceil(CONNECTED).max(1);
    let mut free = WIDTH;
    for made in longest.calls.iter().rev().step_by(step) {
        let x = span.x(made.at_ns);
        if x + LABEL > free {
            continue;
        }
        free = x;
        let places = records.iter().filter_map(|record| Some((record.rank, call(record, made.number)?.at_ns)));
        let points: Vec<String> =
            places.map(|(rank, at_ns)| format!("{:.1},{:.1}", span.x(at_ns), row(rank))).collect();
        writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"#555\" opacity=\"0.6\"/>", points.join(" "))?;
        let (y, number) = (row(0) - 15.0, made.number);
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"10\" text-anchor=\"middle\">{number}</text>")?;
    }
    Ok(())
}

/// Marks the call in which ranks differ, and the end of the ranks that caused the failure.
fn mark(
    out: &mut String,
    span: &ShownTime,
    records: &[Record],
    merged: &Merged,
    row: impl Fn(usize) -> f64,
) -> std::fmt::Result {
    let differing = merged.difference.as_ref().map(|difference| difference.call);
    for record in records {
        let culprit = merged.culprits.contains(&record.rank);
        let made = match differing {
            Some(number) => call(record, number),
            None => record.calls.last().filter(|_| culprit),
        };
        let Some(made) = made else { continue };
        let (x, y) = (span.x(made.at_ns), row(record.rank));
        let colour = if culprit { "#b5423f" } else { "#222" };
        writeln!(out, "<path d=\"M{x:.1} {:.1}v28\" stroke=\"{colour}\" stroke-width=\"3\"/>", y - 14.0)?;
    }
    Ok(())
}

/// The axis of time, from the first call, and the colours of operations.
fn axis(out: &mut String, span: &ShownTime, y: f64, operations: &[&str]) -> std::fmt::Result {
    writeln!(out, "<path d=\"M{LEFT} {y}H{}\" stroke=\"#222\"/>", WIDTH - RIGHT)?;
    for part in 0..=5_u64 {
        let length = span.last_ns.saturating_sub(span.first_ns);
        let at_ns = span.first_ns.saturating_add(length / 5 * part);
        let (x, seconds) = (span.x(at_ns), (at_ns - span.first_ns) as f64 / 1e9);
        writeln!(out, "<path d=\"M{x:.1} {y}v5\" stroke=\"#222\"/>")?;
        writeln!(out, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{seconds:.3} s</text>", y + 18.0)?;
    }
    let mut x = LEFT;
    for (operation, colour) in operations.iter().zip(COLOURS.iter().cycle()) {
        writeln!(out, "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>", y + 30.0)?;
        writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", x + 17.0, y + 40.0, escaped(operation))?;
        x += 40.0 + 7.0 * operation.len() as f64;
    }
    Ok(())
}

/// The beginning of a text.
fn clipped(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Text in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
