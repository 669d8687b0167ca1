//! Flows that are forwarded past netfilter: which they are, and how their packets are translated.
//!
//! Programs ask about flows that have packets; conntrack says what it knows of each. That a flow is known here doesn't mean that it is
//! forwarded: only while the kernel is seen to forward it, too (`bpf/established.h`).

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use warmlane_bpf::{BpfError, HashMap, SharedMap};

use super::layout::{Flow, Ipv4Tuple, Ipv6Tuple, Question};
use crate::control::kernel::{Conntrack, Switches, Tuple};

/// How many directions of flows there may be, of each family.
const MOST_FLOWS: u32 = 131_072;

/// How long a flow stays known of which the kernel has forwarded no packet.
const KEEP: Duration = Duration::from_secs(30);

/// How many are looked at in a turn, at most.
const LOOKED_AT: usize = 4096;

/// Flows, which all interfaces' programs share.
#[derive(Debug)]
pub(super) struct Flows {
    ipv4: HashMap<Ipv4Tuple, Flow>,
    ipv6: HashMap<Ipv6Tuple, Flow>,
    conntrack: Conntrack,
    /// How many directions of each family there may be.
    most: u32,
    /// One found no space lately.
    is_full: bool,
    /// Why conntrack couldn't be asked the last time.
    unreadable: Option<io::Error>,
    /// All that are known, and when they were looked at; the oldest first.
    known: VecDeque<(Tuple, Instant)>,
}

impl Flows {
    /// None yet.
    pub(super) fn new(conntrack: Conntrack) -> Result<Self, BpfError> {
        Self::with_space(conntrack, MOST_FLOWS)
    }

    fn with_space(conntrack: Conntrack, most: u32) -> Result<Self, BpfError> {
        let (ipv4, ipv6) = (HashMap::new("flows_ipv4", most)?, HashMap::new("flows_ipv6", most)?);
        Ok(Self { ipv4, ipv6, conntrack, most, is_full: false, unreadable: None, known: VecDeque::new() })
    }

    /// What is not as an operator may think, a sentence each.
    pub(super) fn warnings(&self, switches: &Switches) -> Vec<String> {
        let counted = switches.counts_flows.then(|| {
            "conntrack counts the packets of flows, as it can only of those that pass it: flows that it counts are left to the kernel, established or \
             not (`sysctl -w net.netfilter.nf_conntrack_acct=0` is for flows that begin from then on)"
                .to_owned()
        });
        let full = self.is_full.then(|| {
            format!(
                "{} established flows are forwarded past netfilter, as many as can be of a family: others are left to the kernel until some of these \
                 have ended",
                self.most / 2
            )
        });
        let unreadable = self.unreadable.as_ref().map(|error| {
            format!("conntrack can't be asked ({error}): flows that begin are left to the kernel, established or not")
        });
        counted.into_iter().chain(full).chain(unreadable).collect()
    }

    /// How many there are, each direction one.
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// Lets an interface's programs have them.
    pub(super) fn share(&self, ipv4: &mut SharedMap, ipv6: &mut SharedMap) -> Result<(), BpfError> {
        ipv4.set(&self.ipv4)?;
        ipv6.set(&self.ipv6)
    }

    /// Finds out about a flow that a program asks about.
    pub(super) fn learn(&mut self, question: &Question) -> Result<(), BpfError> {
        // What conntrack has no answer for is the kernel's.
        let answer = self.conntrack.connection(tuple_of(question));
        let (answer, error) = answer.map_or_else(|error| (None, Some(error)), |answer| (answer, None));
        self.unreadable = error;
        let Some(connection) = answer else { return Ok(()) };
        if !connection.is_established {
            return Ok(());
        }
        let is_tcp = connection.original.protocol == 6;
        // Else it would find packets behind those that it doesn't see invalid.
        if is_tcp && self.conntrack.stop_checking_sequence(&connection).is_err() {
            return Ok(());
        }
        self.put_both(connection.original, connection.reply)
    }

    /// Puts in a flow, unless there is no space for it.
    fn put_both(&mut self, original: Tuple, reply: Tuple) -> Result<(), BpfError> {
        let of_family = |known: &&(Tuple, Instant)| known.0.source.is_ipv4() == original.source.is_ipv4();
        // What is known is what the map has. Only where it may be full, it is counted by family.
        let most = self.most as usize;
        let is_new = self.get(original)?.is_none() || self.get(reply)?.is_none();
        if is_new && self.known.len() + 2 > most && self.known.iter().filter(of_family).count() + 2 > most {
            self.is_full = true;
            return Ok(());
        }
        self.put(original, reply.inverse())?;
        self.put(reply, original.inverse())
    }

