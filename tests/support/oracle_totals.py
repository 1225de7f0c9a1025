"""The slow truth of the rules that push running totals or track gradients, agent by agent and link by link.

Written from the equations in float64 numpy, as oracle.py is, which also says what the symbols mean and which messages
an agent holds. Pushes are kept one by one here: no running total is formed.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import oracle
from oracle import Matrix

Kappa = Callable[[int], float]  # the gain of an age
Held = dict[tuple[int, int], int]  # (receiver, sender) -> the step of the message it holds


@dataclass(frozen=True)
class Setting:
    """What a run is given: W, its delays and the losses."""

    W: Matrix
    late: Matrix  # how late a link is expected to be, 0 where it is never late
    delays: Callable[[int], Matrix]
    clip_of: Callable[[Matrix], Matrix]
    x0: Matrix
    gradient: Callable[[Matrix, int], Matrix]
    lr: Callable[[int], float]
    steps: int
    startup: str
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def n(self) -> int:
        return len(self.W)

    def directions(self) -> Callable[[Matrix, int], Matrix]:
        """v of (x, t), to be called once a step."""
        memory = None

        def direction(x: Matrix, t: int) -> Matrix:
            nonlocal memory
            v, memory = oracle.sgd_direction(x, self.gradient(x, t), memory, self.momentum, False, self.weight_decay)
            return v

        return direction

    def messages(self) -> Iterator[tuple[int, Held, Held, Matrix]]:
        """The step, what was held before it, what is held at it, and which links are current."""
        held: Held = {}
        for t in range(self.steps):
            before = dict(held)
            reliable = oracle.receive(held, np.asarray(self.delays(t)), t, self.startup)
            yield t, before, dict(held), reliable


def shares_of(setting: Setting) -> Matrix:
    """a_ij: W's weight, less on links that can be late; a sender keeps what it does not push."""
    n, a = setting.n, np.zeros_like(setting.W)
    for j in range(n):
        for i in range(n):
            if i != j:
                a[i, j] = setting.W[i, j] / (1 + setting.late[i, j])
        a[j, j] = 1 - sum(a[i, j] for i in range(n) if i != j)
    return a


def arrived(pushes: list[Matrix], before: Held, now: Held, i: int, j: int) -> Matrix:
    """The sum of what j pushed after the message that i held before, up to the one it holds now."""
    total = np.zeros_like(pushes[0][j])
    if (i, j) not in now:
        return total
    known = max(before[i, j], 0) if (i, j) in before else -1
    for step in range(known + 1, max(now[i, j], 0) + 1):
        total = total + pushes[step][j]
    return total


def sgp(setting: Setting) -> np.ndarray:
    """y <- y - eta v; y' = a_ii y_i + sum_j a_ij (arrived of j); omega likewise; x = y / omega."""
    a, direction = shares_of(setting), setting.directions()
    path, y, omega = [setting.x0], setting.x0.copy(), np.ones((setting.n, 1))
    pushed, pushed_weight = [], []
    for t, before, now, _ in setting.messages():
        pushed.append(y - setting.lr(t) * direction(path[t], t))
        pushed_weight.append(omega)
        y, omega = np.zeros_like(y), np.zeros_like(omega)
        for i in range(setting.n):
            y[i] = a[i, i] * pushed[t][i]
            omega[i] = a[i, i] * pushed_weight[t][i]
            for j in range(setting.n):
                if j != i:
                    y[i] = y[i] + a[i, j] * arrived(pushed, before, now, i, j)
                    omega[i] = omega[i] + a[i, j] * arrived(pushed_weight, before, now, i, j)
        path.append(y / omega)
    return np.array(path)


def dga(setting: Setting) -> np.ndarray:
    """x' = x - eta v - (C(t) - C(t-1)), C_i = c sum_j w_ij (Gamma_j(s_ij) - Gamma_i(s_ij)), Gamma(-1) = -x(0)."""
    direction = setting.directions()
    c = 1 / (1 - min(0.0, float(np.linalg.eigvalsh(setting.W).min())))
    path, gammas, correction = [setting.x0], [], np.zeros_like(setting.x0)
    for t, _, now, _ in setting.messages():
        step = setting.lr(t) * direction(path[t], t)
        gammas.append((gammas[-1] if gammas else -setting.x0) + step)
        new, next_correction = np.zeros_like(step), np.zeros_like(step)
        for i in range(setting.n):
            for j in range(setting.n):
                if (i, j) in now:
                    then = gammas[max(now[i, j], 0)]
                    next_correction[i] += c * setting.W[i, j] * (then[j] - then[i])
            new[i] = path[t][i] - step[i] - (next_correction[i] - correction[i])
        correction = next_correction
        path.append(new)
    return np.array(path)


