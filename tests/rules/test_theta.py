"""theta and the options of the rules: what is read, and what is refused."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.algorithms import algorithm_class, algorithm_names, describe_algorithms, parse_algorithm
from gossamer.algorithms.theta import Bernoulli, ByAge, Hindsight, Linear, Piecewise, UniformTheta, parse_theta
from worlds import algorithm_from

steady = settings(deadline=None, max_examples=30)


def at(policy, t, u=None):
    return policy.at(t, torch.zeros(1) if u is None else u)


# ---- theta from text


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        (0.3, Piecewise(((0, 0.3),))),
        ("uniform", UniformTheta()),
        ("bernoulli:0.25", Bernoulli(0.25)),
        ("linear:0,0.5,1000", Linear(0.0, 0.5, 1000)),
        ("piecewise:0=0.3,500=0.7", Piecewise(((0, 0.3), (500, 0.7)))),
        ("pv", None),
        ("auto", ByAge()),
        ("auto:0.5", ByAge(0.5)),
        ("kalman", ByAge(by_hindsight=Hindsight.GAIN)),
    ],
)
def test_theta_is_read_from_its_text(text, policy):
    assert parse_theta(text) == policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (1.01, r"\[0, 1\], got 1.01"),
        (-0.1, r"\[0, 1\], got -0.1"),
        (math.nan, r"\[0, 1\], got nan"),
        ("pw", "unknown theta 'pw'"),
        ("atuo", "did you mean 'auto'"),
        ("auto:", "multiple of auto must be a number, got ''"),
        ("auto:half", "multiple of auto must be a number, got 'half'"),
        ("auto:0", "multiple of auto must lie above 0 and be finite, got 0"),
        ("auto:inf", "multiple of auto must lie above 0 and be finite, got inf"),
        ("kalman:2", "unknown theta 'kalman:2'"),
        ("unifrom", "did you mean 'uniform'"),
        ("bernoulli:2", r"\[0, 1\], got 2"),
        ("bernoulli:often", "probability must be a number, got 'often'"),
        ("bernoulli", "probability must be a number, got ''"),
        ("linear:0,1", "three numbers"),
        ("linear:0,1,0", "1 step or more, got 0"),
        ("linear:0,1,ten", "steps must be a whole number, got 'ten'"),
        ("linear:0,2,10", r"\[0, 1\], got 2"),
        ("piecewise:0.3", "STEP=VALUE"),
        ("piecewise:0=0.3,x=1", "step must be a whole number, got 'x'"),
        ("piecewise:0=0.3,5=7", r"\[0, 1\], got 7"),
        ("piecewise:5=0.3", "start at step 0"),
        ("piecewise:0=0.3,9=0.1,5=0.2", "go upwards"),
    ],
)
def test_a_wrong_theta_is_refused_in_words(text, words):
    with pytest.raises(gm.UserError, match=words):
        parse_theta(text)
    with pytest.raises(gm.UserError, match=words):
        gm.algorithm("pc-asgd", theta=text)


@steady
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 50), st.integers(0, 100))
def test_linear_theta_is_on_the_line_and_then_stays(first, last, steps, t):
    expected = last if t >= steps else first + (last - first) * t / steps
    assert float(at(Linear(first, last, steps), t)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("t", "theta"), [(0, 0.2), (2, 0.2), (3, 1.0), (7, 1.0), (8, 0.5), (10**6, 0.5)])
def test_piecewise_theta_changes_at_its_steps(t, theta):
    assert float(at(parse_theta("piecewise:0=0.2,3=1,8=0.5"), t)) == pytest.approx(theta)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_bernoulli_theta_predicts_with_its_probability(p):
    u = torch.rand(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theta = at(Bernoulli(p), 0, u)
    assert set(theta.tolist()) <= {0.0, 1.0} and theta.dtype == torch.float64
    assert float(theta.mean()) == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / len(u)))


@pytest.mark.parametrize("theta", ["uniform", "bernoulli:0.3"])
def test_chance_is_uniform_over_agents_and_steps_of_a_run(theta):
    net = gm.network("clusters:1,1", 1, startup="full")
    steps = 1500
    drawn = []

    class Spy(algorithm_class("pc-asgd")):
        def step(self, own, inbox, weights, noise):
            update = super().step(own, inbox, weights, noise)
            drawn.append(update.predict)
            return update

    gm.trajectory(Spy(theta=theta), net, lambda x, t: 0 * x, [[0.0], [1.0]], steps=steps)
    theta_t = torch.stack(drawn).double()
    mean, variance = (0.5, 1 / 12) if theta == "uniform" else (0.3, 0.21)
    assert float(theta_t.mean()) == pytest.approx(mean, abs=4 * math.sqrt(variance / theta_t.numel()))
    assert float(theta_t.var()) == pytest.approx(variance, rel=0.1)
    assert abs(float(torch.corrcoef(theta_t.T)[0, 1])) < 4 / math.sqrt(steps)


def test_only_chance_asks_for_noise():
    asks = {
        "0.3": False,
        "auto": False,
        "kalman": False,
        "pv": False,
        "linear:0,1,9": False,
        "bernoulli:0.5": True,
        "uniform": True,
    }
    assert {text: gm.algorithm("pc-asgd", theta=text).draws for text in asks} == asks


# ---- options


def test_options_may_be_text_or_values():
    text = gm.algorithm("pc-asgd", theta="0.5", lam="0.1", self_consistent="yes", consensus_steps="3")
    assert text == gm.algorithm("pc-asgd", theta=0.5, lam=0.1, self_consistent=True, consensus_steps=3)
    assert algorithm_from("pc-asgd/theta=piecewise:0=0.2,5=0.8").theta == "piecewise:0=0.2,5=0.8"


def test_aliases_name_the_same_rule():
    assert gm.algorithm("d-psgd") == gm.algorithm("cdsgd") == gm.algorithm("sync")
    assert algorithm_class("cdsgd").name == "sync"


def test_the_description_lists_every_rule_with_its_options():
    described = {entry["name"]: entry for entry in describe_algorithms()}
    assert list(described) == algorithm_names()
    assert described["pc-asgd"]["options"]["theta"]["default"] == "auto"
    assert described["sync"]["aliases"] == ["d-psgd", "cdsgd"]
    assert all(entry["summary"] for entry in described.values())
    assert all(option["help"] for entry in described.values() for option in entry["options"].values())


def test_a_name_can_be_registered_only_once():
    with pytest.raises(gm.UserError, match="already registered"):
        gm.register("sync")(type("Another", (gm.Algorithm,), {}))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("pc-asdg", {}, "unknown algorithm 'pc-asdg'; did you mean 'pc-asgd'"),
        ("pc-asgd", {"thta": 0.3}, "unknown option of pc-asgd 'thta'; did you mean 'theta'"),
        ("d-asgd", {"theta": 0.3}, "unknown option of d-asgd 'theta'"),
        ("p-asgd", {"horizon": "summ"}, "did you mean 'sum'"),
        ("p-asgd", {"lam": "big"}, "lam must be a number, got 'big'"),
        ("p-asgd", {"lam": -1}, "lam must be 0 or more and finite, got -1"),
        ("p-asgd", {"lam": "nan"}, "lam must be 0 or more and finite, got nan"),
        ("p-asgd", {"lam": math.inf}, "lam must be 0 or more and finite, got inf"),
        ("p-asgd", {"self_consistent": "maybe"}, "must be true or false, got 'maybe'"),
        ("p-asgd", {"self_consistent": True, "horizon": "mean"}, "use horizon=sum"),
        ("pc-asgd", {"consensus_steps": 1.5}, "must be a whole number, got '1.5'"),
        ("pc-asgd", {"consensus_steps": -1}, "consensus_steps must be 0 or more"),
        ("pc-asgd", {"consensus_steps": math.inf}, "must be a whole number"),
        ("pc-asgd", {"theta": "pv", "criterion": "loss", "granularity": "tensor"}, "granularity must be model"),
        ("pc-asgd", {"criterion": "hindsight", "granularity": "tensor"}, "granularity must be model, got tensor"),
        ("pc-asgd", {"theta": "kalman", "source": "recompute"}, "hindsight needs the neighbour's gradients"),
        ("pc-asgd", {"predictor": "own", "horizon": "last"}, "belong to predictor=gradient, got predictor=own"),
        ("pc-asgd", {"predictor": "mine"}, "unknown predictor of pc-asgd 'mine'"),
        ("pc-asgd", {"damping": 2}, r"damping must lie in \[0, 1\], got 2"),
        ("pc-asgd", {"criterion": "best"}, "unknown criterion of pc-asgd 'best'"),
        ("dm-asgd", {"gain": 0}, "gain must be positive and finite, got 0"),
        ("dm-asgd", {"gain": -0.5}, "gain must be positive"),
        ("dm-asgd", {"gain": "nan"}, "gain must be positive"),
        ("dm-asgd", {"gain": "fast"}, "unknown gain 'fast'"),
    ],
)
def test_wrong_options_are_refused_in_words(name, options, words):
    with pytest.raises(gm.UserError, match=words):
        gm.algorithm(name, **options)


def test_text_without_an_equals_sign_is_refused():
    with pytest.raises(gm.UserError, match="is not an option"):
        parse_algorithm("pc-asgd/pv")


NET = gm.network("clusters:1,1", 2)


def test_a_criterion_by_loss_needs_a_loss():
    with pytest.raises(gm.UserError, match="also needs loss"):
        gm.trajectory(gm.algorithm("pc-asgd", theta="pv", criterion="loss"), NET, lambda x, t: x, [1.0])


@pytest.mark.parametrize("local", [{"momentum": 0.9}, {"weight_decay": 0.1}], ids=str)
@pytest.mark.parametrize("option", [{"gradient_at": "mixed"}, {"source": "recompute"}], ids=str)
def test_rules_that_cannot_know_the_optimisers_memory_refuse_it(option, local):
    with pytest.raises(gm.UserError, match=next(iter(option.values()))):
        gm.trajectory(gm.algorithm("p-asgd", **option), NET, lambda x, t: x, [1.0], **local)


@pytest.mark.parametrize("text", ["pv:xyz", "uniform:3", "piecewise:0=0.1,5=0.1,5=0.7", "piecewise:0=0.1,5=0.7,5=0.1"])
def test_a_theta_with_parts_that_mean_nothing_is_refused(text):
    with pytest.raises(gm.UserError, match="theta"):
        gm.algorithm("pc-asgd", theta=text)


def test_a_theta_in_digits_is_a_number_however_it_was_given():
    assert parse_theta("0.25") == parse_theta(0.25)


def test_neither_a_name_nor_an_alias_is_registered_twice():
    for name, alias in (("mine", "c-asgd"), ("mine", "d-psgd"), ("cdsgd", "mine"), ("pc-asgd", "mine")):
        with pytest.raises(gm.UserError, match="already registered"):
            gm.register(name, alias)(algorithm_class("c-asgd"))
    assert gm.algorithm("c-asgd").name == "c-asgd"


def test_segments_must_cover_a_row():
    net = gm.network("complete:2")
    with pytest.raises(gm.UserError, match=r"add up to 5, but a row has 4"):
        gm.trajectory(gm.algorithm("sync"), net, lambda x, t: x, torch.zeros(2, 4), steps=1, segments=(2, 3))


def test_a_gradient_function_may_hand_out_the_same_buffer_at_every_step():
    net, buffer = gm.network("complete:2"), torch.zeros(2, 3, dtype=torch.float64)

    def reused(x, t):
        return buffer.copy_(0.5 * x + t)

    x0 = torch.ones(2, 3, dtype=torch.float64)
    paths = [
        gm.trajectory(gm.algorithm("d-asgd"), net, gradient, x0, lr=0.1, steps=6, momentum=0.5)
        for gradient in (reused, lambda x, t: 0.5 * x + t)
    ]
    assert torch.equal(*paths)
