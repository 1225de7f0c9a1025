"""D-ASGD on a graph that changes, from the definition: one agent, one message at a time, in float64."""

from collections.abc import Callable

import numpy as np

from gossamer.network import Network, Rounds

Pairs = set[tuple[int, int]]


def pairs_of(net: Network, seed: int, round_number: int) -> Pairs:
    """The links in use, (receiver, sender)."""
    used = Rounds(net, seed).used(round_number)
    links = net.pattern.part(used)
    return set(zip(links.receivers.tolist(), links.senders.tolist(), strict=True))


def metropolis(n: int, pairs: Pairs, lazy: bool = False) -> np.ndarray:
    """w_ij = 1 / (1 + max(deg_i, deg_j)) on the links in use; an agent keeps the rest."""
    degree = [sum(receiver == i for receiver, _ in pairs) for i in range(n)]
    w = np.zeros((n, n))
    for i, k in pairs:
        w[i, k] = (0.5 if lazy else 1.0) / (1 + max(degree[i], degree[k]))
    return w + np.diag(1 - w.sum(axis=1))


def d_asgd_path(
    pairs_at: Callable[[int], Pairs],
    delay: Callable[[int, int], int],
    x0: np.ndarray,
    gradient: Callable[[np.ndarray, int], np.ndarray],
    lr: float,
    steps: int,
    *,
    lazy: bool = False,
) -> np.ndarray:
    """[steps + 1, n, d]: the mean of what is held over the links in use, the newest of each, less lr times gradient."""
    n, xs = len(x0), [np.array(x0, dtype=np.float64)]
    for t in range(steps):
        now, g, new = pairs_at(t), gradient(xs[t], t), np.zeros_like(xs[0])
        w = metropolis(n, now, lazy)
        for i in range(n):
            held = {i: t}
            for k in (k for receiver, k in now if receiver == i):
                sent = [s for s in range(t - delay(i, k) + 1) if (i, k) in pairs_at(s)]
                if sent:
                    held[k] = max(sent)
            mass = sum(w[i, k] for k in held)
            new[i] = sum(w[i, k] / mass * xs[s][k] for k, s in held.items()) - lr * g[i]
        xs.append(new)
    return np.array(xs)
