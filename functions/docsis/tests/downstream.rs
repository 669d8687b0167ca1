//! Packets through the upper MAC, the lower MAC and the other end.

mod common;
#[path = "downstream/rehearsed.rs"]
mod rehearsed;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use common::pool;
use warmlane_docsis::control::{
    Action, Channel, Classifier, ConfigError, FilterGroup, FilterRule, Generated, ServiceFlow, ServiceGroup,
    generate,
};
use warmlane_docsis::keys::KeyChange;
use warmlane_docsis::lower::{LowerMac, TunnelAddresses};
use warmlane_docsis::modem::{ModemDrop, Modems};
use warmlane_docsis::upper::{FlowCountersView, Match, UpperDrop, UpperMac};
use warmlane_lane::{Explanation, KeptOutputs, ProbeConfig, ProbeReader, Stage};
use warmlane_mem::{Burst, Packet};
use warmlane_sync::mailbox::{self, Sender};
use warmlane_sys::clock;
use warmlane_wire::{EtherType, Frame, IpProtocol, Ipv4Fields, Ipv6Fields, MacAddress};

/// Which of the three it is.
const UPPER: usize = 0;
const LOWER: usize = 1;
const MODEMS: usize = 2;

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(300);

fn small(modems: u16) -> ServiceGroup {
    // Every second modem is on SC-QAM channels, which nobody may be without.
    let sc_qam = if modems > 1 { 2 } else { 0 };
    let mut group = generate(&Generated { modems, ofdm: 3, sc_qam, maximum_rate: None });
    // On a busy machine a test may be held up for longer than a modem would wait.
    (group.limits.resequencing, group.limits.age) = (LONG, LONG);
    group
}

/// A UDP packet to a modem, with a number in it.
fn frame(modem: u16, traffic_class: u8, number: u32, length: usize) -> Vec<u8> {
    let [_, a, b, c] = (u32::from(modem) + 1).to_be_bytes();
    let mut payload = vec![number as u8; length.max(4)];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    let addresses = Ipv4Fields::new(Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(10, a, b, c));
    Frame::new()
        .ethernet(MacAddress([2, 0xca, 0xb1, a, b, c]), MacAddress([2, 0, 0, 0, 0, 9]))
        .ipv4(Ipv4Fields { traffic_class, ..addresses })
        .udp(5, 6)
        .payload(&payload)
        .to_vec()
        .expect("a frame")
}

/// All three with what is between them.
struct Downstream {
    upper: (UpperMac, KeptOutputs),
    lower: (LowerMac, KeptOutputs),
    modems: (Modems, KeptOutputs),
    /// New keys for the lower MAC and for modems.
    keys: [Sender<KeyChange>; 2],
    /// Who captures what the three drop.
    drops: [ProbeReader; 3],
    delivered: Vec<Vec<u8>>,
}

impl Downstream {
    fn new(group: &ServiceGroup) -> Self {
        group.check().expect("a service group");
        let [(lower_keys, lower_changes), (modem_keys, modem_changes)] =
            [0; 2].map(|_| mailbox::mailbox(64).expect("a mailbox"));
        let upper = UpperMac::new(group).expect("an upper MAC");
        let lower = LowerMac::new(group, pool().clone(), Some(lower_changes)).expect("a lower MAC");
        let modems = Modems::new(group, pool().clone(), Some(modem_changes)).expect("modems");
        let (mut upper, mut lower, mut modems) =
            (with_outputs(upper), with_outputs(lower), with_outputs(modems));
        let drops = [&mut upper.1, &mut lower.1, &mut modems.1]
            .map(|outputs| outputs.watch_drops(ProbeConfig::default()).expect("memory"));
        Self { upper, lower, modems, keys: [lower_keys, modem_keys], drops, delivered: Vec::new() }
    }

