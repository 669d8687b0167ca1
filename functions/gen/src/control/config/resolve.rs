//! From keys to typed values.

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use warmlane_wire::{EtherType, MacAddress, TcpFlags, VlanTag};

use super::{Config, Fault, PatternName, raw};
use crate::control::cable;
use crate::control::payload::Payload;
use crate::control::profile::{Profile, Rule, RuleOrder, RuleValues, Stream};
use crate::control::sizes::Sizes;
use crate::control::template::{Network, Template, Transport};

/// Tunnels inside each other: a frame has no more than this many checksums.
const MAXIMUM_TUNNELS: usize = 1;

fn fault(span: Range<usize>, problem: impl Display) -> Fault {
    Fault { span, problem: problem.to_string() }
}

pub(super) fn resolve(raw: raw::Config) -> Result<Config, Fault> {
    let rate = raw.rate.map(|text| parse(&text)).transpose()?;
    let pattern = raw.pattern.map(|text| parse::<PatternName>(&text)).transpose()?;
    let mut streams = Vec::new();
    if let Some(cable) = raw.cable {
        let span = cable.span();
        let cable = cable.into_inner();
        let modems = number(cable.modems.as_ref(), "`modems`", 300, 1, 65_536)? as u32;
        let sizes = cable.size.as_ref().map_or_else(|| parse_sizes("cable", span), sizes)?;
        streams.extend(cable::downstream(modems, &sizes).streams);
    }
    for (place, raw) in raw.streams.into_iter().enumerate() {
        let span = raw.span();
        let stream = stream(raw.into_inner(), place)?;
        // What can only be found by building is found here, where the place is known.
        Profile { streams: vec![stream.clone()] }.plan().map_err(|error| fault(span, error))?;
        streams.push(stream);
    }
    let profile = Profile { streams };
    profile.plan().map_err(|error| fault(0..0, error))?;
    Ok(Config { profile, rate, pattern })
}

fn parse<T: FromStr<Err: Display>>(text: &Spanned<String>) -> Result<T, Fault> {
    text.get_ref().parse().map_err(|error| fault(text.span(), error))
}

fn parse_sizes(text: &str, span: Range<usize>) -> Result<Sizes, Fault> {
    text.parse().map_err(|error| fault(span, error))
}

fn sizes(given: &Spanned<raw::Size>) -> Result<Sizes, Fault> {
    match given.get_ref() {
        raw::Size::Number(number) => parse_sizes(&number.to_string(), given.span()),
        raw::Size::Text(text) => parse_sizes(text, given.span()),
    }
}

/// A number within bounds, none of them negative, or what it is if it isn't given.
fn number(
    given: Option<&Spanned<i64>>,
    what: &str,
    default: i64,
    minimum: i64,
    maximum: i64,
) -> Result<u64, Fault> {
    let Some(given) = given else { return Ok(default.unsigned_abs()) };
    let value = *given.get_ref();
    if (minimum..=maximum).contains(&value) {
        Ok(value.unsigned_abs())
    } else {
        Err(fault(given.span(), format!("{what} is {value}: expected {minimum} to {maximum}")))
    }
}

fn number_u16(given: Option<&Spanned<i64>>, what: &str, default: u16) -> Result<u16, Fault> {
    Ok(number(given, what, i64::from(default), 0, 65_535)? as u16)
}

fn number_u32(given: Option<&Spanned<i64>>, what: &str) -> Result<u32, Fault> {
    Ok(number(given, what, 0, 0, i64::from(u32::MAX))? as u32)
}

fn stream(raw: raw::Stream, place: usize) -> Result<Stream, Fault> {
    let template = template(&raw.packet, 0)?;
    let share = number(raw.share.as_ref(), "`share`", 1, 1, 1 << 20)? as u32;
    let sizes = raw.size.as_ref().map_or(Ok(None), |given| sizes(given).map(Some))?;
    let signed = raw.signature.unwrap_or(true);
    let smallest = u16::try_from(template.minimum_size(signed)).unwrap_or(u16::MAX);
    let rules = raw.vary.into_iter().map(rule).collect::<Result<_, _>>()?;
    Ok(Stream {
        name: raw.name.unwrap_or_else(|| format!("stream{place}")),
        share,
        template,
        sizes: sizes.unwrap_or_else(|| Sizes::fixed(smallest)),
        payload: raw.payload.as_ref().map_or(Ok(Payload::Zeros), payload)?,
        signed,
        rules,
    })
}

