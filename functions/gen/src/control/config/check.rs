//! From settings to what the data path works from.

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use warmlane_settings::{Fault, Located, Origin};
use warmlane_wire::{EtherType, MacAddress, TcpFlags, VlanTag};

use super::Config;
use super::settings::{
    CableSettings, FieldValue, PacketSettings, StreamSettings, TrafficSettings, VarySettings,
};
use crate::control::cable;
use crate::control::profile::{Profile, Rule, RuleOrder, RuleValues, Stream};
use crate::control::sizes::Sizes;
use crate::control::template::{Network, Template, Transport};

/// Tunnels inside each other: a frame has no more than this many checksums.
const MAXIMUM_TUNNELS: usize = 1;

type Checked<T> = Result<T, Fault<String>>;

impl TrafficSettings {
    /// What they come to; the frames that they describe were built once, so they can be sent.
    ///
    /// # Errors
    /// The first thing that is wrong, and where it was written.
    pub fn check(self) -> Result<Config, Fault<String>> {
        let mut streams = Vec::new();
        if let Some(cable) = self.cable {
            let CableSettings { modems, size } = cable.into_value();
            let modems = number(modems.as_ref(), "`modems`", 300, 1..=65_536)?;
            let sizes = match size {
                Some(sizes) => sizes.into_value(),
                None => {
                    "cable".parse::<Sizes>().map_err(|error| Fault::new(Origin::Code, error.to_string()))?
                }
            };
            streams.extend(cable::downstream(modems, &sizes).streams);
        }
        for (index, settings) in self.streams.into_iter().enumerate() {
            let origin = settings.origin().clone();
            let stream = stream(settings.into_value(), index)?;
            // What can only be found by building is found here, where the place is known.
            let profile = Profile { streams: vec![stream.clone()] };
            profile.plan().map_err(|error| Fault::new(origin, error.to_string()))?;
            streams.push(stream);
        }
        let profile = Profile { streams };
        profile.plan().map_err(|error| Fault::new(Origin::Text(0..0), error.to_string()))?;
        let rate = self.rate.map(Located::into_value);
        Ok(Config { profile, rate, pattern: self.pattern.map(Located::into_value) })
    }
}

/// A number within bounds, none of them negative, or what it is if it isn't given.
fn number(given: Option<&Located<i64>>, what: &str, usual: u32, range: RangeInclusive<u32>) -> Checked<u32> {
    let Some(given) = given else { return Ok(usual) };
    given.within(what, range).map_err(|fault| Fault::new(fault.origin, fault.problem.to_string()))
}

/// Something is wrong with a value.
fn fault<T>(value: &Located<T>, problem: impl Display) -> Fault<String> {
    value.fault(problem.to_string())
}

fn number_u16(given: Option<&Located<i64>>, what: &str, default: u16) -> Checked<u16> {
    Ok(number(given, what, default.into(), 0..=65_535)? as u16)
}

fn stream(settings: StreamSettings, index: usize) -> Checked<Stream> {
    let template = template(&settings.packet, 0)?;
    let share = number(settings.share.as_ref(), "`share`", 1, 1..=(1 << 20))?;
    let signed = settings.signature.unwrap_or(true);
    let smallest = u16::try_from(template.minimum_size(signed)).unwrap_or(u16::MAX);
    let rules = settings.vary.iter().map(rule).collect::<Result<_, _>>()?;
    Ok(Stream {
        name: settings.name.unwrap_or_else(|| format!("stream{index}")),
        share,
        template,
        sizes: settings.size.map_or_else(|| Sizes::fixed(smallest), Located::into_value),
        payload: settings.payload.map(Located::into_value).unwrap_or_default(),
        signed,
        rules,
    })
}

