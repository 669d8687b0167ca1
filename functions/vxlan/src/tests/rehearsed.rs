//! What the gateway says that it would do with a packet, and by what it decides. [`Bench::pass_packet`] holds each packet's rehearsal
//! against what then happens, in every test.

use std::collections::BTreeMap;

use warmlane_counters::Source;
use warmlane_lane::Explanation;

use super::*;

/// What became of a packet: what is left for the forwarder and by each output, and what was counted.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    sent: Vec<Vec<Vec<u8>>>,
    counted: BTreeMap<String, u64>,
}

impl Outcome {
    pub(super) fn is_limited(&self) -> bool {
        self.counted.contains_key("errors-limited")
    }

    /// Drops by reason.
    pub(super) fn drops(&self) -> BTreeMap<String, u64> {
        let drops = self
            .counted
            .iter()
            .filter_map(|(name, count)| name.strip_prefix("drops").map(|reason| (reason.to_owned(), *count)));
        drops.collect()
    }

    /// Whether there was one frame all the time, and no copy or error besides.
    pub(super) fn is_one(&self) -> bool {
        !self.counted.contains_key("copied") && !self.counted.contains_key("errors")
    }
}

/// What has been counted by now, by name and reason.
pub(super) fn counted(sources: &[Box<dyn Source>]) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for source in sources {
        source.read(&mut |entry| {
            let reason = entry.reason.map_or("", |reason| reason.name);
            counted.insert(format!("{}{reason}", entry.description.name), entry.value);
        });
    }
    counted
}

impl Bench {
    /// What would become of a packet.
    pub(super) fn rehearse(&mut self, packet: &Packet) -> Outcome {
        let mut burst = Burst::new();
        burst.push(packet.copy_in(&self.pool).unwrap()).unwrap();
        let mut outputs = KeptOutputs::of(&self.gateway);
        let before = counted(&self.gateway.counters());
        let sources = self.gateway.rehearse(0, &mut burst, &mut outputs.outputs()).unwrap();
        assert_eq!(counted(&self.gateway.counters()), before);
        let sent = sent(&burst, &mut outputs);
        Outcome { sent, counted: grown(&BTreeMap::new(), counted(&sources)) }
    }

    /// What became of the packet that was passed on last.
    pub(super) fn outcome(&mut self, before: &BTreeMap<String, u64>) -> Outcome {
        let counted = grown(before, counted(&self.gateway.counters()));
        Outcome { sent: sent(&self.burst, &mut self.outputs), counted }
    }

    /// What decides about a frame that comes in by this port.
    fn explained(&self, port: u16, frame: &[u8]) -> Vec<(&'static str, String)> {
        let mut explanation = Explanation::default();
        self.gateway.explain(0, &self.packet(port, frame), &mut explanation);
        explanation.notes().to_vec()
    }
}

fn grown(before: &BTreeMap<String, u64>, after: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let by = |name: &String, value| value - before.get(name).copied().unwrap_or(0);
    let all = after.into_iter().map(|(name, value)| (by(&name, value), name));
    all.filter(|(by, _)| *by > 0).map(|(by, name)| (name, by)).collect()
}

fn sent(burst: &Burst, outputs: &mut KeptOutputs) -> Vec<Vec<Vec<u8>>> {
    let bytes = |burst: &Burst| {
        burst.iter().map(|packet| packet.segment_data().flatten().copied().collect()).collect()
    };
    let mut all = vec![bytes(burst)];
    all.extend((0..3).map(|output| bytes(outputs.burst(output))));
    all
}

#[test]
fn what_decides_is_named() {
    let mut bench = Bench::new(network(false));
    let vni = VNI.to_string();
    let expected = |from: &str, station: MacAddress, way: &str| {
        vec![
            ("network", vni.clone()),
            ("from", from.to_owned()),
            ("station", station.to_string()),
            ("way", way.to_owned()),
        ]
    };
    let everybody = "to everybody else: nobody knows where it is";
    let question = inner(A, B, 0, b"question");
    assert_eq!(bench.explained(1, &question), expected("port1", B, everybody));
    let to_all = inner(A, MacAddress::BROADCAST, 0, b"");
    let group = "to everybody else: the address is a group's";
    assert_eq!(bench.explained(1, &to_all), expected("port1", MacAddress::BROADCAST, group));
    // Nothing is learned by that, nor by a rehearsal.
    let answer = tunnelled(3, VNI, 0, &inner(B, A, 0, b"answer"));
    for _ in 0..2 {
        let packet = bench.packet(0, &answer);
        bench.rehearse(&packet);
        assert_eq!(bench.explained(1, &question), expected("port1", B, everybody));
    }
    assert_eq!(bench.explained(0, &answer), expected("tunnel end 192.0.2.3", A, everybody));
    bench.pass(0, &answer);
    assert_eq!(bench.explained(1, &question), expected("port1", B, "tunnel end 192.0.2.3"));
    let mut tagged = question.clone();
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    bench.pass(2, &tagged);
    assert_eq!(bench.explained(0, &answer), expected("tunnel end 192.0.2.3", A, "port2, VLAN 7"));
    assert_eq!(bench.explained(2, &tagged), expected("port2, VLAN 7", B, "tunnel end 192.0.2.3"));
    // What passes, and what is wrong around a frame, is for the forwarder or a reason to drop.
    for frame in [&question[..], &tunnelled(3, VNI + 1, 0, &question), &answer[..40], &[]] {
        assert_eq!(bench.explained(0, frame), []);
    }
}

#[test]
fn limits_of_errors_count_as_free() {
    let mut bench = Bench::with_limits(network(false), IcmpLimits { rate: 1, burst: 1 });
    let fields =
        Ipv4Fields { dont_fragment: true, ..Ipv4Fields::new([10, 0, 0, 0xa].into(), [10, 0, 0, 0xb].into()) };
    let link = Frame::new().ethernet(B, A).ipv4(fields);
    let frame = link.udp(1, 2).payload(&[7; 1500 - 28]).to_vec().unwrap();
    // Two of them come within a second sooner or later.
    while bench.counters.errors_limited() == 0 {
        let packet = bench.packet(1, &frame);
        assert!(!bench.rehearse(&packet).is_limited());
        bench.pass(1, &frame);
    }
    let packet = bench.packet(1, &frame);
    assert!(!bench.rehearse(&packet).is_limited());
}