    /// What one of the three has shown of its drops since this was asked last: reasons and frames.
    fn shown(&mut self, of: usize) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        self.drops[of].read(usize::MAX, |record| {
            all.push((record.reason.unwrap_or_default().to_owned(), record.data.to_vec()));
        });
        all
    }

    fn offer<'a>(&mut self, frames: impl IntoIterator<Item = &'a Vec<u8>>) {
        let mut burst = Burst::new();
        for frame in frames {
            let mut packet = pool().take().expect("a buffer");
            packet.fill(frame).expect("space");
            burst.push(packet).expect("space in the burst");
        }
        self.upper.0.process(&mut burst, &mut self.upper.1.outputs());
        self.carry(|_| true);
    }

    /// Carries on what is between the stages. `passes` says which packets of the tunnel are not lost.
    fn carry(&mut self, mut passes: impl FnMut(&Packet) -> bool) {
        let none = &mut Burst::new();
        self.upper.0.poll(clock::cycles(), none, &mut self.upper.1.outputs());
        hand_over(&mut self.upper.1, &mut self.lower, |_| true);
        self.lower.0.poll(clock::cycles(), none, &mut self.lower.1.outputs());
        hand_over(&mut self.lower.1, &mut self.modems, &mut passes);
        self.modems.0.poll(clock::cycles(), none, &mut self.modems.1.outputs());
        let came = self.modems.1.burst(0).drain().map(|packet| packet.data().to_vec());
        self.delivered.extend(came);
    }

    fn carry_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < LONG, "{:?} {:?}", self.lower.0.view(), self.modems.0.view());
            self.carry(|_| true);
        }
    }

    fn drops(&self, reason: UpperDrop) -> u64 {
        self.upper.0.view().drops().get(reason)
    }
}

fn with_outputs<S: Stage>(stage: S) -> (S, KeptOutputs) {
    let outputs = KeptOutputs::of(&stage);
    (stage, outputs)
}

fn hand_over(
    from: &mut KeptOutputs,
    to: &mut (impl Stage, KeptOutputs),
    mut passes: impl FnMut(&Packet) -> bool,
) {
    let mut burst = Burst::with_limit(warmlane_mem::BURST_CAPACITY);
    from.burst(0).move_to(&mut burst);
    burst.retain(|packet| passes(packet));
    if !burst.is_empty() {
        to.0.process(&mut burst, &mut to.1.outputs());
    }
}

/// Frames of each modem, in the order in which they were delivered.
fn by_modem(frames: &[Vec<u8>]) -> Vec<Vec<&Vec<u8>>> {
    let mut all: Vec<Vec<&Vec<u8>>> = Vec::new();
    for frame in frames {
        match all.iter_mut().find(|modem| modem[0][..6] == frame[..6]) {
            Some(modem) => modem.push(frame),
            None => all.push(vec![frame]),
        }
    }
    all.sort();
    all
}

#[test]
fn each_packet_comes_once_and_in_order() {
    let v6 = TunnelAddresses::V6 {
        source: "2001:db8::1".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
    };
    for (encryption, crc, addresses) in
        [(true, true, None), (false, true, None), (true, false, None), (true, true, Some(v6))]
    {
        let mut group = small(10);
        (group.encryption, group.crc) = (encryption, crc);
        group.tunnel.addresses = addresses.unwrap_or(group.tunnel.addresses);
        let mut downstream = Downstream::new(&group);
        let lengths = [4, 18, 466, 1_472];
        let frames: Vec<_> = (0..2_000)
            .map(|number| frame((number % 10) as u16, 0, number, lengths[number as usize / 10 % 4]))
            .collect();
        for burst in frames.chunks(50) {
            downstream.offer(burst);
        }
        downstream.carry_until(|downstream| downstream.delivered.len() == 2_000);
        assert_eq!(by_modem(&downstream.delivered), by_modem(&frames));
        let (upper, lower, modems) =
            (downstream.upper.0.view(), downstream.lower.0.view(), downstream.modems.0.view());
        assert_eq!((upper.balance(), lower.balance(), modems.drops().total()), (0, 0, 0));
        assert_eq!(lower.encrypted(), if encryption { 2_000 } else { 0 });
        assert_eq!(lower.crcs(), if crc { 2_000 } else { 0 });
        assert!(lower.depi_full() > 0 && lower.depi_segments() >= 2_000);
    }
}

