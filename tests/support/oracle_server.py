"""The slow truth for rules with a parameter server, in float64 numpy, message by message.

One agent, the server s, keeps the model w. At step t it takes the gradients that it did not hold a step ago, its own
among them, corrects each by its rule (c_k), and steps along their sum over N. Everyone else takes the newest model of
the server that it holds. Symbols are those of the rules' own papers. Nothing is shared with the package under test.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import oracle

Vector = np.ndarray  # [d], float64


@dataclass(frozen=True)
class Message:
    """What an agent says of one step."""

    x: Vector  # the model at which g was taken; of the server, the model
    g: Vector
    stamp: int  # the step at which the server had this model
    share: float
    ms: Vector  # the sender's mean square of gradients, with g in it


@dataclass
class Server:
    """All that the server remembers."""

    number: int
    n: int
    lr: float
    t: int = 0
    momentum: Vector | float = 0.0
    rounds: Vector | float = 0.0  # of delayed Nesterov: its momentum, and what waits for the next round
    waiting: list[Vector] = field(default_factory=list)
    moves: list[Vector] = field(default_factory=list)  # every step so far
    heard: dict[int, list[int]] = field(default_factory=dict)  # sender -> the steps of its arrivals
    shares: dict[int, float] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)  # step -> gradients applied
    moved: dict[int, float] = field(default_factory=dict)  # step -> the mean of their scales


def plain(server: Server, w: Vector, k: int, message: Message) -> Vector:
    """c = g."""
    return message.g


def compensated(server: Server, w: Vector, k: int, message: Message, *, lam0: float) -> Vector:
    """c = g + lam0 g g (w - x)."""
    return message.g + lam0 * message.g**2 * (w - message.x)


def compensated_adaptively(server: Server, w: Vector, k: int, message: Message, *, lam0: float, **_) -> Vector:
    """c = g + lam0 / sqrt(MS + 1e-7) g g (w - x)."""
    return message.g + lam0 / np.sqrt(message.ms + 1e-7) * message.g**2 * (w - message.x)


def importance(server: Server, w: Vector, k: int, message: Message) -> Vector:
    """c = (p / q) g, p the share of the data and q the share of the arrivals, of all agents heard so far."""
    rates = {j: len(steps) / (server.t - steps[0] + 1) for j, steps in server.heard.items()}
    p = server.shares[k] / sum(server.shares.values())
    q = rates[k] / sum(rates.values())
    return p / q * message.g


def gap_aware(server: Server, w: Vector, k: int, message: Message) -> Vector:
    """c = g / (1 + |w - x| / rms), rms over the server's past steps with weights that fall by 0.999 a step."""
    if not server.moves:
        return message.g
    weights = [0.999**back for back in reversed(range(len(server.moves)))]
    mean = sum(a * move**2 for a, move in zip(weights, server.moves, strict=True)) / sum(weights)
    return message.g / (1 + np.abs(w - message.x) / (np.sqrt(mean) + 1e-12))


def by_delay(
    server: Server,
    w: Vector,
    k: int,
    message: Message,
    *,
    rule: str = "mishchenko",
    alpha: float = 0.9,
    limit: int = 10,
) -> Vector:
    """c = s g, s by the delay: the papers' formulas with sums over the server's steps r since the model's own.

    applied[r] gradients were applied at step r, and moved[r] is the mean over the agents of their s.
    """
    since = range(message.stamp, server.t)
    age, allowed = len(since), 1 - sum(server.moved.get(r, 0.0) for r in since)
    s = {
        "mishchenko": server.n / max(server.n, sum(server.applied.get(r, 0) for r in since)),
        "wu": alpha * max(0.0, allowed),
        "wu-2": 1 / (1 + age) if 1 / (1 + age) <= allowed + 1e-5 else 0.0,
        "cutoff": float(age <= limit),
        "inverse": 1 / (1 + age),
    }[rule]
    server.applied[server.t] = server.applied.get(server.t, 0) + 1
    server.moved[server.t] = server.moved.get(server.t, 0.0) + s / server.n
    return s * message.g


