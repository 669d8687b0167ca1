//! By what is decided which packets go through which tunnel, for whoever traces them.

use warmlane_forward::control::{Around, NextHop, Tunnel};
use warmlane_lane::Explanation;
use warmlane_mem::Packet;

use super::{ENTRANCE, Found, TunnelEnds, Tunnels, header, look};

impl TunnelEnds {
    /// Notes the tunnel of a packet, or why the kernel gets what is one's.
    #[cold]
    pub(super) fn note_tunnel(&self, input: usize, packet: &Packet, explanation: &mut Explanation) {
        let hops = self.routes.hops();
        let Some(tunnels) = hops.beside::<Tunnels>() else { return };
        if input == ENTRANCE {
            // The forwarder gets the datagram.
            explanation.close();
            let number = header(packet.data()).and_then(Tunnel::number_at_entrance);
            let Some(NextHop::Tunnel(tunnel)) = number.and_then(|number| hops.next_hop(number)) else {
                return explanation.note("tunnel", "none any more");
            };
            let around = tunnel.around;
            explanation.note("tunnel", format_args!("{around} of device {}", tunnel.device));
            explanation.note("local", around.local());
            explanation.note("remote", around.remote());
            if matches!(around, Around::Packet(_)) {
                return;
            }
            explanation.note("station", tunnel.inner.destination);
            return;
        }
        if !tunnels.is_outside(packet.port()) {
            return;
        }
        match look(packet, tunnels, hops) {
            Ok(found) => {
                // The forwarder gets what is inside.
                explanation.close();
                let port = match &found {
                    Found::Frame(outer, tunnel) => {
                        let is = &tunnel.is;
                        explanation
                            .note("tunnel", format_args!("VXLAN {} of device {}", is.identifier, is.device));
                        explanation.note("remote", outer.source);
                        is.port
                    }
                    Found::Packet(outer, tunnel) => {
                        let is = &tunnel.is;
                        explanation.note("tunnel", format_args!("{} of device {}", is.tunnel, is.device));
                        explanation.note("remote", outer.source);
                        is.port
                    }
                };
                explanation.note("network", format_args!("port{port}"));
            }
            Err(Some(why)) => explanation.note("left-to-kernel", why),
            Err(None) => {}
        }
    }
}
