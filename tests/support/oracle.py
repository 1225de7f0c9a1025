"""The slow, literal truth: every rule for one agent, in float64 numpy, written from the printed equations.

Nothing is fast and nothing is shared with the package under test. An agent is handed a `View`, all that it
holds at step t, and a rule returns its next state. `run` moves the messages and repeats the rule.

Symbols are the paper's: x^i_t the state of agent i, g_i its gradient, eta the learning rate `lr`, w_ij the
mixing matrix W, wt_ij the clipping matrix, R_i the reliable neighbours, tau the age of a late message. Where
the paper steps along g, v stands here, the direction of the local optimiser; plain SGD has v = g.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Vector = np.ndarray  # [d] or a row of n weights, float64
Matrix = np.ndarray  # [n, n] or [n, d]: agents are rows
TINY = 1e-12  # keeps the criteria finite when a displacement is zero


@dataclass(frozen=True)
class Message:
    """What agent k said of its step s. A negative s is a label only: the content is that of step 0."""

    step: int
    age: int  # t - s, positive for a late message
    x: Vector
    g: Vector
    v: Vector


@dataclass(frozen=True)
class View:
    """All that agent i holds at step t."""

    i: int
    t: int
    x: Vector  # x^i_t
    g: Vector  # raw gradient, without momentum or weight decay
    v: Vector  # direction of the local optimiser
    lr: float
    past: list[Vector]  # x^i_0 .. x^i_t
    w_row: Vector  # row i of W, [n]
    clip_row: Vector  # row i of the clipping matrix, [n]
    fresh: dict[int, Vector]  # k -> x^k_t; i itself is not in it
    late: dict[int, Message]
    momentum: float = 0.0  # of the local optimiser


def own_state(view: View, step: int) -> Vector:
    """x^i of a past step; before the start the agent stood at x^i_0."""
    return view.past[max(step, 0)]


def heard_weights(view: View) -> dict[int, float]:
    """w_ij over i itself and everyone it has heard from, divided by their sum."""
    heard = [view.i, *view.fresh, *view.late]
    total = sum(float(view.w_row[j]) for j in heard)
    return {j: float(view.w_row[j]) / total for j in heard}


def curvature_estimate(message: Message, *, lam: float, lam_form: str, curvature: str) -> Vector:
    """h_k, the diagonal estimate of the Hessian: lambda g_k * g_k, element by element (text under eq. 2)."""
    c = {"loss": message.g, "coupled": message.v}[curvature]
    forms = {
        "linear": lam * c * c,
        "squared": lam**2 * c * c,
        "adaptive": lam * c * c / np.sqrt(c * c + 1e-7),
    }
    return forms[lam_form]


def compensated_gradient(
    view: View,
    k: int,
    *,
    lam: float = 1.0,
    lam_form: str = "linear",
    curvature: str = "loss",
    horizon: str = "sum",
    self_consistent: bool = False,
) -> Vector:
    """g^dc_k = sum_{r=0}^{tau-1} [ g_k + lambda g_k g_k (x^i_{t-tau+r} - x^i_{t-tau}) ]   (eq. 2)."""
    message = view.late[k]
    h = curvature_estimate(message, lam=lam, lam_form=lam_form, curvature=curvature)
    if self_consistent:  # the sender's own path in place of x^i: tau explicit steps from x_k
        assert horizon == "sum"
        y = message.x
        for _ in range(message.age):
            y = y - view.lr * (message.v + h * (y - message.x))
        return (message.x - y) / view.lr
    s, tau = message.step, message.age
    start = own_state(view, s)
    if horizon == "none":
        return np.zeros_like(view.x)
    if horizon == "public-code":
        return h * (view.x - start)
    if horizon == "last":
        return message.v + h * (own_state(view, s + tau - 1) - start)

    total = np.zeros_like(view.x)
    for r in range(tau):
        total = total + message.v + h * (own_state(view, s + r) - start)
    return {"sum": total, "mean": total / tau}[horizon]


def predict(view: View, **compensation) -> Vector:
    """Line 6: sum_{j in R} w_ij x^j_t - eta g_i + sum_{k not in R} w_ik (x^k_s - eta g^dc_k)   (Alg. 1)."""
    w = heard_weights(view)
    new = w[view.i] * view.x - view.lr * view.v
    for j, x_j in view.fresh.items():
        new = new + w[j] * x_j
    for k, message in view.late.items():
        new = new + w[k] * (message.x - view.lr * compensated_gradient(view, k, **compensation))
    return new


def mix_current(view: View, row: Vector) -> Vector:
    """sum_j row_j x^j_t - eta g_i. A weight on an agent that is not current is a KeyError."""
    new = row[view.i] * view.x - view.lr * view.v
    for j in range(len(row)):
        if j != view.i and row[j] != 0:
            new = new + row[j] * view.fresh[j]
    return new


def clip(view: View) -> Vector:
    """x_cli = sum_{j in R} wt_ij x^j_t - eta g_i   (Alg. 1, line 7)."""
    return mix_current(view, view.clip_row)


def sync(view: View) -> Vector:
    """sum_j w_ij x^j_t - eta g_i: synchronous, so every neighbour must be current."""
    return mix_current(view, view.w_row)


def d_asgd(view: View) -> Vector:
    """Line 6 of Algorithm 1 without g^dc: stale states are used as they are."""
    return predict(view, horizon="none")


c_asgd = clip


def p_asgd(view: View, **compensation) -> Vector:
    """theta_t = 1: predict; clip when no message is late."""
    return predict(view, **compensation) if view.late else clip(view)


def pc_asgd(
    view: View,
    *,
    theta: float | str,
    criterion: str = "literal",
    granularity: str = "model",
    segments: list[int] | None = None,
    loss: Callable[[Vector], float] | None = None,
    **compensation,
) -> Vector:
    """theta x_pre + (1 - theta) x_cli (Alg. 1, line 8), or for theta "pv" one of the two (Alg. 2)."""
    cli = clip(view)
    if not view.late:
        return cli
    pre = predict(view, **compensation)
    if theta != "pv":
        return theta * pre + (1 - theta) * cli
    if criterion == "loss":
        assert granularity == "model", "a loss belongs to a whole model, not to a tensor of it"
        return pre if -loss(pre) >= -loss(cli) else cli

    step_pre, step_cli = pre - view.x, cli - view.x
    if criterion == "public-code":
        step_pre, step_cli = steps_from_mixed_point(view, **compensation)
    lengths = {"model": [len(view.x)], "tensor": segments}[granularity]
    assert sum(lengths) == len(view.x)
    new = np.zeros_like(view.x)
    begin = 0
    for length in lengths:
        part = slice(begin, begin + length)
        score_pre = score(step_pre[part], view.g[part], criterion)
        score_cli = score(step_cli[part], view.g[part], criterion)
        new[part] = pre[part] if score_pre >= score_cli else cli[part]
        begin += length
    return new


def steps_from_mixed_point(view: View, **compensation) -> tuple[Vector, Vector]:
    """The displacements of both candidates after mixing: -eta v - eta sum_k w_ik g^dc_k, and -eta v."""
    w = heard_weights(view)
    step_pre = step_cli = -view.lr * view.v
    for k in view.late:
        step_pre = step_pre - view.lr * w[k] * compensated_gradient(view, k, **compensation)
    return step_pre, step_cli


def score(step: Vector, g: Vector, criterion: str) -> float:
    """<D, g> / |D| of the PV criterion (eq. 12) and its other readings; the larger score wins."""
    inner, length = float(np.dot(step, g)), float(np.linalg.norm(step))
    readings = {
        "literal": inner / (length + TINY),
        "descent": -inner / (length + TINY),
        "decrease": -inner,
        "public-code": inner / (length * float(np.linalg.norm(g)) + TINY),
    }
    return readings[criterion]


def gain_at(age: int, momentum: float, gain: float | str = "auto") -> float:
    """kappa(tau): 1/(tau+1), half of it with a momentum, or as it is called."""
    named = {"undamped": 1 / (age + 1), "damped": 0.5 / (age + 1), "critical": 1 / (math.e * (age + 0.5))}
    named["auto"] = named["damped"] if momentum > 0 else named["undamped"]
    return named[gain] if isinstance(gain, str) else gain


def dm_asgd(view: View, *, gain: float | str = "auto") -> Vector:
    """x_cli + sum_{k not in R} kappa(tau) w_ik (x^k_s - x^i_s), s = t - tau, with the plain w_ik of W."""
    new = clip(view)
    for k, message in view.late.items():
        kappa = gain_at(message.age, view.momentum, gain)
        new = new + kappa * view.w_row[k] * (message.x - own_state(view, message.step))
    return new


RULES = {"sync": sync, "d_asgd": d_asgd, "c_asgd": c_asgd, "p_asgd": p_asgd}
RULES |= {"pc_asgd": pc_asgd, "dm_asgd": dm_asgd}


def receive(newest: dict[tuple[int, int], int], delay: Matrix, t: int, startup: str) -> Matrix:
    """Put the arrivals of step t into `newest`, in place; return which directed links are current."""
    reliable = np.zeros(delay.shape, dtype=bool)
    for i in range(len(delay)):
        for k in range(len(delay)):
            s = t - int(delay[i, k])
            if i == k or s > t or (s < 0 and startup == "wait"):
                continue
            if s < 0 and startup == "min":
                s = 0
            newest[i, k] = max(s, newest.get((i, k), s))
            reliable[i, k] = newest[i, k] == t
    return reliable


def sgd_direction(
    x: Matrix, g: Matrix, m: Matrix | None, momentum: float, nesterov: bool, weight_decay: float
) -> tuple[Matrix, Matrix]:
    """PyTorch's SGD, dampening 0: u = g + wd x; m <- momentum m + u; v = m, or u + momentum m (Nesterov)."""
    u = g + weight_decay * x
    m = u if m is None else momentum * m + u
    return (u + momentum * m if nesterov else m), m


