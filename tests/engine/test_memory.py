"""What a run will need: exact for histories, close for activations, and a refusal with the remedy that suffices."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from torch import nn

import gossamer as gm
from command import Command, files_under
from gossamer.algorithms import algorithm_names
from gossamer.engine import make_training
from gossamer.engine.execution import make_execution
from gossamer.engine.execution.base import Setup
from gossamer.engine.memory_need import Memory, check_fits, estimate, free_bytes, in_words
from gossamer.engine.step_memory import step_memory
from gossamer.errors import UserError
from gossamer.nn import make_model
from gossamer.run.settings import make_settings

N = 4
BASE = {"network": "clusters:2,2", "batch": 4, "epochs": 4, "execution": "vmap"}
DELAYS = {"0": 0, "5": 5, "uniform:1,7": 7}  # with the largest age of each


def make_task(model=lambda: nn.Linear(6, 3), shape=(6,), count=80):
    draws = torch.Generator().manual_seed(1)
    x, y = torch.randn(count, *shape, generator=draws), torch.randint(0, 3, (count,), generator=draws)
    return gm.Task("toy", model, gm.Examples(x[:-16], y[:-16]), gm.Examples(x[-16:], y[-16:]))


def training(task=None, **values):
    return make_training(make_settings({**BASE, **values}), task=task or make_task())


def bytes_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def of_histories(run):
    rings = run.simulation.mailbox.rings.values()
    for _ in range(max((ring.depth for ring in rings), default=0)):
        run.simulation.step()
    assert all(len(ring.state_dict()) == ring.depth for ring in rings)
    kept = (held.untyped_storage() for ring in rings for held in ring.state_dict().values())
    return sum({storage.data_ptr(): storage.nbytes() for storage in kept}.values())  # the same tensor again counts once


# Histories.

SERVED = (
    "asgd",
    "dc-asgd-c",
    "dc-asgd-a",
    "dasgd-is",
    "gap-aware",
    "delay-adaptive",
    "delayed-nesterov",
    "adaptive-braking",
)
NEED_PLAIN_SGD = dict.fromkeys(SERVED, "takes its steps at the server")
NEED_PLAIN_SGD |= {"cdmsgd": "has a momentum of its own"}


@pytest.mark.parametrize(("algorithm", "why"), NEED_PLAIN_SGD.items())
def test_a_rule_that_needs_plain_sgd_refuses_momentum_and_says_why(algorithm, why):
    with pytest.raises(UserError, match=f"^{algorithm} {why}, so it needs plain SGD .*; set momentum and weight decay"):
        training(algorithm=algorithm, delay=5, momentum=0.9)


# Rules with a part of the message that is the same tensor at many steps, which is kept once.
SENT_AGAIN = {"diloco": 1, "ad-psgd": 1, "dasgd-is": 1, "swift": 1}

# All other rules take a momentum. It changes the names in a message, not how often it is kept, so one delay will do.
TRAINED = [(name, delay, 0.0) for name in algorithm_names() for delay in DELAYS]
TRAINED += [(name, "5", 0.9) for name in algorithm_names() if name not in NEED_PLAIN_SGD]


@pytest.mark.parametrize(("algorithm", "delay", "momentum"), TRAINED)
def test_histories_are_what_a_message_carries_as_often_as_it_can_be_late(algorithm, delay, momentum):
    d, tau = 21, DELAYS[delay]
    run = training(algorithm=algorithm, delay=delay, momentum=momentum)
    rule = run.algorithm
    names = {"g" if name == "v" and not momentum else name for name in rule.message}  # plain SGD: v is g

    def of_message(vector):
        """The bytes of a message whose vectors take so many a number; totals and single numbers are never rounded."""
        exact = {name: 8 if name in rule.totals else 4 for name in rule.totals | rule.numbers}
        return sum((1 if name in rule.numbers else d) * exact.get(name, vector) for name in names)

    largest = tau if rule.hears_late and not rule.waits else 0
    depth = largest + rule.period if largest or rule.period > 1 else 0
    repeated = SENT_AGAIN.get(algorithm, 0) * N * d * 8  # bytes of the part that seldom changes
    whole = depth * N * of_message(4)
    if not repeated:
        assert run.memory.histories == of_histories(run) == whole
    assert of_histories(run) <= run.memory.histories <= of_histories(run) + repeated
    if not rule.totals and rule.period == 1:
        assert run.memory.histories <= len(names) * (tau + 2) * N * d * 4
    assert not run.memory.histories_on_host
    rounded = training(algorithm=algorithm, delay=delay, momentum=momentum, history="bf16")
    assert of_histories(rounded) <= rounded.memory.histories <= of_histories(rounded) + repeated
    assert repeated or rounded.memory.histories == depth * N * of_message(2)


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_a_delay_inside_clusters_is_kept_too(algorithm):
    run = training(algorithm=algorithm, delay="5", reliable_delay=2)
    again = SENT_AGAIN.get(algorithm, 0) * N * 21 * 8
    assert of_histories(run) <= run.memory.histories <= of_histories(run) + again
    assert bool(run.memory.histories) == (not run.algorithm.waits)


def setup_of(task, **options):
    return Setup(task, task.fresh_module(0), **{"num_agents": N, "device": "cpu", "dtype": torch.float32, **options})


def estimated(task, history="state", batch=4, **options):
    net, rule = gm.network("clusters:2,2", 5), gm.algorithm("pc-asgd")
    return estimate(setup_of(task, **options), rule, net, batch=batch, plain=True, history=history)


def test_histories_on_the_host_leave_the_device():
    task = make_task()
    assert estimated(task, dtype=torch.float64).histories == 2 * estimated(task).histories
    plain, host, rounded = (estimated(task, history, device="cuda") for history in ("state", "host", "bf16"))
    assert host.histories_on_host and not plain.histories_on_host and not rounded.histories_on_host
    assert host.histories == plain.histories == 2 * rounded.histories
    state = N * 21 * 4
    assert host.states == plain.states + 2 * state  # x and g, which are kept as messages no more
    assert rounded.states > host.states  # and what is read back
    assert host.on_device == plain.on_device - plain.histories + 2 * state
    assert not estimated(task, "host").histories_on_host  # on a CPU that is where they are anyway
    assert "histories on the host" in str(host) and "host" not in str(plain)


def test_states_and_data_are_counted():
    small, twice = estimated(make_task()), estimated(make_task(), num_agents=2 * N)
    state = N * 21 * 4
    assert small.states >= 5 * state  # x, its copy, g, the next x and the model's at least
    assert 1.7 * small.states < twice.states < 2 * small.states  # the agents share some copies of the model
    assert twice.histories == 2 * small.histories
    assert small.data == 80 * 6 * 4 + 80 * 8 == twice.data
    assert estimated(make_task(), dtype=torch.float64).states == pytest.approx(2 * small.states, rel=0.05)
    assert small.on_device == small.states + small.histories + small.activations + small.data + small.batches


def test_a_step_needs_what_its_rule_makes_and_keeps():
    """By hand, for the vectors of a step with the late messages of one age, in numbers of four bytes a parameter."""
    net = gm.network("clusters:2,2", 5)
    vectors = {
        "d-asgd": 2,  # g, the next x
        "pc-asgd": 5,  # g is kept, as a message; the next x, two sums over the neighbours, h, the next drift
        "sdm-asgd": 6,  # g, the next x, two paths, two temporary ones for the deviation
    }
    for name, expected in vectors.items():
        found = step_memory(gm.algorithm(name), net, torch.float32, plain=True)
        assert found.working / 4 == pytest.approx(expected, abs=0.2) and found.shared == 0
    # A rule that only fits its own model: a guess.
    picky = dataclasses.make_dataclass("Picky", [], bases=(type(gm.algorithm("d-asgd")),), frozen=True, kw_only=True)
    picky.start = lambda self, x, place: {"layer": x.view(N, 7, 3)}
    assert step_memory(picky(), net, torch.float32, plain=True).working == 5 * 4
    # The total of all pushes is the newest message and a state: 8 bytes. The other states are y and the total heard.
    assert step_memory(gm.algorithm("sgp"), net, torch.float32, plain=True).shared == pytest.approx(8, abs=0.1)


MEASURED = """
import ctypes, gc, sys, torch, gossamer as gm
from gossamer.engine import make_training
from gossamer.nn import make_model
from gossamer.run.machine import arithmetic
from gossamer.run.settings import make_settings

