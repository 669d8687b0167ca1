#!/usr/bin/env python3
"""Throws away all that comes in by an interface, with the smallest XDP program that there can be, in its driver, until it is ended.

    peers/xdp_drop.py INTERFACE
"""

import signal
import socket
import struct
import sys

import bpf

LINK_CREATE, ATTACH_XDP, IN_THE_DRIVER = 28, 37, 1 << 2
XDP_DROP = 1

# r0 = XDP_DROP; exit
program = bpf.load_xdp([bpf.instruction(0xB7, 0, immediate=XDP_DROP), bpf.instruction(0x95)])
# Detached with this process.
bpf.call(LINK_CREATE, struct.pack("=IIII", program, socket.if_nametoindex(sys.argv[1]), ATTACH_XDP, IN_THE_DRIVER))
signal.pause()