def run(
    rule: str | Callable[..., Vector],
    *,
    W: Matrix,
    clip_of: Callable[[Matrix], Matrix],
    delays: Callable[[int], Matrix],
    x0: Matrix,
    gradient: Callable[[Matrix, int], Matrix],
    lr: float,
    steps: int,
    startup: str = "wait",
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    direction: Callable[[Matrix, Matrix, int], Matrix] | None = None,  # v of (x, g, t) in place of SGD's
    loss: Callable[[Vector, int, int], float] | None = None,
    **options,
) -> np.ndarray:
    """The path [steps + 1, n, d] of all agents, updated simultaneously.

    delays(t)[i, k] is the delay of the message from k that reaches i at t, -1 for none. Everyone keeps the
    newest message it ever got, so a silent link ages. clip_of sees reliable[i, k]: i holds x^k_t (False for
    i = k). Messages of a negative step: none (startup "wait"), step 0's ("min"), or step 0's content under
    the negative label ("full"). loss(x, i, t) is the loss of agent i; `options` go to the rule.
    """
    assert startup in ("wait", "min", "full")
    rule = RULES[rule] if isinstance(rule, str) else rule
    xs, gs, vs = [np.array(x0, dtype=np.float64)], [], []
    newest: dict[tuple[int, int], int] = {}  # (receiver, sender) -> step label
    m = None
    for t in range(steps):
        gs.append(np.array(gradient(xs[t].copy(), t), dtype=np.float64))
        v, m = sgd_direction(xs[t], gs[t], m, momentum, nesterov, weight_decay)
        vs.append(v if direction is None else direction(xs[t], gs[t], t))
        clip_matrix = clip_of(receive(newest, np.asarray(delays(t)), t, startup))
        new = np.zeros_like(xs[t])
        for i in range(len(W)):
            fresh, late = {}, {}
            for k in range(len(W)):
                s = newest.get((i, k))
                if s == t:
                    fresh[k] = xs[t][k]
                elif s is not None:
                    told = max(s, 0)
                    late[k] = Message(s, t - s, xs[told][k], gs[told][k], vs[told][k])
            past = [x[i] for x in xs]
            view = View(i, t, xs[t][i], gs[t][i], vs[t][i], lr, past, W[i], clip_matrix[i], fresh, late, momentum)
            if loss is not None:
                options["loss"] = lambda candidate, i=i, t=t: loss(candidate, i, t)
            new[i] = rule(view, **options)
        xs.append(new)
    return np.array(xs)
