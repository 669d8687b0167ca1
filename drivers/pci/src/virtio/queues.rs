//! Several pairs of queues: how many a device has, and how it spreads flows over them (virtio 1.2, sections 5.1.2 and 5.1.6.5.5 to 5.1.6.5.7).

use super::device::{Device, Problem};
use super::registers::Network;
use crate::address::PciAddress;
use crate::vfio::Registers;
use std::ops::RangeInclusive;
use std::time::Duration;
use warmlane_virtio::bus::{ControlQueue, LONGEST_COMMAND, control_ring_size};
use warmlane_virtio::features::{CONTROL_QUEUE, MULTIQUEUE, RSS};
use warmlane_wire::toeplitz::{KEY_LENGTH, MICROSOFT_KEY};

/// Pairs of queues that a device can have (section 5.1.4.1).
const PAIRS: RangeInclusive<u16> = 1..=0x8000;

/// Pairs of queues that are used at most: an entry of the table for each.
pub(super) const MOST_PAIRS: u16 = ENTRIES;

/// Entries of the table that a hash chooses a queue from: as many as each device with RSS takes, and bytes of the key (section 5.1.4.1).
const ENTRIES: u16 = 128;
const KEY_SIZE: u8 = KEY_LENGTH as u8;

/// How long a device may take for a command. QEMU is done at once.
const COMMAND: Duration = Duration::from_secs(2);

/// Commands are of a class, `VIRTIO_NET_CTRL_MQ` (section 5.1.6.5.5).
const MULTIQUEUE_CLASS: u8 = 4;

/// Use so many pairs, and spread flows as you like: `VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET` (section 5.1.6.5.6).
const SET_PAIRS: u8 = 0;

/// Use so many pairs, and spread flows like this: `VIRTIO_NET_CTRL_MQ_RSS_CONFIG` (section 5.1.6.5.7.1).
const SET_RSS: u8 = 1;

/// Kinds of packets whose hashes are wanted, `VIRTIO_NET_RSS_HASH_TYPE_…` (section 5.1.6.4.3.1): over IPv4 and IPv6, by addresses and, of TCP and UDP, ports.
const HASH_TYPES: u32 = IPV4 | TCP_IPV4 | UDP_IPV4 | IPV6 | TCP_IPV6 | UDP_IPV6;
const IPV4: u32 = 1 << 0;
const TCP_IPV4: u32 = 1 << 1;
const UDP_IPV4: u32 = 1 << 2;
const IPV6: u32 = 1 << 3;
const TCP_IPV6: u32 = 1 << 4;
const UDP_IPV6: u32 = 1 << 5;

/// What is wanted of a device of which several pairs are to be used.
pub(super) const WANTED: u64 = CONTROL_QUEUE | MULTIQUEUE | RSS;

/// Whether a device with these features has several pairs: both ways to use them go by the control queue (section 5.1.3.1).
const fn has_several(features: u64) -> bool {
    features & CONTROL_QUEUE != 0 && features & (MULTIQUEUE | RSS) != 0
}

/// The control queue's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ControlRing {
    pub(super) number: u16,
    /// Descriptors.
    pub(super) size: u16,
}

impl<R: Registers> Device<R> {
    /// Resets the device, and asks how many pairs of queues it has.
    pub(super) fn count_pairs(&self) -> Result<u16, Problem> {
        if has_several(self.offer()?) { self.most_pairs() } else { Ok(1) }
    }

    fn most_pairs(&self) -> Result<u16, Problem> {
        let pairs = self.read(Network::most_pairs)?;
        if PAIRS.contains(&pairs) {
            Ok(pairs)
        } else {
            Err(format!("it says that it has {pairs} pairs of queues, and there can be 1 to 32768"))
        }
    }

    /// The ring of the control queue, by which the device is told to use so many pairs. It is behind those of all that the device has.
    pub(super) fn control_ring(&self, features: u64, pairs: u16) -> Result<ControlRing, Problem> {
        if !has_several(features) {
            return Err(format!("it has but one pair of queues, and had {pairs} before"));
        }
        let most = self.most_pairs()?;
        if most < pairs {
            return Err(format!("it has {most} pairs of queues, and had {pairs} before"));
        }
        let (number, there) = (2 * u32::from(most), self.common.queues());
        let number = u16::try_from(number).ok().filter(|number| *number < there);
        let number = number.ok_or_else(|| {
            format!("it has {there} queues, and none for control behind {most} pairs of others")
        })?;
        self.common.select(number);
        let longest = self.common.queue_size();
        let size = control_ring_size(longest);
        let size =
            size.ok_or_else(|| format!("its control queue has {longest} descriptors, 2 are needed"))?;
        Ok(ControlRing { number, size })
    }

