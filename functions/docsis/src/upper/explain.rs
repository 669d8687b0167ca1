//! By what the upper MAC decides, for whoever traces packets; and what it would do with packets that never came.

use warmlane_counters::Source;
use warmlane_lane::{Explanation, Outputs};
use warmlane_mem::{Burst, Packet};

use super::fields::Fields;
use super::{LOWER, UpperMac, rule_of};
use crate::control::Action;
use crate::tag::Tag;

impl UpperMac {
    /// Notes whose packet it is, which rule of the modem's filter is for it, and which service flow it goes to by which classifier.
    #[cold]
    pub(super) fn note_way(&self, packet: &Packet, explanation: &mut Explanation) {
        let Some(fields) = Fields::of(packet.data()) else { return };
        let Some(found) = self.table.find(&fields) else {
            explanation.note("modem", "none");
            return;
        };
        let Some(modem) = self.modems.get(found.modem as usize) else { return };
        explanation.note("modem", modem.mac);
        explanation.note("found by", if found.by_address { "IP address" } else { "Ethernet address" });
        if modem.has_not_listed(found, &fields) {
            return;
        }
        if let Some(filter) = modem.filter.and_then(|filter| self.filters.get(filter)) {
            let word = |action| if action == Action::Permit { "permits" } else { "denies" };
            match rule_of(filter, &fields) {
                Some((rule, action)) => {
                    explanation.note("filter", format_args!("rule {rule} {}", word(action)));
                }
                None => explanation.note("filter", format_args!("no rule: {}", word(filter.otherwise))),
            }
        }
        let classifier = modem.classifier_of(&fields);
        let flow = classifier.map_or(modem.primary_flow, |classifier| classifier.flow);
        match classifier {
            Some(classifier) => {
                explanation.note("classifier", format_args!("priority {}", classifier.priority));
            }
            None => explanation.note("classifier", "none"),
        }
        explanation.note("service flow", flow);
        let (waiting, limit) = self.scheduler.fill(flow);
        explanation.note("queue", format_args!("{waiting} of {limit} packets"));
    }

    /// Does what is done with a burst, so that nothing is counted or queued. What a service flow takes is sent: its rates count as free.
    #[cold]
    pub(super) fn rehearse_burst(
        &mut self,
        burst: &mut Burst,
        outputs: &mut Outputs<'_>,
    ) -> Vec<Box<dyn Source>> {
        let counters = std::mem::take(&mut self.counters);
        self.classify(burst);
        for (mut packet, result) in burst.drain().zip(self.scratch.results) {
            let refused = |flow| self.scheduler.refuses(flow, packet.len()).map_or(Ok(flow), Err);
            match result.and_then(refused) {
                Ok(flow) => {
                    self.counters.transferred().add(1);
                    // The scheduler would choose the channel.
                    *packet.application_mut() = Tag { flow, channel: u16::MAX, ..Tag::default() };
                    outputs.send(LOWER, packet);
                }
                Err(reason) => self.counters.drops().count(reason, 1),
            }
        }
        let counted = std::mem::replace(&mut self.counters, counters);
        vec![Box::new(counted.view())]
    }
}