fn template(packet: &PacketSettings, depth: usize) -> Checked<Template> {
    // Locally administered addresses of nobody.
    let mac = |given: &Option<Located<MacAddress>>, last| {
        given.as_deref().copied().unwrap_or(MacAddress([2, 0, 0, 0, 0, last]))
    };
    let ethertype = number(packet.ethernet.ethertype.as_ref(), "`ethertype`", 0x88b5, 0x0600..=0xffff)?;
    if let Some(third) = packet.vlan.get(2) {
        return Err(fault(&third.id, "a third VLAN tag: use at most two"));
    }
    let outer_of_two = packet.vlan.len() == 2;
    let tags = packet
        .vlan
        .iter()
        .enumerate()
        .map(|(index, tag)| {
            let id = number(Some(&tag.id), "`id`", 0, 0..=4095)? as u16;
            let priority = number(tag.priority.as_ref(), "`priority`", 0, 0..=7)? as u8;
            // The outer one of two is a service tag (IEEE 802.1ad).
            let service = tag.service || (outer_of_two && index == 0);
            let tag = if service { VlanTag::service(id) } else { VlanTag::customer(id) };
            Ok(tag.with_priority(priority))
        })
        .collect::<Checked<_>>()?;
    Ok(Template {
        source: mac(&packet.ethernet.source, 1),
        destination: mac(&packet.ethernet.destination, 2),
        ethertype: EtherType(ethertype as u16),
        tags,
        network: network(packet)?,
        transport: transport(packet, depth)?,
    })
}

fn network(packet: &PacketSettings) -> Checked<Network> {
    match (&packet.ipv4, &packet.ipv6) {
        (Some(_), Some(second)) => {
            Err(fault(second, "both ipv4 and ipv6: expected one of them (tunnel the other)"))
        }
        (None, None) => Ok(Network::None),
        (Some(ipv4), None) => Ok(Network::Ipv4 {
            source: *ipv4.source,
            destination: *ipv4.destination,
            traffic_class: (number(ipv4.dscp.as_ref(), "`dscp`", 0, 0..=63)? << 2) as u8,
            ttl: number(ipv4.ttl.as_ref(), "`ttl`", 64, 0..=255)? as u8,
            identification: number_u16(ipv4.identification.as_ref(), "`identification`", 0)?,
            dont_fragment: ipv4.dont_fragment,
        }),
        (None, Some(ipv6)) => Ok(Network::Ipv6 {
            source: *ipv6.source,
            destination: *ipv6.destination,
            traffic_class: (number(ipv6.dscp.as_ref(), "`dscp`", 0, 0..=63)? << 2) as u8,
            hop_limit: number(ipv6.hop_limit.as_ref(), "`hop-limit`", 64, 0..=255)? as u8,
            flow_label: number(ipv6.flow_label.as_ref(), "`flow-label`", 0, 0..=0xf_ffff)?,
        }),
    }
}

fn transport(packet: &PacketSettings, depth: usize) -> Checked<Transport> {
    let origins = [
        packet.udp.as_ref().map(Located::origin),
        packet.tcp.as_ref().map(Located::origin),
        packet.icmp.as_ref().map(Located::origin),
        packet.vxlan.as_ref().map(Located::origin),
    ];
    let mut given = origins.into_iter().flatten();
    if let (Some(_), Some(second)) = (given.next(), given.next()) {
        let problem = "a second one of udp, tcp, icmp, vxlan: expected one of them";
        return Err(Fault::new(second.clone(), problem));
    }
    if let Some(udp) = &packet.udp {
        return Ok(Transport::Udp {
            source: number_u16(udp.source.as_ref(), "`source`", 1024)?,
            // The discard service.
            destination: number_u16(udp.destination.as_ref(), "`destination`", 9)?,
        });
    }
    if let Some(tcp) = &packet.tcp {
        return Ok(Transport::Tcp {
            source: number_u16(tcp.source.as_ref(), "`source`", 1024)?,
            destination: number_u16(tcp.destination.as_ref(), "`destination`", 9)?,
            sequence: number(tcp.sequence.as_ref(), "`sequence`", 0, 0..=u32::MAX)?,
            acknowledgement: number(tcp.acknowledgement.as_ref(), "`acknowledgement`", 0, 0..=u32::MAX)?,
            flags: tcp.flags.as_ref().map_or(Ok(TcpFlags::ACK), flags)?,
            window: number_u16(tcp.window.as_ref(), "`window`", 65_535)?,
        });
    }
    if let Some(icmp) = &packet.icmp {
        return Ok(Transport::Icmp {
            identifier: number_u16(icmp.identifier.as_ref(), "`identifier`", 1)?,
            sequence: number_u16(icmp.sequence.as_ref(), "`sequence`", 0)?,
        });
    }
    let Some(vxlan) = &packet.vxlan else { return Ok(Transport::None) };
    if depth >= MAXIMUM_TUNNELS {
        return Err(fault(vxlan, "a tunnel in a tunnel: expected at most one"));
    }
    Ok(Transport::Vxlan {
        // The range that RFC 7348 section 5 wants the source port to be from.
        source: number_u16(vxlan.source.as_ref(), "`source`", 49_152)?,
        identifier: number(Some(&vxlan.vni), "`vni`", 0, 0..=0xff_ffff)?,
        checksum: vxlan.checksum,
        inner: Box::new(template(&vxlan.inner, depth + 1)?),
    })
}

