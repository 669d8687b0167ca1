//! Who captures drops sees each that is counted, with its reason, as it came. [`Bench::pass_packet`] asks for that in every test.

use std::collections::BTreeMap;

use super::rehearsed::Outcome;
use super::*;

impl Bench {
    /// What was dropped since this was asked last: reasons and frames.
    fn shown(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        self.drops.read(usize::MAX, |record| {
            all.push((record.reason.unwrap_or_default().to_owned(), record.data.to_vec()));
        });
        all
    }

    /// What is shown of a packet that came so is what was dropped.
    pub(super) fn check_shown(&mut self, came: &[u8], outcome: &Outcome) {
        let shown = self.shown();
        let mut reasons = BTreeMap::new();
        for (reason, _) in &shown {
            *reasons.entry(reason.clone()).or_insert(0) += 1;
        }
        assert_eq!(reasons, outcome.drops());
        if outcome.is_one() {
            for (reason, frame) in shown {
                // Without what was behind the datagram; and what congestion was signalled is already noted inside.
                let is_same = came.starts_with(&frame)
                    || reason == "inner-checksum"
                    || came.len() >= frame.len() && differences(came, &frame) <= 1;
                assert!(is_same, "{reason}: {frame:02x?} came as {came:02x?}");
            }
        }
    }
}

fn differences(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).filter(|(one, other)| one != other).count()
}

#[test]
fn a_dropped_frame_is_shown_with_what_was_around_it() {
    let mut bench = Bench::new(network(false));
    let frame = inner(B, A, 0, b"inside");
    for (came, reason) in [
        (tunnelled(3, VNI + 1, 0, &frame), "unknown-network"),
        (tunnelled(9, VNI, 0, &frame), "unknown-remote"),
        (tunnelled(3, VNI, 0, &inner(MacAddress::BROADCAST, A, 0, b"")), "bad-source"),
    ] {
        let packet = bench.packet(0, &came);
        bench.burst.push(packet).unwrap();
        bench.gateway.process(&mut bench.burst, &mut bench.outputs.outputs());
        assert_eq!(bench.shown(), [(reason.to_owned(), came)]);
    }
}

#[test]
fn a_dropped_frame_is_shown_with_its_tag() {
    let mut bench = Bench::new(network(false));
    let mut tagged = inner(MacAddress::BROADCAST, A, 0, b"");
    tagged.splice(12..12, [0x81, 0, 0x60, 7]);
    let packet = bench.packet(2, &tagged);
    bench.burst.push(packet).unwrap();
    bench.gateway.process(&mut bench.burst, &mut bench.outputs.outputs());
    assert_eq!(bench.shown(), [("bad-source".to_owned(), tagged)]);
}

#[test]
fn a_copy_that_finds_no_space_is_shown_without_a_tunnel_around_it() {
    let mut bench = Bench::new(network(false));
    let question = inner(A, MacAddress::BROADCAST, 0, b"question");
    // For one of two tunnel ends.
    bench.burst = Burst::with_limit(1);
    let packet = bench.packet(1, &question);
    bench.burst.push(packet).unwrap();
    bench.gateway.process(&mut bench.burst, &mut bench.outputs.outputs());
    assert_eq!(bench.shown(), [("no-space".to_owned(), question)]);
}

#[test]
fn nobody_is_shown_what_is_not_dropped() {
    let mut bench = Bench::new(network(false));
    bench.pass(1, &inner(A, MacAddress::BROADCAST, 0, b""));
    assert_eq!(bench.shown(), []);
}
