//! Lines, bars and heat maps with a title, axes and a key.

use super::{COLOURS, FONT, PlotError, WIDTH};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::{Deserialize, Deserializer, Serialize};

/// One picture.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Figure {
    /// Above it.
    pub title: String,
    /// Under it.
    pub x: Axis,
    /// At its left; with a heat map, too.
    pub y: Axis,
    /// What it shows.
    pub marks: Marks,
}

/// A direction of a picture.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Axis {
    /// What it shows, and in which unit.
    pub label: String,
    /// How values lie along it.
    pub scale: Scale,
}

impl Axis {
    /// Even steps are even differences.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear }
    }

    /// Even steps are even factors; values must be positive.
    pub fn logarithmic(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Logarithmic }
    }
}

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Scale {
    /// Even steps are even differences.
    Linear,
    /// Even steps are even factors.
    Logarithmic,
}

/// What a picture shows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Marks {
    /// Points joined by lines, one line a series.
    Lines(Vec<Series>),
    /// Groups of bars side by side.
    Bars {
        /// What is written under each group.
        groups: Vec<String>,
        /// Of each series, its name and its bar in each group; one that isn't finite isn't drawn.
        #[serde(deserialize_with = "gaps_in_series")]
        series: Vec<(String, Vec<f64>)>,
    },
    /// Coloured fields with their figures.
    HeatMap {
        /// What is written under each column.
        columns: Vec<String>,
        /// What is written beside each row, the lowest first.
        rows: Vec<String>,
        /// The fields, row by row; one that isn't finite stays empty.
        #[serde(deserialize_with = "gaps_in_rows")]
        values: Vec<Vec<f64>>,
    },
}

/// A line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Series {
    /// What the key says.
    pub name: String,
    /// Its points, from left to right; one that isn't finite isn't drawn.
    #[serde(deserialize_with = "gaps_in_points")]
    pub points: Vec<(f64, f64)>,
}

/// What is not finite is null in JSON.
fn gaps(values: Vec<Option<f64>>) -> Vec<f64> {
    values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect()
}

fn gaps_in_points<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(f64, f64)>, D::Error> {
    let points: Vec<(f64, Option<f64>)> = Deserialize::deserialize(deserializer)?;
    Ok(points.into_iter().map(|(x, y)| (x, y.unwrap_or(f64::NAN))).collect())
}

fn gaps_in_rows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<f64>>, D::Error> {
    let rows: Vec<Vec<Option<f64>>> = Deserialize::deserialize(deserializer)?;
    Ok(rows.into_iter().map(gaps).collect())
}

fn gaps_in_series<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Vec<f64>)>, D::Error> {
    let series: Vec<(String, Vec<Option<f64>>)> = Deserialize::deserialize(deserializer)?;
    Ok(series.into_iter().map(|(name, bars)| (name, gaps(bars))).collect())
}

const HEIGHT: u32 = 420;
const KEY_WIDTH: u32 = 220;
const GRID: RGBColor = RGBColor(225, 225, 225);

/// The error of drawing on `B`.
type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// Characters in a line of the caption, and its height.
const CAPTION_WIDTH: usize = 130;
const CAPTION_LINE: u32 = 18;

/// A text in lines of words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Draws figures below each other, under a caption if there is one.
///
/// # Errors
/// [`PlotError`].
pub fn figures(figures: &[Figure], caption: Option<&str>) -> Result<String, PlotError> {
    let mut text = String::new();
    {
        let count = figures.len().max(1);
        let lines = caption.map_or_else(Vec::new, |caption| wrapped(caption, CAPTION_WIDTH));
        let above = if lines.is_empty() { 0 } else { CAPTION_LINE * (lines.len() as u32 + 1) };
        let whole = SVGBackend::with_string(&mut text, (WIDTH, above + HEIGHT * count as u32));
        let whole = whole.into_drawing_area();
        whole.fill(&WHITE)?;
        let (head, area) = whole.split_vertically(above);
        for (line, y) in lines.into_iter().zip((CAPTION_LINE / 2..).step_by(CAPTION_LINE as usize)) {
            head.draw(&Text::new(line, (12, y.cast_signed()), (FONT, 14)))?;
        }
        for (figure, part) in figures.iter().zip(&area.split_evenly((count, 1))) {
            match &figure.marks {
                Marks::Lines(series) => draw_lines(part, figure, series)?,
                Marks::Bars { groups, series } => draw_bars(part, figure, groups, series)?,
                Marks::HeatMap { columns, rows, values } => draw_fields(part, figure, columns, rows, values)?,
            }
        }
        whole.present()?;
    }
    Ok(text)
}

/// Positions along an axis are linear: a logarithmic axis shows the logarithms, and its labels their values.
fn position(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Logarithmic => value.log2(),
    }
}

