"""The ways to run N models, and the gradients that a run takes from them, against a loop over plain modules."""

import tomllib

import pytest
import torch
from torch import nn

import gossamer as gm
from gossamer.data import AugmentDraws, Batches, Normalize, partition
from gossamer.engine import Training, assembly
from gossamer.engine.execution import EXECUTIONS, choice, choose_execution, make_execution
from gossamer.engine.execution.base import Setup
from gossamer.engine.feed import Feed
from gossamer.engine.gradients import TaskSource
from gossamer.engine.settings import make_settings
from gossamer.nn import make_model
from test_augment import padded_crop

N, BATCH = 3, 5
every_execution = pytest.mark.parametrize("name", list(EXECUTIONS))
small = {"network": "clusters:2,2", "delay": "3", "batch": 4, "epochs": 3, "lr": 0.1}


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.head(torch.tanh(self.two(torch.tanh(self.one(x)))))


class Frozen(nn.Sequential):
    """The first layer's weight, and the last one's bias, are not to be trained."""

    def __init__(self):
        super().__init__(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self[0].weight.requires_grad_(False)
        self[2].bias.requires_grad_(False)


class Decides(nn.Module):
    """Which way it goes depends on the data, which no transform can know."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else self.linear(-x)


class Assigns(nn.Module):
    """Keeps a running mean by setting its buffer anew."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=0)
        return self.linear(x - self.mean)


def with_norm():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def with_dropout():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))


MODELS = {
    "preresnet": (lambda: make_model("preresnet:8", (3, 8, 8), 3), (3, 8, 8)),
    "norm": (with_norm, (6,)),
    "tied": (Tied, (6,)),
    "frozen": (Frozen, (6,)),
    "transformer": (lambda: make_model("transformer:layers=1,width=8,heads=2", (7,), 256), (7,)),
}


def make_task(model, shape=(6,), name="toy", num_train=60, **options):
    draws = torch.Generator().manual_seed(1)
    if shape == (7,):
        codes = torch.randint(0, 256, (num_train + 20, 8), generator=draws)
        x, y = codes[:, :-1], codes[:, 1:]
    else:
        x = torch.randn(num_train + 20, *shape, generator=draws)
        y = torch.randint(0, 3, (num_train + 20,), generator=draws)
        x = x + 0.5 * y.view(-1, *[1] * len(shape))
    train, test = gm.Examples(x[:num_train], y[:num_train]), gm.Examples(x[num_train:], y[num_train:])
    return gm.Task(name, model, train, test, **options)


def make_setup(task, **options):
    return Setup(task, task.fresh_module(0), **{"num_agents": N, "device": "cpu", "dtype": torch.float64, **options})


def states(task, seed=2):
    """Points that differ between agents in every parameter, norms included."""
    x = task.initial("independent", N, 0).double()
    return x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def examples(task, step):
    """A batch for each agent: inputs [N, BATCH, ...] and targets."""
    chosen = torch.randperm(len(task.train), generator=torch.Generator().manual_seed(step))[: N * BATCH]
    x, y = task.train.x[chosen].unflatten(0, (N, BATCH)), task.train.y[chosen].unflatten(0, (N, BATCH))
    return (x.double() if x.is_floating_point() else x), y


def feeds(task, batch=BATCH, dtype=torch.float64, seed=0, **options):
    shards = partition("iid", task.train.y, N, seed)
    return [Feed(task, shards, batch, seed, "cpu", dtype, purpose=name, **options) for name in PURPOSES]


PURPOSES = ("batches", "fresh-batches")


def make_source(name, task, seed=0, **options):
    return TaskSource(make_execution(name, make_setup(task, **options)), *feeds(task, seed=seed), seed)