fn payload(given: &Spanned<String>) -> Result<Payload, Fault> {
    let text = given.get_ref();
    let hex = |digits: &str| -> Option<Vec<u8>> {
        let nibbles: Option<Vec<u8>> =
            digits.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        let (pairs, rest) = nibbles.as_ref()?.as_chunks::<2>();
        (rest.is_empty() && !pairs.is_empty())
            .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
    };
    match text.as_str() {
        "zeros" => return Ok(Payload::Zeros),
        "ones" => return Ok(Payload::Ones),
        "counting" => return Ok(Payload::Counting),
        "random" => return Ok(Payload::Random(1)),
        _ => {}
    }
    let repeated = text
        .strip_prefix("text:")
        .filter(|text| !text.is_empty())
        .map(|text| text.as_bytes().to_vec())
        .or_else(|| text.strip_prefix("hex:").and_then(hex));
    repeated.map(Payload::Repeated).ok_or_else(|| {
        let expected =
            "expected zeros, ones, counting, random, \"text:...\" or \"hex:...\" with pairs of digits";
        fault(given.span(), format!("\"{text}\" is no payload: {expected}"))
    })
}

fn template(raw: &raw::Packet, depth: usize) -> Result<Template, Fault> {
    let mac = |given: Option<&Spanned<String>>, last| match given {
        Some(text) => parse::<MacAddress>(text),
        // Locally administered addresses of nobody.
        None => Ok(MacAddress([2, 0, 0, 0, 0, last])),
    };
    let ethertype = number(raw.ethernet.ethertype.as_ref(), "`ethertype`", 0x88b5, 0x0600, 0xffff)?;
    if let Some(third) = raw.vlan.get(2) {
        return Err(fault(third.id.span(), "a third VLAN tag: use at most two"));
    }
    let outer_of_two = raw.vlan.len() == 2;
    let tags = raw
        .vlan
        .iter()
        .enumerate()
        .map(|(place, tag)| {
            let id = number(Some(&tag.id), "`id`", 0, 0, 4095)? as u16;
            let priority = number(tag.priority.as_ref(), "`priority`", 0, 0, 7)? as u8;
            // The outer one of two is a service tag (IEEE 802.1ad).
            let service = tag.service || (outer_of_two && place == 0);
            let tag = if service { VlanTag::service(id) } else { VlanTag::customer(id) };
            Ok(tag.with_priority(priority))
        })
        .collect::<Result<_, Fault>>()?;
    Ok(Template {
        source: mac(raw.ethernet.source.as_ref(), 1)?,
        destination: mac(raw.ethernet.destination.as_ref(), 2)?,
        ethertype: EtherType(ethertype as u16),
        tags,
        network: network(raw)?,
        transport: transport(raw, depth)?,
    })
}

fn network(raw: &raw::Packet) -> Result<Network, Fault> {
    match (&raw.ipv4, &raw.ipv6) {
        (Some(_), Some(second)) => {
            Err(fault(second.span(), "both ipv4 and ipv6: expected one of them (tunnel the other)"))
        }
        (None, None) => Ok(Network::None),
        (Some(ipv4), None) => {
            let ipv4 = ipv4.get_ref();
            Ok(Network::Ipv4 {
                source: address::<Ipv4Addr>(&ipv4.source, "IPv4", "198.18.0.1")?,
                destination: address::<Ipv4Addr>(&ipv4.destination, "IPv4", "198.18.0.1")?,
                traffic_class: (number(ipv4.dscp.as_ref(), "`dscp`", 0, 0, 63)? << 2) as u8,
                ttl: number(ipv4.ttl.as_ref(), "`ttl`", 64, 0, 255)? as u8,
                identification: number_u16(ipv4.identification.as_ref(), "`identification`", 0)?,
                dont_fragment: ipv4.dont_fragment,
            })
        }
        (None, Some(ipv6)) => {
            let ipv6 = ipv6.get_ref();
            Ok(Network::Ipv6 {
                source: address::<Ipv6Addr>(&ipv6.source, "IPv6", "2001:2::1")?,
                destination: address::<Ipv6Addr>(&ipv6.destination, "IPv6", "2001:2::1")?,
                traffic_class: (number(ipv6.dscp.as_ref(), "`dscp`", 0, 0, 63)? << 2) as u8,
                hop_limit: number(ipv6.hop_limit.as_ref(), "`hop_limit`", 64, 0, 255)? as u8,
                flow_label: number(ipv6.flow_label.as_ref(), "`flow_label`", 0, 0, 0xf_ffff)? as u32,
            })
        }
    }
}

fn address<T: FromStr>(text: &Spanned<String>, family: &str, example: &str) -> Result<T, Fault> {
    text.get_ref().parse().map_err(|_| {
        let text_given = text.get_ref();
        fault(
            text.span(),
            format!("\"{text_given}\" is no {family} address: expected one as in \"{example}\""),
        )
    })
}