#[test]
fn keys_are_rolled_without_a_lost_frame() {
    let group = small(4);
    let mut downstream = Downstream::new(&group);
    let mut sent = 0_u32;
    for roll in 1..=100 {
        let frames: Vec<_> =
            (0..20).map(|number| frame((number % 4) as u16, 0, sent + number, 300)).collect();
        downstream.offer(&frames[..10]);
        for modem in &group.modems {
            let key = || KeyChange {
                said: modem.said,
                sequence: (roll % 16) as u8,
                key: group.keys.key(modem.said, roll),
            };
            // The modem first: it must have the key before a frame needs it. Frames made with the one before are under way.
            downstream.keys[1].send(key()).expect("space");
            downstream.keys[0].send(key()).expect("space");
        }
        let wanted = roll * 4;
        downstream.carry_until(|downstream| downstream.lower.0.view().keys() == wanted);
        downstream.offer(&frames[10..]);
        sent += 20;
        downstream.carry_until(|downstream| downstream.delivered.len() == sent as usize);
    }
    let modems = downstream.modems.0.view();
    assert_eq!((modems.keys(), modems.drops().total()), (400, 0));
}

#[test]
fn what_the_upper_mac_drops_is_counted_by_reason() {
    let mut group = small(3);
    let udp = Match { protocol: Some(IpProtocol::UDP), ..Match::default() };
    let rules = vec![FilterRule { matches: udp, action: Action::Deny }];
    group.filters = vec![FilterGroup { rules, otherwise: Action::Permit }];
    group.modems[2].filter = Some(0);
    group.flows[0].queue = 5;
    group.flows[0].maximum_rate = Some(1);
    group.flows[0].maximum_burst = 1_522;
    let mut downstream = Downstream::new(&group);
    let mut unlisted = frame(1, 0, 0, 64);
    unlisted[33] ^= 0x80;
    let to_nobody = frame(9, 0, 0, 64);
    let dropped = [vec![1; 13], to_nobody, unlisted, frame(2, 0, 0, 64), frame(0, 0, 0, 1_600)];
    downstream.offer(&dropped);
    let reasons = ["truncated", "unknown-modem", "unlisted-address", "filtered", "too-long"];
    assert_eq!(
        downstream.shown(UPPER),
        reasons.map(str::to_owned).into_iter().zip(dropped).collect::<Vec<_>>()
    );
    for reason in [
        UpperDrop::Truncated,
        UpperDrop::UnknownModem,
        UpperDrop::UnlistedAddress,
        UpperDrop::Filtered,
        UpperDrop::TooLong,
    ] {
        assert_eq!(downstream.drops(reason), 1, "{reason:?}");
    }
    let many: Vec<_> = (0..10).map(|number| frame(0, 0, number, 1_400)).collect();
    downstream.offer(&many);
    assert_eq!(downstream.drops(UpperDrop::QueueFull), 5, "one is queued where another has just left");
    let flow = &downstream.upper.0.flow_counters()[0];
    assert_eq!((flow.queued(), flow.tail_drops()), (5, 5));
    let shown = downstream.shown(UPPER);
    assert!(shown.iter().all(|(reason, frame)| reason == "queue-full" && many.contains(frame)), "{shown:?}");
    assert_eq!(shown.len(), 5);
}

#[test]
fn what_the_other_two_drop_is_shown_as_it_came() {
    let mut downstream = Downstream::new(&small(1));
    let mut burst = Burst::new();
    // Too short, if it isn't of a service flow that there never was.
    let runt = vec![7; 13];
    let mut packet = pool().take().expect("a buffer");
    packet.fill(&runt).expect("space");
    burst.push(packet).expect("space");
    downstream.lower.0.process(&mut burst, &mut downstream.lower.1.outputs());
    let view = downstream.lower.0.view();
    let counted = view.drops().iter().filter(|(_, count)| *count > 0);
    let expected: Vec<_> = counted.map(|(reason, _)| (reason.name.to_owned(), runt.clone())).collect();
    assert_eq!((expected.len(), downstream.shown(LOWER)), (1, expected));

    let stranger = frame(0, 0, 0, 64);
    let mut packet = pool().take().expect("a buffer");
    packet.fill(&stranger).expect("space");
    burst.push(packet).expect("space");
    downstream.modems.0.process(&mut burst, &mut downstream.modems.1.outputs());
    assert_eq!(downstream.shown(MODEMS), [("not-a-tunnel-packet".to_owned(), stranger)]);
}

