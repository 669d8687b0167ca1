//! A remote PHY with its modems, on one lane.

use warmlane_counters::Source;
use warmlane_lane::{Explanation, Outputs, Rehearsed, Stage, polled_stage};
use warmlane_mem::{Burst, Packet, Pool};
use warmlane_sync::mailbox::Receiver;
use warmlane_sys::clock;
use warmlane_wire::{EtherType, IpProtocol, LinkLayer, ipv4, ipv6, l2tpv3};

use super::counters::{ModemCounters, ModemCountersView};
use super::decode::{Decoded, decode};
use super::reason::ModemDrop;
use super::reassembly::Reassembler;
use super::resequence::{Resequenced, Resequencer};
use crate::control::ServiceGroup;
use crate::keys::{KeyChange, Keyring, KeyringError, LaneKeys};
use crate::lower::{cycles_of, first_keys};
use crate::outbox::Outbox;

/// Takes the tunnel's packets apart and passes on the Ethernet frames in them. Its output is `delivered`.
pub struct Modems {
    /// By session, sorted.
    pub(super) sessions: Box<[(u32, Reassembler)]>,
    pub(super) inner: Inner,
}

/// What frames are given to.
pub(super) struct Inner {
    pub(super) keys: LaneKeys,
    /// By DSID, of which the first is 1.
    pub(super) orders: Box<[Resequencer]>,
    /// DSIDs of which packets wait for others.
    waiting: Vec<u32>,
    /// Cycles that a packet that is missing is waited for.
    patience: u64,
    pub(super) pool: Pool,
    pub(super) checks_crc: bool,
    outbox: Outbox,
    counters: ModemCounters,
}

impl Modems {
    /// The other end of a service group. Frames are copied to buffers of `pool`, and new keys come by `changes`.
    ///
    /// # Errors
    /// [`KeyringError`], if the service group wasn't checked.
    pub fn new(
        group: &ServiceGroup,
        pool: Pool,
        changes: Option<Receiver<KeyChange>>,
    ) -> Result<Self, KeyringError> {
        let sessions = group.channels.iter().map(|channel| (channel.session, Reassembler::new()));
        let mut sessions: Box<[_]> = sessions.collect();
        sessions.sort_by_key(|(session, _)| *session);
        let inner = Inner {
            keys: LaneKeys::new(first_keys(group)?, changes),
            orders: group.flows.iter().map(|_| Resequencer::default()).collect(),
            waiting: Vec::with_capacity(group.flows.len()),
            patience: cycles_of(group.limits.resequencing),
            pool,
            checks_crc: group.crc,
            outbox: Outbox::default(),
            counters: ModemCounters::new(),
        };
        Ok(Self { sessions, inner })
    }

    /// What it counts.
    pub fn view(&self) -> ModemCountersView {
        self.inner.counters.view()
    }

    fn receive(&mut self, packet: &Packet, now: u64, outputs: &mut Outputs<'_>) -> Result<(), ModemDrop> {
        let message = tunnelled(packet.data()).ok_or(ModemDrop::NotTunnel)?;
        let (session, rest) = l2tpv3::parse(message).map_err(|_| ModemDrop::NotTunnel)?;
        let place = self.sessions.binary_search_by_key(&session, |(session, _)| *session);
        let (_, reassembler) = &mut self.sessions[place.map_err(|_| ModemDrop::UnknownSession)?];
        let inner = &mut self.inner;
        let progress = reassembler.push(rest, |frame| {
            inner.counters.frames().add(1);
            if let Err(reason) = inner.take(frame, now, outputs) {
                inner.counters.drops().count(reason, 1);
                // In which it ended.
                outputs.show_dropped(reason, packet);
            }
        })?;
        inner.counters.missing().add(progress.missing.into());
        inner.counters.drops().count(ModemDrop::Incomplete, progress.incomplete);
        for _ in 0..progress.incomplete {
            outputs.show_dropped(ModemDrop::Incomplete, packet);
        }
        Ok(())
    }
}

/// The IP payload of a packet of L2TPv3.
pub(super) fn tunnelled(frame: &[u8]) -> Option<&[u8]> {
    let link = LinkLayer::parse(frame).ok()?;
    match link.ethertype {
        EtherType::IPV4 => {
            let packet = ipv4::check(link.payload).ok()?;
            let is_whole = packet.header.fragment_offset() == 0 && !packet.header.more_fragments();
            (is_whole && packet.header.protocol() == IpProtocol::L2TP).then_some(packet.payload)
        }
        EtherType::IPV6 => {
            let packet = ipv6::check(link.payload).ok()?;
            let upper = packet.upper_layer().ok()?;
            let end = ipv6::HEADER_LENGTH + packet.payload.len();
            let payload = link.payload.get(upper.offset..end)?;
            (upper.protocol == IpProtocol::L2TP && upper.fragment.is_none()).then_some(payload)
        }
        _ => None,
    }
}

