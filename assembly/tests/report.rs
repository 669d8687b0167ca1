//! What is counted is in the registry, in the report and in its JSON, also what stages count that nobody knows here.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use warmlane_assembly::{Assembly, LaneSettings, Outcome, Report, RunError};
use warmlane_counters::{Counter, Description, Labels, Registry, Role, Source, counters, drop_reasons};
use warmlane_forward::connect_ports_through;
use warmlane_forward::control::Config;
use warmlane_lane::{Outputs, Pipeline, Stage};
use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_memory::{null, replay};
use warmlane_port::{BurstExt as _, Port};
use warmlane_wire::{Frame, Ipv4Fields, MacAddress};

drop_reasons! {
    /// Why [`Meter`] drops.
    enum MeterDrop {
        /// The host's number is a multiple of ten.
        Tenth: "tenth", Notice;
    }
}

counters! {
    /// What [`Meter`] counts.
    struct MeterCounters => MeterCountersView, drops by MeterDrop {
        /// Packets that came.
        metered: In, "packets";
        /// Packets that went on.
        went_on: Out, "packets";
        /// Their lifetimes, added up.
        sum_of_lifetimes: Note, "hops";
    }
}

/// A stage of one's own that nobody here knows.
#[derive(Default)]
struct Meter {
    counters: MeterCounters,
    /// How many it forgets to count.
    forgets: u64,
}

impl Stage for Meter {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        self.counters.metered().add(burst.len() as u64);
        burst.keep(self.counters.drops(), |packet| {
            if packet.data()[33].is_multiple_of(10) { Err(MeterDrop::Tenth) } else { Ok(()) }
        });
        let lifetimes = burst.iter().map(|packet| u64::from(packet.data()[22])).sum();
        self.counters.sum_of_lifetimes().add(lifetimes);
        self.counters.went_on().add(burst.len() as u64 - std::mem::take(&mut self.forgets));
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("meter")
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.counters.view())]
    }
}

const CONFIG: &str = r#"
[[port]]
name = "west"
driver = "null"
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]

[[port]]
name = "east"
driver = "null"
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24"]

[[neighbour]]
address = "198.51.100.2"
mac = "02:00:00:00:01:02"
port = "east"

[[route]]
prefix = "0.0.0.0/0"
via = "198.51.100.2"
"#;

/// A thousand packets to a hundred hosts, from west to east.
fn ports(pool: &Pool) -> Vec<Port> {
    let mut frames = replay::Frames::new();
    for host in 0..100 {
        let fields = Ipv4Fields::new([192, 0, 2, 9].into(), [203, 0, 113, host].into());
        let frame = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([4; 6])).ipv4(fields);
        frames.push(&frame.udp(1, 2).to_vec().unwrap()).unwrap();
    }
    let config = replay::ReplayConfig { rounds: Some(10), ..Default::default() };
    vec![replay::open("west", &Arc::new(frames), pool, config).unwrap(), null::sink("east", 1)]
}

/// Forwards them, with a meter before and one behind the forwarder, and something of the embedder's own in the registry.
fn run(forgets: u64) -> (Arc<Registry>, Outcome) {
    let pool =
        Pool::new(&PoolConfig { name: "packets".into(), buffers: 1_024, ..PoolConfig::default() }).unwrap();
    let (config, ports) = (Config::from_toml(CONFIG).unwrap(), ports(&pool));
    let assembly =
        Assembly::forward_with(config, pool, ports, &LaneSettings::default(), |forwarder, ports| {
            let mut builder = Pipeline::builder();
            let row = builder.stage("row", (Meter { forgets, ..Meter::default() }, forwarder));
            connect_ports_through(&mut builder, row, ports, |builder, port, output| {
                let egress = builder.stage(format!("egress {port}"), Meter::default());
                builder.connect(egress, output);
                egress.into()
            });
            builder.build()
        })
        .unwrap();
    let learned = Counter::new();
    let description = Description {
        set: "peers",
        name: "routes-learned",
        unit: "routes",
        help: "Routes.",
        role: Role::Note,
    };
    assembly.registry().add(Labels::new().with("function", "bgp"), (description, learned.view()));
    learned.add(7);
    let longest = Description { name: "longest", unit: "nanoseconds", role: Role::Peak, ..description };
    for wait in [5, 9, 3] {
        let counter = Counter::new();
        counter.add(wait);
        assembly.registry().add(Labels::new().with("function", "bgp"), (longest, counter.view()));
    }
    let copies = PoolConfig { name: "copies".into(), buffers: 64, ..PoolConfig::default() };
    Pool::new(&copies).unwrap().register(assembly.registry());
    while !assembly.lanes().are_finished() {
        std::thread::yield_now();
    }
    let registry = Arc::clone(assembly.registry());
    (registry, assembly.finish())
}

