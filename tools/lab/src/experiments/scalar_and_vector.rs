//! What experiments show that do a thing one by one and with vector instructions.

use crate::plot::{Axis, Figure, Marks};
use crate::record::Findings;
use crate::table::{Cell, Column};
use crate::verdict::Answer;

/// How much more is done in the same time, in percent.
pub(super) fn gain(scalar: f64, vector: f64) -> f64 {
    100.0 * (scalar / vector - 1.0)
}

/// Findings of rows of a name, one figure more, and the cycles a packet one by one and with vectors; `title` and `x` are the
/// picture's.
pub(super) fn compared<More: Into<Cell> + Copy>(
    columns: &str,
    [title, x]: [&str; 2],
    rows: &[(&str, More, f64, f64)],
    answers: Vec<Answer>,
    conclusion: String,
) -> Findings {
    Findings {
        columns: Column::list(columns),
        rows: rows
            .iter()
            .map(|&(name, more, scalar, vector)| {
                vec![name.into(), more.into(), scalar.into(), vector.into(), gain(scalar, vector).into()]
            })
            .collect(),
        figures: vec![bars(title, x, rows.iter().map(|&(name, _, scalar, vector)| (name, scalar, vector)))],
        answers,
        conclusion,
    }
}

/// The cycles a packet of both ways side by side: rows of a name, one by one, vector.
fn bars<'a>(title: &str, x: &str, rows: impl Iterator<Item = (&'a str, f64, f64)>) -> Figure {
    let (mut groups, mut scalars, mut vectors) = (Vec::new(), Vec::new(), Vec::new());
    for (name, scalar, vector) in rows {
        groups.push(name.to_owned());
        scalars.push(scalar);
        vectors.push(vector);
    }
    Figure {
        title: title.to_owned(),
        x: Axis::linear(x),
        y: Axis::linear("cycles per packet"),
        marks: Marks::Bars {
            groups,
            series: vec![("one by one".to_owned(), scalars), ("vector".to_owned(), vectors)],
        },
    }
}
