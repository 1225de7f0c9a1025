"""PC-ASGD (Algorithm 1) and its practical variant PC-ASGD-PV (Algorithm 2).

    x_pre = sum_{j in R} w_ij x_j(t) - eta v_i(t) + sum_{k in R^c} w_ik (x_k(t - tau) - eta g_dc_k)   line 6
    x_cli = sum_{j in R} w~_ij x_j(t) - eta v_i(t)                                                    line 7
    x_i(t+1) = theta_t x_pre + (1 - theta_t) x_cli                                                    line 8

theta_t is given, or follows from the ages of the messages (theta.py), or the PV criterion chooses it for each agent:
theta_t = 1 if x_pre scores at least as high as x_cli (Algorithm 2, line 9). With D the displacement of a candidate
and g the agent's gradient, the scores are

    literal      <D, g> / |D|      as printed (Eq. (12)); larger means *less* descent
    descent     -<D, g> / |D|      as the text says: the larger descent wins
    decrease    -<D, g>            first-order decrease of the loss, not normalised
    loss        -f_i(x_i + D)      the loss itself, on the same batch (two more forward passes)
    public-code  cos(D, g)         with D taken from the mixed point
    hindsight    how well the agent has predicted its neighbours so far (hindsight.py); no displacement is scored.
                 Then theta_t is 0 or that of `auto`: a whole predicting step is P-ASGD's, unstable at long delays

An agent without a late message clips: it has nothing to predict.
"""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.hindsight import gain, next_hindsight, predicts_better, start_hindsight
from gossamer.algorithms.options import option
from gossamer.algorithms.predictor import PredictorChoice
from gossamer.algorithms.registry import register
from gossamer.algorithms.steps import blend, holds_late, mix_heard, mix_reliable, weigh_late
from gossamer.algorithms.theta import (
    AUTO,
    ByAge,
    Hindsight,
    ThetaPolicy,
    lasting_theta,
    limit_of_theta,
    parse_theta,
)
from gossamer.errors import UserError
from gossamer.network import LinkMatrix, Network
from gossamer.shapes import Bool, Float, Tensor

CRITERIA = ("literal", "descent", "decrease", "loss", "public-code", "hindsight")
ROUNDING = 1e-9
TINY = 1e-12  # avoids 0/0 when an agent does not move


