//! The ways of a frame out of the gateway: to where its destination is, or to everybody, by copies.

use warmlane_mem::Packet;

use crate::dropped::{Dropped, or_drop};
use crate::gateway::{Gateway, fits};
use crate::inner_frame::InnerFrame;
use crate::network::{Group, To};
use crate::reason::Reason;
use crate::stations::Place;
use crate::tags::put_tag_on;
use crate::too_big;
use crate::ways::{Ways, encapsulate};

impl Gateway {
    /// To everybody but where it came from.
    pub(crate) fn flood(
        &mut self,
        packet: Packet,
        inside: &InnerFrame,
        network: usize,
        from: Place,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        self.counters.flooded().add(1);
        let mut last = None;
        for place in self.networks[network].everybody_else(from) {
            let Some(before) = last.replace(place) else { continue };
            // A copy for the one before; the frame itself is for the last.
            let Some(copy) = packet.copy_in(&self.pool) else {
                self.counters.copied().add(1);
                self.counters.drops().count(Reason::NoBuffer, 1);
                // What the copy would have been.
                ways.outputs.show_dropped(Reason::NoBuffer, &packet);
                continue;
            };
            self.counters.copied().add(1);
            let headroom = copy.headroom();
            if let Err(dropped) = self.send_if_it_fits(copy, inside, network, before, ways) {
                dropped.count(headroom, &self.counters, ways.outputs);
            }
        }
        let last = or_drop!(packet, last.ok_or(Reason::NobodyElse));
        self.send_if_it_fits(packet, inside, network, last, ways)
    }

    /// Tells the sender of a frame, which came from there, that no more than `mtu` bytes of IP fit.
    #[cold]
    pub(crate) fn tell(
        &mut self,
        frame: &Packet,
        mtu: u16,
        network: usize,
        from: Place,
        now: u64,
        ways: &mut Ways<'_, '_>,
    ) {
        let (limiter, counters) = (&mut self.limiter, &self.counters);
        let may = || {
            let may = limiter.take(now);
            counters.errors_limited().add(u64::from(!may));
            may
        };
        let Some(error) = too_big::error(frame, mtu, &self.pool, may) else { return };
        self.counters.errors().add(1);
        let headroom = error.headroom();
        let sent = match InnerFrame::of(error.data()) {
            Ok(inside) => self.send_if_it_fits(error, &inside, network, To::Place(from), ways),
            Err(reason) => Err(Dropped { reason, packet: error }),
        };
        if let Err(dropped) = sent {
            dropped.count(headroom, &self.counters, ways.outputs);
        }
    }

    fn send_if_it_fits(
        &self,
        packet: Packet,
        inside: &InnerFrame,
        network: usize,
        to: To,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        let of = &self.networks[network];
        if !fits(&packet, of.mtu(to)) {
            return Err(Dropped { reason: Reason::TooLong, packet });
        }
        match (to, &of.group) {
            (To::Place(place), _) => self.send(packet, inside, network, place, ways),
            (To::Group, Some(group)) => self.send_to_group(packet, inside, group, ways),
            (To::Group, None) => Err(Dropped { reason: Reason::NobodyElse, packet }),
        }
    }

    /// Sends a frame to all tunnel ends at once. No forwarder is asked: the group is at this port.
    fn send_to_group(
        &self,
        mut packet: Packet,
        inside: &InnerFrame,
        group: &Group,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        or_drop!(packet, group.encapsulation.wrap_usual(&mut packet, inside, &group.addresses));
        self.counters.to_groups().add(1);
        ways.outputs.send(group.port, packet);
        Ok(())
    }

    /// Sends a frame that its way's MTU allows.
    pub(crate) fn send(
        &self,
        mut packet: Packet,
        inside: &InnerFrame,
        network: usize,
        to: Place,
        ways: &mut Ways<'_, '_>,
    ) -> Result<(), Dropped> {
        let network = &self.networks[network];
        match to {
            Place::Access(access) => {
                let (port, vlan) = network.config.access[usize::from(access)];
                if let Some(vlan) = vlan {
                    or_drop!(packet, put_tag_on(&mut packet, vlan));
                }
                self.counters.to_access().add(1);
                ways.outputs.send(port, packet);
            }
            Place::Remote(remote) => {
                encapsulate(
                    packet,
                    inside,
                    network.remotes.encapsulation(remote),
                    &self.own,
                    &self.counters,
                    ways,
                )?;
            }
        }
        Ok(())
    }
}
