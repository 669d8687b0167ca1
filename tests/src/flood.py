"""Sends UDP packets of 64 bytes (with frame check sequence) to all of the addresses in turn: COUNT of them, or, if it is 0, until Ctrl-C;
RATE in a second, or 0: as fast as the kernel takes them."""

import itertools
import socket
import sys
import time

rate, count, addresses = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
sockets = []
for address in addresses:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((address, 9))
    sockets.append(sender)
payload = bytes(18)
sent = 0
print("ready", flush=True)
begin = time.monotonic()
try:
    for sender in itertools.cycle(sockets):
        if count and sent == count:
            break
        try:
            sender.send(payload)
            sent += 1
        except OSError:
            # Somebody answered that nobody is there, or the kernel is out of room.
            pass
        if rate and sent % 32 == 0:
            time.sleep(max(0, sent / rate - (time.monotonic() - begin)))
except KeyboardInterrupt:
    pass
print(sent)
