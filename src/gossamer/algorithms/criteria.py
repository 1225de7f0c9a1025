"""The PV criterion (Algorithm 2, line 9): predict when its score is at least the clipping step's.

With D the displacement of a candidate and g the agent's gradient,

    literal      <D, g> / |D|      as printed (Eq. (12)); larger means *less* descent
    descent     -<D, g> / |D|      as the words say: the larger descent wins
    decrease    -<D, g>            first-order decrease of the loss, not normalised
    loss        -f_i(x_i + D)      the loss itself, on the same batch (two more forward passes)
    public-code  cos(D, g)         with D taken from the already mixed point
"""

import torch

from gossamer.shapes import Float, Tensor

CRITERIA = ("literal", "descent", "decrease", "loss", "public-code")
TINY = 1e-12  # keeps 0/0 out when an agent does not move


def score(
    criterion: str,
    displacement: Float[Tensor, "a d"],
    gradient: Float[Tensor, "a d"],
    segments: tuple[int, ...],
) -> Float[Tensor, "a s"]:
    """Return the score of a step for each agent and each segment of its parameters."""
    inner = _by_segment(displacement * gradient, segments)
    if criterion == "decrease":
        return -inner
    length = _length_by_segment(displacement, segments)
    if criterion == "public-code":
        return inner / (length * _length_by_segment(gradient, segments) + TINY)
    return inner / (length + TINY) * (1 if criterion == "literal" else -1)


def _length_by_segment(values: Float[Tensor, "a d"], segments: tuple[int, ...]) -> Float[Tensor, "a s"]:
    """Return the length of each row's part in each parameter tensor."""
    parts = values.split(list(segments), dim=1)
    return torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts], dim=1)


def _by_segment(values: Float[Tensor, "a d"], segments: tuple[int, ...]) -> Float[Tensor, "a s"]:
    """Sum each row over each parameter tensor."""
    return torch.stack([part.sum(dim=1) for part in values.split(list(segments), dim=1)], dim=1)
