"""Two hosts on one machine, and a line between them that is late, loses packets and carries only so much a second.

A host is a set of Linux's namespaces: its own network, processes, shared memory and, if so wished, clock. The line is
a pair of veth devices with netem where the kernel has that; elsewhere this file, run as a program, carries packets
from one TUN device to another. All of it lives only as long as the test holds pipes to it, however that ends.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

DEVICE, TUN = "wire0", "/dev/net/tun"
ADDRESSES = ("10.77.0.1", "10.77.0.2")  # which nobody but these two hosts can reach
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MOST_WAITING = 10_000  # packets on the line


class Unavailable(Exception):
    """This machine cannot play two hosts; the reason is the message."""


@dataclass(frozen=True)
class Line:
    """What becomes of a packet, in either direction."""

    delay: float = 0.050  # seconds one way, so that a round trip takes twice that
    loss: float = 0.01
    rate: int = 50_000_000  # bits a second
    seed: int = 0  # of the loss; netem draws its own


class Host:
    """A host while its context lasts; all processes in it end with it."""

    def __init__(self, address, ahead=0):
        """Make a host whose monotonic clock is so many seconds ahead, where the kernel can do that."""
        self.address, self.ahead = address, ahead if Path("/proc/self/ns/time").exists() else 0
        clock = ["--time", f"--monotonic={self.ahead}"] if self.ahead else []
        own = "mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo ready && exec cat"
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", *clock]
        try:
            self._holder = subprocess.Popen(
                [*command, "sh", "-c", own],
                stdin=subprocess.PIPE,  # at whose end cat ends, should this process be killed
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError:
            raise Unavailable("namespaces: there is no unshare") from None
        if self._holder.stdout.readline() != "ready\n":
            _, reason = self._holder.communicate(timeout=60)
            raise Unavailable(f"namespaces: {reason.strip()}")
        self.pid = self._holder.pid
        kinds = {"net": "net", "mount": "mnt", "pid": "pid_for_children"}
        if self.ahead:
            kinds["time"] = "time_for_children"
        self._enter = ["nsenter", *(f"--{kind}=/proc/{self.pid}/ns/{file}" for kind, file in kinds.items())]
        self._started = []

    def start(self, *command, **settings):
        """Start a process of this host, with pipes from its output."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self._started.append(subprocess.Popen([*self._enter, *map(str, command)], **pipes, **settings))
        return self._started[-1]

    def call(self, *command):
        """Run a short command there, which must end well; return what it prints."""
        done = subprocess.run(
            [*self._enter, *map(str, command)], check=True, capture_output=True, timeout=60, text=True
        )
        return done.stdout

    def inside(self, function, *arguments):
        """Call a function of this process in a thread on the host's network: sockets that it makes stay there."""
        with ThreadPoolExecutor(1, initializer=_enter_network, initargs=(self.pid,)) as thread:
            return thread.submit(function, *arguments).result()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._holder.kill()  # and with it the first process there, which takes all others with it
        for process in (self._holder, *self._started):
            process.kill()  # nsenter stops when what it started is stopped, and would never hear of the end
            process.communicate(timeout=60)


def hurry():
    """Go before other tests where that is allowed: a host has processors of its own."""
    with contextlib.suppress(OSError):
        os.nice(-10)  # before others of the same session, and before other sessions:
        Path("/proc/self/autogroup").write_text("-10")


def _enter_network(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{pid}/ns/net").open("rb") as network:
        if libc.setns(network.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter a network")


@contextlib.contextmanager
def two_hosts(line, ahead=0):
    """Yield two hosts that reach each other by the line; the second one's clock is so many seconds ahead."""
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(Host(*of)) for of in zip(ADDRESSES, (0, ahead), strict=True)]
        if not _joined_by_netem(hosts, line):
            stack.enter_context(_joined_by_this(hosts, line))
        for host in hosts:
            host.call("ip", "address", "add", f"{host.address}/30", "dev", DEVICE)
            host.call("ip", "link", "set", DEVICE, "txqueuelen", MOST_WAITING, "up")  # or it loses more by itself
        yield hosts


def _joined_by_netem(hosts, line):
    """Join two hosts by the kernel's own means; return whether it has them."""
    first, second = hosts
    on_first = ["nsenter", f"--net=/proc/{first.pid}/ns/net", "ip", "link"]
    pair = [*on_first, "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", str(second.pid)]
    if subprocess.run(pair, capture_output=True, timeout=60).returncode:
        return False
    netem = f"delay {1000 * line.delay:g}ms loss {100 * line.loss:g}% rate {line.rate}bit limit {MOST_WAITING}"
    try:
        for host in hosts:
            host.call("tc", "qdisc", "add", "dev", DEVICE, "root", "netem", *netem.split())
    except subprocess.CalledProcessError:
        subprocess.run([*on_first, "delete", DEVICE], check=True, timeout=60)
        return False
    return True


@contextlib.contextmanager
def _joined_by_this(hosts, line):
    """Join two hosts by a process that runs this file."""
    settings = json.dumps({"networks": [host.pid for host in hosts], "line": asdict(line)})
    with subprocess.Popen(
        [sys.executable, "-I", __file__, settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            told = process.stdout.readline().strip()
            assert told
            if told != "ready":
                raise Unavailable(f"the kernel has no netem, and there is no TUN device: {told}")
            yield
        finally:
            process.kill()


class _Way:
    """One direction of the line."""

    def __init__(self, line, source, target, seed):
        self.source, self._target, self._line = source, target, line
        self._chance = random.Random(seed)
        self._waiting = deque()  # (when it arrives, packet)
        self._free = 0.0  # when the last bit of what was sent so far is on the line

    @property
    def due(self):
        return self._waiting[0][0] if self._waiting else float("inf")

    def take(self):
        """Take what was sent."""
        with contextlib.suppress(BlockingIOError):
            while True:
                packet, now = os.read(self.source, 1 << 16), time.monotonic()
                if self._chance.random() < self._line.loss or len(self._waiting) == MOST_WAITING:
                    continue
                self._free = max(now, self._free) + 8 * len(packet) / self._line.rate
                self._waiting.append((self._free + self._line.delay, packet))

    def give(self):
        """Hand over what has arrived."""
        while self.due <= time.monotonic():
            _, packet = self._waiting.popleft()
            with contextlib.suppress(OSError):  # the device there is not up yet
                os.write(self._target, packet)


def _tun(pid):
    """Make a device on a network, and return its other end, a file from which what is sent there can be read."""
    _enter_network(pid)
    file = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return file


def _carry(networks, line):
    """Carry packets until standard input ends."""
    hurry()
    try:
        ends = [_tun(pid) for pid in networks]
    except OSError as error:
        print(error, flush=True)
        return
    ways = [_Way(line, *ends, line.seed), _Way(line, *reversed(ends), line.seed + 1)]
    print("ready", flush=True)
    while True:
        wait = min(way.due for way in ways) - time.monotonic()
        ready, _, _ = select.select([sys.stdin, *ends], [], [], min(max(wait, 0.0), 1.0))
        if sys.stdin in ready:
            return
        for way in ways:
            way.give()
            if way.source in ready:
                way.take()


if __name__ == "__main__":
    _given = json.loads(sys.argv[1])
    with contextlib.suppress(OSError):  # a host has gone, and its device with it
        _carry(_given["networks"], Line(**_given["line"]))
