"""What the tests of the rules share: random worlds, smooth gradients and scripted delays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import networkx as nx
import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

import gossamer as gm
import oracle
from gossamer.algorithms import parse_algorithm
from gossamer.network import Arrivals, Delay, Network
from gossamer.seeding import generator

STARTUPS = ("wait", "min", "full")

# How many worlds a test tries.
few = settings(deadline=None, max_examples=6)
some = settings(deadline=None, max_examples=10)
many = settings(deadline=None, max_examples=25)


class Smooth:
    """Smooth losses that differ between agents and steps.

    f_i(x, t) = sum_m a_im log cosh(u_im) + <p_i(t), x> with u_i = M_i x - c_i. Nothing is symmetric, so that
    no two candidates of a rule ever score the same.
    """

    def __init__(self, n: int, d: int, seed: int) -> None:
        rng = np.random.default_rng([seed, n, d])
        self.a = rng.uniform(0.3, 1.0, (n, d))
        self.M = np.eye(d) + 0.3 * rng.standard_normal((n, d, d))
        self.c = rng.standard_normal((n, d))
        self.phase = rng.uniform(0, 2 * np.pi, (n, d))
        self.x0 = rng.standard_normal((n, d))

    def one(self, i: int, x: np.ndarray, t: int) -> np.ndarray:
        """The gradient of agent i at x [d]."""
        return self.M[i].T @ (self.a[i] * np.tanh(self.M[i] @ x - self.c[i])) + 0.3 * np.sin(t + self.phase[i])

    def one_loss(self, x: np.ndarray, i: int, t: int) -> float:
        """The loss of agent i at x [d]."""
        u = self.M[i] @ x - self.c[i]
        return float(self.a[i] @ np.log(np.cosh(u)) + 0.3 * np.sin(t + self.phase[i]) @ x)

    def gradient(self, x: Any, t: int) -> np.ndarray:
        return np.array([self.one(i, row, t) for i, row in enumerate(np.asarray(x))])

    def loss(self, x: Any, t: int) -> np.ndarray:
        return np.array([self.one_loss(row, i, t) for i, row in enumerate(np.asarray(x))])


@dataclass(frozen=True, eq=False)
class Scripted(Delay):
    """Delays read from a table [steps, n, n]; a delay above the step itself is a message that never comes."""

    table: torch.Tensor
    covers_every_link: ClassVar[bool] = True

    @property
    def largest(self) -> int:
        return int(self.table.max())

    def sample(self, step, state, links, generator):
        return self.table[step], state

    def spec(self) -> str:
        return "scripted"


@dataclass(frozen=True)
class World:
    """A network with all of its delays known in advance, and the agents' losses on it.

    It is built when first asked for, outside the strategy that draws it: run-time type checks use chance, which
    a strategy may not.
    """

    n: int
    d: int
    num_steps: int
    kind: str = "fixed"  # of delay, see delay_table
    largest: int = 3
    density: float = 1.0
    num_clusters: int | None = 2
    lr: float = 0.05
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def smooth(self) -> Smooth:
        return Smooth(self.n, self.d, self.seed)

    @cached_property
    def network(self) -> Network:
        table = self._delay_table
        delay = {"matrix": table[0], "scripted": Scripted(torch.from_numpy(table))}.get(self.kind, self.largest)
        loss = 0.4 if self.kind == "lossy" else 0.0
        return gm.network(self._graph, delay, clusters=self._clusters, loss=loss, **self.settings)

    @cached_property
    def delays(self) -> np.ndarray:
        """[steps, n, n]: the delay of what arrives, -1 where there is no link or no message."""
        net, table = self.network, self._delay_table.copy()
        if self.kind == "lossy":
            table = ages(net, self.num_steps, self.seed)  # which messages are lost is the network's own affair
        elif self.kind == "fixed":
            table[:, net.spared.numpy()] = net.reliable_delay
        table[:, ~net.links.numpy()] = -1
        return table

    @cached_property
    def _graph(self) -> nx.Graph:
        """A random tree and some further links."""
        rng = np.random.default_rng([self.seed, 1])
        graph = nx.empty_graph(self.n)
        graph.add_edges_from((k, int(rng.integers(k))) for k in range(1, self.n))
        graph.add_edges_from((i, k) for i in range(self.n) for k in range(i) if rng.random() < self.density)
        return graph

    @cached_property
    def _clusters(self) -> list[list[int]] | None:
        if self.num_clusters is None:
            return None
        number = np.random.default_rng([self.seed, 2]).integers(self.num_clusters, size=self.n)
        return [np.flatnonzero(number == c).tolist() for c in np.unique(number)]

    @cached_property
    def _delay_table(self) -> np.ndarray:
        rng = np.random.default_rng([self.seed, 3])
        shape = (self.num_steps, self.n, self.n)
        if self.kind == "matrix":
            return np.broadcast_to(rng.integers(0, self.largest + 1, shape[1:]), shape).copy()
        if self.kind == "scripted":
            lost = rng.random(shape) < 0.3
            never = np.arange(1, self.num_steps + 1)[:, None, None]
            return np.where(lost, never, rng.integers(0, self.largest + 1, shape))
        return np.full(shape, self.largest)

    def clip_of(self, reliable: np.ndarray) -> np.ndarray:
        return self.network.clip_matrix(torch.from_numpy(reliable)).numpy()

    def path(self, algorithm: gm.Algorithm, **options: Any) -> torch.Tensor:
        return gm.trajectory(
            algorithm,
            self.network,
            self.smooth.gradient,
            self.smooth.x0,
            lr=self.lr,
            steps=self.num_steps,
            loss=self.smooth.loss,
            seed=self.seed,
            **options,
        )

    def truth(self, rule: str | Callable[..., np.ndarray], **options: Any) -> np.ndarray:
        return oracle.run(
            rule,
            **{"clip_of": self.clip_of, "delays": lambda t: self.delays[t]} | options,
            W=self.network.W.numpy(),
            x0=self.smooth.x0,
            gradient=self.smooth.gradient,
            lr=self.lr,
            steps=self.num_steps,
            startup=self.network.startup,
        )


def assert_same_path(path: torch.Tensor, truth: np.ndarray) -> None:
    assert path.dtype == torch.float64 and np.isfinite(truth).all()
    np.testing.assert_allclose(path.numpy(), truth, rtol=1e-9, atol=1e-10)


@st.composite
def worlds(
    draw: st.DrawFn,
    d: st.SearchStrategy[int] | None = None,
    kinds: tuple[str, ...] = ("fixed", "matrix", "scripted", "lossy"),
    startups: tuple[str, ...] = STARTUPS,
    smallest: int = 0,
    **settings: Any,
) -> World:
    """Any graph, clusters, weights, start-up and delays."""
    n = draw(st.integers(2, 6))
    drawn = {
        "mixing": draw(st.sampled_from(["metropolis", "uniform"])),
        "lazy": draw(st.booleans()),
        "clip_weights": draw(st.sampled_from(["rebuilt", "renormalised"])),
        "startup": draw(st.sampled_from(startups)),
    }
    return World(
        n=n,
        d=draw(d if d is not None else st.integers(1, 5)),
        num_steps=draw(st.integers(3, 24)),
        kind=draw(st.sampled_from(kinds)),
        largest=draw(st.integers(smallest, 7)),
        density=draw(st.sampled_from([0.0, 0.4, 1.0])),
        num_clusters=draw(st.none() | st.integers(1, n)),
        lr=draw(st.sampled_from([0.02, 0.1])),
        seed=draw(st.integers(0, 2**16)),
        settings=drawn | settings,
    )


def ages(network: Network, steps: int, seed: int) -> np.ndarray:
    arrivals = Arrivals(network, seed)
    return torch.stack([arrivals.advance(step) for step in range(steps)]).numpy()


def noise_of(seed: int, t: int, n: int) -> tuple[np.ndarray, float]:
    """The uniform numbers of step t: one for each agent, and the shared one."""
    uniform = torch.rand(n + 1, generator=generator(seed, "noise", t), dtype=torch.float64).numpy()
    return uniform[1:], float(uniform[0])


def algorithm_from(text: str) -> gm.Algorithm:
    """Make an algorithm from text such as 'pc-asgd/theta=pv'."""
    name, options = parse_algorithm(text)
    return gm.algorithm(name, **options)
