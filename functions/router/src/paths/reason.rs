//! What becomes of a packet at a hook, and why.

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It leaves by another interface.
    Forwarded,
    /// The kernel gets it as if nothing had been there.
    Passed,
    /// Nobody gets it.
    Dropped,
}

/// An action of a program and why it takes it; packets are counted by it. `bpf/forward.h` has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionReason {
    /// What becomes of the packet.
    pub action: Action,
    /// Why.
    pub name: &'static str,
    /// The same in words.
    pub help: &'static str,
}

const fn passed(name: &'static str, help: &'static str) -> ActionReason {
    ActionReason { action: Action::Passed, name, help }
}

const fn dropped(name: &'static str, help: &'static str) -> ActionReason {
    ActionReason { action: Action::Dropped, name, help }
}

impl ActionReason {
    /// All there are, in the order of their counters.
    pub const ALL: [Self; 31] = [
        Self { action: Action::Forwarded, name: "forwarded", help: "left by another interface" },
        Self {
            action: Action::Forwarded,
            name: "established",
            help: "of an established flow: left by another interface, past netfilter",
        },
        passed("other-host", "to another Ethernet address, a group or everybody"),
        passed("not-ip", "neither IPv4 nor IPv6"),
        passed("malformed", "a header is short, wrong or has a wrong checksum"),
        passed("options", "IPv4 options or IPv6 hop-by-hop options"),
        passed("expiring", "its time to live ends here"),
        passed("too-long", "longer than the route's MTU"),
        passed("not-forwarded", "to the box itself, to a broadcast address, or without a route"),
        passed("no-neighbour", "the next hop's Ethernet address isn't known"),
        passed("source", "from an address of the box, or one that nobody may send from"),
        passed("forwarding-off", "the kernel forwards nothing that comes in here, or has rules for it"),
        passed("unreachable", "by an unreachable or prohibit route"),
        passed("tunnel-route", "by a route that puts on a header"),
        passed("other-interface", "out of an interface that isn't the router's, or can't be redirected to"),
        passed("same-interface", "back out where it came in, so that the kernel can send redirects"),
        passed("icmp-error", "an ICMP error, which takes the way of the packet that it tells of"),
        passed(
            "neighbour-check",
            "one a second for each neighbour, so that the kernel checks whether it is there",
        ),
        passed("checksum-left", "its checksum is left to hardware"),
        passed("reverse-path", "its source is not surely where it comes from"),
        passed("marked", "another program has put a mark on it"),
        passed("vlan", "of a VLAN that has no interface here"),
        passed("segments", "a super-frame whose segments may be too long"),
        passed("no-memory", "there was no memory to change it"),
        passed("not-led", "the router hasn't been heard of for a while"),
        passed(
            "not-established",
            "netfilter has rules, and it is of no flow that is known to be established",
        ),
        passed("unconfirmed", "of a flow of which the kernel hasn't forwarded a packet lately, or elsewhere"),
        passed("sample", "one of each flow now and then, so that netfilter and conntrack see it"),
        passed("closing", "it ends a connection of TCP"),
        dropped("blackhole", "by a blackhole route"),
        dropped("unfinished", "there was no memory to change it any further"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_count_by_the_same_list() {
        let source = include_str!("../../bpf/forward.h");
        let (_, list) = source.split_once("enum action_reason {").unwrap();
        let (list, _) = list.split_once("REASONS").unwrap();
        let names: Vec<String> = list
            .lines()
            .filter_map(|line| line.trim().split([',', ' ']).next())
            .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
            .map(|word| word.to_lowercase().replace('_', "-"))
            .collect();
        let ours: Vec<String> = ActionReason::ALL
            .iter()
            .map(|reason| match reason.action {
                Action::Forwarded if reason.name == "forwarded" => "forward".to_owned(),
                Action::Forwarded => format!("forward-{}", reason.name),
                Action::Passed => format!("pass-{}", reason.name),
                Action::Dropped => format!("drop-{}", reason.name),
            })
            .collect();
        assert_eq!(names, ours);
    }
}