class Agents:
    """The definition: N plain modules, each with its own parameters and buffers, one after the other."""

    def __init__(self, task):
        self.task = task
        self.modules = [task.fresh_module(0).module.double() for _ in range(N)]

    def set(self, x):
        for module, flat in zip(self.modules, x, strict=True):
            nn.utils.vector_to_parameters(flat.clone(), module.parameters())

    def loss(self, output, targets):
        return nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), targets.reshape(-1))

    def gradient(self, x, inputs, targets):
        self.set(x)
        rows, losses = [], []
        for module, one, target in zip(self.modules, inputs, targets, strict=True):
            module.train().zero_grad()
            loss = self.loss(module(one), target)
            loss.backward()
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
            rows.append(torch.cat([part.flatten() for part in parts]))
            losses.append(loss.detach())
        return torch.stack(rows), torch.stack(losses)

    @torch.no_grad()
    def outputs(self, x, inputs):
        self.set(x)
        return torch.stack([module.eval()(one) for module, one in zip(self.modules, inputs, strict=True)])

    def buffers(self):
        names = dict(self.modules[0].named_buffers())
        return {name: torch.stack([dict(m.named_buffers())[name] for m in self.modules]) for name in names}


def assert_close(found, expected, tolerance=1e-11):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def assert_same_buffers(found, expected):
    assert list(found) == list(expected)
    for name, buffer in expected.items():
        assert_close(found[name].double(), buffer.double())


# Gradients, losses, outputs and running statistics.


@every_execution
@pytest.mark.parametrize("model", MODELS)
def test_an_execution_is_a_loop_over_plain_modules(name, model):
    task = make_task(*MODELS[model])
    execution, agents = make_execution(name, make_setup(task)), Agents(task)
    for step in range(3):
        x, batch = states(task, step), examples(task, step)
        for found, expected in zip(execution.gradient(x, *batch), agents.gradient(x, *batch), strict=True):
            assert_close(found, expected)
    inputs, _ = examples(task, 9)
    assert_same_buffers(execution.buffers, agents.buffers())
    x = states(task, 9)
    assert_close(execution.outputs(x, inputs), agents.outputs(x, inputs))
    assert_same_buffers(execution.buffers, agents.buffers())  # which an evaluation leaves alone


@every_execution
def test_dropout_is_off_in_an_evaluation_and_apart_for_agents_in_training(name):
    task = make_task(with_dropout)
    execution, agents = make_execution(name, make_setup(task)), Agents(task)
    inputs, targets = examples(task, 0)
    assert_close(execution.outputs(states(task), inputs), agents.outputs(states(task), inputs))
    alike = states(task)[:1].repeat(N, 1)
    g, _ = execution.gradient(alike, *(part[:1].expand_as(part) for part in (inputs, targets)))
    assert not any(torch.equal(g[i], g[j]) for i in range(N) for j in range(i))
    again = execution.outputs(alike, inputs[:1].expand_as(inputs))
    assert_close(again, again[:1].expand_as(again))


@every_execution
def test_a_pass_in_training_mode_without_gradients_moves_statistics_as_torch_does(name):
    task = make_task(with_norm)
    execution, agents = make_execution(name, make_setup(task)), Agents(task)
    x, (inputs, targets) = states(task), examples(task, 0)
    execution.outputs(x, inputs, training=True)
    agents.gradient(x, inputs, targets)
    assert_same_buffers(execution.buffers, agents.buffers())


@every_execution
def test_a_frozen_parameter_has_no_gradient_and_never_moves(name):
    task = make_task(Frozen)
    execution = make_execution(name, make_setup(task))
    g, _ = execution.gradient(states(task), *examples(task, 0))
    frozen = torch.cat([torch.full((p.numel(),), not p.requires_grad) for p in Frozen().parameters()])
    assert torch.equal(g[:, frozen], torch.zeros(N, 51, dtype=torch.float64)) and g[:, ~frozen].ne(0).any(dim=0).all()
    values = {**small, "algorithm": "pc-asgd", "dtype": "float64", "momentum": 0.9, "execution": name}
    run = Training(make_settings(values), task=task)
    start = run.simulation.x.clone()
    moved = run.run().x - start
    assert moved[:, frozen].abs().max() < 1e-14 and moved[:, ~frozen].abs().max() > 1e-2


def test_weight_decay_leaves_a_frozen_parameter_alone():
    values = {**small, "algorithm": "d-asgd", "dtype": "float64", "weight_decay": 0.1, "execution": "vmap"}
    run = Training(make_settings(values), task=make_task(Frozen))
    start = run.simulation.x.clone()
    assert (run.run().x - start)[:, :48].abs().max() < 1e-14


