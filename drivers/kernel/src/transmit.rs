//! What both transmitters have to decide.

use std::io;

use warmlane_mem::{Checksum, Packet};

use crate::checksum;
use crate::drops::TransmitDrop;
use crate::offload::Partial;

/// Completes a checksum that another driver left to hardware: the kernel is not told of it.
#[inline]
pub(crate) fn make_complete(packet: &mut Packet) -> Result<(), TransmitDrop> {
    match packet.checksum() {
        Checksum::Partial { start, offset } => {
            let partial = Partial { start, offset: u16::from(offset) };
            checksum::complete(packet, partial).map_err(|_| TransmitDrop::ChecksumUnknown)
        }
        Checksum::Unknown | Checksum::Good => Ok(()),
    }
}

/// What to do with packets that the kernel did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Try again later: the kernel has no room now.
    Later,
    /// The packet will never be taken.
    Packet(TransmitDrop),
    /// Neither will those behind it.
    Burst(TransmitDrop),
    /// There is no interface any more.
    Gone,
}

/// Reads the kernel's answer (packet(7); `net/packet/af_packet.c: packet_snd`; `drivers/net/tun.c: tun_get_user`).
pub(crate) fn verdict(error: &io::Error) -> Verdict {
    match error.raw_os_error() {
        // The socket's or the device's queue is full; an interrupted call has sent nothing.
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Verdict::Later,
        // EIO is what a TAP that is down answers.
        Some(libc::ENETDOWN | libc::EIO) => Verdict::Burst(TransmitDrop::LinkDown),
        // EBADFD is what the file of a deleted TAP answers.
        Some(libc::ENXIO | libc::ENODEV | libc::EBADFD) => Verdict::Gone,
        Some(libc::EMSGSIZE | libc::EFBIG) => Verdict::Packet(TransmitDrop::TooLarge),
        Some(libc::EINVAL) => Verdict::Packet(TransmitDrop::Malformed),
        _ => Verdict::Packet(TransmitDrop::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};

    #[test]
    fn answers_are_told_apart() {
        let of = |number| verdict(&io::Error::from_raw_os_error(number));
        assert_eq!(of(libc::EAGAIN), Verdict::Later);
        assert_eq!(of(libc::ENOBUFS), Verdict::Later);
        assert_eq!(of(libc::ENETDOWN), Verdict::Burst(TransmitDrop::LinkDown));
        assert_eq!(of(libc::ENXIO), Verdict::Gone);
        assert_eq!(of(libc::EMSGSIZE), Verdict::Packet(TransmitDrop::TooLarge));
        assert_eq!(of(libc::EPERM), Verdict::Packet(TransmitDrop::Refused));
    }

    #[test]
    fn partial_checksums_of_other_drivers_are_completed() {
        let pool = Pool::new(&PoolConfig { buffers: 8, ..PoolConfig::default() }).unwrap();
        let mut packet = pool.take().unwrap();
        packet.fill(&[0x11; 60]).unwrap();
        packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
        assert_eq!(make_complete(&mut packet), Ok(()));
        assert_eq!(packet.checksum(), Checksum::Good);
        packet.set_checksum(Checksum::Partial { start: 34, offset: 60 });
        assert_eq!(make_complete(&mut packet), Err(TransmitDrop::ChecksumUnknown));
    }
}
