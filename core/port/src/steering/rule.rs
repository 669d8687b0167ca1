//! What rules say, and which packets they are about.

use thiserror::Error;
use warmlane_table::IpPrefix;
use warmlane_wire::{IpProtocol, geneve, vxlan};

use super::MOST_QUEUES;
use super::headers::{Headers, Mask};
use crate::port::MacBytes;

/// Which packets a rule is about: those that have all of what is said here. Addresses, protocol and ports are those of the outermost IP header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// The Ethernet address that the frame goes to.
    pub mac: Option<MacBytes>,
    /// The transport protocol.
    pub protocol: Option<IpProtocol>,
    /// Where the packet comes from.
    pub source: Option<IpPrefix>,
    /// Where it goes.
    pub destination: Option<IpPrefix>,
    /// The port that it comes from, of TCP, UDP or SCTP. Fragments have no ports.
    pub source_port: Option<u16>,
    /// The port that it goes to.
    pub destination_port: Option<u16>,
    /// The network identifier of VXLAN or GENEVE (at their usual UDP ports), 24 bits.
    pub vni: Option<u32>,
}

/// What becomes of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They are dropped.
    Drop,
    /// They are received.
    Receive {
        /// By this queue. Without one they go where they would without rules.
        queue: Option<u16>,
        /// With this [mark](warmlane_mem::Packet::mark).
        mark: Option<u32>,
    },
}

/// A rule of a port. Of several that fit a packet the first counts, for everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which packets.
    pub of: Match,
    /// What becomes of them.
    pub action: Action,
}

/// Why a rule can't be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RuleError {
    /// It says nothing about packets.
    #[error(
        "the rule says nothing of which packets it is about: give it an address, a protocol, a port or a network identifier"
    )]
    Empty,
    /// It wants neither a queue nor a mark, nor to drop.
    #[error("the rule does nothing: give it a queue or a mark, or let it drop")]
    Idle,
    /// An IPv4 and an IPv6 prefix.
    #[error("no packet goes from {from} to {to}: give two prefixes of the same version of IP")]
    Families {
        /// Where packets would come from.
        from: IpPrefix,
        /// Where they would go.
        to: IpPrefix,
    },
    /// Ports of a protocol that has none.
    #[error("{protocol} has no ports: give TCP, UDP or SCTP, or leave the ports out")]
    Ports {
        /// The protocol.
        protocol: IpProtocol,
    },
    /// A network identifier of another protocol than UDP.
    #[error("network identifiers are in UDP, not in {protocol}: leave the protocol out, or the identifier")]
    VniProtocol {
        /// The protocol.
        protocol: IpProtocol,
    },
    /// A network identifier at another port than those where it is looked for.
    #[error(
        "network identifiers are looked for in datagrams to ports 4789 and 6081, not to {port}: leave the port out, or the identifier"
    )]
    VniPort {
        /// The port.
        port: u16,
    },
    /// A network identifier beyond 24 bits.
    #[error("the network identifier {vni} is too large: it has 24 bits, up to 16777215")]
    Vni {
        /// What it would be.
        vni: u32,
    },
    /// No such queue.
    #[error("there is no queue {queue}: they are numbered from 0, and there are {queues}, one for each lane")]
    Queue {
        /// The queue.
        queue: u16,
        /// How many there are.
        queues: usize,
    },
}

impl Rule {
    /// Whether the rule can be, where there are so many queues.
    ///
    /// # Errors
    /// [`RuleError`].
    pub fn check(&self, queues: usize) -> Result<(), RuleError> {
        let Match { protocol, source, destination, vni, .. } = self.of;
        if self.of == Match::default() {
            return Err(RuleError::Empty);
        }
        if let (Some(from), Some(to)) = (source, destination)
            && matches!((from, to), (IpPrefix::V4(_), IpPrefix::V6(_)) | (IpPrefix::V6(_), IpPrefix::V4(_)))
        {
            return Err(RuleError::Families { from, to });
        }
        let has_ports = self.of.source_port.or(self.of.destination_port).is_some();
        if let Some(protocol) = protocol {
            if has_ports && !matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP) {
                return Err(RuleError::Ports { protocol });
            }
            if vni.is_some() && protocol != IpProtocol::UDP {
                return Err(RuleError::VniProtocol { protocol });
            }
        }
        if let Some(vni) = vni.filter(|vni| *vni >= 1 << 24) {
            return Err(RuleError::Vni { vni });
        }
        if let (Some(_), Some(port)) = (vni, self.of.destination_port)
            && ![vxlan::PORT, geneve::PORT].contains(&port)
        {
            return Err(RuleError::VniPort { port });
        }
        match self.action {
            Action::Receive { queue: None, mark: None } => Err(RuleError::Idle),
            Action::Receive { queue: Some(queue), .. } if usize::from(queue) >= queues.min(MOST_QUEUES) => {
                Err(RuleError::Queue { queue, queues })
            }
            Action::Receive { .. } | Action::Drop => Ok(()),
        }
    }
}

impl Match {
    /// The bits of headers that count, and what they have to be.
    pub(super) fn bits(&self) -> (Mask, Headers) {
        let (mut mask, mut wanted) = (Mask::default(), Headers::default());
        if let Some(mac) = self.mac {
            mask.set_mac([0xff; 6]);
            wanted.set_mac(mac);
        }
        if let Some(protocol) = self.protocol {
            mask.set_protocol(0xff);
            wanted.set_protocol(protocol.0);
        }
        for (prefix, is_source) in [(self.source, true), (self.destination, false)] {
            let Some(prefix) = prefix else { continue };
            let (address, length) = match prefix {
                IpPrefix::V4(prefix) => {
                    (prefix.address().to_ipv6_mapped().to_bits(), u32::from(prefix.length()) + 96)
                }
                IpPrefix::V6(prefix) => (prefix.address().to_bits(), u32::from(prefix.length())),
            };
            let bits = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            mask.set_address(is_source, bits);
            wanted.set_address(is_source, address);
            // Else `::/0` would be about IPv4, too.
            mask.set_version(0xf);
            wanted.set_version(if matches!(prefix, IpPrefix::V4(_)) { 4 } else { 6 });
        }
        for (port, is_source) in [(self.source_port, true), (self.destination_port, false)] {
            let Some(port) = port else { continue };
            mask.set_port(is_source, u16::MAX);
            wanted.set_port(is_source, port);
            mask.set_has_ports();
            wanted.set_has_ports();
        }
        if let Some(vni) = self.vni {
            mask.set_vni(0xff_ffff);
            wanted.set_vni(vni);
        }
        (mask, wanted)
    }
}