@pytest.mark.parametrize("name", ["stacked", "vmap", "loop"])
def test_a_buffer_that_the_model_sets_anew_is_kept(name):
    task = make_task(Assigns)
    execution, agents = make_execution(name, make_setup(task)), Agents(task)
    for step in range(3):
        batch = states(task, step), *examples(task, step)
        assert_close(execution.gradient(*batch)[0], agents.gradient(*batch)[0])
    assert_same_buffers(execution.buffers, agents.buffers())


# What a run asks a source for.


@every_execution
def test_a_source_gives_the_numbers_of_a_loop_on_the_batches_of_the_step(name):
    task = make_task(with_norm)
    source, agents = make_source(name, task), Agents(task)
    shards = partition("iid", task.train.y, N, 0)
    for step in (0, 1, 64, 7):
        x, y = states(task, step), states(task, step + 1)
        own, fresh = (
            (task.train.x[chosen].double(), task.train.y[chosen])
            for chosen in (Batches(shards, BATCH, 0, purpose).at(step) for purpose in PURPOSES)
        )
        g, loss = source.gradient(x, step)
        buffers = agents.buffers()
        expected_elsewhere = agents.gradient(y, *own)
        expected_fresh, _ = agents.gradient(y, *fresh)
        for module, row in zip(agents.modules, range(N), strict=True):  # only the step itself moves them
            for buffer_name, buffer in module.named_buffers():
                buffer.copy_(buffers[buffer_name][row])
        expected_g, expected_loss = agents.gradient(x, *own)
        assert_close(g, expected_g)
        assert_close(loss, expected_loss)
        assert_close(source.gradient_elsewhere(y, step), expected_elsewhere[0])
        assert_close(source.loss(y, step), expected_elsewhere[1])
        assert_close(source.fresh_gradient(y, step), expected_fresh)
        assert_same_buffers(source.execution.buffers, agents.buffers())


