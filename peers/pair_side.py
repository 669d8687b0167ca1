#!/usr/bin/env python3
"""One side of the comparisons of ports between two processes: one sends as fast as it can, the other takes and drops.

    pair_side.py LINK SENDER RECEIVER BYTES CPU SECOND_CPU CYCLES_A_SECOND PAGES WARMLANE

SENDER has SECOND_CPU, RECEIVER has CPU. Each is warmlane (`warmlane bench port-send` and `port-receive`) or testpmd (txonly and rxonly).
testpmd-vectorized is one whose driver of virtio rings looks at descriptors by vectors.
LINK says what joins them:

    memif          RECEIVER is the server of a memif socket, SENDER its client; warmlane-zero-copy is one whose packets stay in its own pool,
                   or which takes them for its own
    vhost          RECEIVER is the device of virtio rings, by vhost-user, SENDER the driver
    virtio         SENDER is the device, RECEIVER the driver
    pvp            RECEIVER is the device: it sends, and takes what comes back (`port-round`, flowgen); SENDER is the driver, as in a
                   guest, and sends everything back (`port-echo`, io)

With -packed behind it, the rings of virtio are packed; else they are split. Both programs have rings of 256 descriptors then. Frames have BYTES without their check sequence, of which both senders write the headers only. PAGES is huge or normal, which is
for testpmd; ours takes huge ones if there are any.

It measures a round for each line "go SECONDS" on its standard input, and ends with that. Counted are the packets that the receiver has
taken. Between rounds both wait in a read, and their threads that keep the connection in a poll.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

# Longer than either needs to run smoothly after a start.
WARM = 0.2
# How much longer than what is measured a sender of ours has to go on: what two commands of testpmd's may take.
MARGIN = 0.3
PROMPT = b"testpmd> "


class Program:
    """A program that is asked by lines and answers by lines."""

    def __init__(self, cpu, arguments):
        command = ["taskset", "--cpu-list", str(cpu), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def ask(self, text):
        self.process.stdin.write(text.encode() + b"\n")

    def read_until(self, ends):
        """What it says, up to and with what `ends` says is the end."""
        said = b""
        while not ends(said):
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                sys.exit(f"pair_side.py: {self.process.args} has ended:\n{said.decode(errors='replace')}")
            said += more
        return said

    def held_up(self):
        """Nanoseconds that its lane could have run and somebody else did. Its lane is the thread that has run most: one that only waits for
        commands gets the CPU after the lane's slice, which is no disturbance."""
        most = (0, 0)
        folder = f"/proc/{self.process.pid}/task"
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/schedstat") as file:
                ran, waited = file.read().split()[:2]
            most = max(most, (int(ran), int(waited)))
        return most[1]

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Warmlane(Program):
    def __init__(self, cpu, program, bench, port, length):
        arguments = [program, "bench", bench, "--serve", "--cpu", str(cpu), "--port", port + ",wait=60"]
        super().__init__(cpu, arguments + ["--frame-bytes", str(length)])

    def ready(self):
        self.read_until(lambda said: said.endswith(b"ready\n"))

    def start(self, seconds):
        """It goes on for that long beside what comes before and after."""
        self.ask(f"go {seconds + WARM + MARGIN}")

    def stop(self):
        self.read_until(lambda said: said.endswith(b"}\n"))

    def count(self, seconds, watch):
        """Packets, and in which time."""
        with watch:
            self.ask(f"go {seconds}")
            round = json.loads(self.read_until(lambda said: said.endswith(b"}\n")))
        return round["packets"], round["seconds"]


class Testpmd(Program):
    def __init__(self, cpu, mode, device, pages, length):
        vectors = []
        if "vectorized=1" in device:
            # Else it quietly does without for packed rings.
            vectors = ["--force-max-simd-bitwidth=512"]
        # Its main thread only waits for commands.
        arguments = ["stdbuf", "-oL", "dpdk-testpmd", f"--lcores=(0,1)@{cpu}", "-m", "128", "--no-pci", "--no-telemetry"]
        arguments += vectors
        if device.startswith("net_virtio_user"):
            # Else its memory has more files than it can pass.
            arguments += ["--single-file-segments"]
        arguments += ["--in-memory"] if pages == "huge" else ["--no-huge", "--no-shconf"]
        arguments += ["--log-level=4", f"--vdev={device}", "--", "-i", f"--forward-mode={mode}", f"--txpkts={length}"]
        # It would tell of a peer that comes behind its prompt.
        arguments += ["--mask-event=intr_lsc", "--mask-event=queue_state"]
        super().__init__(cpu, arguments + ["--burst=64", "--mbcache=512", "--total-num-mbufs=16383", "--no-flush-rx"])

    def command(self, text):
        self.ask(text)
        return self.said()

    def said(self):
        return self.read_until(lambda said: said.endswith(PROMPT))

    def ready(self):
        self.said()

    def start(self, _seconds):
        self.command("start")

    def stop(self):
        self.command("stop")

    def received(self):
        said = self.command("show port stats 0")
        return int(said.split(b"RX-packets: ")[1].split()[0])

    def count(self, seconds, watch):
        self.command("start")
        # What waited in the ring meanwhile isn't counted.
        time.sleep(WARM / 2)
        before, begin = self.received(), time.monotonic()
        with watch:
            time.sleep(seconds)
        after, end = self.received(), time.monotonic()
        self.command("stop")
        return after - before, end - begin


