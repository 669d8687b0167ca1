//! Pictures, as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use warmlane_mem::plan::Plan;

/// A picture that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot cannot be drawn: {reason}")]
pub struct PlotError {
    reason: String,
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self { reason: error.to_string() }
    }
}

/// Columns in a histogram: more sets than this are drawn as groups of neighbours.
const COLUMNS: usize = 256;

/// How the hot lines of a pool lie in the sets of each cache: one histogram a cache, above each other.
///
/// # Errors
/// [`PlotError`].
pub fn set_histogram(plan: &Plan) -> Result<String, PlotError> {
    let mut text = String::new();
    {
        let charts = plan.spreads.len().max(1);
        let area = SVGBackend::with_string(&mut text, (900, 300 * charts as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        let parts = area.split_evenly((charts, 1));
        for (spread, part) in plan.spreads.iter().zip(&parts) {
            draw_spread(part, plan, spread)?;
        }
        area.present()?;
    }
    Ok(text)
}

fn draw_spread<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    plan: &Plan,
    spread: &warmlane_mem::plan::Spread,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let shape = spread.shape;
    let group = shape.sets.div_ceil(COLUMNS);
    let columns: Vec<f64> = spread
        .histogram
        .chunks(group)
        .map(|sets| sets.iter().map(|&lines| f64::from(lines)).sum::<f64>() / sets.len() as f64)
        .collect();
    let ways = shape.ways as f64;
    let top = columns.iter().copied().fold(ways, f64::max) * 1.15;
    let title = format!(
        "Level {}: {} sets of {} ways, stride {} bytes: {:.0} % of the hot lines find a place",
        shape.level,
        shape.sets,
        shape.ways,
        plan.stride,
        spread.kept() * 100.0
    );
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(45)
        .build_cartesian_2d(0..shape.sets, 0.0..top)?;
    chart.configure_mesh().disable_x_mesh().x_desc("set").y_desc("hot lines per set").draw()?;
    let held = RGBColor(31, 119, 180);
    let lost = RGBColor(214, 39, 40);
    chart.draw_series(columns.iter().enumerate().flat_map(|(column, &lines)| {
        let (left, right) = (column * group, (column + 1) * group);
        [
            Rectangle::new([(left, 0.0), (right, lines.min(ways))], held.filled()),
            Rectangle::new([(left, ways), (right, lines.max(ways))], lost.filled()),
        ]
    }))?;
    chart.draw_series(LineSeries::new([(0, ways), (shape.sets, ways)], BLACK.stroke_width(1)))?;
    Ok(())
}
