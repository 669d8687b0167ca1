//! What the command says. Where nobody reads it any more, the work goes on all the same.

mod flood;
mod sink;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::panic::Location;

use log::{Level, Record};
use warmlane::assembly::ports::{PortEvents, Severity};

pub(crate) use sink::{Format, is_text, write_to};

/// A sentence that people may like to know.
#[track_caller]
pub(crate) fn note(sentence: impl Display) {
    say(Level::Info, None, &sentence);
}

/// A sentence that people may like to know of an interface or port.
#[track_caller]
pub(crate) fn note_of(interface: &str, sentence: impl Display) {
    say(Level::Info, Some(interface), &sentence);
}

/// What happened to ports.
pub(crate) fn tell_events(events: &mut PortEvents) {
    events.tell(|port, severity, sentence| {
        let level = match severity {
            Severity::Note => Level::Info,
            Severity::Warning => Level::Warn,
        };
        say(level, Some(port), &format_args!("port '{port}': {sentence}"));
    });
}

/// A sentence that people should know: something is wrong.
#[track_caller]
pub(crate) fn complain(sentence: impl Display) {
    say(Level::Warn, None, &sentence);
}

/// Why the command ends.
#[track_caller]
pub(crate) fn fail(sentence: impl Display) {
    say(Level::Error, None, &sentence);
}

/// Says how many messages were left out and not told of yet: at the end.
pub(crate) fn tell_of_left_out() {
    let count = flood::take_left_out();
    if count > 0 {
        complain(format_args!("{count} more messages were left out, as others like them came too often"));
    }
}

/// Says it in the format that [`write_to`] was told, unless the same place in the program has said too much of late.
#[track_caller]
fn say(level: Level, interface: Option<&str>, sentence: &dyn Display) {
    let place = Location::caller();
    match flood::pass(place) {
        // How a command ends is its last word.
        None if level > Level::Error => {}
        None | Some(0) => record(level, interface, place, sentence),
        Some(left_out) => {
            record(
                Level::Warn,
                None,
                place,
                &format_args!("{left_out} more messages like the next one were left out"),
            );
            record(level, interface, place, sentence);
        }
    }
}

fn record(level: Level, interface: Option<&str>, place: &Location<'_>, sentence: &dyn Display) {
    let fields = interface.map(|name| ("interface", name));
    let mut record = Record::builder();
    record.level(level).target("warmlane").file(Some(place.file())).line(Some(place.line()));
    if let Some(fields) = &fields {
        record.key_values(fields);
    }
    log::logger().log(&record.args(format_args!("{sentence}")).build());
}

/// A line on standard error.
pub(crate) fn line(text: impl Display) {
    raw(format_args!("{text}\n"));
}

/// A text on standard error as it is.
pub(crate) fn raw(text: impl Display) {
    // The only place to say that it failed would be this one. In one piece, as threads' lines would mix otherwise.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Results, on standard output.
///
/// # Errors
/// They can't be written, other than because the reader has seen enough (`| head`).
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// A list as a text for people, or as JSON on a line.
///
/// # Errors
/// It can't be written: see [`print`].
pub(crate) fn print_list<T>(
    list: &[T],
    is_json: bool,
    as_json: impl Fn(&T) -> serde_json::Value,
    as_text: impl FnOnce(&[T]) -> String,
) -> anyhow::Result<()> {
    let text = if is_json {
        let all: Vec<_> = list.iter().map(as_json).collect();
        format!("{}\n", serde_json::to_string(&all)?)
    } else {
        as_text(list)
    };
    Ok(print(text)?)
}
