"""The contract between an algorithm and the engine that runs it.

An algorithm is a frozen dataclass of hyper-parameters with one pure function, `step`. Agents are rows: `a` agents are
updated from the messages of `n` agents. The simulator calls with a = n = N, a process that runs one agent with a = 1.
The algorithm declares what a message contains, what it keeps between steps and how much of its own past it needs.
Bytes sent, histories and checkpoints follow from that declaration; no engine knows an algorithm by name.
Weights are matrices [a, n] with a number for each link, `LinkMatrix`: most pairs of agents are not linked.

One step: the gradient; `send` makes the message; messages travel; `step` returns the next states.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

from gossamer.algorithms.options import check_ranges, option
from gossamer.errors import UserError
from gossamer.network import LinkMatrix, Links, Network
from gossamer.shapes import Float, Int, Tensor


class Past(enum.Enum):
    """How much of its own past an algorithm needs.

    Attributes:
        NONE: nothing.
        STATE: the agent's own state at the age of each late message.
        WINDOW: that state, and the sum of its own states since then.
    """

    NONE = "none"
    STATE = "state"
    WINDOW = "window"


@runtime_checkable
class Evaluate(Protocol):
    """Further evaluations of the agents' losses at step t, for rules that name them in `needs`."""

    def loss(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        """Return each agent's loss at x on the batch of this step."""

    def gradient(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return each agent's gradient at x on the batch of this step."""

    def fresh_gradient(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return each agent's gradient at x on another batch."""


@dataclass(frozen=True)
class Place:
    """The place of the updated agents in the network.

    Attributes:
        network: the network.
        agents: the numbers of the updated agents.
        share: the size of an agent's data over the mean size: 1 if all have the same.
        senders: the agents whose messages are the n rows of an inbox; None means all agents.
    """

    network: Network
    agents: Int[Tensor, " a"]
    share: Float[Tensor, " a"]
    senders: Int[Tensor, " n"] | None = None

    @cached_property
    def links(self) -> Links:
        """The links from the n senders to the a agents, on the agents' device: all links, or those of a lone agent."""
        if self.senders is None:
            return self.network.pattern.to(self.agents.device)
        return Links.to_one(len(self.senders), self.agents.device)

    def among(self, matrix: LinkMatrix) -> LinkMatrix:
        """Return the part of a matrix over all agents that is on these links."""
        matrix = matrix.to(self.agents.device)
        if self.senders is None:
            return matrix
        mine = matrix.links.find(self.agents.expand_as(self.senders), self.senders)
        return LinkMatrix(self.links, matrix.values[mine])

    def row_of(self, sender: int) -> int | None:
        """Return the inbox row of an agent's messages, or None if it is no sender."""
        if self.senders is None:
            return sender
        found = (self.senders == sender).nonzero()
        return int(found[0]) if len(found) else None


@dataclass(frozen=True)
class Own:
    """The updated agents' own values at step t.

    Attributes:
        x: their states.
        g: gradients of the mini-batch loss, without weight decay and momentum.
        v: directions of the local optimiser; g for plain SGD.
        lr: the learning rate of this step.
        t: the number of the step.
        segments: lengths of the parameter tensors inside a row.
        previous: x at t - 1, if the past is kept.
        evaluate: further evaluations of the loss, for rules that name them in `needs`.
        place: the agents' place in the network.
        state: what the rule keeps between steps, one row per agent or per link of the place.
        momentum: the momentum of the local optimiser; 0 without.
        nesterov: whether that is Nesterov momentum.
        sent: in `step`, what `send` returned.
    """

    x: Float[Tensor, "a d"]
    g: Float[Tensor, "a d"]
    v: Float[Tensor, "a d"]
    lr: float
    t: int
    segments: tuple[int, ...]
    previous: Float[Tensor, "a d"] | None = None
    evaluate: Evaluate | None = None
    place: Place | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)
    momentum: float = 0.0
    nesterov: bool = False
    sent: Mapping[str, Float[Tensor, "a _"]] = field(default_factory=dict)


@dataclass(frozen=True)
class Late:
    """The late messages of one age. A network with one fixed delay has one such group.

    Attributes:
        age: how many steps old the messages are.
        weights: the weights of W where agent i holds a message of this age from agent k, else 0.
        message: the parts of the messages, by name; "x" are the states.
        own: the agents' own message of step t - age, if it is kept.
        drift: the sum over r < age of x_i(t - age + r) - x_i(t - age), if the rule needs it.
        new: which of these messages arrived since the last step.
        sender_steps: how many steps each sender has taken since its message, an estimate, on the links of `weights`;
            None: as many as the receiver, `age`. Given to rules that ask for it.
    """

    age: int
    weights: LinkMatrix
    message: Mapping[str, Float[Tensor, "n _"]]
    own: Mapping[str, Float[Tensor, "a _"]] = field(default_factory=dict)
    drift: Float[Tensor, "a d"] | None = None
    new: LinkMatrix | None = None
    sender_steps: LinkMatrix | None = None

    @property
    def steps(self) -> int | LinkMatrix:
        """How many steps the senders have taken since: one number, or one for each link."""
        return self.age if self.sender_steps is None else self.sender_steps

    @property
    def own_x(self) -> Float[Tensor, "a d"] | None:
        """x_i at t - age, if it is kept."""
        return self.own.get("x")


@dataclass(frozen=True)
class Inbox:
    """The messages that agents hold: current ones of reliable neighbours, and late ones grouped by age.

    Attributes:
        fresh: the states of reliable neighbours.
        late: the late messages, one group per age.
        message: all parts of the reliable neighbours' messages, by name, x included.
        own: the agents' own message of the same step.
        new: which of the reliable neighbours' messages arrived since the last step.
    """

    fresh: Float[Tensor, "n d"]
    late: tuple[Late, ...] = ()
    message: Mapping[str, Float[Tensor, "n _"]] = field(default_factory=dict)
    own: Mapping[str, Float[Tensor, "a _"]] = field(default_factory=dict)
    new: LinkMatrix | None = None


@dataclass(frozen=True)
class Weights:
    """Mixing weights of the links that are current at this step, and of the agent itself.

    Attributes:
        own: weight of the agent itself in W.
        fresh: weights of its current neighbours in W.
        mass: the sum own + fresh + late. It is 1 unless no message of some neighbour has arrived yet; divided by it,
            every row sums to one.
        clip_own: weight of the agent itself in the clipping matrix.
        clip_fresh: weights of its current neighbours in the clipping matrix.
    """

    own: Float[Tensor, " a"]
    fresh: LinkMatrix
    mass: Float[Tensor, " a"]
    clip_own: Float[Tensor, " a"]
    clip_fresh: LinkMatrix

    def to(self, like: Tensor) -> "Weights":
        """Return the weights with the type and device of another tensor."""
        return Weights(*(getattr(self, part.name).to(like) for part in fields(self)))

    def of(self, place: Place) -> "Weights":
        """Return the part of these weights of all agents that is of this place."""
        parts: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(self)}
        for name, w in parts.items():
            parts[name] = place.among(w) if isinstance(w, LinkMatrix) else w[place.agents]
        return Weights(**parts)


@dataclass(frozen=True)
class Noise:
    """Uniform numbers in [0, 1) drawn by the engine.

    Attributes:
        agent: one number per agent.
        network: one number that all agents share.
    """

    agent: Float[Tensor, " a"]
    network: float


@dataclass(frozen=True)
class Update:
    """The result of a step.

    Attributes:
        x: the next states.
        predict: for rules that predict or clip, the share of predicting in each agent's step; NaN for an agent without
            late messages.
        state: `Own.state` of the next step.
    """

    x: Float[Tensor, "a d"]
    predict: Float[Tensor, " a"] | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """Base of every rule: a frozen dataclass of hyper-parameters with one pure function, `step`.

    The other members declare what a message contains and what the engine keeps for the rule.

    Attributes:
        name: the name under which the rule is registered.
        waits: True for a synchronous rule: it waits for its neighbours, so no message is late.
        hears_late: False if the rule ignores late links, so nothing is sent over them.
        origin: "published" as its source prints it, "adapted" (its page says what and why), or "ours".
        revision: raised when the same options begin to give other numbers; stored results of a lower one are stale.
        sends_gradient: True if the message contains the gradient, which is thus taken before mixing.
        gradient_at: where the local gradient is taken: the agent's "own" point, or the "mixed" one.
    """

    name: ClassVar[str]
    waits: ClassVar[bool] = False
    hears_late: ClassVar[bool] = True
    origin: ClassVar[str] = "ours"
    revision: ClassVar[int] = 1
    sends_gradient: ClassVar[bool] = False

    gradient_at: str = option(
        "own",
        "point at which the local gradient is taken: the agent's own, or the mixed one",
        choices=("own", "mixed"),
    )

    def __post_init__(self) -> None:
        """Check the options; a rule with further checks calls this too."""
        check_ranges(self)
        if self.sends_gradient and self.gradient_at == "mixed":
            raise UserError(
                f"gradient_at=mixed does not go with {self.name}, whose messages contain the gradient, which is thus "
                "taken before mixing; use gradient_at=own"
            )

    @property
    def message(self) -> tuple[str, ...]:
        """The parts of a message: x (state), g (loss gradient), v (local direction), and names from `send`."""
        return ("x",)

    @property
    def message_across(self) -> tuple[str, ...]:
        """The parts sent to neighbours outside the cluster, if fewer."""
        return self.message

    @property
    def numbers(self) -> frozenset[str]:
        """The parts of a message that are one number, [a, 1], not a vector."""
        return frozenset()

    @property
    def totals(self) -> frozenset[str]:
        """The parts of a message that are running totals, kept in float64.

        The difference of two totals is what was added in between, however many messages were lost.
        """
        return frozenset()

    @property
    def period(self) -> int:
        """Steps between two messages: agents send at multiples of it."""
        return 1

    @property
    def period_inside(self) -> int:
        """The period inside clusters."""
        return self.period

    @property
    def past(self) -> Past:
        """How much of its own past the rule needs."""
        return Past.NONE

    @property
    def needs(self) -> frozenset[str]:
        """Names of the `Evaluate` methods that the rule calls."""
        return frozenset({"gradient"} if self.gradient_at == "mixed" else ())

    @property
    def uses_sender_steps(self) -> bool:
        """Whether the rule uses the steps that senders have taken since their messages, `Late.steps`."""
        return False

    @property
    def votes(self) -> bool:
        """Whether all agents decide together at every step; only the simulator can run such a rule."""
        return False

    @property
    def draws(self) -> bool:
        """Whether the rule uses `Noise`."""
        return False

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Return what the rule keeps between steps, as of step 0: a row per agent, or per link of the place."""
        return {}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the parts of the message besides x, g and v. Pure, like `step`."""
        return {}

    @abstractmethod
    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the agents' next states. Pure: no randomness, no I/O, inputs unchanged.

        Args:
            own: the updated agents' own values.
            inbox: the messages that they hold.
            weights: mixing weights of the current links.
            noise: random numbers, if `draws` is True.
        """

    def check(self, network: Network, *, momentum: float = 0.0) -> str | None:
        """Return a one-line warning if the rule looks unstable on this network; raise UserError if it cannot work.

        Args:
            network: the network.
            momentum: of the local optimiser.
        """
        return None

    def check_local(self, *, plain: bool) -> None:
        """Raise UserError for a local optimiser that does not fit; `plain` is SGD without momentum and weight decay."""
        if self.gradient_at == "mixed" and not plain:
            raise UserError(
                "gradient_at=mixed takes its gradient after the local optimiser has run, so it needs plain SGD; "
                "set momentum and weight decay to 0, or gradient_at=own"
            )

    def descend(self, own: Own, mixed: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return mixed - eta * v, with v taken at the point that `gradient_at` names. Changes `mixed` in place."""
        if self.gradient_at == "own":
            return mixed.sub_(own.v, alpha=own.lr)
        assert own.evaluate is not None
        return mixed.sub_(own.evaluate.gradient(mixed), alpha=own.lr)
