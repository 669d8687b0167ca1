//! Packets of VLANs, of several tables, and from wrong sources, all in one burst: each goes where its interface says.

#![expect(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use warmlane_forward::control::config::{IcmpLimits, InterfaceAddress};
use warmlane_forward::control::{
    Adjacency, Host, InterfaceCheck, LiveRoutes, NextHop, RouterPort, SourceCheck, VlanInterface,
};
use warmlane_forward::datapath::{Forwarder, Reason, mark_of_table};
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_table::IpPrefix;
use warmlane_wire::{MacAddress, checksum};

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A forwarder of two ports. On port 0 VLAN 7 belongs to table 1, in which the same addresses lead elsewhere.
struct World {
    pool: Pool,
    live: LiveRoutes,
    forwarder: Forwarder,
    outputs: KeptOutputs,
}

/// The next hops, by number: to port 0, to port 1, to VLAN 9 on port 1, to VLAN 7 on port 0, nowhere, the kernel.
const HOPS: usize = 6;

fn hops() -> Vec<NextHop> {
    let to = |last: u8, port, vlan| {
        NextHop::Forward(Adjacency {
            destination: MacAddress([4, 0, 0, 0, 0, last]),
            source: MacAddress(STATION),
            port,
            mtu: 1500,
            vlan,
        })
    };
    vec![to(0, 0, None), to(1, 1, None), to(2, 1, Some(9)), to(3, 0, Some(7)), NextHop::Drop, NextHop::Punt]
}

impl World {
    fn new(plain: SourceCheck, tagged: SourceCheck) -> Self {
        let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() }).unwrap();
        let mut live = LiveRoutes::new(1, 7).unwrap();
        let ids: Vec<_> = (0..HOPS).map(|_| live.take_number().unwrap()).collect();
        assert_eq!(live.add_table().unwrap(), 1);
        let address = |text: &str| InterfaceAddress { address: text.parse().unwrap(), length: 24 };
        let vlan = VlanInterface {
            vlan: 7,
            addresses: vec![address("10.7.0.254")],
            table: 1,
            source_check: tagged.into(),
            hop_limit: 64,
        };
        let port = |source_check: SourceCheck, vlans| RouterPort {
            mac: Some(MacAddress(STATION)),
            mtu: 1500,
            addresses: vec![address("10.0.0.254")],
            table: 0,
            source_check: source_check.into(),
            hop_limit: 64,
            vlans: Some(vlans),
        };
        let ports = vec![port(plain, vec![vlan]), port(SourceCheck::Off, Vec::new())];
        live.set_hops(ports, hops()).unwrap();
        for (table, prefix, hop) in [
            (0, "10.0.0.0/16", 0),
            (0, "10.1.0.0/16", 1),
            (0, "10.2.0.0/16", 2),
            (0, "10.4.0.0/16", 4),
            (0, "10.5.0.0/16", 5),
            (0, "2001:db8::/48", 0),
            (0, "2001:db8:1::/48", 1),
            (1, "10.1.0.0/16", 2),
            (1, "10.7.0.0/16", 3),
            (1, "10.5.0.0/16", 5),
        ] {
            match prefix.parse().unwrap() {
                IpPrefix::V4(prefix) => live.change_ipv4(table, [(prefix, Some(ids[hop]))]).unwrap(),
                IpPrefix::V6(prefix) => live.change_ipv6(table, [(prefix, Some(ids[hop]))]).unwrap(),
            }
        }
        let lane = live.lane("lane0").unwrap();
        let forwarder = Forwarder::new(lane, pool.clone(), IcmpLimits { rate: 0, burst: 0 });
        let outputs = KeptOutputs::of(&forwarder).without(Forwarder::HOLD);
        Self { pool, live, forwarder, outputs }
    }

    /// Forwards frames that come in by port 0, all in one burst.
    fn process(&mut self, frames: &[Vec<u8>]) {
        let mut burst = Burst::with_limit(256);
        for frame in frames {
            let mut packet = self.pool.take().unwrap();
            packet.fill(frame).unwrap();
            packet.set_port(0);
            burst.push(packet).unwrap();
        }
        self.forwarder.process(&mut burst, &mut self.outputs.outputs());
        assert_eq!(self.forwarder.view().balance(), 0);
    }

    /// What was sent on a port: the station it goes to, the tag if there is one, the last byte of the payload.
    fn sent(&mut self, port: usize) -> Vec<(u8, Option<u16>, u8)> {
        let read = |packet: Packet| {
            let data = packet.data();
            let tag = (data[12..14] == [0x81, 0]).then(|| u16::from_be_bytes([data[14], data[15]]));
            (data[5], tag, *data.last().unwrap())
        };
        self.outputs.burst(Forwarder::FIRST_PORT + port).drain().map(read).collect()
    }

    /// What was punted, with its mark.
    fn punted(&mut self) -> Vec<(u32, Vec<u8>)> {
        let punted = self.outputs.burst(Forwarder::PUNT).drain();
        punted.map(|packet| (packet.mark(), packet.data().to_vec())).collect()
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.forwarder.view().drops().get(reason)
    }
}

