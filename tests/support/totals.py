"""Rules that send running totals: a world as oracle_totals.py needs it, and what is under way in a call."""

import dataclasses

import numpy as np

from oracle_totals import Setting, shares_of
from worlds import World


def setting_of(world: World, **changes) -> Setting:
    net = world.network
    expected = net.delay.matrix.numpy() if world.kind == "matrix" else np.full((world.n, world.n), net.delay.typical)
    setting = Setting(
        W=net.W.numpy(),
        late=np.where(net.late_links.numpy(), expected, 0),
        delays=lambda t: world.delays[t],
        clip_of=world.clip_of,
        x0=world.smooth.x0,
        gradient=world.smooth.gradient,
        lr=lambda t: world.lr,
        steps=world.num_steps,
        startup=net.startup,
    )
    return dataclasses.replace(setting, **changes)


def under_way(setting: Setting, pushed: list[np.ndarray], held: dict[tuple[int, int], int]) -> np.ndarray:
    """What has been pushed and not yet heard, over all links."""
    a, total = shares_of(setting), np.zeros_like(pushed[0][0])
    for i, j in zip(*np.nonzero(a), strict=True):
        if i != j:
            heard = pushed[max(held[i, j], 0)][j] if (i, j) in held else 0
            total = total + a[i, j] * (pushed[-1][j] - heard)
    return total
