//! What isn't for the forwarder goes to the kernel.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warmlane_counters::{DropCounters, DropView, Source};
use warmlane_forward::datapath::{Forwarder, mark_of_table};
use warmlane_lane::{Outputs, Rehearsed, Stage};
use warmlane_mem::{Burst, Packet};
use warmlane_port::{TransmitOffloads, drop_reasons};
use warmlane_wire::MacAddress;

use super::tunnels::put_back;

/// How the kernel gets a punted packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrance {
    /// By the port that it came in by, as it was.
    Port,
    /// By another interface, with this address, without which the kernel would take it for somebody else's. Packets that
    /// are looked up in tables of their own because of where they came in can't go that way: they would be routed by others.
    Other(MacAddress),
}

/// The entrance of each port, which may become another while lanes run.
#[derive(Debug, Clone)]
pub struct Entrances(Arc<[AtomicU64]>);

/// The bit of a word that is for [`Entrance::Other`]; below it is the address.
const OTHER: u64 = 1 << 48;

impl Entrances {
    /// For so many ports: [`Entrance::Port`].
    pub fn new(ports: usize) -> Self {
        Self(std::iter::repeat_with(AtomicU64::default).take(ports).collect())
    }

    /// What comes in by the port of this number goes by another entrance from now on.
    pub fn set(&self, port: usize, entrance: Entrance) {
        let word = match entrance {
            Entrance::Port => 0,
            Entrance::Other(MacAddress([a, b, c, d, e, f])) => {
                OTHER | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
            }
        };
        if let Some(place) = self.0.get(port) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// `None` if there is no such port.
    fn of(&self, port: usize) -> Option<Entrance> {
        let word = self.0.get(port)?.load(Ordering::Relaxed);
        let [.., a, b, c, d, e, f] = word.to_be_bytes();
        Some(if word & OTHER == 0 { Entrance::Port } else { Entrance::Other(MacAddress([a, b, c, d, e, f])) })
    }
}

drop_reasons! {
    /// Why a punted packet doesn't reach the kernel.
    pub enum PuntDrop {
        /// The packet is for the kernel, which did not take it.
        Refused: "punt-refused", Loss;
        /// The packet is of a VLAN or VRF, and the kernel gets this port's packets by another interface.
        NoEntrance: "punt-no-entrance", Notice;
    }
}

/// The stage that leads what the forwarder punts to the kernel. Its outputs `port0`, `port1` … take what came in by these ports.
pub struct Punt {
    /// By the number of the port that packets came in by.
    entrances: Entrances,
    drops: DropCounters<PuntDrop>,
}

impl Punt {
    /// With an entrance for each port.
    pub fn new(entrances: Entrances) -> Self {
        Self { entrances, drops: DropCounters::new() }
    }

    /// What doesn't reach the kernel.
    pub fn drops(&self) -> DropView {
        self.drops.view()
    }

    fn drop_one(&self, reason: PuntDrop, packet: &Packet, outputs: &Outputs<'_>) {
        self.drops.count(reason, 1);
        outputs.show_dropped(reason, packet);
    }
}

impl Stage for Punt {
    #[cold]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        for mut packet in burst.drain() {
            // Behind those that packets come in by are networks, whose packets were taken out of datagrams.
            let is_taken_out = usize::from(packet.port()) > self.entrances.0.len();
            if is_taken_out && !put_back(&mut packet) {
                self.drop_one(PuntDrop::NoEntrance, &packet, outputs);
                continue;
            }
            let port = usize::from(packet.port());
            if let Some(Entrance::Other(mac)) = self.entrances.of(port) {
                // Without its tag, a packet of an unknown VLAN would get where it must not.
                let is_plain = packet.mark() == mark_of_table(Some(0));
                if !is_plain || !readdress(&mut packet, mac) {
                    self.drop_one(PuntDrop::NoEntrance, &packet, outputs);
                    continue;
                }
            }
            if let Err(packet) = outputs.push(port, packet) {
                let is_there = outputs.is_connected(port);
                let reason = if is_there { PuntDrop::Refused } else { PuntDrop::NoEntrance };
                self.drop_one(reason, &packet, outputs);
            }
        }
    }

    fn rehearse(&mut self, _input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        let drops = std::mem::take(&mut self.drops);
        self.process(burst, outputs);
        let rehearsed = std::mem::replace(&mut self.drops, drops);
        Some(vec![Box::new(rehearsed.view())])
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("punt")
    }

    fn accepts(&self) -> TransmitOffloads {
        Forwarder::ACCEPTS
    }

    fn output_count(&self) -> usize {
        self.entrances.0.len()
    }

    fn output_name(&self, output: usize) -> Cow<'static, str> {
        Cow::Owned(format!("port{output}"))
    }

    fn passes_on(&self) -> bool {
        false
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.drops.view())]
    }
}

