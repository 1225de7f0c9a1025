"""Base of the rules with a parameter server: one agent keeps the model, all agents send it gradients.

    server s:    u = (1/N) sum of c_k(g_k, x_k) over the gradients that are new to s at step t, its own included
                 m <- mu m + u;    x_s(t+1) = x_s(t) - eta m
    worker i:    x_i(t+1) = the newest x_s that i holds; x_i(t) before the first

x_k is the model at which worker k took g_k. The rules differ in c_k. A gradient counts once, at the step of its
arrival; gradients that arrive together are applied together. A link of delay tau makes a gradient 2 tau + 1 steps old:
tau to the worker, one to compute, tau back. A gradient that is lost, or overtaken by a newer one, never counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from gossamer.algorithms.base import Algorithm, Inbox, Noise, Own, Place, Update, Weights
from gossamer.algorithms.options import FRACTION, option
from gossamer.errors import UserError
from gossamer.network import Network
from gossamer.shapes import Bool, Float, Int, Tensor

NAMED_AGENTS = 4  # most agents that an error names


@dataclass(frozen=True)
class Pushes:
    """The server's messages of one age. A weight is 1 for a new message, else 0; a rule may change it."""

    senders: Int[Tensor, " m"]  # the agents whose messages are the rows of `message`
    weights: Float[Tensor, "1 m"]
    message: Mapping[str, Float[Tensor, "m _"]]


@dataclass(frozen=True)
class Pulled:
    """The newest message of the server that each agent holds."""

    found: Bool[Tensor, "a 1"]  # whether the agent holds one
    which: Int[Tensor, " a"]  # its index in `messages`
    messages: Sequence[Mapping[str, Float[Tensor, "1 _"]]]  # of the server, one per age

    def take(self, name: str, otherwise: Float[Tensor, "a _"]) -> Float[Tensor, "a _"]:
        """Return this part of the message, or `otherwise` for agents that hold none."""
        rows = torch.cat([message[name] for message in self.messages])
        return torch.where(self.found, rows.index_select(0, self.which), otherwise)


