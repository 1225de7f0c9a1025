"""Hindsight: how good an agent's predictions of a neighbour have been, and what clipping would have cost.

At step t the agent notes where it predicts a late neighbour k to be, and where it is itself. When k's message of step t
arrives, tau steps later, it tells where k has been:

    predicting   |x^_k(t) - x_k(t)|^2        clipping, which takes k to be where the agent is    |x_i(t) - x_k(t)|^2

Running averages e_pre and e_cli of both are kept for each neighbour. They start at 0 and forget at the same rate, so
their ratio holds from the first pair on. `theta=pv` with `criterion=hindsight` predicts, with the theta of `auto`,
where e_pre < e_cli. `theta=kalman` takes the gain e_cli / (e_cli + e_pre) of a Kalman filter: e_cli is the variance of
what the agent believes, e_pre that of what it is told.

Nothing more is sent. One note for each neighbour is open at a time, of a fixed random choice of at most COLUMNS
parameters: the memory does not grow with the model or the delay. If a message never comes, the note is dropped when a
later one arrives.
"""

import functools
from collections.abc import Callable, Mapping

import torch

from gossamer.algorithms.base import Inbox, Late, Own, Place
from gossamer.network import LinkMatrix, Links
from gossamer.seeding import generator
from gossamer.shapes import Bool, Float, Int, Tensor

COLUMNS = 256  # parameters; the error of a mean square over them is a tenth of it
FORGET = 0.1  # weight of the newest pair in the averages
NONE_OPEN = -1

Predictions = Callable[[Late, Int[Tensor, " m"]], Float[Tensor, "e m"]]


@functools.lru_cache
def columns_of(size: int, device: torch.device) -> Int[Tensor, " m"]:
    """Return the parameters that are compared, for a model of this size."""
    chosen = torch.randperm(size, generator=generator(0, "hindsight", size))[:COLUMNS]
    return chosen.sort().values.to(device)


def start_hindsight(x: Float[Tensor, "a d"], place: Place) -> dict[str, Tensor]:
    """Return what is kept at step 0, for each link: no note, no error."""
    count, size = len(place.links), min(x.shape[1], COLUMNS)
    return {
        "noted_at": torch.full((count,), NONE_OPEN, dtype=torch.int64, device=x.device),
        "predicted": x.new_zeros(count, size),
        "stood": x.new_zeros(count, size),
        "predicting_error": x.new_zeros(count),
        "clipping_error": x.new_zeros(count),
    }


def next_hindsight(own: Own, inbox: Inbox, predictions: Predictions) -> dict[str, Tensor]:
    """Return what is kept after looking at the messages held: notes answered, dropped and made."""
    columns = columns_of(own.x.shape[1], own.x.device)
    noted_at, predicted, stood = (own.state[name] for name in ("noted_at", "predicted", "stood"))
    errors = {"predicting_error": predicted, "clipping_error": stood}
    kept = {name: own.state[name] for name in errors}
    for late in inbox.late:
        links, held, sent_at = late.weights.links, late.weights.values > 0, own.t - late.age
        answered = held & (noted_at == sent_at) & (noted_at != NONE_OPEN)
        told = late.message["x"][:, columns][links.senders]
        for name, believed in errors.items():
            error = (believed - told).square().mean(dim=1)
            kept[name] = torch.where(answered, torch.lerp(kept[name], error, FORGET), kept[name])
        free = held & ((noted_at == NONE_OPEN) | (noted_at <= sent_at))
        noted_at = torch.where(free, own.t, noted_at)
        predicted = torch.where(free[:, None], predictions(late, columns), predicted)
        stood = torch.where(free[:, None], own.x[:, columns][links.receivers], stood)
    return {"noted_at": noted_at, "predicted": predicted, "stood": stood, **kept}


def gain(state: Mapping[str, Tensor], links: Links) -> LinkMatrix:
    """Return e_cli / (e_cli + e_pre) for each link; 1 where nothing is known."""
    clipping, whole = state["clipping_error"], state["clipping_error"] + state["predicting_error"]
    return LinkMatrix(links, torch.where(whole > 0, clipping / whole, 1.0))


def predicts_better(own: Own, inbox: Inbox) -> Bool[Tensor, " a"]:
    """Say which agents have predicted their late neighbours, as a whole, better than clipping would have."""
    gained = own.state["clipping_error"] - own.state["predicting_error"]
    total = gained.new_zeros(len(own.x))
    for late in inbox.late:
        total = total + late.weights.links.row_sums(late.weights.values * gained)
    return total > 0
