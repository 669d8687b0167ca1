//! From a log to its record: what documents quote.
//!
//! Each figure of the record is the median of those of all runs that count, of the same code as the last one; `min` and `max` are the
//! lowest and highest of all, and words, such as a verdict, those of the last run that counts. A comparison's interval is that
//! over its runs ([`Interval`]), and its promise is kept if all of it is.

use serde_json::{Map, Value, json};
use warmlane_lab::statistics::{Interval, median};

use super::log::{Log, Run};

/// The record of a log; `None` if no run has a result. `promise` is what holds today, of comparisons.
pub(crate) fn record(log: &Log, promise: Option<f64>) -> Option<Value> {
    let runs = log.of_the_last_code();
    let (void, counted): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.void.is_some());
    let results: Vec<&Value> = if counted.is_empty() { &void } else { &counted }
        .iter()
        .filter_map(|run| run.result.as_ref())
        .collect();
    let last = runs.last()?;
    let mut record = match combined(&results)? {
        Value::Object(record) if !counted.is_empty() => record,
        // What doesn't count is no figure, and the last run is as good as any to show what happened.
        _ => results.last()?.as_object()?.clone(),
    };
    if counted.is_empty() {
        let reason = last.void.as_deref().unwrap_or_default();
        let reason = format!("none of {} runs counts; of the last one: {reason}", runs.len());
        record.insert("void".to_owned(), reason.into());
    }
    if record.contains_key("ratio") {
        compared(&mut record, &counted, promise);
    }
    let command = log.series().last().map(|series| series.command.as_str());
    let notes: Vec<&str> = log.series().iter().filter_map(|series| series.note.as_deref()).collect();
    let mut measured = json!({
        "command": command, "date": last.date, "runs": counted.len(), "void_runs": void.len(), "sources": last.sources,
    });
    if !notes.is_empty() {
        measured["note"] = notes.join("; ").into();
    }
    record.insert("measured".to_owned(), measured);
    Some(Value::Object(record))
}

/// Adds what a comparison's runs say together.
fn compared(record: &mut Map<String, Value>, counted: &[&Run], promise: Option<f64>) {
    let ratios: Vec<f64> =
        counted.iter().filter_map(|run| run.result.as_ref()?.get("ratio")?.as_f64()).collect();
    let interval = Interval::of(&ratios);
    if let Some(promise) = promise {
        record.insert("promise".to_owned(), promise.into());
    }
    let promise = record.get("promise").and_then(Value::as_f64);
    let kept = match (interval, promise) {
        (Some(Interval { low, .. }), Some(promise)) if low >= promise => "kept",
        (Some(_), Some(_)) => "not kept",
        _ => "not known",
    };
    record.insert("interval".to_owned(), json!(interval));
    record.insert("kept".to_owned(), kept.into());
    if counted.is_empty() {
        record.insert("ratio".to_owned(), Value::Null);
    }
}

/// The middle of each figure of some results; `None` of none.
fn combined(values: &[&Value]) -> Option<Value> {
    let last = *values.last()?;
    if values.iter().all(|value| *value == last) {
        return Some(last.clone());
    }
    // What is missing in some runs is no figure there.
    let present: Vec<&Value> = values.iter().copied().filter(|value| !value.is_null()).collect();
    let figures = || present.iter().map(|value| value.as_f64()).collect::<Option<Vec<f64>>>();
    let lengths = || present.iter().map(|value| value.as_array().map(Vec::len)).collect::<Option<Vec<_>>>();
    match present.last()? {
        Value::Object(fields) => Some(Value::Object(
            fields.keys().filter_map(|name| Some((name.clone(), field(name, &present)?))).collect(),
        )),
        // Lists of different lengths are of different things.
        Value::Array(list) if lengths()?.iter().all(|&length| length == list.len()) => {
            let of = |index| present.iter().filter_map(|value: &&Value| value.get(index)).collect::<Vec<_>>();
            Some(Value::Array((0..list.len()).filter_map(|index| combined(&of(index))).collect()))
        }
        Value::Number(_) => Some(middle(&present, &figures()?)),
        words => Some((*words).clone()),
    }
}

fn field(name: &str, objects: &[&Value]) -> Option<Value> {
    let values: Vec<&Value> = objects.iter().filter_map(|object| object.get(name)).collect();
    let figures = || values.iter().map(|value| value.as_f64()).collect::<Option<Vec<f64>>>();
    match (name, figures()) {
        // Each run has its own, and the log tells it.
        ("seed", _) => None,
        ("min", Some(figures)) => figures.into_iter().reduce(f64::min).map(Value::from),
        ("max", Some(figures)) => figures.into_iter().reduce(f64::max).map(Value::from),
        _ => combined(&values),
    }
}

/// The median; of whole numbers, such as counts of turns, one that there is.
fn middle(values: &[&Value], figures: &[f64]) -> Value {
    let mut whole: Vec<u64> = values.iter().filter_map(|value| value.as_u64()).collect();
    if whole.len() < values.len() {
        return median(figures).into();
    }
    whole.sort_unstable();
    whole[(whole.len() - 1) / 2].into()
}