#[test]
fn classifiers_choose_by_priority() {
    let mut group = small(1);
    let video = group.flows.len();
    group.flows.push(ServiceFlow::best_effort(0, 0));
    let matches = Match { destination_ports: Some((6, 6)), ..Match::default() };
    group.modems[0].classifiers.push(Classifier { priority: 10, matches, flow: video });
    let mut downstream = Downstream::new(&group);
    // Port 6 for all; marked ones are the other classifier's, which has a higher priority.
    downstream.offer(&[frame(0, 0, 0, 64), frame(0, 46 << 2, 1, 64), frame(0, 0, 2, 64)]);
    let queued: Vec<_> = downstream.upper.0.flow_counters().iter().map(FlowCountersView::queued).collect();
    assert_eq!(queued, [0, 1, 2]);
}

/// What the upper MAC says of a frame: by what it decides, and what would be counted.
fn asked(downstream: &mut Downstream, frame: &[u8]) -> (Vec<String>, Vec<String>) {
    let mut packet = pool().take().expect("a buffer");
    packet.fill(frame).expect("space");
    let upper = &mut downstream.upper.0;
    let mut explanation = Explanation::default();
    upper.explain(0, &packet, &mut explanation);
    let notes = explanation.notes().iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let (mut burst, mut outputs) = (Burst::new(), KeptOutputs::of(upper));
    burst.push(packet).expect("space in the burst");
    let mut counted = Vec::new();
    for source in upper.rehearse(0, &mut burst, &mut outputs.outputs()).expect("it can") {
        source.read(&mut |entry| {
            let is_packets = entry.value == 1 && entry.description.name != "received";
            if let Some(reason) = entry.reason.filter(|_| is_packets) {
                counted.push(reason.name.to_owned());
            }
        });
    }
    let sent = outputs.burst(0).drain().map(|_| "sent".to_owned());
    counted.extend(sent);
    (notes, counted)
}

#[test]
fn what_decides_is_named_and_rehearsed_without_a_trace() {
    let mut group = small(3);
    let udp = Match { protocol: Some(IpProtocol::UDP), ..Match::default() };
    let rules = vec![FilterRule { matches: udp, action: Action::Deny }];
    group.filters = vec![FilterGroup { rules, otherwise: Action::Permit }];
    group.modems[2].filter = Some(0);
    (group.flows[0].queue, group.flows[0].maximum_rate, group.flows[0].maximum_burst) = (1, Some(1), 1_522);
    let mac = |modem: usize| group.modems[modem].mac;
    let (first, last) = (format!("modem: {}", mac(0)), format!("modem: {}", mac(2)));
    let mut downstream = Downstream::new(&group);
    let mut unlisted = frame(1, 0, 0, 64);
    unlisted[33] ^= 0x80;
    let before = format!("{:?}", downstream.upper.0.view());
    let said = asked(&mut downstream, &frame(0, 0, 0, 64));
    let way =
        [&first, "found by: IP address", "classifier: none", "service flow: 0", "queue: 0 of 1 packets"];
    assert_eq!(said, (way.map(str::to_owned).to_vec(), vec!["sent".to_owned()]));
    let said = asked(&mut downstream, &frame(2, 0, 0, 64));
    assert_eq!(said.0[..3], [last, "found by: IP address".to_owned(), "filter: rule 0 denies".to_owned()]);
    assert_eq!(said.1, ["filtered"]);
    assert_eq!(asked(&mut downstream, &unlisted).1, ["unlisted-address"]);
    assert_eq!(
        asked(&mut downstream, &frame(9, 0, 0, 64)),
        (vec!["modem: none".to_owned()], vec!["unknown-modem".to_owned()])
    );
    assert_eq!(asked(&mut downstream, &[1; 13]), (vec![], vec!["truncated".to_owned()]));
    assert_eq!(asked(&mut downstream, &frame(0, 0, 0, 1_600)).1, ["too-long"]);
    assert_eq!(format!("{:?}", downstream.upper.0.view()), before);
    // Marked, by the other classifier.
    let said = asked(&mut downstream, &frame(0, 46 << 2, 0, 64)).0;
    assert!(said.iter().any(|note| note.starts_with("classifier: priority ")), "{said:?}");
    // One is sent, and one waits; there is no space for a third.
    downstream.offer(&[frame(0, 0, 0, 1_400)]);
    downstream.offer(&[frame(0, 0, 1, 1_400)]);
    let said = asked(&mut downstream, &frame(0, 0, 2, 1_400));
    assert_eq!(
        (said.0.last().map(String::as_str), said.1),
        (Some("queue: 1 of 1 packets"), vec!["queue-full".to_owned()])
    );
    assert_eq!(downstream.upper.0.view().drops().total(), 0);
}

