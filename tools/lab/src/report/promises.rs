//! Promises as a picture: how many times better than the best peer, with the interval, and what was promised.

use super::Comparison;
use maud::{Markup, html};

/// Nothing is drawn longer than this, so that one large ratio doesn't make all others short.
const MOST: f64 = 6.0;
/// The scale has room for this ratio at least.
const LEAST: f64 = 2.0;

/// Bars of all comparisons that count, in the table's order; nothing if there are none.
pub(super) fn picture(comparisons: &[Comparison]) -> Markup {
    let counted = || comparisons.iter().filter(|comparison| comparison.void.is_none());
    let bars = || counted().filter_map(|comparison| Some((comparison, comparison.ratio?)));
    let ends = bars().flat_map(|(comparison, ratio)| {
        [ratio, comparison.promise, comparison.interval.map_or(ratio, |interval| interval.high)]
    });
    let scale = ends.fold(LEAST, f64::max).min(MOST);
    let place = |ratio: f64| format!("{:.1}%", 100.0 * ratio.clamp(0.0, scale) / scale);
    html! {
        @if bars().next().is_some() {
            figure {
                figcaption {
                    "Times better than the best peer: a bar for the median, a thin line over its interval, and an upright one where the promise is; the scale ends at "
                    (format!("{scale:.1}")) "."
                }
                div.bars { @for (comparison, ratio) in bars() {
                    @let (verdict, class) = comparison.verdict();
                    div.bar role="img" aria-label={ (comparison.name) ": " (format!("{ratio:.2}")) " of " (comparison.promise) ", " (verdict) } {
                        span.name { (comparison.name) }
                        span.track {
                            span class={ "ratio " (class) } style={ "width:" (place(ratio)) } {}
                            @if let Some(interval) = comparison.interval {
                                span.interval style={
                                    "left:" (place(interval.low)) ";right:calc(100% - " (place(interval.high)) ")"
                                } {}
                            }
                            span.promise style={ "left:" (place(comparison.promise)) } {}
                        }
                        span.value { (format!("{ratio:.2}")) }
                    }
                } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_ratios_and_none_is_drawn_of_what_is_void() {
        let line = |name: &str, ratio: f64, void: Option<&str>| {
            let spread = serde_json::json!({ "median": 1.0, "min": 1.0, "max": 1.0 });
            serde_json::json!({
                "name": name, "unit": "cycles/packet", "ours": spread, "peer_name": "DPDK", "peer": spread, "ratio": ratio,
                "interval": { "low": ratio - 0.5, "high": ratio + 0.5 }, "promise": 1.5, "bound": "lines", "rounds": 15, "void": void,
            })
            .to_string()
        };
        let lines = [line("a", 2.0, None), line("b", 3.5, None), line("c", 9.0, Some("disturbed"))];
        let comparisons = Comparison::read(&lines.join("\n")).unwrap();
        let picture = picture(&comparisons).into_string();
        // The longest interval ends at 4.
        for part in [
            "width:50.0%",
            "left:37.5%;right:calc(100% - 62.5%)",
            "the scale ends at 4.0",
            "a: 2.00 of 1.5, kept",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        assert!(!picture.contains("c: "), "{picture}");
        assert_eq!(super::picture(&comparisons[2..]).into_string(), "");
        // One that is off the scale ends with it.
        let far = Comparison::read(&line("d", 20.0, None)).unwrap();
        assert!(super::picture(&far).into_string().contains("width:100.0%"));
    }
}
