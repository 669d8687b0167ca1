//! The lower MAC of one lane.

use thiserror::Error;
use warmlane_counters::Source;
use warmlane_lane::{Explanation, Outputs, Rehearsed, Stage, polled_stage};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, Pool};
use warmlane_sync::mailbox::Receiver;
use warmlane_sys::clock::{self, Clock};
use warmlane_wire::docsis::{DownstreamService, Sequencing};

use super::counters::{FlowDelayCountersView, LowerCounters, LowerCountersView};
use super::delay::{ChannelDelayViews, ChannelDelays, FlowDelays};
use super::depi::{Finished, Segmenter, TunnelError};
use super::framing::{Framing, add_header, protect};
use super::reason::LowerDrop;
use crate::control::ServiceGroup;
use crate::keys::{KeyChange, Keyring, KeyringError, LaneKeys};
use crate::outbox::Outbox;
use crate::tag::Tag;

/// The lower MAC. Its output is `remote-phy`.
pub struct LowerMac {
    pub(super) flows: Box<[Flow]>,
    pub(super) channels: Box<[(Segmenter, ChannelDelays)]>,
    clock: &'static Clock,
    pub(super) keys: LaneKeys,
    pool: Pool,
    pub(super) crc: bool,
    /// Cycles that a packet to the remote PHY may wait for more frames.
    flush: u64,
    outbox: Outbox,
    pub(super) counters: LowerCounters,
    /// Of each packet of the burst at work, the length of its MAC header, and how it was framed.
    framed: Box<[(usize, Framing); BURST_CAPACITY]>,
}

/// What is known of a service flow here.
pub(super) struct Flow {
    pub(super) said: Option<u16>,
    priority: u8,
    /// The DSID, if packets are numbered.
    pub(super) dsid: Option<u32>,
    delays: FlowDelays,
}

