//! Questions that are answered here, and go no further.

use warmlane_mem::Packet;

use crate::dropped::Dropped;
use crate::gateway::Gateway;
use crate::hosts::{LONGEST_ANSWER, hear};
use crate::inner_frame::InnerFrame;
use crate::reason::Reason;
use crate::stations::Place;
use crate::ways::Ways;

impl Gateway {
    /// Hears what a frame says of addresses, and answers it if it asks for one whose host is known, and is elsewhere. Others go on.
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
        let mut answer = [0; LONGEST_ANSWER];
        let Some(answer) = self.answer(&packet, inside, network, from, now, &mut answer) else {
            return self.pass_on(packet, inside, network, from, now, ways);
        };
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

    /// The answer to a frame, if it is such a question.
    fn answer<'a>(
        &mut self,
        packet: &Packet,
        inside: &InnerFrame,
        network: usize,
        from: Place,
        now: u64,
        answer: &'a mut [u8; LONGEST_ANSWER],
    ) -> Option<&'a [u8]> {
        let of = self.networks.get_mut(network)?;
        let hosts = of.hosts.as_mut()?;
        let heard = hear(packet.data())?;
        hosts.learn(&heard);
        // Other tunnel ends answer their hosts themselves.
        let is_ours = matches!(from, Place::Access(_)) && inside.destination.is_multicast();
        let question = heard.asks.filter(|_| is_ours)?;
        let host = hosts.find(question.target()).filter(|host| host.station != inside.source)?;
        of.stations.find(host.station, now).filter(|place| *place != from)?;
        let length = question.answer(host, answer).ok()?;
        answer.get(..length)
    }
}
