//! Services of IPVS, which takes packets to them to other servers, and translates what these answer as it is forwarded.

use std::fs;
use std::io;

/// Lists them (`net/netfilter/ipvs/ip_vs_ctl.c: ip_vs_info_seq_show`), for this process's network namespace.
const SERVICES: &str = "/proc/net/ip_vs";

/// How many services there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Services {
    /// Of IPv4.
    pub(super) ipv4: usize,
    /// Of IPv6.
    pub(super) ipv6: usize,
    /// For packets with a mark, of either family: that isn't told.
    pub(super) marked: usize,
}

/// Counts them. A kernel without IPVS has none.
///
/// # Errors
/// They can't be read.
pub(super) fn services() -> io::Result<Services> {
    match fs::read_to_string(SERVICES) {
        Ok(text) => Ok(count(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Services::default()),
        Err(error) => Err(error),
    }
}

/// Services begin their lines with a protocol; the heading does not, and servers stand behind blanks.
fn count(text: &str) -> Services {
    let mut services = Services::default();
    for line in text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase())) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            // The heading's two lines.
            (Some("IP" | "Prot"), _) | (_, None) => (),
            (Some("FWM"), _) => services.marked += 1,
            (_, Some(address)) if address.starts_with('[') => services.ipv6 += 1,
            _ => services.ipv4 += 1,
        }
    }
    services
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn services_are_counted_by_family() {
        const HEADING: &str = "IP Virtual Server version 1.2.1 (size=4096)\n\
            Prot LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n";
        assert_eq!(count(HEADING), Services::default());
        let text = format!(
            "{HEADING}TCP  C0000201:0050 rr \n  -> C6336402:0050      Masq    1      0          0         \n\
             UDP  C0000201:0035 wlc persistent 300 FFFFFFFF\n\
             TCP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0050 sh \n  \
             -> [2001:0db8:0000:0000:0000:0000:0000:0002]:0050      Route   1      0          0         \n\
             FWM  00000007 rr\n"
        );
        assert_eq!(count(&text), Services { ipv4: 2, ipv6: 1, marked: 1 });
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "\\PC{0,200}") {
            let _ = count(&text);
        }
    }
}
