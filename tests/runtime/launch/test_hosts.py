"""Several hosts: two agents on each of two, with a line between them that is late, loses packets and is slow."""

import contextlib
import json
import os
import socket
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zmq

import gossamer as gm
from gossamer.runtime.book.keys import curve_pair, write_key
from gossamer.runtime.message import MAGIC
from gossamer.runtime.transport.request_format import Echo, Probe, unpack_reply
from gossamer.runtime.transport.sockets import Sockets
from hosts_training import TRAINS, Told
from pages import SUPPORT
from peers import ask, raw, request
from waiting import until
from wire import ADDRESSES, Line, Unavailable, two_hosts

LINE = Line(delay=0.050, loss=0.01, rate=50_000_000)
AHEAD = 1000  # seconds of the second host's clock: hosts count from when they were started
SO_RCVBUFFORCE, ETH_P_ALL = 33, 0x0003  # of Linux; Python does not name them
SOURCES = (Path(gm.__file__).parents[1], SUPPORT)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCES)), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def hosts(request):
    """Two hosts, the second one's clock ahead where a test asks for that."""
    try:
        with two_hosts(LINE, getattr(request, "param", 0)) as made:
            yield made
    except Unavailable as reason:
        pytest.skip(f"this machine cannot play two hosts: {reason}")


def launch(host, ranks, script, out, *flags):
    """Return the command that starts a part of a run on a host; the book is the first one's."""
    part = ["--network", "complete:4", "--ranks", ranks, "--run", "hosts", "--address", host.address, "--out", out]
    return ["launch", *part, "--book", f"{ADDRESSES[0]}:29400", *flags, script]


# The line itself.


def datagrams(host):
    """A socket of UDP on a host."""
    made = host.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((host.address, 0))
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    made.settimeout(60.0)
    return made


def arrivals(target, end):
    """What arrives, and when, until a packet says that this is the end."""
    found = []
    while (packet := target.recv(2000)) != end:
        found.append((packet, time.monotonic()))
    return found


PAIRS, COUNT, SIZE = 20, 1500, 1000
ROUNDS = 10  # of measuring, for machines that stand still meanwhile: a late reader sees what came slowly come at once


def crossing(source, target, thread, number):
    """How long single packets take, and when those of many together arrive."""
    end = f"end {number}".encode()
    received = thread.submit(arrivals, target, end)
    for _ in range(PAIRS):
        source.sendto(str(time.monotonic()).encode(), target.getsockname())
        time.sleep(0.005)
    for _ in range(COUNT):
        source.sendto(bytes(SIZE), target.getsockname())
    while not received.done():  # the line may lose the end as well
        source.sendto(end, target.getsockname())
        time.sleep(0.01)
    found = [(packet, arrived) for packet, arrived in received.result() if not packet.startswith(b"end")]
    single = [arrived - float(packet) for packet, arrived in found if len(packet) < SIZE]
    return single, [arrived for packet, arrived in found if len(packet) == SIZE]


@pytest.mark.parametrize("back", [False, True])
def test_the_line_is_as_late_as_lossy_and_as_slow_as_it_says(hosts, back):
    with datagrams(hosts[back]) as source, datagrams(hosts[not back]) as target, ThreadPoolExecutor(1) as thread:
        for number in range(ROUNDS):
            single, together = crossing(source, target, thread, number)
            assert min(single) >= LINE.delay and 0.97 * COUNT < len(together) < COUNT
            prompt = statistics.median(single) < LINE.delay + 0.030
            slow = together[-1] - together[0] > 0.9 * 8 * SIZE * len(together) / LINE.rate
            if prompt and slow:
                return
    pytest.fail(f"never both: prompt {prompt}, slow {slow}")


# Two agents and strangers.

LENGTH = 4_000
MARK = bytes(range(64))  # what a message is full of

# Agent 1 of 2: publishes a hundred messages a second until its standard input ends, and says where it is.
PUBLISHES = f"""
import sys, threading, time
from pathlib import Path
import torch
from gossamer.runtime.book.keys import read_key
from gossamer.runtime.message import Stamp
from gossamer.runtime.transport.sockets import Sockets

address, key, where = sys.argv[1:]
agent = Sockets(1, 2, 100, address=address, key=read_key(Path(key)), where=lambda peer: where)
agent.open({LENGTH})
payload = torch.frombuffer(bytearray({MARK!r} * 100), dtype=torch.uint8)[:{LENGTH}]
print(agent.endpoint, flush=True)
ended = threading.Event()
threading.Thread(target=lambda: [sys.stdin.read(), ended.set()], daemon=True).start()
for sequence in range(100_000):
    agent.publish(Stamp(1, 100, sequence, time.monotonic_ns(), layout=0), [payload])
    if ended.wait(0.01):
        break
agent.close()
"""


