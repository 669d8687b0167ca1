//! What the lower MAC does with a packet, for whoever traces packets; and what it would do with one that never came.

use warmlane_counters::Source;
use warmlane_lane::Explanation;
use warmlane_mem::{Burst, Packet};

use super::stage::{LowerMac, frame};
use crate::tag::Tag;

impl LowerMac {
    /// Notes of which service flow a packet is, by which channel it is sent, and how it is encrypted.
    #[cold]
    pub(super) fn note_way(&self, packet: &Packet, explanation: &mut Explanation) {
        let tag = packet.application::<Tag>();
        let Some(flow) = self.flows.get(tag.flow as usize) else {
            explanation.note("service flow", format_args!("{}, which isn't known", tag.flow));
            return;
        };
        explanation.note("service flow", tag.flow);
        // The scheduler chooses it, and numbers the packet, when it is sent; of a rehearsed one it isn't known.
        let is_sent = usize::from(tag.channel) < self.channels.len();
        if is_sent {
            explanation.note("channel", tag.channel);
        }
        match flow.dsid {
            Some(dsid) if is_sent => {
                explanation.note("numbered", format_args!("{} of DSID {dsid}", tag.sequence));
            }
            Some(dsid) => explanation.note("numbered", format_args!("by DSID {dsid}")),
            None => {}
        }
        match flow.said.map(|said| (said, self.keys.keys.newest(said))) {
            None => explanation.note("encryption", "none"),
            Some((said, None)) => {
                explanation.note("encryption", format_args!("security association {said} has no key"));
            }
            Some((said, Some((sequence, _)))) => {
                let key = format_args!("security association {said}, key {sequence}");
                explanation.note("encryption", key);
            }
        }
    }

    /// Does what is done with a burst as far as a single packet decides that, so that nothing is counted, and nothing put into packets to
    /// the remote PHY.
    #[cold]
    pub(super) fn rehearse_burst(&mut self, burst: &mut Burst) -> Vec<Box<dyn Source>> {
        let counters = std::mem::take(&mut self.counters);
        for mut packet in burst.drain() {
            self.counters.received().add(1);
            match frame(&mut packet, &self.flows, &self.keys.keys) {
                Ok((_, framing)) => {
                    self.counters.crcs().add(self.crc.into());
                    self.counters.encrypted().add(framing.said.is_some().into());
                    self.counters.framed().add(1);
                }
                Err(reason) => self.counters.drops().count(reason, 1),
            }
        }
        let counted = std::mem::replace(&mut self.counters, counters);
        vec![Box::new(counted.view())]
    }
}