fn label(scale: Scale, position: f64) -> String {
    match scale {
        Scale::Linear => short(position),
        Scale::Logarithmic if (position - position.round()).abs() < 1e-6 => short(position.round().exp2()),
        // Between the powers of two nothing is worth a label.
        Scale::Logarithmic => String::new(),
    }
}

/// A number with about three digits, thousands as k and millions as M where that is exact enough.
fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if (size - size.round()).abs() < 1e-9 || size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// The ends of an axis that shows all values, with some margin; from zero where lengths are compared.
fn ends(scale: Scale, values: impl Iterator<Item = f64>, from_zero: bool) -> std::ops::Range<f64> {
    let (low, high) = values
        .map(|value| position(scale, value))
        .filter(|position| position.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), position| {
            (low.min(position), high.max(position))
        });
    if low > high {
        return 0.0..1.0;
    }
    match scale {
        Scale::Linear => {
            let low = if from_zero { low.min(0.0) } else { low };
            let margin = ((high - low) * 0.08).max(1e-9);
            low..high + margin
        }
        Scale::Logarithmic => low.floor()..high.ceil().max(low.floor() + 1.0),
    }
}

fn draw_lines<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    figure: &Figure,
    series: &[Series],
) -> Drawn<B> {
    let (picture, margin) = area.split_horizontally(WIDTH - KEY_WIDTH);
    let points = || series.iter().flat_map(|series| &series.points);
    let (x, y) = (figure.x.scale, figure.y.scale);
    let mut chart = ChartBuilder::on(&picture)
        .caption(&figure.title, (FONT, 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(60)
        .build_cartesian_2d(
            ends(x, points().map(|point| point.0), false),
            ends(y, points().map(|point| point.1), true),
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_desc(&figure.x.label)
        .y_desc(&figure.y.label)
        .x_label_formatter(&|position| label(x, *position))
        .y_label_formatter(&|position| label(y, *position))
        .x_labels(12)
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .draw()?;
    for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let points = series.points.iter().filter(|point| point.0.is_finite() && point.1.is_finite());
        let points: Vec<(f64, f64)> =
            points.map(|point| (position(x, point.0), position(y, point.1))).collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|&position| Circle::new(position, 3, colour.filled())))?;
    }
    draw_key(&margin, series.iter().map(|series| series.name.as_str()))
}

