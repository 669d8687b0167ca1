//! Questions that are answered here, and go no further.

use warmlane_mem::Packet;

use crate::dropped::Dropped;
use crate::gateway::Gateway;
use crate::hosts::{Heard, Host, LONGEST_ANSWER, Question, hear};
use crate::inner_frame::InnerFrame;
use crate::network::Network;
use crate::reason::Reason;
use crate::stations::{Place, Station};
use crate::ways::Ways;

impl Gateway {
    /// Hears what a frame says of addresses. If it asks for one whose host is known and elsewhere, it becomes the answer. Others are passed on, and
    /// so are those that tell something new: of where their sender is, or of its address. Other tunnel ends have to hear that, too, as
    /// nobody else tells them.
    // Most networks leave questions to their hosts.
    #[inline(never)]
    pub(crate) fn answer_or_pass_on(
        &mut self,
        mut packet: Packet,
        inside: &InnerFrame,
        network: usize,
        from: Place,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        let of = &mut self.networks[network];
        let is_known = of.stations.find(inside.source, now) == Some(from);
        let heard = of.hosts.as_mut().and_then(|hosts| {
            let heard = hear(packet.data())?;
            (hosts.learn(&heard, now) && is_known).then_some(heard)
        });
        let host = heard
            .and_then(|heard| of.host_to_answer_for(&heard, inside.destination, inside.source, from, now));
        let mut answer = [0; LONGEST_ANSWER];
        let written = host.map(|(question, host)| question.answer(host, &mut answer));
        let Some(answer) = written.and_then(|written| answer.get(..written.ok()?)) else {
            return self.pass_on(packet, inside, network, from, now, ways);
        };
        // It was seen now.
        of.stations.learn(inside.source, from, now);
        // The question becomes the answer.
        let port = packet.port();
        if packet.fill(answer).is_err() {
            return Err(Dropped { reason: Reason::NoSpace, packet });
        }
        packet.set_port(port);
        self.counters.suppressed().add(1);
        match InnerFrame::of(packet.data()) {
            Ok(inside) => self.send(packet, &inside, network, from, ways),
            Err(reason) => Err(Dropped { reason, packet }),
        }
    }
}

impl Network {
    /// The host in whose name a question from there is answered, if it is one for everybody, of a host of our own, for an address whose host is
    /// known and elsewhere.
    pub(crate) fn host_to_answer_for(
        &self,
        heard: &Heard,
        destination: Station,
        asker: Station,
        from: Place,
        now: u64,
    ) -> Option<(Question, Host)> {
        // Other tunnel ends answer their hosts themselves.
        let is_ours = matches!(from, Place::Access(_)) && destination.is_multicast();
        let question = heard.asks.filter(|_| is_ours)?;
        let host = self.hosts.as_ref()?.find(question.target(), now).filter(|host| host.station != asker)?;
        self.stations.find(host.station, now).filter(|place| *place != from)?;
        Some((question, host))
    }
}
