//! How the lines of a pool lie in the sets of the caches.

use super::{COLOURS, FONT, PlotError, WIDTH};
use plotters::coord::Shift;
use plotters::prelude::*;
use warmlane_mem::plan::{Plan, Spread};

/// Columns in a picture: more sets than this are drawn as groups of neighbours.
const COLUMNS: usize = 256;
const CHART_HEIGHT: u32 = 320;
const KEY_WIDTH: u32 = 170;
const HELD: RGBColor = COLOURS[0];
const LOST: RGBColor = COLOURS[1];

/// One column of a histogram: what some neighbouring sets hold on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Hot lines that have a way in their set, per set.
    pub held: f64,
    /// Hot lines that find none, per set.
    pub lost: f64,
}

/// The sets of a cache folded into `count` columns of neighbours (or, with fewer sets, spread over as many).
///
/// Lines are counted set by set before they are averaged: two full sets beside thirty empty ones are a column that
/// holds little and loses the rest, not one that is evenly filled.
pub fn columns(spread: &Spread, count: usize) -> Vec<Column> {
    let sets = spread.histogram.len();
    let ways = spread.shape.ways as f64;
    (0..count)
        .map(|column| {
            let first = column * sets / count;
            let end = ((column + 1) * sets / count).max(first + 1).min(sets);
            let group = spread.histogram.get(first..end).unwrap_or_default();
            let mean = |part: fn(f64, f64) -> f64| {
                let sum: f64 = group.iter().map(|&lines| part(f64::from(lines), ways)).sum();
                sum / group.len().max(1) as f64
            };
            Column { held: mean(f64::min), lost: mean(|lines, ways| (lines - ways).max(0.0)) }
        })
        .collect()
}

/// How the hot lines of a pool lie in the sets of each cache: one histogram a cache, below each other.
///
/// # Errors
/// [`PlotError`].
pub fn set_histogram(plan: &Plan) -> Result<String, PlotError> {
    let mut text = String::new();
    {
        let charts = plan.spreads.len().max(1);
        let area =
            SVGBackend::with_string(&mut text, (WIDTH, CHART_HEIGHT * charts as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        if plan.spreads.is_empty() {
            let note = format!("Stride {} bytes; no cache is known.", plan.stride);
            area.draw(&Text::new(note, (20, 20), (FONT, 16)))?;
        }
        for (spread, part) in plan.spreads.iter().zip(&area.split_evenly((charts, 1))) {
            draw_spread(part, plan, spread)?;
        }
        area.present()?;
    }
    Ok(text)
}

fn draw_spread<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    plan: &Plan,
    spread: &Spread,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let shape = spread.shape;
    let count = shape.sets.clamp(1, COLUMNS);
    let columns = columns(spread, count);
    let ways = shape.ways as f64;
    let top = columns.iter().map(|column| column.held + column.lost).fold(ways, f64::max) * 1.1;
    let padding = plan.padding.map_or_else(String::new, |padding| {
        format!(" and {} more after every {}", padding.bytes, 1_u64 << padding.every_log2)
    });
    let title = format!(
        "L{}, buffers {} bytes apart{padding}: {:.0} % of the hot lines find a place, {} of {} sets stay unused",
        shape.level,
        plan.stride,
        spread.kept() * 100.0,
        spread.unused_sets(),
        shape.sets,
    );
    // The key is beside the bars: between them it would hide some.
    let (picture, margin) = area.split_horizontally(WIDTH - KEY_WIDTH);
    let mut chart = ChartBuilder::on(&picture)
        .caption(title, (FONT, 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..shape.sets as f64, 0.0..top)?;
    let group = shape.sets.div_ceil(count);
    let sets = if group > 1 { format!("set (a bar is the mean of {group})") } else { "set".to_owned() };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc(sets)
        .y_desc("hot lines per set")
        .x_labels(9)
        .y_labels(6)
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .draw()?;
    let edge = |column: usize| column as f64 * shape.sets as f64 / count as f64;
    for (number, column) in columns.iter().enumerate() {
        let bar = |from: f64, to: f64, colour: RGBColor| {
            Rectangle::new([(edge(number), from), (edge(number + 1), to)], colour.filled())
        };
        let total = column.held + column.lost;
        let parts = [(0.0, column.held, HELD), (column.held, total, LOST)];
        for (from, to, colour) in parts.into_iter().filter(|(from, to, _)| to > from) {
            chart.plotting_area().draw(&bar(from, to, colour))?;
        }
    }
    chart.draw_series(LineSeries::new([(0.0, ways), (shape.sets as f64, ways)], BLACK.stroke_width(1)))?;
    draw_key(&margin, shape.ways, spread.lost > 0)
}

/// Only whole numbers of sets and lines are worth a label.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is the chart's")]
fn whole(value: &f64) -> String {
    if (value - value.round()).abs() < 1e-6 { format!("{value:.0}") } else { String::new() }
}

fn draw_key<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    ways: usize,
    lost: bool,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let mut y = 60;
    let mut entry = |colour: RGBColor, height: i32, label: &str| {
        area.draw(&Rectangle::new([(4, y - height / 2), (18, y + (height + 1) / 2)], colour.filled()))?;
        area.draw(&Text::new(label.to_owned(), (26, y - 6), (FONT, 13)))?;
        y += 24;
        Ok::<(), DrawingAreaErrorKind<B::ErrorType>>(())
    };
    entry(HELD, 12, "held")?;
    if lost {
        entry(LOST, 12, "lost: no way left")?;
    }
    entry(BLACK, 1, &format!("ways of a set: {ways}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::plan::CacheShape;

    const L1: CacheShape = CacheShape { level: 1, sets: 64, ways: 8, line: 64 };
    const L2: CacheShape = CacheShape { level: 2, sets: 2_048, ways: 8, line: 64 };

    #[test]
    fn folded_columns_don_t_hide_what_is_lost() {
        // Headers and data fall into 2 of every 32 sets of L2.
        let spread = Spread::of(L2, 2_048, 64);
        let columns = columns(&spread, 64);
        assert_eq!(columns[0], Column { held: 0.5, lost: 7.5 });
        let held: f64 = columns.iter().map(|column| column.held).sum();
        let lines = held * L2.sets as f64 / 64.0;
        assert!((lines - spread.kept() * L2.lines() as f64).abs() < 1e-6, "{lines}");
    }

    #[test]
    fn few_sets_are_spread_over_the_columns() {
        let four = CacheShape { level: 1, sets: 4, ways: 4, line: 64 };
        let columns = columns(&Spread::of(four, 128, 0), 8);
        let held: Vec<f64> = columns.iter().map(|column| column.held).collect();
        assert_eq!(held, [4.0, 4.0, 0.0, 0.0, 4.0, 4.0, 0.0, 0.0]);
        assert!((columns[0].lost - 4.0).abs() < 1e-9);
    }

    #[test]
    fn the_picture_shows_each_cache_and_its_losses() {
        let bad = set_histogram(&Plan::with_stride(2_048, 0, 2_048, &[L1, L2])).unwrap();
        assert!(bad.starts_with("<svg") && bad.trim_end().ends_with("</svg>"));
        assert!(bad.contains("L1, buffers 2048 bytes apart") && bad.contains("L2, buffers 2048 bytes apart"));
        assert!(bad.contains("lost: no way left"));
        let good = set_histogram(&Plan::with_stride(2_240, 128, 2_240, &[L1])).unwrap();
        assert!(!good.contains("lost: no way left"));
        assert!(
            set_histogram(&Plan::with_stride(2_048, 0, 2_048, &[])).unwrap().contains("no cache is known")
        );
    }
}
