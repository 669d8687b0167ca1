"""The wire from a tap interface to a host that is a datagram socket: tap_wire.py INTERFACE OWN-SOCKET HOST. Says so once it is there."""

import socket
import sys
import threading

ETH_P_ALL = 3
PACKET_OUTGOING = 4

interface, own, host = sys.argv[1:]
wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
wire.bind(own)
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
tap.bind((interface, ETH_P_ALL))


def carry_to_tap():
    while True:
        frame = wire.recv(65536)
        try:
            tap.send(frame)
        except OSError:
            # Nobody takes them any more: its queue is full.
            pass


# Each way by itself: neither waits for the other.
threading.Thread(target=carry_to_tap, daemon=True).start()
print("there", flush=True)
while True:
    frame, (_, _, direction, *_) = tap.recvfrom(65536)
    # Not what this machine's kernel sends there.
    if direction != PACKET_OUTGOING:
        wire.sendto(frame, host)