@every_execution
@pytest.mark.parametrize("ask", ["gradient_elsewhere", "loss", "fresh_gradient"])
def test_further_evaluations_leave_no_trace(name, ask):
    task = make_task(with_dropout)
    source = make_source(name, task)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    getattr(source, ask)(states(task), 0)  # before the first gradient
    assert all(torch.equal(b, b[:1].expand_as(b)) for b in source.execution.buffers.values())
    g, loss = source.gradient(states(task), 0)
    kept = [tensor.clone() for tensor in (g, loss, *source.execution.buffers.values())]
    getattr(source, ask)(states(task, 3), 0)
    after = (g, loss, *source.execution.buffers.values())
    assert all(torch.equal(a, b) for a, b in zip(kept, after, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


@every_execution
def test_gradients_are_a_function_of_the_point_and_the_step_alone(name):
    task, steps = make_task(with_dropout), (0, 1, 2, 65)
    source = make_source(name, task)
    expected = {step: source.gradient(states(task, step), step) for step in steps}
    other = make_source(name, task)
    torch.manual_seed(99)
    for step in (2, 65, 0, 2, 1):
        other.loss(states(task), 1)
        other.fresh_gradient(states(task), 3)
        x = states(task, step)
        assert torch.equal(other.gradient_elsewhere(x, step), expected[step][0])
        assert all(torch.equal(a, b) for a, b in zip(other.gradient(x, step), expected[step], strict=True))
    another_seed = make_source(name, task, seed=1).gradient(states(task), 0)[0]
    assert not torch.equal(another_seed, make_source(name, task).gradient(states(task), 0)[0])


def test_dropout_draws_anew_at_every_step():
    task = make_task(with_dropout)
    source = make_source("stacked", task)
    source.feed.draw = lambda step: Feed.draw(source.feed, 0)  # the same examples
    assert not torch.equal(source.gradient(states(task), 0)[0], source.gradient(states(task), 1)[0])


def test_fresh_batches_are_others_than_those_of_the_step():
    own, fresh = feeds(make_task(with_norm))
    assert not any(torch.equal(own.draw(step).indices, fresh.draw(step).indices) for step in range(20))


# Whole runs.


def run_with(task, **values):
    run = Training(make_settings({**small, "dtype": "float64", **values}), task=task)
    return run, run.run()


@pytest.mark.parametrize("norm_stats", ["local", "mixed", "recalibrated"])
def test_runs_end_alike_whatever_the_execution(norm_stats):
    task = make_task(with_norm)
    rule = {"algorithm": "pc-asgd", "theta": "pv", "test_batch": "fresh", "momentum": 0.9, "norm_stats": norm_stats}
    (first, result), *others = (run_with(task, execution=name, **rule) for name in EXECUTIONS)
    assert result.summary["iterations"] == 12 and 0 < result.summary["predict_fraction"] < 1
    for other, same in others:
        assert_close(same.x, result.x, 1e-9)
        for name, buffer in first.simulation.statistics.buffers.items():
            assert_close(other.simulation.statistics.buffers[name].double(), buffer.double(), 1e-9)
        for row, expected in zip(same.history, result.history, strict=True):
            assert row["loss"] == pytest.approx(expected["loss"], rel=1e-9)
            assert row["loss_average_model"] == pytest.approx(expected["loss_average_model"], rel=1e-9)
            assert row["accuracy"] == expected["accuracy"]


@pytest.fixture
def no_choice_yet(monkeypatch):
    monkeypatch.setattr(assembly, "_chosen", {})


def test_auto_picks_an_execution_says_so_and_stays_with_it(tmp_path, monkeypatch, no_choice_yet):
    task = make_task(with_dropout)
    before = torch.get_rng_state()
    run = Training(make_settings(small), task=task)
    assert torch.equal(torch.get_rng_state(), before)
    name = run.settings.execution
    assert name in EXECUTIONS and run.simulation.source.execution.name == run.evaluate.execution.name == name
    note = run.notes["execution"]
    assert note.startswith(f"{name} (") and all(f"{other} " in note for other in EXECUTIONS) and " ms" in note
    monkeypatch.setattr(choice, "_measure", None)  # a second measurement could come out otherwise
    monkeypatch.setattr(assembly, "choose_execution", None)
    assert Training(make_settings(small), task=task).settings.execution == name
    result = gm.simulate(task, "clusters:2,2", out=tmp_path / "run", delay=3, batch=4, epochs=3)
    assert tomllib.loads((tmp_path / "run/config.toml").read_text())["execution"] == name
    assert result.summary["execution"] == name


def test_an_execution_that_is_named_is_taken_without_a_measurement(no_choice_yet):
    for name in EXECUTIONS:
        run = Training(make_settings({**small, "execution": name}), task=make_task(with_norm))
        assert run.settings.execution == run.simulation.source.execution.name == name
        assert run.notes["execution"] == name


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({"stacked": 1.0, "vmap": 0.9, "loop": 0.9}, "stacked"),  # a near tie
        ({"stacked": 1.0, "vmap": 0.7, "loop": 0.9}, "vmap"),
        ({"stacked": 1.0, "vmap": 2.0, "loop": 0.1}, "loop"),
        ({"vmap": 2.0, "loop": 1.0}, "loop"),
    ],
)
def test_the_fastest_is_chosen_unless_it_is_nearly_a_tie(monkeypatch, seconds, chosen):
    def measure(execution, inputs, targets):
        assert inputs.shape[1] <= choice.LARGEST_BATCH
        if execution.name not in seconds:
            raise gm.UserError("not this one")
        return seconds[execution.name]

    monkeypatch.setattr(choice, "_measure", measure)
    task = make_task(with_norm)
    found = choose_execution(make_setup(task), torch.randn(N, 40, 6).double(), torch.zeros(N, 40, dtype=torch.int64))
    assert found == (chosen, seconds)


def test_an_execution_that_cannot_run_the_model_is_left_out(no_choice_yet):
    task = make_task(Decides)
    name, seconds = choose_execution(make_setup(task), *examples(task, 0))
    assert name == "loop" and list(seconds) == ["loop"]
    agents, batch = Agents(task), (states(task), *examples(task, 0))
    assert_close(make_execution("loop", make_setup(task)).gradient(*batch)[0], agents.gradient(*batch)[0])
    run = Training(make_settings({**small, "algorithm": "d-asgd"}), task=task)
    assert run.settings.execution == "loop" and run.run().summary["status"] == "finished"
    with pytest.raises(gm.UserError, match="use execution=loop") as error:
        make_execution("stacked", make_setup(task)).gradient(*batch)
    assert "\n" not in str(error.value)


