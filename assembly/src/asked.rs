//! Requests on the control socket that get a connection of their own: how they are read and answered.

use serde::Serialize;
use serde::de::DeserializeOwned;
use warmlane_control::{Answer, TakeOver};

/// Reads a request for `what`; `None` if it asks for something else.
pub(crate) fn parse<T: DeserializeOwned>(line: &[u8], what: &str) -> Option<Result<T, String>> {
    warmlane_control::asks_for(line, what).then(|| {
        serde_json::from_slice(line).map_err(|error| format!("that is not how \"{what}\" is asked: {error}"))
    })
}

/// The first line of an answer and who goes on behind it, or a sentence why not.
pub(crate) fn answer<L>(answer: Result<(impl Serialize, TakeOver), String>) -> Answer<L> {
    match answer {
        Ok((value, take_over)) => match serde_json::to_string(&value) {
            Ok(line) => Answer::TakeOver(line, take_over),
            Err(error) => Answer::error(error.to_string()),
        },
        Err(sentence) => Answer::error(sentence),
    }
}
