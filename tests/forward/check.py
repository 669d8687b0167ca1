#!/usr/bin/env python3
"""Checks what `warmlane forward` did to a capture, without any of its code.

    check.py CONFIG.toml REPORT.json PREFIXES.txt

CONFIG.toml is what the command read: its pcap ports name the captures. REPORT.json is what it printed with --json.
PREFIXES.txt holds the prefixes of the full table, one a line.

The check has two parts that know nothing of each other:

* This file is a second router, written from the RFCs with Python's `ipaddress` and `tomllib`. It walks through the
  input, works out for each frame what has to leave by which port, byte for byte, or why the frame has to be dropped,
  and takes that from the written captures, in order. Nothing may be left over on either side, and each reason must
  have been counted as often as it was found.
* tshark takes apart all captures and finds each frame's addresses, TTL and checksums by its own dissectors. What it
  read of an output frame must be what it read of the input frame, but for the TTL, which is one less.

Prints one line for each thing checked, and exits 1 with the first differences if anything differs.
"""

import bisect
import collections
import hashlib
import ipaddress
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import tomllib

# What `zcat bgp-prefixes.txt.gz | tr -d '\r' | LC_ALL=C sort | sha256sum` prints for that file of
# github.com/gaissmai/iprbench: 901,899 IPv4 and 160,147 IPv6 prefixes. PREFIXES.txt comes from the table in the
# binary; this says that it is the real one.
PREFIXES_SHA256 = "cbf22bf0e6d910d9d3cb0b54d7d7dda47665055b6d0984fb27142139f846475c"

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
TAGS = (0x8100, 0x88A8)
ICMP, ICMPV6, NO_NEXT_HEADER, HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION = 1, 58, 59, 0, 43, 44, 60
OWN_TTL = 64


class Wrong(Exception):
    """Something is not as it has to be."""


def check(condition, message):
    if not condition:
        raise Wrong(message() if callable(message) else message)


# ---------------------------------------------------------------------------------------------------------------------
# Captures