    /// Has the running device use so many pairs, which it has rings of. It is waited for.
    pub(super) fn use_pairs(
        &self,
        control: &mut ControlQueue,
        features: u64,
        pairs: u16,
    ) -> Result<(), Problem> {
        let command = self.command(features, pairs)?;
        let result = control.run(&command, COMMAND);
        result.map_err(|error| format!("it can't be told to use {pairs} pairs of queues: {error}"))
    }

    /// What it is told for that.
    fn command(&self, features: u64, pairs: u16) -> Result<Vec<u8>, Problem> {
        if features & RSS == 0 {
            return Ok([&[MULTIQUEUE_CLASS, SET_PAIRS][..], &pairs.to_le_bytes()].concat());
        }
        let (key_size, entries, types) = self.read(Network::rss)?;
        if key_size < KEY_SIZE || entries < ENTRIES || types & HASH_TYPES == 0 {
            return Err(format!(
                "it says that it has RSS, with keys of {key_size} bytes, tables of {entries} entries and hashes of the kinds {types:#x}: there must be {KEY_SIZE}, \
                 {ENTRIES} and some of {HASH_TYPES:#x}"
            ));
        }
        Ok(rss_command(types & HASH_TYPES, pairs))
    }
}

/// What is said of a device that spreads flows by itself.
pub(super) fn without_rss(address: PciAddress) -> String {
    format!(
        "PCI device {address} spreads flows over its queues as it likes: it has no RSS (VIRTIO_NET_F_RSS, in QEMU rss=on, but for vhost-user)"
    )
}

/// `struct virtio_net_rss_config` behind the class and the command (section 5.1.6.5.7.1). What has no hash goes to the first queue.
fn rss_command(types: u32, pairs: u16) -> Vec<u8> {
    let mut command = vec![MULTIQUEUE_CLASS, SET_RSS];
    command.extend(types.to_le_bytes());
    // The mask of the table, and the queue of packets without hash.
    command.extend([ENTRIES - 1, 0].map(u16::to_le_bytes).as_flattened());
    command.extend((0..ENTRIES).flat_map(|entry| (entry % pairs).to_le_bytes()));
    // The queues that are sent by, and the key.
    command.extend(pairs.to_le_bytes());
    command.push(KEY_SIZE);
    command.extend(MICROSOFT_KEY);
    command
}

const _: () = assert!(2 + 4 + 2 + 2 + 2 * ENTRIES as usize + 2 + 1 + KEY_LENGTH <= LONGEST_COMMAND);

#[cfg(test)]
mod tests {
    use super::super::model::{Model, State};
    use super::super::registers::Common;
    use super::*;
    use warmlane_virtio::features::VERSION_1;
    use warmlane_wire::toeplitz::Toeplitz;

    const OFFERED: u64 = VERSION_1 | WANTED;

    /// A device with four pairs, of which two are wanted.
    fn device(change: impl Fn(&mut State)) -> Device<Model> {
        let model = Model::new(OFFERED);
        let mut state = model.state();
        let mut queue = state.queues[0].clone();
        state.queues.resize(8, queue.clone());
        queue.size = 64;
        state.queues.push(queue);
        (state.pairs, state.rss) = (4, (40, 128, 0x1ff));
        change(&mut state);
        drop(state);
        Device { common: Common(model.clone()), network: Some(Network(model.network())) }
    }