/// A frame with a length in place of an EtherType.
fn llc(modem: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    [&[2, 0xca, 0xb1, 0, 0, modem, 2, 0, 0, 0, 0, 9, high, low][..], payload].concat()
}

#[test]
fn llc_frames_are_classified_by_dsap_or_the_ethertype_in_snap() {
    let mut group = small(1);
    let wanted = [
        Match { dsap: Some(0x42), ..Match::default() },
        Match { ethertype: Some(EtherType(0x88b5)), ..Match::default() },
        Match { destination_ports: Some((6, 6)), ..Match::default() },
    ];
    for (priority, matches) in (10..).zip(wanted) {
        let flow = group.flows.len();
        group.flows.push(ServiceFlow::best_effort(0, 0));
        group.modems[0].classifiers.push(Classifier { priority, matches, flow });
    }
    group.modems[0].enforces_addresses = false;
    let mut downstream = Downstream::new(&group);
    let snap = |ethertype: u16, payload: &[u8]| {
        let [a, b] = ethertype.to_be_bytes();
        llc(1, &[&[0xaa, 0xaa, 3, 0, 0, 0, a, b][..], payload].concat())
    };
    let ipv4 = frame(0, 0, 0, 100);
    downstream.offer(&[
        // Spanning tree; something else; an unfinished SNAP header; nothing at all.
        llc(1, &[0x42, 0x42, 3, 0, 0]),
        llc(1, &[0xe0, 0xe0, 3]),
        llc(1, &[0xaa, 0xaa, 3]),
        llc(1, &[]),
        snap(0x88b5, &[0x42; 50]),
        snap(0x0800, &ipv4[14..]),
    ]);
    let queued: Vec<_> = downstream.upper.0.flow_counters().iter().map(FlowCountersView::queued).collect();
    assert_eq!(queued, [3, 0, 1, 1, 1]);
}

#[test]
fn ipv6_and_plain_ethernet_find_their_modem() {
    let mut downstream = Downstream::new(&small(3));
    let ipv6 = Frame::new()
        .ethernet(MacAddress([2, 0, 0, 0, 0, 77]), MacAddress([2, 0, 0, 0, 0, 9]))
        .ipv6(Ipv6Fields::new("2001:db8::1".parse().unwrap(), "fd00:ca:b1:0:0:2:0:1".parse().unwrap()))
        .udp(5, 6)
        .payload(b"by its address")
        .to_vec()
        .unwrap();
    let plain = Frame::new()
        .ethernet(MacAddress([2, 0xca, 0xb1, 0, 0, 3]), MacAddress([2, 0, 0, 0, 0, 9]))
        .payload(b"by its Ethernet address")
        .to_vec()
        .unwrap();
    downstream.offer([&ipv6, &plain]);
    downstream.carry_until(|downstream| downstream.delivered.len() == 2);
    downstream.delivered.sort();
    let mut expected = [ipv6, plain];
    expected.sort();
    assert_eq!(downstream.delivered, expected);
    assert_eq!(
        downstream.upper.0.flow_counters().iter().map(FlowCountersView::sent).collect::<Vec<_>>(),
        [0, 0, 1, 0, 1, 0]
    );
}

#[test]
fn what_is_lost_on_the_way_is_counted_and_given_up() {
    let mut group = small(1);
    group.limits.resequencing = Duration::from_millis(1);
    let mut downstream = Downstream::new(&group);
    let frames: Vec<_> = (0..200).map(|number| frame(0, 0, number, 1_000)).collect();
    let mut number = 0;
    for burst in frames.chunks(20) {
        let mut packets = Burst::new();
        for frame in burst {
            let mut packet = pool().take().unwrap();
            packet.fill(frame).unwrap();
            packets.push(packet).unwrap();
        }
        downstream.upper.0.process(&mut packets, &mut downstream.upper.1.outputs());
        downstream.carry(|_| {
            number += 1;
            number % 10 != 0
        });
    }
    downstream.carry_until(|downstream| {
        let modems = downstream.modems.0.view();
        modems.delivered() + modems.given_up() >= 198 && downstream.modems.0.is_done()
    });
    let modems = downstream.modems.0.view();
    assert!(modems.missing() > 5 && modems.drops().get(ModemDrop::Incomplete) > 0);
    let shown = downstream.shown(MODEMS);
    assert_eq!(shown.len() as u64, modems.drops().total());
    // L2TPv3 over IPv4, in which they would have ended.
    assert!(shown.iter().all(|(_, packet)| packet[23] == 115), "{:?}", shown.first());
    let mut sent = frames.iter();
    assert!(downstream.delivered.iter().all(|frame| sent.any(|sent| sent == frame)), "in order, and whole");
}

