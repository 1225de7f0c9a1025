"""The bounds of the PC-ASGD paper, in three forms.

The paper's two statements and its proof disagree (docs/theory.md has the derivations):

    main-text   as stated in the body of the paper
    appendix    as restated above the proofs
    derived     the last line of each proof, with the factors that its algebra gives

All three rest on steps that do not hold in general (`CAVEATS`): compare them with a run, do not rely on them. If even
the paper's own conditions fail, `Bound.value` is None and `Bound.reason` says why.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from gossamer.errors import UserError, unknown_name

FORMS = ("main-text", "appendix", "derived")

CAVEATS = (
    "the analysis replaces late states by current ones, so staleness has no effect",
    "the proof bounds a doubly stochastic matrix by delta_2, but its norm is 1, so C_r and C_2 are not proved",
    "theorem 1 assumes only the PL condition but uses convexity, and it drops theta",
    "theorem 2 multiplies the Cauchy-Schwarz inequality by a negative number, so a term eta tau^2 M / 2 is missing",
    "neither bound goes to 0 with the learning rate",
)


@dataclass(frozen=True)
class Constants:
    """The constants of the losses, the gradients and the network; None means unknown.

    Norms are of the stacked state of all agents. F is the sum of the agents' losses.

    Attributes:
        G: ||g|| <= G.
        sigma: E||g - grad F||^2 <= sigma^2.
        B: ||g_dc,r|| <= B.
        M: E||g_dc,r||^2 <= M.
        gamma: F is gamma-smooth.
        mu: ||grad F||^2 / 2 >= mu (F - F*).
        xi: the Hessian of F is xi-Lipschitz.
        epsilon: ||g g^T - H|| <= epsilon.
        epsilon_D: ||Diag(H) - H|| <= epsilon_D.
        theta_m: the largest theta.
        delta_2: the largest second eigenvalue of theta W + (1 - theta) W~.
        lam: lambda of the compensation.
        initial_gap: F(x_1) - F*.
    """

    G: float | None = None
    sigma: float | None = None
    B: float | None = None
    M: float | None = None
    gamma: float | None = None
    mu: float | None = None
    xi: float | None = None
    epsilon: float | None = None
    epsilon_D: float | None = None
    theta_m: float | None = None
    delta_2: float | None = None
    lam: float | None = None
    initial_gap: float | None = None

    def __post_init__(self) -> None:
        """Refuse values that are no upper bound."""
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None and not 0 <= value < math.inf:
                raise UserError(f"constant {part.name} must be 0 or more and finite, got {value}; it is an upper bound")
        if self.theta_m is not None and self.theta_m > 1:
            raise UserError(f"constant theta_m must be at most 1, got {self.theta_m}; theta lies in [0, 1]")


@dataclass(frozen=True)
class Bound:
    """A bound and its terms, or the reason why there is none.

    Attributes:
        value: the bound, or None.
        reason: why there is none.
        terms: the parts that add up to the value, by name.
    """

    value: float | None
    reason: str | None = None
    terms: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.value:.4g}" if self.value is not None else f"no guarantee: {self.reason}"


class _Known:
    """The constants of a statement, none of them missing."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> float:
        return self._values[name]

    def spread(self, gradients: int, predictions: int) -> float:
        """Return (gradients G + predictions B theta_m) / (1 - delta_2), the form of C_1, C_r and C_2."""
        return (gradients * self.G + predictions * self.B * self.theta_m) / (1 - self.delta_2)


def consensus_bound(constants: Constants, lr: float, tau: int, form: str = "derived") -> Bound:
    """Lemma 1: E||x_i - mean of all agents|| <= eta (G + (tau - 1) B theta_m) / (1 - delta_2). All forms agree.

    Args:
        constants: of the losses, the gradients and the network.
        lr: the learning rate.
        tau: the delay in steps.
        form: "main-text", "appendix" or "derived".
    """
    known, reason = _check(constants, ("G", "B", "theta_m", "delta_2"), lr, tau, form)
    if reason:
        return Bound(None, reason)
    return _total({"gradients": lr * known.spread(1, 0), "predictions": lr * (known.spread(0, tau - 1))})


