"""Sends crafted packets by a host's interface, and says what comes out where.

    packets.py ROUTER_MAC SENDER_NAMESPACE:INTERFACE RECEIVER_NAMESPACE:INTERFACE… [--vlans] [--expected FILE]

All packets have a number in them, by which what comes out is recognized, ICMP errors as well. Prints an object of lists of
`interface hexadecimal`, or `interface vlan NUMBER hexadecimal`, by the packet's name. With what came out another time it waits until as much has come.
"""

import collections
import ctypes
import json
import select
import socket
import struct
import sys
import time

SENDER = bytes.fromhex("020000000808")
TAG = b"LIKE"
ETH_P_ALL = 3
PACKET_OUTGOING = 4
SOL_PACKET, PACKET_AUXDATA = 263, 8
VLAN_VALID = 0x10


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def address(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


class Cases:
    def __init__(self, router):
        self.router, self.frames = router, {}

    def add(self, name, ethertype, packet, to_station=None, tag=b"", cut=None):
        frame = (to_station or self.router) + SENDER + tag + struct.pack(">H", ethertype) + packet
        self.frames[name] = frame[:cut]

    def number(self):
        return len(self.frames)

    def payload(self, size=0):
        """The number, and as many bytes as are wanted."""
        data = TAG + struct.pack(">H", self.number())
        return data + bytes(max(0, size - len(data)))

    def udp(self, size=0, ports=(1111, 2222)):
        data = self.payload(size)
        return struct.pack(">4H", *ports, 8 + len(data), 0) + data

    def tcp(self, to, source, flags, size=0, options=b""):
        data = self.payload(size)
        head = struct.pack(">HHIIBBHHH", 1111, 80, 1, 2, (20 + len(options)) // 4 << 4, flags, 8192, 0, 0) + options
        pseudo = address(source) + address(to) + struct.pack(">II", len(head + data), 6)
        return head[:16] + struct.pack(">H", checksum(pseudo + head + data)) + head[18:] + data

    def ipv4(self, name, to="203.0.113.1", source=None, ttl=64, protocol=17, data=None, options=b"", flags=0, size=0,
             sum_by=0, length_by=0, first=None, ports=(1111, 2222), tos=0, **frame):
        """Each comes from another address unless it is said: the kernel tells each sender of few errors a second, and which is a matter of
        time (net/ipv4/route.c: ip_error)."""
        source = source or f"10.99.{1 + self.number() // 256}.{self.number() % 256}"
        data = self.udp(size, ports) if data is None else data
        first = 0x45 + len(options) // 4 if first is None else first
        head = struct.pack(">BBHHHBBH", first, tos, 20 + len(options) + len(data) + length_by, 0x4000 + self.number(), flags, ttl, protocol, 0)
        head += address(source) + address(to) + options
        head = head[:10] + struct.pack(">H", (checksum(head) + sum_by) & 0xFFFF) + head[12:]
        self.add("4 " + name, 0x0800, head + data, **frame)

    def ipv6(self, name, to="2001:db8:113::1", source="2001:db8:99::1", ttl=64, chain=(), data=None, next_header=17, size=0,
             length_by=0, first=0x60000000, tos=0, **frame):
        """`chain`: kinds of extension headers, and their bytes without the first."""
        data = self.udp(size) if data is None else data
        kinds = [kind for kind, _ in chain] + [next_header]
        extensions = b"".join(bytes([kinds[n + 1]]) + rest for n, (_, rest) in enumerate(chain))
        head = struct.pack(">IHBB", first | tos << 20, len(extensions) + len(data) + length_by, kinds[0], ttl)
        self.add("6 " + name, 0x86DD, head + address(source) + address(to) + extensions + data, **frame)


def icmp(kind, code, body):
    message = struct.pack(">BBH", kind, code, 0) + body
    return message[:2] + struct.pack(">H", checksum(message)) + message[4:]


def all_cases(router, vlans):
    cases = Cases(router)
    for version, add in ((4, cases.ipv4), (6, cases.ipv6)):
        six = version == 6
        here, far = ("2001:db8:113::1", "2001:db8:") if six else ("203.0.113.1", "203.0.")
        for ttl in (0, 1, 2, 3, 255):
            add(f"ttl {ttl}", ttl=ttl)
        for size in (7, 17, 18, 19, 100, 500, 1280, 1300, 1432):
            add(f"payload {size}", size=size)
        for size in (1232, 1252, 1253, 1272, 1273, 1400):
            to = far + ("114::1" if six else "114.1")
            add(f"route mtu, payload {size}", size=size, to=to)
            add(f"locked route mtu, payload {size}", size=size, to=far + ("115::1" if six else "115.1"))
            add(f"mtu of one of several, payload {size}", size=size, to=far + ("120::1" if six else "120.1"))
        for kind, number in (("unreachable", 1), ("prohibit", 2), ("blackhole", 3), ("throw", 4)):
            add(f"route {kind}", to=far + (f"116:{number}::1" if six else f"116.{number * 16}"))
            add(f"rule {kind}", to=far + (f"117:{number}::1" if six else f"117.{number * 16}"))
        add("no route", to="2001:db9::1" if six else "10.1.1.1")
        add("same interface", to=far + ("118::1" if six else "118.1"))
        add("same interface, from the link", to=far + ("118::1" if six else "118.1"), source="2001:db8:1::2" if six else "192.0.2.2")
        add("on link", to="2001:db8:2::9" if six else "198.51.100.9")
        add("to third", to=far + ("119::1" if six else "119.1"))
        for number, source in enumerate(["::", "::1", "ff02::1", "ff0e::5", "fe80::9", "::ffff:10.0.0.1", "2001:db8:1::1", "2001:db8:2::1",
                       "2001:db8:2::77", "2001:db9::7", "2001:db8:116:3::1", "::2", "fec0::1"] if six else
                       ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "169.254.1.1",
                        "192.0.2.1", "198.51.100.1", "192.0.2.255", "198.51.100.255", "192.0.2.0", "10.1.1.7", "203.0.116.48", "192.0.2.77",
                        "198.51.100.77"]):
            add(f"source {source}", source=source)
            add(f"source {source}, expiring", source=source, ttl=1)
        for to in (["::1", "::", "fe80::9", "::ffff:203.0.113.1", "fec0::1", "2001:db8:1::", "64:ff9b::1"] if six else
                   ["0.0.0.0", "0.1.2.3", "127.0.0.1", "240.1.1.1", "192.0.2.255", "198.51.100.255",
                    "169.254.9.9"]):
            add(f"to {to}", to=to)
        for kind, mac in (("broadcast", "ffffffffffff"), ("group", "01005e000001" if not six else "333300000001"), ("another", "020000000777")):
            add(f"frame to {kind}", size=20, to_station=bytes.fromhex(mac))
        for vlan in (0, 5):
            add(f"tag {vlan}", tag=struct.pack(">HH", 0x8100, vlan), size=30)
        # By VLAN 7, with a priority, too, out by VLAN 9, and both; there is no interface for the others.
        for tag in (0x0007, 0xA007, 0x1007, 0x0009) if vlans else ():
            tagged = struct.pack(">HH", 0x8100, tag)
            for what, to in (("", here), (", out by another", far + ("122::1" if six else "122.1"))):
                add(f"by vlan {tag:#x}{what}", tag=tagged, size=30, to=to)
                add(f"by vlan {tag:#x}{what}, expiring", tag=tagged, size=30, to=to, ttl=1)
            add(f"by vlan {tag:#x}, no route", tag=tagged, size=30, to="2001:db9::1" if six else "10.1.1.1")
        for size in (30, 1400, 1432, 1452) if vlans else ():
            add(f"out by vlan 9, payload {size}", size=size, to=far + ("122::1" if six else "122.1"))
        add("padded", size=6)
        name = f"{version} padded"
        cases.frames[name] += bytes(30)
        add("padded much", size=6)
        name = f"{version} padded much"
        cases.frames[name] += bytes(300)
        add("length beyond the frame", length_by=1, size=30)
        add("length short of the frame", length_by=-3, size=60)
        quoted = {4: struct.pack(">BBHHHBBH", 0x45, 0, 60, 9, 0, 1, 17, 0) + address("203.0.113.1") + address("10.99.0.1"),
                  6: struct.pack(">IHBB", 0x60000000, 20, 17, 1) + address(here) + address("2001:db8:99::1")}[version]
        for kind, code in ((0, 0), (8, 0), (3, 1), (3, 4), (4, 0), (5, 0), (11, 0), (12, 0), (13, 0)) if not six else \
                ((128, 0), (129, 0), (1, 0), (2, 0), (3, 0), (4, 0), (100, 0), (137, 0), (200, 0)):
            for what, more in (("", {}), (", expiring", {"ttl": 1}), (", no route", {"to": "2001:db9::1" if six else "10.1.1.1"})):
                data = icmp(kind, code, bytes(4) + quoted + cases.payload(40))
                more = dict(more, data=data, **({"next_header": 58} if six else {"protocol": 1}))
                add(f"icmp {kind}/{code}{what}", **more)
        # Precedence, the bits of old and of new meaning, and those of congestion.
        for tos in (0x01, 0x03, 0x10, 0x12, 0x1C, 0xB8, 0xFF):
            add(f"tos {tos:#x}", tos=tos)
            add(f"tos {tos:#x}, where a rule asks", tos=tos, to=far + ("121::1" if six else "121.1"))
            add(f"tos {tos:#x}, expiring", tos=tos, ttl=1)
        add("no tos, where a rule asks", to=far + ("121::1" if six else "121.1"))
        sender = "2001:db8:99::1" if six else "10.99.0.1"
        of_tcp = {"source": sender, **({"next_header": 6} if six else {"protocol": 6, "flags": 0x4000})}
        for what, flags, more in (("syn", 2, {"options": bytes.fromhex("020405b4")}), ("syn, ack", 18, {}), ("ack", 16, {"size": 100}),
                                  ("fin", 17, {}), ("rst", 4, {}), ("no flags", 0, {}), ("all flags", 255, {"size": 7})):
            add(f"tcp {what}", data=cases.tcp(here, sender, flags, **more), **of_tcp)
            add(f"tcp {what}, expiring", data=cases.tcp(here, sender, flags, **more), ttl=1, **of_tcp)
        long_way = far + ("114::1" if six else "114.1")
        add("tcp as long as the route's mtu", data=cases.tcp(long_way, sender, 16, 1240 if six else 1260), to=long_way, **of_tcp)
        add("tcp longer than the route's mtu", data=cases.tcp(long_way, sender, 16, 1241 if six else 1261), to=long_way, **of_tcp)
        for protocol in (0 if not six else 59, 6, 47, 50, 132, 253):
            add(f"protocol {protocol}", data=cases.payload(40), **({"next_header": protocol} if six else {"protocol": protocol}))
    add = cases.ipv4
    for name, flags in (("DF", 0x4000), ("reserved flag", 0x8000), ("first fragment", 0x2000), ("later fragment", 0x2010), ("last fragment", 0x0010)):
        add(name, flags=flags, size=64)
        add(name + ", expiring", flags=flags, size=64, ttl=1)
        add(name + ", longer than the route's mtu", flags=flags, size=1352, to="203.0.114.1")
    options = {
        "nop": "01010101", "end": "00000000", "record route": "070704" + "00" * 5, "record route, full": "070708c000020a00"[:16],
        "timestamp": "440c0500" + "00" * 8, "timestamps with addresses": "440c0501" + "00" * 8, "timestamp, full": "440c0d00" + "00" * 8,
        "router alert": "94040000", "loose source route": "830704c633640900", "strict source route": "890704c633640900",
        "loose source route, done": "830708c633640900", "security": "820b" + "00" * 9 + "00", "stream": "88040001",
        "unknown": "c8040000", "no length": "07000000", "length of one": "07010000", "length beyond": "07ff0400", "pointer wrong": "070703" + "00" * 5,
    }
    for name, text in options.items():
        add(f"option {name}", options=bytes.fromhex(text))
        add(f"option {name}, expiring", options=bytes.fromhex(text), ttl=1)
    add("option record route, longer than the route's mtu", options=bytes.fromhex(options["record route"]), size=1352, to="203.0.114.1")
    add("option record route, to nowhere", options=bytes.fromhex(options["record route"]), to="10.1.1.1")
    add("wrong checksum", sum_by=1)
    for name, first in (("version 5", 0x55), ("version 6", 0x65), ("short header", 0x44), ("header beyond", 0x4F)):
        add(name, first=first)
    for cut in (20, 33, 34, 37):
        add(f"cut to {cut}", cut=cut)
    add = cases.ipv6
    add("version 4", first=0x40000000)
    add("flow label", first=0x600ABCDE)
    add("traffic class", first=0x6B800000)
    hops = {
        "padding": "0001040000000000"[2:], "router alert": "00050200000100"[0:14], "unknown, skip": "0005" + "1e020000" + "00" * 0 + "00",
        "unknown, drop": "00" + "5e0400000000", "unknown, tell": "00" + "9e0400000000", "unknown, tell if no group": "00" + "de0400000000",
        "length beyond": "00" + "1e7f00000000", "jumbo": "00" + "c20400010000",
    }
    for name, text in hops.items():
        rest = bytes.fromhex(text)
        rest = (rest + bytes(7))[:7]
        add(f"hop-by-hop {name}", chain=[(0, rest)])
        add(f"hop-by-hop {name}, expiring", chain=[(0, rest)], ttl=1)
        add(f"destination options {name}", chain=[(60, rest)])
        add(f"hop-by-hop behind destination options {name}", chain=[(60, bytes(7)), (0, rest)])
    for kind in (0, 2, 4, 100):
        routing = bytes([2, kind, 1]) + bytes(4) + address("2001:db8:2::9")
        add(f"routing header {kind}", chain=[(43, routing)])
        add(f"routing header {kind}, expiring", chain=[(43, routing)], ttl=1)
    for name, field in (("first fragment", 1), ("later fragment", 0x11), ("last fragment", 0x10)):
        rest = b"\0" + struct.pack(">HI", field, 0x12345678)
        add(name, chain=[(44, rest)], size=64)
        add(name + ", expiring", chain=[(44, rest)], size=64, ttl=1)
        add(name + ", longer than the route's mtu", chain=[(44, rest)], size=1352, to="2001:db8:114::1")
    for cut in (53, 54, 57):
        add(f"cut to {cut}", cut=cut)
    cases.add("0 other ethertype", 0x9000, cases.payload(60))
    return cases.frames


def open_in(place):
    """A packet socket in another network namespace."""
    namespace, interface = place.split(":")
    with open("/proc/self/ns/net") as own, open(f"/run/netns/{namespace}") as there:
        setns = ctypes.CDLL(None, use_errno=True).setns
        assert setns(there.fileno(), 0) == 0, place
        try:
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            opened.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
            opened.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            opened.bind((interface, ETH_P_ALL))
        finally:
            assert setns(own.fileno(), 0) == 0
    return opened


def normal(frame):
    """Without what the kernel makes up anew each time: the identification of an ICMP error, its flow label, the time of day."""
    frame = bytearray(frame)
    if b"\x44\x0c" in frame[34:]:
        # Timestamps, and checksums over them.
        frame = frame[:34]
        frame[18:20], frame[24:26] = b"\0\0", b"\0\0"
    if frame[12:14] == b"\x08\0" and len(frame) > 34 and frame[23] == 1 and frame[14 + (frame[14] & 15) * 4] in (3, 5, 11, 12) and frame[26:28] != b"\x0a\x63":
        frame[18:20], frame[24:26] = b"\0\0", b"\0\0"
    if frame[12:14] == b"\x86\xdd" and len(frame) > 54 and frame[20] == 58 and frame[54] < 128 and frame[22:38] != address("2001:db8:99::1"):
        frame[15] &= 0xF0
        frame[16:18] = b"\0\0"
    return bytes(frame)


def number_of(frame):
    place = frame.find(TAG)
    if place >= 0 and len(frame) >= place + 6:
        return struct.unpack_from(">H", frame, place + 4)[0]
    for start in (14, 42):  # A fragment, or an error that quotes one.
        if len(frame) >= start + 20 and frame[start] >> 4 == 4 and frame[start + 4] & 0xF0 == 0x40:
            return struct.unpack_from(">H", frame, start + 4)[0] & 0xFFF
    return None


def vlan_of(ancillary):
    """What the kernel has taken out of a frame: struct tpacket_auxdata."""
    for level, kind, data in ancillary:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, tag, _ = struct.unpack("=IIIHHHH", data[:20])
            if status & VLAN_VALID:
                return f"vlan {tag:#x} "
    return ""


def main():
    arguments = sys.argv[1:]
    expected, vlans = None, "--vlans" in arguments
    if vlans:
        arguments.remove("--vlans")
    if "--expected" in arguments:
        at = arguments.index("--expected")
        with open(arguments[at + 1]) as file:
            expected = sum(len(frames) for frames in json.load(file).values())
        del arguments[at : at + 2]
    router, places = bytes.fromhex(arguments[0].replace(":", "")), arguments[1:]
    sockets = {open_in(place): place.split(":")[1] for place in places}
    sender = next(iter(sockets))
    frames = all_cases(router, vlans)
    names = list(frames)
    came = collections.defaultdict(list)

    def take(patience):
        ready = select.select(list(sockets), [], [], patience)[0]
        for receiver in ready:
            frame, ancillary, _, about = receiver.recvmsg(65536, socket.CMSG_SPACE(20))
            number = number_of(frame) if about[2] != PACKET_OUTGOING else None
            if number is not None and number < len(names):
                came[names[number]].append(f"{sockets[receiver]} {vlan_of(ancillary)}{normal(frame).hex()}")
        return ready

    for frame in frames.values():
        sender.send(frame)
        end = time.monotonic() + 0.002
        while time.monotonic() < end:
            take(0.001)
    # As long as something comes, and longer if more has to.
    quiet, end = time.monotonic() + 1.5, time.monotonic() + 20
    while time.monotonic() < quiet or (expected and sum(map(len, came.values())) < expected and time.monotonic() < end):
        if take(0.1):
            quiet = time.monotonic() + 1.5
    print(json.dumps({name: sorted(came[name]) for name in names}))


main()
