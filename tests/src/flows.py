"""flows.py send|receive [ADDRESS]: sends 2,000 flows of ten numbered UDP packets each; or receives them, and says whenever nothing
more comes for now how many packets of how many flows it were so far, and how many of them out of order."""

import json
import random
import resource
import socket
import struct
import sys
import time

TARGET = (sys.argv[2] if len(sys.argv) > 2 else "203.0.113.1", 5000)
FAMILY = socket.AF_INET6 if ":" in TARGET[0] else socket.AF_INET
FLOWS, PACKETS = 2000, 10

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
    for number, flow in enumerate(order):
        sockets[flow].sendto(struct.pack("!HH", flow, sent[flow]), TARGET)
        sent[flow] += 1
        if number % 20 == 0:
            time.sleep(0.001)
else:
    receiver = socket.socket(FAMILY, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    receiver.bind(TARGET)
    receiver.settimeout(0.02)
    last, packets, reordered, told = {}, 0, 0, -1
    while True:
        try:
            flow, number = struct.unpack("!HH", receiver.recv(100))
            reordered += last.get(flow, -1) >= number
            last[flow] = number
            packets += 1
        except TimeoutError:
            if packets != told:
                print(json.dumps({"packets": packets, "flows": len(last), "reordered": reordered}), flush=True)
                told = packets
