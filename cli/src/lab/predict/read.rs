//! Files of all functions, read by these functions' own parsers.

use crate::docsis;
use crate::flags::ConfigFlags;
use crate::router::settings::Settings as RouterSettings;
use anyhow::{Context as _, bail};
use std::path::Path;
use warmlane::assembly::ports::DriverSettings;
use warmlane::drivers::memif;
use warmlane::drivers::xdp::XdpOptions;
use warmlane::functions::docsis::control::parse_group;
use warmlane::functions::forward::control::config::FullTableConfig;
use warmlane::functions::forward::control::{Config, Routes};
use warmlane::functions::router::paths::{Path as RouterPath, PathChoice};
use warmlane::mem::{PoolConfig, PoolKind};
use warmlane::table::IpPrefix;
use warmlane_lab::predict::{Configuration, Function, PortRings, Table};

/// What files of a router and of a downstream don't say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsaid {
    /// Entries of rings.
    pub(super) ring: Option<u32>,
    /// Whether the kernel has the full table.
    pub(super) full_table: bool,
    /// The kind of a downstream's pool.
    pub(super) pool: PoolKind,
}

/// Keys by which a file shows whose it is.
const FORWARD: [&str; 6] = ["port", "neighbour", "route", "full-table", "vxlan", "geneve"];
const ROUTER: [&str; 1] = ["interfaces"];
const DOCSIS: [&str; 9] =
    ["channel", "modem", "group", "filter", "tunnel", "limits", "crc", "encryption", "key-seed"];

/// Descriptors of 16 bytes and addresses of 8, in either direction.
const XDP_ENTRY: u32 = 2 * (16 + 8);
/// Descriptors of 16 bytes, in either direction.
const DESCRIPTOR_ENTRY: u32 = 2 * 16;
/// What a guest's driver has, mostly (QEMU's default is 256), and the buffers that it posts.
const GUEST_RING: u32 = 256;
const GUEST_BUFFER: u32 = 2_048;

/// What the file at `path` says.
pub(super) fn configuration(path: &Path, text: &str, unsaid: Unsaid) -> anyhow::Result<Configuration> {
    let name = path.display();
    let table: toml::Table = text.parse().with_context(|| format!("{name} is no TOML file"))?;
    let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
    if has(&FORWARD) {
        let (config, drivers) = ConfigFlags::of_file(path, text)?;
        return forward(&config, &drivers);
    }
    if has(&ROUTER) {
        return router(&RouterSettings::default().with_file(Some(path))?, unsaid);
    }
    if has(&DOCSIS) {
        return docsis(text, unsaid).with_context(|| name.to_string());
    }
    let keys: Vec<&str> = table.keys().map(String::as_str).collect();
    let keys = if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
    bail!(
        "{name} is no configuration of forward, router or docsis: a forwarder's has [[port]], a router's `interfaces`, a downstream's \
         [[channel]] or [[modem]], and this one has {keys}"
    )
}

fn forward(config: &Config, drivers: &[DriverSettings]) -> anyhow::Result<Configuration> {
    let routes = Routes::from_config(config)?;
    let full = [!config.full_table.ipv4.is_empty(), !config.full_table.ipv6.is_empty()];
    let lengths = [false, true].map(|ipv6| {
        let of_prefix = |prefix: &IpPrefix| match prefix {
            IpPrefix::V4(prefix) => (!ipv6).then(|| prefix.length()),
            IpPrefix::V6(prefix) => ipv6.then(|| prefix.length()),
        };
        let host = if ipv6 { 128 } else { 32 };
        let neighbours = config.neighbours.iter().filter(|neighbour| neighbour.address.is_ipv6() == ipv6);
        let routes = config.routes.iter().filter_map(|route| of_prefix(&route.prefix));
        routes.chain(neighbours.map(|_| host)).collect::<Vec<u8>>()
    });
    let [ipv4, ipv6] = [0, 1].map(|family: usize| (!full[family]).then_some(&lengths[family][..]));
    let ports = config.ports.iter().zip(drivers).map(|(port, driver)| rings(&port.name, driver));
    Ok(Configuration {
        function: Function::Forward,
        lanes: config.lanes,
        instances: 1,
        pool: config.pool.pool_config("packets"),
        ports: ports.collect(),
        tables: Table::all(&routes, [ipv4, ipv6]),
        modems: 0,
        crc: false,
    })
}

