//! What may be asked of a capture: a line of text as a filter, and behind it a frame, of which the filter sees the beginning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane::assembly::capture::Filter;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (text, frame) = data.split_at(end);
    let frame = frame.get(1..).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(text) else { return };
    match text.parse::<Filter>() {
        Ok(filter) => {
            let wanted = filter.matches(frame, frame.len());
            // The opposite of it is also one, and wants the others.
            if !text.trim().is_empty()
                && let Ok(opposite) = format!("not ({text})").parse::<Filter>()
            {
                assert_eq!(opposite.matches(frame, frame.len()), !wanted, "{text}");
            }
            filter.matches(&frame[..frame.len() / 2], frame.len());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
