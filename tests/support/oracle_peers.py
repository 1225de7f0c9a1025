"""The slow truth for SDM-ASGD, AD-PSGD, CDMSGD, FedDelAvg, local SGD, SWIFT and DiLoCo.

A rule is a function of one agent's `oracle.View`; one that remembers is an object with a memory for each agent.
`oracle.run` moves the messages. Where agents do not send at every step, `sent_at` says what arrives.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from oracle import Matrix, Vector, View, clip, dm_asgd, mix_current, own_state, sync

Noise = Callable[[int], tuple[np.ndarray, float]]  # of step t: a number for each agent, and the shared one


def sent_at(delays: Callable[[int], Matrix], period: Matrix) -> Callable[[int], Matrix]:
    """The delays when k speaks to i at the multiples of period[i, k] only, as `oracle.run` takes them.

    A message of step s has the delay that is drawn then, delays(s), and at t the newest counts that is there by then.
    What was sent before step 0 is as late as what would arrive now, rounded to the last time of speaking.
    """

    def newest(t: int) -> Matrix:
        delay = np.array(delays(t))
        for i in range(len(delay)):
            for k in range(len(delay)):
                p = int(period[i, k])
                if p == 1:
                    continue
                there = [s for s in range(0, t + 1, p) if 0 <= delays(s)[i, k] <= t - s]
                if there:
                    delay[i, k] = t - there[-1]
                elif delay[i, k] > t:
                    delay[i, k] += (t - delay[i, k]) % p
                else:
                    delay[i, k] = -1
        return delay

    return newest


def alone(view: View) -> Vector:
    """x - eta v."""
    return view.x - view.lr * view.v


@dataclass
class LocalSgd:
    """x + sum over what is new of kappa w (x_k(s) - x_i(s)) - eta v; merge "average": x_i(t) stands for x_i(s)."""

    every: int
    merge: str = "delta"
    seen: dict[tuple[int, int], int] = field(default_factory=dict)  # (receiver, sender) -> the newest step merged

    def __call__(self, view: View) -> Vector:
        new = alone(view)
        models = {k: (view.t, x) for k, x in view.fresh.items()}
        models |= {k: (message.step, message.x) for k, message in view.late.items()}
        for k, (step, x) in models.items():
            if step <= self.seen.get((view.i, k), -(10**9)):
                continue
            self.seen[view.i, k] = step
            if self.merge == "delta":
                kappa = 1 / (1 + (view.t - step) // self.every)
                new = new + kappa * view.w_row[k] * (x - own_state(view, step))
            else:
                new = new + view.w_row[k] * (x - view.x)
        return new


def swift_coefficients(links: Matrix) -> Matrix:
    """Agents by falling degree: an equal part of what is left for each open link and for themselves; see SWIFT's code.

    Of a link's two offers the smaller holds.
    """
    n = len(links)
    degree = [int(sum(row)) for row in links]
    c: dict[tuple[int, int], float] = {}
    for turn in sorted(set(degree), reverse=True):
        left = [1 - sum(c.get((i, k), 0.0) for k in range(n)) for i in range(n)]
        open_ = [[k for k in range(n) if links[i, k] and (i, k) not in c] for i in range(n)]
        offer = [left[i] / (1 + len(open_[i])) for i in range(n)]
        for i in range(n):
            for k in open_[i]:
                if turn in (degree[i], degree[k]):
                    c[i, k] = min(offer[i], offer[k])
    return np.array([[c.get((i, k), 0.0) for k in range(n)] for i in range(n)])


def swift(view: View, *, every: int, influence: Vector, c: Matrix) -> Vector:
    """x + sum_j q_ij (x_j - x) - eta v at the multiples of H, p_i q_ij = c_ij min(p_i, p_j)."""
    new = alone(view)
    if view.t % every:
        return new
    for j, x in {**view.fresh, **{k: message.x for k, message in view.late.items()}}.items():
        q = c[view.i, j] * min(influence[view.i], influence[j]) / influence[view.i]
        new = new + q * (x - view.x)
    return new


def feddelavg(view: View, *, alpha: float | str, every: int = 1) -> Vector:
    """alpha W~x + (1 - alpha) (mean of the late states, the own one of their times included) - eta v, every H steps."""
    if view.t % every:
        return alone(view)
    if not view.late:
        return clip(view)
    weight = {k: view.w_row[k] for k in view.late}
    late = sum(weight.values())
    then = sum(weight[k] / late * own_state(view, view.late[k].step) for k in view.late)
    mean = sum(weight[k] * view.late[k].x for k in view.late) + view.w_row[view.i] * then
    mean = mean / (late + view.w_row[view.i])
    if alpha == "auto":
        alpha = 1 - sum(weight[k] / (1 + view.late[k].age) for k in view.late)
    mixed = clip(replace(view, v=np.zeros_like(view.v)))
    return alpha * mixed + (1 - alpha) * mean - view.lr * view.v


@dataclass
class SdmAsgd:
    """DM-ASGD's step less psi (x - (2 m - n)); m follows x and n follows m, each 1/(1+L) of its way."""

    damping: float
    lag: float
    gain: float | str = "auto"
    m: dict[int, Vector] = field(default_factory=dict)
    n: dict[int, Vector] = field(default_factory=dict)

    def __call__(self, view: View) -> Vector:
        m, n = self.m.get(view.i, view.past[0]), self.n.get(view.i, view.past[0])
        m = (self.lag * m + view.x) / (1 + self.lag)
        n = (self.lag * n + m) / (1 + self.lag)
        self.m[view.i], self.n[view.i] = m, n
        return dm_asgd(view, gain=self.gain) - self.damping * (view.x - (2 * m - n))


