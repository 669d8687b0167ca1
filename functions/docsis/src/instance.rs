//! One downstream: two lanes and the channel between them; and the lane of the other end.

use thiserror::Error;
use warmlane_counters::{Labels, Registry};
use warmlane_lane::{GraphError, Pipeline};
use warmlane_mem::{Pool, channel};
use warmlane_port::channel::{ChannelReceive, ChannelTransmit};
use warmlane_port::{ReceiveQueue, TransmitQueue};
use warmlane_sync::mailbox::Receiver;
use warmlane_sync::ring::RingError;

use crate::control::ServiceGroup;
use crate::keys::{KeyChange, KeyringError};
use crate::lower::{ChannelDelayViews, FlowDelayCountersView, LowerCountersView, LowerError, LowerMac};
use crate::metered::{self, CallCountersView};
use crate::modem::{ModemCountersView, Modems};
use crate::upper::{
    ChannelCountersView, FlowCountersView, LookupError, SubscriberCountersView, UpperCountersView, UpperMac,
};

/// Packets that the channel between the lanes holds: more than the peak of 20,000 that Intel saw in its own.
const CHANNEL: usize = 32_768;

/// Why there is no downstream.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// The upper MAC can't be made.
    #[error(transparent)]
    Upper(#[from] LookupError),
    /// The lower MAC can't be made.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The other end can't be made.
    #[error(transparent)]
    Modems(#[from] KeyringError),
    /// The channel can't be made.
    #[error(transparent)]
    Channel(#[from] RingError),
    /// The pipelines can't be put together.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// A downstream, to be started: each pipeline on a lane of its own.
pub struct Downstream {
    /// The upper MAC's lane.
    pub upper: Pipeline,
    /// The lower MAC's lane.
    pub lower: Pipeline,
    /// What they count.
    pub views: DownstreamViews,
}

/// What a downstream counts.
#[derive(Clone)]
pub struct DownstreamViews {
    /// The upper MAC.
    pub upper: UpperCountersView,
    /// The lower MAC.
    pub lower: LowerCountersView,
    /// The modems in their order.
    pub subscribers: Vec<SubscriberCountersView>,
    /// The service flows in their order.
    pub flows: Vec<FlowCountersView>,
    /// How long the service flows' packets take, in their order.
    pub flow_delays: Vec<FlowDelayCountersView>,
    /// The channels in their order.
    pub channels: Vec<ChannelCountersView>,
    /// How long the channels' packets take, in their order.
    pub channel_delays: Vec<ChannelDelayViews>,
    receive: Vec<CallCountersView>,
    send: CallCountersView,
    take: CallCountersView,
    transmit: CallCountersView,
}

/// What a stage has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageCost {
    /// As the dashboard of Intel's reference data plane calls it.
    pub name: &'static str,
    /// Packets that it worked on.
    pub packets: u64,
    /// Cycles of the time-stamp counter.
    pub cycles: u64,
}

impl DownstreamViews {
    /// Adds what is counted of each modem, with its address as label, of each service flow, with its number besides, and of each channel,
    /// with its name.
    /// What the two MACs count is in their lanes' graphs. `group` is what this is a downstream of.
    pub fn register(&self, registry: &Registry, group: &ServiceGroup) {
        let labels = || Labels::new().with("function", "docsis");
        for (modem, view) in group.modems.iter().zip(&self.subscribers) {
            registry.add(labels().with("modem", modem.mac), view.clone());
        }
        for (number, (flow, view)) in group.flows.iter().zip(&self.flows).enumerate() {
            let modem = group.modems.get(flow.modem).map_or(String::new(), |modem| modem.mac.to_string());
            let labels = labels().with("modem", modem).with("flow", number);
            registry.add(labels.clone(), view.clone());
            if let Some(delays) = self.flow_delays.get(number) {
                registry.add(labels, delays.clone());
            }
        }
        for ((channel, view), delays) in group.channels.iter().zip(&self.channels).zip(&self.channel_delays) {
            let labels = labels().with("channel", &channel.name);
            registry.add(labels.clone(), view.clone());
            registry.add(labels.clone(), delays.latency.clone());
            registry.add(labels, delays.jitter.clone());
        }
    }

    /// The stages in the order of the way.
    pub fn stages(&self) -> [StageCost; 11] {
        let Self { upper, lower, .. } = self;
        let stage = |name, packets, cycles| StageCost { name, packets, cycles };
        let (received, receiving) = self
            .receive
            .iter()
            .fold((0, 0), |(packets, cycles), view| (packets + view.packets(), cycles + view.cycles()));
        [
            stage("rx", received, receiving),
            stage("cm_lookup", upper.cm_lookup_packets(), upper.cm_lookup_cycles()),
            stage("sub_mgmt", upper.sub_mgmt_packets(), upper.sub_mgmt_cycles()),
            stage("filtering", upper.filtering_packets(), upper.filtering_cycles()),
            stage("classification", upper.classification_packets(), upper.classification_cycles()),
            stage("qos", upper.qos_packets(), upper.qos_cycles()),
            stage("transfer", self.take.packets(), self.send.cycles() + self.take.cycles()),
            stage("docsis_framing", lower.docsis_framing_packets(), lower.docsis_framing_cycles()),
            stage("crc_encryption", lower.crc_encryption_packets(), lower.crc_encryption_cycles()),
            stage("depi_encap", lower.depi_encap_packets(), lower.depi_encap_cycles()),
            stage("tx", self.transmit.packets(), self.transmit.cycles()),
        ]
    }
}

/// Where packets come in and leave.
pub struct Queues {
    /// They come by these.
    pub receive: Vec<Box<dyn ReceiveQueue>>,
    /// They leave by this one.
    pub transmit: Box<dyn TransmitQueue>,
}

/// A downstream of a service group that was [checked](ServiceGroup::check), between these queues. New keys come by
/// `changes`.
///
/// # Errors
/// [`InstanceError`].
pub fn downstream(
    group: &ServiceGroup,
    pool: &Pool,
    Queues { receive, transmit }: Queues,
    changes: Option<Receiver<KeyChange>>,
) -> Result<Downstream, InstanceError> {
    let (sender, receiver) = channel(CHANNEL)?;
    let (send, send_view) = metered::transmit(Box::new(ChannelTransmit::new(sender)));
    let (take, take_view) = metered::receive(Box::new(ChannelReceive::new(receiver)));
    let (transmit, transmit_view) = metered::transmit(transmit);

    let upper = UpperMac::new(group)?;
    let lower = LowerMac::new(group, pool.clone(), changes)?;
    let mut views = DownstreamViews {
        upper: upper.view(),
        lower: lower.view(),
        subscribers: upper.subscriber_counters(),
        flows: upper.flow_counters(),
        flow_delays: lower.flow_delays(),
        channels: upper.channel_counters(),
        channel_delays: lower.channel_delays(),
        receive: Vec::new(),
        send: send_view,
        take: take_view,
        transmit: transmit_view,
    };

    let mut builder = Pipeline::builder();
    let upper = builder.stage("upper MAC", upper);
    for (number, queue) in receive.into_iter().enumerate() {
        let (queue, view) = metered::receive(queue);
        views.receive.push(view);
        let input = builder.input(format!("rx.{number}"), queue);
        builder.connect(input, upper);
    }
    let output = builder.output("transfer", send);
    let upper = builder.connect((upper, "lower"), output).build()?;

    let lower_stage = builder.stage("lower MAC", lower);
    let (input, output) = (builder.input("transfer", take), builder.output("tx", transmit));
    let lower = builder.connect(input, lower_stage).connect((lower_stage, "remote-phy"), output).build()?;
    Ok(Downstream { upper, lower, views })
}

/// The other end of a service group, between these queues, for a lane.
///
/// # Errors
/// [`InstanceError`].
pub fn modems(
    group: &ServiceGroup,
    pool: &Pool,
    Queues { receive, transmit }: Queues,
    changes: Option<Receiver<KeyChange>>,
) -> Result<(Pipeline, ModemCountersView), InstanceError> {
    let stage = Modems::new(group, pool.clone(), changes)?;
    let view = stage.view();
    let mut builder = Pipeline::builder();
    let stage = builder.stage("modems", stage);
    for (number, queue) in receive.into_iter().enumerate() {
        let input = builder.input(format!("tunnel.{number}"), queue);
        builder.connect(input, stage);
    }
    let output = builder.output("delivered", transmit);
    Ok((builder.connect((stage, "delivered"), output).build()?, view))
}
