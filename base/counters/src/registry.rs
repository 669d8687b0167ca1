//! All that is counted in a program, in one list.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cell::CounterView;
use crate::describe::{Description, Role};
use crate::drops::DropReason;

/// A value as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it means.
    pub description: Description,
    /// Of drops: why.
    pub reason: Option<&'static DropReason>,
    /// The value.
    pub value: u64,
}

impl Entry {
    /// This value and another one of the same description together: the sum, of peaks the higher one.
    pub fn together(&self, other: u64) -> u64 {
        match self.description.role {
            Role::Peak => self.value.max(other),
            Role::In | Role::Out | Role::Note | Role::Gauge => self.value.wrapping_add(other),
        }
    }

    /// A value that is no drop.
    pub const fn of(description: Description, value: u64) -> Self {
        Self { description, reason: None, value }
    }
}

/// What can be read: the views of sets and drops, and whatever else knows values with descriptions.
pub trait Source: Any + Send + Sync {
    /// Calls `each` for every value.
    fn read(&self, each: &mut dyn FnMut(Entry));

    /// What tells it from others of its kind in the same place, if there are several: a label and its value.
    fn label(&self) -> Option<(&'static str, String)> {
        None
    }

    /// What came in less what went out: what is inside. Zero if it doesn't count what comes in.
    fn balance(&self) -> i64 {
        let mut balance = 0_i64;
        self.read(&mut |entry| {
            let value = entry.value.cast_signed();
            balance = match entry.description.role {
                Role::In => balance.wrapping_add(value),
                Role::Out => balance.wrapping_sub(value),
                Role::Note | Role::Gauge | Role::Peak => balance,
            };
        });
        balance
    }
}

/// A single counter with its description.
impl Source for (Description, CounterView) {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        each(Entry::of(self.0, self.1.get()));
    }
}

/// Several sources as one.
impl<S: Source> Source for Vec<S> {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        for source in self {
            source.read(each);
        }
    }
}

/// The source as what it is, if it is of this type.
pub fn view_as<V: Source>(source: &dyn Source) -> Option<&V> {
    let source: &dyn Any = source;
    source.downcast_ref()
}

/// Prints a source as a struct of this name.
///
/// # Errors
/// The formatter's.
pub fn debug(source: &dyn Source, name: &str, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = formatter.debug_struct(name);
    source.read(&mut |entry| {
        match entry.reason {
            None => text.field(entry.description.name, &entry.value),
            Some(_) if entry.value == 0 => return,
            Some(reason) => text.field(&format!("{} {}", entry.description.name, reason.name), &entry.value),
        };
    });
    text.finish()
}

/// What a source belongs to: pairs such as `port=eth0`, `queue=3`. Usual names are `port`, `direction` (`receive` or
/// `transmit`), `queue`, `lane`, `stage` and `pool`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Vec<(&'static str, String)>);

impl Labels {
    /// No labels.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// And this one.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "callers pass numbers and names as they have them")]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.0.push((name, value.to_string()));
        self
    }

    /// The value of the label of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// All labels, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// A value of the registry, and what it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What the source belongs to.
    pub labels: Labels,
    /// What was read.
    pub entry: Entry,
}

/// The sources of a program. Clones are handles to the same list; anyone may read at any time.
#[derive(Clone, Default)]
pub struct Registry {
    sources: Arc<Mutex<Sources>>,
}

type Sources = Vec<(Labels, Arc<dyn Source>)>;