    /// Puts in one direction of a flow, unless it is there, by how its packets come in and leave.
    fn put(&mut self, comes_in: Tuple, leaves: Tuple) -> Result<(), BpfError> {
        let new = flow(comes_in, leaves);
        let before = self.get(comes_in)?;
        let alike = |flow: &Flow| (flow.source, flow.destination, flow.ports, flow.is_closing);
        if before.as_ref().map(alike) == Some(alike(&new)) {
            return Ok(());
        }
        match comes_in.source {
            IpAddr::V4(_) => self.ipv4.insert(ipv4_key(comes_in), new)?,
            IpAddr::V6(_) => self.ipv6.insert(ipv6_key(comes_in), new)?,
        }
        if before.is_none() {
            self.known.push_back((comes_in, Instant::now()));
        }
        Ok(())
    }

    fn get(&self, tuple: Tuple) -> Result<Option<Flow>, BpfError> {
        match tuple.source {
            IpAddr::V4(_) => self.ipv4.get(ipv4_key(tuple)),
            IpAddr::V6(_) => self.ipv6.get(ipv6_key(tuple)),
        }
    }

    /// Forgets flows that have had no packets for a while. `now` is the coarse monotonic clock, in nanoseconds.
    pub(super) fn forget_idle(&mut self, now: u64) -> Result<(), BpfError> {
        for _ in 0..LOOKED_AT {
            match self.known.front() {
                Some((_, looked)) if looked.elapsed() >= KEEP => {}
                _ => break,
            }
            let Some((tuple, _)) = self.known.pop_front() else { break };
            let Some(flow) = self.get(tuple)? else { continue };
            if now.saturating_sub(flow.confirmed) < KEEP.as_nanos() as u64 {
                self.known.push_back((tuple, Instant::now()));
                continue;
            }
            match tuple.source {
                IpAddr::V4(_) => self.ipv4.remove(ipv4_key(tuple))?,
                IpAddr::V6(_) => self.ipv6.remove(ipv6_key(tuple))?,
            }
            self.is_full = false;
        }
        Ok(())
    }
}

const FAMILY_IPV4: u8 = 2;

fn tuple_of(question: &Question) -> Tuple {
    let address = |bytes: [u8; 16]| -> IpAddr {
        if question.family == FAMILY_IPV4 {
            let [a, b, c, d, ..] = bytes;
            Ipv4Addr::new(a, b, c, d).into()
        } else {
            Ipv6Addr::from(bytes).into()
        }
    };
    Tuple {
        source: address(question.source),
        destination: address(question.destination),
        ports: question.ports.map(u16::from_be_bytes),
        protocol: question.protocol,
    }
}

fn ipv4_key(tuple: Tuple) -> Ipv4Tuple {
    let four = |address| first_four(words(address));
    Ipv4Tuple {
        source: four(tuple.source),
        destination: four(tuple.destination),
        ports: tuple.ports.map(u16::to_be_bytes),
        protocol: u32::from(tuple.protocol),
    }
}

fn ipv6_key(tuple: Tuple) -> Ipv6Tuple {
    Ipv6Tuple {
        source: words(tuple.source),
        destination: words(tuple.destination),
        ports: tuple.ports.map(u16::to_be_bytes),
        protocol: u32::from(tuple.protocol),
    }
}

fn first_four([a, b, c, d, ..]: [u8; 16]) -> [u8; 4] {
    [a, b, c, d]
}

