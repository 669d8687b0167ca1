//! The upper MAC: whose packet it is, whether it may pass, which service flow it is of, and when it is its turn.

mod bucket;
mod counters;
mod explain;
mod fields;
mod lookup;
mod queues;
mod reason;
mod rules;
mod scheduler;
mod time;

use warmlane_counters::Source;
use warmlane_lane::{Explanation, Outputs, Rehearsed, Stage, polled_stage};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_sys::clock;
use warmlane_wire::MacAddress;

pub use counters::{
    ChannelCounters, ChannelCountersView, FlowCounters, FlowCountersView, SubscriberCounters,
    SubscriberCountersView, UpperCounters, UpperCountersView,
};
pub(crate) use fields::SNAP;
pub use lookup::LookupError;
pub use reason::UpperDrop;
pub use rules::Match;
pub use time::Time;

use crate::control::{Action, Classifier, FilterGroup, ServiceGroup};
use crate::tag::{Tag, stamp};
use fields::Fields;
use lookup::{Found, ModemTable};
use scheduler::Scheduler;

/// The upper MAC of one lane. Its output is `lower`.
pub struct UpperMac {
    table: ModemTable,
    modems: Box<[Modem]>,
    filters: Box<[FilterGroup]>,
    scheduler: Scheduler,
    time: Time,
    counters: UpperCounters,
    scratch: Box<Scratch>,
}

/// What is known of a modem here.
struct Modem {
    enforces_addresses: bool,
    filter: Option<usize>,
    mac: MacAddress,
    /// Highest priority first.
    classifiers: Box<[Rule]>,
    primary_flow: u32,
    counters: SubscriberCounters,
}

/// A classifier.
struct Rule {
    matches: Match,
    priority: u8,
    flow: u32,
}

/// The first rule of a filter that a packet matches: its number, and what it does.
#[inline]
fn rule_of(filter: &FilterGroup, fields: &Fields) -> Option<(usize, Action)> {
    let mut rules = filter.rules.iter().enumerate();
    rules.find(|(_, rule)| rule.matches.holds(fields)).map(|(number, rule)| (number, rule.action))
}

impl Modem {
    /// Whether a packet is for an address behind it that isn't registered, and must be.
    #[inline]
    const fn has_not_listed(&self, found: Found, fields: &Fields) -> bool {
        self.enforces_addresses && !found.by_address && fields.ip.is_some()
    }

    /// The classifier that decides about a packet.
    #[inline]
    fn classifier_of(&self, fields: &Fields) -> Option<&Rule> {
        self.classifiers.iter().find(|rule| rule.matches.holds(fields))
    }

    /// Counts a packet, and why it is dropped if it is.
    #[inline]
    fn count(&self, bytes: usize, dropped: Option<UpperDrop>) {
        self.counters.received().add(1);
        self.counters.bytes().add(bytes as u64);
        let became = match dropped {
            None => self.counters.queued(),
            Some(UpperDrop::UnlistedAddress) => self.counters.unlisted(),
            Some(UpperDrop::Filtered) => self.counters.filtered(),
            Some(_) => self.counters.refused(),
        };
        became.add(1);
    }
}

/// What is known of the burst at work. All have the packets' indices.
struct Scratch {
    fields: [Option<Fields>; BURST_CAPACITY],
    found: [Option<Found>; BURST_CAPACITY],
    /// The modem, and once classified the flow; or why the packet is dropped.
    results: [Result<u32, UpperDrop>; BURST_CAPACITY],
}

const LOWER: usize = 0;

/// The clock between two steps.
struct Stopwatch(u64);

impl Stopwatch {
    fn lap(&mut self) -> u64 {
        let now = clock::cycles();
        now.saturating_sub(std::mem::replace(&mut self.0, now))
    }
}

impl UpperMac {
    /// The upper MAC of a service group that was [checked](ServiceGroup::check).
    ///
    /// # Errors
    /// [`LookupError`], if the table of addresses can't be made.
    pub fn new(group: &ServiceGroup) -> Result<Self, LookupError> {
        Self::with_time(group, Time::default())
    }

