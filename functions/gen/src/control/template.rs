//! Packets described by protocol: from the description to bytes, and to where fields and checksums are in them.

use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;
use warmlane_wire::builder::{BuildError, Frame};
use warmlane_wire::{
    EtherType, Icmpv4Message, Icmpv6Message, Ipv4Fields, Ipv6Fields, MacAddress, TcpFields, TcpFlags, VlanTag,
};
use warmlane_wire::{ethernet, icmpv4, ipv4, ipv6, tcp, udp, vlan, vxlan};

use super::payload::Payload;
use crate::datapath::signature;

/// Bytes of the frame check sequence, which sizes count and buffers don't hold.
pub const FCS: usize = 4;

/// A packet, outermost layer first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Where the frame comes from.
    pub source: MacAddress,
    /// Where it goes.
    pub destination: MacAddress,
    /// Its EtherType, if there is no IP header.
    pub ethertype: EtherType,
    /// VLAN tags, outer one first; at most two.
    pub tags: Vec<VlanTag>,
    /// What the frame carries.
    pub network: Network,
    /// What the IP packet carries.
    pub transport: Transport,
}

/// The layer over Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// The payload.
    None,
    /// IPv4 without options.
    Ipv4 {
        /// Where from.
        source: Ipv4Addr,
        /// Where to.
        destination: Ipv4Addr,
        /// Differentiated services code point and congestion bits.
        traffic_class: u8,
        /// Time to live.
        ttl: u8,
        /// Identification.
        identification: u16,
        /// Whether routers must not cut it.
        dont_fragment: bool,
    },
    /// IPv6 without extension headers.
    Ipv6 {
        /// Where from.
        source: Ipv6Addr,
        /// Where to.
        destination: Ipv6Addr,
        /// Differentiated services code point and congestion bits.
        traffic_class: u8,
        /// Hop limit.
        hop_limit: u8,
        /// Flow label, 20 bits.
        flow_label: u32,
    },
}

/// The layer over IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// The payload.
    None,
    /// UDP.
    Udp {
        /// Port from.
        source: u16,
        /// Port to.
        destination: u16,
    },
    /// TCP: segments of no connection.
    Tcp {
        /// Port from.
        source: u16,
        /// Port to.
        destination: u16,
        /// Sequence number.
        sequence: u32,
        /// Acknowledged number.
        acknowledgement: u32,
        /// Control bits.
        flags: TcpFlags,
        /// Window.
        window: u16,
    },
    /// An echo request of ICMP or ICMPv6.
    Icmp {
        /// Identifier.
        identifier: u16,
        /// Sequence number.
        sequence: u16,
    },
    /// UDP with a VXLAN header and another frame.
    Vxlan {
        /// Port from.
        source: u16,
        /// Network identifier, 24 bits.
        identifier: u32,
        /// Whether the outer UDP checksum is computed; RFC 7348 section 5 has it zero.
        checksum: bool,
        /// The frame inside.
        inner: Box<Template>,
    },
}

/// Why a template gives no frame.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The headers, and the signature if there is one, need more.
    #[error(
        "a frame of {size} bytes is too small: headers take {headers}, {signature}the frame check sequence 4; use {needed} or more{remedy}"
    )]
    TooSmall {
        /// The size asked for, with frame check sequence.
        size: usize,
        /// Bytes of the headers.
        headers: usize,
        /// What is said of the signature.
        signature: &'static str,
        /// The smallest size, with frame check sequence.
        needed: usize,
        /// Another way out.
        remedy: &'static str,
    },
    /// The layers don't fit together.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The template has no such field.
    #[error("there is no field \"{name}\" in this packet: it has {known}")]
    UnknownField {
        /// The name given.
        name: String,
        /// What there is.
        known: String,
    },
}

/// Where a field is: `bits` bits in a big-endian word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, as in `ipv4.source` or `inner.udp.destination`.
    pub name: String,
    /// Where the word starts, in bytes from the frame's start.
    pub offset: usize,
    /// Bytes of the word: 2, 4 or 8.
    pub bytes: usize,
    /// How far the field is from the word's low end.
    pub shift: u32,
    /// Its width.
    pub bits: u32,
    /// How often each of the template's checksums takes the field in; negative if it takes it out.
    pub coverage: Vec<i8>,
}

/// Where a checksum is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumField {
    /// Offset from the frame's start, in bytes.
    pub offset: usize,
    /// It is UDP's, where 0 means "none" and is sent as its other form.
    pub is_udp: bool,
}

impl Template {
    /// Bytes in front of the innermost payload.
    pub fn header_length(&self) -> usize {
        let above = match &self.transport {
            Transport::None => 0,
            Transport::Udp { .. } => udp::HEADER_LENGTH,
            Transport::Tcp { .. } => tcp::HEADER_LENGTH,
            Transport::Icmp { .. } => icmpv4::HEADER_LENGTH,
            Transport::Vxlan { inner, .. } => {
                udp::HEADER_LENGTH + vxlan::HEADER_LENGTH + inner.header_length()
            }
        };
        self.transport_offset() + above
    }

