"""TCP connections to several addresses and ports at once, to see which get through.

    doors.py serve PORT...               takes connections, and sends each a byte
    doors.py try ADDRESS,PORT,KNOWN...   KNOWN is open or closed; prints those that got their byte, a line each

It waits for those that are open as long as it takes, and for the others a second.
"""

import select
import socket
import sys
import time


def serve(ports):
    listeners = [socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) for port in ports]
    print("ready", flush=True)
    taken = []
    while True:
        for listener in select.select(listeners, [], [])[0]:
            connection, _ = listener.accept()
            connection.send(b"!")
            taken.append(connection)


def try_all(doors):
    begin = time.monotonic()
    waiting, missing = {}, set()
    for door in doors:
        address, port, known = door.split(",")
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        connection.setblocking(False)
        connection.connect_ex((address, int(port)))
        waiting[connection] = door
        if known == "open":
            missing.add(door)
    while waiting and (missing or time.monotonic() < begin + 1):
        for connection in select.select(list(waiting), [], [], 0.05)[0]:
            door = waiting.pop(connection)
            try:
                came = connection.recv(1)
            except OSError:
                came = b""
            missing.discard(door)
            if came:
                print(door.rsplit(",", 1)[0], flush=True)


if sys.argv[1] == "serve":
    serve([int(port) for port in sys.argv[2:]])
else:
    try_all(sys.argv[2:])
