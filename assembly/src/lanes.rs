//! Assigns the queues of ports to lanes, and starts the lanes.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use thiserror::Error;
use warmlane_counters::Registry;
use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::control::{LaneRoutes, RoutesError};
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{
    Graph, IdlePolicy, LaneConfig, LaneError, LanePort, Lanes, Pipeline, Waker, place, place_on,
};
use warmlane_mem::Pool;
use warmlane_port::{Port, PortView};

use crate::machine::{Machine, MachineError, MachineSettings};

/// How lanes are placed, and what they do without traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneSettings {
    /// How many lanes share the ports' queues; 0 means 1.
    pub lanes: usize,
    /// The CPU of each lane. Lanes that are to share a CPU have the same one. If this is empty, [`place`] chooses.
    pub cpus: Vec<usize>,
    /// What a lane does when there is nothing to do.
    pub idle: IdlePolicy,
    /// What they ask of the machine.
    pub machine: MachineSettings,
}

/// Why lanes could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// A port has too few queues.
    #[error(
        "port '{port}' ({driver}) has {queues} transmit queue(s), and {lanes} lanes need one each: use fewer lanes, or a driver with more queues"
    )]
    TooFewQueues {
        /// The port's name.
        port: String,
        /// Its driver's.
        driver: &'static str,
        /// How many it has.
        queues: usize,
        /// How many there must be.
        lanes: usize,
    },
    /// The queues of a router's ports were opened for another number of lanes.
    #[error(
        "the router's ports were opened for {opened} lanes, not for {lanes}: open them for as many as are started"
    )]
    OtherLanes {
        /// For how many.
        opened: usize,
        /// How many are to be started.
        lanes: usize,
    },
    /// The routes can't be built.
    #[error("routes")]
    Routes(#[source] Box<RoutesError>),
    /// A lane can't be placed or started.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The machine refuses what lanes ask of it.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The lane's pipeline can't be built.
    #[error("lane '{lane}': {source}")]
    Build {
        /// The lane's name.
        lane: String,
        /// Why not.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Ports, the lanes that work them, and what is counted: a program at work.
pub struct Assembly {
    pub(crate) pool: Pool,
    pub(crate) ports: Vec<PortView>,
    /// Names of ports that packets only leave by for the kernel.
    pub(crate) punts: Mutex<Vec<String>>,
    pub(crate) lanes: Lanes,
    pub(crate) registry: Arc<Registry>,
    pub(crate) began: Instant,
    pub(crate) machine: Machine,
}

/// A lane that is about to start: what it has to work with.
pub struct LaneParts<'a> {
    /// Its number, from 0.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its share of the ports' queues, in the order of the ports.
    pub ports: Vec<LanePort>,
    pool: &'a Pool,
}

impl LaneParts<'_> {
    /// A forwarder for this lane, with the buffers of its pool for what it makes itself.
    pub fn forwarder(&self, routes: impl Into<LaneRoutes>, limits: IcmpLimits) -> Forwarder {
        Forwarder::new(routes, self.pool.clone(), limits)
    }

    /// The lane's ports, to be connected.
    pub fn take_ports(&mut self) -> Vec<LanePort> {
        std::mem::take(&mut self.ports)
    }
}