    fn network_offset(&self) -> usize {
        ethernet::HEADER_LENGTH + vlan::TAG_LENGTH * self.tags.len()
    }

    fn transport_offset(&self) -> usize {
        let network = match &self.network {
            Network::None => 0,
            Network::Ipv4 { .. } => ipv4::HEADER_LENGTH,
            Network::Ipv6 { .. } => ipv6::HEADER_LENGTH,
        };
        self.network_offset() + network
    }

    /// The smallest size of a frame, with frame check sequence.
    pub fn minimum_size(&self, signed: bool) -> usize {
        let signature = if signed { signature::LENGTH } else { 0 };
        (self.header_length() + signature).max(ethernet::MINIMUM_FRAME) + FCS
    }

    /// The frame of `size` bytes (the frame check sequence counted, though it isn't there) with this payload, which
    /// ends in `signature` if there is one.
    ///
    /// # Errors
    /// [`TemplateError`], if it is too small or the layers don't fit.
    pub fn build(
        &self,
        size: usize,
        payload: &Payload,
        signature: Option<[u8; signature::LENGTH]>,
    ) -> Result<Vec<u8>, TemplateError> {
        let headers = self.header_length();
        let needed = self.minimum_size(signature.is_some());
        if size < needed {
            let (said, remedy) = match signature {
                Some(_) => ("the signature 16, ", ", or send without a signature"),
                None => ("", ""),
            };
            return Err(TemplateError::TooSmall { size, headers, signature: said, needed, remedy });
        }
        let mut data = payload.bytes(size - FCS - headers);
        if let Some(signature) = signature
            && let Some(end) = data.last_chunk_mut()
        {
            *end = signature;
        }
        self.build_around(&data)
    }

    fn build_around(&self, data: &[u8]) -> Result<Vec<u8>, TemplateError> {
        let mut frame = Frame::new().ethernet(self.destination, self.source).ethertype(self.ethertype);
        for tag in &self.tags {
            frame = frame.vlan(*tag);
        }
        frame = match self.network {
            Network::None => frame,
            Network::Ipv4 { source, destination, traffic_class, ttl, identification, dont_fragment } => frame
                .ipv4(Ipv4Fields {
                    traffic_class,
                    ttl,
                    identification,
                    dont_fragment,
                    ..Ipv4Fields::new(source, destination)
                }),
            Network::Ipv6 { source, destination, traffic_class, hop_limit, flow_label } => {
                frame.ipv6(Ipv6Fields {
                    traffic_class,
                    hop_limit,
                    flow_label,
                    ..Ipv6Fields::new(source, destination)
                })
            }
        };
        let bytes = match &self.transport {
            Transport::None => frame.payload(data).to_vec()?,
            Transport::Udp { source, destination } => {
                frame.udp(*source, *destination).payload(data).to_vec()?
            }
            &Transport::Tcp { source, destination, sequence, acknowledgement, flags, window } => {
                let fields = TcpFields {
                    source_port: source,
                    destination_port: destination,
                    sequence,
                    acknowledgement,
                    flags,
                    window,
                    ..TcpFields::default()
                };
                frame.tcp(fields).payload(data).to_vec()?
            }
            &Transport::Icmp { identifier, sequence } => match self.network {
                Network::Ipv6 { .. } => frame
                    .icmpv6(Icmpv6Message::EchoRequest { identifier, sequence })
                    .payload(data)
                    .to_vec()?,
                _ => frame
                    .icmpv4(Icmpv4Message::EchoRequest { identifier, sequence })
                    .payload(data)
                    .to_vec()?,
            },
            Transport::Vxlan { source, identifier, checksum, inner } => {
                let inside = inner.build_around(data)?;
                let data = [&vxlan::header(*identifier)[..], &inside].concat();
                let mut bytes = frame.udp(*source, vxlan::PORT).payload(&data).to_vec()?;
                let offset = self.transport_offset() + udp::CHECKSUM_OFFSET;
                if !checksum && let Some(field) = bytes.get_mut(offset..offset + 2) {
                    field.fill(0);
                }
                bytes
            }
        };
        Ok(bytes)
    }

    /// The checksums that a frame of this template has, outermost first.
    pub fn checksums(&self) -> Vec<ChecksumField> {
        let mut checksums = Vec::new();
        self.add_checksums(0, &mut checksums);
        checksums
    }

    fn add_checksums(&self, start: usize, checksums: &mut Vec<ChecksumField>) {
        let (network, transport) = (start + self.network_offset(), start + self.transport_offset());
        if let Network::Ipv4 { .. } = self.network {
            checksums.push(ChecksumField { offset: network + 10, is_udp: false });
        }
        let sum = |offset| ChecksumField { offset: transport + offset, is_udp: false };
        let udp = ChecksumField { is_udp: true, ..sum(udp::CHECKSUM_OFFSET) };
        match &self.transport {
            Transport::None => {}
            Transport::Udp { .. } => checksums.push(udp),
            Transport::Tcp { .. } => checksums.push(sum(tcp::CHECKSUM_OFFSET)),
            Transport::Icmp { .. } => checksums.push(sum(2)),
            Transport::Vxlan { checksum, inner, .. } => {
                if *checksum {
                    checksums.push(udp);
                }
                let start = transport + udp::HEADER_LENGTH + vxlan::HEADER_LENGTH;
                inner.add_checksums(start, checksums);
            }
        }
    }