impl Registry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source. It stays until it is removed, so what it counted can still be read when its writer has ended.
    pub fn add(&self, labels: Labels, source: impl Source + 'static) {
        self.add_shared(labels, Arc::new(source));
    }

    /// The same for a source that others have, too.
    pub fn add_shared(&self, labels: Labels, source: Arc<dyn Source>) {
        self.sources().push((labels, source));
    }

    /// Adds what another registry has now, with these labels in front of its own.
    pub fn add_all(&self, labels: &Labels, of: &Self) {
        let with_labels = |own: &Labels| {
            Labels(labels.0.iter().chain(&own.0).map(|(name, value)| (*name, value.clone())).collect())
        };
        let added: Sources =
            of.sources().iter().map(|(own, source)| (with_labels(own), Arc::clone(source))).collect();
        self.sources().extend(added);
    }

    /// Removes the sources that have all of these labels.
    pub fn remove(&self, labels: &Labels) {
        let has_all = |of: &Labels| labels.iter().all(|(name, value)| of.get(name) == Some(value));
        self.sources().retain(|(of, _)| !has_all(of));
    }

    /// Calls `each` for every value of every source, in the order in which they were added. The list is locked meanwhile.
    pub fn read(&self, mut each: impl FnMut(&Labels, Entry)) {
        self.each(|labels, source| source.read(&mut |entry| each(labels, entry)));
    }

    /// Calls `each` for every source, in the order in which they were added. The list is locked meanwhile.
    pub fn each(&self, mut each: impl FnMut(&Labels, &dyn Source)) {
        self.sources().iter().for_each(|(labels, source)| each(labels, &**source));
    }

    /// All sources of one type, to read by its methods: the views of all sets that were declared together, or of all drops.
    ///
    /// ```
    /// use warmlane_counters::{Labels, Registry, counters};
    ///
    /// counters! {
    ///     /// What a cache counts.
    ///     pub struct CacheCounters => CacheCountersView {
    ///         /// Found.
    ///         hits: Note, "lookups";
    ///     }
    /// }
    ///
    /// let (registry, cache) = (Registry::new(), CacheCounters::new());
    /// registry.add(Labels::new().with("lane", "lane0"), cache.view());
    /// cache.hits().add(3);
    /// let hits = registry.views::<CacheCountersView>().iter().map(|(_, view)| view.hits()).sum::<u64>();
    /// assert_eq!(hits, 3);
    /// ```
    pub fn views<V: Source + Clone>(&self) -> Vec<(Labels, V)> {
        let mut views = Vec::new();
        self.each(|labels, source| {
            views.extend(view_as::<V>(source).map(|view| (labels.clone(), view.clone())));
        });
        views
    }

    /// Every value of every source.
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        self.read(|labels, entry| samples.push(Sample { labels: labels.clone(), entry }));
        samples
    }

    fn sources(&self) -> std::sync::MutexGuard<'_, Sources> {
        // A reader that panicked has left the list as it was.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.sources().iter().map(|(labels, _)| labels)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, DropCounters};

    crate::drop_reasons! {
        /// Why the tests drop.
        enum Why {
            /// The first.
            First: "first", Notice;
        }
    }

    crate::counters! {
        /// A queue's.
        struct Queue => QueueView, drops by Why {
            /// Packets.
            packets: Note, "packets";
        }
    }

    fn queue(port: &str, number: usize) -> Labels {
        Labels::new().with("port", port).with("queue", number)
    }

    #[test]
    fn it_shows_all_values_with_their_labels() {
        let (registry, set) = (Registry::new(), Queue::new());
        registry.add(queue("left", 0), set.view());
        let (single, drops) = (Counter::new(), DropCounters::new());
        let description =
            Description { set: "tap", name: "seen", unit: "frames", help: "", role: Role::Note };
        registry.clone().add(Labels::new().with("stage", "tap"), (description, single.view()));
        registry.add(Labels::new(), drops.view());
        set.packets().add(3);
        set.drops().count(Why::First, 1);
        single.add(7);
        drops.count(Why::First, 2);

        let samples = registry.samples();
        let seen: Vec<_> = samples
            .iter()
            .map(|Sample { labels, entry }| {
                let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
                (
                    labels.join(","),
                    entry.description.name,
                    entry.reason.map(|reason| reason.name),
                    entry.value,
                )
            })
            .collect();
        let of_queue = || "port=left,queue=0".to_owned();
        assert_eq!(
            seen,
            [
                (of_queue(), "packets", None, 3),
                (of_queue(), "drops", Some("first"), 1),
                ("stage=tap".to_owned(), "seen", None, 7),
                (String::new(), "drops", Some("first"), 2),
            ]
        );
    }

    #[test]
    fn sources_outlive_their_writers_until_they_are_removed() {
        let registry = Registry::new();
        for (port, number) in [("left", 0), ("left", 1), ("right", 0)] {
            let set = Queue::new();
            registry.add(queue(port, number), set.view());
            set.packets().add(1);
        }
        let packets = || {
            let samples = registry.samples();
            samples.iter().map(|sample| sample.entry.value).sum::<u64>()
        };
        assert_eq!(packets(), 3);
        registry.remove(&queue("left", 1));
        assert_eq!(packets(), 2);
        registry.remove(&Labels::new().with("port", "left"));
        assert_eq!(packets(), 1);
    }

    #[test]
    fn what_several_count_is_shown_under_who_it_is_of() {
        let (all, set) = (Registry::new(), Queue::new());
        for number in 1..=2 {
            let one = Registry::new();
            one.add(queue("left", 0), set.view());
            all.add_all(&Labels::new().with("downstream", number), &one);
        }
        set.packets().add(3);
        let mut samples = all.samples();
        samples.retain(|sample| sample.entry.reason.is_none());
        let labels: Vec<Vec<String>> = samples
            .iter()
            .map(|sample| sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect())
            .collect();
        assert_eq!(
            labels,
            [["downstream=1", "port=left", "queue=0"], ["downstream=2", "port=left", "queue=0"]]
        );
        assert!(samples.iter().all(|sample| sample.entry.value == 3));
    }

    #[test]
    fn sources_of_a_type_are_found_however_they_were_added() {
        let registry = Registry::new();
        let (set, shared, drops) = (Queue::new(), Queue::new(), DropCounters::<Why>::new());
        registry.add(queue("left", 0), set.view());
        registry.add(queue("left", 1), drops.view());
        registry.add_shared(queue("left", 2), Arc::new(shared.view()));
        shared.packets().add(3);
        let found = registry.views::<QueueView>();
        let seen: Vec<_> = found.iter().map(|(labels, view)| (labels.get("queue"), view.packets())).collect();
        assert_eq!(seen, [(Some("0"), 0), (Some("2"), 3)]);
        assert!(found[0].1.is_same(&set.view()));
    }
}
