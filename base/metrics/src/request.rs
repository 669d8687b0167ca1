//! What is answered to a request.

use std::borrow::Cow;

use httparse::{EMPTY_HEADER, Request, Status};

use crate::access::Access;
use crate::exposition::Format;
use crate::page;

/// Longest request, in bytes.
pub const LONGEST_REQUEST: usize = 8192;

/// Headers that a request can have.
const HEADERS: usize = 64;

/// What is made when somebody asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// `/metrics`: all that is counted, for Prometheus.
    Metrics(Format),
    /// `/stats.json`: the same as the control socket says it, for the page and for scripts.
    Stats,
    /// `/graph.json`: what leads where, as the control socket says it.
    Graph,
    /// `/layout.json`: how packet buffers lie over the sets of a cache, as the control socket says it.
    Layout,
}

/// What each answer lets a browser do with it: run and ask for what comes from here, and nothing else. No other page may frame it or take it in.
const POLICY: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
                      Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n";

/// Where the metrics are.
const METRICS: &str = "/metrics";

/// Where they are as JSON.
const STATS: &str = "/stats.json";

/// Where it is said what leads where.
const GRAPH: &str = "/graph.json";

/// Where it is said how packet buffers lie.
const LAYOUT: &str = "/layout.json";

/// What is said.
struct Answer {
    status: &'static str,
    media_type: &'static str,
    /// Another header, with the end of its line.
    more: &'static str,
    body: Cow<'static, str>,
}

impl Answer {
    /// There is nothing for this.
    fn refusal(status: &'static str, more: &'static str, sentence: &str) -> Self {
        Self { status, media_type: "text/plain; charset=utf-8", more, body: format!("{sentence}\n").into() }
    }

    /// As it is sent; to a `HEAD`, without what it would be about.
    fn written(&self, is_head: bool) -> Vec<u8> {
        let Self { status, media_type, more, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n{more}\
             {POLICY}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        );
        [head.as_bytes(), if is_head { b"" } else { body.as_bytes() }].concat()
    }
}

/// The answer to what has come so far; `None` if there must be more. A document is made only if it is the answer.
pub fn respond(request: &[u8], access: &Access, make: impl FnOnce(Document) -> String) -> Option<Vec<u8>> {
    let mut headers = [EMPTY_HEADER; HEADERS];
    let mut parsed = Request::new(&mut headers);
    let answer = match parsed.parse(request) {
        Ok(Status::Partial) if request.len() < LONGEST_REQUEST => return None,
        Ok(Status::Complete(_)) => decide(&parsed, access, make),
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Answer::refusal("431 Request Header Fields Too Large", "", "the request is too long")
        }
        Err(_) => Answer::refusal("400 Bad Request", "", "that is not HTTP"),
    };
    Some(answer.written(parsed.method == Some("HEAD")))
}

fn decide(request: &Request<'_, '_>, access: &Access, make: impl FnOnce(Document) -> String) -> Answer {
    let header = |name: &str| {
        let of_name = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        request.headers.iter().find(of_name).map(|header| header.value)
    };
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let file = page::file(path);
    // A browser shows no token for a page. There is nothing of this instance in it: what it then asks for needs the token.
    let is_open = file.is_some() && matches!(access, Access::Bearer(_));
    if !is_open && !access.permits(header("authorization"), header("host")) {
        return match access {
            Access::Bearer(_) => Answer::refusal(
                "401 Unauthorized",
                "WWW-Authenticate: Bearer\r\n",
                "the token is needed (Authorization: Bearer)",
            ),
            Access::Local => Answer::refusal(
                "403 Forbidden",
                "",
                "ask by the address or as localhost: by other names only with a token",
            ),
        };
    }
    if file.is_none() && ![METRICS, STATS, GRAPH, LAYOUT].contains(&path) {
        return Answer::refusal(
            "404 Not Found",
            "",
            "ask for / (a page), /metrics, /stats.json, /graph.json or /layout.json",
        );
    }
    if !matches!(request.method, Some("GET" | "HEAD")) {
        return Answer::refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "this can only be read");
    }
    let answer = |media_type, body| Answer { status: "200 OK", media_type, more: "", body };
    if let Some(file) = file {
        return answer(file.media_type, file.text.into());
    }
    let json = match path {
        STATS => Some(Document::Stats),
        GRAPH => Some(Document::Graph),
        LAYOUT => Some(Document::Layout),
        _ => None,
    };
    if let Some(document) = json {
        return answer("application/json", make(document).into());
    }
    let accepted = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let format = format(accepted.map(|header| header.value));
    answer(format.media_type(), make(Document::Metrics(format)).into())
}