def dc_s3gd(setting: Setting, lam0: float = 0.2) -> np.ndarray:
    """x' = x + D + Delta, Delta = -eta m, m <- mu m + g + wd x + lam g g D, lam = lam0 |g| / |g g D|.

    D(t) = C(t) - C(t-1), C_i = c sum_j w_ij (U_j(s_ij) - U_i(s_ij)), U(s) = x(0) + the sum of Delta before s.
    """
    c = 1 / (1 - min(0.0, float(np.linalg.eigvalsh(setting.W).min())))
    path, totals, m, correction = [setting.x0], [setting.x0], None, np.zeros_like(setting.x0)
    for t, _, now, _ in setting.messages():
        g = setting.gradient(path[t], t)
        next_correction, compensated = np.zeros_like(g), g + setting.weight_decay * path[t]
        for i in range(setting.n):
            for j in range(setting.n):
                if (i, j) in now:
                    then = totals[max(now[i, j], 0)]
                    next_correction[i] += c * setting.W[i, j] * (then[j] - then[i])
        D, correction = next_correction - correction, next_correction
        for i in range(setting.n):
            rounding = np.linalg.norm(D[i]) <= 1e-13 * np.linalg.norm(totals[t][i])
            ggD = np.zeros_like(D[i]) if rounding else g[i] * g[i] * D[i]
            lam = lam0 * np.linalg.norm(g[i]) / (np.linalg.norm(ggD) + oracle.TINY)
            compensated[i] += lam * ggD if t > 0 else 0
        m = compensated if m is None else setting.momentum * m + compensated
        totals.append(totals[-1] - setting.lr(t) * m)
        path.append(path[t] + D - setting.lr(t) * m)
    return np.array(path)


def mix_matched(i: int, t: int, parts: list[Matrix], now: Held, clip_row: Matrix, W: Matrix, kappa: Kappa) -> Matrix:
    """sum_{j in R} w~_ij m_j(t) + sum_{k not in R} kappa(tau) w_ik (m_k(s) - m_i(s))."""
    mixed = clip_row[i] * parts[t][i]
    for k in range(len(W)):
        if (i, k) not in now:
            continue
        if now[i, k] == t:
            mixed = mixed + clip_row[k] * parts[t][k]
        else:
            age, then = t - now[i, k], parts[max(now[i, k], 0)]
            mixed = mixed + kappa(age) * W[i, k] * (then[k] - then[i])
    return mixed


def dsgt(setting: Setting, gain: str = "auto") -> np.ndarray:
    """y(t) = M y(t-1) + v(t) - v(t-1), y(0) = v(0); x(t+1) = M x(t) - eta M y(t)."""
    direction, W = setting.directions(), setting.W
    kappa = functools.partial(oracle.gain_at, momentum=setting.momentum, gain=gain)
    path, trackers, mixed, last = [setting.x0], [], None, None
    for t, _, now, reliable in setting.messages():
        v = direction(path[t], t)
        trackers.append(v if mixed is None else mixed + v - last)
        last, clip, new, mixed = v, setting.clip_of(reliable), np.zeros_like(v), np.zeros_like(v)
        for i in range(setting.n):
            mixed[i] = mix_matched(i, t, trackers, now, clip[i], W, kappa)
            new[i] = mix_matched(i, t, path, now, clip[i], W, kappa) - setting.lr(t) * mixed[i]
        path.append(new)
    return np.array(path)


def r_fast(setting: Setting, descends: str = "kept") -> np.ndarray:
    """u = x - eta a_ii z; x' = sum_j w_ij u_j over what was heard; z' = a_ii z_i + sum_j a_ij (arrived of j) + v' - v.

    At step 0 z is v, all of it is kept and nothing is pushed. "whole": u = x - eta z, and z is split at once.
    """
    a, direction, W = shares_of(setting), setting.directions(), setting.W
    path, pushes, stepped, after, last = [setting.x0], [], [], None, None
    for t, before, now, _ in setting.messages():
        v = direction(path[t], t)
        z = v if after is None else after + v - last
        split = t > 0 or descends == "whole"
        kept = np.array([(a[i, i] if split else 1.0) * z[i] for i in range(setting.n)])
        pushes.append(z if split else np.zeros_like(z))
        stepped.append(path[t] - setting.lr(t) * (kept if descends == "kept" else z))
        last, after, new = v, kept.copy(), np.zeros_like(v)
        for i in range(setting.n):
            total, weight = W[i, i] * stepped[t][i], W[i, i]
            for j in range(setting.n):
                if (i, j) in now:
                    after[i] = after[i] + a[i, j] * arrived(pushes, before, now, i, j)
                    total = total + W[i, j] * stepped[max(now[i, j], 0)][j]
                    weight += W[i, j]
            new[i] = total / weight
        path.append(new)
    return np.array(path)


RULES = {"sgp": sgp, "dga": dga, "dc-s3gd": dc_s3gd, "dsgt": dsgt, "r-fast": r_fast}
