"""A host behind a tap interface, which answers pings: tap_host.py INTERFACE. Says so once it is there."""

import fcntl
import struct
import sys

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
ECHO_REQUEST, ECHO_REPLY = 8, 0
ECHO_REQUEST_IPV6, ECHO_REPLY_IPV6 = 128, 129


def answer(frame):
    """The reply to an echo request; sums stay right if their words change places, and the kinds differ by a known amount."""
    frame = bytearray(frame)
    if frame[12:14] == b"\x08\0" and frame[14] == 0x45 and frame[23] == 1 and frame[34] == ECHO_REQUEST:
        frame[26:30], frame[30:34], at, more = frame[30:34], frame[26:30], 34, ECHO_REQUEST - ECHO_REPLY
    elif frame[12:14] == b"\x86\xdd" and frame[20] == 58 and frame[54] == ECHO_REQUEST_IPV6:
        frame[22:38], frame[38:54], at, more = frame[38:54], frame[22:38], 54, ECHO_REQUEST_IPV6 - ECHO_REPLY_IPV6
    else:
        return None
    frame[0:6], frame[6:12] = frame[6:12], frame[0:6]
    frame[at] = (frame[at] - more) & 0xFF
    total = struct.unpack_from(">H", frame, at + 2)[0] + (more << 8)
    # In one's complement, downwards as well.
    struct.pack_into(">H", frame, at + 2, (total % 0xFFFF) or 0xFFFF)
    return bytes(frame)


with open("/dev/net/tun", "r+b", buffering=0) as tap:
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", sys.argv[1].encode(), IFF_TAP | IFF_NO_PI))
    print("there", flush=True)
    while True:
        reply = answer(tap.read(65536))
        if reply:
            tap.write(reply)
