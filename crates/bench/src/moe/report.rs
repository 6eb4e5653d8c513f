//! The rows of a comparison of experts: one for each number of tokens, mode and method.

use std::collections::BTreeMap;

use serde::Serialize;

use super::MoeRace;
use super::candidate::{BOTH, COMBINE, DISPATCH, named};
use super::oracle::MoeOracle;
use super::peer::order_of;
use super::rank::MoeNotes;
use crate::pace::Pace;
use crate::plot::{FASTER, HIGHER, Panel, Points};
use crate::race::{Combined, Race, RaceRank, of_tokens};
use crate::report::RaceReport;
use harness::columns::Column;
use harness::comparison::turns::Mode;
use harness::experts::{ExpertShape, RowOrder, RowWire};
use harness::failure::CommandFailure;
use harness::statistics::{busbw_gbps, ratio};

/// A number of each phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Phases {
    dispatch: f64,
    combine: f64,
    both: f64,
}

impl Phases {
    /// The values of a method.
    fn of(method: &str, values: &BTreeMap<String, f64>) -> Self {
        let of = |phase| values.get(&named(method, phase)).copied().unwrap_or_default();
        Self { dispatch: of(DISPATCH), combine: of(COMBINE), both: of(BOTH) }
    }

    /// The time of the best peer divided by ours.
    fn ratio(ours: Self, peers: &[Self]) -> Option<Self> {
        let of = |phase: fn(&Self) -> f64| ratio(phase(&ours), &peers.iter().map(phase).collect::<Vec<_>>());
        Some(Self { dispatch: of(|at| at.dispatch)?, combine: of(|at| at.combine)?, both: of(|at| at.both)? })
    }

    /// The bandwidths of a dispatch of `there` bytes, and of a combine of `back` bytes.
    fn gbps([there, back]: [u64; 2], time_us: Self) -> Self {
        Self {
            dispatch: busbw_gbps(there, 1.0, time_us.dispatch),
            combine: busbw_gbps(back, 1.0, time_us.combine),
            both: busbw_gbps(there + back, 1.0, time_us.both),
        }
    }
}

/// One number of tokens in one mode by one method.
#[derive(Debug, Serialize)]
pub(crate) struct MethodRow {
    tokens: usize,
    mode: Mode,
    layout: RowOrder,
    /// Our method, or a peer.
    method: &'static str,
    /// The method that the library uses for our candidate.
    serves: Option<String>,
    operations: u32,
    time_us: Phases,
    /// The host's time for one operation; for a graph, an equal share of the launch.
    host_us: Phases,
    /// Counts the bytes of a row for each pair of a token and an expert.
    logical_gbps: Phases,
    /// Counts the bytes that the busiest rank sends to or gets from others.
    link_gbps: Phases,
    /// The best peer's time divided by ours.
    ratio: Option<Phases>,
    wrong: u64,
}

/// The layer of experts.
#[derive(Debug, Serialize)]
pub(crate) struct MoeSettings {
    shape: ExpertShape,
    wire: RowWire,
    routing: String,
}

/// The settings of one number of tokens.
struct TokenSettings {
    tokens: usize,
    layout: RowOrder,
    /// Bytes of a dispatch and of a combine.
    logical_bytes: [u64; 2],
    link_bytes: [u64; 2],
}

impl TokenSettings {
    fn new(race: &MoeRace, tokens: usize) -> Self {
        let (layout, routes) = (race.layout(tokens), race.routes(tokens));
        let oracle = MoeOracle::new(race.shape, layout, &routes);
        let row_bytes = [race.wire.row_bytes(race.shape.hidden), 2 * race.shape.hidden];
        let of_rank = |ids: &Vec<i32>| ids.iter().filter(|id| **id >= 0).count();
        let pairs = routes.ids.iter().map(of_rank).max().unwrap_or(0);
        // In and out of each rank, except to itself.
        let mut rows = vec![[0; 2]; race.pace.ranks];
        for to in 0..race.pace.ranks {
            for source in oracle.coming(to).map(|pairs| pairs[0].source).filter(|source| *source != to) {
                rows[to][0] += 1;
                rows[source][1] += 1;
            }
        }
        let busiest = rows.into_iter().flatten().max().unwrap_or(0);
        Self {
            tokens,
            layout,
            logical_bytes: row_bytes.map(|bytes| (pairs * bytes) as u64),
            link_bytes: row_bytes.map(|bytes| (busiest * bytes) as u64),
        }
    }
}

impl Race for MoeRace {
    const NAME: &'static str = "experts race";
    type Notes = MoeNotes;
    type Settings = MoeSettings;
    type Row = MethodRow;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    fn settings(&self) -> MoeSettings {
        MoeSettings { shape: self.shape, wire: self.wire, routing: self.traffic.name().to_owned() }
    }

