"""A script that four agents on two hosts run, and what each of them has told when it ends."""

import itertools
import json
import statistics

CLUSTERS = [[0, 1], [2, 3]]
PACE = 0.010  # seconds an iteration
STALL, AFTER = 0.2, 1.0  # seconds between two steps that are a stall, and for which the others then feel it
STEPS, MOST_STEPS = 600, 12_000  # since the clusters were found, by agents that all were there; and at all

# Every agent would go to its own number; together they go to the mean of all, in clusters to that of the cluster.
TRAINS = f"""
import json, time
import torch
import gossamer as gm
from wire import hurry

hurry()
agent = gm.join()
x = torch.nn.Parameter(torch.zeros(8))
optimizer = gm.optim.Decentralized([x], lr=0.02, agent=agent)
steps, found, since, due = [], None, 0, time.monotonic()
while since < {STEPS} and len(steps) < {MOST_STEPS}:
    optimizer.zero_grad()
    ((x - agent.rank) ** 2).sum().div(2).backward()
    began = time.monotonic()
    optimizer.step()
    steps.append((began, time.monotonic(), x.mean().item(), [optimizer.last.ages.get(peer, 0) for peer in range(4)]))
    if (agent.discovered or {{}}).get("clusters") == {CLUSTERS}:
        found = agent.discovered
    since += found is not None
    due = max(due + {PACE}, time.monotonic())
    time.sleep(max(0.0, due - time.monotonic()))
told = {{
    "steps": steps,
    "found": found,
    "offsets": [0 if peer == agent.rank else agent.transport.offset(peer) for peer in range(4)],
    "counts": dict(agent.transport.counts),
}}
(agent.folder / f"told-{{agent.rank}}.json").write_text(json.dumps(told))
"""


class Told:
    """What one agent has told, its times on the first host's clock."""

    def __init__(self, folder, rank, ahead):
        told = json.loads((folder / f"told-{rank}.json").read_text())
        self.found, self.counts = told["found"], told["counts"]
        self.offsets = [nanoseconds / 1e9 for nanoseconds in told["offsets"]]
        self.steps = [(began - ahead, ended - ahead, x, ages) for began, ended, x, ages in told["steps"]]

    def stalls(self):
        """From when to when this agent stood still, because the machine did, or was still felt to have."""
        ends = [ended for _, ended, *_ in self.steps]
        return [(before, after + AFTER) for before, after in itertools.pairwise(ends) if after - before > STALL]

    def between(self, first, last, disturbed):
        """The iterations from one time to another, without those in which some agent had stood still."""
        return [
            t
            for t, (began, ended, *_) in enumerate(self.steps)
            if began >= first and ended <= last and not any(a < ended and began < b for a, b in disturbed)
        ]

    def interval(self, during):
        """The usual time from one iteration to the next."""
        return statistics.median(self.steps[t][1] - self.steps[t - 1][1] for t in during)

    def ages(self, peer, during):
        return [self.steps[t][3][peer] for t in during]

    def seconds(self, peer, during):
        """Between which limits the time lies since the messages of a peer were sent, by the ages in iterations."""
        for t, age in zip(during, self.ages(peer, during), strict=True):
            if age >= 0:
                yield self.steps[t][0] - self.steps[t - age][1], self.steps[t][1] - self.steps[max(t - age - 1, 0)][0]
