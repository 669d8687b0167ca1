"""Decodes R-DEPI packets down to Ethernet frames and compares these with what was sent.

Written from the field tables of the specifications (CM-SP-MULPIv3.1 section 6.2, CM-SP-SECv3.1 section 7, CM-SP-DEPI section 8.3, RFC 3931),
with AES of the package cryptography and CRC-32 of zlib; nothing of Warmlane's is used. Reads records from standard input:

K  SAID 2, sequence number 1, key 16, initialisation vector 16      the association has this key from now on
F  session 4, SAID 2 (0: not encrypted), bytes of the DS service element 1, priority 1, DSID 4, sequence number 2, nulls 1, length 2, frame
                                                                     this frame is to come by that session
P  length 2, packet                                                  this packet came
"""

import struct
import sys
import zlib
from collections import deque

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def crc16_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x8408 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc16_table()


def crc16_x25(data):
    crc = 0xFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF


assert crc16_x25(b"123456789") == 0x906E


class Key:
    def __init__(self, sequence, key, vector):
        self.sequence, self.vector = sequence, vector
        self.algorithm = algorithms.AES(key)
        self.block = Cipher(self.algorithm, modes.ECB()).encryptor()

    def decrypt(self, region):
        whole = len(region) // 16 * 16
        clear = Cipher(self.algorithm, modes.CBC(self.vector)).decryptor().update(region[:whole])
        rest = region[whole:]
        if not rest:
            return clear
        last = region[whole - 16 : whole] if whole else self.vector
        return clear + bytes(a ^ b for a, b in zip(rest, self.block.update(last)))


def internet_checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def session_of(packet):
    """The L2TPv3 session of a packet and what follows."""
    ethertype = packet[12:14]
    network = packet[14:]
    if ethertype == b"\x08\x00":
        assert network[0] == 0x45 and network[9] == 115 and internet_checksum(network[:20]) == 0xFFFF, "IPv4 header"
        assert struct.unpack(">H", network[2:4])[0] == len(network), "IPv4 length"
        message = network[20:]
    else:
        assert ethertype == b"\x86\xdd" and network[0] >> 4 == 6 and network[6] == 115, "IPv6 header"
        assert struct.unpack(">H", network[4:6])[0] == len(network) - 40, "IPv6 length"
        message = network[40:]
    return struct.unpack(">I", message[:4])[0], message[4:]


class Session:
    def __init__(self):
        self.next, self.flow, self.frame, self.expected = 0, None, None, deque()

    def frames(self, message):
        flags, count, sequence = struct.unpack(">BBH", message[:4])
        flow = flags >> 1 & 7
        assert flags & ~0x0E == 0x40, f"PSP flags {flags:#x}"
        assert self.flow in (None, flow) and sequence == self.next, f"PSP flow {flow}, sequence {sequence}"
        self.flow, self.next = flow, (sequence + 1) & 0xFFFF
        at = 4 + 2 * count
        for entry in struct.unpack(f">{count}H", message[4:at]):
            piece = message[at : at + (entry & 0x3FFF)]
            at += len(piece)
            assert (self.frame is None) == bool(entry & 0x8000), "begin of a frame"
            self.frame = (self.frame or b"") + piece
            if entry & 0x4000:
                yield self.frame
                self.frame = None
        assert at == len(message), "segments fill the packet"


def decode(frame, keys):
    """SAID, length of the DS service element, priority, DSID, sequence number, nulls, Ethernet frame."""
    control, parameter, length = struct.unpack(">BBH", frame[:4])
    assert control in (0, 1) and length == len(frame) - 6, f"FC {control}, LEN {length} of {len(frame)}"
    assert control == 1 or parameter == 0, "MAC_PARM without extended header"
    end = 4 + parameter
    assert frame[end] | frame[end + 1] << 8 == crc16_x25(frame[:end]), "HCS"
    key, said, service, priority, dsid, sequence, nulls = None, 0, 0, 0, 0, 0, 0
    at = 4
    while at < end:
        kind, size = frame[at] >> 4, frame[at] & 0xF
        value = frame[at + 1 : at + 1 + size]
        assert len(value) == size and at + 1 + size <= end, "element"
        if kind == 0:
            assert size == 0, "null element"
            nulls += 1
        elif kind == 4:
            assert at == 4 and size == 4 and value[0] & 0xF == 1 and value[1] & 0x80 and value[3] == 0, "BP_DOWN"
            toggle, said = value[1] >> 6 & 1, (value[1] & 0x3F) << 8 | value[2]
            key = keys[said, toggle]
            assert value[0] >> 4 == key.sequence and key.sequence & 1 == toggle, "key sequence number"
        elif kind == 8:
            service, priority = size, value[0] >> 5
            assert size in (1, 3, 5) and value[0] & 0x10 == 0, "DS service"
            if size >= 3:
                dsid = (value[0] & 0x0F) << 16 | value[1] << 8 | value[2]
            if size == 5:
                sequence = value[3] << 8 | value[4]
        else:
            assert False, f"element {kind}"
        at += 1 + size
    payload = frame[end + 2 :]
    if key:
        payload = payload[:12] + key.decrypt(payload[12:])
    assert struct.unpack("<I", payload[-4:])[0] == zlib.crc32(payload[:-4]), "CRC"
    return said, service, priority, dsid, sequence, nulls, payload[:-4]


def main():
    data, at, keys, sessions, frames = sys.stdin.buffer.read(), 0, {}, {}, 0

    def take(form):
        nonlocal at
        values = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return values

    def take_bytes(length):
        nonlocal at
        at += length
        return data[at - length : at]

    while at < len(data):
        (kind,) = take(">c")
        if kind == b"K":
            said, sequence, key, vector = take(">HB16s16s")
            keys[said, sequence & 1] = Key(sequence, key, vector)
        elif kind == b"F":
            session, said, service, priority, dsid, sequence, nulls, length = take(">IHBBIHBH")
            expected = (said, service, priority, dsid, sequence, nulls, take_bytes(length))
            sessions.setdefault(session, Session()).expected.append(expected)
        else:
            number, message = session_of(take_bytes(*take(">H")))
            session = sessions[number]
            for frame in session.frames(message):
                found, expected = decode(frame, keys), session.expected.popleft()
                assert found == expected, f"frame {frames}: {found} instead of {expected}"
                frames += 1
    for number, session in sessions.items():
        assert not session.expected and session.frame is None, f"frames of session {number:#x} that have not come"
    print(frames)


main()
