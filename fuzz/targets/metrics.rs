//! What comes where metrics are offered: anything, in any pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane::metrics::{Access, Document, Format, LONGEST_REQUEST, respond};

// The first byte says in how large pieces the others come.
fuzz_target!(|data: &[u8]| {
    let Some((&size, text)) = data.split_first() else { return };
    let piece = usize::from(size) * 8 + 1;
    let mut come = 0;
    while come < text.len() {
        come = (come + piece).min(text.len()).min(LONGEST_REQUEST);
        let mut asked = None;
        let answer = respond(&text[..come], &Access::Local, |document| {
            asked = Some(document);
            "what was asked for\n".to_owned()
        });
        let Some(answer) = answer else {
            assert!(come < LONGEST_REQUEST && asked.is_none());
            continue;
        };
        let answer = String::from_utf8(answer).expect("all of it is ours");
        // The page's files need not be made.
        let is_file = asked.is_none() && !answer.contains("Content-Type: text/plain");
        assert_eq!(answer.starts_with("HTTP/1.1 200 OK\r\n"), asked.is_some() || is_file, "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an end of the headers");
        assert!(head.contains("Connection: close"));
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
        // All but a HEAD has what it is about.
        assert!(body.is_empty() || length == body.len(), "{answer}");
        assert_eq!(asked == Some(Document::Metrics(Format::OpenMetrics)), head.contains("openmetrics-text"));
        return;
    }
});
