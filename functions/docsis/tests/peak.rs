//! A lower lane that is held up: Intel once saw 20,000 packets under way in its own downstream.

use std::net::Ipv4Addr;
use std::time::Duration;

use warmlane_docsis::control::{Generated, generate};
use warmlane_docsis::{Queues, downstream, modems};
use warmlane_lane::{Pipeline, Task as _};
use warmlane_mem::{Burst, PacketReceiver, PacketSender, Pool, PoolConfig, channel};
use warmlane_port::channel::{ChannelReceive, ChannelTransmit};
use warmlane_wire::{Frame, Ipv4Fields, MacAddress};

const PEAK: u32 = 20_000;
const MODEMS: u16 = 300;

/// How long packets may be held up on a busy machine.
const LONG: Duration = Duration::from_secs(300);

fn frame(number: u32) -> Vec<u8> {
    let [_, a, b, c] = (number % u32::from(MODEMS) + 1).to_be_bytes();
    let payload = [&number.to_be_bytes()[..], &[number as u8; 200]].concat();
    let frame = Frame::new().ethernet(MacAddress([2, 0xca, 0xb1, a, b, c]), MacAddress([2, 0, 0, 0, 0, 9]));
    let addresses = Ipv4Fields::new(Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(10, a, b, c));
    frame.ipv4(addresses).udp(5, 6).payload(&payload).to_vec().expect("a frame")
}

/// Sends packets as far as they are taken; says how many.
fn offer(pool: &Pool, input: &mut PacketSender, numbers: std::ops::Range<u32>) -> u32 {
    let mut burst = Burst::new();
    for number in numbers {
        let mut packet = pool.take().expect("a buffer");
        packet.fill(&frame(number)).expect("space");
        burst.push(packet).expect("space in the burst");
    }
    input.send(&mut burst) as u32
}

fn deliver(output: &mut PacketReceiver, came: &mut [u32]) -> u32 {
    let mut burst = Burst::with_limit(256);
    let count = output.receive(&mut burst);
    for packet in burst.drain() {
        let number = packet.data()[42..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let number = number.expect("a number");
        assert_eq!(packet.data(), frame(number));
        // In order within a modem.
        let last = &mut came[number as usize % usize::from(MODEMS)];
        assert!(*last <= number, "{number} comes behind {last}");
        *last = number + 1;
    }
    count as u32
}

#[test]
fn twenty_thousand_packets_wait_for_the_lower_lane_and_none_is_lost() {
    let mut group = generate(&Generated { modems: MODEMS, ..Generated::default() });
    (group.limits.age, group.limits.resequencing) = (LONG, LONG);
    for channel in &mut group.channels {
        channel.rate = 1_000_000_000_000;
    }
    group.check().unwrap();
    let pool = Pool::new(&PoolConfig { buffers: 49_152, data_size: 1_664, ..PoolConfig::default() }).unwrap();
    let [(mut input, network), (tx, tunnel), (delivered, mut output)] =
        [0; 3].map(|_| channel(1_024).expect("a channel"));
    let queues = |from, to| Queues {
        receive: vec![Box::new(ChannelReceive::new(from))],
        transmit: Box::new(ChannelTransmit::new(to)),
    };
    let made = downstream(&group, &pool, queues(network, tx), None).unwrap();
    let (mut upper, mut lower, views): (Pipeline, Pipeline, _) = (made.upper, made.lower, made.views);
    let (mut other_end, modem) = modems(&group, &pool, queues(tunnel, delivered), None).unwrap();

    // The lower lane sleeps.
    let mut offered = 0;
    while views.upper.transferred() < u64::from(PEAK) {
        if offered < PEAK {
            let burst = 50.min(PEAK - offered);
            offered += offer(&pool, &mut input, offered..offered + burst);
        }
        upper.poll();
        assert_eq!(views.upper.drops().total(), 0);
    }
    assert_eq!(views.lower.framed(), 0);
    assert!(pool.ledger().outstanding() >= u64::from(PEAK));

    let (mut came, mut count) = (vec![0; usize::from(MODEMS)], 0);
    while count < PEAK {
        upper.poll();
        lower.poll();
        other_end.poll();
        count += deliver(&mut output, &mut came);
    }
    let drops = [views.upper.drops().total(), views.lower.drops().total(), modem.drops().total()];
    assert_eq!((count, drops), (PEAK, [0; 3]));
}