@dataclass(frozen=True, kw_only=True)
class ServerBased(Algorithm):
    """Base of the rules with a parameter server; see the module's docstring."""

    server: int = option(-1, "number of the agent that is the server; -1 means the first agent of the largest cluster")
    server_momentum: float = option(0.0, "momentum of the server's steps", within=FRACTION)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server < -1:
            raise UserError(f"server must be an agent's number or -1, got {self.server}; use -1 for the default")
        if self.gradient_at != "own":
            raise UserError(
                f"{self.name} mixes nothing, so gradient_at cannot be '{self.gradient_at}'; use gradient_at=own"
            )

    @property
    def message(self) -> tuple[str, ...]:
        """A worker's gradient and the model at which it was taken; the server's model."""
        return ("x", "g")

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        """Keep the server's momentum, if any; the rows of workers stay zero."""
        return {"m": torch.zeros_like(x)} if self.server_momentum else {}

    def check(self, network: Network, *, momentum: float = 0.0) -> str | None:
        """Raise UserError if some agent has no link with the server."""
        count, server = network.num_agents, self.server_in(network)
        if server >= count:
            raise UserError(f"server {server} is none of the agents 0 to {count - 1}; use -1 for the default")
        heard = {server, *network.pattern.senders_of(server)}
        missing = [agent for agent in range(count) if agent not in heard]
        if missing:
            named = ", ".join(map(str, missing[:NAMED_AGENTS]))
            more = f" and {len(missing) - NAMED_AGENTS} more" if len(missing) > NAMED_AGENTS else ""
            raise UserError(
                f"{self.name} needs a server that every agent is linked with, and agent {server} has no link with "
                f"{named}{more}; use complete:N, star:N or a paper network, or another --server"
            )
        return super().check(network, momentum=momentum)

    def check_local(self, *, plain: bool) -> None:
        super().check_local(plain=plain)
        if not plain:
            raise UserError(
                f"{self.name} takes its steps at the server, so it needs plain SGD at the agents; "
                "set momentum and weight decay to 0, and use --server-momentum where the rule takes it"
            )

    def server_in(self, network: Network) -> int:
        """Return the number of the agent that is the server."""
        if self.server >= 0:
            return self.server
        largest = max(network.clusters or ((0,),), key=len)
        return min(largest)

    def step(self, own: Own, inbox: Inbox, weights: Weights, noise: Noise | None) -> Update:
        """The server descends along the gradients that arrived; workers take the newest model they hold."""
        row, is_server = self._find_server(own)
        server = _row_of(own, row)
        w, kept = self.serve(server, list(self._pushes(row, server, inbox, weights)))
        pulled = self._pulled(own, inbox, weights)
        x = torch.where(is_server, w, pulled.take("x", own.x))
        state = {**own.state, **self.work(own, pulled)}
        state |= {name: torch.where(is_server, value, state[name]) for name, value in kept.items()}
        return Update(x, state=state)

    # The rules override these three.

    def corrected(self, server: Own, pushes: Pushes) -> Float[Tensor, "1 d"]:
        """Return the weighted sum of c_k over these messages; `server` is the server's own row."""
        return pushes.weights @ pushes.message["g"]

    def serve(self, server: Own, pushes: list[Pushes]) -> tuple[Float[Tensor, "1 d"], dict[str, Tensor]]:
        """Return the server's next model, and its row of the kept state where that changes."""
        u = self.mean_push(server, pushes)
        if not self.server_momentum:
            return server.x.sub(u, alpha=server.lr), {}
        m = self.server_momentum * server.state["m"] + u
        return server.x.sub(m, alpha=server.lr), {"m": m}

    def work(self, own: Own, pulled: Pulled) -> dict[str, Tensor]:
        """Return the workers' kept state where that changes, one row per agent."""
        return {}

    def mean_push(self, server: Own, pushes: list[Pushes]) -> Float[Tensor, "1 d"]:
        """Return u: the sum over the gradients that arrived, divided by the number of agents."""
        assert server.place is not None
        total = torch.zeros_like(server.x)
        for each in pushes:
            total = total + self.corrected(server, each)
        return total / server.place.network.num_agents

    # A lone agent may not be the server: then row 0 stands in for the server, and its result is not used.

    def _find_server(self, own: Own) -> tuple[Int[Tensor, "1"], Bool[Tensor, "a 1"]]:
        """Return the server's row as an index tensor, without waiting for a GPU, and as a mask."""
        assert own.place is not None
        is_server = own.place.agents == self.server_in(own.place.network)
        return is_server.long().argmax().reshape(1), is_server[:, None]

    def _pushes(self, row: Int[Tensor, "1"], server: Own, inbox: Inbox, weights: Weights) -> Iterator[Pushes]:
        assert server.place is not None
        number, dtype = self.server_in(server.place.network), server.x.dtype
        of_server = {"x": server.x, "g": server.g, **server.sent}
        everyone = torch.arange(server.place.network.num_agents, device=server.x.device)
        yield Pushes(everyone[number : number + 1], torch.ones_like(server.x[:, :1]), of_server)
        senders = everyone if server.place.senders is None else server.place.senders
        assert inbox.new is not None
        yield Pushes(senders, inbox.new.row(row).to(dtype), inbox.message)
        for late in inbox.late:
            assert late.new is not None
            yield Pushes(senders, late.new.row(row).to(dtype), late.message)

    def _pulled(self, own: Own, inbox: Inbox, weights: Weights) -> Pulled:
        assert own.place is not None
        number = own.place.row_of(self.server_in(own.place.network))
        held = [(weights.fresh, inbox.message), *((late.weights, late.message) for late in inbox.late)]
        if number is None:  # a lone server pulls nothing
            return Pulled(torch.zeros_like(own.x[:, :1]).bool(), own.place.agents * 0, [{**own.sent, "x": own.x}])
        where = torch.stack([of_age.column(number) != 0 for of_age, _ in held], dim=1)
        of_server = [{name: part[number : number + 1] for name, part in message.items()} for _, message in held]
        return Pulled(where.any(dim=1, keepdim=True), where.int().argmax(dim=1), of_server)


def _row_of(own: Own, row: Int[Tensor, "1"]) -> Own:
    """Return one agent's row of `own`."""
    assert own.place is not None
    g = own.g.index_select(0, row)
    place = replace(own.place, agents=own.place.agents.index_select(0, row), share=own.place.share.index_select(0, row))
    state, sent = (
        {name: of_all.index_select(0, row) for name, of_all in all_.items()} for all_ in (own.state, own.sent)
    )
    x = own.x.index_select(0, row)
    return replace(own, x=x, g=g, v=g, previous=None, evaluate=None, place=place, state=state, sent=sent)