impl Inner {
    /// Takes a whole MAC frame.
    fn take(&mut self, frame: &mut [u8], now: u64, outputs: &mut Outputs<'_>) -> Result<(), ModemDrop> {
        let keys: &Keyring = &self.keys.keys;
        let Decoded { frame: range, service, .. } = decode(frame, keys, self.checks_crc)?;
        let mut packet = self.pool.take().ok_or(ModemDrop::NoBuffer)?;
        packet.fill(frame.get(range).unwrap_or_default()).map_err(|_| ModemDrop::NoBuffer)?;
        let bonded = service.and_then(|service| Some((service.dsid?, service.sequencing?)));
        let Some((dsid, sequencing)) = bonded else {
            deliver(packet, &mut self.outbox, outputs, &self.counters);
            return Ok(());
        };
        // A DSID of somebody else's is not put into order.
        let Some(order) = (dsid as usize).checked_sub(1).and_then(|index| self.orders.get_mut(index)) else {
            deliver(packet, &mut self.outbox, outputs, &self.counters);
            return Ok(());
        };
        let waited = order.waiting() > 0;
        let (outbox, counters) = (&mut self.outbox, &self.counters);
        let taken = order.push(packet, sequencing, now, |packet| deliver(packet, outbox, outputs, counters));
        if order.waiting() > 0 && !waited {
            self.waiting.push(dsid);
        } else if order.waiting() == 0 && waited {
            self.waiting.retain(|waiting| *waiting != dsid);
        }
        match taken {
            Resequenced::Taken { missing } => {
                self.counters.given_up().add(missing.into());
                Ok(())
            }
            Resequenced::Late => Err(ModemDrop::LateFrame),
        }
    }

    /// Gives up packets that were missing before the time `then`; says how many were delivered by that.
    fn expire(&mut self, then: u64, now: u64, outputs: &mut Outputs<'_>) -> usize {
        let Self { orders, waiting, outbox, counters, .. } = self;
        let mut count = 0;
        waiting.retain(|dsid| {
            let Some(order) = orders.get_mut(*dsid as usize - 1) else { return false };
            let missing = order.expire(then, now, |packet| {
                count += 1;
                deliver(packet, outbox, outputs, counters);
            });
            counters.given_up().add(missing.into());
            order.waiting() > 0
        });
        count
    }
}

fn deliver(packet: Packet, outbox: &mut Outbox, outputs: &mut Outputs<'_>, counters: &ModemCounters) {
    let bytes = packet.len() as u64;
    match outbox.send(packet, outputs) {
        Ok(()) => {
            counters.delivered().add(1);
            counters.bytes().add(bytes);
        }
        Err(packet) => {
            counters.drops().count(ModemDrop::OutputQueueFull, 1);
            outputs.show_dropped(ModemDrop::OutputQueueFull, &packet);
        }
    }
}

impl Stage for Modems {
    polled_stage!("modems", outputs: &["delivered"]);

    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let now = clock::cycles();
        self.inner.counters.received().add(burst.len() as u64);
        for packet in burst.iter() {
            if let Err(reason) = self.receive(packet, now, outputs) {
                self.inner.counters.drops().count(reason, 1);
                outputs.show_dropped(reason, packet);
            }
        }
        burst.clear();
    }

    fn poll(&mut self, now: u64, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        if self.inner.keys.change() {
            self.inner.counters.keys().add(1);
        }
        if outputs.must_wait() {
            return 0;
        }
        let expired = match now.checked_sub(self.inner.patience) {
            Some(then) if !self.inner.waiting.is_empty() => self.inner.expire(then, now, outputs),
            _ => 0,
        };
        expired + self.inner.outbox.drain(outputs)
    }

    fn is_done(&self) -> bool {
        self.inner.outbox.is_empty() && self.inner.waiting.is_empty()
    }

    fn finish(&mut self, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.inner.expire(u64::MAX, u64::MAX, outputs) + self.inner.outbox.drain(outputs)
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.view())]
    }

    fn explain(&self, _input: usize, packet: &Packet, explanation: &mut Explanation) {
        self.note_way(packet, explanation);
    }

    fn rehearse(&mut self, _input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        Some(self.rehearse_burst(burst, outputs))
    }
}