/// For another interface: without tags, which are the interface's that it came in by, and addressed to that one. `false`, and the packet as
/// it was, if it is no such packet.
fn readdress(packet: &mut Packet, mac: MacAddress) -> bool {
    let Some(surplus) = usize::from(packet.l3_offset()).checked_sub(ETHERNET) else { return false };
    let ethertype = match packet.data().get(usize::from(packet.l3_offset())).map(|byte| byte >> 4) {
        Some(4) => [0x08, 0x00],
        Some(6) => [0x86, 0xdd],
        _ => return false,
    };
    if packet.trim_front(surplus).is_err() {
        return false;
    }
    packet.move_l3_offset(ETHERNET as u8);
    if let Some(header) = packet.data_mut().first_chunk_mut::<ETHERNET>() {
        let [a, b, c, d, e, f] = mac.0;
        [header[0], header[1], header[2], header[3], header[4], header[5]] = [a, b, c, d, e, f];
        [header[12], header[13]] = ethertype;
    }
    true
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_lane::KeptOutputs;
    use warmlane_mem::{Pool, PoolConfig};

    fn packet(pool: &Pool, tag: bool, mark: u32) -> Packet {
        let mut frame = vec![0; 12];
        frame.extend(if tag { &[0x81, 0, 0, 7, 8, 0][..] } else { &[8, 0] });
        let offset = frame.len() as u8;
        frame.extend([0x45; 46]);
        let mut packet = pool.take().unwrap();
        packet.fill(&frame).unwrap();
        packet.set_l3_offset(offset);
        packet.set_mark(mark);
        packet
    }

    fn punt(
        entrance: Entrance,
        space: usize,
        packets: impl IntoIterator<Item = Packet>,
    ) -> (DropView, usize) {
        let entrances = Entrances::new(1);
        entrances.set(0, entrance);
        let mut stage = Punt::new(entrances);
        let mut kept = KeptOutputs::of(&stage);
        *kept.burst(0) = Burst::with_limit(space);
        let mut burst = Burst::new();
        packets.into_iter().for_each(|packet| burst.push(packet).unwrap());
        stage.process(&mut burst, &mut kept.outputs());
        (stage.drops(), kept.burst(0).len())
    }

    #[test]
    fn what_the_kernel_does_not_take_is_counted() {
        let pool = Pool::new(&PoolConfig { buffers: 8, ..PoolConfig::default() }).unwrap();
        let packets = [0; 4].map(|_| packet(&pool, false, mark_of_table(Some(0))));
        let (drops, taken) = punt(Entrance::Port, 2, packets);
        assert_eq!((taken, drops.get(PuntDrop::Refused), drops.total()), (2, 2, 2));
        assert_eq!(pool.ledger().outstanding(), 0);
    }

    /// By another entrance, the kernel would take a packet of a table of its own, or of an unknown VLAN, for another one.
    #[test]
    fn only_plain_packets_go_by_another_entrance() {
        let pool = Pool::new(&PoolConfig { buffers: 8, ..PoolConfig::default() }).unwrap();
        let marks = [Some(0), Some(1), None].map(mark_of_table);
        for (entrance, expected) in
            [(Entrance::Port, 3), (Entrance::Other(MacAddress([2, 0, 0, 0, 0, 9])), 1)]
        {
            let (drops, taken) = punt(entrance, 8, marks.map(|mark| packet(&pool, true, mark)));
            assert_eq!((taken, drops.get(PuntDrop::NoEntrance)), (expected, 3 - expected as u64));
        }
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}