    /// The same, by another time than the cycle counter's.
    ///
    /// # Errors
    /// [`LookupError`].
    pub fn with_time(group: &ServiceGroup, time: Time) -> Result<Self, LookupError> {
        let modems = group.modems.iter().map(|modem| {
            let mut classifiers = modem.classifiers.clone();
            classifiers.sort_by_key(|classifier| std::cmp::Reverse(classifier.priority));
            Modem {
                mac: modem.mac,
                enforces_addresses: modem.enforces_addresses,
                filter: modem.filter,
                classifiers: classifiers
                    .iter()
                    .map(|&Classifier { priority, matches, flow }| Rule {
                        matches,
                        priority,
                        flow: flow as u32,
                    })
                    .collect(),
                primary_flow: modem.primary_flow as u32,
                counters: SubscriberCounters::new(),
            }
        });
        Ok(Self {
            table: ModemTable::new(group)?,
            modems: modems.collect(),
            filters: group.filters.clone().into(),
            scheduler: Scheduler::new(group, time.per_second()),
            time,
            counters: UpperCounters::new(),
            scratch: Box::new(Scratch {
                fields: [None; BURST_CAPACITY],
                found: [None; BURST_CAPACITY],
                results: [Err(UpperDrop::Truncated); BURST_CAPACITY],
            }),
        })
    }

    /// What it counts.
    pub fn view(&self) -> UpperCountersView {
        self.counters.view()
    }

    /// What it counts of each modem, in their order.
    pub fn subscriber_counters(&self) -> Vec<SubscriberCountersView> {
        self.modems.iter().map(|modem| modem.counters.view()).collect()
    }

    /// What it counts of each service flow, in their order.
    pub fn flow_counters(&self) -> Vec<FlowCountersView> {
        self.scheduler.flow_counters()
    }

    /// What it counts of each channel, in their order.
    pub fn channel_counters(&self) -> Vec<ChannelCountersView> {
        self.scheduler.channel_counters()
    }

    /// Finds out of each packet of a burst which service flow it is of, or why it is dropped. Says when that began, and goes on with the time.
    #[inline]
    fn classify(&mut self, burst: &Burst) -> (u64, Stopwatch) {
        let Self { table, modems, filters, counters, scratch, .. } = self;
        let Scratch { fields, found, results } = &mut **scratch;
        let count = burst.len().min(BURST_CAPACITY);
        counters.received().add(count as u64);
        let arrived = clock::cycles();
        let mut stopwatch = Stopwatch(arrived);

        for packet in burst.iter() {
            packet.prefetch();
        }
        for (packet, fields) in burst.iter().zip(&mut *fields) {
            *fields = Fields::of(packet.data());
        }
        table.look_up(&fields[..count], &mut found[..count]);
        counters.cm_lookup_packets().add(count as u64);
        counters.cm_lookup_cycles().add(stopwatch.lap());

        let packets = found[..count].iter().zip(&fields[..count]).zip(&mut results[..count]);
        let mut matched = 0;
        for ((found, fields), result) in packets {
            matched += u64::from(found.is_some());
            *result = match (found, fields) {
                (_, None) => Err(UpperDrop::Truncated),
                (None, _) => Err(UpperDrop::UnknownModem),
                (Some(found), Some(fields)) => {
                    let modem = modems.get(found.modem as usize);
                    let is_unlisted = modem.is_some_and(|modem| modem.has_not_listed(*found, fields));
                    if is_unlisted { Err(UpperDrop::UnlistedAddress) } else { Ok(found.modem) }
                }
            };
        }
        counters.matched().add(matched);
        counters.unmatched().add(count as u64 - matched);
        counters.sub_mgmt_packets().add(count as u64);
        counters.sub_mgmt_cycles().add(stopwatch.lap());

        let (mut permitted, mut unfiltered, mut filtered) = (0, 0, 0);
        for (fields, result) in fields[..count].iter().zip(&mut results[..count]) {
            let (Ok(modem), Some(fields)) = (*result, fields) else { continue };
            filtered += 1;
            let filter = modems.get(modem as usize).and_then(|modem| filters.get(modem.filter?));
            let action = filter.and_then(|filter| rule_of(filter, fields)).map(|(_, action)| action);
            permitted += u64::from(action == Some(Action::Permit));
            unfiltered += u64::from(action.is_none());
            if action.or(filter.map(|filter| filter.otherwise)) == Some(Action::Deny) {
                *result = Err(UpperDrop::Filtered);
            }
        }
        counters.permitted().add(permitted);
        counters.unfiltered().add(unfiltered);
        counters.filtering_packets().add(filtered);
        counters.filtering_cycles().add(stopwatch.lap());

        let (mut classified, mut unclassified) = (0, 0);
        for (fields, result) in fields[..count].iter().zip(&mut results[..count]) {
            let (Ok(number), Some(fields)) = (*result, fields) else { continue };
            let Some(modem) = modems.get(number as usize) else { continue };
            let classifier = modem.classifier_of(fields);
            classified += u64::from(classifier.is_some());
            unclassified += u64::from(classifier.is_none());
            *result = Ok(classifier.map_or(modem.primary_flow, |classifier| classifier.flow));
        }
        counters.classified().add(classified);
        counters.unclassified().add(unclassified);
        counters.classification_packets().add(classified + unclassified);
        counters.classification_cycles().add(stopwatch.lap());
        (arrived, stopwatch)
    }