def test_a_model_that_runs_in_no_way_fails_with_its_own_error(no_choice_yet):
    task = make_task(lambda: nn.Linear(5, 3))  # of features of which there are 6
    with pytest.raises(RuntimeError, match=r"shapes|size"):
        choose_execution(make_setup(task), *examples(task, 0))


# Precision.


@pytest.mark.parametrize("model", ["norm", "preresnet"])
def test_bf16_computes_close_to_float32_and_keeps_states_in_float32(model):
    task = make_task(*MODELS[model])
    values = {**small, "algorithm": "pc-asgd", "lr": 0.02}
    exact, rough = (
        Training(make_settings({**values, "precision": precision, "execution": "stacked"}), task=task)
        for precision in ("float32", "bf16")
    )
    start = exact.simulation.x.clone()
    for _ in range(4):
        reports = [run.simulation.step() for run in (exact, rough)]
    assert rough.simulation.x.dtype == reports[1].loss.dtype == torch.float32
    moved = exact.simulation.x - start
    error = (rough.simulation.x - exact.simulation.x).norm() / moved.norm()
    assert 0 < error < 0.2  # batch norms over a handful of numbers enlarge what is rounded
    torch.testing.assert_close(reports[1].loss, reports[0].loss, rtol=0.05, atol=0.02)
    buffers = rough.simulation.statistics.buffers
    assert all(b.dtype == torch.float32 for b in buffers.values() if b.is_floating_point())
    whole = Training(make_settings({**values, "precision": "bf16"}), task=task)  # auto takes the only one that can
    assert whole.settings.execution == "stacked" and whole.run().summary["status"] == "finished"


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"precision": "bf16", "execution": "vmap"}, "precision=bf16 needs execution=stacked, got vmap"),
        ({"precision": "bf16", "execution": "loop"}, "precision=bf16 needs execution=stacked, got loop"),
        ({"compile": True, "execution": "loop"}, "compile needs execution=stacked, got loop"),
        ({"compile": True, "execution": "vmap"}, "compile needs execution=stacked, got vmap"),
        ({"precision": "tf32", "dtype": "float64"}, "precision=tf32 needs dtype=float32, got float64"),
        ({"precision": "bf16", "dtype": "float64"}, "precision=bf16 needs dtype=float32, got float64"),
        ({"augment": "crop-flip"}, "use augment=none"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(values, match):
    with pytest.raises(gm.UserError, match=match) as error:
        Training(make_settings({**small, **values}), task=make_task(with_norm))
    assert "\n" not in str(error.value)


# Augmentation.


def image_task(augments=False):
    draws = torch.Generator().manual_seed(3)
    x, y = torch.randint(0, 256, (80, 3, 8, 8), generator=draws, dtype=torch.uint8), torch.arange(80) % 3
    prepare = Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))

    def model():
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))

    train, test = gm.Examples(x[:60], y[:60]), gm.Examples(x[60:], y[60:])
    return gm.Task("images", model, train, test, prepare=prepare, augments=augments)


def test_a_feed_crops_and_flips_the_raw_images_of_the_step():
    task = image_task()
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (task.prepare.mean, task.prepare.std))
    plain, moving, again = feeds(task)[0], feeds(task, augment=True)[0], feeds(task, augment=True)[0]
    draws = AugmentDraws(0, N, BATCH, "augment-batches")
    kept = {}
    for step in (0, 1, 63, 64, 130):
        inputs, targets = kept[step] = moving.load(moving.draw(step))
        chosen = plain.draw(step).indices
        assert torch.equal(targets, task.train.y[chosen]) and inputs.shape == (N, BATCH, 3, 8, 8)
        for agent in range(N):
            for place in range(BATCH):
                image = padded_crop(task.train.x[chosen[agent, place]], *draws.at(step)[agent, place].tolist())
                assert_close(inputs[agent, place], (image.double() / 255 - mean) / std)
        assert_close(plain.load(plain.draw(step))[0], (task.train.x[chosen].double() / 255 - mean) / std)
    for step in (130, 0, 64, 63, 1):  # as a resumed run would
        assert all(torch.equal(a, b) for a, b in zip(again.load(again.draw(step)), kept[step], strict=True))
    own, fresh = feeds(task, augment=True)
    assert not torch.equal(own.draw(0).crops, fresh.draw(0).crops)


