"""Makes a training run from its settings: in steps, or in seconds on a testbed."""

from gossamer.algorithms import Algorithm
from gossamer.engine.timed.timed_training import TimedTraining
from gossamer.engine.training import Training
from gossamer.network import Network
from gossamer.run.plan import make_plan
from gossamer.run.settings import Settings
from gossamer.tasks import Task
from gossamer.testbed import Testbed


def make_training(
    settings: Settings,
    *,
    task: Task | None = None,
    network: Network | None = None,
    algorithm: Algorithm | None = None,
    testbed: Testbed | None = None,
) -> Training:
    """Build a run. A given object replaces what the settings name."""
    plan = make_plan(settings, task=task, network=network, algorithm=algorithm, testbed=testbed)
    return Training(plan) if plan.testbed is None else TimedTraining(plan)
