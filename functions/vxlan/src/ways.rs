//! The ways that a packet can go from the gateway: by an access port, or in a tunnel through the forwarder.

use warmlane_lane::Outputs;
use warmlane_mem::{Burst, Packet};

use crate::dropped::{Dropped, or_drop};
use crate::encapsulation::Encapsulation;
use crate::inner_frame::InnerFrame;
use crate::reason::{Reason, VxlanCounters};

/// Where packets can go.
pub(crate) struct Ways<'a, 'b> {
    /// To the forwarder.
    pub(crate) burst: &'a mut Burst,
    /// To access ports.
    pub(crate) outputs: &'a mut Outputs<'b>,
    /// Packets that are still to come and need space in the burst.
    pub(crate) after: usize,
}

/// Sends a frame to a tunnel end, with these headers around it, by the forwarder.
#[inline(always)]
pub(crate) fn encapsulate(
    mut packet: Packet,
    inside: &InnerFrame,
    around: &Encapsulation,
    own: &[[u8; 12]],
    counters: &VxlanCounters,
    ways: &mut Ways<'_, '_>,
) -> Result<(), Dropped> {
    // Accesses are of ports that are there.
    let own = own.get(usize::from(packet.port())).unwrap_or(&[0; 12]);
    or_drop!(packet, around.wrap_usual(&mut packet, inside, own));
    if ways.burst.space() <= ways.after {
        return Err(Dropped { reason: Reason::NoSpace, packet });
    }
    if let Err(packet) = ways.burst.push(packet) {
        return Err(Dropped { reason: Reason::NoSpace, packet });
    }
    counters.to_tunnels().add(1);
    Ok(())
}
