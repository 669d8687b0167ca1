//! What tc does with packets: queueing that shapes or drops, and filters, of which some are our own.

use std::io;

use netlink_packet_core::NlasIterator;

use super::event::LinkIndex;
use super::hooks::{Hook, HookKind, HookPlace, Links, or_nothing, text};
use super::socket::RequestSocket;

/// `RTM_GETQDISC` and `RTM_GETTFILTER` (`include/uapi/linux/rtnetlink.h`).
const GET_QUEUEING: u16 = 38;
const GET_FILTER: u16 = 46;

/// What filters and queueing are like (`TCA_OPTIONS`).
const OPTIONS: u16 = 2;

/// Where filters of a clsact stand (`TC_H_MIN_INGRESS` and `TC_H_MIN_EGRESS` below `TC_H_CLSACT`).
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

/// What our programs' names start with.
const OURS: &str = "warmlane";

/// A filter with a program of ours, or of another process of the same kind. Only kernels without links for the tc hook have such.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFilter {
    /// The interface that it is at.
    pub link: LinkIndex,
    /// Where packets leave, not where they come in.
    pub is_egress: bool,
    /// Its program.
    pub program: String,
}

/// Lists the filters of all interfaces with programs of ours.
///
/// # Errors
/// The kernel refuses.
pub fn own_filters() -> io::Result<Vec<OwnFilter>> {
    let mut socket = RequestSocket::new()?;
    let mut found = Vec::new();
    for (link, parent) in list_queueing(&mut socket, |_, _| {})? {
        or_nothing(socket.list(GET_FILTER, &queueing_request(link, parent), |_, body| {
            if let Some(Some(program)) = filter(body)
                && program.starts_with(OURS)
            {
                found.push(OwnFilter { link, is_egress: parent == EGRESS, program });
            }
        }))?;
    }
    Ok(found)
}

/// Filters at interfaces that aren't ours, and queueing that shapes or drops.
pub(super) fn traffic_control(links: &Links) -> io::Result<Vec<Hook>> {
    let mut socket = RequestSocket::new()?;
    let mut hooks = Vec::new();
    let with_filters = list_queueing(&mut socket, |link, kind| {
        if !orders_only(kind) {
            hooks.push((HookPlace::LeavingBy(link), link, format!("queueing by {kind}")));
        }
    })?;
    for (link, parent) in with_filters {
        let mut found = false;
        or_nothing(socket.list(GET_FILTER, &queueing_request(link, parent), |_, body| {
            found |= is_foreign_filter(body);
        }))?;
        if found {
            let (at, side) = if parent == INGRESS {
                (HookPlace::ComingInBy(link), "ingress")
            } else {
                (HookPlace::LeavingBy(link), "egress")
            };
            hooks.push((at, link, format!("filters of tc at {side}")));
        }
    }
    let name = |link| links.get(&link).map_or("", |link| link.name.as_str());
    let hook = |(at, link, what): (HookPlace, LinkIndex, String)| {
        let what = format!("{what} (`tc -s qdisc show dev {}`)", name(link));
        let kind = HookKind::Other;
        Hook { what, ipv4: true, ipv6: true, at, kind, except_established: false }
    };
    Ok(hooks.into_iter().map(hook).collect())
}

/// Lists where filters may stand, and gives `each` the kinds of queueing that are there for another purpose.
fn list_queueing(
    socket: &mut RequestSocket,
    mut each: impl FnMut(LinkIndex, &str),
) -> io::Result<Vec<(LinkIndex, u32)>> {
    let mut with_filters = Vec::new();
    socket.list(GET_QUEUEING, &queueing_request(0, 0), |_, body| {
        let Some((link, kind)) = queueing(body) else { return };
        match kind.as_str() {
            "ingress" => with_filters.push((link, INGRESS)),
            "clsact" => with_filters.extend([(link, INGRESS), (link, EGRESS)]),
            kind => each(link, kind),
        }
    })?;
    Ok(with_filters)
}

/// Whether a kind of queueing only says in which order packets leave, as those do that interfaces have by themselves
/// (`net.core.default_qdisc`).
fn orders_only(kind: &str) -> bool {
    ["noqueue", "mq", "pfifo_fast", "pfifo", "bfifo", FAIR, "fq_codel", "sfq"].contains(&kind)
}

