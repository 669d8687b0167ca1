"""Numbered words to and fro over TCP or UDP, so that it can be seen when they no longer get through.

    talk.py serve tcp|udp ADDRESS PORT      answers each word with itself
    talk.py talk tcp|udp ADDRESS PORT RATE  sends RATE words a second, and prints 20 times a second how many have come back, and the
                                            address and port that they are sent from

SIGINT closes the connection, SIGUSR1 does so by a reset (TCP).
"""

import select
import signal
import socket
import struct
import sys
import time

WORD = struct.Struct("!Q56x")


def serve(protocol, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    listener = socket.socket(family, kind)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    if protocol == "udp":
        print("ready", flush=True)
        while True:
            word, sender = listener.recvfrom(65535)
            try:
                listener.sendto(word, sender)
            except OSError:
                pass
    listener.listen()
    print("ready", flush=True)
    open_ones = []
    while True:
        ready, _, _ = select.select([listener, *open_ones], [], [])
        for one in ready:
            if one is listener:
                open_ones.append(listener.accept()[0])
                continue
            try:
                words = one.recv(65536)
                one.sendall(words)
            except OSError as error:
                words = b""
                print(f"ended by {error.strerror}", flush=True)
            else:
                if not words:
                    print("ended", flush=True)
            if not words:
                one.close()
                open_ones.remove(one)


def talk(protocol, address, port, rate):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    one = socket.socket(family, kind)
    one.connect((address, port))
    one.setblocking(False)
    mine = one.getsockname()

    resetting = False

    def reset(*_):
        nonlocal resetting
        resetting = True
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, reset)
    begin, sent, received, said = time.monotonic(), 0, 0, 0.0
    try:
        while True:
            wait = max(0.0, min(begin + sent / rate, said + 0.05) - time.monotonic())
            if select.select([one], [], [], wait)[0]:
                try:
                    received += len(one.recv(65536))
                except OSError:
                    pass
            if time.monotonic() >= begin + sent / rate:
                try:
                    one.send(WORD.pack(sent))
                except OSError:
                    pass
                sent += 1
            if time.monotonic() >= said + 0.05:
                said = time.monotonic()
                print(received // WORD.size, mine[0], mine[1], flush=True)
    except KeyboardInterrupt:
        if kind == socket.SOCK_STREAM and not resetting:
            # A socket that is closed with something unread sends a reset.
            one.shutdown(socket.SHUT_WR)
            one.setblocking(True)
            while one.recv(65536):
                pass
        one.close()


if sys.argv[1] == "serve":
    serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    talk(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
