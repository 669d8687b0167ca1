//! By what the gateway decides, for whoever traces packets; and what it would do with packets that never came.

use std::fmt;

use warmlane_counters::Source;
use warmlane_lane::{Explanation, Outputs, Stage as _};
use warmlane_mem::{Burst, Packet};
use warmlane_sys::clock;
use warmlane_wire::{LinkLayer, ethernet};

use crate::gateway::{Gateway, key};
use crate::hosts::hear;
use crate::network::Network;
use crate::remotes::Remotes;
use crate::stations::{Bucket, Place, Station, at};
use crate::tags::vlan_of;

/// A frame that belongs to a network, as far as that can be told without unpacking it.
struct Member {
    network: usize,
    /// Nothing is known of a tunnel end that was not heard before.
    from: Option<Place>,
    destination: Station,
    source: Station,
    /// Where its frame begins in the packet.
    begin: usize,
}

impl Gateway {
    /// The network that a packet belongs to, and the addresses of its frame. `None` of what passes, and of what is wrong around a frame.
    fn member(&self, packet: &Packet) -> Option<Member> {
        let data = packet.data();
        let link = LinkLayer::parse(data);
        let (network, from, begin) = if let Some((network, access)) =
            self.access(packet.port(), vlan_of(packet, link.as_ref().ok()))
        {
            (network, Some(Place::Access(access)), 0)
        } else {
            let (outer, end) = self.tunnelled(packet, link)?;
            let frame = outer.check(packet, self.ends.get(end)?.protocol).ok()?;
            let network = usize::from(self.identifiers.get(key(end, frame.identifier))?);
            let remotes = &self.networks.get(network)?.remotes;
            let remote = remotes.number(outer.source);
            if remote.is_none() && !remotes.are_heard() {
                return None;
            }
            (network, remote.map(Place::Remote), frame.start)
        };
        let header: &[u8; ethernet::HEADER_LENGTH] = data.get(begin..)?.first_chunk()?;
        let (destination, source) = Station::both(header);
        Some(Member { network, from, destination, source, begin })
    }

    /// Notes to which network a frame belongs, where it is from, and where its destination is.
    #[cold]
    pub(crate) fn note_way(&self, packet: &Packet, explanation: &mut Explanation) {
        let Some(member) = self.member(packet) else { return };
        // What is behind gets other packets: with headers in front of the frame, if any.
        explanation.close();
        let Some(network) = self.networks.get(member.network) else { return };
        explanation.note("network", network.config.identifier);
        match member.from {
            Some(from) => explanation.note("from", Named(network, from)),
            None => explanation.note("from", "a tunnel end that is new"),
        }
        explanation.note("station", member.destination);
        let now = at(clock::cycles());
        let heard = packet.data().get(member.begin..).and_then(hear);
        let answered = heard.and_then(|heard| {
            network.host_to_answer_for(&heard, member.destination, member.source, member.from?, now)
        });
        if let Some((_, host)) = answered {
            explanation.note("way", format!("back: answered in the name of {}", host.station));
        } else if member.destination.is_multicast() {
            explanation.note("way", "to everybody else: the address is a group's");
        } else if let Some(to) = network.stations.find(member.destination, now) {
            explanation.note("way", Named(network, to));
        } else {
            explanation.note("way", "to everybody else: nobody knows where it is");
        }
    }

    fn let_hosts_learn(&mut self, learns: bool) {
        for hosts in self.networks.iter_mut().filter_map(|network| network.hosts.as_mut()) {
            hosts.learns = learns;
        }
    }

    fn swap_remotes(&mut self, others: &mut [(usize, Remotes)]) {
        for (number, other) in others {
            if let Some(network) = self.networks.get_mut(*number) {
                std::mem::swap(&mut network.remotes, other);
            }
        }
    }

    /// Does what is done with a burst, so that nothing is counted or learned, and no error is limited.
    #[cold]
    pub(crate) fn rehearse_burst(
        &mut self,
        burst: &mut Burst,
        outputs: &mut Outputs<'_>,
    ) -> Vec<Box<dyn Source>> {
        // A frame changes no more of the stations than the place of its sender.
        let members = burst.iter().filter_map(|packet| self.member(packet));
        let kept: Vec<_> = members
            .filter_map(|Member { network, source, .. }| {
                Some((network, source, self.networks.get(network)?.stations.keep(source)))
            })
            .collect();
        let counters = std::mem::take(&mut self.counters);
        // What has space for more stays aside: a copy has none.
        let learning = |(number, ..): &(usize, Station, Bucket)| {
            let network = self.networks.get(*number)?;
            network.remotes.are_heard().then(|| (*number, network.remotes.clone()))
        };
        let mut remotes: Vec<_> = kept.iter().filter_map(learning).collect();
        remotes.dedup_by_key(|(number, _)| *number);
        self.swap_remotes(&mut remotes);
        let memberships = self.memberships.clone();
        let memberships = std::mem::replace(&mut self.memberships, memberships);
        let limiter = self.limiter.refilled();
        let limiter = std::mem::replace(&mut self.limiter, limiter);
        self.let_hosts_learn(false);
        self.process(burst, outputs);
        self.let_hosts_learn(true);
        self.limiter = limiter;
        self.memberships = memberships;
        self.swap_remotes(&mut remotes);
        for (network, source, stations) in kept {
            if let Some(network) = self.networks.get_mut(network) {
                network.stations.restore(source, stations);
            }
        }
        let counted = std::mem::replace(&mut self.counters, counters);
        vec![Box::new(counted.view())]
    }
}

/// A place of a network, for people.
struct Named<'a>(&'a Network, Place);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(network, place) = self;
        let config = &network.config;
        match *place {
            Place::Access(access) => match config.access.get(usize::from(access)) {
                Some((port, None)) => write!(f, "port{port}"),
                Some((port, Some(vlan))) => write!(f, "port{port}, VLAN {vlan}"),
                None => write!(f, "access {access}"),
            },
            Place::Remote(remote) => match network.remotes.address(remote) {
                Some(address) => write!(f, "tunnel end {address}"),
                None => write!(f, "tunnel end {remote}"),
            },
        }
    }
}