@pytest.mark.parametrize("norm_stats", ["local", "recalibrated"])
def test_augmentation_changes_training_and_never_an_evaluation(norm_stats):
    runs = {
        augment: Training(
            make_settings({**small, "augment": augment, "norm_stats": norm_stats, "execution": "vmap"}),
            task=image_task(),
        )
        for augment in ("crop-flip", "none")
    }
    moving, plain = runs["crop-flip"], runs["none"]
    x = plain.simulation.x
    assert not torch.equal(moving.simulation.source.gradient(x, 0)[0], plain.simulation.source.gradient(x, 0)[0])
    buffers = plain.simulation.statistics.buffers
    assert moving.evaluate(x, buffers) == plain.evaluate(x, buffers)
    source, shards = moving.simulation.source, partition("iid", plain.task.train.y, 4, 0)
    expected = Feed(plain.task, shards, 4, 0, "cpu", torch.float32, augment=True)
    for step in (0, 5):
        pair = zip(source.feed.load(source.feed.draw(step)), expected.load(expected.draw(step)), strict=True)
        assert all(torch.equal(a, b) for a, b in pair)


@pytest.mark.parametrize("augments", [False, True])
def test_auto_augments_where_the_task_says_so(augments):
    run = Training(make_settings({**small, "execution": "vmap"}), task=image_task(augments))
    assert run.settings.augment == ("crop-flip" if augments else "none")
    assert (run.simulation.source.feed.draw(0).crops is not None) == augments


# torch.compile: the graph that is recorded for it.


@pytest.fixture
def compiles(monkeypatch):
    """Stand in for torch.compile, which takes many seconds: the recorded graph itself is run."""
    graphs = []

    def keep(graph):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", keep)
    return graphs


@pytest.mark.parametrize("model", ["norm", "tied", "frozen", "preresnet", "transformer"])
def test_the_graph_for_the_compiler_computes_the_same(model, compiles):
    task = make_task(*MODELS[model])
    execution, agents = make_execution("stacked", make_setup(task, compile=True)), Agents(task)
    for step in range(3):
        batch = states(task, step), *examples(task, step)
        for found, expected in zip(execution.gradient(*batch), agents.gradient(*batch), strict=True):
            assert_close(found, expected)
        assert_same_buffers(execution.buffers, agents.buffers())
    assert len(compiles) == 1
    x, inputs = states(task, 9), examples(task, 9)[0]
    assert_close(execution.outputs(x, inputs), agents.outputs(x, inputs))


def test_the_graph_for_the_compiler_survives_it(monkeypatch):
    """As torch.compile takes it apart, short of generating code."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda graph: whole(graph, backend="aot_eager"))
    task = make_task(with_norm)
    execution, agents = make_execution("stacked", make_setup(task, compile=True)), Agents(task)
    for step in range(2):
        batch = states(task, step), *examples(task, step)
        assert_close(execution.gradient(*batch)[0], agents.gradient(*batch)[0])
        assert_same_buffers(execution.buffers, agents.buffers())


def test_recording_the_graph_moves_no_draw(compiles):
    """Else the first step after a resume would drop other units than the same step in an uninterrupted run."""
    task = make_task(with_dropout)
    source = make_source("stacked", task, compile=True)
    source.gradient(states(task), 0)
    later, first = source.gradient(states(task), 1), make_source("stacked", task, compile=True).gradient
    assert torch.equal(first(states(task), 1)[0], later[0])
    assert torch.equal(make_source("stacked", task).gradient(states(task), 1)[0], later[0])


def test_a_compiled_run_is_an_uncompiled_one(compiles):
    task = make_task(with_norm)
    plain, fused = (run_with(task, execution="stacked", compile=compile)[1] for compile in (False, True))
    assert_close(fused.x, plain.x, 1e-9)
    auto = Training(make_settings({**small, "compile": True}), task=task)
    assert auto.settings.execution == "stacked" and compiles
    assert not auto.evaluate.execution.setup.compile
