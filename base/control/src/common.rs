//! Answers to what every instance can be asked.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use warmlane_counters::Registry;

use crate::connection::{Answer, Answers};
use crate::place;
use crate::protocol::{Failure, Instance, Request, Stats, VERSION};
use crate::server::Server;

/// What every instance tells of itself.
#[derive(Clone, Debug)]
pub struct Common {
    instance: Instance,
    began: Instant,
    registry: Registry,
}

impl Common {
    /// Of this process, which is of a kind ([`Instance::kind`]), is asked at `server` and counts what `registry` has.
    pub fn new<L>(kind: &str, server: &Server<L>, registry: Registry) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let instance = Instance {
            protocol: VERSION,
            kind: kind.to_owned(),
            name: place::name_of(server.path()),
            pid: std::process::id(),
            since,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Self { instance, began: Instant::now(), registry }
    }

    /// Answers a request, a line without its newline, if it is one of these.
    pub fn try_answer<L>(&self, line: &[u8]) -> Option<Answer<L>> {
        Some(match Request::parse(line)? {
            Ok(Request::Instance {}) => Answer::whole(&self.instance),
            Ok(Request::Stats {}) => {
                let age = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                Answer::whole(&Stats::read(&self.registry, age))
            }
            Err(sentence) => Answer::error(sentence),
        })
    }
}

/// An instance that knows nothing else.
impl Answers for Common {
    type List = std::convert::Infallible;

    fn answer(&mut self, line: &[u8]) -> Answer<Self::List> {
        self.try_answer(line).unwrap_or_else(|| {
            Answer::whole(&Failure {
                error: "that is no request: write one like {\"ask\":\"stats\"}, see docs/operate.md"
                    .to_owned(),
            })
        })
    }

    fn go_on(&mut self, list: &mut Self::List, _: &mut Vec<u8>) -> bool {
        match *list {}
    }
}
