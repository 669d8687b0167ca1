//! What the command says. Where nobody reads it any more, the work goes on all the same.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

/// A sentence that people may like to know, on standard error.
pub(crate) fn note(sentence: impl Display) {
    line(format_args!("note: {sentence}"));
}

/// A sentence that people should know: something is wrong.
pub(crate) fn complain(sentence: impl Display) {
    line(format_args!("warmlane: {sentence}"));
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
