//! What lookups cost as tables grow, ours beside the peers': comparisons that differ in a number at the end of their names.

use super::Comparison;
use crate::plot::{Axis, Figure, Marks, Series};
use std::collections::BTreeMap;

/// One figure, if there are such comparisons.
pub(super) fn figure(comparisons: &[Comparison]) -> Option<Figure> {
    let mut series: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for comparison in comparisons.iter().filter(|comparison| comparison.void.is_none()) {
        let Some((name, entries)) = of_size(&comparison.name) else { continue };
        series.entry((name, "ours")).or_default().push((entries, comparison.ours.median));
        if let Some(peer) = &comparison.peer {
            series.entry((name, "the best peer")).or_default().push((entries, peer.median));
        }
    }
    let lines = series.into_iter().map(|((name, side), mut points)| {
        points.sort_by(|(first, _), (second, _)| first.total_cmp(second));
        Series { name: format!("{name}, {side}"), points }
    });
    let lines: Vec<Series> = lines.filter(|line| line.points.len() > 1).collect();
    (!lines.is_empty()).then(|| Figure {
        title: "Lookups as tables grow".to_owned(),
        x: Axis::logarithmic("routes or flows"),
        y: Axis::linear("cycles for a lookup"),
        marks: Marks::Lines(lines),
    })
}

/// `exact-1000` is of 1,000 flows; numbers below that say something else, such as the bytes of a packet.
fn of_size(name: &str) -> Option<(&str, f64)> {
    let (name, entries) = name.rsplit_once('-')?;
    let entries = entries.parse::<u32>().ok().filter(|entries| *entries >= 1_000)?;
    ["exact", "lpm4", "lpm6"].contains(&name).then_some((name, f64::from(entries)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_of_sizes_become_lines() {
        let line = |name: &str, ours: f64, peer: f64| {
            let spread = |median| serde_json::json!({ "median": median, "min": median, "max": median });
            serde_json::json!({
                "name": name, "unit": "cycles/lookup", "ours": spread(ours), "peer_name": "rte_hash", "peer": spread(peer),
                "ratio": 2.0, "promise": 1.5, "bound": "lines", "rounds": 15, "void": null,
            })
            .to_string()
        };
        let lines = [
            line("exact-10000", 12.0, 30.0),
            line("exact-1000", 8.0, 20.0),
            line("exact", 28.0, 60.0),
            line("lpm4-1000", 4.0, 6.0),
            line("vxlan-1518", 4.0, 6.0),
        ];
        let comparisons = Comparison::read(&lines.join("\n")).unwrap();
        let figure = figure(&comparisons).unwrap();
        let Marks::Lines(lines) = figure.marks else { panic!("no lines") };
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["exact, ours", "exact, the best peer"]);
        assert_eq!(lines[0].points, [(1_000.0, 8.0), (10_000.0, 12.0)]);
        assert!(super::figure(&comparisons[2..]).is_none());
    }
}
