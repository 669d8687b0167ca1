//! Answers to what every instance can be asked.

use std::convert::Infallible;
use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use warmlane_counters::Registry;

use crate::connection::{Answer, Answers};
use crate::layout::Fixed;
use crate::place;
use crate::protocol::{Failure, Instance, Request, Stats, VERSION};
use crate::server::Server;

/// What every instance tells of itself.
pub struct Common {
    instance: Instance,
    began: Instant,
    registry: Registry,
    fixed: Fixed,
    handlers: Vec<Handler>,
}

/// Answers requests of another kind; `None` to what is none.
pub type Handler = Box<dyn Fn(&[u8]) -> Option<Answer<Infallible>> + Send>;

impl Common {
    /// Of this process, which is of a kind ([`Instance::kind`]), is asked at `server`, counts what `registry` has, and of which this
    /// stays as it is.
    pub fn new<L>(kind: &str, server: &Server<L>, registry: Registry, fixed: Fixed) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let instance = Instance {
            protocol: VERSION,
            kind: kind.to_owned(),
            name: place::name_of(server.path()),
            pid: std::process::id(),
            since,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Self { instance, began: Instant::now(), registry, fixed, handlers: Vec::new() }
    }

    /// Answers these requests, too.
    #[must_use]
    pub fn and(mut self, handler: Handler) -> Self {
        self.handlers.push(handler);
        self
    }

    /// Answers a request, a line without its newline, if it is one of these.
    pub fn try_answer<L>(&self, line: &[u8]) -> Option<Answer<L>> {
        let Some(request) = Request::parse(line) else {
            return self.handlers.iter().find_map(|handler| handler(line)).map(Answer::without_list);
        };
        Some(match request {
            Ok(Request::Instance {}) => Answer::whole(&self.instance),
            Ok(Request::Stats {}) => {
                let age = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                Answer::whole(&Stats::read(&self.registry, age))
            }
            Ok(Request::Graph {}) => Answer::whole(&self.fixed.graphs),
            Ok(Request::Layout {}) => Answer::whole(&self.fixed.layout),
            Err(sentence) => Answer::error(sentence),
        })
    }
}

/// An instance that knows nothing else.
impl Answers for Common {
    type List = Infallible;

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

impl fmt::Debug for Common {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Common").field("instance", &self.instance).finish_non_exhaustive()
    }
}
