//! The other tunnel ends of a network: those that were configured, or those that are heard in its group.

use std::net::IpAddr;

use warmlane_forward::control::config::OverlayConfig;
use warmlane_forward::control::{AroundFrame, Class};
use warmlane_wire::martian;

use crate::directory::Directory;
use crate::encapsulation::Encapsulation;
use crate::reason::Reason;

/// The most tunnel ends that are known by what they send.
const MOST_HEARD: usize = 1_024;

/// Steps of the search for one of them: in a table that is at most half full, more than chance makes necessary.
const MOST_STEPS: usize = 64;

/// What is in front of frames of a network to one of its tunnel ends.
pub(crate) fn around(network: &OverlayConfig, remote: IpAddr) -> AroundFrame {
    AroundFrame {
        protocol: network.protocol,
        local: network.local,
        remote,
        identifier: network.identifier,
        udp_port: network.udp_port,
        source_ports: AroundFrame::USUAL_SOURCE_PORTS,
        ttl: network.ttl,
        class: Class::Inherited,
        dont_fragment: true,
        udp_checksum: network.udp_checksum,
    }
}

#[derive(Clone)]
pub(crate) struct Remotes {
    /// The numbers of tunnel ends, by their addresses.
    ipv4: Directory<u64>,
    ipv6: Directory<u128>,
    /// What is in front of frames to each.
    encapsulations: Vec<Encapsulation>,
    addresses: Vec<IpAddr>,
    /// When each was heard last, in cycles; empty if all are configured.
    heard: Vec<u64>,
    /// Whether tunnel ends are heard that nobody has configured.
    are_heard: bool,
    /// Cycles after which one that was not heard may be forgotten. Its stations are old by then, too.
    age: u64,
    /// Until when nobody looks for such, as there was none.
    full_until: u64,
}

impl Remotes {
    pub(crate) fn new(network: &OverlayConfig, age: u64) -> Self {
        let are_heard = network.group.is_some() && network.remotes.is_empty();
        let most = if are_heard { MOST_HEARD } else { network.remotes.len() };
        let mut remotes = Self {
            ipv4: Directory::with_space_for(most),
            ipv6: Directory::with_space_for(most),
            encapsulations: Vec::with_capacity(most),
            addresses: Vec::with_capacity(most),
            heard: Vec::with_capacity(if are_heard { most } else { 0 }),
            are_heard,
            age,
            full_until: 0,
        };
        for address in &network.remotes {
            remotes.encapsulations.push(Encapsulation::new(&around(network, *address)));
            remotes.addresses.push(*address);
        }
        remotes.fill_directories();
        remotes
    }

    /// Whether tunnel ends are heard that nobody has configured.
    pub(crate) fn are_heard(&self) -> bool {
        self.are_heard
    }

    fn fill_directories(&mut self) {
        self.ipv4.clear();
        self.ipv6.clear();
        for number in 0..self.addresses.len() {
            self.insert(number);
        }
    }

    /// Has the end of this number found by its address.
    fn insert(&mut self, number: usize) {
        match self.addresses[number] {
            IpAddr::V4(address) => self.ipv4.insert(address.to_bits().into(), number as u16),
            IpAddr::V6(address) => self.ipv6.insert(address.to_bits(), number as u16),
        }
    }

    /// Whether an address would be found by few steps: who makes up addresses could choose some that would not.
    fn is_near(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.ipv4.is_near(address.to_bits().into(), MOST_STEPS),
            IpAddr::V6(address) => self.ipv6.is_near(address.to_bits(), MOST_STEPS),
        }
    }

    /// The number of a tunnel end.
    #[inline]
    pub(crate) fn number(&self, address: IpAddr) -> Option<u16> {
        match address {
            IpAddr::V4(address) => self.number_ipv4(address.to_bits()),
            IpAddr::V6(address) => self.ipv6.get(address.to_bits()),
        }
    }

    /// The number of a tunnel end with an IPv4 address.
    #[inline(always)]
    pub(crate) fn number_ipv4(&self, address: u32) -> Option<u16> {
        self.ipv4.get(address.into())
    }

    /// The address of the tunnel end of this number.
    pub(crate) fn address(&self, number: u16) -> Option<IpAddr> {
        self.addresses.get(usize::from(number)).copied()
    }

    /// What is in front of frames to the tunnel end of this number.
    #[inline]
    pub(crate) fn encapsulation(&self, number: u16) -> &Encapsulation {
        &self.encapsulations[usize::from(number)]
    }

    /// A frame came from the tunnel end of this number.
    #[inline]
    pub(crate) fn note(&mut self, number: u16, now: u64) {
        if let Some(heard) = self.heard.get_mut(usize::from(number)) {
            *heard = now;
        }
    }

    /// The number of a tunnel end that has sent something right, known or not.
    ///
    /// # Errors
    /// Only the configured ones count, nobody can have this address, or there is no space for another.
    pub(crate) fn hear(&mut self, address: IpAddr, network: &OverlayConfig, now: u64) -> Result<u16, Reason> {
        if let Some(known) = self.number(address) {
            return Ok(known);
        }
        if !self.are_heard || !can_be_reached(address) {
            return Err(Reason::UnknownRemote);
        }
        if !self.is_near(address) {
            return Err(Reason::TooManyRemotes);
        }
        let around = || Encapsulation::new(&around(network, address));
        let number = self.addresses.len();
        if number < MOST_HEARD {
            self.addresses.push(address);
            self.encapsulations.push(around());
            self.heard.push(now);
            self.insert(number);
            return Ok(number as u16);
        }
        if now < self.full_until {
            return Err(Reason::TooManyRemotes);
        }
        let is_old = |heard: &u64| now.saturating_sub(*heard) > self.age;
        let Some(old) = self.heard.iter().position(is_old) else {
            // Not for each packet of who makes up addresses.
            self.full_until = now.saturating_add(self.age / 16);
            return Err(Reason::TooManyRemotes);
        };
        self.addresses[old] = address;
        self.encapsulations[old] = around();
        self.heard[old] = now;
        self.fill_directories();
        Ok(old as u16)
    }
}

