"""Normalisation layers: statistics of each agent's own activations, scaled by its own parameters."""

import torch
import torch.nn.functional as F
from torch import nn

from gossamer.nn.stack.stacked_form import Form, register_form
from gossamer.shapes import Float, Tensor


class BatchNorm(Form):
    """One batch norm over n * C channels."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    momentum: float | None
    track_running_stats: bool
    eps: float

    def run(self, x: Float[Tensor, "n batch c *space"]) -> Float[Tensor, "n batch c *space"]:
        """Return the normalised inputs and, in training, update the running statistics."""
        self._check_input_dim(x[0])
        moves = self.training and self.track_running_stats
        if moves and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        # As in torch: untracked statistics are used only in evaluation.
        kept = not self.training or self.track_running_stats
        mean = self.running_mean.view(-1) if kept and self.running_mean is not None else None
        var = self.running_var.view(-1) if kept and self.running_var is not None else None
        of_batch = self.training or (mean is None and var is None)
        if moves and self.momentum is None and mean is not None and var is not None:
            y = self._averaged(x, mean, var)
        else:
            y = self._norm(x, mean, var, of_batch, self.momentum or 0.0)
        return self.session.unfold(y)

    def _averaged(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Keep the average over all batches. Agents may have seen different numbers of batches, torch assumes one."""
        assert self.num_batches_tracked is not None
        now_mean, now_var = torch.empty_like(mean), torch.empty_like(var)
        y = self._norm(x, now_mean, now_var, True, 1.0)
        share = self.num_batches_tracked.to(mean.dtype).reciprocal().repeat_interleave(mean.numel() // self.session.n)
        mean.lerp_(now_mean, share)
        var.lerp_(now_var, share)
        return y

    def _norm(self, x: Tensor, mean: Tensor | None, var: Tensor | None, of_batch: bool, momentum: float) -> Tensor:
        return F.batch_norm(
            self.session.fold(x), mean, var, _flat(self.weight), _flat(self.bias), of_batch, momentum, self.eps
        )


class GroupNorm(Form):
    """One group norm with n * num_groups groups."""

    num_groups: int
    weight: Tensor | None
    bias: Tensor | None
    eps: float

    def run(self, x: Float[Tensor, "n batch c *space"]) -> Float[Tensor, "n batch c *space"]:
        """Return the normalised inputs."""
        num_groups = self.session.n * self.num_groups
        y = F.group_norm(self.session.fold(x), num_groups, _flat(self.weight), _flat(self.bias), self.eps)
        return self.session.unfold(y)


class LayerNorm(Form):
    """One layer norm of all agents, then the scale of each agent."""

    normalized_shape: tuple[int, ...]
    weight: Tensor | None
    bias: Tensor | None
    eps: float

    def run(self, x: Float[Tensor, "n *rest"]) -> Float[Tensor, "n *rest"]:
        """Return the normalised inputs."""
        y = F.layer_norm(x, self.normalized_shape, eps=self.eps)
        weight, bias = self._over(x, self.weight), self._over(x, self.bias)
        if weight is None:
            return y
        return y * weight if bias is None else torch.addcmul(bias, y, weight)

    def _over(self, x: Tensor, parameter: Tensor | None) -> Tensor | None:
        """Return a parameter [n, *shape] in the rank of x, [n, 1, ..., *shape]."""
        if parameter is None:
            return None
        ones = x.dim() - parameter.dim()
        return parameter.view(parameter.shape[0], *[1] * ones, *parameter.shape[1:]).to(x.dtype)


class RMSNorm(LayerNorm):
    """Like LayerNorm, with the root mean square."""

    eps: float | None  # type: ignore[assignment]  # None: the default of the number type

    def run(self, x: Float[Tensor, "n *rest"]) -> Float[Tensor, "n *rest"]:
        """Return the normalised inputs."""
        y = F.rms_norm(x, self.normalized_shape, eps=self.eps)
        weight = self._over(x, self.weight)
        return y if weight is None else y * weight


def _flat(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.reshape(-1)


for _layer in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
    register_form(_layer, BatchNorm)
register_form(nn.GroupNorm, GroupNorm)
register_form(nn.LayerNorm, LayerNorm)
register_form(nn.RMSNorm, RMSNorm)
