"""The little of bpf(2) that the programs here need (include/uapi/linux/bpf.h)."""

import ctypes
import os
import platform
import struct
import sys

CALL = {"x86_64": 321, "aarch64": 280}[platform.machine()]
PROGRAM_LOAD, PROGRAM_XDP = 5, 6

libc = ctypes.CDLL(None, use_errno=True)


def call(command, attributes):
    """Gives the kernel a command, and ends the program if that's refused."""
    # The kernel writes to it: how a test run of a program went, for one.
    memory = ctypes.create_string_buffer(attributes, len(attributes))
    result = libc.syscall(CALL, command, memory, len(attributes))
    if result < 0:
        sys.exit(f"bpf command {command}: {os.strerror(ctypes.get_errno())}")
    return result


def instruction(code, to=0, source=0, distance=0, immediate=0):
    """One instruction (RFC 9669, section 3); the immediate may be given with or without a sign."""
    return struct.pack("=BBhI", code, to | source << 4, distance, immediate & 0xFFFFFFFF)


def load_xdp(instructions):
    """Loads an XDP program, and returns its file descriptor."""
    code = ctypes.create_string_buffer(b"".join(instructions))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "=IIQQ", PROGRAM_XDP, len(instructions), ctypes.addressof(code), ctypes.addressof(licence)
    )
    return call(PROGRAM_LOAD, attributes + bytes(40))