@register("pc-asgd")
@dataclass(frozen=True, kw_only=True)
class PcAsgd(PredictorChoice):
    """PC-ASGD: mixes the predicting and the clipping step by theta, or chooses one by the PV criterion."""

    origin = "adapted"

    theta: float | str = option(
        AUTO,
        "auto (by age, momentum and network), auto:C (C times that), kalman (auto, less where predictions were poor), "
        "a number, pv, bernoulli:P, uniform, linear:FIRST,LAST,STEPS or piecewise:STEP=VALUE,…",
        was=0.3,
    )
    criterion: str = option(
        "literal",
        "for theta=pv: score of a step, the higher one wins; hindsight: predict with auto where that was right before",
        choices=CRITERIA,
    )
    granularity: str = option(
        "model", "for theta=pv: one choice per model, or one per tensor", choices=("model", "tensor")
    )
    test_batch: str = option(
        "same", "for theta=pv: batch of the criterion's gradient, the step's or a fresh one", choices=("same", "fresh")
    )
    scope: str = option(
        "agent",
        "one theta per agent, or one for the network (shared draws; PV by majority vote, simulator only)",
        choices=("agent", "network"),
    )
    consensus_steps: int = option(0, "number of first steps with plain mixing, neither predicting nor clipping")

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_theta(self.theta)  # raises now, not at the first step
        if self.criterion == "loss" and self.granularity == "tensor":
            raise UserError("criterion=loss compares whole models, so granularity must be model, got tensor")
        if self.criterion == "hindsight" and self.granularity == "tensor":
            raise UserError("criterion=hindsight judges whole models, so granularity must be model, got tensor")
        if self.looks_back and self.source == "recompute":
            raise UserError("hindsight needs the neighbour's gradients, got source=recompute; use source=sent")
        if self.consensus_steps < 0:
            raise UserError(f"consensus_steps must be 0 or more, got {self.consensus_steps}")

    @functools.cached_property  # used several times per step
    def policy(self) -> ThetaPolicy | ByAge | None:
        """The policy of theta, or None for a PV criterion that compares steps."""
        policy = parse_theta(self.theta)
        return ByAge(by_hindsight=Hindsight.CHOICE) if policy is None and self.criterion == "hindsight" else policy

    @property
    def looks_back(self) -> bool:
        """Whether past predictions are compared with what came true."""
        return isinstance(self.policy, ByAge) and self.policy.by_hindsight is not Hindsight.NONE

    @property
    def votes(self) -> bool:
        """With scope=network the criterion is a majority vote."""
        return parse_theta(self.theta) is None and self.scope == "network"

    @property
    def draws(self) -> bool:
        return isinstance(self.policy, ThetaPolicy) and self.policy.draws

    @property
    def needs(self) -> frozenset[str]:
        names = set(super().needs)
        if self.policy is None and self.criterion == "loss":
            names.add("loss")
        elif self.policy is None and self.test_batch == "fresh":
            names.add("fresh_gradient")
        return frozenset(names)

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Smoothed paths start at x, and no prediction has been made."""
        paths = {name: x.clone() for name in self.paths_kept}
        return paths | (start_hindsight(x, place) if self.looks_back else {})

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return line 8, with theta given or chosen by the criterion, less the damping."""
        state = self.smoothed(own)
        if self.looks_back:
            state |= next_hindsight(own, inbox, functools.partial(self.predictions, own))
        x, share = self._mixed(dataclasses.replace(own, state=state), inbox, weights, noise)
        if self.damping:
            self.damp(x, own, state)
        return Update(x, share, state)

    def check(self, network: Network, *, momentum: float = 0.0) -> str | None:
        """Compare theta with the largest one that is stable at the largest delay."""
        tau, policy = network.delay.largest, self.policy
        if policy is None or tau == 0 or self.horizon != "sum":
            return None
        limit = limit_of_theta(network, momentum=momentum, predictor=self.predictor, lag=self.lag)
        theta = self._by_age(policy, tau, network, momentum) if isinstance(policy, ByAge) else lasting_theta(policy)
        if theta <= limit * (1 + ROUNDING):
            return None
        doom, gain = "may diverge", theta * network.late_radius
        if self.predictor == "gradient" and not momentum:
            curvature = 2 * gain / (gain * tau - 1)
            doom = f"will probably diverge where learning rate times curvature is above {curvature:.2g}"
        return (
            f"{self.name}'s theta {theta:.4g} is above the limit {limit:.4g} of delay {tau} and momentum {momentum:g} "
            f"on this network and {doom}; use theta=auto or a number below {limit:.3g}"
        )

    def _by_age(self, policy: ByAge, age: int, network: Network, momentum: float) -> float:
        return policy.at(age, radius=network.late_radius, momentum=momentum, predictor=self.predictor, lag=self.lag)

    def _mixed(
        self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None
    ) -> tuple[Float[Tensor, "a d"], Float[Tensor, " a"]]:
        """Return line 8, and each agent's theta; NaN without late messages."""
        if own.t < self.consensus_steps:
            return self.descend(own, mix_heard(own, inbox, weights)), torch.full_like(weights.own, torch.nan)
        late = holds_late(own, inbox)
        if self.policy is None:
            x, share = self._by_criterion(own, inbox, weights, late)
        else:
            inbox, share = self._thetas(own, inbox, weights, noise)
            x = self._by_theta(own, inbox, weights, torch.where(late, share, 0))
        return x, share.masked_fill(~late, torch.nan)

    def _thetas(
        self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None
    ) -> tuple[Inbox, Float[Tensor, " a"]]:
        """Return each agent's theta, and the inbox with late weights by which messages of other ages get their own."""
        policy = self.policy
        if isinstance(policy, ThetaPolicy):
            return inbox, policy.at(own.t, self._uniform(weights, noise))
        if not inbox.late:
            return inbox, torch.zeros_like(weights.own)
        assert policy is not None and own.place is not None
        by_age = [self._by_age(policy, late.age, own.place.network, own.momentum) for late in inbox.late]
        if not self.looks_back and len(set(by_age)) == 1:
            return inbox, torch.full_like(weights.own, by_age[0])
        if not self.looks_back:
            return weigh_late(inbox, by_age)
        gains = self._gains(own, inbox)
        return weigh_late(inbox, [gains.clamp(max=theta) for theta in by_age])

    def _gains(self, own: Own, inbox: Inbox) -> LinkMatrix:
        """Return the largest theta of each agent for each sender that hindsight allows."""
        policy, links = self.policy, inbox.late[0].weights.links
        assert isinstance(policy, ByAge)
        if policy.by_hindsight is Hindsight.GAIN:
            return gain(own.state, links)
        chosen = self._vote(predicts_better(own, inbox)[:, None], holds_late(own, inbox))
        return LinkMatrix(links, own.x.new_ones(len(links))) * chosen

    def _by_theta(self, own: Own, inbox: Inbox, weights: Weights, theta: Float[Tensor, " a"]) -> Float[Tensor, "a d"]:
        """Return line 8: one step with blended weights, or both candidates if each has its own gradient."""
        if self.gradient_at == "own":
            return self.predict(own, *blend(inbox, weights, theta))
        return torch.lerp(self.clip(own, inbox, weights), self.predict(own, inbox, weights), theta[:, None])

    def _by_criterion(
        self, own: Own, inbox: Inbox, weights: Weights, late: Bool[Tensor, " a"]
    ) -> tuple[Float[Tensor, "a d"], Float[Tensor, " a"]]:
        """Return the candidate with the higher score of each agent, and the share of its parameters predicted."""
        pre, cli = self.predict(own, inbox, weights), self.clip(own, inbox, weights)
        chosen = self._choose(own, inbox, weights, pre, cli, late)
        share = chosen.to(own.x.dtype).mean(dim=1)
        if self.granularity == "tensor":
            sizes = torch.tensor(own.segments, device=chosen.device)
            chosen = chosen.repeat_interleave(sizes, dim=1, output_size=own.x.shape[1])
        return torch.where(chosen, pre, cli), share

    def _uniform(self, weights: Weights, noise: Noise | None) -> Float[Tensor, " a"]:
        if noise is None:
            return torch.zeros_like(weights.own)
        return noise.agent if self.scope == "agent" else torch.full_like(noise.agent, noise.network)

    def _segments(self, own: Own) -> tuple[int, ...]:
        return own.segments if self.granularity == "tensor" else (own.x.shape[1],)

    def _choose(
        self,
        own: Own,
        inbox: Inbox,
        weights: Weights,
        pre: Float[Tensor, "a d"],
        cli: Float[Tensor, "a d"],
        late: Bool[Tensor, " a"],
    ) -> Bool[Tensor, "a s"]:
        """Return where predicting scores at least as well as clipping, for each agent and segment."""
        if self.criterion == "loss":
            assert own.evaluate is not None
            chosen = (own.evaluate.loss(pre) <= own.evaluate.loss(cli))[:, None]
        else:
            from_pre, from_cli = own.x, own.x
            if self.criterion == "public-code":
                from_pre, from_cli = mix_heard(own, inbox, weights), mix_reliable(own, inbox, weights)
            g, segments = self._test_gradient(own), self._segments(own)
            better, other = scores(self.criterion, ((from_pre, pre), (from_cli, cli)), g, segments)
            chosen = better >= other
        return self._vote(chosen, late) & late[:, None]

    def _vote(self, chosen: Bool[Tensor, "a s"], late: Bool[Tensor, " a"]) -> Bool[Tensor, "a s"]:
        """Return the choice of the majority of the agents with late messages, if all decide together."""
        if self.scope == "agent" or not bool(late.any()):
            return chosen
        majority = chosen[late].double().mean(dim=0) >= 0.5
        return majority.expand_as(chosen)

    def _test_gradient(self, own: Own) -> Float[Tensor, "a d"]:
        if self.test_batch == "same":
            return own.g
        assert own.evaluate is not None
        return own.evaluate.fresh_gradient(own.x)


