//! Pictures, as SVG.

mod figure;
mod histogram;

pub use figure::{Axis, Figure, Marks, Scale, Series, figures};
pub use histogram::{Column, columns, set_histogram};

use plotters::prelude::*;

/// A picture that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be drawn: {reason}")]
pub struct PlotError {
    reason: String,
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self { reason: error.to_string() }
    }
}

const WIDTH: u32 = 960;
const FONT: &str = "sans-serif";
/// Told apart with any kind of colour vision (Okabe and Ito, "Color Universal Design", 2008): blue, vermilion, bluish
/// green, orange, reddish purple, sky blue, black.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
