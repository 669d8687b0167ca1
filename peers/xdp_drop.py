#!/usr/bin/env python3
"""Throws away all that comes in by an interface, with the smallest XDP program that there can be, in its driver, until it is ended.

    peers/xdp_drop.py INTERFACE
"""

import ctypes
import platform
import signal
import socket
import struct
import sys

# bpf(2), and its commands, kinds and flags (include/uapi/linux/bpf.h, if_link.h).
CALL = {"x86_64": 321, "aarch64": 280}[platform.machine()]
PROGRAM_LOAD, LINK_CREATE = 5, 28
PROGRAM_XDP, ATTACH_XDP, IN_THE_DRIVER = 6, 37, 1 << 2
XDP_DROP = 1

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    result = libc.syscall(CALL, command, ctypes.c_char_p(attributes), len(attributes))
    if result < 0:
        sys.exit(f"bpf command {command}: error {ctypes.get_errno()}")
    return result


# r0 = XDP_DROP; exit
code = ctypes.create_string_buffer(struct.pack("=BBhi BBhi", 0xB7, 0, 0, XDP_DROP, 0x95, 0, 0, 0))
licence = ctypes.create_string_buffer(b"GPL")
load = struct.pack("=IIQQ", PROGRAM_XDP, 2, ctypes.addressof(code), ctypes.addressof(licence)) + bytes(40)
program = bpf(PROGRAM_LOAD, load)
# Detached with this process.
bpf(LINK_CREATE, struct.pack("=IIII", program, socket.if_nametoindex(sys.argv[1]), ATTACH_XDP, IN_THE_DRIVER))
signal.pause()
