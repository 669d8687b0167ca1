//! What both transmitters have to decide.

use std::io;

use warmlane_port::TransmitOffloads;

use crate::drops::TransmitDrop;

/// What the kernel does for packets in no tunnel, by the device or before it gets there.
pub(crate) const fn transmit_offloads(segments_udp: bool) -> TransmitOffloads {
    let mut offloads = TransmitOffloads::NO_TUNNEL;
    offloads.segmentation.outer.udp4 = segments_udp;
    offloads.segmentation.outer.udp6 = segments_udp;
    offloads
}

/// Whether the kernel knows UDP segmentation in offload headers: from Linux 6.2 on (`include/linux/virtio_net.h`).
pub(crate) fn kernel_segments_udp() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

/// What to do with packets that the kernel did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Try again later: the kernel has no space now.
    Later,
    /// The packet will never be taken.
    Packet(TransmitDrop),
    /// Neither will those behind it.
    Burst(TransmitDrop),
    /// There is no interface any more.
    Gone,
}

/// What the kernel's answer means (packet(7); `net/packet/af_packet.c: packet_snd`; `drivers/net/tun.c: tun_get_user`).
pub(crate) fn refusal(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        // The socket's or the device's queue is full; an interrupted call has sent nothing.
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => Refusal::Later,
        // EIO is what a TAP that is down answers.
        Some(libc::ENETDOWN | libc::EIO) => Refusal::Burst(TransmitDrop::LinkDown),
        // EBADFD is what the file of a deleted TAP answers.
        Some(libc::ENXIO | libc::ENODEV | libc::EBADFD) => Refusal::Gone,
        Some(libc::EMSGSIZE | libc::EFBIG) => Refusal::Packet(TransmitDrop::TooLarge),
        Some(libc::EINVAL) => Refusal::Packet(TransmitDrop::Malformed),
        _ => Refusal::Packet(TransmitDrop::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let of = |number| refusal(&io::Error::from_raw_os_error(number));
        assert_eq!(of(libc::EAGAIN), Refusal::Later);
        assert_eq!(of(libc::ENOBUFS), Refusal::Later);
        assert_eq!(of(libc::ENETDOWN), Refusal::Burst(TransmitDrop::LinkDown));
        assert_eq!(of(libc::ENXIO), Refusal::Gone);
        assert_eq!(of(libc::EMSGSIZE), Refusal::Packet(TransmitDrop::TooLarge));
        assert_eq!(of(libc::EPERM), Refusal::Packet(TransmitDrop::Refused));
    }
}
