//! Other people's decoders agree: one in Python, written from the specifications' tables, and Wireshark's.

mod common;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use common::pool;
use warmlane_crypto::{CRC_LENGTH, Protection, TrafficKey};
use warmlane_docsis::keys::Keyring;
use warmlane_docsis::lower::{
    Framing, LONGEST_PAYLOAD, Segmenter, Tunnel, TunnelAddresses, add_header, protect,
};
use warmlane_sys::random::Random;
use warmlane_testkit::{capture, oracle, requirements};
use warmlane_wire::docsis::{DownstreamService, PacketHeader, Privacy, Sequencing};
use warmlane_wire::{Frame, Ipv4Fields, Ipv6Fields, MacAddress};

/// Security associations, the lowest and the highest among them.
const SAIDS: [u16; 5] = [1, 2, 300, 0x2aaa, 0x3fff];
/// Frames after which an association has a new key.
const KEY_LIFE: usize = 500;
/// The shortest Ethernet frame without a CRC that is taken.
const SHORTEST: usize = 14;
/// The longest.
const LONGEST: usize = LONGEST_PAYLOAD - CRC_LENGTH;

/// Frames of all lengths and headers, and the keys that they are encrypted with.
struct Frames {
    random: Random,
    keys: Keyring,
    /// By association, which of its keys is the newest.
    sequences: [u8; SAIDS.len()],
}

/// What a frame is to carry besides its payload.
#[derive(Clone, Copy)]
struct Shape {
    framing: Framing,
    nulls: u8,
}

/// A key as it goes to whoever has to decrypt.
struct NewKey {
    said: u16,
    sequence: u8,
    key: [u8; 16],
    vector: [u8; 16],
}

impl Frames {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), keys: Keyring::new(), sequences: [0; SAIDS.len()] }
    }

    /// Gives an association its next key.
    fn roll(&mut self, index: usize) -> NewKey {
        let sequence = (self.sequences[index] + 1) % 16;
        self.sequences[index] = sequence;
        let [key, vector] = [(); 2].map(|()| self.random.bits128().to_be_bytes());
        let traffic_key = TrafficKey::new(&key, vector).expect("a key of 16 bytes");
        self.keys.install(SAIDS[index], sequence, traffic_key).expect("an association");
        NewKey { said: SAIDS[index], sequence, key, vector }
    }

    fn shape(&mut self) -> Shape {
        let random = &mut self.random;
        let dsid = random.below(1 << 20) as u32;
        let sequencing = Sequencing { change_count: false, sequence: random.bits() as u16 };
        let service = |dsid, sequencing| move |priority| DownstreamService { priority, dsid, sequencing };
        let priority = random.below(8) as u8;
        let service = [
            None,
            Some(service(None, None)(priority)),
            Some(service(Some(dsid), None)(priority)),
            Some(service(Some(dsid), Some(sequencing))(priority)),
        ][random.below(4)];
        let said = random.percent(75).then_some(SAIDS[random.below(SAIDS.len())]);
        let nulls = if random.percent(75) { 0 } else { random.between(1, 200) as u8 };
        Shape { framing: Framing { said, service }, nulls }
    }

    /// The MAC frame of an Ethernet frame.
    fn encode(&self, frame: &[u8], Shape { framing, nulls }: &Shape) -> Vec<u8> {
        if *nulls == 0 {
            let mut packet = pool().take().expect("a buffer");
            packet.fill(frame).expect("space");
            let header = add_header(&mut packet, framing, &self.keys).expect("it fits");
            warmlane_crypto::protect([protect(&mut packet, header, framing, &self.keys, true)]);
            return packet.data().to_vec();
        }
        // Padding is nothing that the lower MAC writes.
        let key = framing.said.and_then(|said| Some((said, self.keys.newest(said)?)));
        let privacy = key.map(|(said, (sequence, _))| Privacy::encrypted(said, sequence));
        let header = PacketHeader { privacy, service: framing.service, nulls: *nulls };
        let mut bytes = vec![0; header.length() + frame.len() + CRC_LENGTH];
        let start = header.write(frame.len() + CRC_LENGTH, &mut bytes).expect("it fits");
        bytes[start..start + frame.len()].copy_from_slice(frame);
        let key = key.map(|(_, (_, key))| key);
        let frame = &mut bytes[start..];
        warmlane_crypto::protect([Protection { frame, crc: true, key, encrypt_from: 12 }]);
        bytes
    }
}