fn transport(raw: &raw::Packet, depth: usize) -> Result<Transport, Fault> {
    let spans = [
        raw.udp.as_ref().map(Spanned::span),
        raw.tcp.as_ref().map(Spanned::span),
        raw.icmp.as_ref().map(Spanned::span),
        raw.vxlan.as_ref().map(Spanned::span),
    ];
    let mut given = spans.into_iter().flatten();
    if let (Some(_), Some(second)) = (given.next(), given.next()) {
        return Err(fault(second, "a second one of udp, tcp, icmp, vxlan: expected one of them"));
    }
    if let Some(udp) = &raw.udp {
        let udp = udp.get_ref();
        return Ok(Transport::Udp {
            source: number_u16(udp.source.as_ref(), "`source`", 1024)?,
            // The discard service.
            destination: number_u16(udp.destination.as_ref(), "`destination`", 9)?,
        });
    }
    if let Some(tcp) = &raw.tcp {
        let tcp = tcp.get_ref();
        return Ok(Transport::Tcp {
            source: number_u16(tcp.source.as_ref(), "`source`", 1024)?,
            destination: number_u16(tcp.destination.as_ref(), "`destination`", 9)?,
            sequence: number_u32(tcp.sequence.as_ref(), "`sequence`")?,
            acknowledgement: number_u32(tcp.acknowledgement.as_ref(), "`acknowledgement`")?,
            flags: tcp.flags.as_ref().map_or(Ok(TcpFlags::ACK), flags)?,
            window: number_u16(tcp.window.as_ref(), "`window`", 65_535)?,
        });
    }
    if let Some(icmp) = &raw.icmp {
        let icmp = icmp.get_ref();
        return Ok(Transport::Icmp {
            identifier: number_u16(icmp.identifier.as_ref(), "`identifier`", 1)?,
            sequence: number_u16(icmp.sequence.as_ref(), "`sequence`", 0)?,
        });
    }
    let Some(vxlan) = &raw.vxlan else { return Ok(Transport::None) };
    if depth >= MAXIMUM_TUNNELS {
        return Err(fault(vxlan.span(), "a tunnel in a tunnel: expected at most one"));
    }
    let vxlan = vxlan.get_ref();
    Ok(Transport::Vxlan {
        // The range that RFC 7348 section 5 wants the source port to be from.
        source: number_u16(vxlan.source.as_ref(), "`source`", 49_152)?,
        identifier: number(Some(&vxlan.vni), "`vni`", 0, 0, 0xff_ffff)? as u32,
        checksum: vxlan.checksum,
        inner: Box::new(template(&vxlan.inner, depth + 1)?),
    })
}

fn flags(text: &Spanned<String>) -> Result<TcpFlags, Fault> {
    let mut bits = 0;
    for name in text.get_ref().split(',').map(str::trim) {
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
                return Err(fault(text.span(), format!("\"{other}\" is no TCP flag: {expected}")));
            }
        };
    }
    Ok(TcpFlags(bits))
}

fn rule(raw: Spanned<raw::Vary>) -> Result<Rule, Fault> {
    let span = raw.span();
    let raw = raw.into_inner();
    let name = raw.order.as_ref().map_or("count", |order| order.get_ref().as_str());
    let order = match name {
        "count" | "list" => RuleOrder::Turn,
        "random" => RuleOrder::Random,
        "zipf" => RuleOrder::Zipf { exponent: raw.exponent.unwrap_or(1.0) },
        other => {
            let span = raw.order.as_ref().map_or(span, Spanned::span);
            return Err(fault(
                span,
                format!("\"{other}\" is no order: expected count, list, random or zipf"),
            ));
        }
    };
    if raw.exponent.is_some() && name != "zipf" {
        return Err(fault(span, format!("`exponent` belongs to order = \"zipf\", not to \"{name}\"")));
    }
    let values = match (raw.values, &raw.count) {
        (Some(_), Some(count)) => {
            return Err(fault(count.span(), "both `values` and `count`: expected one of them"));
        }
        (Some(values), None) => RuleValues::List(values.iter().map(value).collect::<Result<_, _>>()?),
        (None, _) if name == "list" => {
            return Err(fault(span, "order \"list\" needs values, as in values = [1, 2, 3]"));
        }
        (None, None) => {
            return Err(fault(span, "neither `count` nor `values`: expected one of them"));
        }
        (None, Some(count)) => RuleValues::Steps {
            count: number(Some(count), "`count`", 1, 1, 1 << 32)?,
            step: raw.step.unwrap_or(1),
        },
    };
    Ok(Rule { field: raw.field, values, order })
}

/// A value of a field: of IPv6 addresses the low 64 bits, of Ethernet addresses the low 32.
fn value(given: &Spanned<raw::Value>) -> Result<u64, Fault> {
    let text = match given.get_ref() {
        raw::Value::Number(number) => {
            return u64::try_from(*number)
                .map_err(|_| fault(given.span(), format!("value {number}: expected 0 or more")));
        }
        raw::Value::Text(text) => text,
    };
    let ipv4 = text.parse().map(|address: Ipv4Addr| u64::from(address.to_bits()));
    let ipv6 = text.parse().map(|address: Ipv6Addr| address.to_bits() as u64);
    let mac = text.parse().map(|MacAddress([_, _, a, b, c, d])| u64::from(u32::from_be_bytes([a, b, c, d])));
    ipv4.or(ipv6).or(mac).map_err(|_| {
        fault(
            given.span(),
            format!("\"{text}\" is no address: expected an IPv4, IPv6 or Ethernet one, or a number"),
        )
    })
}
