//! Asks the kernel for the route of one packet.

use std::io;
use std::net::IpAddr;

use super::decode::{answered_route, kind};
use super::event::{LinkIndex, Route};
use super::{RequestSocket, attribute};
use warmlane_table::IpPrefix;
use warmlane_wire::IpProtocol;

/// What the kernel is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteQuestion {
    /// The interface that the packet comes in by; `None`: it is the box's own.
    pub ingress: Option<LinkIndex>,
    /// Where it comes from.
    pub source: Option<IpAddr>,
    /// Where it goes to.
    pub destination: IpAddr,
    /// Its IP protocol.
    pub protocol: u8,
    /// Of TCP and UDP.
    pub ports: [u16; 2],
    /// Type of service, or traffic class.
    pub tos: u8,
}

/// Attributes and flags (`include/uapi/linux/rtnetlink.h`: `RTA_*`, `RTM_F_FIB_MATCH`).
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const INGRESS: u16 = 3;
const PROTOCOL: u16 = 27;
const SOURCE_PORT: u16 = 28;
const DESTINATION_PORT: u16 = 29;
const WHOLE_ROUTE: u32 = 0x2000;

impl RouteQuestion {
    fn body(&self, flags: u32) -> Vec<u8> {
        let family = if self.destination.is_ipv4() { 2 } else { 10 };
        let length = |address: Option<IpAddr>| match address {
            Some(IpAddr::V4(_)) => 32,
            Some(IpAddr::V6(_)) => 128,
            None => 0,
        };
        // Without the two bits of ECN, which newer kernels refuse.
        let mut body =
            vec![family, length(Some(self.destination)), length(self.source), self.tos & 0xfc, 0, 0, 0, 0];
        body.extend(flags.to_ne_bytes());
        let bytes = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        body.extend(attribute(DESTINATION, &bytes(self.destination)));
        if let Some(source) = self.source {
            body.extend(attribute(SOURCE, &bytes(source)));
        }
        if let Some(ingress) = self.ingress {
            body.extend(attribute(INGRESS, &ingress.to_ne_bytes()));
        }
        // It knows no others.
        if matches!(IpProtocol(self.protocol), IpProtocol::TCP | IpProtocol::UDP) {
            body.extend(attribute(PROTOCOL, &[self.protocol]));
            for (kind, port) in [SOURCE_PORT, DESTINATION_PORT].into_iter().zip(self.ports) {
                body.extend(attribute(kind, &port.to_be_bytes()));
            }
        }
        body
    }
}

impl RequestSocket {
    /// The route that the kernel would take for a packet: one path, also where there are several. `None`: there is none.
    ///
    /// # Errors
    /// The kernel doesn't forward such packets (by a blackhole route, say), or can't tell.
    pub fn route_of(&mut self, question: &RouteQuestion) -> io::Result<Option<(IpPrefix, Route)>> {
        Ok(self.get(kind::GET_ROUTE, &question.body(0), answered_route)?.flatten())
    }

    /// The same with all paths, and the prefix that the route has in its table.
    ///
    /// # Errors
    /// As [`route_of`](Self::route_of).
    pub fn whole_route_of(&mut self, question: &RouteQuestion) -> io::Result<Option<(IpPrefix, Route)>> {
        Ok(self.get(kind::GET_ROUTE, &question.body(WHOLE_ROUTE), answered_route)?.flatten())
    }
}
