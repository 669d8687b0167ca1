//! A gateway that a configuration describes, and the forwarder behind it.

use super::*;
use std::sync::Arc;
use warmlane_forward::control::{Config, Routes};
use warmlane_forward::datapath::Forwarder;

/// As `warmlane forward` puts them together: what is encapsulated is routed to its tunnel end, what is unpacked leaves by the access.
#[test]
fn a_configured_gateway_and_the_forwarder_behind_it() {
    let config = Config::from_toml(
        r#"
        [[port]]
        name = "underlay"
        driver = "null"
        addresses = ["192.0.2.1/24"]
        mac = "02:00:00:00:00:ee"

        [[port]]
        name = "west"
        driver = "null"
        mac = "02:00:00:00:00:ee"

        [[neighbour]]
        address = "192.0.2.2"
        mac = "02:00:00:00:00:22"
        port = "underlay"

        [[vxlan]]
        vni = 0x123456
        local = "192.0.2.1"
        remotes = ["192.0.2.2"]
        access = [{ port = "west" }]
        "#,
    )
    .unwrap();
    let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
    let facts = config.ports.iter().map(|port| PortFacts { mac: port.mac, mtu: port.mtu }).collect();
    let gateway = Gateway::new(config.overlays.clone(), facts, pool.clone(), config.icmp);
    let routes = Arc::new(Routes::from_config(&config).unwrap());
    let mut row = (gateway, Forwarder::new(routes, pool.clone(), config.icmp));
    let names: Vec<_> = (0..row.output_count()).map(|output| row.output_name(output).into_owned()).collect();
    let at = |name: &str| names.iter().position(|other| other == name).unwrap();
    let mut outputs = KeptOutputs::of(&row);
    let mut pass = |port: u16, frame: &[u8], output: usize| {
        let (mut burst, mut packet) = (Burst::new(), pool.take().unwrap());
        packet.fill(frame).unwrap();
        packet.set_port(port);
        burst.push(packet).unwrap();
        row.process(&mut burst, &mut outputs.outputs());
        let sent: Vec<_> = outputs.burst(output).iter().map(|packet| packet.data().to_vec()).collect();
        outputs.clear();
        sent
    };
    let frame = inner(A, MacAddress::BROADCAST, 0, b"question");
    let sent = pass(1, &frame, at("port0"));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][..12], [2, 0, 0, 0, 0, 0x22, 2, 0, 0, 0, 0, 0xee]);
    let ip = ipv4::check(&sent[0][14..]).unwrap();
    assert_eq!((ip.header.ttl(), ip.header.source()), (63, Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!(vxlan::parse(udp::parse(ip.payload).unwrap().1).unwrap(), (VNI, &frame[..]));
    let answer = inner(B, A, 0, b"answer");
    assert_eq!(pass(0, &tunnelled(2, VNI, 0, &answer), at("bridge1")), [answer]);
}