/// OpenMetrics for whoever wants it at least as much as plain text.
fn format<'a>(accepted: impl Iterator<Item = &'a [u8]>) -> Format {
    let (mut openmetrics, mut text) = (0.0_f32, 0.0_f32);
    for range in
        accepted.filter_map(|value| std::str::from_utf8(value).ok()).flat_map(|value| value.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
        let Some(quality) = quality else { continue };
        if media.eq_ignore_ascii_case("application/openmetrics-text") {
            openmetrics = openmetrics.max(quality);
        } else if media.eq_ignore_ascii_case("text/plain") {
            text = text.max(quality);
        }
    }
    if openmetrics > 0.0 && openmetrics >= text { Format::OpenMetrics } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answer(request: &str) -> String {
        let make = |document| match document {
            Document::Metrics(format) => format!("{format:?}"),
            Document::Stats | Document::Graph | Document::Layout => "{}".to_owned(),
        };
        String::from_utf8(respond(request.as_bytes(), &Access::Local, make).expect("an answer")).unwrap()
    }

    fn get(path: &str, headers: &str) -> String {
        answer(&format!("GET {path} HTTP/1.1\r\nHost: localhost:1\r\n{headers}\r\n"))
    }

    #[test]
    fn metrics_come_in_the_format_that_is_wanted() {
        for (accept, format) in [
            ("", "Text"),
            ("Accept: */*\r\n", "Text"),
            ("Accept: text/plain\r\n", "Text"),
            ("accept: Application/OpenMetrics-Text\r\n", "OpenMetrics"),
            ("Accept: application/openmetrics-text; q=0, text/plain\r\n", "Text"),
            ("Accept: application/openmetrics-text;q=x\r\n", "Text"),
            ("Accept: text/plain;q=0.9, application/openmetrics-text;q=0.5\r\n", "Text"),
            // Prometheus 2.42's own.
            (
                "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n",
                "OpenMetrics",
            ),
        ] {
            let answer = get("/metrics", accept);
            let length = format!("Content-Length: {}\r\n", format.len());
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(&length), "{answer}");
            assert!(answer.ends_with(&format!("\r\n\r\n{format}")), "{accept} {answer}");
            assert_eq!(
                answer.contains("openmetrics-text; version=1.0.0"),
                format == "OpenMetrics",
                "{answer}"
            );
        }
        assert!(get("/metrics?debug=1", "").starts_with("HTTP/1.1 200"));
        let head = answer("HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn everything_else_is_refused_and_says_why() {
        for (request, status) in [
            ("GET /stats HTTP/1.1\r\n\r\n", "404"),
            ("POST / HTTP/1.1\r\n\r\n", "405"),
            ("PUT /stats.json HTTP/1.1\r\n\r\n", "405"),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /stats.json HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /graph.json HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /layout.json HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /metrics/../x HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /metrics\r\n\r\n", "400"),
            ("\0\0\0", "400"),
            (&format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1)), "431"),
            (&format!("GET /{}", "a".repeat(LONGEST_REQUEST)), "431"),
        ] {
            let answer = answer(request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request} {answer}");
            assert!(answer.ends_with('\n') && answer.contains("Connection: close\r\n"), "{answer}");
        }
    }

    #[test]
    fn the_page_and_its_files_come_with_a_policy_that_lets_nothing_else_in() {
        let page = get("/", "");
        for (path, media_type) in [
            ("/", "text/html"),
            ("/page.css", "text/css"),
            ("/page.js", "text/javascript"),
            ("/stats.json", "application/json"),
            ("/graph.json", "application/json"),
        ] {
            let answer = get(path, "");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path} {head}");
            assert!(head.contains(&format!("\r\nContent-Type: {media_type}")), "{path} {head}");
            assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{path} {head}");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{path} {head}");
            let without_body = answer_to_head(path);
            assert_eq!(without_body.trim_end(), head, "{path}");
        }
        // Nothing is taken from elsewhere, and nothing inside the page would be refused by the policy.
        for file in &page::FILES {
            assert!(!file.text.contains("//cdn") && !file.text.contains("https://"), "{}", file.path);
        }
        for refused in ["<style", " style=", " onclick=", "<script>"] {
            assert!(!page.contains(refused), "{refused}");
        }
        assert!(page.contains("href=\"page.css\"") && page.contains("src=\"page.js\""), "{page}");
    }

    fn answer_to_head(path: &str) -> String {
        answer(&format!("HEAD {path} HTTP/1.1\r\n\r\n"))
    }

    #[test]
    fn with_a_token_the_page_is_open_and_what_it_shows_is_not() {
        let access = Access::Bearer(crate::access::tests::token());
        let ask = |path: &str, headers: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nHost: router.example\r\n{headers}\r\n");
            let answer = respond(request.as_bytes(), &access, |_| "counted".to_owned()).expect("an answer");
            String::from_utf8(answer).unwrap()
        };
        let shown = format!("Authorization: Bearer {}\r\n", crate::access::tests::SECRET);
        for file in &page::FILES {
            assert!(ask(file.path, "").starts_with("HTTP/1.1 200 "), "{}", file.path);
        }
        for path in [METRICS, STATS, GRAPH, "/other"] {
            assert!(ask(path, "").starts_with("HTTP/1.1 401 "), "{path}");
        }
        assert!(
            ask(STATS, &shown).ends_with("counted") && ask("/other", &shown).starts_with("HTTP/1.1 404 ")
        );
    }

    proptest! {
        #[test]
        fn a_request_has_its_answer_once_it_is_whole_and_not_before(cut in 0..52_usize) {
            let request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nA: b\r\n\r\n";
            let part = request.get(..cut.min(request.len())).unwrap();
            let answer = respond(part.as_bytes(), &Access::Local, |_| String::new());
            prop_assert_eq!(answer.is_some(), part.len() == request.len());
        }
    }
}