/// Pseudowires: session, flow, tunnel.
fn pseudowires() -> [(u32, Segmenter); 3] {
    let v4 =
        TunnelAddresses::V4 { source: Ipv4Addr::new(192, 0, 2, 1), destination: Ipv4Addr::new(192, 0, 2, 2) };
    let v6 = TunnelAddresses::V6 {
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    };
    [(0x8000_0001, 0, v4, 1_500), (0x8000_0002, 3, v6, 1_500), (1, 7, v4, 1_280)].map(
        |(session, flow, addresses, mtu)| {
            let (source, destination) = (MacAddress([2; 6]), MacAddress([4; 6]));
            let tunnel = Tunnel { source, destination, addresses, dscp: 46, mtu };
            (session, Segmenter::new(&tunnel, session, flow).expect("a pseudowire"))
        },
    )
}

/// The records that `decoder.py` reads.
#[derive(Default)]
struct Question(Vec<u8>);

impl Question {
    fn record(&mut self, kind: u8, parts: &[&[u8]]) {
        self.0.push(kind);
        self.0.extend(parts.iter().copied().flatten());
    }

    fn key(&mut self, NewKey { said, sequence, key, vector }: &NewKey) {
        self.record(b'K', &[&said.to_be_bytes(), &[*sequence], key, vector]);
    }

    fn frame(&mut self, session: u32, Shape { framing, nulls }: &Shape, frame: &[u8]) {
        let service = framing.service.map(|service| {
            let sequence = service.sequencing.map_or(0, |sequencing| sequencing.sequence);
            (service.value_length() as u8, service.priority, service.dsid.unwrap_or(0), sequence)
        });
        let (length, priority, dsid, sequence) = service.unwrap_or_default();
        let said = framing.said.unwrap_or(0).to_be_bytes();
        let (dsid, sequence) = (dsid.to_be_bytes(), sequence.to_be_bytes());
        let service: [&[u8]; 3] = [&[length, priority], &dsid, &sequence];
        let bytes = (frame.len() as u16).to_be_bytes();
        self.record(b'F', &[&session.to_be_bytes(), &said, &service.concat(), &[*nulls], &bytes, frame]);
    }

    fn packet(&mut self, packet: &[u8]) {
        self.record(b'P', &[&(packet.len() as u16).to_be_bytes(), packet]);
    }
}

#[test]
fn a_decoder_in_python_reads_what_was_sent() {
    const FRAMES: usize = 100_000;
    let (mut frames, mut question, mut pseudowires) = (Frames::new(22), Question::default(), pseudowires());
    for index in 0..SAIDS.len() {
        question.key(&frames.roll(index));
    }
    let mut shapes = BTreeSet::new();
    for number in 0..FRAMES {
        if number % KEY_LIFE == 0 {
            let index = frames.random.below(SAIDS.len());
            question.key(&frames.roll(index));
        }
        let mut frame = vec![0; SHORTEST + number % (LONGEST - SHORTEST + 1)];
        frames.random.fill(&mut frame);
        let shape = frames.shape();
        let service = shape.framing.service.map(|service| service.value_length());
        shapes.insert((shape.framing.said.is_some(), service, shape.nulls > 0));
        let (session, segmenter) = &mut pseudowires[number % 3];
        question.frame(*session, &shape, &frame);
        let sent = segmenter.push(&frames.encode(&frame, &shape), 0, pool(), |finished| {
            question.packet(finished.packet.data());
        });
        sent.expect("a buffer");
    }
    for (_, segmenter) in &mut pseudowires {
        question.packet(segmenter.finish().expect("the last frames").packet.data());
    }
    assert_eq!(shapes.len(), 2 * 4 * 2, "{shapes:?}");
    let Some(answer) = oracle::ask("cryptography", include_str!("decoder.py"), &question.0) else { return };
    assert_eq!(String::from_utf8_lossy(&answer).trim(), FRAMES.to_string());
}

/// A UDP packet over IPv4 or IPv6: Wireshark looks into what isn't encrypted.
fn udp(random: &mut Random) -> Vec<u8> {
    let mut payload = vec![0; random.between(18, LONGEST - 62)];
    random.fill(&mut payload);
    let frame = Frame::new().ethernet(MacAddress([2, 0xca, 0xb1, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 9]));
    let frame = if random.percent(50) {
        frame.ipv4(Ipv4Fields::new(Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(10, 0, 0, 1)))
    } else {
        let source = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
        frame.ipv6(Ipv6Fields::new(source, Ipv6Addr::new(0xfd00, 0xca, 0xb1, 0, 0, 1, 0, 1)))
    };
    // The echo protocol (RFC 862): tshark would guess at what is in other packets.
    frame.udp(50_000, 7).payload(&payload).to_vec().expect("a frame")
}