/// Why there is no lower MAC.
#[derive(Debug, Error)]
pub enum LowerError {
    /// A pseudowire that can't be.
    #[error("channel {channel}")]
    Tunnel {
        /// The channel's name.
        channel: String,
        /// Why.
        source: TunnelError,
    },
    /// A key that can't be.
    #[error(transparent)]
    Key(#[from] KeyringError),
}

/// The first keys of all modems.
///
/// # Errors
/// [`KeyringError`], if the service group wasn't checked.
pub(crate) fn first_keys(group: &ServiceGroup) -> Result<Keyring, KeyringError> {
    let mut keys = Keyring::new();
    for modem in &group.modems {
        keys.install(modem.said, 0, group.keys.key(modem.said, 0))?;
    }
    Ok(keys)
}

/// A time in cycles.
pub(crate) fn cycles_of(time: std::time::Duration) -> u64 {
    Clock::calibrated().cycles_for(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl LowerMac {
    /// The lower MAC of a service group that was [checked](ServiceGroup::check). Packets to the remote PHY come from `pool`, and
    /// new keys by `changes`.
    ///
    /// # Errors
    /// [`LowerError`].
    pub fn new(
        group: &ServiceGroup,
        pool: Pool,
        changes: Option<Receiver<KeyChange>>,
    ) -> Result<Self, LowerError> {
        let flows = group.flows.iter().zip(1..).map(|(flow, dsid)| {
            let is_bonded = group.groups.get(flow.group).is_some_and(|group| group.channels.len() > 1);
            let modem = group.modems.get(flow.modem).filter(|_| group.encryption);
            Flow {
                said: modem.map(|modem| modem.said),
                priority: flow.priority,
                dsid: is_bonded.then_some(dsid),
                delays: FlowDelays::new(),
            }
        });
        let channels = group.channels.iter().map(|channel| {
            Segmenter::new(&group.tunnel, channel.session, channel.psp_flow)
                .map(|segmenter| (segmenter, ChannelDelays::new()))
                .map_err(|source| LowerError::Tunnel { channel: channel.name.clone(), source })
        });
        Ok(Self {
            flows: flows.collect(),
            channels: channels.collect::<Result<_, _>>()?,
            clock: Clock::calibrated(),
            keys: LaneKeys::new(first_keys(group)?, changes),
            pool,
            crc: group.crc,
            flush: cycles_of(group.limits.flush),
            outbox: Outbox::default(),
            counters: LowerCounters::new(),
            framed: Box::new([(0, Framing::default()); BURST_CAPACITY]),
        })
    }

    /// What it counts.
    pub fn view(&self) -> LowerCountersView {
        self.counters.view()
    }

    /// What it counts of the time that each service flow's packets take, in their order.
    pub fn flow_delays(&self) -> Vec<FlowDelayCountersView> {
        self.flows.iter().map(|flow| flow.delays.view()).collect()
    }

    /// What it counts of the time that each channel's packets take, in their order.
    pub fn channel_delays(&self) -> Vec<ChannelDelayViews> {
        self.channels.iter().map(|(_, delays)| delays.views()).collect()
    }

    /// Sends what has waited for more frames long enough; says how much that was.
    fn flush(&mut self, now: u64, outputs: &mut Outputs<'_>) -> usize {
        let mut sent = 0;
        for (channel, _) in &mut self.channels {
            if channel.waits_since().is_some_and(|since| now.saturating_sub(since) >= self.flush)
                && let Some(Finished { packet, segments }) = channel.finish()
            {
                self.counters.depi_partial().add(1);
                self.counters.depi_segments().add(segments as u64);
                self.counters.depi_lost().add(self.outbox.send(packet, outputs).is_err().into());
                sent += 1;
            }
        }
        sent
    }
}

/// Frames a packet as its tag says.
#[inline]
pub(super) fn frame(
    packet: &mut Packet,
    flows: &[Flow],
    keys: &Keyring,
) -> Result<(usize, Framing), LowerDrop> {
    let tag = *packet.application::<Tag>();
    let flow = flows.get(tag.flow as usize).ok_or(LowerDrop::UnknownFlow)?;
    let sequencing = flow.dsid.map(|_| Sequencing { change_count: false, sequence: tag.sequence });
    let service = DownstreamService { priority: flow.priority, dsid: flow.dsid, sequencing };
    let framing = Framing { said: flow.said, service: Some(service) };
    Ok((add_header(packet, &framing, keys)?, framing))
}

impl Stage for LowerMac {
    polled_stage!("lower MAC", outputs: &["remote-phy"]);

    #[inline]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let Self { flows, channels, clock, keys, pool, crc, outbox, counters, framed, .. } = self;
        let keys = &keys.keys;
        let received = burst.len();
        counters.received().add(received as u64);
        let began = clock::cycles();

        let mut kept = 0;
        for index in 0..received {
            let Some(packet) = burst.get_mut(index) else { break };
            match frame(packet, flows, keys) {
                Ok(done) => {
                    framed[kept % BURST_CAPACITY] = done;
                    burst.swap(kept, index);
                    kept += 1;
                }
                Err(reason) => {
                    counters.drops().count(reason, 1);
                    outputs.show_dropped(reason, packet);
                }
            }
        }
        burst.truncate(kept);
        let framed_at = clock::cycles();
        counters.docsis_framing_packets().add(received as u64);
        counters.docsis_framing_cycles().add(framed_at.saturating_sub(began));

        let packets = burst.iter_mut().zip(framed.iter());
        warmlane_crypto::protect(
            packets.map(|(packet, (header, framing))| protect(packet, *header, framing, keys, *crc)),
        );
        let protected_at = clock::cycles();
        counters.crcs().add(if *crc { kept as u64 } else { 0 });
        let encrypted = framed.iter().take(kept).filter(|(_, framing)| framing.said.is_some()).count();
        counters.encrypted().add(encrypted as u64);
        counters.crc_encryption_packets().add(kept as u64);
        counters.crc_encryption_cycles().add(protected_at.saturating_sub(framed_at));

        let (mut sent, mut bytes) = (0, 0);
        for packet in burst.iter() {
            let tag = *packet.application::<Tag>();
            let Some((channel, delays)) = channels.get_mut(usize::from(tag.channel)) else {
                counters.drops().count(LowerDrop::UnknownFlow, 1);
                // It is no Ethernet frame any more.
                outputs.miss_drop();
                continue;
            };
            let pushed = channel.push(packet.data(), protected_at, pool, |Finished { packet, segments }| {
                counters.depi_full().add(1);
                counters.depi_segments().add(segments as u64);
                counters.depi_lost().add(outbox.send(packet, outputs).is_err().into());
            });
            match pushed {
                Ok(()) => {
                    sent += 1;
                    bytes += packet.len() as u64;
                    if let Some(flow) = flows.get_mut(tag.flow as usize) {
                        flow.delays.count(tag.arrived, protected_at, clock, delays);
                    }
                }
                Err(reason) => {
                    counters.drops().count(reason, 1);
                    outputs.miss_drop();
                }
            }
        }
        burst.clear();
        counters.framed().add(sent);
        counters.bytes().add(bytes);
        counters.depi_encap_packets().add(kept as u64);
        counters.depi_encap_cycles().add(clock::cycles().saturating_sub(protected_at));
    }

    #[inline]
    fn poll(&mut self, now: u64, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        if self.keys.change() {
            self.counters.keys().add(1);
        }
        if outputs.must_wait() {
            return 0;
        }
        self.outbox.drain(outputs) + self.flush(now, outputs)
    }

    fn is_done(&self) -> bool {
        self.outbox.is_empty() && self.channels.iter().all(|(channel, _)| channel.waits_since().is_none())
    }

    fn finish(&mut self, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.outbox.drain(outputs) + self.flush(u64::MAX, outputs)
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.view())]
    }

    fn explain(&self, _input: usize, packet: &Packet, explanation: &mut Explanation) {
        self.note_way(packet, explanation);
    }

    fn rehearse(&mut self, _input: usize, burst: &mut Burst, _: &mut Outputs<'_>) -> Option<Rehearsed> {
        Some(self.rehearse_burst(burst))
    }
}