#[test]
fn stages_that_nobody_knows_are_in_the_report() {
    let (_, outcome) = run(0);
    outcome.result.unwrap();
    let report: Report = outcome.report;
    let stage = |name: &str| report.stages.iter().find(|stage| stage.name == name).unwrap();
    // Before the forwarder packets live 64 hops yet, behind it 63. A tenth of them goes at the first meter.
    for (name, metered, went_on, lifetime, tenth) in
        [("row", 1_000, 900, 64, Some(100)), ("egress east", 900, 900, 63, None)]
    {
        let stage = stage(name);
        let meter = &stage.counters["meter"];
        assert_eq!(
            (stage.packets, meter["metered"], meter["went_on"]),
            (metered, metered, went_on),
            "{name}"
        );
        assert_eq!(meter["sum_of_lifetimes"], went_on * lifetime, "{name}");
        assert_eq!(stage.drops.get("tenth").copied(), tenth, "{name}");
    }
    let forward = report.forward.as_ref().expect("there are forwarders");
    assert_eq!((forward.received, forward.forwarded, forward.unsent), (900, 900, 0));
    assert!(!stage("row").counters.contains_key("forward"), "that is in `forward`");
    let peers = &report.functions["peers"];
    assert_eq!((peers["routes_learned"], peers["longest"]), (7, 9), "sums, and of peaks the highest");
    let pools: Vec<_> = report.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(pools, ["packets", "copies"]);
    let [west, east] = &report.ports[..] else { panic!("two ports") };
    assert_eq!((west.name.as_str(), west.driver.as_str(), west.received.packets), ("west", "replay", 1_000));
    assert_eq!((east.transmitted.packets, report.lanes[0].packets), (900, 1_000));

    let text = report.text();
    let line = |start: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(start));
        line.and_then(|line| line.split_whitespace().last())
            .unwrap_or_else(|| panic!("no {start} in\n{text}"))
    };
    assert_eq!((line("stage egress east"), line("went on"), line("dropped: tenth")), ("900", "900", "100"));
    assert_eq!((line("received"), line("= forwarded")), ("900", "900"));
}

/// An exporter finds in each value what it needs: names that are its own, a unit, help, and labels of few values.
#[test]
fn every_value_can_be_exported() {
    let (registry, _) = run(0);
    let is_name = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    let known =
        ["port", "driver", "direction", "queue", "lane", "stage", "input", "output", "pool", "function"];
    let (mut families, mut seen) = (HashMap::new(), 0);
    registry.read(|labels, entry| {
        let described = entry.description;
        assert!(is_name(described.name) && is_name(described.unit), "{described:?}");
        assert!(described.help.ends_with('.'), "{described:?}");
        assert!(
            is_name(described.set) || described.set.is_empty() && entry.reason.is_some(),
            "{described:?}"
        );
        assert!(labels.iter().all(|(name, _)| known.contains(&name)), "{labels:?}");
        if entry.reason.is_none() {
            let family = (described.set, described.name);
            assert_eq!(*families.entry(family).or_insert(described), described, "one name, one meaning");
        }
        seen += 1;
    });
    assert!(seen > 50, "{seen}");
    // Ports, lanes, stages, inputs, outputs, pools, functions.
    for family in [
        ("queue", "packets"),
        ("lane", "polls"),
        ("stage", "processed"),
        ("input", "received"),
        ("output", "sent"),
        ("pool", "taken"),
        ("forward", "received"),
        ("meter", "went-on"),
        ("peers", "routes-learned"),
    ] {
        assert!(families.contains_key(&family), "{family:?}");
    }
}

/// The equation of the books is each set's own, and it is checked for those that nobody knows, too.
#[test]
fn a_stage_whose_books_do_not_balance_is_named() {
    let (_, outcome) = run(3);
    let error = outcome.result.unwrap_err();
    assert!(matches!(error, RunError::Unbalanced { inside: 3, .. }), "{error}");
    assert!(error.to_string().starts_with("lane 'lane0', stage 'row': 3 packets"), "{error}");
}