class Capture:
    """The frames of a classic pcap file, one after the other."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic = self.bytes[:4]
        orders = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}
        check(magic in orders, f"{path} is no pcap file")
        self.record = struct.Struct(orders[magic] + "IIII")
        (link_type,) = struct.unpack_from(orders[magic] + "I", self.bytes, 20)
        check(link_type == 1, f"{path} holds no Ethernet frames")
        self.path, self.position, self.number = path, 24, 0

    def next(self):
        """The next frame and whether all of it was captured, or None at the end."""
        if self.position == len(self.bytes):
            return None
        _, _, captured, original = self.record.unpack_from(self.bytes, self.position)
        start = self.position + 16
        self.position = start + captured
        check(self.position <= len(self.bytes), f"{self.path} ends within frame {self.number}")
        self.number += 1
        return self.bytes[start : self.position], captured == original


# ---------------------------------------------------------------------------------------------------------------------
# The Internet checksum (RFC 1071): a ones' complement sum of 16-bit words is the number modulo 65,535.


def adds_up(data):
    """Whether data that contains its checksum is right."""
    return int.from_bytes(data + b"\0" if len(data) % 2 else data, "big") % 0xFFFF == 0


def checksum(data):
    return 0xFFFF - (int.from_bytes(data, "big") % 0xFFFF or 0xFFFF)


def pseudo_header(source, destination, protocol, length):
    return source + destination + struct.pack(">IHBB", length, 0, 0, protocol)


# ---------------------------------------------------------------------------------------------------------------------
# Routes

Hop = collections.namedtuple("Hop", "kind port mac own_mac mtu vlan")


class Table:
    """Longest-prefix match by asking for each length there is, longest first."""

    def __init__(self, bits):
        self.bits, self.by_length = bits, collections.defaultdict(dict)

    def add(self, network, value):
        self.by_length[network.prefixlen][int(network.network_address) >> (self.bits - network.prefixlen)] = value

    def finish(self):
        self.steps = [(self.bits - length, values) for length, values in sorted(self.by_length.items(), reverse=True)]

    def find(self, address):
        for shift, values in self.steps:
            value = values.get(address >> shift)
            if value is not None:
                return value, self.bits - shift
        return None, None


def entry(prefix, count):
    """Which of `count` next hops the full table sends a prefix to: FNV-1a, 64 bits, of its text."""
    value = 0xCBF29CE484222325
    for byte in prefix.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value % count


class Port:
    def __init__(self, number, config):
        self.name, self.mtu = config["name"], config.get("mtu", 1500)
        self.mac = bytes.fromhex(config["mac"].replace(":", ""))
        self.addresses = [ipaddress.ip_interface(text) for text in config.get("addresses", [])]
        self.own = {address.ip.packed for address in self.addresses}
        self.broadcasts = {a.network.broadcast_address.packed for a in self.addresses if a.version == 4}
        options = config["driver"]["pcap"]
        self.output = Capture(options["write"]) if "write" in options else None
        self.input = Capture(options["read"]) if "read" in options else None
        self.origins = []
        # Numbers of the frames written, from 1, that are ICMP errors.
        self.errors = set()


class Router:
    def __init__(self, config, prefixes):
        self.ports = {port["name"]: Port(number, port) for number, port in enumerate(config["port"])}
        neighbours = {}
        for neighbour in config["neighbour"]:
            port = self.ports[neighbour["port"]]
            mac = bytes.fromhex(neighbour["mac"].replace(":", ""))
            hop = Hop("forward", port, mac, port.mac, port.mtu, neighbour.get("vlan"))
            neighbours[ipaddress.ip_address(neighbour["address"])] = hop
        # What is added later wins over an equal prefix from before.
        self.tables = {4: Table(32), 6: Table(128)}
        spread = [neighbours[ipaddress.ip_address(text)] for text in config["full-table"]["ipv4"]]
        spread6 = [neighbours[ipaddress.ip_address(text)] for text in config["full-table"]["ipv6"]]
        parse4, parse6 = ipaddress.IPv4Address, ipaddress.IPv6Address
        for text in prefixes:
            # ip_network() would do it in one call, but takes five times as long.
            address, length = text.split("/")
            is_ipv6 = ":" in address
            bits, parse = (128, parse6) if is_ipv6 else (32, parse4)
            number = int(parse(address)) >> (bits - int(length))
            self.tables[6 if is_ipv6 else 4].by_length[int(length)][number] = text
        self.spread = {4: spread, 6: spread6}
        for route in config.get("route", []):
            network = ipaddress.ip_network(route["prefix"])
            if "via" in route:
                hop = neighbours[ipaddress.ip_address(route["via"])]
            else:
                kind = "no-neighbour" if "port" in route else "drop" if "drop" in route else "unreachable"
                hop = Hop(kind, None, None, None, None, None)
            self.add(network, hop)
        for port in self.ports.values():
            for address in port.addresses:
                self.add(address.network, Hop("no-neighbour", None, None, None, None, None))
                if address.version == 4:
                    broadcast = ipaddress.ip_network(address.network.broadcast_address)
                    network = ipaddress.ip_network(address.network.network_address)
                    for special in (broadcast, network):
                        self.add(special, Hop("directed-broadcast", None, None, None, None, None))
                else:
                    # The subnet-router anycast address is every router's (RFC 4291 section 2.6.1).
                    anycast = ipaddress.ip_network(address.network.network_address)
                    self.add(anycast, Hop("local", None, None, None, None, None))
        for address, hop in neighbours.items():
            self.add(ipaddress.ip_network(address), hop)
        for port in self.ports.values():
            for address in port.addresses:
                self.add(ipaddress.ip_network(address.ip), Hop("local", None, None, None, None, None))
        for table in self.tables.values():
            table.finish()
        self.drops, self.driver_drops = collections.Counter(), collections.Counter()
        self.totals = collections.Counter()
        self.kinds = collections.Counter()
        self.prefixes_hit = set()
        self.samples = {4: [], 6: []}
        self.broadcast_sources = {
            packed for port in self.ports.values() for packed in port.broadcasts
        } | {a.network.network_address.packed for p in self.ports.values() for a in p.addresses if a.version == 4}

    def add(self, network, hop):
        self.tables[network.version].add(network, hop)

    def route(self, version, packed):
        """The next hop to an address, or None."""
        address = int.from_bytes(packed, "big")
        value, length = self.tables[version].find(address)
        if type(value) is str:
            self.prefixes_hit.add(value)
            if len(self.samples[version]) < 200_000:
                self.samples[version].append((packed, value))
            value = self.spread[version][entry(value, len(self.spread[version]))]
        return value

    # -----------------------------------------------------------------------------------------------------------------
    # What leaves

    def take(self, port, origin, what):
        """The next frame that a port wrote."""
        record = port.output.next() if port.output else None
        check(record, lambda: f"port {port.name} wrote no more frames, but {what} of input frame {origin} has to follow")
        port.origins.append(origin)
        return record[0]

    def forwarded(self, origin, hop, ethertype, expected):
        frame = self.take(hop.port, origin, "the packet")
        link = hop.mac + hop.own_mac
        if hop.vlan is not None:
            link += struct.pack(">HH", 0x8100, hop.vlan)
        expected = link + struct.pack(">H", ethertype) + expected
        # Frames may be as short as 64 bytes only with padding, whatever that is (RFC 894, RFC 2464).
        same = frame == expected or (len(expected) < len(frame) <= 64 and frame.startswith(expected))
        check(same, lambda: f"input frame {origin} left by {hop.port.name} as\n  {frame.hex()}\nand not as\n  {expected.hex()}")
        self.totals["forwarded"] += 1

    def fragments(self, origin, hop, packet, header_length):
        """Takes fragments (RFC 791 section 3.2) until they make up the packet."""
        options = packet[20:header_length]
        copied = copied_options(options)
        (flags,) = struct.unpack_from(">H", packet, 6)
        start, data, collected, count = (flags & 0x1FFF) * 8, packet[header_length:], b"", 0
        link = hop.mac + hop.own_mac
        if hop.vlan is not None:
            link += struct.pack(">HH", 0x8100, hop.vlan)
        link += b"\x08\x00"
        while len(collected) < len(data):
            frame = self.take(hop.port, origin, "a fragment")
            wrong = lambda: f"input frame {origin} left by {hop.port.name} with a wrong fragment:\n  {frame.hex()}"
            check(frame.startswith(link), wrong)
            ip = frame[len(link) :]
            header, (total, piece_flags) = ip[: (ip[0] & 15) * 4], struct.unpack_from(">H2xH", ip, 2)
            piece = ip[len(header) : total]
            check(header[20:] == (options if count == 0 else copied) and header[0] >> 4 == 4, wrong)
            check(header[1] == packet[1] and header[4:6] == packet[4:6] and header[9] == packet[9], wrong)
            check(header[8] == packet[8] - 1 and header[12:20] == packet[12:20] and adds_up(header), wrong)
            check(total <= hop.mtu and total <= len(ip) and len(piece) > 0, wrong)
            check(total == len(ip) or len(frame) <= 64, wrong)
            check((piece_flags & 0x1FFF) * 8 == start + len(collected), wrong)
            collected, count = collected + piece, count + 1
            is_last = len(collected) >= len(data)
            check(is_last or len(piece) % 8 == 0, wrong)
            check(bool(piece_flags & 0x2000) == (not is_last or bool(flags & 0x2000)), wrong)
            check(piece_flags & 0xC000 == flags & 0x8000, wrong)
        check(collected == data, lambda: f"the fragments of input frame {origin} don't make up the packet")
        # Not more of them than the MTU makes necessary.
        most = (hop.mtu - 20 - len(options)) // 8 * 8
        check(count <= max(2, -(-len(data) // most)), lambda: f"input frame {origin} was cut into {count} fragments")
        self.totals["forwarded"] += 1
        self.totals["fragmented"] += 1
        self.totals["fragments"] += count

    def sent_error(self, origin, version, sender):
        """Takes an ICMP error, which goes by the route to the sender, and returns the packet in it and the port; None: no way."""
        hop = self.route(version, sender)
        own = hop and hop.kind == "forward" and [a for a in hop.port.addresses if a.version == version and not a.ip.is_link_local]
        if not own:
            self.totals["icmp_errors_unsent"] += 1
            return None, None
        link = hop.mac + hop.own_mac
        if hop.vlan is not None:
            link += struct.pack(">HH", 0x8100, hop.vlan)
        link += struct.pack(">H", IPV4 if version == 4 else IPV6)
        error = self.take(hop.port, origin, "an error")
        hop.port.errors.add(hop.port.output.number)
        check(error.startswith(link), lambda: f"the error to input frame {origin} starts with {error[: len(link)].hex()}")
        self.totals["icmp_errors"] += 1
        return error[len(link) :], own[0].ip.packed

    def sent_back(self, origin, port, frame, offset):
        """Takes an answer to a frame, and returns the packet in it."""
        answer = self.take(port, origin, "an answer")
        expected = frame[6:12] + port.mac + frame[12:offset]
        check(answer.startswith(expected), lambda: f"the answer to input frame {origin} starts with {answer[:offset].hex()}")
        return answer[offset:]

    # -----------------------------------------------------------------------------------------------------------------
    # What comes in

    def frame(self, origin, port, frame, is_whole):
        if not is_whole:
            self.driver_drops["snapped"] += 1
            return
        self.totals["received"] += 1
        reason = self.link_layer(origin, port, frame)
        if reason:
            self.drops[reason] += 1
            self.totals["dropped"] += 1

    def link_layer(self, origin, port, frame):
        if len(frame) < 14:
            return "truncated"
        (ethertype,) = struct.unpack_from(">H", frame, 12)
        offset = 14
        for _ in range(2):
            if ethertype not in TAGS:
                break
            if len(frame) < offset + 4:
                return "truncated"
            (ethertype,) = struct.unpack_from(">H", frame, offset + 2)
            offset += 4
        to_group = frame[0] & 1
        if not to_group and frame[:6] != port.mac:
            return "other-host"
        if ethertype == IPV4:
            return self.ipv4(origin, port, frame, offset, to_group)
        if ethertype == IPV6:
            return self.ipv6(origin, port, frame, offset, to_group)
        if ethertype == ARP:
            return self.arp(origin, port, frame, offset)
        return "too-many-vlan-tags" if ethertype in TAGS else "unknown-ethertype"

    def arp(self, origin, port, frame, offset):
        request = frame[offset : offset + 28]
        for_ipv4 = request[:8] == b"\0\1\x08\0\6\4\0\1"
        if len(request) < 28 or not for_ipv4 or request[24:28] not in port.own:
            return "neighbour-message"
        answer = self.sent_back(origin, port, frame, offset)
        # RFC 826: sender and target change places.
        expected = request[:7] + b"\2" + port.mac + request[24:28] + request[8:14] + request[14:18]
        check(answer[:28] == expected, lambda: f"the ARP reply to input frame {origin} is {answer.hex()}")
        self.totals["answered"] += 1

    def ipv4(self, origin, port, frame, offset, to_group):
        # RFC 1812 section 5.2.2.
        room = len(frame) - offset
        if room < 20:
            return "ipv4-truncated"
        first = frame[offset]
        if first >> 4 != 4:
            return "ipv4-version"
        header_length = (first & 15) * 4
        if header_length < 20 or header_length > room:
            return "ipv4-header-length"
        (total,) = struct.unpack_from(">H", frame, offset + 2)
        if total < header_length or total > room:
            return "ipv4-total-length"
        packet = frame[offset : offset + total]
        if not adds_up(packet[:header_length]):
            return "ipv4-checksum"
        source, destination = packet[12:16], packet[16:20]
        # Section 5.3.7: "this network", loopback, groups and what is reserved. Asking for an address is exempt.
        if source[0] in (0, 127) or source[0] >= 224:
            if source != bytes(4) or destination != b"\xff\xff\xff\xff":
                return "ipv4-martian-source"
        if destination == b"\xff\xff\xff\xff":
            return "ipv4-broadcast"
        if 224 <= destination[0] < 240:
            return "ipv4-multicast"
        if destination[0] in (0, 127) or destination[0] >= 240:
            return "ipv4-martian-destination"
        if to_group:
            return "link-layer-group"  # Section 5.3.4.
        if source[:2] == b"\xa9\xfe" or destination[:2] == b"\xa9\xfe":
            return "ipv4-link-local"  # RFC 3927 section 7.
        if header_length > 20:
            fault = options_fault(packet[20:header_length])
            if fault:
                return fault

        hop = self.route(4, destination)
        error = lambda reason, kind, code, mtu=0: self.icmp_error(origin, port, frame, offset, packet, reason, kind, code, mtu)
        if hop is None:
            return error("no-route", 3, 0)
        if hop.kind == "forward":
            ttl = packet[8]
            if ttl <= 1:
                return error("ttl-expired", 11, 0)
            if total > hop.mtu:
                if packet[6] & 0x40:
                    return error("mtu-exceeded", 3, 4, hop.mtu)
                return self.fragments(origin, hop, packet, header_length)
            header = bytearray(packet[:header_length])
            header[8] = ttl - 1
            header[10:12] = b"\0\0"
            header[10:12] = checksum(header).to_bytes(2, "big")
            return self.forwarded(origin, hop, IPV4, bytes(header) + packet[header_length:])
        if hop.kind == "local":
            return self.echo(origin, port, frame, offset, packet, header_length)
        if hop.kind == "directed-broadcast":
            return "ipv4-broadcast"
        if hop.kind == "drop":
            return "route-drop"
        return error("no-neighbour" if hop.kind == "no-neighbour" else "route-unreachable", 3, 1)

    def echo(self, origin, port, frame, offset, packet, header_length):
        """An echo request to an address of ours becomes its reply (RFC 1122 section 3.2.2.6)."""
        message = packet[header_length:]
        is_fragment = struct.unpack_from(">H", packet, 6)[0] & 0x3FFF
        is_request = packet[9] == ICMP and not is_fragment and len(message) >= 8 and message[:2] == b"\x08\0"
        if not is_request or not adds_up(message):
            return "not-handled-locally"
        answer = self.sent_back(origin, port, frame, offset)
        reply = answer[header_length : len(packet)]
        good = answer[12:20] == packet[16:20] + packet[12:16] and adds_up(answer[:header_length]) and answer[8] == OWN_TTL
        good = good and answer[2:4] == packet[2:4] and answer[9] == ICMP
        good = good and reply[:2] == b"\0\0" and adds_up(reply) and reply[4:] == message[4:]
        check(good, lambda: f"the echo reply to input frame {origin} is {answer.hex()}")
        self.totals["answered"] += 1

    def icmp_error(self, origin, port, frame, offset, packet, reason, kind, code, mtu):
        """Takes the error that a dropped packet's sender is owed, if it is owed one (RFC 1812 section 4.3.2.7)."""
        header_length = (packet[0] & 15) * 4
        message = packet[header_length:]
        if struct.unpack_from(">H", packet, 6)[0] & 0x1FFF or packet[12:16] in self.broadcast_sources:
            return reason
        if packet[9] == ICMP and (len(message) < 8 or message[0] in (3, 4, 5, 11, 12)):
            return reason
        answer, own = self.sent_error(origin, 4, packet[12:16])
        if answer is None:
            return reason
        (total,) = struct.unpack_from(">H", answer, 2)
        header, error = answer[:20], answer[20:total]
        # As much of the packet as fits 576 bytes (section 4.3.2.3).
        good = header[0] == 0x45 and adds_up(header) and header[8] == OWN_TTL and header[9] == ICMP
        good = good and header[12:16] == own and header[16:20] == packet[12:16]
        good = good and adds_up(error) and error[0] == kind and error[1] == code
        good = good and error[4:8] == struct.pack(">HH", 0, mtu)
        good = good and error[8:] == packet[: 576 - 28] and len(answer) in (total, max(total, 46))
        check(good, lambda: f"the error to input frame {origin} ({reason}) is {answer.hex()}")
        return reason

    def ipv6(self, origin, port, frame, offset, to_group):
        # RFC 8200 section 3.
        room = len(frame) - offset
        if room < 40:
            return "ipv6-truncated"
        if frame[offset] >> 4 != 6:
            return "ipv6-version"
        (length,) = struct.unpack_from(">H", frame, offset + 4)
        # A length of 0 with a hop-by-hop header is that of a jumbogram (RFC 2675 section 2).
        if 40 + length > room or (length == 0 and frame[offset + 6] == HOP_BY_HOP):
            return "ipv6-payload-length"
        packet = frame[offset : offset + 40 + length]
        source, destination = packet[8:24], packet[24:40]
        # RFC 4291 sections 2.5.2, 2.5.3, 2.7; RFC 6890 for ::ffff:0:0/96.
        special = lambda address: address[:15] == bytes(15) and address[15] <= 1 or address[:12] == bytes(10) + b"\xff\xff"
        if source[0] == 255 or special(source):
            # Duplicate address detection asks a group from :: (RFC 4862 section 5.4.2).
            if source != bytes(16) or destination[0] != 255:
                return "ipv6-martian-source"
        if special(destination) or (destination[0] == 255 and destination[1] & 15 == 0):
            return "ipv6-martian-destination"
        if destination[0] == 255:
            if destination[:13] == b"\xff\2" + bytes(9) + b"\1\xff":
                return self.to_us(origin, port, frame, offset, packet, "ipv6-multicast")
            return "ipv6-multicast"
        if to_group:
            return "link-layer-group"
        link_local = lambda address: address[0] == 0xFE and address[1] & 0xC0 == 0x80
        if link_local(destination):
            if destination in port.own:
                return self.to_us(origin, port, frame, offset, packet, "not-handled-locally")
            return "ipv6-link-local"

        hop = self.route(6, destination)
        error = lambda reason, kind, code, mtu=0: self.icmpv6_error(origin, port, frame, offset, packet, reason, kind, code, mtu)
        if hop is None:
            return error("no-route", 1, 0)
        if hop.kind == "forward":
            if link_local(source):
                return error("ipv6-link-local", 1, 2)  # RFC 4007 section 9.
            if packet[7] <= 1:
                return error("hop-limit-expired", 3, 0)
            if len(packet) > hop.mtu:
                return error("mtu-exceeded", 2, 0, hop.mtu)
            expected = packet[:7] + bytes([packet[7] - 1]) + packet[8:]
            return self.forwarded(origin, hop, IPV6, expected)
        if hop.kind == "local":
            return self.to_us(origin, port, frame, offset, packet, "not-handled-locally")
        if hop.kind == "drop":
            return "route-drop"
        if hop.kind == "no-neighbour":
            return error("no-neighbour", 1, 3)
        return error("route-unreachable", 1, 0)

    def to_us(self, origin, port, frame, offset, packet, reason):
        """Neighbour solicitations (RFC 4861 section 7.1.1) and echo requests (RFC 4443 section 4.1)."""
        source, destination, message = packet[8:24], packet[24:40], packet[40:]
        if packet[6] != ICMPV6 or len(message) < 8:
            return reason
        if not adds_up(pseudo_header(source, destination, ICMPV6, len(message)) + message):
            return reason
        if message[0] == 128 and message[1] == 0 and destination[0] != 255 and source != bytes(16):
            answer = self.sent_back(origin, port, frame, offset)[: len(packet)]
            reply = answer[40:]
            good = answer[:7] == packet[:7] and answer[7] == OWN_TTL and answer[8:40] == destination + source
            good = good and reply[:2] == b"\x81\0" and reply[4:] == message[4:]
            good = good and adds_up(pseudo_header(destination, source, ICMPV6, len(reply)) + reply)
            check(good, lambda: f"the echo reply to input frame {origin} is {answer.hex()}")
            self.totals["answered"] += 1
            return None
        if message[0] != 135 or message[1] != 0 or packet[7] != 255 or len(message) < 24 or message[8] == 255:
            return reason
        options, place = [], 24
        while place < len(message):
            length = message[place + 1] * 8 if place + 1 < len(message) else 0
            if length == 0 or place + length > len(message):
                return reason
            options.append(message[place])
            place += length
        if source == bytes(16) and (destination[0] != 255 or 1 in options):
            return reason
        if message[8:24] not in port.own:
            return "neighbour-message"
        # Nobody asked: tell everybody, with the answer's addresses of a group (section 7.2.4).
        check(source != bytes(16), "the traffic has no duplicate address detection")
        answer = self.sent_back(origin, port, frame, offset)
        advertisement = answer[40:72]
        good = answer[4:8] == b"\0\x20\x3a\xff" and answer[8:40] == message[8:24] + source
        # Router, solicited, override; the target, and its Ethernet address.
        good = good and advertisement[:2] == b"\x88\0" and advertisement[4:8] == b"\xe0\0\0\0"
        good = good and advertisement[8:] == message[8:24] + b"\2\1" + port.mac
        good = good and adds_up(pseudo_header(answer[8:24], source, ICMPV6, 32) + advertisement)
        check(good, lambda: f"the advertisement that answers input frame {origin} is {answer.hex()}")
        self.totals["answered"] += 1
        return None

    def icmpv6_error(self, origin, port, frame, offset, packet, reason, kind, code, mtu):
        """Takes the error that a dropped packet's sender is owed, if it is owed one (RFC 4443 section 2.4 (e))."""
        if not may_be_answered(packet):
            return reason
        answer, own = self.sent_error(origin, 6, packet[8:24])
        if answer is None:
            return reason
        (length,) = struct.unpack_from(">H", answer, 4)
        error, source = answer[40 : 40 + length], answer[8:24]
        good = answer[0] >> 4 == 6 and answer[6] == ICMPV6 and answer[7] == OWN_TTL
        good = good and source == own and answer[24:40] == packet[8:24]
        good = good and error[:2] == bytes([kind, code]) and error[4:8] == struct.pack(">I", mtu)
        # As much of the packet as fits 1,280 bytes.
        good = good and error[8:] == packet[: 1280 - 48] and len(answer) == 40 + length
        good = good and adds_up(pseudo_header(source, packet[8:24], ICMPV6, length) + error)
        check(good, lambda: f"the error to input frame {origin} ({reason}) is {answer.hex()}")
        return reason