    /// The fields that can be varied.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        self.add_fields("", 0, &mut Vec::new(), 0, &mut fields);
        let checksums = self.checksums().len();
        for field in &mut fields {
            field.coverage.resize(checksums, 0);
        }
        fields
    }

    /// The field of this name.
    ///
    /// # Errors
    /// [`TemplateError::UnknownField`] lists those that there are.
    pub fn field(&self, name: &str) -> Result<Field, TemplateError> {
        let fields = self.fields();
        let known: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
        fields
            .into_iter()
            .find(|field| field.name == name)
            .ok_or_else(|| TemplateError::UnknownField { name: name.to_owned(), known: known.join(", ") })
    }

    /// `outer` are the numbers of the tunnels' checksums around this template, `first` is the number of its own first.
    fn add_fields(
        &self,
        prefix: &str,
        start: usize,
        outer: &mut Vec<usize>,
        first: usize,
        fields: &mut Vec<Field>,
    ) {
        let (network, transport) = (start + self.network_offset(), start + self.transport_offset());
        let has_header_checksum = matches!(self.network, Network::Ipv4 { .. });
        let header: &[usize] = if has_header_checksum { &[first] } else { &[] };
        let second = first + header.len();
        let (upper, next): (&[usize], usize) = match &self.transport {
            Transport::None | Transport::Vxlan { checksum: false, .. } => (&[], second),
            _ => (&[second], second + 1),
        };
        // ICMP for IPv4 has no pseudo header, so its checksum doesn't know the addresses.
        let is_icmpv4 = has_header_checksum && matches!(self.transport, Transport::Icmp { .. });
        let pseudo = if is_icmpv4 { &[] } else { upper };
        let addresses = [header, pseudo].concat();
        let mut add = |name: &str, offset: usize, bytes: usize, shift: u32, bits: u32, within: &[usize]| {
            let mut coverage = vec![0; next];
            for &number in within {
                coverage[number] += 1;
            }
            // A tunnel's checksum sees the field, and sees each checksum inside change by as much the other way.
            for &number in outer.iter() {
                coverage[number] += 1 - within.len() as i8;
            }
            let name = format!("{prefix}{name}");
            fields.push(Field { name, offset, bytes, shift, bits, coverage });
        };

        add("ethernet.destination", start + 2, 4, 0, 32, &[]);
        add("ethernet.source", start + 8, 4, 0, 32, &[]);
        for (number, _) in self.tags.iter().enumerate() {
            let name = if number == 0 { "vlan" } else { "vlan2" };
            let offset = start + ethernet::HEADER_LENGTH + vlan::TAG_LENGTH * number;
            add(&format!("{name}.id"), offset, 2, 0, 12, &[]);
            add(&format!("{name}.priority"), offset, 2, 13, 3, &[]);
        }
        match self.network {
            Network::None => {}
            Network::Ipv4 { .. } => {
                add("ipv4.source", network + 12, 4, 0, 32, &addresses);
                add("ipv4.destination", network + 16, 4, 0, 32, &addresses);
                add("ipv4.dscp", network, 2, 2, 6, header);
                add("ipv4.identification", network + 4, 2, 0, 16, header);
                add("ipv4.ttl", network + 8, 2, 8, 8, header);
            }
            Network::Ipv6 { .. } => {
                add("ipv6.source", network + 16, 8, 0, 64, pseudo);
                add("ipv6.destination", network + 32, 8, 0, 64, pseudo);
                add("ipv6.flow-label", network, 4, 0, 20, &[]);
                add("ipv6.hop-limit", network + 6, 2, 0, 8, &[]);
            }
        }
        match &self.transport {
            Transport::None => {}
            Transport::Udp { .. } => {
                add("udp.source", transport, 2, 0, 16, upper);
                add("udp.destination", transport + 2, 2, 0, 16, upper);
            }
            Transport::Tcp { .. } => {
                add("tcp.source", transport, 2, 0, 16, upper);
                add("tcp.destination", transport + 2, 2, 0, 16, upper);
                add("tcp.sequence", transport + 4, 4, 0, 32, upper);
                add("tcp.acknowledgement", transport + 8, 4, 0, 32, upper);
                add("tcp.window", transport + 14, 2, 0, 16, upper);
            }
            Transport::Icmp { .. } => {
                add("icmp.identifier", transport + 4, 2, 0, 16, upper);
                add("icmp.sequence", transport + 6, 2, 0, 16, upper);
            }
            Transport::Vxlan { inner, .. } => {
                add("udp.source", transport, 2, 0, 16, upper);
                let header = transport + udp::HEADER_LENGTH;
                add("vxlan.vni", header + 4, 4, 8, 24, upper);
                outer.extend(upper);
                let start = header + vxlan::HEADER_LENGTH;
                inner.add_fields(&format!("{prefix}inner."), start, outer, next, fields);
            }
        }
    }
}
