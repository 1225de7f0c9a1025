"""Running statistics of BatchNorm: kept by each agent, mixed like the parameters, or taken anew for an evaluation."""

import pytest
import torch
from torch import nn

import gossamer as gm
from gossamer.data import Batches, partition
from gossamer.engine import Training
from gossamer.engine.folder import RunFolder
from gossamer.engine.metrics import CALIBRATION_BATCHES
from gossamer.engine.settings import make_settings
from helpers import ages

N, BATCH, STEPS = 4, 6, 14
BASE = {"network": "clusters:2,2", "delay": "3", "batch": BATCH, "epochs": 8, "lr": 0.1, "dtype": "float64"}


class Net(nn.Module):
    """Two batch norms, of which the second depends on the first."""

    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Linear(5, 6), nn.BatchNorm1d(6)
        self.two, self.last = nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=0.3)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.last(self.two(torch.relu(self.norm(self.one(x))))))


def make_task(model=Net):
    draws = torch.Generator().manual_seed(4)
    y = torch.arange(120) % 3
    x = torch.randn(120, 5, generator=draws) + 1.5 * torch.randn(3, 5, generator=draws)[y]
    return gm.Task("toy", model, gm.Examples(x[:90], y[:90]), gm.Examples(x[90:], y[90:]))


def training(task=None, **values):
    return Training(make_settings({**BASE, "execution": "vmap", **values}), task=task or make_task())


def batches_of(run, purpose="batches"):
    """The inputs of all agents at a step, from the definition."""
    settings, task = run.settings, run.task
    shards = partition(settings.partition, task.train.y, N, settings.seed)
    drawn = Batches(shards, settings.batch, settings.seed, purpose)
    return lambda step: task.train.x[drawn.at(step)].double()


def module_of(run, flat, buffers=None):
    module = run.task.fresh_module(0).module.double()
    nn.utils.vector_to_parameters(flat.clone(), module.parameters())
    for name, buffer in module.named_buffers():
        if buffers is not None:
            buffer.copy_(buffers[name])
    return module


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
    run = Training(settings, task=task)
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
    for file in ("metrics.jsonl", "checkpoint.npz"):
        assert (paths["pieces"] / file).read_bytes() == (paths["whole"] / file).read_bytes()


def test_statistics_in_flight_matter_to_a_resumed_run(tmp_path):
    """So that the test above can go red."""
    task = make_task()
    run = training(task, algorithm="d-asgd", norm_stats="mixed")
    folder = RunFolder.create(tmp_path / "run", run.settings, run.network)
    run.run(folder, stop=lambda: run.simulation.t >= 9)
    state = folder.load()
    state["simulation.statistics.ring"] += 1.0
    folder.save(state)
    other, _ = resumed(tmp_path / "run", task)
    for simulation in (run.simulation, other.simulation):
        simulation.step()
    for name, buffer in floats(run.simulation.statistics.buffers).items():
        assert (other.simulation.statistics.buffers[name] - buffer).abs().max() > 0.1


# Evaluation.


def measured(run, module):
    with torch.no_grad():
        outputs = module.eval()(run.task.test.x.double())
    accuracy = (outputs.argmax(dim=1) == run.task.test.y).double().mean()
    return float(accuracy), float(nn.functional.cross_entropy(outputs, run.task.test.y))


def assert_row(run, row, modules, average):
    expected = [measured(run, module) for module in modules]
    assert row["accuracy"] == pytest.approx([accuracy for accuracy, _ in expected])
    assert row["loss"] == pytest.approx([loss for _, loss in expected], rel=1e-9)
    found = row["accuracy_average_model"], row["loss_average_model"]
    assert found == pytest.approx(measured(run, average), rel=1e-9)


def some_steps(**values):
    run = training(init="independent", partition="classes:2", **values)
    for _ in range(7):
        run.simulation.step()
    return run, run.simulation.x, run.simulation.statistics.buffers