def options_fault(options):
    """What is wrong with IPv4 options (RFC 791 section 3.1), or why they are not obeyed (RFC 7126)."""
    place = 0
    while place < len(options):
        kind = options[place]
        if kind == 0:
            break
        if kind == 1:
            place += 1
            continue
        if kind in (131, 137):
            return "ipv4-source-route"
        length = options[place + 1] if place + 1 < len(options) else 0
        if length < 2 or place + length > len(options):
            return "ipv4-options"
        place += length
    return None


def copied_options(options):
    """What of a packet's options stands in all of its fragments (RFC 791 section 3.1: the copied flag)."""
    copied, place = b"", 0
    while place < len(options) and options[place] != 0:
        length = 1 if options[place] == 1 else options[place + 1]
        if options[place] & 0x80:
            copied += options[place : place + length]
        place += length
    return copied + bytes(-len(copied) % 4)


def may_be_answered(packet):
    """Whether an IPv6 packet is no ICMPv6 error or redirect itself, as far as can be seen."""
    header, place = packet[6], 40
    while header in (HOP_BY_HOP, ROUTING, DESTINATION, FRAGMENT):
        if place + 8 > len(packet):
            return False
        if header == FRAGMENT:
            is_later = struct.unpack_from(">H", packet, place + 2)[0] & 0xFFF8
            header, place = packet[place], place + 8
            if is_later:
                return True  # Nobody can see what it is part of; path MTU discovery needs the answer.
        else:
            header, place = packet[place], place + 8 + packet[place + 1] * 8
            if place > len(packet):
                return False
    if header != ICMPV6:
        return True
    return place < len(packet) and packet[place] >= 128 and packet[place] != 137


