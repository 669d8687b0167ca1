//! Where stations are, by the kernel's forwarding tables (FDB): behind which member of a bridge, and behind which tunnel end of a VXLAN
//! device. An address of zeros stands for all that a device doesn't know.

use std::collections::HashMap;

use super::event::{LinkIndex, StationKey, TunnelEnd};

/// All stations that bridges and VXLAN devices know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stations {
    members: HashMap<StationKey, LinkIndex>,
    ends: HashMap<LinkIndex, HashMap<[u8; 6], Vec<Option<TunnelEnd>>>>,
}

/// Frames to this address go to all of several tunnel ends.
fn is_for_several(mac: [u8; 6]) -> bool {
    mac == [0; 6] || mac[0] & 1 != 0
}

impl Stations {
    /// The member that a bridge knows a station behind.
    pub fn member(&self, key: StationKey) -> Option<LinkIndex> {
        self.members.get(&key).copied()
    }

    /// All stations of a bridge, and the members that they are behind.
    pub fn of_bridge(&self, bridge: LinkIndex) -> impl Iterator<Item = (StationKey, LinkIndex)> {
        self.members.iter().filter(move |(key, _)| key.bridge == bridge).map(|(key, member)| (*key, *member))
    }

    /// The tunnel end that a device sends a frame to; `None` if these are several, or none, or the kernel knows more of it.
    pub fn end(&self, device: LinkIndex, mac: [u8; 6]) -> Option<TunnelEnd> {
        let of_device = self.ends.get(&device)?;
        match of_device.get(&mac).or_else(|| of_device.get(&[0; 6]))?[..] {
            [only] => only,
            _ => None,
        }
    }

    /// All that a device knows.
    pub fn of_device(&self, device: LinkIndex) -> impl Iterator<Item = ([u8; 6], TunnelEnd)> {
        let all = self.ends.get(&device).into_iter().flatten();
        all.flat_map(|(mac, ends)| ends.iter().flatten().map(|end| (*mac, *end)))
    }

    /// A bridge knows a station behind this member. Says whether that is new.
    pub(super) fn add(&mut self, key: StationKey, member: LinkIndex) -> bool {
        self.members.insert(key, member) != Some(member)
    }

    /// A bridge has forgotten that. It may have said before that the station is elsewhere by now.
    pub(super) fn remove(&mut self, key: StationKey, member: LinkIndex) -> bool {
        let is_there = self.members.get(&key) == Some(&member);
        is_there && self.members.remove(&key).is_some()
    }

    /// A device sends frames for a station to this tunnel end: as well, if it sends them to several, else instead (`vxlan_fdb_replace`).
    pub(super) fn add_end(&mut self, device: LinkIndex, mac: [u8; 6], end: Option<TunnelEnd>) -> bool {
        let ends = self.ends.entry(device).or_default().entry(mac).or_default();
        if ends.contains(&end) {
            return false;
        }
        if !is_for_several(mac) {
            ends.clear();
        }
        ends.push(end);
        true
    }

    /// A device no longer does that.
    pub(super) fn remove_end(&mut self, device: LinkIndex, mac: [u8; 6], end: Option<TunnelEnd>) -> bool {
        let Some(of_device) = self.ends.get_mut(&device) else { return false };
        let Some(ends) = of_device.get_mut(&mac) else { return false };
        let Some(index) = ends.iter().position(|known| *known == end) else { return false };
        ends.remove(index);
        if ends.is_empty() {
            of_device.remove(&mac);
        }
        true
    }

    /// An interface is gone, with all that it, or a bridge about it, knew.
    pub(super) fn forget(&mut self, link: LinkIndex) -> bool {
        let before = self.members.len();
        self.members.retain(|key, member| key.bridge != link && *member != link);
        self.ends.remove(&link).is_some() || before != self.members.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn tunnel_end(last: u8) -> TunnelEnd {
        let address = [192, 0, 2, last].into();
        TunnelEnd { address, udp_port: None, identifier: None, has_link: false }
    }

    #[test]
    fn a_station_is_behind_one_end_and_the_others_behind_all() {
        let (mut all, end) = (Stations::default(), |last| Some(tunnel_end(last)));
        assert!(all.add_end(5, MAC, end(1)) && !all.add_end(5, MAC, end(1)) && all.add_end(5, MAC, end(2)));
        assert_eq!((all.end(5, MAC), all.end(6, MAC), all.end(5, [4; 6])), (end(2), None, None));
        // What it was replaced by may be said to be gone before or after.
        assert!(!all.remove_end(5, MAC, end(1)) && all.remove_end(5, MAC, end(2)));
        assert_eq!(all.end(5, MAC), None);
        assert!(all.add_end(5, [0; 6], end(1)));
        assert_eq!(all.end(5, MAC), end(1), "the only one that there is");
        assert!(all.add_end(5, [0; 6], end(2)));
        assert_eq!((all.end(5, MAC), all.of_device(5).count()), (None, 2));
        assert!(all.remove_end(5, [0; 6], end(1)));
        assert_eq!(all.end(5, MAC), end(2));
        assert!(all.forget(5) && !all.forget(5));
        assert_eq!(all, Stations { ends: HashMap::new(), ..Stations::default() });
    }

    #[test]
    fn a_station_moves_from_member_to_member() {
        let mut all = Stations::default();
        let key = StationKey { bridge: 3, mac: MAC, vlan: 0 };
        assert!(all.add(key, 5) && all.add(key, 6) && !all.add(key, 6));
        assert!(!all.remove(key, 5), "that is known already");
        assert_eq!((all.member(key), all.of_bridge(3).count(), all.of_bridge(4).count()), (Some(6), 1, 0));
        assert!(all.remove(key, 6) && all.member(key).is_none());
        assert!(all.add(key, 6) && all.forget(6) && all.member(key).is_none());
    }
}