    /// Sends what is due.
    #[inline]
    fn dispatch(&mut self, now: u64, ignores_rates: bool, outputs: &mut Outputs<'_>) -> usize {
        if self.scheduler.count() == 0 || !has_space(outputs) {
            return 0;
        }
        let sent = self.scheduler.dispatch(now, ignores_rates, |packet| {
            match packet {
                Ok(packet) => outputs.send(LOWER, packet),
                Err((reason, packet)) => drop_packet(reason, &packet, &self.counters, outputs),
            }
            has_space(outputs)
        });
        self.counters.transferred().add(sent as u64);
        sent
    }
}

/// Counts a packet that goes nowhere, and shows it to whoever captures those.
#[cold]
fn drop_packet(reason: UpperDrop, packet: &Packet, counters: &UpperCounters, outputs: &Outputs<'_>) {
    counters.drops().count(reason, 1);
    outputs.show_dropped(reason, packet);
}

/// Whether the lower MAC takes another packet. Where there is none, all are taken, and lost.
#[inline]
fn has_space(outputs: &mut Outputs<'_>) -> bool {
    match outputs.burst(LOWER) {
        Some(burst) => burst.space() > 0 || outputs.make_space(LOWER),
        None => true,
    }
}

impl Stage for UpperMac {
    polled_stage!("upper MAC", outputs: &["lower"]);

    #[inline]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let (arrived, mut stopwatch) = self.classify(burst);
        let Self { modems, scheduler, time, counters, scratch, .. } = self;
        let Scratch { found, results, .. } = &**scratch;
        let count = burst.len().min(BURST_CAPACITY);

        let now = time.at(stopwatch.0);
        let mut queued = 0;
        let tag = Tag { arrived: stamp(arrived), ..Tag::default() };
        for ((mut packet, result), found) in burst.drain().zip(&results[..count]).zip(&found[..count]) {
            let bytes = packet.len();
            let queue = match *result {
                Ok(flow) => {
                    *packet.application_mut() = tag;
                    scheduler.push(flow, packet, now)
                }
                Err(reason) => Err((reason, packet)),
            };
            if let Some(modem) = found.and_then(|found| modems.get(found.modem as usize)) {
                modem.count(bytes, queue.as_ref().err().map(|(reason, _)| *reason));
            }
            match queue {
                Ok(()) => queued += 1,
                Err((reason, packet)) => drop_packet(reason, &packet, counters, outputs),
            }
        }
        self.dispatch(now, false, outputs);
        self.counters.qos_packets().add(queued);
        self.counters.qos_cycles().add(stopwatch.lap());
    }

    #[inline]
    fn poll(&mut self, now: u64, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        if outputs.must_wait() {
            return 0;
        }
        let sent = self.dispatch(self.time.at(now), false, outputs);
        if sent > 0 {
            self.counters.qos_cycles().add(clock::cycles().saturating_sub(now));
        }
        sent
    }

    fn is_done(&self) -> bool {
        self.scheduler.count() == 0
    }

    fn finish(&mut self, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.dispatch(clock::cycles(), true, outputs)
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.view())]
    }

    fn explain(&self, _input: usize, packet: &Packet, explanation: &mut Explanation) {
        self.note_way(packet, explanation);
    }

    fn rehearse(&mut self, _input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        Some(self.rehearse_burst(burst, outputs))
    }
}
