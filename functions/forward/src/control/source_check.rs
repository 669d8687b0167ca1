//! Unicast reverse path forwarding (RFC 3704): whether a packet may come from where it says that it does.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use warmlane_table::NextHopId;

use super::hops::Hops;
use super::next_hop::NextHop;
use super::tunnel::Tunnel;

/// How the sources of an interface's packets are checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceCheck {
    /// Not at all.
    #[default]
    Off,
    /// The source must not lead to us, nor to all stations on a link.
    Foreign,
    /// There must be a route to the source, be it the default route, that leads somewhere (RFC 3704 section 2.4).
    Loose,
    /// The route to the source, or one of its equal paths, must lead out of the interface that the packet came in by
    /// (RFC 3704 section 2.2).
    Strict,
}

/// How the sources of the packets of one interface are checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InterfaceCheck {
    /// Of IPv4.
    pub ipv4: SourceCheck,
    /// Of IPv6.
    pub ipv6: SourceCheck,
    /// IPv4 packets may come from an address of ours.
    pub accepts_own: bool,
}

impl InterfaceCheck {
    /// Whether sources are looked up.
    pub(crate) fn looks_up(self) -> bool {
        self.ipv4 != SourceCheck::Off || self.ipv6 != SourceCheck::Off
    }
}

impl From<SourceCheck> for InterfaceCheck {
    fn from(both: SourceCheck) -> Self {
        Self { ipv4: both, ipv6: both, accepts_own: false }
    }
}

/// Not one of the modes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no mode of reverse path checks: say strict, loose or off")]
pub struct SourceCheckError {
    /// What was said.
    pub text: String,
}

impl FromStr for SourceCheck {
    type Err = SourceCheckError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "loose" => Ok(Self::Loose),
            "strict" => Ok(Self::Strict),
            _ => Err(SourceCheckError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for SourceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Foreign => "foreign",
            Self::Loose => "loose",
            Self::Strict => "strict",
        })
    }
}

impl Hops {
    /// Whether a packet may come in by this port and VLAN from a source that the table leads to this next hop for.
    pub(crate) fn accepts_source(
        &self,
        check: SourceCheck,
        way_back: NextHopId,
        port: u16,
        vlan: Option<u16>,
    ) -> bool {
        if check == SourceCheck::Foreign {
            let is_ours =
                |hop| matches!(hop, &(NextHop::Local | NextHop::LocalPunt | NextHop::DirectedBroadcast));
            return !self.next_hop(way_back).is_some_and(is_ours);
        }
        let leads = |hop: &NextHop| match hop {
            NextHop::Forward(to) | NextHop::Tunnel(Tunnel { inner: to, .. }) => {
                check == SourceCheck::Loose || (to.port, to.vlan) == (port, vlan)
            }
            NextHop::PuntBy(by) => check == SourceCheck::Loose || (*by, None) == (port, vlan),
            NextHop::Unresolved(whom) => {
                check == SourceCheck::Loose || (whom.port, whom.vlan) == (port, vlan)
            }
            // Out of interfaces that others forward by: so it is not the one that the packet came in by.
            NextHop::Punt | NextHop::NoNeighbour => check == SourceCheck::Loose,
            // Nobody else has an address of ours, and what leads nowhere is not wanted from there either (RFC 5635
            // section 4).
            NextHop::Local
            | NextHop::LocalPunt
            | NextHop::DirectedBroadcast
            | NextHop::Drop
            | NextHop::Unreachable
            | NextHop::Prohibited
            | NextHop::Group(_) => false,
        };
        check == SourceCheck::Off
            || match self.next_hop(way_back) {
                None => false,
                // Any of the equal paths will do: which one the source's own router chose can't be known.
                Some(NextHop::Group(group)) => {
                    group.buckets().iter().filter_map(|&member| self.next_hop(member)).any(leads)
                }
                Some(plain) => leads(plain),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::groups::{Group, Member};
    use crate::control::{Adjacency, Unresolved};
    use warmlane_wire::MacAddress;

    fn forward(port: u16, vlan: Option<u16>) -> NextHop {
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        NextHop::Forward(Adjacency { destination: mac, source: mac, port, mtu: 1500, vlan })
    }

    #[test]
    fn what_leads_back_and_what_does_not() {
        let id = |number| NextHopId::new(number).unwrap();
        let member = |hop| Member { hop, weight: 1 };
        let group = Group::new(&[member(id(0)), member(id(1))]).unwrap();
        let gateway = Some("192.0.2.9".parse().unwrap());
        let hops = vec![
            forward(0, None),
            forward(1, Some(7)),
            NextHop::Group(group),
            NextHop::Unresolved(Unresolved { link: 9, gateway, port: 2, vlan: None }),
            NextHop::Punt,
            NextHop::LocalPunt,
            NextHop::Drop,
            NextHop::Prohibited,
            NextHop::Unreachable,
            NextHop::DirectedBroadcast,
        ];
        let hops = Hops::new(Vec::new(), hops, 0);
        let strict = |number, port, vlan| hops.accepts_source(SourceCheck::Strict, id(number), port, vlan);
        assert!(strict(0, 0, None) && !strict(0, 1, None) && !strict(0, 0, Some(7)));
        assert!(strict(1, 1, Some(7)) && !strict(1, 1, None));
        assert!(strict(2, 0, None) && strict(2, 1, Some(7)) && !strict(2, 2, None));
        assert!(strict(3, 2, None) && !strict(3, 0, None));
        for number in 0..10 {
            let loose = hops.accepts_source(SourceCheck::Loose, id(number), 3, None);
            assert_eq!(loose, number < 5, "{number}");
            assert!(hops.accepts_source(SourceCheck::Off, id(number), 3, None));
            assert!(!strict(number, 3, None));
        }
        assert!(!hops.accepts_source(SourceCheck::Loose, NextHopId::NONE, 0, None));
    }

    #[test]
    fn modes_have_names() {
        for mode in [SourceCheck::Off, SourceCheck::Loose, SourceCheck::Strict] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "stritc".parse::<SourceCheck>().unwrap_err().to_string();
        assert!(error.contains("stritc") && error.contains("strict, loose or off"), "{error}");
    }
}
