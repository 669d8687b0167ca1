//! What the kernel does with packets on their way through it besides forwarding them: chains of netfilter, policies of IPsec.
//! Only whether there are any: what they say is the kernel's business.

use std::io;

use netlink_packet_core::NlasIterator;
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, XFRM};

use super::socket::Questions;

/// Chains and policies that a packet from one interface to another would pass.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Hooks {
    /// Chains of nf_tables that have rules, or drop what has none: family, table and name.
    pub chains: Vec<String>,
    /// Policies of IPsec for packets that are forwarded or leave.
    pub ipsec_policies: usize,
}

impl Hooks {
    /// Lists them, in this thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses: it needs `CAP_NET_ADMIN`. A kernel that has no such thing is no error.
    pub fn list() -> io::Result<Self> {
        let mut hooks = Self::default();
        or_nothing(Questions::of(Some(NETFILTER)).and_then(|mut questions| {
            // struct nfgenmsg: any family.
            questions.list(GET_CHAIN, &[0; 4], |_, body| hooks.chains.extend(chain(body)))
        }))?;
        or_nothing(Questions::of(Some(XFRM)).and_then(|mut questions| {
            // struct xfrm_userpolicy_id, which a listing doesn't look at.
            questions.list(GET_POLICY, &[0; 64], |_, body| {
                hooks.ipsec_policies += usize::from(is_in_the_way(body));
            })
        }))?;
        Ok(hooks)
    }
}

/// `NFT_MSG_GETCHAIN` of the subsystem nf_tables (`include/uapi/linux/netfilter/nfnetlink.h`, `nf_tables.h`).
const GET_CHAIN: u16 = 10 << 8 | 4;

/// `XFRM_MSG_GETPOLICY` (`include/uapi/linux/xfrm.h`).
const GET_POLICY: u16 = 0x15;

/// A kernel without the subsystem says one of these.
fn or_nothing(listed: io::Result<bool>) -> io::Result<()> {
    const NONE: [Errno; 3] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::PROTONOSUPPORT];
    match listed {
        Err(error) if NONE.iter().any(|none| Some(none.raw_os_error()) == error.raw_os_error()) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The name of a chain that a forwarded packet passes and that does something (`net/netfilter/nf_tables_api.c:
/// nf_tables_fill_chain_info`).
fn chain(body: &[u8]) -> Option<String> {
    const TABLE: u16 = 1;
    const NAME: u16 = 3;
    const HOOK: u16 = 4;
    const POLICY: u16 = 5;
    const USES: u16 = 6;
    const KIND: u16 = 7;
    const DROP: u32 = 0;

    let (header, attributes) = body.split_first_chunk::<4>()?;
    let (mut table, mut name, mut kind) = (String::new(), String::new(), String::new());
    let (mut hook, mut drops, mut uses) = (None, false, 0);
    for attribute in NlasIterator::new(attributes).flatten() {
        let value = attribute.value();
        match attribute.kind() {
            TABLE => table = text(value),
            NAME => name = text(value),
            HOOK => hook = first(value),
            POLICY => drops = number(value) == Some(DROP),
            USES => uses = number(value).unwrap_or(0),
            KIND => kind = text(value),
            _ => {}
        }
    }
    // enum nf_inet_hooks: before and after routing, between, and where an interface comes first; enum nf_dev_hooks: all.
    let (family, hooks): (_, &[u32]) = match header.first()? {
        1 => ("inet", &[0, 2, 4, 5]),
        2 => ("ip", &[0, 2, 4]),
        5 => ("netdev", &[0, 1]),
        10 => ("ip6", &[0, 2, 4]),
        _ => return None,
    };
    let nat = if kind == "nat" { " (NAT)" } else { "" };
    (hooks.contains(&hook?) && (drops || uses > 0)).then(|| format!("{family} {table} {name}{nat}"))
}

/// Whether a policy (struct xfrm_userpolicy_info) is about packets that leave or are forwarded.
fn is_in_the_way(body: &[u8]) -> bool {
    const DIRECTION: usize = 160;
    const OUT: u8 = 1;
    const FORWARD: u8 = 2;
    matches!(body.get(DIRECTION), Some(&(OUT | FORWARD)))
}

/// The first of nested attributes, which is the number of a hook.
fn first(value: &[u8]) -> Option<u32> {
    let attribute = NlasIterator::new(value).flatten().find(|attribute| attribute.kind() == 1)?;
    number(attribute.value())
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(b"\0").unwrap_or(value)).into_owned()
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A chain as the kernel tells of it, in the order of `nf_tables_fill_chain_info`.
    fn told(family: u8, hook: Option<u32>, policy: u32, uses: u32, kind: &str) -> Vec<u8> {
        fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
            let mut all = [(value.len() as u16 + 4).to_ne_bytes(), kind.to_ne_bytes()].concat();
            all.extend(value);
            all.resize(all.len().next_multiple_of(4), 0);
            all
        }
        let mut body = vec![family, 0, 0, 0];
        body.extend(attribute(1, b"mine\0"));
        body.extend(attribute(3, b"across\0"));
        if let Some(hook) = hook {
            let nested = [attribute(1, &hook.to_be_bytes()), attribute(2, &0_u32.to_be_bytes())].concat();
            body.extend(attribute(4 | 0x8000, &nested));
            body.extend(attribute(5, &policy.to_be_bytes()));
            body.extend(attribute(7, format!("{kind}\0").as_bytes()));
        }
        body.extend(attribute(6, &uses.to_be_bytes()));
        body
    }

    #[test]
    fn only_chains_in_the_way_that_do_something_count() {
        const ACCEPT: u32 = 1;
        assert_eq!(chain(&told(1, Some(2), ACCEPT, 1, "filter")).as_deref(), Some("inet mine across"));
        assert_eq!(chain(&told(10, Some(2), 0, 0, "filter")).as_deref(), Some("ip6 mine across"));
        assert_eq!(chain(&told(2, Some(4), ACCEPT, 3, "nat")).as_deref(), Some("ip mine across (NAT)"));
        // Without rules; for the box itself; not at a hook; of a bridge.
        assert_eq!(chain(&told(1, Some(2), ACCEPT, 0, "filter")), None);
        assert_eq!(chain(&told(1, Some(1), 0, 5, "filter")), None);
        assert_eq!(chain(&told(1, None, 0, 5, "filter")), None);
        assert_eq!(chain(&told(7, Some(2), 0, 5, "filter")), None);
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (chain(&bytes), is_in_the_way(&bytes));
        }
    }
}
