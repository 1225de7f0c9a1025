"""The largest eigenvalue of a linear update, on a past that is as short as possible.

With y(t + 1) = sum_s A_s y(t - s) the stacked past (y(t), y(t-1), …) has thousands of numbers, and eigenvalues of such
a matrix take seconds. Two exact reductions come first:

* Equal agents. A random vector over the agents, and all that the A_s make of it, span a space that the A_s do not
  leave. A vector in general position has a part in every irreducible piece, so no eigenvalue is lost, only copies of
  it. The paper's 20 agents become four numbers.
* Messages. Of y(t - s) only the directions that some A_r with r >= s reads are remembered.

On the paper's networks 60 steps of delay then take at most a few hundred numbers.
"""

from dataclasses import dataclass

import torch

from gossamer.errors import UserError
from gossamer.run.machine import one_thread
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.theory.linear import LinearUpdate

LARGEST = 3000  # numbers in the reduced past; all eigenvalues of such a matrix take about ten seconds
ROUNDING = 1e-13  # a number of this size, relative to the largest, counts as 0
NEW, CLOSED = 1e-9, 1e-12  # a direction of this size is new; what a space may leave out
STILL = 1e-10  # u (I - sum A_s) of this size counts as 0
AT_START = 1e-7  # a conserved value of this size, relative to its weights, counts as 0; runs start from unit vectors


def spectral_radius(update: LinearUpdate) -> float:
    """Return the largest absolute eigenvalue of the companion matrix, without those of values that are conserved at 0.

    A rule that keeps vectors may conserve a value: gradient tracking conserves the sum of its trackers less the sum
    of the gradients. Its eigenvalue of 1 does not matter, because every run starts from 0.
    """
    with one_thread():
        past = ReducedPast(update)
        matrix = past.step(torch.eye(past.size, dtype=torch.float64))
        return float(torch.linalg.eigvals(matrix).abs().max())


@dataclass(frozen=True)
class _DelayLine:
    """The numbers that are remembered for `length` steps, between two ages of messages."""

    rank: int
    length: int
    enter: Float[Tensor, "rank before"]  # from what leaves the line before
    leave: Float[Tensor, "m rank"]  # into the next step


class ReducedPast:
    """The stacked past in as few numbers as possible, and `step`, which moves it by one step."""

    def __init__(self, update: LinearUpdate) -> None:
        ages = sorted(update.matrices)
        kinds = _kinds_of_agents(update)
        space = torch.block_diag(*[kinds] * (update.size // update.num_agents))
        matrices = [space.T @ update.matrices[age] @ space for age in ages]
        self._now = matrices[0]
        self._lines: list[_DelayLine] = []
        still = space.T @ _conserved_at_zero(update)
        conserved, before = [still], torch.eye(len(self._now), dtype=torch.float64)
        for place, age in enumerate(ages[1:], 1):
            read = _row_space(torch.cat(matrices[place:]))
            if not read.shape[1]:
                break
            length = age - ages[place - 1]
            self._lines.append(_DelayLine(read.shape[1], length, read.T @ before, matrices[place] @ read))
            conserved += [read.T @ sum(matrices[place:]).T @ still] * length
            before = read
        self._conserved = torch.linalg.qr(torch.cat(conserved))[0]
        self.size = len(self._conserved)
        if self.size > LARGEST:
            raise UserError(
                f"{update.size} numbers a step and a delay of {update.depth} steps make a past of {self.size} that "
                f"cannot be shortened, above the limit of {LARGEST}; use fewer agents or a shorter delay"
            )

    def step(self, past: Float[Tensor, "k columns"]) -> Float[Tensor, "k columns"]:
        """Return the past one step later, without the conserved values."""
        end = len(self._now)
        leaving = past[:end]
        now, lines = self._now @ leaving, []
        for line in self._lines:
            begin, end = end, end + line.rank * line.length
            lines += [line.enter @ leaving, past[begin : end - line.rank]]
            leaving = past[end - line.rank : end]
            now = now + line.leave @ leaving
        later = torch.cat([now, *lines])
        kept: Tensor = later - self._conserved @ (self._conserved.T @ later)
        return kept


def _kinds_of_agents(update: LinearUpdate) -> Float[Tensor, "n k"]:
    """Return an orthonormal basis of the smallest space that has a random vector and that no part of the A_s leaves.

    A part is the square of an A_s that takes one kept vector to another. Each is scaled, so that small ones count.
    """
    n = update.num_agents
    parts = [part for matrix in update.matrices.values() for rows in matrix.split(n) for part in rows.split(n, dim=1)]
    least = max(float(part.abs().max()) for part in parts) * ROUNDING
    scaled = [part / size for part in parts if (size := part.abs().max()) > least]
    start = torch.randn((n, 1), generator=generator(0, "kinds-of-agents"), dtype=torch.float64)
    basis = new = start / start.norm()
    while new.shape[1] and scaled and basis.shape[1] < n:
        new = _without(basis, torch.cat([part @ new for part in scaled], dim=1))
        left, sizes, _ = torch.linalg.svd(new, full_matrices=False)
        new = left[:, sizes > NEW]
        basis = torch.cat([basis, new], dim=1)
    left_out = max((float(_without(basis, part @ basis).abs().max()) for part in scaled), default=0.0)
    return basis if left_out < CLOSED else torch.eye(n, dtype=torch.float64)


def _without(basis: Float[Tensor, "n k"], vectors: Float[Tensor, "n columns"]) -> Float[Tensor, "n columns"]:
    """Return the part of vectors that is orthogonal to a basis; a single pass leaves rounding errors."""
    for _ in range(2):
        vectors = vectors - basis @ (basis.T @ vectors)
    return vectors


def _row_space(matrix: Float[Tensor, "r m"]) -> Float[Tensor, "m k"]:
    """Return an orthonormal basis of the directions that a matrix reads."""
    _, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    read: Tensor = right[sizes > ROUNDING * sizes[0]]
    return read.T


def _conserved_at_zero(update: LinearUpdate) -> Float[Tensor, "m k"]:
    """Return the u of the conserved values that are 0 at every start.

    If u = u sum_s A_s, the sum over a of u (A_a + A_{a+1} + …) y(t - a) is the same at every step.
    """
    none = torch.zeros((update.size, 0), dtype=torch.float64)
    if update.starts is None:
        return none
    total = sum(update.matrices.values(), start=torch.zeros_like(update.matrices[0]))
    left, sizes, _ = torch.linalg.svd(torch.eye(len(total), dtype=torch.float64) - total)
    still = left[:, sizes < STILL]
    if not still.shape[1]:
        return none
    weights, tail = [], total
    for age in range(update.depth + 1):
        weights.append(tail.T @ still)
        tail = tail - update.matrices.get(age, torch.zeros_like(tail))
    stacked, starts = torch.cat(weights), update.starts()
    combinations, sizes, _ = torch.linalg.svd(stacked.T @ starts)
    zero = torch.ones(still.shape[1], dtype=torch.bool)
    zero[: len(sizes)] = sizes < AT_START * stacked.norm() * max(1.0, float(starts.norm()))
    found: Tensor = still @ combinations[:, zero]
    return found
