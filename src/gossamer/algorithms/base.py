"""The contract between an algorithm and the engine that runs it.

An algorithm is a frozen dataclass of hyper-parameters with one pure function, `step`. Agents are rows: `a` agents
are updated from what they heard of `n` agents. The simulator calls with a = n = N, a process that runs one agent
with a = 1. The algorithm declares what a message carries, what it keeps between steps and what it needs of its own
past; bytes sent, histories and checkpoints follow from that declaration, and no engine knows an algorithm by name.

One step is: the gradient; `send`, what goes out; the messages move; `step`, the next states from what was heard.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, Protocol, runtime_checkable

from gossamer.algorithms.options import option
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.shapes import Bool, Float, Int, Shaped, Tensor


class Past(enum.Enum):
    """How far an algorithm looks back at the agent's own states.

    Attributes:
        NONE: not at all.
        STATE: the own state at the age of each late message.
        WINDOW: that, and the sum of the own states since then.
    """

    NONE = "none"
    STATE = "state"
    WINDOW = "window"


@runtime_checkable
class Evaluate(Protocol):
    """Further evaluations of the agents' losses at step t, for the rules that ask for them in `needs`."""

    def loss(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        """Return each agent's loss at x on the batch of this step."""

    def gradient(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return each agent's gradient at x on the batch of this step."""

    def fresh_gradient(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return each agent's gradient at x on another batch."""


@dataclass(frozen=True)
class Place:
    """Where the updated agents stand.

    Attributes:
        network: who is linked with whom.
        agents: the updated agents' numbers.
        share: the size of an agent's data over the mean size: 1 when all have the same.
        senders: whose messages the n rows of an inbox are; None: all agents'.
    """

    network: Network
    agents: Int[Tensor, " a"]
    share: Float[Tensor, " a"]
    senders: Int[Tensor, " n"] | None = None

    def among(self, matrix: Shaped[Tensor, "all all"]) -> Shaped[Tensor, "a n"]:
        """Return the part of a matrix over all agents that lies between the updated ones and the senders."""
        rows = matrix[self.agents]
        return rows if self.senders is None else rows[:, self.senders]

    def row_of(self, sender: int) -> int | None:
        """Return where an agent's messages lie in an inbox; None where it is no sender."""
        if self.senders is None:
            return sender
        found = (self.senders == sender).nonzero()
        return int(found[0]) if len(found) else None


@dataclass(frozen=True)
class Own:
    """What the updated agents know of themselves at step t.

    Attributes:
        x: their states.
        g: gradients of the mini-batch loss alone.
        v: the local optimiser's directions: g for plain SGD.
        lr: the learning rate of this step.
        t: the number of the step.
        segments: lengths of the parameter tensors inside a row.
        previous: x at t - 1, when the past is kept.
        evaluate: further evaluations of the loss, for rules that ask for them in `needs`.
        place: where the agents stand in the network.
        state: what the rule keeps, one row an agent.
        momentum: of the local optimiser, 0 for one that remembers nothing.
        sent: in `step`, what `send` has returned.
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
    sent: Mapping[str, Float[Tensor, "a _"]] = field(default_factory=dict)


@dataclass(frozen=True)
class Late:
    """The late messages of one age: with one delay in the network there is one such group.

    Attributes:
        age: how many steps old the messages are.
        weights: W where agent i holds a message of this age of agent k, else 0.
        message: the parts of the messages, by name; "x" are the states.
        own: the agents' own message of t - age, if it is kept.
        drift: the sum over r < age of x_i(t - age + r) - x_i(t - age), if asked for.
        new: which of these messages agents did not hold a step ago.
    """

    age: int
    weights: Float[Tensor, "a n"]
    message: Mapping[str, Float[Tensor, "n _"]]
    own: Mapping[str, Float[Tensor, "a _"]] = field(default_factory=dict)
    drift: Float[Tensor, "a d"] | None = None
    new: Bool[Tensor, "a n"] | None = None

    @property
    def own_x(self) -> Float[Tensor, "a d"] | None:
        """x_i at t - age, if it is kept."""
        return self.own.get("x")


@dataclass(frozen=True)
class Inbox:
    """What was heard: the states of reliable neighbours, and the late messages grouped by age.

    Attributes:
        fresh: the states of reliable neighbours.
        late: the late messages, one group an age.
        message: all parts of the reliable neighbours' messages, by name, x included.
        own: the agents' own message of the same step.
        new: which of the reliable neighbours' messages agents did not hold a step ago.
    """

    fresh: Float[Tensor, "n d"]
    late: tuple[Late, ...] = ()
    message: Mapping[str, Float[Tensor, "n _"]] = field(default_factory=dict)
    own: Mapping[str, Float[Tensor, "a _"]] = field(default_factory=dict)
    new: Bool[Tensor, "a n"] | None = None


@dataclass(frozen=True)
class Weights:
    """Mixing weights of the links that are current at this step; an agent's own weight stands apart.

    Attributes:
        own: W's weight of the agent itself.
        fresh: W's weights of its current neighbours.
        mass: the part of W's row that was heard at all: own + fresh + late. It is 1 unless a neighbour has sent
            nothing yet, and dividing by it lets every row sum to one.
        clip_own: the clipping matrix's weight of the agent itself.
        clip_fresh: the clipping matrix's weights of its current neighbours.
    """

    own: Float[Tensor, " a"]
    fresh: Float[Tensor, "a n"]
    mass: Float[Tensor, " a"]
    clip_own: Float[Tensor, " a"]
    clip_fresh: Float[Tensor, "a n"]

    def to(self, like: Tensor) -> "Weights":
        """Return the weights with another tensor's type and device."""
        return Weights(*(getattr(self, part.name).to(like) for part in fields(self)))


@dataclass(frozen=True)
class Noise:
    """Uniform numbers in [0, 1) drawn by the engine.

    Attributes:
        agent: one number an agent.
        network: one number that all agents share.
    """

    agent: Float[Tensor, " a"]
    network: float


@dataclass(frozen=True)
class Update:
    """What a step returns.

    Attributes:
        x: the next states.
        predict: for rules that choose, the share of predicting in each agent's step; NaN for an agent that had no late
            message, hence nothing to choose.
        state: what `Own.state` will be at the next step.
    """

    x: Float[Tensor, "a d"]
    predict: Float[Tensor, " a"] | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """Base of every rule: a frozen dataclass of hyper-parameters with one pure function, `step`.

    What a rule declares besides says what is sent, kept and remembered for it.

    Attributes:
        name: under which the rule is registered.
        waits: whether it is synchronous: it waits for its neighbours, so that nothing is ever late.
        hears_late: False where late links need not be served at all.
        gradient_at: where the local gradient is taken: the agent's "own" point, or the "mixed" one.
    """

    name: ClassVar[str]
    waits: ClassVar[bool] = False
    hears_late: ClassVar[bool] = True

    gradient_at: str = option(
        "own",
        "where the local gradient is taken: the agent's own point, or the mixed one",
        choices=("own", "mixed"),
    )

    @property
    def message(self) -> tuple[str, ...]:
        """What a neighbour sends: x (state), g (loss gradient), v (local direction), and names from `send`."""
        return ("x",)

    @property
    def message_across(self) -> tuple[str, ...]:
        """What is sent to neighbours outside of the cluster, where that is less."""
        return self.message

    @property
    def numbers(self) -> frozenset[str]:
        """Parts of a message that are one number, [a, 1], and no vector."""
        return frozenset()

    @property
    def totals(self) -> frozenset[str]:
        """Parts of a message that are running totals. They outgrow float32, so they are float64.

        From two totals a receiver knows what was added in between, however many messages were lost.
        """
        return frozenset()

    @property
    def period(self) -> int:
        """Steps from one message to the next: agents send at its multiples."""
        return 1

    @property
    def period_inside(self) -> int:
        """The same inside the clusters."""
        return self.period

    @property
    def past(self) -> Past:
        """How far back the rule needs its own states."""
        return Past.NONE

    @property
    def needs(self) -> frozenset[str]:
        """Names of the `Evaluate` methods the rule calls."""
        return frozenset({"gradient"} if self.gradient_at == "mixed" else ())

    @property
    def votes(self) -> bool:
        """Whether agents decide together at every step: then only an engine that steps all of them can run the rule."""
        return False

    @property
    def draws(self) -> bool:
        """Whether the rule uses `Noise`."""
        return False

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Return what the rule keeps between steps, before step 0: named tensors with one row an agent."""
        return {}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return what goes into a message besides x, g and v. Pure, as `step` is."""
        return {}

    @abstractmethod
    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """Return the agents' next states. Pure: no randomness, no I/O, inputs left as they are.

        Args:
            own: what the updated agents know of themselves.
            inbox: what they hold of their neighbours.
            weights: of those whose message is current.
            noise: random numbers, for rules that ask for them in `draws`.
        """

    def check(self, network: Network) -> str | None:
        """Return one line of warning when this network looks unstable; refuse one that the rule cannot work on."""
        return None

    def check_local(self, *, plain: bool) -> None:
        """Refuse a local optimiser that the rule cannot work with; `plain` is SGD with nothing added."""
        if self.gradient_at == "mixed" and not plain:
            raise UserError(
                "gradient_at=mixed takes its gradient after the local optimiser has run, so it needs plain SGD; "
                "set momentum and weight decay to 0, or gradient_at=own"
            )

    def descend(self, own: Own, mixed: Float[Tensor, "a d"]) -> Float[Tensor, "a d"]:
        """Return mixed - eta * v, with the direction taken at the point that `gradient_at` names.

        `mixed` must be the caller's own, as what the ways of mixing return: it is changed in place.
        """
        if self.gradient_at == "own":
            return mixed.sub_(own.v, alpha=own.lr)
        assert own.evaluate is not None
        return mixed.sub_(own.evaluate.gradient(mixed), alpha=own.lr)
