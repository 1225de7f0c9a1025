"""What the tests of delay models and of arrivals share."""

import torch
from hypothesis import strategies as st

from gossamer.network import Arrivals, Delay, Fixed, Geometric, Gilbert, Network, Uniform, graph
from gossamer.seeding import generator

MANY = graph.adjacency(graph.complete(60))

MODELS = st.one_of(
    st.builds(Fixed, st.integers(0, 50)),
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: Uniform(min(pair), max(pair))),
    st.builds(Geometric, st.floats(0.05, 1.0)),
    st.builds(Gilbert, st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.integers(0, 30), st.integers(0, 30)),
)


def ages(net: Network, steps: int, seed: int = 0, purpose: str = "delay") -> torch.Tensor:
    arrivals = Arrivals(net, seed, purpose)
    return torch.stack([arrivals.advance(step) for step in range(steps)])


def draws(delay: Delay, steps: int, links: torch.Tensor = MANY, seed: int = 0) -> torch.Tensor:
    state = delay.start(links, generator(seed, "start"))
    seen = []
    for step in range(steps):
        delays, state = delay.sample(step, state, links, generator(seed, "delay", step))
        seen.append(delays)
    return torch.stack(seen)