@dataclass
class Cdmsgd:
    """V <- mu V - eta g, at x or at x + mu V; W x + V."""

    mu: float
    gradient: Callable[[int, Vector, int], Vector] | None = None  # of agent i at x and t, for Nesterov's form
    velocity: dict[int, Vector] = field(default_factory=dict)

    def __call__(self, view: View) -> Vector:
        V = self.velocity.get(view.i, np.zeros_like(view.x))
        g = view.g if self.gradient is None else self.gradient(view.i, view.x + self.mu * V, view.t)
        self.velocity[view.i] = self.mu * V - view.lr * g
        return sync(replace(view, v=np.zeros_like(view.v))) + self.velocity[view.i]


def greedy_pairs(links: Matrix, chance: float) -> dict[int, int]:
    """Greedy matching over the links in random order."""
    n = len(links)
    edges = [(i, k) for i in range(n) for k in range(i + 1, n) if links[i, k]]
    shuffled = np.random.default_rng(int(chance * 2**53)).permutation(len(edges))
    paired: dict[int, int] = {}
    for number in shuffled.tolist():
        i, k = edges[number]
        if i not in paired and k not in paired:
            paired[i], paired[k] = k, i
    return paired


@dataclass
class AdPsgd:
    """Half of the difference to the partner; at a round's end half of that of the round's beginning; -eta v."""

    links: Matrix
    instant: Matrix  # links that are never late nor lossy in either direction
    noise: Noise
    steps: int  # of a round
    begun: dict[tuple[int, int], Vector] = field(default_factory=dict)  # (agent, round) -> state at its beginning

    def __call__(self, view: View) -> Vector:
        i, (number, place) = view.i, divmod(view.t, self.steps)
        if place == 0:
            self.begun[i, number] = view.x
        new = view.x - view.lr * view.v
        partner = greedy_pairs(self.instant, self.noise(view.t)[1]).get(i)
        if partner in view.fresh:
            new = new + (view.fresh[partner] - view.x) / 2
        if place == self.steps - 1:
            beginning = number * self.steps
            partner = greedy_pairs(self.links & ~self.instant, self.noise(beginning)[1]).get(i)
            held = dict.fromkeys(view.fresh, view.t) | {k: max(late.step, 0) for k, late in view.late.items()}
            if held.get(partner, -1) >= beginning:
                new = new + (self.begun[partner, number] - self.begun[i, number]) / 2
        return new


