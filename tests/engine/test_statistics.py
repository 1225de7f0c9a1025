"""Running statistics of BatchNorm: kept by each agent, or mixed like the parameters."""

import pytest
import torch
from torch import nn

from gossamer.engine import make_training
from gossamer.run.folder import RunFolder
from norms import N, batches_of, make_task, module_of, training
from runs import outcome
from worlds import ages

STEPS = 14


def floats(buffers):
    return {name: buffer for name, buffer in buffers.items() if buffer.is_floating_point()}


def moved(run, flat, buffers, inputs):
    """One agent's statistics after one more batch, as torch moves them."""
    module = module_of(run, flat, buffers).train()
    module(inputs)
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def assert_buffers(run, expected, tolerance=1e-11):
    found = run.simulation.statistics.buffers
    for i, buffers in enumerate(expected):
        assert set(found) == set(buffers)
        for name, buffer in buffers.items():
            torch.testing.assert_close(found[name][i], buffer, rtol=tolerance, atol=tolerance)


def first_buffers(run):
    return [dict(run.task.fresh_module(0).module.double().named_buffers()) for _ in range(N)]


RULES = {
    "d-asgd": {"algorithm": "d-asgd"},
    "pv": {"algorithm": "pc-asgd", "theta": "pv", "test_batch": "fresh", "momentum": 0.9},
    "gradient at the mean": {"algorithm": "sync", "gradient_at": "mixed"},
}


@pytest.mark.parametrize("execution", ["stacked", "vmap", "loop"])
@pytest.mark.parametrize("rule", RULES)
def test_local_statistics_are_each_agents_own_running_averages(rule, execution):
    run = training(execution=execution, **RULES[rule])
    batch, expected = batches_of(run), first_buffers(run)
    for step in range(5):
        x, inputs = run.simulation.x, batch(step)
        run.simulation.step()
        expected = [moved(run, x[i], expected[i], inputs[i]) for i in range(N)]
        assert_buffers(run, expected)


# Mixed.

MIXED = {
    "fixed delay": {"algorithm": "d-asgd"},
    "random delay": {"algorithm": "d-asgd", "delay": "uniform:1,5"},
    "every link late, some lost": {"algorithm": "pc-asgd", "network": "ring:4", "delay": "uniform:2,4", "loss": 0.3},
    "start-up min": {"algorithm": "d-asgd", "startup": "min"},
    "start-up full": {"algorithm": "pc-asgd", "startup": "full", "delay": "uniform:1,4"},
    "late inside clusters": {"algorithm": "d-asgd", "reliable_delay": 2},
    "without delay": {"algorithm": "d-asgd", "delay": "0"},
    "momentum, further evaluations": RULES["pv"],
    "matched differences": {"algorithm": "dm-asgd", "mixing": "uniform"},
    "synchronous": {"algorithm": "sync"},
    "clipped": {"algorithm": "c-asgd"},
    "clipped, late inside clusters": {"algorithm": "c-asgd", "reliable_delay": 1, "delay": "uniform:2,5"},
}


def mixed_by_hand(run, past, step, age):
    """What agent i holds of every neighbour, each as old as it is, averaged with W over what it holds.

    A rule that never hears late neighbours mixes by its clipping weights, as it does its parameters.
    """
    network, rule = run.network, run.algorithm
    tau = network.reliable_delay
    reliable = (age >= 0) & (age <= tau)
    clip = network.clip_matrix(torch.from_numpy(reliable))
    result = []
    for i in range(N):
        total = dict.fromkeys(floats(past[step][i]), 0.0)
        mass = 0.0
        for k in range(N):
            held = i == k or (reliable[i, k] if not rule.hears_late else age[i, k] >= 0)
            if not held:
                continue
            weight = float((network.W if rule.hears_late else clip)[i, k])
            then = past[step if i == k else max(0, step - int(age[i, k]))][k]
            mass += weight
            total = {name: value + weight * then[name] for name, value in total.items()}
        result.append({**past[step][i], **{name: value / mass for name, value in total.items()}})
    return result