def braked(
    server: Server,
    w: Vector,
    k: int,
    message: Message,
    *,
    mu: float,
    rho: float = 2.0,
    lengths: list[int] | None = None,
) -> Vector:
    """c = (1 - rho cos(g, V)) g, V the velocity before the step; by tensor if their lengths are given."""
    c, begin = np.zeros_like(message.g), 0
    velocity = server.momentum if isinstance(server.momentum, np.ndarray) else np.zeros_like(message.g)
    for length in lengths or [len(message.g)]:
        part = slice(begin, begin + length)
        g, V = message.g[part], velocity[part]
        cosine = float(g @ V) / max(float(np.linalg.norm(g) * np.linalg.norm(V)), oracle.TINY)
        c[part] = (1 - rho * cosine) * g
        begin += length
    return c


CORRECTIONS: dict[str, Callable[..., Vector]] = {
    "asgd": plain,
    "dc-asgd-c": compensated,
    "dc-asgd-a": compensated_adaptively,
    "dasgd-is": importance,
    "gap-aware": gap_aware,
    "delay-adaptive": by_delay,
    "delayed-nesterov": plain,
    "adaptive-braking": braked,
}


def next_model(server: Server, w: Vector, pushed: list[Vector], server_momentum: float, beta: float | None) -> Vector:
    """w - eta m with m <- mu m + u; delayed Nesterov adds -eta beta m once as many came as there are agents."""
    u = sum(pushed) / server.n
    server.momentum = server_momentum * server.momentum + u
    new = w - server.lr * server.momentum
    if beta is not None:
        server.waiting += pushed
        if len(server.waiting) >= server.n:
            server.rounds = beta * server.rounds + np.mean(server.waiting, axis=0)
            server.waiting = []
            new = new - server.lr * beta * server.rounds
    return new


def run(
    name: str,
    *,
    server: int,
    delays: Callable[[int], np.ndarray],
    x0: np.ndarray,
    gradient: Callable[[np.ndarray, int], np.ndarray],
    lr: float,
    steps: int,
    startup: str,
    share: np.ndarray | None = None,
    server_momentum: float = 0.0,
    beta: float | None = None,
    **options,
) -> np.ndarray:
    """The path [steps + 1, n, d]; delays and start-up as in oracle.run."""
    n = len(x0)
    me = Server(server, n, lr)
    share = np.ones(n) if share is None else share
    xs, said = [np.array(x0, dtype=np.float64)], []
    newest: dict[tuple[int, int], int] = {}
    stamps, ms = [0] * n, [np.zeros(x0.shape[1]) for _ in range(n)]
    for t in range(steps):
        me.t = t
        g = np.array(gradient(xs[t].copy(), t), dtype=np.float64)
        decay = options.get("ms_decay", 0.95)
        ms = [decay * ms[k] + (1 - decay) * g[k] ** 2 for k in range(n)]
        stamps[server] = t
        said.append([Message(xs[t][k], g[k], stamps[k], float(share[k]), ms[k]) for k in range(n)])
        before = dict(newest)
        oracle.receive(newest, np.asarray(delays(t)), t, startup)

        arrived = {server: said[t][server]}
        for k in range(n):
            label = newest.get((server, k))
            if label is not None and label > before.get((server, k), -math.inf):
                arrived[k] = said[max(label, 0)][k]
        for k, message in arrived.items():
            me.heard.setdefault(k, []).append(t)
            me.shares[k] = message.share
        w = xs[t][server]
        pushed = [CORRECTIONS[name](me, w, k, message, **options) for k, message in arrived.items()]
        new = xs[t].copy()
        new[server] = next_model(me, w, pushed, options.get("mu", server_momentum), beta)
        me.moves.append(new[server] - w)
        for i in range(n):
            label = newest.get((i, server))
            if i != server and label is not None:
                message = said[max(label, 0)][server]
                new[i], stamps[i] = message.x, message.stamp
        xs.append(new)
    return np.array(xs)
