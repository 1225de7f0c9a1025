"""Stored runs made up for tests, and a scale so small that every result takes seconds."""

import dataclasses

from gossamer.experiments.reproduce.cells import essence
from gossamer.experiments.reproduce.scales import SCALES

TINY = dataclasses.replace(SCALES["smoke"], epochs=7, evaluations=2, rates=(0.03, 0.3))


def record(cell, seed, accuracy, *, scale="quick", **more):
    """A run of this cell that ended with this accuracy."""
    history = {"epoch": [0.0, 1.0], "accuracy": [0.1, accuracy], "spread": [0.0, 0.01], "predict": [None, [0.5, 0.7]]}
    made = {"key": cell.key, "seed": seed, "scale": scale, "settings": essence(cell.settings)}
    made |= {"accuracy": accuracy, "loss": 1.0, "status": "finished", "history": history, "seconds": 60.0}
    made |= {"device": "CPU made up", "precision": "float32", "versions": {"gossamer": "0.0", "torch": "0.0"}}
    return {**made, **more}


def fill(store, cells, accuracies, seeds=1, spread=0.0, **more):
    """Store runs of the rows that have an accuracy; seeds lie `spread` apart."""
    for cell in cells:
        if cell.row in accuracies:
            for seed in range(seeds):
                value = accuracies[cell.row] + spread * (seed - (seeds - 1) / 2)
                store.add(record(cell, seed, value, **more))