def pl_bound(constants: Constants, lr: float, tau: int, steps: int, form: str = "derived") -> Bound:
    """Theorem 1: E[F(x_t) - F*] after `steps` iterations from x_1, t = steps + 1, for losses with the PL condition.

    Args:
        constants: of the losses, the gradients and the network.
        lr: the learning rate.
        tau: the delay in steps.
        steps: the number of iterations.
        form: "main-text", "appendix" or "derived".
    """
    names = tuple(part.name for part in fields(Constants) if part.name != "M")
    known, reason = _check(constants, names, lr, tau, form)
    if not reason and known.lam > 1:
        reason = f"lambda is {known.lam:g}: the statement is for lambda in (0, 1]"
    if not reason and steps < 0:
        reason = f"there must be 0 iterations or more, got {steps}"
    if not reason and known.mu == 0:
        reason = "mu is 0: the PL condition does not hold"
    if not reason and lr > 1 / (2 * known.mu * tau):
        limit = 1 / (2 * known.mu * tau)
        reason = f"the learning rate {lr:g} is above 1/(2 mu tau) = {limit:.4g}; use a smaller one"
    if reason:
        return Bound(None, reason)
    contraction = 2 * known.mu * lr * tau
    floor = {name: term / contraction for name, term in _pl_terms(known, lr, tau, form).items()}
    start = (1 - contraction) ** steps
    return _total({"start": start * (known.initial_gap - sum(floor.values())), **floor})


def _pl_terms(known: _Known, lr: float, tau: int, form: str) -> dict[str, float]:
    """Return the terms of Q."""
    each = [known.spread(2, r - 1) for r in range(1, tau)]  # C_r
    # The proof squares C_r, the statements do not; the proof drops the last term of its first line.
    curved = sum(c**2 for c in each) if form == "derived" else sum(each)
    second_order = known.gamma * lr**2 / 2 * (known.G + tau * known.B) ** 2 if form == "derived" else 0.0
    hessian = known.gamma + known.epsilon_D + known.epsilon + (1 - known.lam) * known.G**2
    c_1, c_2 = known.spread(1, tau - 1), known.spread(2, tau - 1)
    shrink = 1 - 2 * known.mu * lr * tau
    return {
        "disagreement": 2 * shrink * known.G * lr * c_1 + 2 * lr**2 * known.G * known.gamma * c_1,
        "curvature change": lr**3 * known.xi * known.G / 2 * curved,
        "noise": known.G * lr * tau * known.sigma,
        "hessian approximation": lr**2 * known.G * hessian * sum(each),
        "own gradient": lr * known.G**2,
        "staleness": lr**2 * known.gamma * known.G * tau * c_2,
        "second order": second_order,
    }


def nonconvex_bound(constants: Constants, lr: float, tau: int, steps: int, form: str = "derived") -> Bound:
    """Theorem 2: the mean over `steps` iterations of E||grad F(x_t)||^2, for any smooth losses.

    Args:
        constants: of the losses, the gradients and the network.
        lr: the learning rate.
        tau: the delay in steps.
        steps: the number of iterations.
        form: "main-text", "appendix" or "derived".
    """
    names = ("G", "sigma", "B", "M", "gamma", "theta_m", "delta_2", "initial_gap")
    known, reason = _check(constants, names, lr, tau, form)
    if not reason and known.gamma > 0 and lr >= 1 / known.gamma:
        reason = f"the learning rate {lr:g} is not below 1/gamma = {1 / known.gamma:.4g}; use a smaller one"
    if not reason and steps < 1:
        reason = f"there must be 1 iteration or more to average over, got {steps}"
    if reason:
        return Bound(None, reason)
    c_1 = known.spread(1, tau - 1)
    # Powers of eta and tau as each form prints them.
    drift, moments, smooth = {
        "main-text": (1.0, tau**2, lr),
        "appendix": (lr**2, tau, lr**2),
        "derived": (lr, tau**2, lr**2),
    }[form]
    factor = 2 if form == "derived" else 1  # L1408 divides 2 [F(x_1) - F* + T R] by eta T
    r_terms = {
        "disagreement": 2 * known.G * c_1 * drift,
        "moments": moments * lr**2 * known.gamma * known.M / 2,
        "noise": lr * known.sigma**2 / 2 + lr * known.sigma * tau * known.B,
        "smoothness": 2 * smooth * known.gamma * (tau * known.B + known.G) * c_1,
    }
    start = 2 * known.initial_gap / (steps * lr)
    return _total({"start": start, **{name: factor * term / lr for name, term in r_terms.items()}})


def _check(constants: Constants, names: tuple[str, ...], lr: float, tau: int, form: str) -> tuple[_Known, str | None]:
    """Return the constants that a statement needs, and the reason if it does not apply."""
    if form not in FORMS:
        raise unknown_name("form", form, FORMS)
    if not 0 < lr < math.inf:
        raise UserError(f"lr must lie above 0 and be finite, got {lr}; use for example 0.01")
    values = {name: getattr(constants, name) for name in names}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        return _Known({}), f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} unknown"
    known = _Known(values)
    if tau < 1:
        return known, "the statements are about delays of 1 step or more"
    if known.delta_2 >= 1:
        return known, f"delta_2 is {known.delta_2:g}, not below 1: with these weights some agents never meet"
    return known, None


def _total(terms: dict[str, float]) -> Bound:
    return Bound(sum(terms.values()), None, terms)