fn draw_bars<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    figure: &Figure,
    groups: &[String],
    series: &[(String, Vec<f64>)],
) -> Drawn<B> {
    let (picture, margin) = area.split_horizontally(WIDTH - KEY_WIDTH);
    let values = || series.iter().flat_map(|(_, values)| values.iter().copied());
    let y = figure.y.scale;
    let height = ends(y, values(), true);
    let foot = height.start;
    let mut chart = ChartBuilder::on(&picture)
        .caption(&figure.title, (FONT, 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(60)
        // The last segment is the range's end itself.
        .build_cartesian_2d((0..groups.len().saturating_sub(1)).into_segmented(), height.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_desc(&figure.x.label)
        .y_desc(&figure.y.label)
        .x_labels(groups.len().max(1))
        .x_label_formatter(&|group| match group {
            SegmentValue::CenterOf(group) => groups.get(*group).cloned().unwrap_or_default(),
            _ => String::new(),
        })
        .y_label_formatter(&|position| label(y, *position))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .draw()?;
    // Bars stand side by side inside their group, which needs finer steps than the axis has: in pixels.
    let plotting = chart.plotting_area();
    let (columns, rows) = plotting.get_pixel_range();
    let group_width = f64::from(columns.end - columns.start) / groups.len().max(1) as f64;
    let bar_width = group_width * 0.8 / series.len().max(1) as f64;
    let pixels = |position: f64| {
        let share = (position - foot) / (height.end - foot);
        rows.end - (share * f64::from(rows.end - rows.start)).round() as i32
    };
    let raw = picture.strip_coord_spec();
    let (left, top) = raw.get_base_pixel();
    for (number, ((_, values), colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        for (group, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
            let start =
                f64::from(columns.start) + group_width * (group as f64 + 0.1) + bar_width * number as f64;
            let corners = [
                (start.round() as i32 - left, pixels(position(y, *value)) - top),
                ((start + bar_width).round() as i32 - 1 - left, rows.end - top),
            ];
            raw.draw(&Rectangle::new(corners, colour.filled()))?;
            if series.len() * groups.len() <= 40 {
                let text = Text::new(short(*value), (corners[0].0, corners[0].1 - 14), (FONT, 11));
                raw.draw(&text)?;
            }
        }
    }
    draw_key(&margin, series.iter().map(|(name, _)| name.as_str()))
}

fn draw_fields<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    figure: &Figure,
    columns: &[String],
    rows: &[String],
    values: &[Vec<f64>],
) -> Drawn<B> {
    let name = |names: &[String], position: &SegmentValue<usize>| match position {
        SegmentValue::CenterOf(position) => names.get(*position).cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let mut chart = ChartBuilder::on(area)
        .caption(&figure.title, (FONT, 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(90)
        .build_cartesian_2d(
            (0..columns.len().max(1)).into_segmented(),
            (0..rows.len().max(1)).into_segmented(),
        )?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(&figure.x.label)
        .y_desc(&figure.y.label)
        .x_labels(columns.len().max(1))
        .y_labels(rows.len().max(1))
        .x_label_formatter(&|position| name(columns, position))
        .y_label_formatter(&|position| name(rows, position))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .draw()?;
    let all = || values.iter().flatten().copied();
    let range = ends(Scale::Linear, all(), false);
    let plotting = chart.plotting_area();
    let (across, down) = plotting.get_pixel_range();
    let raw = area.strip_coord_spec();
    let (left, top) = raw.get_base_pixel();
    let width = f64::from(across.end - across.start) / columns.len().max(1) as f64;
    let height = f64::from(down.end - down.start) / rows.len().max(1) as f64;
    for (row, values) in values.iter().enumerate() {
        for (column, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
            let x = (f64::from(across.start) + width * column as f64).round() as i32 - left;
            let y = (f64::from(down.end) - height * (row + 1) as f64).round() as i32 - top;
            let corners = [(x, y), (x + width.round() as i32 - 1, y + height.round() as i32 - 1)];
            let share = (value - range.start) / (range.end - range.start);
            raw.draw(&Rectangle::new(corners, heat(share).filled()))?;
            let ink = if share > 0.6 { WHITE } else { BLACK };
            let middle = (x + (width / 2.0) as i32 - 12, y + (height / 2.0) as i32 - 6);
            raw.draw(&Text::new(short(*value), middle, (FONT, 12).into_font().color(&ink)))?;
        }
    }
    Ok(())
}

/// From nearly white to dark blue: also without colours, darker is more.
fn heat(share: f64) -> RGBColor {
    #[expect(clippy::cast_sign_loss, reason = "it lies between 0 and 255")]
    let share = (share.clamp(0.0, 1.0) * 255.0).round() as u32;
    // Between two bytes lies a byte.
    let between = |light: u32, dark: u32| ((light * (255 - share) + dark * share) / 255) as u8;
    RGBColor(between(240, 0), between(246, 60), between(252, 125))
}

fn draw_key<'a, B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    names: impl Iterator<Item = &'a str>,
) -> Drawn<B> {
    for ((name, colour), y) in names.zip(COLOURS.iter().cycle()).zip((60..).step_by(24)) {
        area.draw(&Rectangle::new([(4, y - 6), (18, y + 6)], colour.filled()))?;
        area.draw(&Text::new(name.to_owned(), (26, y - 6), (FONT, 13)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(marks: Marks) -> Figure {
        Figure {
            title: "Pools".to_owned(),
            x: Axis::logarithmic("buffers"),
            y: Axis::linear("cycles per packet"),
            marks,
        }
    }

    #[test]
    fn every_kind_is_drawn_with_its_names() {
        let lines = Marks::Lines(vec![
            Series { name: "ring".to_owned(), points: vec![(1024.0, 3.0), (65_536.0, 9.0)] },
            Series { name: "depot".to_owned(), points: vec![(1024.0, 2.0), (65_536.0, f64::NAN)] },
        ]);
        let bars = Marks::Bars {
            groups: vec!["64 bytes".to_owned(), "1,520 bytes".to_owned()],
            series: vec![("ring".to_owned(), vec![3.0, 9.0]), ("depot".to_owned(), vec![f64::NAN, 4.0])],
        };
        let map = Marks::HeatMap {
            columns: vec!["4".to_owned(), "8".to_owned()],
            rows: vec!["64".to_owned()],
            values: vec![vec![1.5, f64::NAN]],
        };
        let text = figures(&[figure(lines), figure(bars), figure(map)], None).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for name in ["ring", "depot", "64 bytes", "1,520 bytes", "buffers", "cycles per packet", "1.50"] {
            assert!(text.contains(name), "{name}");
        }
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn no_values_are_an_empty_picture() {
        assert!(figures(&[figure(Marks::Lines(Vec::new()))], None).unwrap().contains("Pools"));
        assert!(figures(&[], Some("ring: reproduced")).unwrap().contains("</svg>"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 1.5, 12.34, 512.0, 65_536.0, 1e6].map(short),
            ["0", "1.50", "12.3", "512", "65.5 k", "1 M"]
        );
        assert_eq!(label(Scale::Logarithmic, 10.0), "1024");
        assert_eq!(label(Scale::Logarithmic, 10.5), "");
    }
}