@pytest.mark.parametrize("execution", ["stacked", "vmap", "loop"])
@pytest.mark.parametrize("norm_stats", ["local", "mixed"])
def test_agents_are_evaluated_with_their_statistics_and_the_average_with_the_mean_of_them(norm_stats, execution):
    run, x, buffers = some_steps(algorithm="d-asgd", norm_stats=norm_stats, execution=execution)
    row = run.evaluate(x, buffers)
    modules = [module_of(run, x[i], {name: buffer[i] for name, buffer in buffers.items()}) for i in range(N)]
    mean = {name: (b.mean(dim=0) if b.is_floating_point() else b[0]) for name, b in buffers.items()}
    assert_row(run, row, modules, module_of(run, x.mean(dim=0), mean))


def calibrated(run, flat, batches):
    """A module whose statistics are plain averages over batches of the batches' own means and variances."""
    module, seen = module_of(run, flat).train(), {"norm": [], "last": []}
    for name, inputs in seen.items():
        module.get_submodule(name).register_forward_pre_hook(lambda _, given, inputs=inputs: inputs.append(given[0]))
    for batch in batches:
        module(batch)
    for name, inputs in seen.items():
        layer = module.get_submodule(name)
        layer.running_mean.copy_(torch.stack([h.mean(dim=0) for h in inputs]).mean(dim=0).detach())
        unbiased = [((h - h.mean(dim=0)) ** 2).sum(dim=0) / (len(h) - 1) for h in inputs]
        layer.running_var.copy_(torch.stack(unbiased).mean(dim=0).detach())
        layer._forward_pre_hooks.clear()
    return module


@pytest.mark.parametrize("execution", ["stacked", "vmap", "loop"])
def test_recalibrated_statistics_are_averages_over_a_few_batches(execution, monkeypatch):
    run, x, buffers = some_steps(algorithm="d-asgd", norm_stats="recalibrated", execution=execution)
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    shown, outputs = [], run.evaluate.execution.outputs

    def spy(parameters, inputs, *, training=False):
        if training:
            shown.append(inputs.clone())
        return outputs(parameters, inputs, training=training)

    monkeypatch.setattr(run.evaluate.execution, "outputs", spy)
    row = run.evaluate(x, {name: torch.full_like(buffer, 7) for name, buffer in buffers.items()})  # which do not count
    assert len(shown) == CALIBRATION_BATCHES
    batch = batches_of(run, "calibration")
    given = [batch(step) for step in range(CALIBRATION_BATCHES)]
    assert all(torch.equal(inputs[:-1], expected) for inputs, expected in zip(shown, given, strict=True))
    modules = [calibrated(run, x[i], [inputs[i] for inputs in given]) for i in range(N)]
    average = calibrated(run, x.mean(dim=0), [inputs[-1] for inputs in shown])
    assert_row(run, row, modules, average)
    for inputs in shown:  # the average sees some of every agent's
        held = [any(torch.equal(one, other) for one in inputs[-1] for other in inputs[i]) for i in range(N)]
        assert all(held) and len(inputs[-1]) == BATCH
    assert all(torch.equal(buffers[name], value) for name, value in before.items())
    assert run.evaluate(x, buffers) == row  # a second time: nothing is left over from the first


@pytest.mark.parametrize("norm_stats", ["local", "mixed", "recalibrated"])
def test_an_evaluation_leaves_no_trace_in_the_run(norm_stats):
    often, seldom = (
        training(algorithm="pc-asgd", norm_stats=norm_stats, epochs=3, eval_every=every) for every in (1, 0)
    )
    one, other = often.run(), seldom.run()
    assert len(one.history) > len(other.history) and torch.equal(one.x, other.x)
    for name, buffer in often.simulation.statistics.buffers.items():
        assert torch.equal(buffer, seldom.simulation.statistics.buffers[name])
    assert one.history[-1]["loss"] == other.history[-1]["loss"]


def test_a_calibration_with_dropout_repeats_and_leaves_the_global_generator_alone():
    def model():
        return nn.Sequential(
            nn.Linear(5, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
        )

    run = training(make_task(model), algorithm="d-asgd", norm_stats="recalibrated")
    x, buffers = run.simulation.x, run.simulation.statistics.buffers
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = run.evaluate(x, buffers)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert run.evaluate(x, buffers) == first


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
