//! The sets of a cache as a picture of characters.

use std::fmt::Write as _;
use warmlane::mem::plan::Spread;
use warmlane_lab::plot;

/// Columns of a picture.
const COLUMNS: usize = 64;
/// Rows that a full set is high.
const ROWS: usize = 4;
/// Eighths of a row, from below.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Bars as high as their sets are full, on average where several sets share a column; crosses above those that lose
/// lines.
pub(super) fn draw(text: &mut String, spread: &Spread) -> std::fmt::Result {
    let shape = spread.shape;
    let columns = plot::columns(spread, COLUMNS);
    let bytes = shape.lines() * shape.line;
    write!(text, "L{}: {} KiB, {} sets of {} ways", shape.level, bytes / 1024, shape.sets, shape.ways)?;
    if shape.sets > COLUMNS {
        write!(text, "; a column is the mean of {}", shape.sets.div_ceil(COLUMNS))?;
    }
    writeln!(text)?;
    if spread.lost > 0 {
        let crosses: String =
            columns.iter().map(|column| if column.lost > 0.0 { '×' } else { ' ' }).collect();
        let lines: u32 = spread.histogram.iter().sum();
        writeln!(text, "  lost ┤{} {} of {lines} hot lines", crosses, spread.lost)?;
    }
    for row in (0..ROWS).rev() {
        let bars: String = columns.iter().map(|column| part(column.held / shape.ways as f64, row)).collect();
        let label = match row {
            row if row + 1 == ROWS => format!("{:>6} ┤", shape.ways),
            _ => format!("{:>6} │", ""),
        };
        writeln!(text, "{label}{}", bars.trim_end())?;
    }
    writeln!(text, "{:>6} └{}", 0, "─".repeat(COLUMNS))?;
    let last = shape.sets.saturating_sub(1).to_string();
    writeln!(text, "        set 0{last:>width$}", width = COLUMNS - "set 0".len())
}

/// What a bar of this height, 0 to 1, shows in this row, counted from below.
fn part(height: f64, row: usize) -> char {
    // The least height that is not zero shows as one eighth.
    let eighths =
        (1..=ROWS * 8).take_while(|eighth| height * (ROWS * 8) as f64 > (*eighth - 1) as f64).count();
    EIGHTHS[eighths.saturating_sub(row * 8).min(8)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane::mem::plan::CacheShape;

    fn picture(shape: CacheShape, stride: usize) -> String {
        let mut text = String::new();
        draw(&mut text, &Spread::of(shape, stride, 64)).unwrap();
        text
    }

    #[test]
    fn a_good_stride_fills_the_picture() {
        let text = picture(CacheShape { level: 1, sets: 64, ways: 8, line: 64 }, 2_240);
        assert!(text.contains(&"█".repeat(COLUMNS)), "{text}");
        assert!(!text.contains("lost"), "{text}");
    }

    #[test]
    fn crosses_stand_above_the_sets_that_overflow() {
        // Headers fall into sets 0 and 32, data right behind them.
        let text = picture(CacheShape { level: 1, sets: 64, ways: 8, line: 64 }, 2_048);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "L1: 32 KiB, 64 sets of 8 ways");
        assert_eq!(lines[1], format!("  lost ┤××{:30}××{:30} 480 of 512 hot lines", "", ""));
        assert_eq!(lines[2], format!("     8 ┤██{:30}██", ""));
    }

    #[test]
    fn folded_sets_show_how_little_is_held() {
        // 2 of every 32 sets: a sixteenth of each column, two of its 32 eighths.
        let text = picture(CacheShape { level: 2, sets: 2_048, ways: 8, line: 64 }, 2_048);
        assert!(text.contains(&"▂".repeat(COLUMNS)) && text.contains(&"×".repeat(COLUMNS)), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(
            text.starts_with("L2: 1024 KiB, 2048 sets of 8 ways; a column is the mean of 32\n"),
            "{text}"
        );
        assert!(text.trim_end().ends_with("2047"), "{text}");
    }
}