    #[test]
    fn pairs_are_counted_where_there_are_several() {
        for (offered, pairs) in [
            (OFFERED, 4),
            (OFFERED & !RSS, 4),
            (OFFERED & !MULTIQUEUE, 4),
            (OFFERED & !(RSS | MULTIQUEUE), 1),
            (OFFERED & !CONTROL_QUEUE, 1),
            (VERSION_1, 1),
        ] {
            assert_eq!(device(|state| state.offered = offered).count_pairs(), Ok(pairs), "{offered:x}");
        }
        for pairs in [0, 0x8001, 65535] {
            let error = device(|state| state.pairs = pairs).count_pairs().unwrap_err();
            assert!(error.contains(&format!("says that it has {pairs} pairs")), "{error}");
            // Who wants one doesn't ask.
            assert_eq!(
                device(|state| (state.pairs, state.offered) = (pairs, VERSION_1)).count_pairs(),
                Ok(1)
            );
        }
        let error = device(|state| state.restless = true).count_pairs().unwrap_err();
        assert!(error.contains("changes all the time"), "{error}");
        let error = Device { network: None, ..device(|_| ()) }.count_pairs().unwrap_err();
        assert!(error.contains("no registers of a network device"), "{error}");
    }

    #[test]
    fn the_control_queue_is_behind_those_of_all_pairs() {
        let ring = |change: fn(&mut State)| device(change).control_ring(OFFERED, 2);
        assert_eq!(ring(|_| ()), Ok(ControlRing { number: 8, size: 64 }));
        assert_eq!(ring(|state| state.queues[8].size = 3), Ok(ControlRing { number: 8, size: 2 }));
        for (said, change) in [
            ("4 pairs of others", (|state| state.queues.truncate(8)) as fn(&mut State)),
            ("32768 pairs of others", |state| state.pairs = 0x8000),
            ("has 1 pairs of queues, and had 2", |state| state.pairs = 1),
            ("says that it has 0 pairs", |state| state.pairs = 0),
            ("has 1 descriptors, 2 are needed", |state| state.queues[8].size = 1),
            ("has 0 descriptors, 2 are needed", |state| state.queues[8].size = 0),
        ] {
            let error = ring(change).unwrap_err();
            assert!(error.contains(said), "{said}: {error}");
        }
        let error = device(|_| ()).control_ring(OFFERED & !(MULTIQUEUE | RSS), 2).unwrap_err();
        assert!(error.contains("but one pair"), "{error}");
    }

    #[test]
    fn a_device_is_told_how_many_pairs_are_used() {
        let device = device(|_| ());
        assert_eq!(device.command(OFFERED & !RSS, 3), Ok(vec![4, 0, 3, 0]));
    }

    /// What it is told is as long as it says, and chooses the queue of each flow as the verification suite has its hash.
    #[test]
    fn a_device_is_told_how_flows_are_spread() {
        let command = device(|_| ()).command(OFFERED, 3).unwrap();
        let word = |at: usize| u16::from_le_bytes([command[at], command[at + 1]]);
        assert_eq!(command[..6], [4, 1, 0x3f, 0, 0, 0], "IPv4 and IPv6, and TCP and UDP over both");
        let mask = word(6);
        assert_eq!((mask, word(8)), (127, 0));
        let entries: Vec<u16> = (0..=usize::from(mask)).map(|entry| word(10 + 2 * entry)).collect();
        let rest = &command[10 + 2 * entries.len()..];
        assert_eq!(rest[..3], [3, 0, 40]);
        let key: [u8; 40] = rest[3..].try_into().unwrap();
        let toeplitz = Toeplitz::new(&key);
        let flow = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        assert_eq!(toeplitz.hash(&flow), 0x51cc_c178);
        let queue = entries[(0x51cc_c178 & u32::from(mask)) as usize];
        assert_eq!(queue, 0x78 % 3);
        let counts = [0, 1, 2].map(|queue| entries.iter().filter(|entry| **entry == queue).count());
        assert_eq!(counts, [43, 43, 42]);
        // No kind of hash that it doesn't have.
        let command = device(|state| state.rss.2 = 0x1c1).command(OFFERED, 3).unwrap();
        assert_eq!(command[2..6], [1, 0, 0, 0]);
    }

    #[test]
    fn rss_that_cannot_be_is_refused() {
        for (said, rss) in [
            ("keys of 39 bytes", (39, 128, 0x1ff)),
            ("tables of 127 entries", (40, 127, 0x1ff)),
            ("kinds 0x1c0", (40, 128, 0x1c0)),
        ] {
            let error = device(|state| state.rss = rss).command(OFFERED, 2).unwrap_err();
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}
