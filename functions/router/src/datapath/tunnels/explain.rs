//! By what is decided which packets go through which tunnel, for whoever traces them.

use warmlane_forward::control::{NextHop, Tunnel};
use warmlane_lane::Explanation;
use warmlane_mem::Packet;

use super::{ENTRANCE, TunnelEnds, Tunnels, find_in_datagram, header};

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
            explanation
                .note("tunnel", format_args!("VXLAN {} of device {}", around.identifier, tunnel.device));
            explanation.note("local", around.local);
            explanation.note("remote", around.remote);
            explanation.note("station", tunnel.inner.destination);
            return;
        }
        if !tunnels.is_outside(packet.port()) {
            return;
        }
        match find_in_datagram(packet, tunnels, hops) {
            Ok(found) => {
                // The forwarder gets what is inside.
                explanation.close();
                let is = &found.tunnel.is;
                explanation.note("tunnel", format_args!("VXLAN {} of device {}", is.identifier, is.device));
                explanation.note("remote", found.outer.source);
                explanation.note("network", format_args!("port{}", is.port));
            }
            Err(Some(why)) => explanation.note("left-to-kernel", why),
            Err(None) => {}
        }
    }
}
