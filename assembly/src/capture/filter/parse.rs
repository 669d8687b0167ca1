//! From text to tests. `and` and `or` bind alike and from left to right, `not` binds closest, as pcap-filter(7) says.

use super::facts::{ARP, IPV4, IPV6, RARP};
use super::{Comparison, Expression, Side, Test};
use std::net::IpAddr;
use thiserror::Error;

/// The longest text.
const LONGEST: usize = 2048;
/// How deep parentheses go.
const DEEPEST: usize = 32;
/// VLANs there are (IEEE 802.1Q).
const VLANS: u16 = 4096;

/// Why a filter isn't understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// There is too much of it.
    #[error("the filter is too long: at most {LONGEST} bytes, and {DEEPEST} parentheses in each other")]
    TooLong,
    /// Something is missing at its end.
    #[error("the filter ends where {expected} is expected")]
    Incomplete {
        /// What is expected.
        expected: &'static str,
    },
    /// Something else stands there.
    #[error("the filter has '{found}' where {expected} is expected")]
    Unexpected {
        /// What stands there.
        found: String,
        /// What is expected.
        expected: &'static str,
    },
}

/// What stands in front of an address or a number, and is taken over where there is none (`port 80 or 443`).
#[derive(Clone, Copy, Default)]
struct Qualifiers {
    protocol: Option<Protocol>,
    side: Option<Side>,
    kind: Option<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Ether,
    /// By the type of frames.
    Type(u16),
    /// By the number in IP, and in which version.
    Ip(Option<u16>, u8),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

const PROTOCOLS: [(&str, Protocol); 10] = [
    ("ether", Protocol::Ether),
    ("ip", Protocol::Type(IPV4)),
    ("ip6", Protocol::Type(IPV6)),
    ("arp", Protocol::Type(ARP)),
    ("rarp", Protocol::Type(RARP)),
    ("tcp", Protocol::Ip(None, 6)),
    ("udp", Protocol::Ip(None, 17)),
    ("sctp", Protocol::Ip(None, 132)),
    ("icmp", Protocol::Ip(Some(IPV4), 1)),
    ("icmp6", Protocol::Ip(Some(IPV6), 58)),
];

const KINDS: [(&str, Kind); 5] = [
    ("host", Kind::Host),
    ("net", Kind::Net),
    ("port", Kind::Port),
    ("portrange", Kind::PortRange),
    ("proto", Kind::Proto),
];

const COMPARISONS: [(&str, Comparison); 7] = [
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
    ("=", Comparison::Equal),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
];

fn find<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    if text.len() > LONGEST {
        return Err(FilterError::TooLong);
    }
    let words = words(text);
    let mut parser = Parser { words: &words, last: Qualifiers::default(), depth: 0 };
    if parser.words.is_empty() {
        return Ok(Expression::All);
    }
    let expression = parser.expression()?;
    match parser.words {
        [] => Ok(expression),
        [found, ..] => Err(unexpected(found, "'and', 'or' or the end")),
    }
}

/// Parentheses, comparisons and `!`, `&&`, `||` are words whether spaces are around them or not.
fn words(text: &str) -> Vec<&str> {
    const SIGNS: [&str; 12] = ["&&", "||", "<=", ">=", "==", "!=", "(", ")", "<", ">", "=", "!"];
    let (mut all, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).map(|sign| sign.len());
        let end = sign.unwrap_or_else(|| {
            rest.find(|letter: char| letter.is_whitespace() || "()<>=!&|".contains(letter))
                .unwrap_or(rest.len())
        });
        // A single & or |, which nothing expects.
        let end = if end == 0 { 1 } else { end };
        let (word, behind) = rest.split_at(end);
        all.push(word);
        rest = behind.trim_start();
    }
    all
}

fn unexpected(found: &str, expected: &'static str) -> FilterError {
    FilterError::Unexpected { found: found.to_owned(), expected }
}

