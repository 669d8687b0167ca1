"""A stream of TCP between two hosts, and what it is: both ends print the hash of all that they sent or received.

tcp_stream.py receive PORT            waits for one connection; says so once it is there
tcp_stream.py send ADDRESS PORT BYTES
"""

import hashlib
import random
import socket
import sys

if sys.argv[1] == "receive":
    with socket.create_server(("", int(sys.argv[2]))) as server:
        print("there", flush=True)
        connection, _ = server.accept()
    digest = hashlib.sha256()
    with connection:
        while data := connection.recv(1 << 16):
            digest.update(data)
    print(digest.hexdigest(), flush=True)
else:
    address, port, count = sys.argv[2:]
    data = random.Random(1).randbytes(int(count))
    with socket.create_connection((address, int(port))) as connection:
        connection.sendall(data)
    print(hashlib.sha256(data).hexdigest(), flush=True)