fn flags(text: &Located<String>) -> Checked<TcpFlags> {
    let mut bits = 0;
    for name in text.split(',').map(str::trim) {
        bits |= match name {
            "fin" => TcpFlags::FIN.0,
            "syn" => TcpFlags::SYN.0,
            "rst" => TcpFlags::RST.0,
            "psh" => TcpFlags::PSH.0,
            "ack" => TcpFlags::ACK.0,
            "urg" => TcpFlags::URG.0,
            "ece" => TcpFlags::ECE.0,
            "cwr" => TcpFlags::CWR.0,
            other => {
                let expected =
                    "expected names as in \"syn,ack\" out of fin, syn, rst, psh, ack, urg, ece, cwr";
                return Err(fault(text, format!("\"{other}\" is no TCP flag: {expected}")));
            }
        };
    }
    Ok(TcpFlags(bits))
}

fn rule(vary: &Located<VarySettings>) -> Checked<Rule> {
    let name = vary.order.as_ref().map_or("count", |order| order.as_str());
    let order = match name {
        "count" | "list" => RuleOrder::Turn,
        "random" => RuleOrder::Random,
        "zipf" => RuleOrder::Zipf { exponent: vary.exponent.unwrap_or(1.0) },
        other => {
            let problem = format!("\"{other}\" is no order: expected count, list, random or zipf");
            return Err(vary
                .order
                .as_ref()
                .map_or_else(|| fault(vary, &problem), |order| fault(order, &problem)));
        }
    };
    if vary.exponent.is_some() && name != "zipf" {
        return Err(fault(vary, format!("`exponent` belongs to order = \"zipf\", not to \"{name}\"")));
    }
    let values = match (&vary.values, &vary.count) {
        (Some(_), Some(count)) => {
            return Err(fault(count, "both `values` and `count`: expected one of them"));
        }
        (Some(values), None) => RuleValues::List(values.iter().map(value).collect::<Result<_, _>>()?),
        (None, _) if name == "list" => {
            return Err(fault(vary, "order \"list\" needs values, as in values = [1, 2, 3]"));
        }
        (None, None) => {
            return Err(fault(vary, "neither `count` nor `values`: expected one of them"));
        }
        (None, Some(count)) => RuleValues::Steps {
            count: number(Some(count), "`count`", 1, 1..=u32::MAX)?.into(),
            step: vary.step.unwrap_or(1),
        },
    };
    Ok(Rule { field: vary.field.clone(), values, order })
}

/// A value of a field: of IPv6 addresses the low 64 bits, of Ethernet addresses the low 32.
fn value(given: &Located<FieldValue>) -> Checked<u64> {
    let text = match &**given {
        FieldValue::Number(number) => {
            return u64::try_from(*number)
                .map_err(|_| fault(given, format!("value {number}: expected 0 or more")));
        }
        FieldValue::Text(text) => text,
    };
    let ipv4 = text.parse().map(|address: Ipv4Addr| u64::from(address.to_bits()));
    let ipv6 = text.parse().map(|address: Ipv6Addr| address.to_bits() as u64);
    let mac = text.parse().map(|MacAddress([_, _, a, b, c, d])| u64::from(u32::from_be_bytes([a, b, c, d])));
    ipv4.or(ipv6).or(mac).map_err(|_| {
        fault(given, format!("\"{text}\" is no address: expected an IPv4, IPv6 or Ethernet one, or a number"))
    })
}