/// An address as programs have it: IPv4 in the first word, zeros behind it.
fn words(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// One direction of a flow, which the kernel has not been seen to forward.
fn flow(comes_in: Tuple, leaves: Tuple) -> Flow {
    let addresses = |tuple: Tuple| [words(tuple.source), words(tuple.destination)].concat();
    let ports = |tuple: Tuple| tuple.ports.map(u16::to_be_bytes).concat();
    Flow {
        source: words(leaves.source),
        destination: words(leaves.destination),
        ports: leaves.ports.map(u16::to_be_bytes),
        address_difference: difference(&addresses(comes_in), &addresses(leaves)),
        port_difference: difference(&ports(comes_in), &ports(leaves)),
        ..Flow::default()
    }
}

/// What the sum of the Internet checksum differs by (RFC 1624), 0 if nothing does. Its bytes are in the order of memory, as programs
/// add it to sums of such.
fn difference(before: &[u8], after: &[u8]) -> u32 {
    let mut sum = 0_u32;
    for (before, after) in before.chunks_exact(2).zip(after.chunks_exact(2)) {
        let [before, after] =
            [before, after].map(|pair| pair.first_chunk().map_or(0, |pair| u16::from_ne_bytes(*pair)));
        if before != after {
            sum += u32::from(!before) + u32::from(after);
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use warmlane_testkit::requirements;

    fn sum(bytes: &[u8]) -> u16 {
        let mut sum: u32 =
            bytes.chunks_exact(2).map(|pair| u32::from(u16::from_ne_bytes([pair[0], pair[1]]))).sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    proptest! {
        /// As `adjusted` in `bpf/established.h` does it.
        #[test]
        fn a_checksum_is_adjusted_by_the_difference(before: [u8; 36], after: [u8; 36], rest: [u8; 20]) {
            let checksum = !sum(&[&before[..], &rest].concat());
            let mut adjusted = u32::from(!checksum) + difference(&before, &after);
            while adjusted >> 16 != 0 {
                adjusted = (adjusted & 0xffff) + (adjusted >> 16);
            }
            prop_assert_eq!(adjusted % 0xffff, u32::from(sum(&[&after[..], &rest].concat())) % 0xffff);
        }
    }

    fn nth(number: u16) -> Tuple {
        Tuple {
            source: "192.0.2.2".parse().unwrap(),
            destination: "198.51.100.2".parse().unwrap(),
            ports: [number, 80],
            protocol: 17,
        }
    }

    /// Space for two flows of each family; `None` where conntrack can't be had.
    fn few_flows() -> Option<Flows> {
        if !requirements::namespaces_and(&[]) {
            return None;
        }
        let Ok(conntrack) = Conntrack::open() else {
            requirements::missing("conntrack in the kernel, with its netlink");
            return None;
        };
        Some(Flows::with_space(conntrack, 4).unwrap())
    }

    /// As much as there is space for, and the others are the kernel's: that is said as long as it is so.
    #[test]
    fn what_finds_no_space_is_left_to_the_kernel() {
        let Some(mut flows) = few_flows() else { return };
        let usual = Switches::default();
        for number in 0..5 {
            flows.put_both(nth(number), nth(number).inverse()).unwrap();
            let both = [nth(number), nth(number).inverse()].map(|tuple| flows.get(tuple).unwrap().is_some());
            assert_eq!(both, [number < 2; 2], "{number}");
            assert_eq!(flows.warnings(&usual).len(), usize::from(number >= 2));
        }
        // The other family has a space of its own.
        let ipv6 = Tuple {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
            ..nth(7)
        };
        flows.put_both(ipv6, ipv6.inverse()).unwrap();
        assert!(flows.get(ipv6).unwrap().is_some());
        // None of them has had a packet for long.
        flows.known.iter_mut().for_each(|known| known.1 = Instant::now().checked_sub(KEEP).unwrap());
        flows.forget_idle(u64::MAX).unwrap();
        assert_eq!(flows.warnings(&usual), Vec::<String>::new());
        flows.put_both(nth(9), nth(9).inverse()).unwrap();
        assert!(flows.get(nth(9)).unwrap().is_some());
    }

    /// As if it had lost the capability that asking needs, in a thread of its own.
    #[test]
    fn that_conntrack_can_not_be_asked_is_told() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

        let Some(mut flows) = few_flows() else { return };
        let question = Question::default();
        flows.learn(&question).unwrap();
        assert_eq!(flows.warnings(&Switches::default()), Vec::<String>::new());
        let told = std::thread::scope(|scope| {
            let told = scope.spawn(|| {
                let mut own = capabilities(None).unwrap();
                own.effective.remove(CapabilitySet::NET_ADMIN);
                set_capabilities(None, own).unwrap();
                flows.learn(&question).unwrap();
                flows.warnings(&Switches::default())
            });
            told.join().unwrap()
        });
        assert!(
            told.len() == 1 && told[0].starts_with("conntrack can't be asked (Operation not permitted"),
            "{told:?}"
        );
        flows.learn(&question).unwrap();
        assert_eq!(flows.warnings(&Switches::default()), Vec::<String>::new());
    }

    #[test]
    fn what_stays_the_same_makes_no_difference() {
        let tuple = Tuple {
            source: "192.0.2.2".parse().unwrap(),
            destination: "198.51.100.2".parse().unwrap(),
            ports: [1000, 80],
            protocol: 6,
        };
        let same = flow(tuple, tuple);
        assert_eq!((same.address_difference, same.port_difference), (0, 0));
        let other = flow(tuple, Tuple { ports: [1001, 80], ..tuple });
        assert!(other.address_difference == 0 && other.port_difference != 0);
        assert_eq!(other.ports, [[0x03, 0xe9], [0, 80]]);
    }
}
