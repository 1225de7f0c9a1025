"""The cost of a step by the number of agents: a small MLP on a sparse graph.

    python benchmarks/many_agents.py --agents 100,316,1000,3000,10000

Prints, for each number of agents on `regular:N,k=4` with a fixed delay, the CPU seconds to build the run and the CPU
microseconds of a step by agent. Random inputs; every agent has fifty examples.
"""

import argparse
import resource
import time

import torch

from gossamer.data import Examples
from gossamer.engine.training import Training
from gossamer.nn import make_model
from gossamer.run.machine import arithmetic
from gossamer.run.settings import make_settings
from gossamer.tasks import Task

SHAPE, CLASSES, EXAMPLES_EACH = (1, 8, 8), 10, 50


def task_for(agents: int) -> Task:
    """Random images and labels."""
    chance = torch.Generator().manual_seed(0)
    count = EXAMPLES_EACH * agents
    train, test = (
        Examples(torch.rand(size, *SHAPE, generator=chance), torch.randint(CLASSES, (size,), generator=chance))
        for size in (count, 64)
    )
    return Task("random", lambda: make_model("mlp:16", SHAPE, CLASSES), train, test, "mlp:16")


def measure(agents: int, chosen: argparse.Namespace) -> tuple[float, float, float]:
    """Return the seconds to build, the seconds of a step, and the seconds of its messages and its rule alone."""
    task, steps = task_for(agents), chosen.steps
    began = time.process_time()
    settings = make_settings(
        {"network": f"regular:{agents},k=4", "delay": chosen.delay, "algorithm": chosen.algorithm, "batch": 4}
        | {"lr": 0.01, "epochs": 1_000_000, "execution": chosen.execution, "threads": 1}
    )
    training = Training(settings, task=task)
    built = time.process_time() - began
    simulation = training.simulation
    with arithmetic(training.settings):
        for _ in range(7):
            simulation.step()
        began = time.process_time()
        for _ in range(steps):
            simulation.step()
        whole = (time.process_time() - began) / steps
        x = simulation.x
        began = time.process_time()
        for _ in range(steps):
            simulation.source.gradient(x, simulation.t)
        gradient = (time.process_time() - began) / steps
    return built, whole, whole - gradient


def main() -> None:
    """Measure, and print a row for each number of agents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="100,316,1000,3000,10000")
    parser.add_argument("--algorithm", default="d-asgd")
    parser.add_argument("--delay", default="5")
    parser.add_argument("--execution", default="stacked")
    parser.add_argument("--steps", type=int, default=64, help="64 are a block of batches, which are drawn at once")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| agents | build, s | a step by agent, us | without the gradient, us | peak memory, MB |")
    print("|---:|---:|---:|---:|---:|")
    for agents in map(int, chosen.agents.split(",")):
        built, whole, rest = measure(agents, chosen)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(
            f"| {agents} | {built:.2f} | {1e6 * whole / agents:.1f} | {1e6 * rest / agents:.1f} | {peak:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