def scores(
    criterion: str,
    moves: Sequence[tuple[Float[Tensor, "a d"], Float[Tensor, "a d"]]],
    gradient: Float[Tensor, "a d"],
    segments: tuple[int, ...],
) -> list[Float[Tensor, "a s"]]:
    """Return the score of each step, from one point to another, for each agent and each segment of its parameters."""
    measured = [_measure(to - start, gradient, segments) for start, to in moves]
    if criterion == "decrease":
        return [-torch.stack(inner, dim=1) for inner, _ in measured]
    products = [torch.stack(inner, dim=1) for inner, _ in measured]
    norms = [torch.stack(lengths, dim=1) for _, lengths in measured]
    if criterion == "public-code":
        whole = torch.stack(_length_by_segment(gradient, segments), dim=1)
        return [along / (norm * whole + TINY) for along, norm in zip(products, norms, strict=True)]
    sign = 1 if criterion == "literal" else -1
    return [along / (norm + TINY) * sign for along, norm in zip(products, norms, strict=True)]


def _measure(
    moved: Float[Tensor, "a d"], gradient: Float[Tensor, "a d"], segments: tuple[int, ...]
) -> tuple[list[Float[Tensor, " a"]], list[Float[Tensor, " a"]]]:
    """Return the inner products of a displacement with the gradient, and its lengths, by segment."""
    return _by_segment(moved * gradient, segments), _length_by_segment(moved, segments)


def _length_by_segment(values: Float[Tensor, "a d"], segments: tuple[int, ...]) -> list[Float[Tensor, " a"]]:
    """Return the length of each row's part in each parameter tensor."""
    return [torch.linalg.vector_norm(part, dim=1) for part in _parts(values, segments)]


def _by_segment(values: Float[Tensor, "a d"], segments: tuple[int, ...]) -> list[Float[Tensor, " a"]]:
    """Sum each row over each parameter tensor."""
    return [part.sum(dim=1) for part in _parts(values, segments)]


def _parts(values: Float[Tensor, "a d"], segments: tuple[int, ...]) -> Sequence[Float[Tensor, "a _"]]:
    return [values] if len(segments) == 1 else values.split(list(segments), dim=1)
