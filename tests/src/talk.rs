//! Two hosts that talk to each other, a word at a time, over a flow that goes on. Needs `python3`.

use std::time::{Duration, Instant};

use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

use crate::command::SHORT;

const PROGRAM: &str = concat!("python3 -B ", env!("CARGO_MANIFEST_DIR"), "/src/talk.py");

/// A host that answers each word that comes to an address of its own.
///
/// # Panics
/// If it can't.
#[track_caller]
pub fn listener(host: &Namespace, protocol: &str, address: &str, port: u16) -> Process {
    let mut process = host.spawn(&format!("{PROGRAM} serve {protocol} {address} {port}"));
    process.wait_for("ready", SHORT);
    process
}

/// A host that sends words, to be answered.
#[derive(Debug)]
pub struct Talk(pub Process);

impl Talk {
    /// Starts to send so many a second, over `tcp` or `udp`.
    ///
    /// # Panics
    /// If nothing comes back.
    #[track_caller]
    pub fn start(host: &Namespace, protocol: &str, address: &str, port: u16, rate: u32) -> Self {
        let talk = Self(host.spawn(&format!("{PROGRAM} talk {protocol} {address} {port} {rate}")));
        let begin = Instant::now();
        while talk.answers() == 0 {
            assert!(begin.elapsed() < SHORT, "no answer: {}", talk.0.output());
            std::thread::sleep(Duration::from_millis(20));
        }
        talk
    }

    /// How many answers there were.
    pub fn answers(&self) -> u64 {
        self.last(0).parse().unwrap_or(0)
    }

    /// The port that it sends from.
    pub fn port(&self) -> String {
        self.last(2)
    }

    fn last(&self, column: usize) -> String {
        let said = self.0.output();
        // The last line may not be whole.
        let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().last().and_then(|line| line.split(' ').nth(column)).unwrap_or_default().to_owned()
    }

    /// Whether an answer comes within a time.
    pub fn goes_on(&self, within: Duration) -> bool {
        let (begin, before) = (Instant::now(), self.answers());
        while self.answers() == before {
            if begin.elapsed() > within {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}
