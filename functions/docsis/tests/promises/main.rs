//! Packets of 300 modems through the upper and the lower MAC, each on a lane, and through the modems on a third, while all keys are
//! rolled 100 times. Each is delivered once, in order and byte for byte, or is a drop of a named reason; buckets and priorities hold
//! though twice as much is offered as the channels carry. The upper MAC goes by a clock that the source of packets moves, so a busy
//! machine makes this slow, and changes nothing else.
//!
//! `WARMLANE_TEST_PACKETS=10000000` sends more.

mod offered;
mod watched;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use offered::{Kind, Offer, Source};
use warmlane_docsis::KeyRoller;
use warmlane_docsis::control::{Action, FilterGroup, FilterRule, Generated, ServiceGroup, generate};
use warmlane_docsis::lower::{LowerCountersView, LowerMac};
use warmlane_docsis::modem::{ModemCountersView, Modems};
use warmlane_docsis::upper::{FlowCountersView, Match, Time, UpperCountersView, UpperDrop, UpperMac};
use warmlane_lane::{IdlePolicy, LaneConfig, Lanes, Pipeline, Stage};
use warmlane_mem::{Pool, PoolConfig, channel};
use warmlane_port::channel::{ChannelReceive, ChannelTransmit};
use warmlane_port::{ReceiveQueue, TransmitQueue};
use warmlane_sync::mailbox;
use watched::{Delivered, Departed, Modem, Transfer};

/// How long nothing may move on a busy machine.
const LONG: Duration = Duration::from_secs(300);

const MODEMS: u16 = 300;
const ROLLS: u64 = 100;
/// Bits a second of each flow of high priority, and of what is reserved for some of low priority.
const URGENT: u64 = 1_600_000;
/// What flows wait for in queues at most.
const AGE: Duration = Duration::from_millis(150);

/// What is offered of a flow, in bits a second. Modems with even numbers are on OFDM channels, which have space for all that buckets let
/// pass; the others are on SC-QAM channels, which are offered twice what they carry.
fn offered_rate(flow: usize, rate: u64) -> u64 {
    match (flow / 2 % 2, flow % 2) {
        // Urgent, with space for all.
        (0, 1) => rate / 2,
        (_, 1) | (0, 0) => rate * 3 / 2,
        _ => rate,
    }
}

fn service_group() -> ServiceGroup {
    let mut group = generate(&Generated { modems: MODEMS, ofdm: 6, sc_qam: 8, maximum_rate: None });
    for (number, flow) in group.flows.iter_mut().enumerate() {
        let modem = number as u64 / 2;
        (flow.queue, flow.maximum_burst) = (64, 3_044 + modem * 20);
        flow.maximum_rate = Some(match (modem % 2, number % 2) {
            (_, 1) => URGENT,
            (0, _) => 2_000_000 + modem * 10_000,
            _ => 1_730_000,
        });
        if modem.is_multiple_of(8) {
            flow.peak_rate = flow.maximum_rate.map(|rate| rate * 2);
        }
        if modem % 50 == 1 && number.is_multiple_of(2) {
            flow.minimum_rate = URGENT;
        }
    }
    let matches = Match { destination_ports: Some((23, 23)), ..Match::default() };
    let rules = vec![FilterRule { matches, action: Action::Deny }];
    group.filters = vec![FilterGroup { rules, otherwise: Action::Permit }];
    group.modems.iter_mut().for_each(|modem| modem.filter = Some(0));
    (group.limits.age, group.limits.resequencing) = (AGE, LONG);
    group.check().expect("a service group");
    group
}

/// What can be read while it runs.
struct Views {
    upper: UpperCountersView,
    flows: Vec<FlowCountersView>,
    lower: LowerCountersView,
    modems: ModemCountersView,
}

impl Views {
    fn drops(&self) -> u64 {
        self.upper.drops().total() + self.lower.drops().total() + self.modems.drops().total()
    }
}

