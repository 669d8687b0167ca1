//! Where messages go, and what they look like there.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use clap::ValueEnum;
use log::kv::Key;
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::{Map, Value};
use systemd_journal_logger::{JournalLog, connected_to_journal};

use super::line;

/// What messages look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// `journal` under systemd, if standard error leads there; else `text`.
    Auto,
    /// A sentence a line.
    Text,
    /// A JSON object a line: `time`, `level`, `command`, `message`, and `interface` if it is about one.
    Json,
    /// Entries of systemd's journal, with fields: `PRIORITY`, `WARMLANE_COMMAND`, `INTERFACE`.
    Journal,
}

static IS_TEXT: AtomicBool = AtomicBool::new(true);

/// Whether lines on standard error may be something else than objects of JSON.
pub(crate) fn is_text() -> bool {
    IS_TEXT.load(Ordering::Relaxed)
}

/// From now on messages of this command (`router`, for example) are written so. Called once.
///
/// # Errors
/// There is no journal; they are written as text.
pub(crate) fn write_to(format: Format, command: &str) -> io::Result<()> {
    let journal = || {
        let journal = JournalLog::empty()?.with_syslog_identifier("warmlane".to_owned());
        Ok(journal.with_extra_fields([("WARMLANE_COMMAND", command)]))
    };
    let (logger, result): (Box<dyn Log>, _) = match format {
        Format::Text => (Box::new(Text), Ok(())),
        Format::Json => (Box::new(Json { command: command.to_owned() }), Ok(())),
        Format::Auto if !connected_to_journal() => (Box::new(Text), Ok(())),
        // Its socket may be out of reach (RootDirectory=). The lines get there, too.
        Format::Auto => {
            (journal().map_or_else(|_| Box::new(Text) as Box<dyn Log>, |journal| Box::new(journal)), Ok(()))
        }
        Format::Journal => match journal() {
            Ok(journal) => (Box::new(journal), Ok(())),
            Err(error) => (Box::new(Text), Err(error)),
        },
    };
    IS_TEXT.store(!matches!(format, Format::Json), Ordering::Relaxed);
    // There is one from before only in tests.
    if log::set_boxed_logger(logger).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
    result
}

struct Text;

fn text(record: &Record<'_>) -> String {
    let kind = if record.level() == Level::Info { "note" } else { "warmlane" };
    format!("{kind}: {}", record.args())
}

impl Log for Text {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        line(text(record));
    }

    fn flush(&self) {}
}

struct Json {
    command: String,
}

impl Json {
    fn object(&self, record: &Record<'_>, now: SystemTime) -> Value {
        let level = match record.level() {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info | Level::Debug | Level::Trace => "info",
        };
        let mut object = Map::new();
        object.insert("time".to_owned(), humantime::format_rfc3339_micros(now).to_string().into());
        object.insert("level".to_owned(), level.into());
        object.insert("command".to_owned(), self.command.clone().into());
        object.insert("message".to_owned(), record.args().to_string().into());
        if let Some(interface) = record.key_values().get(Key::from("interface")) {
            object.insert("interface".to_owned(), interface.to_string().into());
        }
        Value::Object(object)
    }
}

impl Log for Json {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        line(self.object(record, SystemTime::now()));
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_record_is_a_line_of_text_or_of_json() {
        let json = || Json { command: "router".to_owned() };
        let fields = [("interface", "e0")];
        let mut record = Record::builder();
        record.level(Level::Warn).key_values(&fields);
        let record = record.args(format_args!("it went \"away\"")).build();
        assert_eq!(text(&record), "warmlane: it went \"away\"");
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(
            json().object(&record, now),
            serde_json::json!({
                "time": "1970-01-01T00:00:01.500000Z",
                "level": "warning",
                "command": "router",
                "message": "it went \"away\"",
                "interface": "e0",
            })
        );
        let record = Record::builder().level(Level::Info).args(format_args!("forwarding")).build();
        assert_eq!(text(&record), "note: forwarding");
        assert!(json().object(&record, now).get("interface").is_none());
    }
}
