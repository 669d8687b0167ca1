"""flows.py send ADDRESS FILE...: sends 2,000 flows of ten numbered UDP packets each.
flows.py receive ADDRESS FILE: receives them, and says whenever nothing more comes for now how many packets of how many flows it were
so far, and how many of them out of order.

Receivers keep their number of packets in a file each. The sender waits for them, so that a busy machine takes longer and loses
nothing."""

import json
import mmap
import random
import resource
import socket
import struct
import sys
import time

TARGET = (sys.argv[2], 5000)
FAMILY = socket.AF_INET6 if ":" in TARGET[0] else socket.AF_INET
FLOWS, PACKETS = 2000, 10
# Less than any ring on the way holds, and how many seconds without a packet mean that what is missing was lost.
WINDOW, PATIENCE = 400, 10
COUNT = struct.Struct("=Q")


def shared(name):
    with open(name, "r+b") as file:
        return mmap.mmap(file.fileno(), COUNT.size)


if sys.argv[1] == "send":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    order = [flow for flow in range(FLOWS) for _ in range(PACKETS)]
    random.Random(1).shuffle(order)
    sent = [0] * FLOWS
    sockets = []
    for flow in range(FLOWS):
        sender = socket.socket(FAMILY, socket.SOCK_DGRAM)
        sender.bind(("", 10000 + flow))
        sockets.append(sender)
    counts, lost = [shared(name) for name in sys.argv[3:]], 0
    for number, flow in enumerate(order):
        sockets[flow].sendto(struct.pack("!HH", flow, sent[flow]), TARGET)
        sent[flow] += 1
        if number % 20 == 0:
            time.sleep(0.001)
            before, since = -1, time.monotonic()
            while True:
                received = sum(COUNT.unpack_from(count)[0] for count in counts)
                if number - lost - received < WINDOW:
                    break
                if received != before:
                    before, since = received, time.monotonic()
                elif time.monotonic() > since + PATIENCE:
                    lost = number - received
                time.sleep(0.001)
else:
    receiver = socket.socket(FAMILY, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    receiver.bind(TARGET)
    receiver.settimeout(0.02)
    last, packets, reordered, told, count = {}, 0, 0, -1, shared(sys.argv[3])
    while True:
        try:
            flow, number = struct.unpack("!HH", receiver.recv(100))
            reordered += last.get(flow, -1) >= number
            last[flow] = number
            packets += 1
            COUNT.pack_into(count, 0, packets)
        except TimeoutError:
            if packets != told:
                print(json.dumps({"packets": packets, "flows": len(last), "reordered": reordered}), flush=True)
                told = packets
