//! Puts a forwarder together from its configuration: pool, ports, routes, lanes.

use crate::drivers;
use anyhow::{Context as _, bail};
use std::sync::Arc;
use warmlane::functions::forward::control::{Config, Routes};
use warmlane::functions::forward::datapath::{ForwardCounters, Forwarder};
use warmlane::functions::forward::{ForwardTask, TaskNotes, TaskPort};
use warmlane::lane::{IdlePolicy, LaneConfig, Lanes, place};
use warmlane::mem::Pool;
use warmlane::port::{Port, QueueCounters};
use warmlane::wire::MacAddress;

/// What stays readable of a port while its queues are with the lanes.
pub(crate) struct PortView {
    pub(crate) name: String,
    pub(crate) driver: &'static str,
    pub(crate) notes: Vec<String>,
    pub(crate) receive: Vec<Arc<QueueCounters>>,
    pub(crate) transmit: Vec<Arc<QueueCounters>>,
}

/// A forwarder at work.
pub(crate) struct Assembly {
    pub(crate) pool: Pool,
    pub(crate) ports: Vec<PortView>,
    /// By which punted packets leave.
    pub(crate) punts: Vec<PortView>,
    pub(crate) forwarders: Vec<Arc<ForwardCounters>>,
    pub(crate) notes: Vec<Arc<TaskNotes>>,
    pub(crate) lanes: Lanes,
}

/// Opens the ports that `config` describes.
pub(crate) fn open_ports(config: &Config, pool: &Pool) -> anyhow::Result<Vec<Port>> {
    drivers::check_captures(&config.ports)?;
    let mut opener = drivers::Opener::new(pool, config.lanes);
    config.ports.iter().map(|port| opener.open(port)).collect()
}

/// Starts the lanes.
pub(crate) fn start(
    mut config: Config,
    pool: Pool,
    ports: Vec<Port>,
    idle: IdlePolicy,
) -> anyhow::Result<Assembly> {
    if let Some(fallback) = pool.fallback() {
        eprintln!("note: packet memory: {fallback}");
    }
    // What the interfaces know better than the configuration.
    for (settings, port) in config.ports.iter_mut().zip(&ports) {
        settings.mac = settings.mac.or(port.capabilities.mac.map(MacAddress));
        if let Some(mtu) = port.capabilities.mtu {
            settings.mtu = settings.mtu.min(u16::try_from(mtu).unwrap_or(u16::MAX));
        }
    }
    let routes = Arc::new(Routes::from_config(&config).context("routes")?);
    let views = ports.iter().map(view).collect();
    let cpus = place(config.lanes)?;

    let shares = share_out(ports, config.lanes)?;
    let mut lanes = Lanes::new();
    let mut forwarders = Vec::new();
    let mut notes = Vec::new();
    for (number, (share, cpu)) in shares.into_iter().zip(cpus).enumerate() {
        let forwarder = Forwarder::new(Arc::clone(&routes), pool.clone(), config.icmp);
        forwarders.push(Arc::clone(forwarder.counters()));
        let task = ForwardTask::new(forwarder, share, config.burst);
        notes.push(Arc::clone(task.notes()));
        let lane =
            LaneConfig { name: format!("lane{number}"), cpu: Some(cpu), idle, pools: vec![pool.clone()] };
        lanes.spawn(lane, task)?;
    }
    Ok(Assembly { pool, ports: views, punts: Vec::new(), forwarders, notes, lanes })
}

/// Deals out ports' queues to lanes: receive queues in turn, and one transmit queue for each.
pub(crate) fn share_out(ports: Vec<Port>, lanes: usize) -> anyhow::Result<Vec<Vec<TaskPort>>> {
    let mut shares: Vec<Vec<TaskPort>> = (0..lanes).map(|_| Vec::new()).collect();
    for port in ports {
        let (needed, has) = (lanes, port.transmit.len());
        // A port that only receives is fine; one that transmits must do so from every lane.
        if has > 0 && has < needed {
            bail!(
                "port '{}' ({}) has {has} transmit queue(s), and {needed} lanes need one each: use fewer lanes, or a driver with more queues",
                port.name,
                port.driver
            );
        }
        let mut receive: Vec<Vec<_>> = (0..lanes).map(|_| Vec::new()).collect();
        for (number, queue) in port.receive.into_iter().enumerate() {
            receive[number % lanes].push(queue);
        }
        let mut transmit = port.transmit.into_iter();
        for (share, receive) in shares.iter_mut().zip(receive) {
            share.push(TaskPort { receive, transmit: transmit.next(), lossless: port.capabilities.lossless });
        }
    }
    Ok(shares)
}

pub(crate) fn view(port: &Port) -> PortView {
    PortView {
        name: port.name.clone(),
        driver: port.driver,
        notes: port.capabilities.notes.clone(),
        receive: port.receive.iter().map(|queue| Arc::clone(queue.counters())).collect(),
        transmit: port.transmit.iter().map(|queue| Arc::clone(queue.counters())).collect(),
    }
}
