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
    /// Hears what a frame says of addresses, and answers it if it asks for one whose host is known, and is elsewhere. Gives it back if it is to
    /// go on.
    // Most networks leave questions to their hosts, and most frames ask nothing.
    #[inline(never)]
    pub(crate) fn answer(
        &mut self,
        mut packet: Packet,
        inside: &InnerFrame,
        network: usize,
        from: Place,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) -> Result<Option<Packet>, Dropped> {
        let of = &mut self.networks[network];
        let Some(hosts) = &mut of.hosts else { return Ok(Some(packet)) };
        let Some(heard) = hear(packet.data()) else { return Ok(Some(packet)) };
        hosts.learn(&heard);
        // Other tunnel ends answer their hosts themselves.
        let question =
            heard.asks.filter(|_| matches!(from, Place::Access(_)) && inside.destination.is_multicast());
        let Some(question) = question else { return Ok(Some(packet)) };
        let known = hosts.find(question.target()).filter(|host| {
            let place = of.stations.find(host.station, now);
            host.station != inside.source && place.is_some_and(|place| place != from)
        });
        let mut answer = [0; LONGEST_ANSWER];
        let Some(Ok(length)) = known.map(|host| question.answer(host, &mut answer)) else {
            return Ok(Some(packet));
        };
        let Some(answer) = answer.get(..length) else { return Ok(Some(packet)) };
        // The question becomes the answer.
        let port = packet.port();
        if packet.fill(answer).is_err() {
            return Err(Dropped { reason: Reason::NoSpace, packet });
        }
        packet.set_port(port);
        self.counters.suppressed().add(1);
        let inside = match InnerFrame::of(packet.data()) {
            Ok(inside) => inside,
            Err(reason) => return Err(Dropped { reason, packet }),
        };
        self.send(packet, &inside, network, from, ways).map(|()| None)
    }
}