/// Whether packets can be sent there.
fn can_be_reached(address: IpAddr) -> bool {
    !match address {
        IpAddr::V4(address) => {
            martian::ipv4_source_is_martian(address) || martian::ipv4_stays_on_link(address)
        }
        IpAddr::V6(address) => {
            martian::ipv6_source_is_martian(address) || martian::ipv6_stays_on_link(address)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use warmlane_forward::control::config::GroupConfig;

    fn network(remotes: Vec<IpAddr>) -> OverlayConfig {
        let group =
            Some(GroupConfig { address: [239, 1, 1, 1].into(), port: 0, source: [192, 0, 2, 1].into() });
        OverlayConfig { remotes, group, ..crate::tests::network(false) }
    }

    fn end(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xc000_0202 + number).into()
    }

    #[test]
    fn ends_are_heard_and_forgotten_for_others_once_they_are_old() {
        let network = network(Vec::new());
        let mut remotes = Remotes::new(&network, 1_600);
        for number in 0..MOST_HEARD as u16 {
            assert_eq!(remotes.hear(end(number.into()), &network, 100), Ok(number));
        }
        assert_eq!(remotes.hear(end(7), &network, 100), Ok(7));
        let another = end(5_000);
        let full = Err(Reason::TooManyRemotes);
        assert_eq!(remotes.hear(another, &network, 200), full);
        for number in (0..MOST_HEARD as u16).filter(|number| *number != 5) {
            remotes.note(number, 1_500);
        }
        // Nobody looks again for a sixteenth of the age; then end 5 is old.
        assert_eq!(remotes.hear(another, &network, 299), full);
        assert_eq!(remotes.hear(another, &network, 1_700), full);
        assert_eq!(remotes.hear(another, &network, 1_801), Ok(5));
        assert_eq!((remotes.number(end(5)), remotes.number(end(6))), (None, Some(6)));
        assert_eq!(remotes.address(5), Some(another));
    }

    #[test]
    fn nobody_is_heard_who_cannot_be_reached() {
        let network = network(Vec::new());
        let mut remotes = Remotes::new(&network, 1_600);
        for address in
            ["0.0.0.0", "127.0.0.1", "239.1.1.1", "255.255.255.255", "169.254.0.1", "::", "fe80::1"]
        {
            let heard = remotes.hear(address.parse().unwrap(), &network, 1);
            assert_eq!(heard, Err(Reason::UnknownRemote), "{address}");
        }
    }

    #[test]
    fn configured_ends_are_all_there_are() {
        let network = network(vec![end(0)]);
        let mut remotes = Remotes::new(&network, 1_600);
        assert_eq!(remotes.hear(end(0), &network, 1), Ok(0));
        assert_eq!(remotes.hear(end(1), &network, 1), Err(Reason::UnknownRemote));
    }

    #[test]
    fn addresses_that_are_made_up_to_be_found_slowly_are_refused() {
        let network = network(Vec::new());
        let mut remotes = Remotes::new(&network, 1_600);
        // All that begin their search where the first one does.
        let mut only = Directory::<u64>::with_space_for(MOST_HEARD);
        only.insert(0xc000_0202, 0);
        let mut heard = 0;
        for address in (0xc000_0203_u32..0xc400_0000).filter(|bits| !only.is_near((*bits).into(), 1)) {
            match remotes.hear(Ipv4Addr::from_bits(address).into(), &network, 1) {
                Ok(_) => heard += 1,
                Err(reason) => {
                    assert_eq!((reason, heard), (Reason::TooManyRemotes, MOST_STEPS));
                    return;
                }
            }
        }
        panic!("{heard} were heard");
    }
}
