#!/usr/bin/env python3
"""Sends UDP over IPv4 by an interface as fast as a CPU can, until it is ended: frames of 60 bytes (64 with the checksum of the
wire), and of sources at random: 65,536, or as many as is said, a power of two. So are destinations, from the one that is given on, if it is said
how many they are; else there is one.

    peers/xdp_send.py INTERFACE TO_MAC FIRST_SOURCE TO [SOURCES [DESTINATIONS]]

An XDP program that the kernel runs over and over makes each packet and hands it to the interface's driver
(Documentation/bpf/bpf_prog_run.rst, "Running XDP programs in live frame mode"). So packets come as from a card with a driver for XDP:
many at a time, and without a socket buffer each. A virtual link takes such packets if its other end has an XDP program or GRO.
"""

import ctypes
import socket
import struct
import sys

import bpf
from bpf import instruction

PROGRAM_RUN, LIVE_FRAMES = 10, 1 << 1
# As many as a driver takes from its card at a time.
BATCH = 64
# How often the program runs in one call, some minutes.
RUNS = 1 << 30
# Where the Internet header has its checksum and the lower halves of its source and its destination.
CHECKSUM, SOURCE, DESTINATION = 24, 28, 32

interface, to_mac, first_source, to, *counts = sys.argv[1:]
last_source = int(counts[0]) - 1 if counts else 0xFFFF
last_destination = int(counts[1]) - 1 if len(counts) > 1 else 0


def mac(text):
    return bytes(int(part, 16) for part in text.split(":"))


source = socket.inet_aton(first_source)[:2] + bytes(2)
header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 46, 0, 0, 64, socket.IPPROTO_UDP, 0, source, socket.inet_aton(to))
datagram = struct.pack("!HHHH", 9, 9, 26, 0) + bytes(18)
frame = mac(to_mac) + mac("02:00:00:00:00:01") + b"\x08\x00" + header + datagram
# The checksum is a sum of words whose order of bytes doesn't matter (RFC 1071, section 2 (B)): this machine's is taken.
total = sum(struct.unpack("=10H", header))
while total >> 16:
    total = (total & 0xFFFF) + (total >> 16)

lower_destination = struct.unpack_from("!H", frame, DESTINATION)[0]
# What the program adds is no part of the sum.
total -= struct.unpack_from("=H", frame, DESTINATION)[0]
if total < 0:
    total += 0xFFFF
# r8 = a random number, the lower half of the source; r9 = another, that of the destination
make = [instruction(0x85, immediate=7), instruction(0xBF, 8, 0), instruction(0x57, 8, immediate=last_source)]
make += [instruction(0xBF, 9, 0), instruction(0x77, 9, immediate=16), instruction(0x57, 9, immediate=last_destination)]
make += [instruction(0x07, 9, immediate=lower_destination)]
# The numbers' bytes in network order.
make += [instruction(0xDC, 8, immediate=16), instruction(0xDC, 9, immediate=16)]
# Everything is written each time, for a packet's memory is used again as it was left.
for place in range(0, 56, 8):
    low, high = struct.unpack_from("=II", frame, place)
    make += [instruction(0x18, 1, immediate=low), instruction(0, immediate=high), instruction(0x7B, 6, 1, place)]
make += [
    instruction(0x62, 6, distance=56, immediate=struct.unpack_from("=I", frame, 56)[0]),
    instruction(0x6B, 6, 8, SOURCE),
    instruction(0x6B, 6, 9, DESTINATION),
    # r8 = the complement of the header's sum with these
    instruction(0x07, 8, immediate=total),
    instruction(0x0F, 8, 9),
    *2
    * [
        instruction(0xBF, 3, 8),
        instruction(0x77, 3, immediate=16),
        instruction(0x57, 8, immediate=0xFFFF),
        instruction(0x0F, 8, 3),
    ],
    instruction(0xA7, 8, immediate=0xFFFF),
    instruction(0x6B, 6, 8, CHECKSUM),
    # return bpf_redirect(interface, 0)
    instruction(0xB7, 1, immediate=socket.if_nametoindex(interface)),
    instruction(0xB7, 2),
    instruction(0x85, immediate=23),
    instruction(0x95),
]
program = bpf.load_xdp(
    [
        # r6 = the packet; shorter than the frame it is aborted
        instruction(0x61, 6, 1, 0),
        instruction(0x61, 7, 1, 4),
        instruction(0xBF, 2, 6),
        instruction(0x07, 2, immediate=len(frame)),
        instruction(0x2D, 2, 7, len(make)),
        *make,
        instruction(0xB7, 0),
        instruction(0x95),
    ]
)
memory = ctypes.create_string_buffer(frame, len(frame))
run = struct.pack(
    "=IIIIQQIIIIQQIIII",
    program, 0, len(frame), 0, ctypes.addressof(memory), 0, RUNS, 0, 0, 0, 0, 0, LIVE_FRAMES, 0, BATCH, 0,
)  # fmt: skip
while True:
    bpf.call(PROGRAM_RUN, run)