def sniffer(host):
    """All that passes the host's devices."""
    made = host.inside(socket.socket, socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
    made.setblocking(False)
    return made


def heard(agent, messages):
    """For so many messages of agent 1, how long ago each was sent when it was first seen, in seconds."""
    seen, delays = -1, []
    while len(delays) < messages:
        letter = until(lambda: (found := agent.latest(1)) and found.stamp.sequence > seen and found)  # noqa: B023
        seen = letter.stamp.sequence
        delays.append((time.monotonic_ns() - letter.stamp.time - agent.offset(1)) / 1e9)
    return delays


def replies(endpoint, key, patience=1_500):
    """What a client gets that claims to be agent 1 and asks agent 0 the time, and for its messages."""
    with raw(zmq.DEALER, rcvtimeo=patience) as client:
        if key is not None:
            client.curve_publickey, client.curve_secretkey = curve_pair(key, 1)
            client.curve_serverkey = curve_pair(key, 0)[0]
        client.connect(endpoint)
        client.send(request(Probe(17)))
        client.send(request(ask(1)))
        try:
            return unpack_reply(client.recv())
        except zmq.Again:
            return None


def passed(sniffing):
    """Return the packets that have passed since the last call."""
    packets = []
    with contextlib.suppress(BlockingIOError):
        while True:
            packets.append(sniffing.recv(1 << 16))
    return packets


def test_agents_of_two_hosts_hear_each_other_and_strangers_learn_nothing(hosts, tmp_path):
    here, there = hosts
    key, where = write_key(tmp_path / "key"), {}
    agent = here.inside(lambda: Sockets(0, 2, 100, address=here.address, key=key, where=where.get))
    try:
        agent.open(LENGTH)
        with (
            sniffer(there) as sniffing,
            datagrams(here) as near,
            datagrams(there) as far,
            ThreadPoolExecutor() as threads,
        ):
            command = [sys.executable, "-c", PUBLISHES, there.address, tmp_path / "key", agent.endpoint]
            where[1] = there.start(*command, env=ENVIRONMENT).stdout.readline().strip()
            assert where[1].startswith(f"tcp://{there.address}:")
            # It is one clock, and a round trip takes 0.1 s. The first probes may have met a machine that stood still.
            until(lambda: agent.offset(1) is not None and abs(agent.offset(1)) / 1e9 < 0.008, 60)
            for _ in range(ROUNDS):
                delays = heard(agent, 20)
                assert min(delays) > LINE.delay - 0.010
                if statistics.median(delays) < LINE.delay + 0.050:
                    break
            else:
                pytest.fail(f"messages are late, the last ones by {delays}")
            assert bytes(agent.latest(1).payload.tolist()).startswith(MARK)

            keys = {"none": None, "of another run": bytes(32), "of this run": key}
            patience = {"of this run": 60_000}  # milliseconds: a packet may be lost, more than once
            got = {
                whose: threads.submit(there.inside, replies, agent.endpoint, key, patience.get(whose, 1_500))
                for whose, key in keys.items()
            }
            assert got["none"].result() is None and got["of another run"].result() is None
            assert isinstance(got["of this run"].result(), Echo)
            # Nothing of the strangers' was even looked at; the agents' own messages may have met a stall.
            assert set(agent.counts) <= {"stale", "unsent"}

            packets = passed(sniffing)
            assert sum(map(len, packets)) > 20 * LENGTH  # the messages were among them
            assert not any(MARK in packet or MAGIC in packet for packet in packets)
            # They would have been seen; what is sent may be late, or lost, before it passes.
            until(lambda: far.sendto(MARK, near.getsockname()) and any(MARK in packet for packet in passed(sniffing)))
    finally:
        agent.close()


# A run of four agents.


# All links: who hears, who is heard, and whether both are on the same host.
LINKS = [(i, k, i // 2 == k // 2) for i in range(4) for k in range(4) if i != k]


def check_discoveries(agents, folders, interval):
    """All know the clusters; the file is where agent 0 is; tau is between the delay and what asking adds to it."""
    written = [json.loads(line) for line in (folders[0] / "discovery.jsonl").read_text().splitlines()]
    assert not (folders[1] / "discovery.jsonl").exists()
    for agent in agents:
        assert agent.found in written
    tau = agents[0].found["tau"]
    assert LINE.delay < (tau + 1) * interval and tau * interval < 5 * LINE.delay


def check_ages(agents, during):
    """Inside a host messages are current; across, they are as old as the line is long, and rarely much older.

    An agent asks for the next message when it has one, so what it holds is between one and three delays old. A packet
    that is lost twice makes a silence that is longer than the own past: then there is no age.
    """
    across, bounds = [], []
    for i, k, inside in LINKS:
        ages, seconds = agents[i].ages(k, during[i]), list(agents[i].seconds(k, during[i]))
        if inside:
            assert sum(0 <= age <= 1 for age in ages) > 0.7 * len(ages) and statistics.median(ages) <= 1
        else:
            assert statistics.median(ages) > 1
            assert sum(most > LINE.delay - 0.010 for _, most in seconds) > 0.95 * len(seconds)
            across, bounds = [*across, *ages], [*bounds, *seconds]
    assert len(bounds) > 0.85 * len(across)
    least, most = (statistics.median(bound) for bound in zip(*bounds, strict=True))
    assert LINE.delay < most and least < 4 * LINE.delay


def check_clocks(agents, ahead):
    for i, k, inside in LINKS:
        expected = 0 if inside else ahead if i > k else -ahead
        assert abs(agents[i].offsets[k] - expected) < (1e-9 if inside else 0.025)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("hosts", [AHEAD], indirect=True, ids=["two clocks"])
def test_two_hosts_of_two_agents_discover_that_they_are_two_clusters(hosts, tmp_path):
    (tmp_path / "train.py").write_text(TRAINS)
    write_key(tmp_path / "key")
    folders = [tmp_path / "first", tmp_path / "second"]
    processes = [
        host.start(
            *(sys.executable, "-m", "gossamer"),
            *launch(host, ranks, tmp_path / "train.py", folder, "--key-file", tmp_path / "key", "--json"),
            env=ENVIRONMENT,
        )
        for host, ranks, folder in zip(hosts, ("0-1", "2-3"), folders, strict=True)
    ]
    ends = [process.communicate(timeout=400) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    reports = [json.loads(out) for out, _ in ends]
    assert [(one["rank"], one["exit"], one["restarts"]) for report in reports for one in report["agents"]] == [
        (rank, 0, 0) for rank in range(4)
    ]
    assert [host.call("ls", "/dev/shm") for host in hosts] == ["", ""]

    agents = [Told(folders[rank // 2], rank, hosts[rank // 2].ahead) for rank in range(4)]
    # While all of them trained: they begin and end at different times.
    first, last = max(agent.steps[0][1] for agent in agents) + 1, min(agent.steps[-1][1] for agent in agents)
    disturbed = [stall for agent in agents for stall in agent.stalls()]
    during = [agent.between(first, last, disturbed) for agent in agents]
    assert min(map(len, during)) > 100
    check_discoveries(
        agents, folders, statistics.mean(agent.interval(of) for agent, of in zip(agents, during, strict=True))
    )
    check_ages(agents, during)
    check_clocks(agents, hosts[1].ahead)
    for agent, iterations in zip(agents, during, strict=True):
        assert abs(agent.steps[iterations[-1]][2] - 1.5) < 0.5  # alone, a cluster goes to 0.5 or to 2.5
        assert not {"malformed", "corrupt", "refused", "failed"} & set(agent.counts)


# Without a key.


def test_a_launch_that_others_could_reach_is_refused_without_a_key(hosts, command, tmp_path):
    script, out = tmp_path / "train.py", tmp_path / "out"
    script.write_text("print('began')")
    refused = hosts[0].inside(command.refused, *launch(hosts[0], "0-1", script, out))
    assert "give --key-file as well" in refused and not out.exists()
    missing = launch(hosts[1], "2-3", script, out, "--key-file", tmp_path / "missing")
    assert "there is no key file" in hosts[1].inside(command.refused, *missing)