# ---------------------------------------------------------------------------------------------------------------------
# The second opinion

FIELDS = [
    "frame.protocols",
    "eth.dst",
    "eth.src",
    "vlan.id",
    "ip.src",
    "ip.dst",
    "ip.ttl",
    "ip.checksum.status",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.hlim",
    "udp.checksum.status",
    "tcp.checksum.status",
    "icmp.checksum.status",
    "icmpv6.checksum.status",
]
GOOD, BAD = "1", "0"


# Nothing above these is asked for, and random ports would find dissectors that take their time.
PROTOCOLS = {"frame", "eth", "ethertype", "vlan", "ieee8021ad", "ip", "ipv6", "udp", "tcp", "icmp", "icmpv6", "data"}
PROTOCOLS |= {"ipv6.hopopts", "ipv6.dstopts", "ipv6.routing", "ipv6.fraghdr"}


def unwanted_protocols():
    lines = subprocess.run(["tshark", "-G", "protocols"], check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in (line.split("\t")[2] for line in lines) if name not in PROTOCOLS]


# How many frames of each capture tshark takes apart: all of them in CI (`CI=true`), where nobody waits for it.
MOST = None if os.environ.get("CI") else 100_000


def at_most(count):
    return min(count, MOST or count)


class Dissection:
    """What tshark reads of the frames of a capture; it works while we do something else."""

    def __init__(self, path, unwanted):
        self.path, self.output = path, tempfile.TemporaryFile("w+")
        self.errors = tempfile.TemporaryFile("w+")
        command = ["tshark", "-n", "-r", path, "-T", "fields", "-E", "occurrence=f", "-E", "separator=|"]
        for protocol in unwanted:
            command += ["--disable-protocol", protocol]
        for preference in ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"]:
            command += ["-o", preference + ":TRUE"]
        # Fragments are put together, so that the checksum above them is that of the whole.
        for preference in ["ip.defragment:TRUE", "tcp.analyze_sequence_numbers:FALSE", "tcp.desegment_tcp_streams:FALSE"]:
            command += ["-o", preference]
        for field in FIELDS:
            command += ["-e", field]
        if MOST:
            command += ["-c", str(MOST)]
        self.process = subprocess.Popen(command, stdout=self.output, stderr=self.errors)

    def frames(self):
        status = self.process.wait()
        self.errors.seek(0)
        check(status == 0, lambda: f"tshark failed on {self.path}: {self.errors.read()}")
        self.output.seek(0)
        for line in self.output:
            yield line.rstrip("\n").split("|")


