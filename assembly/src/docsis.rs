//! A DOCSIS downstream: one end of it between ports, or all of it in memory between a generator and modems.

mod loopback;

use thiserror::Error;
use warmlane_docsis::control::ServiceGroup;
use warmlane_docsis::{InstanceError, Queues, downstream, modems};
use warmlane_gen::TrialError;
use warmlane_lane::{IdlePolicy, LaneError};
use warmlane_mem::Pool;
use warmlane_port::{NoQueue, Port};
use warmlane_sync::ring::RingError;
use warmlane_sys::affinity::AffinityError;

pub use loopback::{Loopback, LoopbackResult};

use crate::lanes::{Assembly, LaneSettings, StartError};

/// Why a downstream can't run.
#[derive(Debug, Error)]
pub enum DocsisError {
    /// The parts can't be made of this service group.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// A port can't receive, or transmit.
    #[error(transparent)]
    NoQueue(#[from] NoQueue),
    /// A cable in memory or a mailbox can't be made.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The system doesn't say on which CPUs lanes may run.
    #[error(transparent)]
    Cpus(#[from] AffinityError),
    /// Lanes can't be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A lane can't be placed or started, or broke.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The generator has no result.
    #[error(transparent)]
    Trial(#[from] TrialError),
}

/// One end of a downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownstreamEnd {
    /// The upper and the lower MAC, each on a lane: Ethernet frames become R-DEPI packets.
    Sender,
    /// The remote PHY and its modems, on a lane: R-DEPI packets become Ethernet frames.
    Receiver,
}

impl Assembly {
    /// Works one end of a downstream of a service group that was [checked](ServiceGroup::check), from one port to another.
    ///
    /// # Errors
    /// [`DocsisError`].
    pub fn downstream(
        end: DownstreamEnd,
        group: &ServiceGroup,
        pool: Pool,
        [mut from, mut to]: [Port; 2],
        idle: IdlePolicy,
    ) -> Result<Self, DocsisError> {
        // Lanes have different work here, so that queues aren't shared out among them.
        let ports = [from.view(), to.view()];
        let queues = Queues { receive: std::mem::take(&mut from.receive), transmit: to.take_transmit()? };
        let (pipelines, views) = match end {
            DownstreamEnd::Sender => {
                let made = downstream(group, &pool, queues, None)?;
                (vec![made.upper, made.lower], Some(made.views))
            }
            DownstreamEnd::Receiver => (vec![modems(group, &pool, queues, None)?.0], None),
        };
        let settings = LaneSettings { lanes: pipelines.len(), idle, ..LaneSettings::default() };
        let without_queues =
            [from, to].map(|port| Port { receive: Vec::new(), transmit: Vec::new(), ..port });
        let mut pipelines = pipelines.into_iter();
        let assembly = Self::start(pool, &settings, without_queues.into(), |_| {
            pipelines.next().ok_or_else(|| "there is a pipeline for each lane".into())
        })?;
        for port in ports {
            port.register(assembly.registry());
        }
        if let Some(views) = views {
            views.register(assembly.registry(), group);
        }
        Ok(assembly)
    }
}
