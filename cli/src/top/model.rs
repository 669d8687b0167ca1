//! The last looks at an instance, and what happened meanwhile.

use super::timed::Timed;
use super::view::View;
use crate::changes::Changes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use warmlane::control::{Stats, Value};

/// Events that are kept.
const EVENTS: usize = 100;
/// Looks without another one after which something has ended: what comes once in some seconds goes on.
const ENDED: u32 = 10;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// How old the instance was.
    pub(super) age: Duration,
    pub(super) text: String,
    pub(super) is_bad: bool,
}

/// What is known of an instance.
#[derive(Debug, Default)]
pub(super) struct Model {
    before: Option<Stats>,
    now: Option<Stats>,
    /// The last first.
    events: VecDeque<Event>,
    /// What goes wrong, and for how many looks it has not any more.
    troubles: BTreeMap<String, u32>,
    /// What packets last took.
    timed: Timed,
}

/// Something that may go wrong.
#[derive(Default)]
struct Trouble {
    /// How often, since the last look.
    times: u64,
    help: String,
    is_bad: bool,
}

impl Model {
    /// Takes in another look.
    pub(super) fn take(&mut self, stats: Stats) {
        let before = self.now.take();
        if let Some(before) = &before {
            self.compare(before, &stats);
        }
        (self.before, self.now) = (before, Some(stats));
    }

    /// Something happened that no counter says.
    pub(super) fn note(&mut self, text: String, is_bad: bool) {
        let age = self.now.as_ref().map_or(0, |stats| stats.age_ns);
        self.event(age, text, is_bad);
    }

    /// Another process begins to count from zero. What happened before is still known.
    pub(super) fn start_again(&mut self, text: String) {
        *self = Self { events: std::mem::take(&mut self.events), ..Self::default() };
        self.note(text, true);
    }

    fn event(&mut self, age_ns: u64, text: String, is_bad: bool) {
        self.events.push_front(Event { age: Duration::from_nanos(age_ns), text, is_bad });
        self.events.truncate(EVENTS);
    }

    fn compare(&mut self, before: &Stats, now: &Stats) {
        let changes = Changes::new(now, Some(before));
        self.timed.take(&changes);
        for (name, trouble) in troubles(&changes) {
            if trouble.times > 0 {
                if self.troubles.insert(name.clone(), 0).is_none() {
                    self.event(now.age_ns, format!("{name}: {}", trouble.help), trouble.is_bad);
                }
            } else if let Some(looks) = self.troubles.get_mut(&name) {
                *looks += 1;
                if *looks == ENDED {
                    self.troubles.remove(&name);
                    self.event(now.age_ns, format!("no more {name}"), false);
                }
            }
        }
        let (old, new) = (names(before), names(now));
        for gone in old.difference(&new) {
            self.event(now.age_ns, format!("{gone} is gone"), true);
        }
        for come in new.difference(&old) {
            self.event(now.age_ns, format!("{come} has come"), false);
        }
    }

    /// What there is to show.
    pub(super) fn view(&self) -> View {
        self.now.as_ref().map_or_else(View::default, |now| {
            let changes = Changes::new(now, self.before.as_ref());
            View::new(&changes, &self.timed, self.events.iter().cloned().collect())
        })
    }
}

/// What may go wrong, as events name it.
fn troubles(changes: &Changes<'_>) -> BTreeMap<String, Trouble> {
    let mut all: BTreeMap<String, Trouble> = BTreeMap::new();
    for value in &changes.now.values {
        let (name, help, is_bad) = if let Some(reason) = &value.reason {
            let described = changes.now.reasons.get(reason);
            let help = described.map_or_else(String::new, |described| described.help.clone());
            (
                format!("drops of {reason}"),
                help,
                described.is_none_or(|described| described.severity != "notice"),
            )
        } else if value.set == "pool" && value.name == "refused" {
            let pool = value.labels.get("pool").map_or("", String::as_str);
            (format!("shortage in pool {pool}"), "It has no buffers left.".to_owned(), true)
        } else {
            continue;
        };
        let trouble = all.entry(name).or_default();
        *trouble = Trouble { times: trouble.times.saturating_add(changes.of(value)), help, is_bad };
    }
    all
}

/// Ports and lanes, as events name them.
fn names(stats: &Stats) -> BTreeSet<String> {
    let name = |value: &Value| {
        ["port", "lane"].iter().find_map(|word| Some(format!("{word} {}", value.labels.get(*word)?)))
    };
    stats.values.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{dropped, stats, value};
    use super::*;

    fn events(model: &Model) -> Vec<(u64, String, bool)> {
        let events = model.view().events;
        events.into_iter().map(|event| (event.age.as_secs(), event.text, event.is_bad)).collect()
    }

    #[test]
    fn drops_that_begin_are_events_and_they_end_after_a_while() {
        let mut model = Model::default();
        let look = |bad, right, refused| {
            let refused = value(&[("pool", "packets")], "pool", "refused", refused);
            vec![dropped("lane0", "no-route", bad), dropped("lane0", "policy", right), refused]
        };
        model.take(stats(1, look(0, 5, 0)));
        model.take(stats(2, look(4, 5, 0)));
        model.take(stats(3, look(4, 6, 1)));
        model.take(stats(4, look(9, 6, 1)));
        let begun = [
            (3, "shortage in pool packets: It has no buffers left.".to_owned(), true),
            (3, "drops of policy: Why.".to_owned(), false),
            (2, "drops of no-route: Why.".to_owned(), true),
        ];
        assert_eq!(events(&model), begun);
        let quiet = u64::from(ENDED);
        (5..4 + quiet).for_each(|seconds| model.take(stats(seconds, look(9, 7, 2))));
        assert_eq!(events(&model), begun, "a pause is no end");
        model.take(stats(4 + quiet, look(9, 7, 2)));
        assert_eq!(events(&model)[0], (4 + quiet, "no more drops of no-route".to_owned(), false));
    }

    #[test]
    fn ports_that_come_and_go_are_events_and_so_is_another_process() {
        let port = |name| vec![value(&[("port", name)], "queue", "packets", 1)];
        let mut model = Model::default();
        model.take(stats(1, port("a")));
        model.take(stats(2, port("b")));
        model.note("it is silent".to_owned(), true);
        let texts: Vec<_> = events(&model).into_iter().map(|(_, text, is_bad)| (text, is_bad)).collect();
        let expected = [("it is silent", true), ("port b has come", false), ("port a is gone", true)];
        assert_eq!(texts, expected.map(|(text, is_bad)| (text.to_owned(), is_bad)));
        model.start_again("another one".to_owned());
        assert_eq!(model.view().ports, []);
        model.take(stats(1, port("b")));
        let shown = events(&model);
        assert_eq!((shown.len(), shown[0].1.as_str(), shown[0].0), (4, "another one", 0));
        (0..2 * EVENTS).for_each(|_| model.note("again".to_owned(), false));
        assert_eq!(events(&model).len(), EVENTS);
    }
}
