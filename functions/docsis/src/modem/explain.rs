//! What the modems find in a packet of the tunnel, for whoever traces packets; and what they would do with one that never came.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use warmlane_counters::Source;
use warmlane_lane::{Explanation, Outputs};
use warmlane_mem::{Burst, Packet};
use warmlane_wire::docsis::Sequencing;
use warmlane_wire::{MacAddress, l2tpv3};

use super::counters::ModemCounters;
use super::decode::{Decoded, decode};
use super::reason::ModemDrop;
use super::reassembly::Reassembler;
use super::resequence::Turn;
use super::stage::{Modems, tunnelled};

/// Whose turn it is, by DSID.
type Turns = BTreeMap<u32, Option<Sequencing>>;

/// A frame that was understood: who it is for, how it was encrypted, and its place.
fn described(decoded: &Decoded, bytes: &[u8]) -> String {
    let frame = bytes.get(decoded.frame.clone()).unwrap_or_default();
    let mut text = frame.first_chunk().map_or(String::new(), |to| format!("to {}", MacAddress(*to)));
    if let Some(said) = decoded.said {
        let _ = write!(text, ", of security association {said}");
    }
    if let Some((dsid, sequencing)) = decoded.service.and_then(|one| Some((one.dsid?, one.sequencing?))) {
        let _ = write!(text, ", number {} of DSID {dsid}", sequencing.sequence);
    }
    text
}

/// What becomes of a frame.
enum Frame {
    /// With those that had waited for it.
    Delivered(usize),
    Waits,
    Dropped(ModemDrop),
}

impl Modems {
    /// A twin of the frames of the packet's session, and what is for it.
    fn session<'a>(&self, packet: &'a Packet) -> Result<(u32, Reassembler, &'a [u8]), ModemDrop> {
        let message = tunnelled(packet.data()).ok_or(ModemDrop::NotTunnel)?;
        let (session, rest) = l2tpv3::parse(message).map_err(|_| ModemDrop::NotTunnel)?;
        let place = self.sessions.binary_search_by_key(&session, |(session, _)| *session);
        let (_, reassembler) = &self.sessions[place.map_err(|_| ModemDrop::UnknownSession)?];
        Ok((session, reassembler.clone(), rest))
    }

    /// Takes a whole frame, after others of the same packet whose turn was then.
    fn rehearse_frame(&self, decoded: &Decoded, turns: &mut Turns) -> Frame {
        let bonded = decoded.service.and_then(|service| Some((service.dsid?, service.sequencing?)));
        let order = bonded.and_then(|(dsid, sequencing)| {
            let order = self.inner.orders.get((dsid as usize).checked_sub(1)?)?;
            Some((dsid, sequencing, order))
        });
        let Some((dsid, sequencing, order)) = order else { return Frame::Delivered(1) };
        match order.turn(turns.entry(dsid).or_insert_with(|| order.next()), sequencing) {
            Turn::Now { count } => Frame::Delivered(count),
            Turn::Later => Frame::Waits,
            Turn::Over => Frame::Dropped(ModemDrop::LateFrame),
        }
    }

    fn decode(&self, frame: &mut [u8]) -> Result<Decoded, ModemDrop> {
        decode(frame, &self.inner.keys.keys, self.inner.checks_crc)
    }

    /// Notes which session a packet is of, and what becomes of the frames that end in it.
    #[cold]
    pub(super) fn note_way(&self, packet: &Packet, explanation: &mut Explanation) {
        let Ok((session, mut twin, rest)) = self.session(packet) else { return };
        explanation.note("session", format_args!("{session:#x}"));
        let (mut turns, mut first) = (Turns::new(), None);
        let (mut whole, mut delivered, mut waiting) = (0, 0, 0);
        let progress = twin.push(rest, |bytes| {
            whole += 1;
            let decoded = self.decode(bytes);
            if let Ok(decoded) = &decoded {
                match self.rehearse_frame(decoded, &mut turns) {
                    Frame::Delivered(count) => delivered += count,
                    Frame::Waits => waiting += 1,
                    Frame::Dropped(_) => {}
                }
                first.get_or_insert_with(|| described(decoded, bytes));
            }
        });
        if let Some(missing) = progress.ok().map(|progress| progress.missing).filter(|missing| *missing > 0) {
            explanation.note("missing", format_args!("{missing} packets before it"));
        }
        let frames = format_args!("{whole} end here; {delivered} delivered, {waiting} wait for others");
        explanation.note("frames", frames);
        if let Some(first) = first {
            explanation.note("first frame", first);
        }
    }

    /// Does with each packet what is done with it, so that nothing is counted, taken or put into order.
    #[cold]
    pub(super) fn rehearse_burst(
        &self,
        burst: &mut Burst,
        outputs: &mut Outputs<'_>,
    ) -> Vec<Box<dyn Source>> {
        let counters = ModemCounters::new();
        let mut turns = Turns::new();
        for packet in burst.drain() {
            counters.received().add(1);
            if let Err(reason) = self.rehearse_packet(&packet, &mut turns, &counters, outputs) {
                counters.drops().count(reason, 1);
            }
        }
        vec![Box::new(counters.view())]
    }

    fn rehearse_packet(
        &self,
        packet: &Packet,
        turns: &mut Turns,
        counters: &ModemCounters,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), ModemDrop> {
        let (_, mut twin, rest) = self.session(packet)?;
        let progress = twin.push(rest, |bytes| {
            counters.frames().add(1);
            let decoded = self.decode(bytes);
            match decoded.map_or_else(Frame::Dropped, |decoded| self.rehearse_frame(&decoded, turns)) {
                Frame::Delivered(count) => {
                    counters.delivered().add(count as u64);
                    if let Some(frame) = self.inner.pool.take() {
                        outputs.send(0, frame);
                    }
                }
                Frame::Waits => {}
                Frame::Dropped(reason) => counters.drops().count(reason, 1),
            }
        })?;
        counters.missing().add(progress.missing.into());
        counters.drops().count(ModemDrop::Incomplete, progress.incomplete);
        Ok(())
    }
}
