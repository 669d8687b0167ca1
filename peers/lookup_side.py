#!/usr/bin/env python3
"""One side of the comparison `router-lookup` of `cargo xtask compare`: what it takes a BPF program to find out where a packet goes, by a
full Internet routing table. As root; it measures a round for each line "go SECONDS" on its standard input, and ends with that.

    peers/lookup_side.py WHO CYCLES_A_SECOND TABLE

WHO is kernel, which asks the kernel's own table (bpf_fib_lookup), or trie, which asks a map with the same routes (BPF_MAP_TYPE_LPM_TRIE)
and an array of next hops. TABLE is the file `functions/forward/data/ipv4.table`.

The kernel runs the program over and over. Each time it takes one of 65,536 addresses, at random: in all prefixes one is as likely. Both sides
do that, and know the same addresses; the kernel's side finds the neighbour's Ethernet address besides, as the other one does.
"""

import ctypes
import ipaddress
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import bpf
from bpf import instruction

MAP_CREATE, MAP_UPDATE, PROGRAM_RUN = 0, 2, 10
ARRAY, LPM_TRIE, NO_PREALLOCATION = 2, 11, 1
ADDRESSES, HOPS, MOST_ROUTES = 65536, 16, 1 << 20
# How often the program runs in one call.
RUNS = 100_000
CLONE_NEWNET = 0x40000000
NOWHERE, FOUND = 1, 2

who, clock, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def prefixes():
    """Those of the table (functions/forward/src/control/full_table.rs) that the kernel has routes for."""
    with open(path, "rb") as file:
        packed = zlib.decompress(file.read())
    (count,) = struct.unpack_from("<I", packed)
    lengths, at, before = packed[4 : 4 + count], 4 + count, 0
    for length in lengths:
        distance = shift = 0
        while True:
            byte = packed[at]
            at += 1
            distance |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        size = 1 << (32 - length)
        before = (before // size + distance) * size
        if 1 <= before >> 24 < 224 and before >> 24 not in (10, 127):
            yield before, length


def make_map(kind, key, value, entries, flags=0):
    return bpf.call(MAP_CREATE, struct.pack("=IIIII", kind, key, value, entries, flags) + bytes(100))


def updater(descriptor):
    """Puts a key and a value into a map."""
    attributes = ctypes.create_string_buffer(32)
    size = len(attributes)

    def update(key, value):
        key, value = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value, len(value))
        struct.pack_into("=IxxxxQQQ", attributes, 0, descriptor, ctypes.addressof(key), ctypes.addressof(value), 0)
        if bpf.libc.syscall(bpf.CALL, MAP_UPDATE, attributes, size) < 0:
            sys.exit(f"a map takes no more: {os.strerror(ctypes.get_errno())}")

    return update


def map_pointer(to, descriptor):
    return [instruction(0x18, to, 1, immediate=descriptor), instruction(0)]


def store(distance, value, code=0x62):
    """Puts a number on the stack: 0x72 is a byte, 0x6a two, 0x62 four, 0x7a eight."""
    return instruction(code, 10, distance=distance, immediate=value)


def ask_the_kernel(interface):
    """r0 = 0 if it is found. The address is in r7, the context in r6."""
    # struct bpf_fib_lookup
    begin = -80
    return [
        *(store(begin + place, 0, 0x7A) for place in range(0, 64, 8)),
        store(begin, socket.AF_INET, 0x72),
        store(begin + 1, socket.IPPROTO_UDP, 0x72),
        store(begin + 6, 60, 0x6A),
        store(begin + 8, interface),
        store(begin + 16, struct.unpack("=I", socket.inet_aton("10.0.0.2"))[0]),
        instruction(0x63, 10, 7, begin + 32),
        instruction(0xBF, 1, 6),
        instruction(0xBF, 2, 10),
        instruction(0x07, 2, immediate=begin),
        instruction(0xB7, 3, immediate=64),
        instruction(0xB7, 4),
        instruction(0x85, immediate=69),
    ]


def look_up(descriptor, key):
    """r0 = the value, which is there, or the program ends."""
    return [
        *map_pointer(1, descriptor),
        instruction(0xBF, 2, 10),
        instruction(0x07, 2, immediate=key),
        instruction(0x85, immediate=1),
        instruction(0x55, 0, distance=2),
        instruction(0xB7, 0, immediate=NOWHERE),
        instruction(0x95),
    ]


def ask_the_trie(trie, hops):
    """The same by maps."""
    return [
        store(-16, 32),
        instruction(0x63, 10, 7, -12),
        *look_up(trie, -16),
        instruction(0x61, 1, 0),
        instruction(0x63, 10, 1, -4),
        *look_up(hops, -4),
        # Two addresses and an interface.
        instruction(0x79, 1, 0),
        instruction(0x79, 2, 0, 8),
        instruction(0xB7, 0),
    ]


