"""ASGD, Downpour SGD with one shard of parameters (Dean et al. 2012): the server applies every gradient on arrival.

    x_s(t+1) = x_s(t) - (eta / N) sum of g_k over the gradients that arrived

The server's momentum is optional. server.py describes the messages.
"""

from dataclasses import dataclass

from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.server import ServerBased


@register("asgd")
@dataclass(frozen=True, kw_only=True)
class Asgd(ServerBased):
    """ASGD: a parameter server applies late gradients on arrival."""

    origin = "adapted"