impl Assembly {
    /// Starts the lanes: each with its share of the ports' queues, and the pipeline that `build` makes for it. Without ports there are no
    /// lanes.
    ///
    /// # Errors
    /// [`StartError`]; lanes that already run are stopped.
    pub fn start(
        pool: Pool,
        settings: &LaneSettings,
        ports: Vec<Port>,
        mut build: impl FnMut(&mut LaneParts<'_>) -> Result<Pipeline, Box<dyn Error + Send + Sync>>,
    ) -> Result<Self, StartError> {
        let count = if ports.is_empty() { 0 } else { settings.lanes.max(1) };
        let cpus = match (count, settings.cpus.is_empty()) {
            (0, _) => Vec::new(),
            (_, true) => place(count)?,
            (_, false) => place_on(&settings.cpus, count)?,
        };
        let mut views: Vec<PortView> = ports.iter().map(Port::view).collect();
        let mut lanes = Lanes::new();
        for (number, (ports, &cpu)) in share_out(ports, count)?.into_iter().zip(&cpus).enumerate() {
            let name = format!("lane{number}");
            let mut parts = LaneParts { number, name: name.clone(), ports, pool: &pool };
            let pipeline =
                build(&mut parts).map_err(|source| StartError::Build { lane: name.clone(), source })?;
            show_drops_in_front(&mut views, number, pipeline.graph());
            let shares_cpu = cpus.iter().filter(|other| **other == cpu).count() > 1;
            let config =
                LaneConfig { name, cpu: Some(cpu), idle: settings.idle, shares_cpu, ..LaneConfig::default() };
            lanes.spawn(config, pipeline)?;
        }
        let registry = Arc::new(Registry::new());
        for port in &views {
            port.register(&registry);
        }
        lanes.register(&registry);
        pool.register(&registry);
        let machine = Machine::prepare(&settings.machine, settings.idle, lanes.views(), &registry)?;
        let began = Instant::now();
        Ok(Self { pool, ports: views, punts: Mutex::default(), lanes, registry, began, machine })
    }

    /// What wakes its lanes that sleep, for what is left in mailboxes.
    pub fn waker(&self) -> Waker {
        self.lanes.waker()
    }

    /// Shows this interface, too, by which packets leave for the kernel.
    pub(crate) fn add_punt(&self, port: &PortView) {
        port.register(&self.registry);
        self.punts().push(port.name.clone());
    }

    pub(crate) fn punts(&self) -> MutexGuard<'_, Vec<String>> {
        self.punts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ports that packets come in and leave by.
    pub fn ports(&self) -> &[PortView] {
        &self.ports
    }

    /// The lanes.
    pub const fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The memory that packets live in.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// All counters, which reports are made of. You can add more: those of another pool or port, under its label, or what a function counts
    /// besides its stages, under the label `function`.
    pub const fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// What the machine didn't give the lanes, and what will disturb them there, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.machine.notes
    }

    /// What the lanes are made of.
    pub fn graphs(&self) -> impl Iterator<Item = &Arc<Graph>> {
        self.lanes.views().iter().flat_map(|lane| &lane.graphs)
    }

    /// What has broken so far. Each failure is listed once, even if several lanes have seen it.
    pub fn failures(&self) -> Vec<String> {
        let mut all = Vec::new();
        for graph in self.graphs() {
            for failure in graph.failures() {
                if !all.contains(&failure.reason) {
                    all.push(failure.reason);
                }
            }
        }
        all
    }
}

/// What a lane puts in front of a port's queue, because the port can't do what packets may need, drops packets of its own.
/// A port's transmit queues go to the lanes in their order.
fn show_drops_in_front(ports: &mut [PortView], lane: usize, graph: &Graph) {
    for port in ports {
        let output = graph.outputs.iter().find(|output| output.name == port.name);
        if let (Some(view), Some(counters)) =
            (port.transmit.get_mut(lane), output.and_then(|output| output.counters.clone()))
        {
            *view = counters;
        }
    }
}

/// Assigns the ports' queues to lanes: receive queues in turn, and one transmit queue for each lane.
///
/// # Errors
/// [`StartError::TooFewQueues`], if a port can transmit, but not from every lane.
pub fn share_out(ports: Vec<Port>, lanes: usize) -> Result<Vec<Vec<LanePort>>, StartError> {
    let mut shares: Vec<Vec<LanePort>> = (0..lanes).map(|_| Vec::new()).collect();
    for port in ports {
        let queues = port.transmit.len();
        if queues > 0 && queues < lanes {
            return Err(StartError::TooFewQueues { port: port.name, driver: port.driver, queues, lanes });
        }
        let mut receive: Vec<Vec<_>> = (0..lanes).map(|_| Vec::new()).collect();
        for (number, queue) in port.receive.into_iter().enumerate() {
            receive[number % lanes].push(queue);
        }
        let mut transmit = port.transmit.into_iter();
        for (share, receive) in shares.iter_mut().zip(receive) {
            share.push(LanePort { name: port.name.clone(), receive, transmit: transmit.next() });
        }
    }
    Ok(shares)
}