@dataclass
class OneSidedAdPsgd:
    """Half of oneself and half of one peer, then -eta v."""

    links: Matrix
    reliable: Matrix  # links that are never late nor lossy in either direction
    noise: Noise

    def __call__(self, view: View) -> Vector:
        models = view.fresh | {k: message.x for k, message in view.late.items()}
        others = [k for k in sorted(models) if not self.reliable[view.i, k]]
        chance, degree = float(self.noise(view.t)[0][view.i]), int(self.links[view.i].sum())
        peer = greedy_pairs(self.reliable, self.noise(view.t)[1]).get(view.i)
        for place, k in enumerate(others):
            if place / degree <= chance < (place + 1) / degree:
                peer = k
        met = view.x if peer is None or peer not in models else models[peer]
        return (view.x + met) / 2 - view.lr * view.v


def exchange_matrix(W: Matrix) -> Matrix:
    """W when none of its eigenvalues is negative, else half of it and half of the identity."""
    return W if np.linalg.eigvalsh(W).min() > -1e-9 else 0.5 * W + 0.5 * np.eye(len(W))


@dataclass
class DiLoCo:
    """Inner steps inside of islands; outer steps along every way that has not been counted yet, and each once."""

    W: Matrix  # of the exchange, see exchange_matrix
    spared: Matrix  # links inside of the islands
    every: int
    outer_lr: float
    mu: float
    delayed: bool = False
    anchors: dict[tuple[int, int], Vector] = field(default_factory=dict)  # (agent, round) -> anchor before it
    ways: dict[tuple[int, int], Vector] = field(default_factory=dict)  # (agent, round) -> anchor - x
    counted: dict[tuple[int, int], int] = field(default_factory=dict)  # (receiver, sender) -> rounds
    momentum: dict[int, Vector] = field(default_factory=dict)
    previous: dict[int, Vector] = field(default_factory=dict)

    def __call__(self, view: View) -> Vector:
        if view.t == 0:
            self.anchors[view.i, 1] = view.x
        return self.outer(view) if view.t and view.t % self.every == 0 else self.inner(view)

    def inner(self, view: View) -> Vector:
        """W~ on the island; what W~ gives to others stays at home."""
        row = np.where(self.spared[view.i], view.clip_row, 0.0)
        row[view.i] = 1 - row.sum()
        return mix_current(view, row)

    def outer(self, view: View) -> Vector:
        i, number = view.i, view.t // self.every
        self.ways[i, number] = self.anchors[i, number] - view.x
        island = self.W[i, i] * self.ways[i, number]
        others = np.zeros_like(view.x)
        for k in [*view.fresh, *view.late]:
            held = number if k in view.fresh else max(view.late[k].step, 0) // self.every
            for r in range(self.counted.get((i, k), 0) + 1, held + 1):
                # A neighbour may not have taken its turn in this round, so its way is found here.
                way = self.ways[k, r] if r < number else self.anchors[k, r] - view.fresh[k]
                if self.spared[i, k]:
                    island = island + self.W[i, k] * way
                else:
                    others = others + self.W[i, k] * way
            self.counted[i, k] = max(held, self.counted.get((i, k), 0))
        used = self.previous.get(i, np.zeros_like(view.x)) if self.delayed else island
        self.previous[i] = island
        return self.move(i, number, used + others) - view.lr * view.v

    def move(self, i: int, number: int, way: Vector) -> Vector:
        """Nesterov's step of the anchor."""
        self.momentum[i] = self.mu * self.momentum.get(i, np.zeros_like(way)) + way
        anchor = self.anchors[i, number] - self.outer_lr * (self.mu * self.momentum[i] + way)
        self.anchors[i, number + 1] = anchor
        return anchor
