//! What stages say that they would do with a packet is what they do with it then.

use std::collections::{BTreeMap, BTreeSet};

use warmlane_counters::Source;
use warmlane_lane::{Explanation, KeptOutputs, Stage};
use warmlane_mem::Burst;

use crate::common::pool;
use crate::{Downstream, frame, hand_over, small};

/// What sources have counted, without those that are zero, by name.
fn counted(sources: &[Box<dyn Source>]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for source in sources {
        source.read(&mut |entry| {
            let name = entry.reason.map_or(entry.description.name, |reason| reason.name);
            if entry.value > 0 && !name.ends_with("cycles") {
                all.insert(name.to_owned(), entry.value);
            }
        });
    }
    all
}

#[test]
fn what_modems_would_do_with_a_packet_is_what_they_do_then() {
    let mut downstream = Downstream::new(&small(4));
    let frames: Vec<_> = (0..400).map(|number| frame((number % 4) as u16, 0, number, 700)).collect();
    let (mut packets, mut number) = (Vec::new(), 0);
    for some in frames.chunks(40) {
        let mut burst = Burst::new();
        for frame in some {
            let mut packet = pool().take().expect("a buffer");
            packet.fill(frame).expect("space");
            burst.push(packet).expect("space in the burst");
        }
        downstream.upper.0.process(&mut burst, &mut downstream.upper.1.outputs());
        hand_over(&mut downstream.upper.1, &mut downstream.lower, |_| true);
        for packet in downstream.lower.1.burst(0).drain() {
            number += 1;
            // Some are lost, some come twice, some late.
            if number % 13 == 0 {
                packets.extend(packet.copy_in(pool()));
            }
            if number % 11 != 0 {
                packets.push(packet);
            }
            let last = packets.len();
            if number % 7 == 0 && last > 1 {
                packets.swap(last - 2, last - 1);
            }
        }
    }
    // And some that are damaged, in a frame and in the number of the session.
    for packet in &mut packets[21..25] {
        packet.data_mut()[500] ^= 1;
    }
    for packet in &mut packets[31..33] {
        packet.data_mut()[36] ^= 1;
    }
    let (modems, outputs) = &mut downstream.modems;
    let (mut names, mut sources) = (BTreeSet::new(), modems.counters());
    for packet in packets {
        let copy = packet.copy_in(pool()).expect("a buffer");
        let mut explanation = Explanation::default();
        modems.explain(0, &packet, &mut explanation);
        let (mut burst, mut kept) = (Burst::new(), KeptOutputs::of(modems));
        burst.push(copy).expect("space in the burst");
        let would = counted(&modems.rehearse(0, &mut burst, &mut kept.outputs()).expect("it can"));
        let before = counted(&sources);
        burst.push(packet).expect("space in the burst");
        modems.process(&mut burst, &mut outputs.outputs());
        let mut did = counted(&sources);
        did.retain(|name, value| {
            *value -= before.get(name).copied().unwrap_or(0);
            // Rehearsed packets are empty.
            *value > 0 && name != "bytes"
        });
        assert_eq!(would, did, "{:?}", explanation.notes());
        let delivered = would.get("delivered").copied().unwrap_or(0);
        let frames = explanation.notes().iter().find(|(name, _)| *name == "frames");
        assert!(
            frames.is_none_or(|(_, told)| told.contains(&format!("; {delivered} delivered"))),
            "{frames:?}"
        );
        names.extend(would.into_keys());
        sources = modems.counters();
    }
    for name in ["delivered", "missing", "incomplete-frame", "late-packet", "crc", "unknown-session"] {
        assert!(names.contains(name), "{name} of {names:?}");
    }
}

#[test]
fn the_lower_mac_says_how_it_would_frame_what_the_upper_one_would_send() {
    let mut group = small(2);
    group.modems[1].said = 77;
    let mut downstream = Downstream::new(&group);
    let mut packet = pool().take().expect("a buffer");
    packet.fill(&frame(1, 0, 0, 64)).expect("space");
    let mut burst = Burst::new();
    burst.push(packet).expect("space in the burst");
    let mut kept = KeptOutputs::of(&downstream.upper.0);
    downstream.upper.0.rehearse(0, &mut burst, &mut kept.outputs()).expect("it can");
    let lower = &mut downstream.lower.0;
    let before = counted(&lower.counters());
    kept.burst(0).move_to(&mut burst);
    let mut explanation = Explanation::default();
    lower.explain(0, &burst[0], &mut explanation);
    let notes = explanation.notes();
    let told = |name: &str| notes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
    assert_eq!(told("service flow"), Some(group.modems[1].primary_flow.to_string().as_str()));
    assert_eq!((told("encryption"), told("channel")), (Some("security association 77, key 0"), None));
    let mut outputs = KeptOutputs::of(lower);
    let would = counted(&lower.rehearse(0, &mut burst, &mut outputs.outputs()).expect("it can"));
    for name in ["received", "framed", "encrypted", "crcs"] {
        assert_eq!(would.get(name), Some(&1), "{name}: {would:?}");
    }
    assert_eq!((counted(&lower.counters()), outputs.burst(0).len()), (before, 0), "nothing was done");
}
