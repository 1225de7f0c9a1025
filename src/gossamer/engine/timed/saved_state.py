"""A timed simulation as tensors: its states, its events as JSON, and every snapshot that something refers to, once."""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from gossamer.engine.timed.deliveries import Deliveries, Flight, Message
from gossamer.engine.timed.snapshots import Block, Snapshot
from gossamer.engine.timed.timetable import Event, State, Timetable
from gossamer.shapes import Tensor

_LISTS = ("iteration", "begun", "ends", "done", "published", "joined")


class SnapshotStore:
    """Numbers for snapshots, so that messages can be written as text and their tensors once."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.blocks: list[Block] = []

    def number(self, snapshot: Snapshot) -> list[int]:
        """Return what stands for a snapshot: the numbers of its block and of its row."""
        key = id(snapshot.block)
        if key not in self._numbers:
            self._numbers[key] = len(self.blocks)
            self.blocks.append(snapshot.block)
        return [self._numbers[key], snapshot.row]

    def snapshot(self, number: list[int]) -> Snapshot:
        """Return the snapshot that a number stands for."""
        return Snapshot(self.blocks[number[0]], number[1])

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors of all blocks."""
        return {f"{k}.{name}": part for k, block in enumerate(self.blocks) for name, part in block.parts.items()}

    @classmethod
    def load(cls, state: Mapping[str, Tensor], device: torch.device) -> "SnapshotStore":
        """Make the store from its tensors."""
        store = cls()
        parts: dict[int, dict[str, Tensor]] = {}
        for name, part in state.items():
            number, _, of = name.partition(".")
            parts.setdefault(int(number), {})[of] = part.to(device)
        store.blocks = [Block(parts[k]) for k in range(len(parts))]
        return store


def save_events(table: Timetable, store: SnapshotStore) -> dict[str, Any]:
    """Return the timetable and all messages as plain values."""
    links = table.links
    messages: dict[int, int] = {}
    listed: list[list[Any]] = []

    def of(message: Message | None) -> int | None:
        if message is None:
            return None
        if id(message) not in messages:
            messages[id(message)] = len(listed)
            listed.append([message.iteration, message.stamp, store.number(message.content)])
        return messages[id(message)]

    # Channels that links share are the same object: the first link of each stands for it.
    first = {id(channel): link for link, channel in reversed(list(enumerate(links.channel_of)))}
    channels = {
        str(link): [channel.busy_until, [[other, of(message)] for other, message in channel.waiting]]
        for link, channel in enumerate(links.channel_of)
        if first[id(channel)] == link
    }
    return {
        "now": table.now,
        **{name: getattr(table, name) for name in _LISTS},
        "state": [int(state) for state in table.state],
        "spent": {str(int(state)): spent for state, spent in table.spent.items()},
        "log": table.log,
        **table.internals(),
        "channels": channels,
        "flights": [[[f.sent, f.arrival, of(f.message)] for f in flights] for flights in links.flights],
        "held": [of(message) for message in links.held],
        "before": [of(message) for message in links.before],
        "heard_at": links.heard_at,
        "interval": links.interval,
        "up": links.up,
        "sent": links.sent,
        "message_log": links.log,
        "messages": listed,
    }


def load_events(table: Timetable, saved: Mapping[str, Any], store: SnapshotStore) -> None:
    """Restore what `save_events` returned."""
    table.now = saved["now"]
    for name in _LISTS:
        setattr(table, name, saved[name])
    table.state = [State(state) for state in saved["state"]]
    table.spent = {State(int(state)): spent for state, spent in saved["spent"].items()}
    table.log = [(agent, State(state), begin, end) for agent, state, begin, end in saved["log"]]
    heap = [(time, Event(event), agent, version) for time, event, agent, version in saved["heap"]]
    table.restore(heap, saved["version"], saved["taken_changes"])
    _load_messages(table.links, saved, store)


def _load_messages(links: Deliveries, saved: Mapping[str, Any], store: SnapshotStore) -> None:
    listed = [Message(iteration, stamp, store.snapshot(number)) for iteration, stamp, number in saved["messages"]]

    def of(number: int | None) -> Message | None:
        return None if number is None else listed[number]

    for link, (busy_until, waiting) in saved["channels"].items():
        channel = links.channel_of[int(link)]
        channel.busy_until, channel.waiting = busy_until, [(other, listed[number]) for other, number in waiting]
    links.flights = [deque(Flight(sent, arrival, listed[k]) for sent, arrival, k in of) for of in saved["flights"]]
    links.held, links.before = ([of(number) for number in saved[name]] for name in ("held", "before"))
    links.heard_at, links.interval, links.up = saved["heard_at"], saved["interval"], saved["up"]
    links.sent, links.log = saved["sent"], [(a, b, begin, end) for a, b, begin, end in saved["message_log"]]


def to_tensor(values: Any) -> Tensor:
    """Return plain values as a tensor of bytes."""
    return torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8).clone()


def from_tensor(written: Tensor) -> Any:
    """Return the plain values of a tensor of bytes."""
    return json.loads(bytes(written.cpu().tolist()))