def second_opinion(router, dissections):
    """Compares what tshark read of each output frame with what it read of the input frame that it came from."""
    source = next(port for port in router.ports.values() if port.input)
    inputs = list(dissections[source.input.path].frames())
    check(len(inputs) == at_most(source.input.number), "tshark found another number of input frames")
    seen = collections.Counter()
    for port in router.ports.values():
        if not port.output or port.output.number == 0:
            continue
        count = 0
        # Of the outputs as far as the dissected inputs go.
        origins = port.origins[: at_most(bisect.bisect_left(port.origins, len(inputs)))]
        for origin, fields in zip(origins, dissections[port.output.path].frames()):
            count += 1
            before, after = dict(zip(FIELDS, inputs[origin])), dict(zip(FIELDS, fields))
            name = lambda: f"tshark on frame {count} of {port.output.path}:\n  {after}\nfrom input frame {origin}:\n  {before}"
            is_error = count in port.errors
            is_answer = port is source or is_error
            # Noise in a protocol field makes a tunnel now and then; what is inside stays as it was.
            outer = next((name for name in after["frame.protocols"].split(":") if name in ("ip", "ipv6")), "")
            check(outer or is_answer, name)
            check(outer != "ip" or after["ip.checksum.status"] == GOOD, name)
            for field in ("udp.checksum.status", "tcp.checksum.status", "icmp.checksum.status", "icmpv6.checksum.status"):
                if is_answer and not field.startswith("icmp"):
                    continue  # What an ICMP error quotes is as it was.
                # What came in damaged goes out damaged: end to end means that.
                check(after[field] != BAD or (before[field] == BAD and not is_answer), name)
                seen[field] += after[field] == GOOD
            seen["ip.checksum.status"] += after["ip.checksum.status"] == GOOD
            if is_answer:
                check(is_error or after["eth.dst"] == before["eth.src"], name)
                check(after["ip.dst"] == before["ip.src"] or not before["ip.src"], name)
                continue
            check(after["eth.src"] == ":".join(f"{byte:02x}" for byte in port.mac), name)
            for field in ("ip.src", "ip.dst", "ipv6.src", "ipv6.dst"):
                check(after[field] == before[field], name)
            for field, layer in (("ip.ttl", "ip"), ("ipv6.hlim", "ipv6")):
                step = 1 if layer == outer else 0
                check(after[field] == before[field] == "" or int(after[field]) == int(before[field]) - step, name)
            seen["forwarded frames"] += 1
        check(count == len(origins), f"tshark found another number of frames in {port.output.path}")
    return seen