#[test]
fn every_packet_bucket_priority_and_key_of_three_hundred_modems() {
    let packets = std::env::var("WARMLANE_TEST_PACKETS").ok().and_then(|count| count.parse().ok());
    let packets: u64 = packets.unwrap_or(250_000);
    let group = service_group();
    let time = Arc::<AtomicU64>::default();
    let offer = Arc::new(Offer::new(&group, packets, offered_rate));
    let departed = Arc::new(Mutex::new(Departed::new(&group)));
    let delivered = Arc::new(Mutex::new(Delivered::new(&group)));
    let pool = Pool::new(&PoolConfig { buffers: 57_344, ..PoolConfig::default() }).expect("a pool");

    let [(transfer, to_lower), (tunnel, to_modems)] = [0; 2].map(|_| channel(8_192).expect("a channel"));
    let [(lower_keys, lower_changes), (modem_keys, modem_changes)] =
        [0; 2].map(|_| mailbox::mailbox(1_024).expect("a mailbox"));
    let upper = UpperMac::with_time(&group, Time::Given(Arc::clone(&time))).expect("an upper MAC");
    let lower = LowerMac::new(&group, pool.clone(), Some(lower_changes)).expect("a lower MAC");
    let modems = Modems::new(&group, pool.clone(), Some(modem_changes)).expect("modems");
    let views = Views {
        upper: upper.view(),
        flows: upper.flow_counters(),
        lower: lower.view(),
        modems: modems.view(),
    };
    let source = Source::new(&pool, Arc::clone(&offer), Arc::clone(&time), views.upper.clone());
    let transfer = Transfer::new(ChannelTransmit::new(transfer), time, Arc::clone(&departed), &offer);
    let homes = Modem::new(Arc::clone(&offer), Arc::clone(&delivered));

    let mut lanes = Lanes::new();
    let mut spawn = |name: &str, pipeline: Pipeline| {
        // The clock stands still while a lane sleeps, and keys are taken one a poll.
        let (idle, shares_cpu) = (IdlePolicy::Spin, true);
        let config = LaneConfig { name: name.to_owned(), idle, shares_cpu, ..LaneConfig::default() };
        lanes.spawn(config, pipeline).expect("a lane");
    };
    let lower = pipeline(ChannelReceive::new(to_lower), lower, "remote-phy", ChannelTransmit::new(tunnel));
    let modems = pipeline(ChannelReceive::new(to_modems), modems, "delivered", homes);
    let upper = pipeline(source, upper, "lower", transfer);
    spawn("lower", lower);
    spawn("modems", modems);
    spawn("upper", upper);

    let mut roller = KeyRoller {
        group: &group,
        to_lower: lower_keys,
        to_modems: modem_keys,
        lower: views.lower.clone(),
        modems: views.modems.clone(),
        rolls: 0,
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let is_over = || is_over.load(Ordering::Relaxed);
            while roller.rolls < ROLLS && !is_over() {
                if offer.count() < roller.rolls * packets / ROLLS {
                    std::thread::sleep(Duration::from_micros(200));
                } else if roller.roll(&is_over) {
                    offer.allow((roller.rolls + 3) * packets / ROLLS);
                }
            }
        });
        let mut last = (0, Instant::now());
        let accounted = || delivered.lock().expect("a list").count() + views.drops();
        while roller_is_behind(&views) || accounted() < packets {
            std::thread::sleep(Duration::from_millis(1));
            let moved = accounted() + views.lower.keys() + views.modems.keys();
            if moved != last.0 {
                last = (moved, Instant::now());
            }
            if last.1.elapsed() > LONG {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    lanes.stop();
    lanes.join().expect("the lanes end well");

    let keys = ROLLS * u64::from(MODEMS);
    assert_eq!(
        (views.lower.keys(), views.modems.keys()),
        (keys, keys),
        "keys of all modems, rolled 100 times"
    );
    assert_eq!(views.lower.encrypted(), views.upper.transferred(), "all frames are encrypted");
    assert_eq!((views.lower.drops().total(), views.lower.depi_lost()), (0, 0));
    assert_eq!((views.modems.drops().total(), views.modems.missing(), views.modems.given_up()), (0, 0, 0));
    each_packet_is_delivered_or_dropped(&offer, &views, &delivered.lock().expect("a list"), packets);
    let departed = departed.lock().expect("a list");
    buckets_and_priorities_hold(&group, &views, &departed);
    assert_eq!(pool.ledger().outstanding(), 0, "all buffers came back");
}

fn pipeline(
    input: impl ReceiveQueue + 'static,
    stage: impl Stage + 'static,
    output: &'static str,
    queue: impl TransmitQueue + 'static,
) -> Pipeline {
    let mut builder = Pipeline::builder();
    let input = builder.input("in", Box::new(input));
    let stage = builder.stage("stage", stage);
    let sink = builder.output("out", Box::new(queue));
    builder.connect(input, stage).connect((stage, output), sink).build().expect("a pipeline")
}

fn roller_is_behind(views: &Views) -> bool {
    let keys = ROLLS * u64::from(MODEMS);
    views.lower.keys() < keys || views.modems.keys() < keys
}

fn each_packet_is_delivered_or_dropped(offer: &Offer, views: &Views, delivered: &Delivered, packets: u64) {
    assert_eq!(delivered.wrong, Vec::<String>::new());
    let dropped = views.upper.drops();
    assert_eq!(delivered.count() + dropped.total(), packets);
    for (kind, reason) in [
        (Kind::Truncated, UpperDrop::Truncated),
        (Kind::ToNobody, UpperDrop::UnknownModem),
        (Kind::Unlisted, UpperDrop::UnlistedAddress),
        (Kind::Filtered, UpperDrop::Filtered),
        (Kind::TooLong, UpperDrop::TooLong),
    ] {
        assert_eq!(dropped.get(reason), offer.of_kind(kind), "{kind:?}");
    }
    let (mut tail, mut aged) = (0, 0);
    for (number, flow) in views.flows.iter().enumerate() {
        (tail, aged) = (tail + flow.tail_drops(), aged + flow.age_drops());
        let offered = offer.of_flow(number);
        let came = delivered.of_flow(number);
        assert_eq!(came + flow.tail_drops() + flow.age_drops(), offered, "flow {number}");
        assert_eq!((flow.sent(), flow.balance()), (came, 0), "flow {number}");
    }
    assert_eq!((dropped.get(UpperDrop::QueueFull), dropped.get(UpperDrop::Aged)), (tail, aged));
    assert!(tail > 0 && aged > 0, "{tail} {aged}");
}

fn buckets_and_priorities_hold(group: &ServiceGroup, views: &Views, departed: &Departed) {
    assert_eq!(departed.beyond, Vec::<String>::new(), "never more than a bucket holds");
    assert!(!departed.seconds.is_empty(), "there is a whole second to look at");
    let capacity: u64 =
        group.groups[1].channels.iter().map(|channel| group.channels[*channel].rate / 8).sum();
    for bytes in &departed.seconds {
        let is_near = |number: usize, rate: u64, most: bool| {
            let (bytes, wanted) = (bytes[number] as f64, rate as f64 / 8.0);
            assert!(bytes >= wanted * 0.99, "flow {number}: {bytes} bytes a second of {wanted}");
            assert!(!most || bytes <= wanted * 1.01, "flow {number}: {bytes} bytes a second of {wanted}");
        };
        let mut overloaded = 0;
        for (number, flow) in group.flows.iter().enumerate() {
            let (is_overloaded, is_urgent) = (number / 2 % 2 == 1, number % 2 == 1);
            overloaded += if is_overloaded { bytes[number] } else { 0 };
            match (is_overloaded, is_urgent) {
                // What is offered is all sent.
                (false, true) => {
                    assert_eq!(views.flows[number].tail_drops() + views.flows[number].age_drops(), 0);
                }
                (false, false) | (true, true) => is_near(number, flow.maximum_rate.expect("a rate"), true),
                (true, false) if flow.minimum_rate > 0 => is_near(number, flow.minimum_rate, false),
                // The rest, which all of them have to share.
                (true, false) => {
                    assert!(bytes[number] * 8 < URGENT / 2, "flow {number}: {} bytes", bytes[number]);
                }
            }
        }
        // MAC headers are what is missing.
        assert!(overloaded as f64 > 0.95 * capacity as f64, "{overloaded} bytes a second of {capacity}");
    }
}
