//! The result of a comparison of experts: a row for each number of tokens, mode and candidate once every rank has run
//! it.

use serde::Serialize;

use super::MoeRace;
use super::oracle::Oracle;
use super::peer::order_of;
use super::rank::{Lap, Trial};
use crate::hearing::{Heard, Report, of_tokens};
use crate::plot::{FASTER, HIGHER, Panel, Points};
use harness::contest::turns::{Mode, SideLap};
use harness::experts::{Layout, Shape, Wire};
use harness::failure::Failure;
use harness::statistics::{busbw_gbps, median, ratio, slowest};
use harness::table::Table;

/// A number of each phase.
#[derive(Clone, Copy, Debug, Serialize)]
struct Phases {
    dispatch: f64,
    combine: f64,
    both: f64,
}

impl Phases {
    fn of(value: impl Fn(fn(&Trial) -> &SideLap) -> f64) -> Self {
        Self {
            dispatch: value(|trial| &trial.dispatch),
            combine: value(|trial| &trial.combine),
            both: value(|trial| &trial.both),
        }
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

/// One number of tokens in one mode by one candidate.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    tokens: usize,
    mode: Mode,
    layout: Layout,
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
pub(crate) struct Settings {
    shape: Shape,
    wire: Wire,
    routing: String,
}

/// The settings of one number of tokens.
struct Size {
    tokens: usize,
    layout: Layout,
    /// Bytes of a dispatch and of a combine.
    logical_bytes: [u64; 2],
    link_bytes: [u64; 2],
}

impl Size {
    fn new(race: &MoeRace, tokens: usize) -> Self {
        let (layout, routes) = (race.layout(tokens), race.routes(tokens));
        let oracle = Oracle::new(race.shape, layout, &routes);
        let row_bytes = [race.wire.row_bytes(race.shape.hidden), 2 * race.shape.hidden];
        let of_rank = |ids: &Vec<i32>| ids.iter().filter(|id| **id >= 0).count();
        let pairs = routes.ids.iter().map(of_rank).max().unwrap_or(0);
        // In and out of each rank, except to itself.
        let mut rows = vec![[0; 2]; race.ranks];
        for to in 0..race.ranks {
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

impl Heard for MoeRace {
    type Settings = Settings;
    type Row = Row;

    fn table(report: &Report<Settings, Row>) -> Table {
        report.for_people()
    }

    fn settings(&self) -> Settings {
        Settings { shape: self.shape, wire: self.wire, routing: self.traffic.name().to_owned() }
    }

    fn repeats(&self) -> (u64, u32) {
        (self.seed, self.launches.timed)
    }

    fn columns(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn sizes(&self) -> Vec<String> {
        of_tokens(&self.tokens)
    }

    fn modes(&self) -> usize {
        self.modes.len()
    }

    fn place(lap: &Lap) -> (usize, Mode) {
        (lap.size, lap.mode)
    }

    fn has_sides_of(&self, lap: &Lap) -> bool {
        lap.sides.len() == self.side_names().len()
    }

    /// A row for each candidate.
    fn rows(&self, size: usize, laps: Vec<Lap>) -> Vec<Row> {
        let (names, size) = (self.side_names(), Size::new(self, self.tokens[size]));
        let of_side = |side: usize, times: fn(&SideLap) -> &[f64]| {
            Phases::of(|phase| median(slowest(laps.iter().map(|lap| times(phase(&lap.sides[side]))))))
        };
        let own = self.methods.len();
        let times: Vec<Phases> = (0..names.len()).map(|side| of_side(side, |lap| &lap.times_us)).collect();
        let ratio = |side: usize| {
            let of = |phase: fn(&Phases) -> f64| {
                let peers: Vec<f64> = times[own..].iter().map(phase).collect();
                ratio(phase(&times[side]), &peers)
            };
            let [dispatch, combine, both] = [of(|at| at.dispatch)?, of(|at| at.combine)?, of(|at| at.both)?];
            (side < own).then_some(Phases { dispatch, combine, both })
        };
        let wrong = |side: usize| {
            let of_rank = |lap: &Lap| {
                let Trial { dispatch, combine, both } = &lap.sides[side];
                dispatch.wrong + combine.wrong + both.wrong
            };
            laps.iter().map(of_rank).sum()
        };
        let row = |(side, method): (usize, &&'static str)| Row {
            tokens: size.tokens,
            mode: laps[0].mode,
            layout: if side < own { size.layout } else { order_of(size.layout) },
            method,
            serves: laps[0].serves.get(side).cloned(),
            operations: laps[0].operations,
            time_us: times[side],
            host_us: of_side(side, |lap| &lap.host_us),
            logical_gbps: Phases::gbps(size.logical_bytes, times[side]),
            link_gbps: Phases::gbps(size.link_bytes, times[side]),
            ratio: ratio(side),
            wrong: wrong(side),
        };
        names.iter().enumerate().map(row).collect()
    }
}

impl Report<Settings, Row> {
    /// The table of the text output.
    fn for_people(&self) -> Table {
        let headings = [
            "tokens",
            "mode",
            "layout",
            "method",
            "dispatch us",
            "combine us",
            "both us",
            "logical GB/s",
            "link GB/s",
            "ratio",
            "wrong",
        ];
        let mut table = Table::new(headings, [0].into_iter().chain(4..headings.len()));
        for row in &self.rows {
            let method = match &row.serves {
                Some(serves) if *serves != row.method => format!("{} ({serves})", row.method),
                _ => row.method.to_owned(),
            };
            let Phases { dispatch, combine, both } = row.time_us;
            table.add_row([
                row.tokens.to_string(),
                row.mode.name().to_owned(),
                row.layout.name().to_owned(),
                method,
                format!("{dispatch:.2}"),
                format!("{combine:.2}"),
                format!("{both:.2}"),
                format!("{:.2}", row.logical_gbps.both),
                format!("{:.2}", row.link_gbps.both),
                row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.both)),
                row.wrong.to_string(),
            ]);
        }
        table
    }

    /// The plot: times, and bandwidth over links.
    pub(super) fn panels(&self) -> [Panel; 2] {
        let (Settings { shape, wire, .. }, (ranks, device)) = (&self.settings, self.place());
        let panel = |title: String, unit, curves| Panel {
            title,
            over: "tokens of a rank",
            label: |tokens| format!("{tokens}"),
            unit,
            curves,
            levels: Vec::new(),
        };
        let times = [
            self.curves("dispatch", |row| row.time_us.dispatch),
            self.curves("combine", |row| row.time_us.combine),
            self.curves("both", |row| row.time_us.both),
        ];
        let title = format!("experts {shape}, rows as {}, {ranks} ranks on {device}: time", wire.name());
        let links = self.curves("both", |row| row.link_gbps.both);
        [panel(title, FASTER, times.concat()), panel("bandwidth over links".to_owned(), HIGHER, links)]
    }

    /// A curve for each candidate in each mode.
    fn curves(&self, phase: &str, value: fn(&Row) -> f64) -> Vec<(String, Points)> {
        let mut curves: Vec<(String, Points)> = Vec::new();
        for row in self.rows.iter().filter(|row| value(row) > 0.0) {
            let suffix = if row.mode == Mode::Eager { ", eager" } else { "" };
            let name = format!("{}: {phase}{suffix}", row.method);
            let point = (row.tokens as f64, value(row));
            match curves.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => curves.push((name, vec![point])),
            }
        }
        curves
    }

    /// Fails if any element was wrong.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        match self.rows.iter().find(|row| row.wrong > 0) {
            None => Ok(()),
            Some(Row { tokens, method, wrong, .. }) => {
                let seed = self.seed;
                Err(Failure::failed(format!("{method}: {wrong} elements are wrong at {tokens} tokens (seed {seed})")))
            }
        }
    }
}