fn ethernet(tag: Option<u16>, ethertype: [u8; 2]) -> Vec<u8> {
    let mut frame = [STATION, [4, 0, 0, 0, 9, 9]].concat();
    if let Some(tag) = tag {
        frame.extend([0x81, 0]);
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(ethertype);
    frame
}

/// A UDP packet with this mark as its last byte.
fn ipv4(tag: Option<u16>, from: [u8; 4], to: [u8; 4], mark: u8) -> Vec<u8> {
    let mut header = [0_u8; 20];
    header[..9].copy_from_slice(&[0x45, 0, 0, 60, 0, 0, 0, 0, 64]);
    header[9] = 17;
    header[12..16].copy_from_slice(&from);
    header[16..].copy_from_slice(&to);
    let sum = checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ethernet(tag, [8, 0]);
    frame.extend(header);
    frame.extend([0; 39]);
    frame.push(mark);
    frame
}

fn ipv6(from: &str, to: &str, mark: u8) -> Vec<u8> {
    let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut frame = ethernet(None, [0x86, 0xdd]);
    frame.extend([0x60, 0, 0, 0, 0, 40, 17, 64]);
    frame.extend(octets(from));
    frame.extend(octets(to));
    frame.extend([0; 39]);
    frame.push(mark);
    frame
}

const HERE: [u8; 4] = [10, 0, 0, 1];
const HERE_7: [u8; 4] = [10, 7, 0, 1];
const FAR: [u8; 4] = [10, 1, 0, 1];

#[test]
fn each_vlan_has_the_routes_of_its_table() {
    let mut world = World::new(SourceCheck::Off, SourceCheck::Off);
    world.process(&[
        ipv4(None, HERE, FAR, 1),
        ipv4(Some(7), HERE_7, FAR, 2),
        // Tagged for its priority only: as if untagged.
        ipv4(Some(3 << 13), HERE, FAR, 3),
        ipv4(Some(8), HERE, FAR, 4),
        // Into a VLAN, out of one, and from one into another.
        ipv4(None, HERE, [10, 2, 0, 1], 5),
        ipv4(Some(7), HERE_7, [10, 7, 0, 9], 6),
        ipv4(None, HERE, FAR, 7),
        // A route of the other table only.
        ipv4(None, HERE, [10, 7, 0, 1], 8),
        ipv4(Some(7), HERE_7, [10, 0, 0, 1], 9),
    ]);
    assert_eq!(world.sent(0), [(3, Some(7), 6)]);
    assert_eq!(world.sent(1), [(1, None, 1), (2, Some(9), 2), (1, None, 3), (2, Some(9), 5), (1, None, 7)]);
    assert_eq!(world.dropped(Reason::NoRoute), 2);
    // Somebody else's VLAN.
    assert_eq!(world.punted(), [(mark_of_table(None), ipv4(Some(8), HERE, FAR, 4))]);
}

#[test]
fn what_cannot_be_punted_is_dropped_for_that_reason() {
    let mut world = World::new(SourceCheck::Off, SourceCheck::Off);
    *world.outputs.burst(Forwarder::PUNT) = Burst::with_limit(2);
    world.process(&[1, 2, 3].map(|mark| ipv4(None, HERE, [10, 5, 0, 1], mark)));
    let counters = world.forwarder.view();
    assert_eq!(
        (counters.punted(), counters.drops().get(Reason::PuntRefused), counters.drops().total()),
        (2, 1, 1)
    );
}

/// Whatever is in them, even what would be dropped elsewhere: this is not the place to judge.
#[test]
fn packets_of_other_vlans_are_punted() {
    let mut world = World::new(SourceCheck::Off, SourceCheck::Off);
    let mut expired = ipv4(Some(8), HERE, FAR, 1);
    expired[26] = 1;
    let mut broken = ipv4(Some(8), HERE, FAR, 2);
    broken[28] ^= 1;
    let martian = ipv4(Some(8), [127, 0, 0, 1], FAR, 3);
    let mut of_a_provider = ipv4(Some(7), HERE_7, FAR, 4);
    of_a_provider[12..14].copy_from_slice(&[0x88, 0xa8]);
    let frames = [expired, broken, martian, of_a_provider];
    world.process(&frames);
    assert_eq!(world.punted(), frames.map(|frame| (mark_of_table(None), frame)));
    // Of our own VLAN, it is.
    let mut broken = ipv4(Some(7), HERE_7, FAR, 2);
    broken[28] ^= 1;
    world.process(&[broken]);
    assert_eq!(world.dropped(Reason::Ipv4Checksum), 1);
}

#[test]
fn what_is_punted_is_as_it_came_in_and_of_a_known_table() {
    let mut world = World::new(SourceCheck::Off, SourceCheck::Off);
    let frames = [ipv4(None, HERE, [10, 5, 0, 1], 1), ipv4(Some(7), HERE_7, [10, 5, 0, 1], 2)];
    world.process(&frames);
    let marks = [0, 1].map(|table| mark_of_table(Some(table)));
    assert_eq!(world.punted(), [(marks[0], frames[0].clone()), (marks[1], frames[1].clone())]);
}

#[test]
fn wrong_sources_are_taken_out_and_the_others_keep_their_order() {
    let nowhere = [10, 9, 0, 1];
    let frames = |count: u8| -> Vec<Vec<u8>> {
        (0..count)
            .map(|mark| match mark % 8 {
                1 => ipv4(None, nowhere, FAR, mark),
                2 => ipv4(None, [10, 1, 9, 9], FAR, mark),
                3 => ipv6("2001:db8::1", "2001:db8:1::1", mark),
                4 => ipv6("2001:db8:1::7", "2001:db8:1::1", mark),
                5 => ipv4(Some(7), [10, 1, 9, 9], FAR, mark),
                6 => ipv4(Some(7), HERE_7, FAR, mark),
                7 => ipv4(None, [10, 4, 0, 1], FAR, mark),
                _ => ipv4(None, HERE, FAR, mark),
            })
            .collect()
    };
    // Which of the eight kinds may pass.
    for (plain, tagged, passes) in [
        (SourceCheck::Off, SourceCheck::Off, &[0_u8, 1, 2, 3, 4, 5, 6, 7][..]),
        (SourceCheck::Loose, SourceCheck::Off, &[0, 2, 3, 4, 5, 6]),
        (SourceCheck::Strict, SourceCheck::Loose, &[0, 3, 5, 6]),
        (SourceCheck::Strict, SourceCheck::Strict, &[0, 3, 6]),
        (SourceCheck::Off, SourceCheck::Strict, &[0, 1, 2, 3, 4, 6, 7]),
    ] {
        for count in [1, 7, 8, 64, 255] {
            let mut world = World::new(plain, tagged);
            world.process(&frames(count));
            let marks: Vec<u8> = world.sent(1).into_iter().map(|(_, _, mark)| mark).collect();
            let expected: Vec<u8> = (0..count).filter(|mark| passes.contains(&(mark % 8))).collect();
            assert_eq!(marks, expected, "{plain} {tagged} {count}");
            let dropped = world.dropped(Reason::Ipv4ReversePath) + world.dropped(Reason::Ipv6ReversePath);
            assert_eq!(dropped, u64::from(count) - expected.len() as u64);
        }
    }
}

/// What was switched on for one burst is off for the next: nothing of it is left over.
#[test]
fn checks_change_between_bursts() {
    let mut world = World::new(SourceCheck::Strict, SourceCheck::Off);
    let wrong = [ipv4(None, [10, 1, 9, 9], FAR, 1)];
    world.process(&wrong);
    assert!(world.sent(1).is_empty());
    let port = |source_check: SourceCheck| RouterPort {
        mac: Some(MacAddress(STATION)),
        mtu: 1500,
        addresses: Vec::new(),
        table: 0,
        source_check: source_check.into(),
        hop_limit: 64,
        vlans: Some(Vec::new()),
    };
    world.live.set_hops(vec![port(SourceCheck::Off), port(SourceCheck::Off)], hops()).unwrap();
    world.forwarder.poll(0, &mut Burst::new(), &mut world.outputs.outputs());
    world.process(&wrong);
    assert_eq!(world.sent(1), [(1, None, 1)]);
}

/// Who claims to be one of us is dropped, and who claims to be everybody is somebody else's to judge; in a burst and alone.
#[test]
fn claimed_sources_do_not_pass() {
    let mut world = World::new(SourceCheck::Off, SourceCheck::Off);
    let host = Host {
        own_sources: vec![[10, 1, 9, 1].into()],
        broadcast_sources: vec![[10, 1, 9, 255].into()],
        ..Host::default()
    };
    let port = |accepts_own| RouterPort {
        mac: Some(MacAddress(STATION)),
        mtu: 1500,
        addresses: Vec::new(),
        table: 0,
        source_check: InterfaceCheck { accepts_own, ..InterfaceCheck::default() },
        hop_limit: 64,
        vlans: Some(Vec::new()),
    };
    let sources = [[10, 1, 9, 9], [10, 1, 9, 1], [10, 1, 9, 255], [10, 1, 9, 2]];
    let all: Vec<Vec<u8>> =
        sources.into_iter().zip(1..).map(|(source, number)| ipv4(None, source, FAR, number)).collect();
    world.live.set_host(host.clone());
    world.live.set_hops(vec![port(false), port(false)], hops()).unwrap();
    world.forwarder.poll(0, &mut Burst::new(), &mut world.outputs.outputs());
    world.process(&all);
    assert_eq!(world.sent(1), [(1, None, 1), (1, None, 4)]);
    assert_eq!(world.dropped(Reason::Ipv4MartianSource), 1);
    assert_eq!(world.punted().len(), 1);
    world.live.set_hops(vec![port(true), port(true)], hops()).unwrap();
    world.forwarder.poll(0, &mut Burst::new(), &mut world.outputs.outputs());
    world.process(&all);
    assert_eq!(world.sent(1), [(1, None, 1), (1, None, 2), (1, None, 4)]);
    assert_eq!(world.punted().len(), 1);
}