def program(addresses, ask):
    return bpf.load_xdp(
        [
            instruction(0xBF, 6, 1),
            instruction(0x85, immediate=7),
            instruction(0x57, 0, immediate=ADDRESSES - 1),
            instruction(0x63, 10, 0, -4),
            *look_up(addresses, -4),
            instruction(0x61, 7, 0),
            *ask,
            instruction(0x15, 0, distance=2),
            instruction(0xB7, 0, immediate=NOWHERE),
            instruction(0x95),
            instruction(0xB7, 0, immediate=FOUND),
            instruction(0x95),
        ]
    )


def run(descriptor, repeat):
    """What the last of these runs returned."""
    frame = ctypes.create_string_buffer(64)
    attributes = struct.pack(
        "=IIIIQQII", descriptor, 0, 64, 0, ctypes.addressof(frame), 0, repeat, 0
    )
    memory = ctypes.create_string_buffer(attributes + bytes(40), len(attributes) + 40)
    if bpf.libc.syscall(bpf.CALL, PROGRAM_RUN, memory, len(memory)) < 0:
        sys.exit(f"the program doesn't run: {os.strerror(ctypes.get_errno())}")
    return struct.unpack_from("=I", memory, 4)[0]


def held_up():
    """Nanoseconds that somebody else had the CPU."""
    with open("/proc/self/schedstat") as file:
        return int(file.read().split()[1])


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def set_up_kernel(routes):
    """A network namespace with all routes; returns the number of the interface that packets come in by."""
    for one, other, address in [("left", "far", "10.0.0.1/24"), ("right", "away", "10.0.1.1/24")]:
        ip("link", "add", one, "type", "veth", "peer", "name", other)
        ip("link", "set", one, "up")
        ip("link", "set", other, "up")
        ip("address", "add", address, "dev", one)
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("1")
    for hop in range(HOPS):
        ip("neighbour", "add", f"10.0.1.{2 + hop}", "lladdr", f"02:00:00:00:01:{hop:02x}", "dev", "right", "nud", "permanent")
    with tempfile.NamedTemporaryFile("w", suffix=".routes") as file:
        for number, (first, length) in enumerate(routes):
            file.write(f"route add {ipaddress.ip_address(first)}/{length} via 10.0.1.{2 + number % HOPS}\n")
        file.flush()
        ip("-batch", file.name)
    return socket.if_nametoindex("left")


def set_up_maps(routes):
    trie = make_map(LPM_TRIE, 8, 4, MOST_ROUTES, NO_PREALLOCATION)
    hops = make_map(ARRAY, 4, 16, HOPS)
    put = updater(hops)
    for hop in range(HOPS):
        put(struct.pack("=I", hop), struct.pack("=12sI", bytes(11) + bytes([hop]), 7))
    put = updater(trie)
    for number, (first, length) in enumerate(routes):
        put(struct.pack("=I", length) + struct.pack("!I", first), struct.pack("=I", number % HOPS))
    return trie, hops


def main():
    if bpf.libc.unshare(CLONE_NEWNET) < 0:
        sys.exit(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    ip("link", "set", "lo", "up")
    routes = list(prefixes())
    if who == "kernel":
        ask = ask_the_kernel(set_up_kernel(routes))
    else:
        ask = ask_the_trie(*set_up_maps(routes))
    addresses = make_map(ARRAY, 4, 4, ADDRESSES)
    put, chance = updater(addresses), random.Random(1)
    for number in range(ADDRESSES):
        first, length = chance.choice(routes)
        put(struct.pack("=I", number), struct.pack("!I", first + chance.randrange(1 << (32 - length))))
    lookup = program(addresses, ask)
    if any(run(lookup, 1) != FOUND for _ in range(1000)):
        sys.exit("an address was not found")
    run(lookup, RUNS)
    print("ready", flush=True)
    for line in sys.stdin:
        go, seconds = line.split()
        if go != "go":
            continue
        begin, held, count = time.monotonic_ns(), held_up(), 0
        while time.monotonic_ns() < begin + float(seconds) * 1e9:
            run(lookup, RUNS)
            count += RUNS
        length, held = time.monotonic_ns() - begin, held_up() - held
        disturbed = f"somebody else had the CPU for {held // 1_000_000} ms" if held > length / 50 else ""
        print(f"{who}: {length / count:.1f} ns a lookup", file=sys.stderr, flush=True)
        answer = {"packets": count, "cycles": length * clock // 1_000_000_000, "disturbed": disturbed}
        print(json.dumps(answer), flush=True)


main()