@pytest.mark.parametrize("case", MIXED)
def test_mixed_statistics_are_averaged_as_the_parameters_late_ones_included(case):
    run = training(norm_stats="mixed", **MIXED[case])
    heard = run.network.without_delay() if run.algorithm.waits else run.network
    age = ages(heard, STEPS, run.settings.seed)
    batch, held, past = batches_of(run), first_buffers(run), []
    for step in range(STEPS):
        x, inputs = run.simulation.x, batch(step)
        run.simulation.step()
        past.append([moved(run, x[i], held[i], inputs[i]) for i in range(N)])
        held = mixed_by_hand(run, past, step, age[step])
        assert_buffers(run, held, 1e-10)
    before = torch.stack([buffers["norm.running_mean"] for buffers in past[-1]])
    assert before.std(dim=0).max() > 1e-3  # or the mixing would not show


@pytest.mark.parametrize("algorithm", ["d-asgd", "pc-asgd", "c-asgd", "sync"])
def test_a_message_grows_by_the_statistics_that_travel(algorithm):
    values = {"algorithm": algorithm, "epochs": 3, "dtype": "float32"}
    local, mixed, anew = (training(norm_stats=kind, **values).run() for kind in ("local", "mixed", "recalibrated"))
    vectors = {"pc-asgd": 2}.get(algorithm, 1)
    per_message = 4 * 2 * (6 + 4)  # mean and variance of 6 and 4 features; what counts batches stays at home
    for row, plain, other in zip(mixed.history, local.history, anew.history, strict=True):
        for sent, before, same in zip(row["bytes_sent"], plain["bytes_sent"], other["bytes_sent"], strict=True):
            assert sent - before == before // (vectors * 4 * local.x.shape[1]) * per_message and same == before
    assert sum(mixed.history[-1]["bytes_sent"]) > sum(local.history[-1]["bytes_sent"]) > 0


def resumed(path, task):
    folder, settings = RunFolder.open(path)
    run = make_training(settings, task=task)
    run.resume(folder)
    return run, folder


@pytest.mark.parametrize(
    ("norm_stats", "execution"),
    [("local", "stacked"), ("mixed", "stacked"), ("mixed", "loop"), ("recalibrated", "vmap")],
)
def test_a_run_with_statistics_in_flight_resumes_byte_for_byte(tmp_path, norm_stats, execution):
    task, stops = make_task(), (1, 9)
    values = {"norm_stats": norm_stats, "delay": "uniform:1,5", "dtype": "float32", "execution": execution}
    paths = {name: tmp_path / name for name in ("whole", "pieces")}
    for name, path in paths.items():
        run = training(task, algorithm="pc-asgd", momentum=0.9, epochs=4, eval_every=3, **values)
        folder = RunFolder.create(path, run.settings, run.network)
        for stop in stops if name == "pieces" else ():
            run.run(folder, stop=lambda run=run, stop=stop: run.simulation.t >= stop)
            run, folder = resumed(path, task)
        run.run(folder)
    assert outcome(paths["pieces"]) == outcome(paths["whole"])


def test_statistics_in_flight_matter_to_a_resumed_run(tmp_path):
    """So that the test above can go red."""
    task = make_task()
    run = training(task, algorithm="d-asgd", norm_stats="mixed")
    folder = RunFolder.create(tmp_path / "run", run.settings, run.network)
    run.run(folder, stop=lambda: run.simulation.t >= 9)
    state = folder.load()
    in_flight = [value for name, value in state.items() if name.startswith("simulation.statistics.ring.")]
    assert in_flight
    for value in in_flight:
        value += 1.0
    folder.save(state)
    other, _ = resumed(tmp_path / "run", task)
    for simulation in (run.simulation, other.simulation):
        simulation.step()
    for name, buffer in floats(run.simulation.statistics.buffers).items():
        assert (other.simulation.statistics.buffers[name] - buffer).abs().max() > 0.1


def test_a_model_without_statistics_has_none_to_mix():
    run = training(make_task(lambda: nn.Linear(5, 3)), algorithm="d-asgd", norm_stats="mixed")
    assert run.simulation.statistics is None and run.run().summary["norm_stats"] is None


@pytest.mark.parametrize("seed", [0, 1])
def test_with_skewed_labels_mixed_statistics_bring_agents_of_equal_parameters_together(seed):
    values = {"algorithm": "d-asgd", "partition": "classes:1", "lr": 1e-9, "seed": seed, "epochs": 10}
    spreads = []
    for norm_stats in ("local", "mixed"):
        run = training(norm_stats=norm_stats, **values)
        for _ in range(40):
            run.simulation.step()
        mean = run.simulation.statistics.buffers["norm.running_mean"]
        spreads.append((mean - mean.mean(dim=0)).norm())
    assert spreads[1] < 0.5 * spreads[0]
