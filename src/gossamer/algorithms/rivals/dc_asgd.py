"""DC-ASGD (Zheng et al. 2017): the server corrects a late gradient for the change of its model.

    c_k = g_k + L g_k * g_k * (x_s - x_k)         element by element

The squared gradient approximates the diagonal of the Hessian. dc-asgd-c has a constant L = lambda_0, dc-asgd-a

    MS_k <- m MS_k + (1 - m) g_k * g_k;    L = lambda_0 / sqrt(MS_k + 1e-7)

MS_k depends on worker k's gradients alone, so the worker keeps it and sends h_k = L g_k * g_k.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import Own, Place
from gossamer.algorithms.options import FRACTION, NOT_NEGATIVE, option
from gossamer.algorithms.registry import register
from gossamer.algorithms.rivals.server import Pulled, Pushes, ServerBased
from gossamer.shapes import Float, Tensor

LAM0 = "lambda_0, the weight of the curvature term: 0.04 for dc-asgd-c, 2 for dc-asgd-a"
SMALLEST_SQUARE = 1e-7  # the authors' guard of the square root


@dataclass(frozen=True, kw_only=True)
class _Compensated(ServerBased):
    lam0: float = option(0.04, LAM0, within=NOT_NEGATIVE)

    @abstractmethod
    def curvature(self, message: Mapping[str, Float[Tensor, "m _"]]) -> Float[Tensor, "m d"]:
        """Return h = L g * g of each sender."""

    def corrected(self, server: Own, pushes: Pushes) -> Float[Tensor, "1 d"]:
        """Return the sum of g + h (x_s - x)."""
        message = pushes.message
        return pushes.weights @ (message["g"] + self.curvature(message) * (server.x - message["x"]))


@register("dc-asgd-c")
@dataclass(frozen=True, kw_only=True)
class DcAsgdC(_Compensated):
    """DC-ASGD-c: a server that compensates late gradients, with a constant weight."""

    origin = "adapted"

    def curvature(self, message: Mapping[str, Float[Tensor, "m _"]]) -> Float[Tensor, "m d"]:
        return self.lam0 * message["g"].square()


@register("dc-asgd-a")
@dataclass(frozen=True, kw_only=True)
class DcAsgdA(_Compensated):
    """DC-ASGD-a: a server that compensates late gradients, with an adaptive weight."""

    origin = "adapted"

    lam0: float = option(2.0, LAM0, within=NOT_NEGATIVE)
    ms_decay: float = option(0.95, "decay m of the mean square of gradients", within=FRACTION)

    @property
    def message(self) -> tuple[str, ...]:
        return (*super().message, "h")

    def start(self, x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
        return {**super().start(x, place), "ms": torch.zeros_like(x)}

    def send(self, own: Own) -> dict[str, Float[Tensor, "a _"]]:
        """Return the curvature h."""
        scale = self.lam0 / torch.sqrt(self._mean_square(own) + SMALLEST_SQUARE)
        return {"h": scale * own.g.square()}

    def work(self, own: Own, pulled: Pulled) -> dict[str, Tensor]:
        return {"ms": self._mean_square(own)}

    def curvature(self, message: Mapping[str, Float[Tensor, "m _"]]) -> Float[Tensor, "m d"]:
        return message["h"]

    def _mean_square(self, own: Own) -> Float[Tensor, "a d"]:
        return self.ms_decay * own.state["ms"] + (1 - self.ms_decay) * own.g.square()