/// struct tcmsg.
fn queueing_request(link: LinkIndex, parent: u32) -> [u8; 20] {
    let mut body = [0; 20];
    body[4..8].copy_from_slice(&link.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    body
}

/// The kind of a queueing discipline that orders flows, and holds them to a rate only if it is told one.
const FAIR: &str = "fq";

/// The interface and the kind of a queueing discipline; one that only sometimes shapes has another kind then, in words.
fn queueing(body: &[u8]) -> Option<(LinkIndex, String)> {
    const KIND: u16 = 1;
    let (header, attributes) = body.split_first_chunk::<20>()?;
    let link = LinkIndex::from_ne_bytes(*header.get(4..)?.first_chunk()?);
    let find = |wanted| NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == wanted);
    let kind = text(find(KIND)?.value());
    let is_limited = kind == FAIR && find(OPTIONS).is_some_and(|options| limits_flows(options.value()));
    Some((link, if is_limited { format!("{kind} with maxrate") } else { kind }))
}

/// Whether `fq` holds flows to a rate, those of forwarded packets, too (`net/sched/sch_fq.c: fq_dequeue`, `include/uapi/linux/pkt_sched.h`).
fn limits_flows(options: &[u8]) -> bool {
    const RATE_ENABLE: u16 = 5;
    const FLOW_MAX_RATE: u16 = 7;
    const UNLIMITED: u32 = u32::MAX;
    let number = |wanted| {
        let mut all = NlasIterator::new(options).flatten();
        let bytes = all.find(|option| option.kind() == wanted)?.value().first_chunk().copied()?;
        Some(u32::from_ne_bytes(bytes))
    };
    // By itself it is enabled.
    number(RATE_ENABLE) != Some(0) && number(FLOW_MAX_RATE).is_some_and(|rate| rate != UNLIMITED)
}

/// Whether a filter is somebody else's than ours.
fn is_foreign_filter(body: &[u8]) -> bool {
    filter(body).is_some_and(|program| program.is_none_or(|program| !program.starts_with(OURS)))
}

/// What a filter calls its program, if it has one that has a name; `None`: this is only a priority that filters stand at.
#[expect(clippy::option_option, reason = "whether it is a filter, and whether that has a name")]
fn filter(body: &[u8]) -> Option<Option<String>> {
    const BPF_NAME: u16 = 7;
    let (_, attributes) = body.split_first_chunk::<20>()?;
    let options = NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == OPTIONS)?;
    let name = NlasIterator::new(options.value()).flatten().find(|option| option.kind() == BPF_NAME);
    Some(name.map(|name| text(name.value())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::kernel::attribute;
    use proptest::prelude::*;

    #[test]
    fn filters_of_others_are_told_from_ours() {
        let filter = |name: Option<&str>| {
            let options = name.map_or(Vec::new(), |name| attribute(7, format!("{name}\0").as_bytes()));
            [vec![0; 20], attribute(1, b"bpf\0"), attribute(2, &options)].concat()
        };
        assert!(is_foreign_filter(&filter(None)) && is_foreign_filter(&filter(Some("calico"))));
        assert!(!is_foreign_filter(&filter(Some("warmlane_forward"))));
        assert!(!is_foreign_filter(&[vec![0; 20], attribute(1, b"bpf\0")].concat()));
        assert_eq!(super::filter(&filter(Some("warmlane_tc"))), Some(Some("warmlane_tc".to_owned())));
    }

    #[test]
    fn fq_shapes_only_with_a_rate() {
        let kind_of = |kind: &[u8], options: &[(u16, u32)]| {
            let options: Vec<u8> =
                options.iter().flat_map(|(kind, value)| attribute(*kind, &value.to_ne_bytes())).collect();
            let mut header = vec![0; 20];
            header[4] = 7;
            let (link, kind) =
                queueing(&[header, attribute(1, kind), attribute(2, &options)].concat()).unwrap();
            assert_eq!(link, 7);
            kind
        };
        // As it is by itself; with a rate; with one that isn't enabled.
        assert_eq!(kind_of(b"fq\0", &[(1, 10_000), (5, 1), (7, u32::MAX)]), "fq");
        assert_eq!(kind_of(b"fq\0", &[(1, 10_000), (5, 1), (7, 12_500_000)]), "fq with maxrate");
        assert_eq!(kind_of(b"fq\0", &[(5, 0), (7, 12_500_000)]), "fq");
        assert_eq!(kind_of(b"fq_codel\0", &[(5, 1), (7, 64)]), "fq_codel");
        assert!(orders_only("fq") && !orders_only("fq with maxrate"));
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (queueing(&bytes), filter(&bytes), limits_flows(&bytes));
        }
    }
}