    fn about(&self) -> String {
        let Self { shape, wire, traffic, .. } = self;
        format!("experts {shape}, rows as {}, {} routing", wire.name(), traffic.name())
    }

    /// The regions of all experts: a graph that was dropped keeps the regions of its experts for some time.
    fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// Each method has rows of its own.
    fn candidates(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn sizes(&self) -> Vec<String> {
        of_tokens(&self.tokens)
    }

    fn measure(&self, bench: &mut RaceRank<'_, '_, MoeNotes>) -> Result<(), CommandFailure> {
        self.measure_all(bench)
    }

    /// A row for each method.
    fn rows(&self, size: usize, combined: Combined<MoeNotes>) -> Vec<MethodRow> {
        let (methods, size, own) = (self.methods(), TokenSettings::new(self, self.tokens[size]), self.methods.len());
        let times: Vec<Phases> = methods.iter().map(|method| Phases::of(method, &combined.time_us)).collect();
        let wrong = |phase, method| combined.wrong.get(&named(method, phase)).copied().unwrap_or_default();
        let row = |(number, method): (usize, &&'static str)| MethodRow {
            tokens: size.tokens,
            mode: combined.mode,
            layout: if number < own { size.layout } else { order_of(size.layout) },
            method,
            serves: combined.notes.get(number).cloned(),
            operations: combined.operations,
            time_us: times[number],
            host_us: Phases::of(method, &combined.host_us),
            logical_gbps: Phases::gbps(size.logical_bytes, times[number]),
            link_gbps: Phases::gbps(size.link_bytes, times[number]),
            ratio: Phases::ratio(times[number], &times[own..]).filter(|_| number < own),
            wrong: [DISPATCH, COMBINE, BOTH].iter().map(|phase| wrong(phase, method)).sum(),
        };
        methods.iter().enumerate().map(row).collect()
    }

    fn columns(&self) -> Vec<Column<MethodRow>> {
        let method = |row: &MethodRow| match &row.serves {
            Some(serves) if *serves != row.method => format!("{} ({serves})", row.method),
            _ => row.method.to_owned(),
        };
        vec![
            Column::count("tokens", |row: &MethodRow| row.tokens as u64),
            Column::text("mode", |row: &MethodRow| row.mode.name().to_owned()),
            Column::text("layout", |row: &MethodRow| row.layout.name().to_owned()),
            Column::text("method", method),
            Column::number("dispatch us", 2, |row: &MethodRow| Some(row.time_us.dispatch)),
            Column::number("combine us", 2, |row: &MethodRow| Some(row.time_us.combine)),
            Column::number("both us", 2, |row: &MethodRow| Some(row.time_us.both)),
            Column::number("logical GB/s", 2, |row: &MethodRow| Some(row.logical_gbps.both)),
            Column::number("link GB/s", 2, |row: &MethodRow| Some(row.link_gbps.both)),
            Column::number("ratio", 2, |row: &MethodRow| row.ratio.map(|ratio| ratio.both)),
            Column::count("wrong", |row: &MethodRow| row.wrong),
        ]
    }

    /// Times, and bandwidth over links.
    fn panels(report: &RaceReport<MoeSettings, MethodRow>) -> Option<[Panel; 2]> {
        let MoeSettings { shape, wire, .. } = &report.settings;
        let panel = |title: String, unit, curves| Panel {
            title,
            over: "tokens of a rank",
            label: |tokens| format!("{tokens}"),
            unit,
            curves,
            levels: Vec::new(),
        };
        let times = [
            curves(&report.rows, DISPATCH, |row| row.time_us.dispatch),
            curves(&report.rows, COMBINE, |row| row.time_us.combine),
            curves(&report.rows, BOTH, |row| row.time_us.both),
        ];
        let (ranks, device) = (report.ran.ranks, report.ran.device);
        let title = format!("experts {shape}, rows as {}, {ranks} ranks on {device}: time", wire.name());
        let links = curves(&report.rows, BOTH, |row| row.link_gbps.both);
        Some([panel(title, FASTER, times.concat()), panel("bandwidth over links".to_owned(), HIGHER, links)])
    }
}

/// A curve for each method in each mode.
fn curves(rows: &[MethodRow], phase: &str, value: fn(&MethodRow) -> f64) -> Vec<(String, Points)> {
    let mut curves: Vec<(String, Points)> = Vec::new();
    for row in rows.iter().filter(|row| value(row) > 0.0) {
        let suffix = if row.mode == Mode::Eager { ", eager" } else { "" };
        let name = named(row.method, &format!("{phase}{suffix}"));
        let point = (row.tokens as f64, value(row));
        match curves.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => curves.push((name, vec![point])),
        }
    }
    curves
}