struct Parser<'a> {
    words: &'a [&'a str],
    last: Qualifiers,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.first().copied()
    }

    fn next(&mut self, expected: &'static str) -> Result<&'a str, FilterError> {
        let (word, rest) = self.words.split_first().ok_or(FilterError::Incomplete { expected })?;
        self.words = rest;
        Ok(word)
    }

    fn take_if(&mut self, words: &[&str]) -> bool {
        let is_there = self.peek().is_some_and(|word| words.contains(&word));
        if is_there {
            self.words = self.words.get(1..).unwrap_or_default();
        }
        is_there
    }

    fn expression(&mut self) -> Result<Expression, FilterError> {
        let mut left = self.term()?;
        loop {
            if self.take_if(&["and", "&&"]) {
                left = Expression::And(Box::new(left), Box::new(self.term()?));
            } else if self.take_if(&["or", "||"]) {
                left = Expression::Or(Box::new(left), Box::new(self.term()?));
            } else {
                return Ok(left);
            }
        }
    }

    fn term(&mut self) -> Result<Expression, FilterError> {
        let mut is_negated = false;
        while self.take_if(&["not", "!"]) {
            is_negated = !is_negated;
        }
        let term = if self.take_if(&["("]) {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(FilterError::TooLong);
            }
            let inner = self.expression()?;
            match self.next("')'")? {
                ")" => {}
                found => return Err(unexpected(found, "')'")),
            }
            self.depth -= 1;
            inner
        } else {
            Expression::Test(self.primitive()?)
        };
        Ok(if is_negated { Expression::Not(Box::new(term)) } else { term })
    }

    fn primitive(&mut self) -> Result<Test, FilterError> {
        let test = match self.peek() {
            Some("less") => {
                self.next("")?;
                Test::Length(Comparison::LessOrEqual, self.number("a length")?)
            }
            Some("greater") => {
                self.next("")?;
                Test::Length(Comparison::GreaterOrEqual, self.number("a length")?)
            }
            Some("len") => {
                self.next("")?;
                let word = self.next("a comparison")?;
                let comparison =
                    find(&COMPARISONS, word).ok_or_else(|| unexpected(word, "a comparison, such as '>='"))?;
                Test::Length(comparison, self.number("a length")?)
            }
            Some("vlan") => {
                self.next("")?;
                match self.peek().and_then(number::<u16>) {
                    None => Test::Vlan(None),
                    Some(vlan) if vlan < VLANS => {
                        self.next("")?;
                        Test::Vlan(Some(vlan))
                    }
                    Some(_) => return Err(unexpected(self.next("")?, "a VLAN's number, at most 4095")),
                }
            }
            Some("broadcast") => {
                self.next("")?;
                Test::Broadcast
            }
            Some("multicast") => {
                self.next("")?;
                Test::Multicast
            }
            _ => return self.qualified(),
        };
        Ok(test)
    }

    /// Qualifiers and what they are of; or a protocol alone.
    fn qualified(&mut self) -> Result<Test, FilterError> {
        let mut own = Qualifiers::default();
        if let Some(protocol) = self.peek().and_then(|word| find(&PROTOCOLS, word)) {
            self.next("")?;
            own.protocol = Some(protocol);
        }
        if own.protocol == Some(Protocol::Ether) {
            if self.take_if(&["broadcast"]) {
                return Ok(Test::Broadcast);
            }
            if self.take_if(&["multicast"]) {
                return Ok(Test::Multicast);
            }
        }
        own.side = self.side();
        if let Some(kind) = self.peek().and_then(|word| find(&KINDS, word)) {
            self.next("")?;
            own.kind = Some(kind);
        }
        let is_end = matches!(self.peek(), None | Some("and" | "or" | "&&" | "||" | ")"));
        match own {
            Qualifiers { protocol: Some(protocol), side: None, kind: None } if is_end => {
                return match protocol {
                    Protocol::Ether => Err(FilterError::Incomplete { expected: "what of Ethernet is meant" }),
                    Protocol::Type(value) => Ok(Test::EtherType(value)),
                    Protocol::Ip(version, value) => Ok(Test::Protocol(version, value)),
                };
            }
            Qualifiers { protocol: None, side: None, kind: None } => {
                // As the last one that had any: but a word that is none of that is a mistake of its own.
                if self.last.kind.is_none() && self.last.protocol.is_none() {
                    let found = self.next("a primitive, such as 'host 192.0.2.1'")?;
                    if found.parse::<IpAddr>().is_err() {
                        return Err(unexpected(found, "a primitive, such as 'host 192.0.2.1'"));
                    }
                    return Self::of_address(Qualifiers::default(), found);
                }
            }
            _ => self.last = own,
        }
        let qualifiers = self.last;
        let word = self.next("an address or a number")?;
        match qualifiers.kind {
            None | Some(Kind::Host | Kind::Net) => Self::of_address(qualifiers, word),
            Some(Kind::Port | Kind::PortRange) => Self::of_ports(qualifiers, word),
            Some(Kind::Proto) => Self::of_protocol(qualifiers, word),
        }
    }

    /// `src`, `dst`, `src or dst`, `src and dst`.
    fn side(&mut self) -> Option<Side> {
        let side = match self.words {
            ["src", "or", "dst", ..] | ["dst", "or", "src", ..] => (Side::Either, 3),
            ["src", "and", "dst", ..] | ["dst", "and", "src", ..] => (Side::Both, 3),
            ["src", ..] => (Side::Source, 1),
            ["dst", ..] => (Side::Destination, 1),
            _ => return None,
        };
        self.words = self.words.get(side.1..).unwrap_or_default();
        Some(side.0)
    }

    fn number<T: TryFrom<u64>>(&mut self, expected: &'static str) -> Result<T, FilterError> {
        let word = self.next(expected)?;
        number(word).ok_or_else(|| unexpected(word, expected))
    }

    fn of_address(qualifiers: Qualifiers, word: &str) -> Result<Test, FilterError> {
        let side = qualifiers.side.unwrap_or(Side::Either);
        let ethertype = match qualifiers.protocol {
            None => None,
            Some(Protocol::Ether) => {
                let expected = "an Ethernet address, as in 02:00:00:00:00:01";
                let mac = mac(word).ok_or_else(|| unexpected(word, expected))?;
                return Ok(Test::Mac(side, mac));
            }
            Some(Protocol::Type(value)) => Some(value),
            Some(Protocol::Ip(..)) => return Err(unexpected(word, "'port' or 'portrange'")),
        };
        let expected = match qualifiers.kind {
            Some(Kind::Net) => "a prefix, as in 192.0.2.0/24",
            _ => "an IP address, as in 192.0.2.1",
        };
        let wrong = || unexpected(word, expected);
        let (address, length) = match word.split_once('/') {
            Some((address, length)) if qualifiers.kind == Some(Kind::Net) => {
                (address, Some(length.parse::<u8>().map_err(|_| wrong())?))
            }
            Some(_) => return Err(wrong()),
            None => (word, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let length = length.unwrap_or(whole);
        if length > whole {
            return Err(wrong());
        }
        Ok(Test::Prefix(side, ethertype, address, length))
    }

    fn of_ports(qualifiers: Qualifiers, word: &str) -> Result<Test, FilterError> {
        let side = qualifiers.side.unwrap_or(Side::Either);
        let protocol = match qualifiers.protocol {
            None => None,
            Some(Protocol::Ip(None, value)) => Some(value),
            Some(_) => return Err(unexpected(word, "'tcp', 'udp' or 'sctp' in front of a port")),
        };
        let (first, last) = match qualifiers.kind {
            Some(Kind::PortRange) => word.split_once('-').unwrap_or((word, word)),
            _ => (word, word),
        };
        let wrong = || unexpected(word, "a port's number, or two as in 1000-2000 behind 'portrange'");
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        Ok(Test::Ports(side, protocol, first, last))
    }

    fn of_protocol(qualifiers: Qualifiers, word: &str) -> Result<Test, FilterError> {
        // A name may be quoted for the sake of other compilers, where it is a keyword.
        let name = word.trim_start_matches('\\');
        let wrong = || unexpected(word, "a protocol's number");
        match qualifiers.protocol {
            Some(Protocol::Ether) => match find(&PROTOCOLS, name) {
                Some(Protocol::Type(value)) => Ok(Test::EtherType(value)),
                _ => number(word).map(Test::EtherType).ok_or_else(wrong),
            },
            None | Some(Protocol::Type(IPV4 | IPV6)) => {
                let version = match qualifiers.protocol {
                    Some(Protocol::Type(value)) => Some(value),
                    _ => None,
                };
                match find(&PROTOCOLS, name) {
                    Some(Protocol::Ip(_, value)) => Ok(Test::Protocol(version, value)),
                    _ => Ok(Test::Protocol(version, number(word).ok_or_else(wrong)?)),
                }
            }
            Some(_) => Err(unexpected(word, "'ether', 'ip' or 'ip6' in front of 'proto'")),
        }
    }
}

/// In decimal or, with 0x, in hexadecimal.
fn number<T: TryFrom<u64>>(word: &str) -> Option<T> {
    let value = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => word.parse().ok()?,
    };
    T::try_from(value).ok()
}

fn mac(word: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = word.split([':', '-']);
    for byte in &mut mac {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}