# By what each program names the ends of links: those of memif, and of virtio rings.
OURS = {
    "server": "memif:{socket},role=server,mode={copies}",
    "client": "memif:{socket},role=client,mode={copies}",
    "device": "vhost:{socket}",
    "driver": "virtio:{socket},packed=false",
    "driver-packed": "virtio:{socket},packed=true",
}
THEIRS = {
    "server": "net_memif0,role=server,id=0,socket={socket},socket-abstract=no,rsize=10",
    "client": "net_memif0,role=client,id=0,socket={socket},socket-abstract=no,rsize=10",
    "device": "net_vhost0,iface={socket}",
    "driver": "net_virtio_user0,path={socket},queue_size=256",
    "driver-packed": "net_virtio_user0,path={socket},queue_size=256,packed_vq=1",
}
# Other ways to use testpmd's driver. It looks at descriptors by vectors where it can: not at all with in-order use of split rings. Of arguments that are
# there twice, the last counts.
VARIANTS = {
    ("vectorized", "driver"): ",in_order=0,mrg_rxbuf=0,vectorized=1",
    ("vectorized", "driver-packed"): ",in_order=1,mrg_rxbuf=0,vectorized=1",
    ("1024", "driver"): ",queue_size=1024",
    ("1024", "driver-packed"): ",queue_size=1024",
}


def ends(link):
    """The ends of sender and receiver."""
    kind, _, packed = link.partition("-")
    driver = "driver-packed" if packed else "driver"
    return {
        "memif": ("client", "server"),
        "vhost": (driver, "device"),
        "virtio": ("device", driver),
        "pvp": (driver, "device"),
    }[kind]


def stolen(cpus):
    """Hundredths of a second that the hypervisor took from the CPUs."""
    with open("/proc/stat") as file:
        rows = [line.split() for line in file if line.startswith("cpu")]
    return sum(int(row[8]) for row in rows if row[0] in [f"cpu{cpu}" for cpu in cpus])


class Watch:
    """Tells how long others had the CPUs of these programs while packets were counted."""

    def __init__(self, programs, cpus):
        self.programs, self.cpus = programs, cpus

    def now(self):
        return sum(one.held_up() for one in self.programs) / 1e9 + stolen(self.cpus) / 100

    def __enter__(self):
        self.before = self.now()

    def __exit__(self, *_):
        self.held = self.now() - self.before


def main():
    link, sender_name, receiver_name, length, cpu, second_cpu, clock, pages, warmlane = sys.argv[1:]
    cpus, clock = [int(cpu), int(second_cpu)], float(clock)
    work = tempfile.mkdtemp()
    socket = os.path.join(work, "link.sock")

    def program(name, cpu, bench, mode, end):
        kind, _, variant = name.partition("-")
        if kind == "warmlane":
            return Warmlane(cpu, warmlane, bench, OURS[end].format(socket=socket, copies=variant or "copy"), length)
        return Testpmd(cpu, mode, THEIRS[end].format(socket=socket) + VARIANTS.get((variant, end), ""), pages, length)

    ways = [("port-send", "txonly"), ("port-receive", "rxonly")]
    if link.startswith("pvp"):
        ways = [("port-echo", "io"), ("port-round", "flowgen")]
    sides = list(zip([sender_name, receiver_name], [cpus[1], cpus[0]], ways, ends(link)))
    # Those that make the socket come first: DPDK's clients try again seconds later, or not at all, if there is nobody.
    started = {}
    for name, side_cpu, (bench, mode), end in sorted(sides, key=lambda side: side[3] not in ("server", "device")):
        started[end] = program(name, side_cpu, bench, mode, end)
        while not os.path.exists(socket) and started[end].process.poll() is None:
            time.sleep(0.01)
    sender, receiver = (started[side[3]] for side in sides)
    try:
        sender.ready()
        receiver.ready()
        watch = Watch([sender, receiver], cpus)
        print("ready", flush=True)
        for number, line in enumerate(sys.stdin):
            seconds = float(line.removeprefix("go "))
            sender.start(seconds)
            time.sleep(WARM / 2)
            packets, took = receiver.count(seconds, watch)
            sender.stop()
            disturbed = "others had the CPUs for more than a fiftieth of the time" if watch.held > took / 50 else ""
            round = {"round": number, "packets": packets, "cycles": int(took * clock), "seconds": took}
            print(json.dumps(round | {"disturbed": disturbed}), flush=True)
    finally:
        sender.end()
        receiver.end()
        shutil.rmtree(work)


main()
