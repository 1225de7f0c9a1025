"""Stored runs made up for tests, and a scale so small that every result takes seconds."""

import dataclasses

from gossamer.paper import RESULTS, cells_for
from gossamer.paper.cells import PROTOCOLS, SCALES, Cell
from gossamer.paper.paper_result import find_sections
from gossamer.paper.rates import Rates

TINY = dataclasses.replace(SCALES["smoke"], epochs=7, evaluations=2, rates=(0.03, 0.3))


def record(cell, seed, accuracy, *, scale="quick", **more):
    """A run of this cell that ended with this accuracy."""
    history = {"epoch": [0.0, 1.0], "accuracy": [0.1, accuracy], "spread": [0.0, 0.01], "predict": [None, [0.5, 0.7]]}
    made = {"key": cell.key, "seed": seed, "scale": scale, "settings": cell.settings.identity("experiment")}
    made |= {"accuracy": accuracy, "loss": 1.0, "status": "finished", "history": history, "seconds": 60.0}
    made |= {
        "bytes_sent": 1000,
        "iterations": 10,
        "device": "CPU made up",
        "precision": "float32",
        "versions": {"gossamer": "0.0", "torch": "0.0"},
    }
    return {**made, **more}


def fill(store, cells, accuracies, seeds=1, spread=0.0, **more):
    """Store runs of the rows that have an accuracy; seeds lie `spread` apart."""
    for cell in cells:
        if cell.row in accuracies:
            for seed in range(seeds):
                value = accuracies[cell.row] + spread * (seed - (seeds - 1) / 2)
                store.add(record(cell, seed, value, **more))


def cells_of(name, scale="quick", protocols=tuple(PROTOCOLS)):
    """The cells of a result."""
    return cells_for([RESULTS[name]], SCALES[scale], list(protocols))


def section_of(name, store, protocol="paper", scale=SCALES["quick"]):
    """What is stored of a result at one scale, by one protocol."""
    return RESULTS[name].section(Rates(scale, store), protocol)


def sections_of(name, store):
    """What is stored of a result."""
    return find_sections([RESULTS[name]], store)[name]


def made_up(job, folder, on_begin, stop):
    """A run that takes no time; what it ends with depends on its settings alone."""
    on_begin(10)
    accuracy = int(job.key[:4], 16) / 2**17 + (0.3 if job.settings.lr == 0.3 else 0.0)
    seconds = {"epoch_seconds": [0.1, 0.2]} if job.timed else {}
    return record(Cell("", "", "", job.settings), job.settings.seed, accuracy, scale=job.scale, **seconds)
