//! What is around a frame that is cut inside a tunnel, and becomes what is around each segment.

use super::header::Network;
use super::{Uncuttable, put, word};
use crate::checksum::Sum;
use crate::{IpProtocol, gre, udp};

/// Where the headers of a tunnel are, in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The outer network header.
    pub network: usize,
    /// What that carries: UDP with the tunnel's header behind it (VXLAN, GENEVE), GRE without a checksum or a number, or IP.
    pub transport: usize,
    /// The network header inside.
    pub inside: usize,
}

/// The headers of a tunnel that was found to be one whose datagrams can be made anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    network: Network,
    datagram: Datagram,
}

/// What the outer network header carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datagram {
    /// Its header says nothing of what is behind it.
    Constant,
    Udp,
    /// With a checksum.
    CheckedUdp,
}

impl Around {
    /// Looks at the headers of a tunnel in a frame that begins with `front`.
    pub(super) fn parse(front: &[u8], tunnel: Tunnel) -> Result<Self, Uncuttable> {
        let packet = front.get(tunnel.network..).ok_or(Uncuttable)?;
        // Its length is made anew, and may be none: the whole can be longer than a packet.
        let (network, protocol, _) = Network::parse(packet, tunnel.network, usize::MAX)?;
        if network.end != tunnel.transport {
            return Err(Uncuttable);
        }
        let header = front.get(tunnel.transport..tunnel.inside).ok_or(Uncuttable)?;
        let datagram = match protocol {
            IpProtocol::UDP if header.len() >= udp::HEADER_LENGTH => {
                if word(header, udp::CHECKSUM_OFFSET) == 0 { Datagram::Udp } else { Datagram::CheckedUdp }
            }
            IpProtocol::GRE => match gre::parse(header) {
                Ok((gre, _)) if !gre.has_checksum && !gre.has_sequence => Datagram::Constant,
                _ => return Err(Uncuttable),
            },
            IpProtocol::IPV4 | IpProtocol::IPV6 if header.is_empty() => Datagram::Constant,
            _ => return Err(Uncuttable),
        };
        Ok(Self { network, datagram })
    }

    /// Completes what is around segment `index`, whose own headers are right and end `headers`; behind them is so much payload.
    pub(super) fn write(&self, headers: &mut [u8], index: usize, payload: usize, payload_sum: Sum) {
        let start = self.network.end;
        let length = headers.len() - start + payload;
        self.network.write(headers, index, length);
        if self.datagram == Datagram::Constant {
            return;
        }
        put(headers, start + 4, length as u16);
        if self.datagram == Datagram::CheckedUdp {
            put(headers, start + udp::CHECKSUM_OFFSET, 0);
            let sum = self.network.pseudo_header(headers, IpProtocol::UDP, length);
            let checksum = sum.bytes(&headers[start..]).then(payload_sum).checksum();
            put(headers, start + udp::CHECKSUM_OFFSET, udp::sendable(checksum));
        }
    }
}