def run(width):
    x, y = torch.rand(160, 64), torch.randint(0, 10, (160,))
    examples = gm.Examples(x, y)
    task = gm.Task("toy", lambda: make_model(f"mlp:{width},{width}", 64, 10), examples, examples)
    values = {"network": "clusters:2,2", "delay": "20", "batch": 1, "lr": 1e-5}
    values |= {"algorithm": sys.argv[1], "history": sys.argv[2]}
    training = make_training(make_settings({**values, "execution": "stacked", "threads": 1, "epochs": 2}), task=task)
    with arithmetic(training.settings, plenty=False):
        for _ in range(45):
            training.simulation.step()
    return training

run(300)  # loads all code, that of the fused rules too
gc.collect()
ctypes.CDLL(None).malloc_trim(0)

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins anew: compiling takes more than the run
before = status("VmRSS")
training = run(450)
peak = status("VmHWM") - before
print(peak, training.memory.on_device - training.memory.code, training.simulation.x.numel())
"""


@pytest.mark.parametrize(("rule", "history"), [("pc-asgd", "state"), ("pc-asgd", "bf16"), ("diloco", "state")])
def test_the_estimate_is_what_a_process_takes_within_a_tenth(rule, history):
    """At delay 20: 140 to 250 MB, nearly all of it in histories and in the vectors of a step."""
    done = subprocess.run([sys.executable, "-c", MEASURED, rule, history], capture_output=True, text=True, check=True)
    peak, estimate, numbers = map(int, done.stdout.split())
    assert numbers == 4 * 236710
    assert estimate == pytest.approx(peak, rel=0.1)


# Activations.

MODELS = {
    "mlp": (lambda: make_model("mlp:32,16", 6, 3), (6,), 16),
    "norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), (6,), 16),
    "cnn": (lambda: make_model("cnn", (3, 16, 16), 3), (3, 16, 16), 8),
    "preresnet": (lambda: make_model("preresnet:8", (3, 8, 8), 3), (3, 8, 8), 16),
    "densenet": (lambda: make_model("densenet:10", (3, 8, 8), 3), (3, 8, 8), 8),
}


def really_kept(task, batch):
    """The bytes that autograd holds on to in a step of the stacked network, its parameters not counted."""
    execution = make_execution("stacked", setup_of(task))
    kept, own = {}, execution.parameters.untyped_storage().data_ptr()

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() != own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    chosen = torch.arange(N * batch).view(N, batch) % len(task.train)
    x = task.initial("independent", N, 0)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        execution.gradient(x, task.train.x[chosen], task.train.y[chosen])
    return sum(kept.values())


@pytest.mark.parametrize("model", MODELS)
def test_activations_are_estimated_within_a_factor_of_two(model):
    make, shape, batch = MODELS[model]
    task = make_task(make, shape)
    found, real = estimated(task, batch=batch).activations, really_kept(task, batch)
    assert real / 2 <= found <= 2 * real


def test_activations_depend_on_batch_agents_and_precision_not_on_how_much_data_there_is():
    make, shape, _ = MODELS["norm"]
    task = make_task(make, shape)
    base = estimated(task).activations
    assert estimated(task, batch=8).activations == estimated(task, num_agents=2 * N).activations == 2 * base
    assert estimated(make_task(make, shape, count=800)).activations == base
    assert estimated(task, precision="bf16").activations == base // 2
    before = torch.get_rng_state()
    estimated(make_task(lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))))
    assert torch.equal(torch.get_rng_state(), before)


# Refusals.

MB = 10**6


def refusal(monkeypatch, free, device="cpu", **sizes):
    memory = Memory(**{"states": 0, "histories": 0, "activations": 0, "data": 0} | sizes)
    monkeypatch.setattr("gossamer.engine.memory_need.free_bytes", lambda asked: free if asked == device else None)
    with pytest.raises(gm.UserError) as error:
        check_fits(memory, device)
    text = str(error.value)
    assert "\n" not in text and f"about {in_words(memory.on_device)}" in text
    assert f"{device} has {in_words(free)} free; use " in text
    return text.rpartition("; ")[2]


@pytest.mark.parametrize(
    ("free", "device", "remedy"),
    [
        (70 * MB, "cpu", "use --history bf16"),  # 30 of 60 are missing
        (70 * MB, "cuda", "use --history bf16"),
        (69 * MB, "cuda", "use --history host"),
        (40 * MB, "cuda", "use --history host"),  # 60 of 60 are missing
        (39 * MB, "cuda", "use fewer agents, a smaller --delay or a smaller --model"),
        (69 * MB, "cpu", "use fewer agents, a smaller --delay or a smaller --model"),
    ],
)
def test_the_remedy_for_large_histories_is_the_mildest_that_suffices(monkeypatch, free, device, remedy):
    assert refusal(monkeypatch, free, device, states=40 * MB, histories=60 * MB) == remedy


@pytest.mark.parametrize(
    ("sizes", "device", "remedy"),
    [
        ({"histories_in_bf16": True}, "cpu", "use fewer agents, a smaller --delay or a smaller --model"),
        ({"histories_in_bf16": True}, "cuda", "use --history host"),
        ({"histories_on_host": True}, "cuda", "use fewer agents, a smaller --delay or a smaller --model"),
    ],
)
def test_no_remedy_is_one_that_is_taken_already(monkeypatch, sizes, device, remedy):
    states = 40 * MB if not sizes.get("histories_on_host") else 80 * MB
    assert refusal(monkeypatch, 75 * MB, device, states=states, histories=60 * MB, **sizes) == remedy


def test_large_activations_call_for_a_smaller_batch(monkeypatch):
    sizes = {"states": 40 * MB, "activations": 60 * MB}
    assert refusal(monkeypatch, 70 * MB, **sizes) == "use half the --batch or --precision bf16"
    assert refusal(monkeypatch, 69 * MB, **sizes) == "use a smaller --batch"
    assert refusal(monkeypatch, 39 * MB, **sizes).startswith("use fewer agents")
    assert refusal(monkeypatch, 45 * MB, states=40 * MB, batches=10 * MB) == "use a smaller --batch"


def test_what_fits_and_what_nobody_knows_is_let_through(monkeypatch):
    memory = Memory(states=MB, histories=MB, activations=MB, data=MB)
    for free in (4 * MB, None):
        monkeypatch.setattr("gossamer.engine.memory_need.free_bytes", lambda device, free=free: free)
        check_fits(memory, "cpu")
    beside = dataclasses.replace(memory, histories_on_host=True)
    monkeypatch.setattr("gossamer.engine.memory_need.free_bytes", lambda device: 3 * MB)
    check_fits(beside, "cuda")


def test_the_remedy_that_is_named_makes_the_run_fit(monkeypatch):
    values = {"algorithm": "pc-asgd", "delay": "30", "epochs": 16}
    needed = training(**values).memory
    free = needed.on_device - needed.histories // 4
    monkeypatch.setattr("gossamer.engine.memory_need.free_bytes", lambda device: free)
    with pytest.raises(gm.UserError, match="use --history bf16"):
        training(**values)
    assert training(**values, history="bf16").memory.on_device <= free


def test_a_run_that_does_not_fit_is_refused_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("gossamer.engine.memory_need.free_bytes", lambda device: 1000)
    flags = ("--model", "linear", "--epochs", 2, "--delay", 5)
    text = Command(capsys).refused("train", *flags, "--out", tmp_path / "run")
    assert "this run needs about " in text and "cpu has 1 kB free; use " in text
    assert files_under(tmp_path) == {}


def test_what_a_run_needs_is_noted_and_summed_up():
    run = training(algorithm="pc-asgd", delay="5")
    note = run.notes["memory"]
    assert note == str(run.memory) and "\n" not in note
    assert all(f"{part} " in note for part in ("states", "histories", "activations", "data"))
    summary = run.run().summary
    assert summary["memory_estimate"] == run.memory.on_device and summary["memory_peak"] is None


def test_free_memory_of_this_machine():
    assert 10 * MB < free_bytes("cpu") < 10**14


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2.5e6, "2.5 MB"), (7.25e12, "7.25 TB")]
)
def test_bytes_in_words(count, text):
    assert in_words(count) == text