/// What a lane has of a port that this driver opens.
fn rings(name: &str, driver: &DriverSettings) -> PortRings {
    let none = PortRings::without_rings(name, driver.name());
    match driver {
        DriverSettings::Xdp(options) => xdp(name, options.ring),
        DriverSettings::Memif(options) if options.mode == memif::Mode::ZeroCopy => {
            PortRings::posting(name, driver.name(), [options.ring_size, DESCRIPTOR_ENTRY], "ring-size")
        }
        DriverSettings::Memif(options) => PortRings {
            entries: options.ring_size,
            entry_bytes: DESCRIPTOR_ENTRY,
            slot_bytes: options.buffer_size,
            ..none
        },
        DriverSettings::Virtio(options) => {
            let ring = [u32::from(options.ring_size), DESCRIPTOR_ENTRY];
            PortRings::posting(name, driver.name(), ring, "ring-size")
        }
        DriverSettings::Pci(options) => {
            let ring = [u32::from(options.ring_size), DESCRIPTOR_ENTRY];
            PortRings::posting(name, driver.name(), ring, "ring-size")
        }
        DriverSettings::Vhost(_) => {
            PortRings { entries: GUEST_RING, entry_bytes: DESCRIPTOR_ENTRY, slot_bytes: GUEST_BUFFER, ..none }
        }
        DriverSettings::Packet(options) => PortRings {
            entries: options.ring,
            slot_bytes: options.slot_bytes.unwrap_or(GUEST_BUFFER),
            ..none
        },
        DriverSettings::Tap(_)
        | DriverSettings::Null(_)
        | DriverSettings::Pcap(_)
        | DriverSettings::Replay(_) => none,
    }
}

fn xdp(name: &str, ring: Option<u32>) -> PortRings {
    PortRings::posting(name, "xdp", [ring.unwrap_or(XdpOptions::RING), XDP_ENTRY], "ring")
}

fn router(settings: &RouterSettings, unsaid: Unsaid) -> anyhow::Result<Configuration> {
    let paths = settings.paths()?;
    let is_in_kernel =
        |name: &str| matches!(paths.of(name), PathChoice::Only(path) if path != RouterPath::User);
    let on_lanes: Vec<&String> = settings.interfaces.iter().filter(|name| !is_in_kernel(name)).collect();
    if on_lanes.is_empty() {
        bail!(
            "all interfaces are on paths inside the kernel, where there are no lanes, buffers or tables of ours to predict"
        );
    }
    let lanes = settings.lane_count();
    // As many receive queues as lanes, which an interface is best given.
    let queues = vec![u32::try_from(lanes).unwrap_or(u32::MAX); on_lanes.len()];
    let buffers = settings.buffer_count(&queues);
    let ring = unsaid.ring.or(settings.ring());
    let mac = "02:00:00:00:00:01";
    let mut routes =
        Routes::builder().port(mac, [""; 0]).neighbour("192.0.2.1", mac, 0).neighbour("2001:db8::1", mac, 0);
    routes = if unsaid.full_table {
        routes.full_table(FullTableConfig { ipv4: vec![0], ipv6: vec![1] })
    } else {
        routes.route("0.0.0.0/0", "192.0.2.1").route("::/0", "2001:db8::1")
    };
    let reached = (!unsaid.full_table).then_some(&[0_u8][..]);
    Ok(Configuration {
        function: Function::Router,
        lanes,
        instances: 1,
        pool: PoolConfig { buffers, ..PoolConfig::default() },
        ports: on_lanes.into_iter().map(|name| xdp(name, ring)).collect(),
        tables: Table::all(&routes.build()?, [reached; 2]),
        modems: 0,
        crc: false,
    })
}

fn docsis(text: &str, unsaid: Unsaid) -> anyhow::Result<Configuration> {
    let group = parse_group(text)?;
    group.check()?;
    Ok(Configuration {
        function: Function::Docsis,
        lanes: 1,
        instances: 1,
        pool: PoolConfig { buffers: docsis::BUFFERS, kind: unsaid.pool, ..PoolConfig::default() },
        ports: vec![xdp("from", unsaid.ring)],
        tables: Vec::new(),
        modems: u32::try_from(group.modems.len()).unwrap_or(u32::MAX),
        crc: group.crc,
    })
}

#[cfg(test)]
mod tests;