def sample_routes(router, prefixes):
    """Asks `ipaddress` itself for the longest prefix of some thousand addresses, as slow as that is."""
    known, count = set(prefixes), 0
    generator = random.Random(1)
    for version, bits in ((4, 32), (6, 128)):
        samples = router.samples[version]
        for packed, found in generator.sample(samples, min(2000, len(samples))):
            network = ipaddress.ip_network(packed)
            while str(network) not in known:
                network = network.supernet()
            check(str(network) == found, f"the longest prefix of {ipaddress.ip_address(packed)} is {network}, not {found}")
            count += 1
    return count


# ---------------------------------------------------------------------------------------------------------------------


def read_prefixes(path):
    with open(path) as file:
        prefixes = file.read().split()
    digest = hashlib.sha256(("\n".join(sorted(prefixes)) + "\n").encode()).hexdigest()
    check(digest == PREFIXES_SHA256, f"{path} is not the full table: its SHA-256 is {digest}")
    return prefixes


def compare_report(router, report):
    """The command's books against ours."""

    def nonzero(drops):
        return {name: count for name, count in drops.items() if count}

    forward = report["forward"]
    drops = nonzero(forward["drops"])
    differences = [
        f"{name}: counted {drops.get(name, 0)}, found {router.drops.get(name, 0)}"
        for name in sorted(drops.keys() | router.drops.keys())
        if drops.get(name, 0) != router.drops.get(name, 0)
    ]
    check(not differences, lambda: "drops differ:\n  " + "\n  ".join(differences))
    for name in ("received", "forwarded", "answered", "dropped", "icmp_errors", "icmp_errors_unsent", "fragmented", "fragments"):
        check(forward[name] == router.totals[name], f"{name}: reported {forward[name]}, found {router.totals[name]}")
    check(forward["punted"] == 0, "there is nobody to punt to")
    for entry in report["ports"]:
        port = router.ports[entry["name"]]
        written = port.output.number if port.output else 0
        sent = entry["transmitted"]["packets"]
        check(sent == written, f"port {port.name}: reported {sent} packets sent, the capture has {written}")
        check(not nonzero(entry["transmitted"]["drops"]), f"port {port.name} dropped packets on transmit")
        if port.input:
            lost = nonzero(entry["received"]["drops"])
            check(lost == router.driver_drops, f"port {port.name}: reported drops {lost}, found {router.driver_drops}")
            read = entry["received"]["packets"] + sum(lost.values())
            check(read == port.input.number, f"port {port.name} read {read} of {port.input.number} frames")


