//! Two panels, time and bandwidth over size, both axes logarithmic: a line for every side, and the floor.

use std::path::Path;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use crate::failure::Failure;
use crate::target;

const WIDTH: u32 = 1400;
const HEIGHT: u32 = 620;
const FONT: &str = "sans-serif";
/// Pixels of a floor's dashes and between them.
const DASH: u32 = 6;
const GAP: u32 = 4;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Size and value.
pub(super) type Points = Vec<(f64, f64)>;

/// One panel's content.
pub(super) struct Panel {
    pub(super) title: String,
    /// What sizes are.
    pub(super) over: &'static str,
    /// A size in words.
    pub(super) label: fn(u64) -> String,
    pub(super) unit: &'static str,
    pub(super) curves: Vec<(String, Points)>,
    /// Floors: a height, and what it is.
    pub(super) levels: Vec<(String, f64)>,
    /// The corner without curves.
    pub(super) legend: Corner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Corner {
    UpperLeft,
    LowerRight,
}

/// Refuses a path where no plot can be. To be called before the work.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    if path.extension().is_none_or(|extension| extension != "svg") {
        return Err(Failure::usage(format!("--plot is `{}`, but it must end in .svg", path.display())));
    }
    target::check_written("--plot", path)
}

/// Writes the file.
pub(super) fn draw(panels: &[Panel; 2], path: &Path) -> Result<(), Failure> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(cannot_draw)?;
        let halves = root.split_evenly((1, 2));
        for (area, panel) in halves.iter().zip(panels) {
            panel.draw(area)?;
        }
        root.present().map_err(cannot_draw)?;
    }
    std::fs::write(path, svg).map_err(Failure::doing(format!("write {}", path.display())))
}

fn cannot_draw(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot draw the plot: {error}"))
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let points = || self.curves.iter().flat_map(|(_, points)| points.iter().copied());
        let heights = || points().map(|(_, y)| y).chain(self.levels.iter().map(|(_, y)| *y));
        let (left, right) = bounds(points().map(|(x, _)| x));
        let (low, high) = bounds(heights());
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d((left / 1.2..right * 1.2).log_scale().base(2.0), (low / 2.0..high * 2.0).log_scale())
            .map_err(cannot_draw)?;
        chart
            .configure_mesh()
            .x_desc(self.over)
            .y_desc(self.unit)
            .x_label_formatter(&|x| (self.label)(x.round() as u64))
            .y_label_formatter(&|y| format!("{y}"))
            .light_line_style(WHITE.mix(0.0))
            .draw()
            .map_err(cannot_draw)?;
        for (number, (name, points)) in self.curves.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
            chart
                .draw_series(line)
                .map_err(cannot_draw)?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        for (number, (name, height)) in self.levels.iter().enumerate() {
            let style = dark(Palette99::pick(self.curves.len() + number)).stroke_width(2);
            let line = DashedLineSeries::new([(left, *height), (right, *height)], DASH, GAP, style);
            chart
                .draw_series(line)
                .map_err(cannot_draw)?
                .label(format!("floor: {name}"))
                .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 18, y)], DASH, GAP, style));
        }
        chart
            .configure_series_labels()
            .position(match self.legend {
                Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
                Corner::LowerRight => SeriesLabelPosition::LowerRight,
            })
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 13))
            .draw()
            .map_err(cannot_draw)
    }
}

/// A dark shade of a colour: floors are not taken for curves.
fn dark(color: impl Color) -> RGBColor {
    let (red, green, blue) = color.to_rgba().rgb();
    RGBColor(red / 5 * 2, green / 5 * 2, blue / 5 * 2)
}

/// The smallest and the largest of positive values.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
    if low > high { (1.0, 2.0) } else { (low, high) }
}
