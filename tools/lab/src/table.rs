//! Tables of results.

use serde::{Deserialize, Serialize};

/// A column of a table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Column {
    /// What it holds.
    pub name: String,
    /// In which unit; empty for names.
    pub unit: String,
}

impl Column {
    /// A column of names or plain counts.
    pub fn plain(name: &str) -> Self {
        Self { name: name.to_owned(), unit: String::new() }
    }

    /// Columns as a heading has them: names with their units in brackets, with bars between.
    pub fn list(heads: &str) -> Vec<Self> {
        let column = |head: &str| match head.strip_suffix(']').and_then(|head| head.split_once(" [")) {
            Some((name, unit)) => Self::figures(name, unit),
            None => Self::plain(head),
        };
        heads.split(" | ").map(column).collect()
    }

    /// A column of figures.
    pub fn figures(name: &str, unit: &str) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned() }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A name.
    Text(String),
    /// A whole number, such as a size.
    Count(u64),
    /// A figure.
    Figure(f64),
    /// Not measured here; the verdict says why.
    Missing,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => formatter.pad(text),
            Self::Count(count) => formatter.pad(&count.to_string()),
            Self::Figure(figure) => formatter.pad(&three_digits(*figure)),
            Self::Missing => formatter.pad("-"),
        }
    }
}

/// A figure with about three digits: more would be noise.
pub fn three_digits(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

/// What is not finite was not measured.
impl From<f64> for Cell {
    fn from(figure: f64) -> Self {
        if figure.is_finite() { Self::Figure(figure) } else { Self::Missing }
    }
}

impl From<Option<f64>> for Cell {
    fn from(figure: Option<f64>) -> Self {
        figure.map_or(Self::Missing, Self::from)
    }
}

impl Column {
    /// Its name and unit.
    pub fn head(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{} [{}]", self.name, self.unit) }
    }
}

/// Columns of text: names, which are read from the left, and figures, which are read from the right. Two spaces lie between.
#[derive(Clone, Debug)]
pub struct Columns {
    /// How wide each is, and whether it holds names.
    columns: Vec<(usize, bool)>,
}

impl Columns {
    /// Columns of these widths; `text` says which hold names.
    pub fn new(widths: Vec<usize>, text: impl Fn(usize) -> bool) -> Self {
        Self {
            columns: widths.into_iter().enumerate().map(|(column, width)| (width, text(column))).collect(),
        }
    }

    /// A line, without its end.
    pub fn line(&self, cells: &[String]) -> String {
        let padded = cells.iter().zip(&self.columns).map(|(cell, &(width, text))| {
            if text { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

/// Lines of text in columns that are as wide as they must be; `text` says which hold names.
pub fn aligned(lines: &[Vec<String>], text: impl Fn(usize) -> bool) -> String {
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let columns = Columns::new((0..count).map(width).collect(), text);
    lines.iter().map(|line| columns.line(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_as_headings_show_them() {
        let heads = "lanes | cost [cycles/element] | gain [%]";
        let columns = Column::list(heads);
        assert_eq!(columns.iter().map(Column::head).collect::<Vec<_>>().join(" | "), heads);
        assert_eq!((columns[0].unit.as_str(), columns[1].name.as_str()), ("", "cost"));
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let line = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let lines = [line(["way", "cycles", "note"]), line(["a long one", "7", ""])];
        assert_eq!(aligned(&lines, |column| column != 1), "way         cycles  note\na long one       7\n");
        assert_eq!(aligned(&[], |_| true), "");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.756, 8.25, 44.04, 590.4].map(three_digits), ["0.76", "8.25", "44.0", "590"]);
        assert_eq!(format!("{:>6}|{:<4}|", Cell::Figure(1.5), Cell::Missing), "  1.50|-   |");
    }

    #[test]
    fn cells_are_plain_json() {
        let cells: Vec<Cell> = vec!["ring".into(), 256_usize.into(), 1.5.into(), None.into()];
        assert_eq!(serde_json::to_string(&cells).unwrap(), r#"["ring",256,1.5,null]"#);
    }
}