def main():
    config_path, report_path, prefixes_path = sys.argv[1:]
    began = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    with open(config_path, "rb") as file:
        config = tomllib.load(file)
    with open(report_path) as file:
        report = json.load(file)
    drivers = [port["driver"]["pcap"] for port in config["port"]]
    captures = [driver[key] for driver in drivers for key in ("read", "write") if key in driver]
    unwanted = unwanted_protocols()
    dissections = {path: Dissection(path, unwanted) for path in captures}
    try:
        prefixes = read_prefixes(prefixes_path)
        router = Router(config, prefixes)
        say(f"{len(prefixes)} prefixes, as published")
        for port in router.ports.values():
            while port.input and (record := port.input.next()):
                router.frame(port.input.number - 1, port, *record)
        for port in router.ports.values():
            left = port.output.next() if port.output else None
            check(left is None, lambda: f"port {port.name} wrote more than it has to, from frame {port.output.number} on: {left[0].hex()}")
        totals = ", ".join(f"{name} {count}" for name, count in sorted(router.totals.items()))
        say(f"every frame is where it has to be, byte for byte: {totals}")
        check(len(router.prefixes_hit) > 5000, f"only {len(router.prefixes_hit)} prefixes were hit")
        say(f"{len(router.prefixes_hit)} prefixes hit, {sample_routes(router, prefixes)} lookups repeated")
        compare_report(router, report)
        for name, count in sorted((router.drops + router.driver_drops).items()):
            print(f"{count:12} dropped: {name}")
        say("the report's counters are right")
        seen = second_opinion(router, dissections)
        for name, count in sorted(seen.items()):
            print(f"{count:12} good by tshark: {name}")
        say("tshark agrees")
    except Wrong as wrong:
        print(f"WRONG: {wrong}", file=sys.stderr)
        return 1
    finally:
        for dissection in dissections.values():
            dissection.process.kill()
            dissection.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
