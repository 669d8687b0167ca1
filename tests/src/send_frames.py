"""Sends frames by an interface, one after the other: send_frames.py INTERFACE HEXADECIMAL..."""

import socket
import sys

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
    sender.bind((sys.argv[1], 0))
    for frame in sys.argv[2:]:
        sender.send(bytes.fromhex(frame))
