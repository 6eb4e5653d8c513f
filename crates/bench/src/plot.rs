//! Two panels, time and bandwidth over size, both axes logarithmic: a line for every candidate, and the floor. The
//! names of the lines are next to the panels, where they cover no line.

use std::path::Path;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use harness::failure::CommandFailure;
use harness::target;

/// Pages show a plot at about this width, so that texts keep their size.
const WIDTH: u32 = 1020;
/// Height of both panels.
const HEIGHT: u32 = 960;
/// Width of the names next to a panel. The longest name is that of a floor.
const LEGEND_WIDTH: u32 = 360;
/// Sizes of texts, in pixels.
const TITLE: u32 = 18;
const TEXT: u32 = 15;
/// Height of a line of names.
const LINE: i32 = 22;
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
    /// The meaning of sizes.
    pub(super) over: &'static str,
    /// A size in words.
    pub(super) label: fn(u64) -> String,
    /// The unit of the values, and which way is better.
    pub(super) unit: &'static str,
    pub(super) curves: Vec<(String, Points)>,
    /// Floors: a height, and its name.
    pub(super) levels: Vec<(String, f64)>,
}

/// The unit of times.
pub(super) const FASTER: &str = "us (lower is better)";
/// The unit of bandwidths.
pub(super) const HIGHER: &str = "GB/s (higher is better)";

/// Refuses a path where no plot can be written. Called before the work.
pub(super) fn check(path: &Path) -> Result<(), CommandFailure> {
    if path.extension().is_none_or(|extension| extension != "svg") {
        return Err(CommandFailure::usage(format!("--plot is `{}`, but it must end in .svg", path.display())));
    }
    target::check_written("--plot", path)
}

/// Writes the file.
pub(super) fn draw(panels: &[Panel; 2], path: &Path) -> Result<(), CommandFailure> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(cannot_draw)?;
        let halves = root.split_evenly((2, 1));
        for (area, panel) in halves.iter().zip(panels) {
            panel.draw(area)?;
        }
        root.present().map_err(cannot_draw)?;
    }
    std::fs::write(path, svg).map_err(CommandFailure::doing(format!("write {}", path.display())))
}

fn cannot_draw(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::failed(format!("cannot draw the plot: {error}"))
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Result<(), CommandFailure> {
        let points = || self.curves.iter().flat_map(|(_, points)| points.iter().copied());
        let heights = || points().map(|(_, y)| y).chain(self.levels.iter().map(|(_, y)| *y));
        let (left, right) = bounds(points().map(|(x, _)| x));
        let (low, high) = bounds(heights());
        let (plot, names) = area.split_horizontally(WIDTH - LEGEND_WIDTH);
        let text = (FONT, TEXT).into_font();
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, (FONT, TITLE))
            .margin(12)
            .x_label_area_size(52)
            .y_label_area_size(80)
            .build_cartesian_2d((left / 1.2..right * 1.2).log_scale().base(2.0), (low / 2.0..high * 2.0).log_scale())
            .map_err(cannot_draw)?;
        chart
            .configure_mesh()
            .x_desc(self.over)
            .y_desc(self.unit)
            .axis_desc_style(text.clone())
            .label_style(text.clone())
            .set_all_tick_mark_size(5)
            .x_labels(8)
            .y_labels(12)
            .x_label_formatter(&|x| (self.label)(x.round() as u64))
            .y_label_formatter(&|y| format!("{y}"))
            .light_line_style(WHITE.mix(0.0))
            .draw()
            .map_err(cannot_draw)?;
        let mut line = 0;
        let mut name = |words: String, style: ShapeStyle, dashed: bool| {
            line += 1;
            let (y, ends) = (30 + LINE * line, |y| [(0, y), (18, y)]);
            let drawn = match dashed {
                true => names.draw(&DashedPathElement::new(ends(y), DASH, GAP, style)),
                false => names.draw(&PathElement::new(ends(y), style)),
            };
            let text = Text::new(words, (24, y - TEXT as i32 / 2), text.clone());
            drawn.and_then(|()| names.draw(&text)).map_err(cannot_draw)
        };
        for (number, (words, points)) in self.curves.iter().enumerate() {
            let style = Palette99::pick(number).to_rgba().stroke_width(2);
            let line = LineSeries::new(points.iter().copied(), style).point_size(3);
            chart.draw_series(line).map_err(cannot_draw)?;
            name(words.clone(), style, false)?;
        }
        for (number, (words, height)) in self.levels.iter().enumerate() {
            let style = dark(Palette99::pick(self.curves.len() + number)).stroke_width(2);
            let line = DashedLineSeries::new([(left, *height), (right, *height)], DASH, GAP, style);
            chart.draw_series(line).map_err(cannot_draw)?;
            name(format!("floor: {words}"), style, true)?;
        }
        Ok(())
    }
}

/// A dark shade of a colour, so that floors are not mistaken for curves.
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