#[test]
fn service_groups_that_cannot_be_are_named() {
    let check = |change: &dyn Fn(&mut ServiceGroup)| {
        let mut group = small(2);
        change(&mut group);
        group.check().expect_err("something is wrong")
    };
    assert_eq!(check(&|group| group.modems.clear()), ConfigError::NoModems);
    assert_eq!(check(&|group| group.flows[1].maximum_rate = Some(0)), ConfigError::ZeroRate { flow: 1 });
    assert_eq!(check(&|group| group.flows[1].maximum_burst = 0), ConfigError::Burst { flow: 1, burst: 0 });
    assert_eq!(check(&|group| group.limits.packets = 3), ConfigError::TooFewPlaces { flows: 4, packets: 3 });
    let without_modem = ConfigError::UnusedChannel { channel: "sc-qam9".to_owned() };
    let add_channel = |group: &mut ServiceGroup| {
        group.channels.push(Channel { name: "sc-qam9".to_owned(), session: 9, ..group.channels[0].clone() });
    };
    assert_eq!(check(&add_channel), without_modem);
    let snap = |group: &mut ServiceGroup| group.modems[0].classifiers[0].matches.dsap = Some(0xaa);
    assert!(matches!(check(&snap), ConfigError::SnapDsap { .. }));
    assert_eq!(check(&|group| group.flows[1].queue = 0), ConfigError::NoQueue { flow: 1 });
    assert_eq!(check(&|group| group.flows[1].priority = 8), ConfigError::Priority { flow: 1, priority: 8 });
    assert_eq!(check(&|group| group.groups[1].channels.clear()), ConfigError::EmptyGroup { group: 1 });
    let name = || "ofdm0".to_owned();
    assert_eq!(check(&|group| group.channels[0].rate = 0), ConfigError::ChannelRate { channel: name() });
    let session = 0x8000_0001;
    let twice = ConfigError::SessionTwice { channel: "ofdm1".to_owned(), session };
    assert_eq!(check(&|group| group.channels[1].session = session), twice);
    let modem = MacAddress([2, 0xca, 0xb0, 0, 0, 1]);
    assert_eq!(check(&|group| group.modems[0].said = 0), ConfigError::Said { modem, said: 0 });
    assert_eq!(check(&|group| group.modems[0].primary_flow = 2), ConfigError::ForeignFlow { modem, flow: 2 });
    let twice = ConfigError::AddressTwice { address: "10.0.0.1".to_owned() };
    assert_eq!(check(&|group| group.modems[1].addresses = group.modems[0].addresses.clone()), twice);
    let overlap = |group: &mut ServiceGroup| {
        let matches = Match { protocol: Some(IpProtocol::UDP), ..Match::default() };
        group.modems[0].classifiers.push(Classifier { priority: 64, matches, flow: 0 });
    };
    assert_eq!(check(&overlap), ConfigError::Overlap { modem, priority: 64 });
    for (change, what) in [
        (
            (&|group: &mut ServiceGroup| group.groups[0].channels.push(9)) as &dyn Fn(&mut ServiceGroup),
            "channel",
        ),
        (&|group| group.flows[0].group = 9, "group"),
        (&|group| group.flows[0].modem = 9, "modem"),
        (&|group| group.modems[0].filter = Some(9), "filter group"),
        (&|group| group.modems[0].primary_flow = 99, "service flow"),
    ] {
        let error = check(change);
        assert!(matches!(error, ConfigError::NoSuch { what: found, .. } if found == what), "{error}");
    }
}
