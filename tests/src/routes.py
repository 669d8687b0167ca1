"""routes.py FILE fill | routes.py FILE turn | routes.py FILE flap RATE SECONDS: changes the kernel's routes by netlink, many
messages at a time, as a routing daemon does.

FILE has a prefix, a gateway and another gateway on each line. "fill" adds all of these routes by the first gateway. "turn" takes
all of them away and adds them again by the other one, as fast as the kernel can. "flap" takes random ones away and adds them
again by either gateway, RATE of them a second, and at last takes every hundredth route away. Prints how many routes it was, in how many seconds, and how many messages the
kernel refused.
"""

import ipaddress
import random
import socket
import struct
import sys
import time

# include/uapi/linux/netlink.h, rtnetlink.h
NEWROUTE, DELROUTE = 24, 25
REQUEST, CREATE, EXCLUSIVE = 1, 0x400, 0x200
MAIN, BOOT, UNIVERSE, UNICAST = 254, 3, 0, 1
DESTINATION, GATEWAY = 1, 5
MESSAGES = 64


def message(kind, flags, prefix, gateway=None):
    network = ipaddress.ip_network(prefix)
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    body = struct.pack("=BBBBBBBBI", family, network.prefixlen, 0, 0, MAIN, BOOT, UNIVERSE, UNICAST, 0)
    attributes = [(DESTINATION, network.network_address)]
    if gateway:
        attributes.append((GATEWAY, ipaddress.ip_address(gateway)))
    for attribute, address in attributes:
        body += struct.pack("=HH", 4 + len(address.packed), attribute) + address.packed
    return struct.pack("=IHHII", 16 + len(body), kind, REQUEST | flags, 0, 0) + body


def away(prefix):
    return message(DELROUTE, 0, prefix)


def back(prefix, gateway):
    return message(NEWROUTE, CREATE | EXCLUSIVE, prefix, gateway)


netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
netlink.bind((0, 0))
netlink.setblocking(False)
refused = 0


def send(messages):
    """The kernel is done with them when this returns. It answers only those that it refuses, each in a datagram of its own."""
    global refused
    for start in range(0, len(messages), MESSAGES):
        netlink.send(b"".join(messages[start : start + MESSAGES]))
        try:
            while True:
                netlink.recv(65536)
                refused += 1
        except BlockingIOError:
            pass


with open(sys.argv[1]) as file:
    routes = [line.split() for line in file]

if sys.argv[2] == "flap":
    rate, seconds = int(sys.argv[3]), float(sys.argv[4])
    chosen = random.Random(7)
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        batch = []
        for _ in range(MESSAGES // 2):
            prefix, *gateways = chosen.choice(routes)
            batch += [away(prefix), back(prefix, chosen.choice(gateways))]
        send(batch)
        count += len(batch) // 2
        time.sleep(max(0, count / rate - (time.monotonic() - begin)))
    # Those that were to go and come back tell nothing of news of the going that got lost; these do.
    send([away(prefix) for prefix, *_ in routes[::100]])
else:
    if sys.argv[2] == "fill":
        messages = [back(prefix, gateway) for prefix, gateway, _ in routes]
    else:
        messages = [away(prefix) for prefix, _, _ in routes] + [back(prefix, other) for prefix, _, other in routes]
    count, begin = len(routes), time.monotonic()
    send(messages)
print(count, time.monotonic() - begin, refused)