/// What tshark calls a checksum that is right.
const GOOD: &str = "1";

/// What tshark says of each frame: these fields, each with all its values.
fn tshark(capture: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-T", "fields", "-E", "separator=;"]);
    command.args(["-o", "eth.fcs:Never"]);
    for checked in ["docsis.check_fcs", "ip.check_checksum", "udp.check_checksum"] {
        command.args(["-o", &format!("{checked}:TRUE")]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

#[test]
fn wireshark_decodes_every_frame_without_a_complaint() {
    const FRAMES: usize = 20_000;
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let [mac, tunnel] = ["mac.pcap", "tunnel.pcap"].map(|name| directory.path().join(name));
    let open = |path: &Path, link_type| {
        let mut file = BufWriter::new(File::create(path).expect("a file"));
        capture::begin(&mut file, link_type).map(|()| file).expect("space")
    };
    let (mut mac_file, mut tunnel_file) = (open(&mac, capture::DOCSIS), open(&tunnel, capture::ETHERNET));
    let (mut frames, mut pseudowires) = (Frames::new(143), pseudowires());
    for index in 0..SAIDS.len() {
        frames.roll(index);
    }
    let (mut expected, mut sessions, mut packets) = (Vec::new(), Vec::new(), 0);
    for number in 0..FRAMES {
        if number % KEY_LIFE == 0 {
            let index = frames.random.below(SAIDS.len());
            frames.roll(index);
        }
        let (frame, shape) = (udp(&mut frames.random), frames.shape());
        let bytes = frames.encode(&frame, &shape);
        capture::frame(&mut mac_file, number as u32, &bytes, 0).expect("space");
        expected.push(wireshark_says(&frames, &shape, &bytes));
        let (session, segmenter) = &mut pseudowires[number % 3];
        let sent = segmenter.push(&bytes, 0, pool(), |finished| {
            capture::frame(&mut tunnel_file, packets, finished.packet.data(), 0).expect("space");
            sessions.push(format!("{session:#010x}"));
            packets += 1;
        });
        sent.expect("a buffer");
    }
    drop((mac_file, tunnel_file));

    let fields = [
        "_ws.expert.message",
        "docsis.hcs.status",
        "docsis.ehdr.said",
        "docsis.ehdr.keyseq",
        "docsis.ehdr.ds_dsid",
        "docsis.ehdr.ds_pkt_seq_num",
        "eth.trailer",
        "udp.checksum.status",
    ];
    let said = tshark(&mac, &fields);
    assert_eq!(said.len(), FRAMES);
    for (number, (said, expected)) in said.iter().zip(&expected).enumerate() {
        assert_eq!(said, expected, "frame {}", number + 1);
    }

    let said = tshark(&tunnel, &["_ws.expert.message", "ip.checksum.status", "l2tp.sid"]);
    assert_eq!(said.len(), sessions.len());
    for (said, session) in said.iter().zip(&sessions) {
        // The second tunnel is one over IPv6.
        let checksum = if session == "0x80000002" { "" } else { GOOD };
        assert_eq!(said, &["", checksum, session]);
    }
}

/// The columns that tshark must have for a frame.
fn wireshark_says(frames: &Frames, Shape { framing, .. }: &Shape, bytes: &[u8]) -> [String; 8] {
    let number = |number: Option<u32>| number.map_or(String::new(), |number| number.to_string());
    let sequence =
        framing.said.and_then(|said| frames.keys.newest(said)).map(|(sequence, _)| sequence.into());
    let service = framing.service;
    let sequencing = service.and_then(|service| service.sequencing);
    // Wireshark takes the CRC for something behind the packet. What is encrypted it doesn't look into.
    let crc = bytes.last_chunk().map_or(String::new(), |crc| format!("{:08x}", u32::from_be_bytes(*crc)));
    let inside = if framing.said.is_some() { [String::new(), String::new()] } else { [crc, GOOD.to_owned()] };
    let [trailer, udp] = inside;
    [
        String::new(),
        GOOD.to_owned(),
        number(framing.said.map(u32::from)),
        number(sequence),
        number(service.and_then(|service| service.dsid)),
        number(sequencing.map(|sequencing| sequencing.sequence.into())),
        trailer,
        udp,
    ]
}
