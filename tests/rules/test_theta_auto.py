"""theta by age, other predictors, hindsight and damping against the slow truth of oracle_theta.py."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
import oracle_theta as slow
from gossamer.algorithms.hindsight import COLUMNS, columns_of
from spies import calls, simulation
from worlds import Smooth, World, assert_same_path, few, many, some, worlds

MOMENTA = st.sampled_from([0.0, 0.5, 0.9])


def radius(world):
    return slow.late_radius(world.network.W.numpy(), late_links(world))


def late_links(world):
    """Links that can be late; where none can, all outside of the clusters."""
    net = world.network
    late = net.late_links.numpy()
    outside = net.links.numpy() & ~net.spared.numpy()
    return late if late.any() else outside if outside.any() else net.links.numpy()


def check(world, momentum, *, compensation=None, **options):
    """Compare the path of pc-asgd with these options with the oracle's."""
    multiple = options.pop("multiple", 1.0)
    theta = options.get("theta", "auto")
    told = {**options, "theta": f"auto:{multiple}" if multiple != 1 else theta}
    if theta == "pv":
        told["criterion"] = "hindsight"
    rule = gm.algorithm("pc-asgd", **told, **(compensation or {}))
    truth = slow.PcAsgd(
        radius(world), **options, multiple=multiple, compensation=compensation or {}, columns=columns(world)
    )
    assert_same_path(world.path(rule, momentum=momentum), world.truth(truth, momentum=momentum))


def columns(world):
    return columns_of(world.d, torch.device("cpu")).numpy()


# ---- theta by age


@many
@given(worlds(), MOMENTA, st.sampled_from([0.25, 1.0, 3.0]))
def test_auto_weighs_each_late_message_by_its_age(world, momentum, multiple):
    check(world, momentum, multiple=multiple)


@some
@given(worlds(smallest=1), st.sampled_from(["sum", "mean", "last", "none"]))
def test_auto_goes_with_every_form_of_the_compensation(world, horizon):
    check(world, 0.9, compensation={"horizon": horizon, "lam": 0.5})


@some
@given(worlds(kinds=("fixed",), smallest=1), st.sampled_from([0.0, 0.9]), st.booleans())
def test_with_one_age_it_is_line_8(world, momentum, mixed):
    tau = world.largest
    theta = slow.theta_at(tau, rho=max(radius(world), 1e-12), momentum=momentum)
    options = {"gradient_at": "mixed"} if mixed and not momentum else {}
    start = {"startup": "full"} if world.network.startup == "min" else {}  # which begins with younger messages
    world = World(**{**vars_of(world), "settings": {**world.settings, **start}})
    paths = [
        world.path(gm.algorithm("pc-asgd", theta=value, **options), momentum=momentum) for value in ("auto", theta)
    ]
    torch.testing.assert_close(*paths, rtol=1e-13, atol=1e-13)


def vars_of(world):
    return {name: getattr(world, name) for name in World.__dataclass_fields__}


def test_the_share_reported_is_the_mean_theta_of_the_late_messages():
    world = World(n=4, d=3, num_steps=12, kind="matrix", largest=5, seed=3)
    W, rho = world.network.W.numpy(), radius(world)
    assert len(np.unique(world.delays[-1])) > 3
    call = list(calls(gm.algorithm("pc-asgd"), world))[-1]
    for i in range(4):
        ages = {k: a for k, a in enumerate(world.delays[-1][i]) if a > 0}
        if not ages:
            assert call.update.predict[i].isnan()
            continue
        thetas = {k: slow.theta_at(a, rho=rho, momentum=0.0) for k, a in ages.items()}
        mean = sum(W[i, k] * thetas[k] for k in ages) / sum(W[i, k] for k in ages)
        assert float(call.update.predict[i]) == pytest.approx(mean)


def test_the_value_on_the_papers_network():
    """paper-1: rho = sqrt(15)/8; theta = sqrt((1 - beta) / 2) / (rho (tau + 1))."""
    net = gm.network("paper-1", 20)
    assert net.late_radius == pytest.approx(math.sqrt(15) / 8)
    policy = gm.algorithm("pc-asgd").policy
    assert policy.at(20, radius=net.late_radius, momentum=0.0) == pytest.approx(0.06956, rel=1e-3)
    assert policy.at(20, radius=net.late_radius, momentum=0.9) == pytest.approx(0.02200, rel=1e-3)
    assert policy.at(0, radius=net.late_radius, momentum=0.0) == 1.0


def test_on_real_links_the_radius_is_of_all_links_outside_of_the_clusters():
    assert gm.network("paper-1", 0).late_radius == pytest.approx(math.sqrt(15) / 8)
    assert gm.network("clusters:4", 0).late_radius == pytest.approx(3 / 4)  # all of them
    directed = torch.zeros(8, 8, dtype=torch.int64)
    directed[0, 1] = 5  # one way only: the symmetric part has half of the weight
    assert gm.network("complete:8", directed).late_radius == pytest.approx(1 / 16)
    assert gm.network("complete:1", 0).late_radius == 0


def test_a_steady_drift_keeps_its_pace_under_mixed_ages():
    slope = torch.tensor([1.0, -2.0], dtype=torch.float64).expand(5, 2)
    net = gm.network("complete:5", World(n=5, d=1, num_steps=1, kind="matrix", largest=6, seed=1).network.delay.matrix)
    for options in ({"lam": 0}, {"predictor": "trend"}, {"predictor": "own"}, {"lam": 0, "damping": 0.3}):
        rule = gm.algorithm("pc-asgd", **options)
        path = gm.trajectory(rule, net, lambda x, t: slope, torch.zeros(5, 2).double(), lr=0.1, steps=1500)
        torch.testing.assert_close(path[-1] - path[-2], -0.1 * slope, rtol=1e-6, atol=1e-12)


# ---- predictors


@many
@given(worlds(), MOMENTA, st.floats(0, 20))
def test_the_trend_is_the_senders_smoothed_displacement(world, momentum, lag):
    check(world, momentum, predictor="trend", lag=lag)


@many
@given(worlds(), MOMENTA)
def test_the_own_displacement_stands_for_the_senders(world, momentum):
    check(world, momentum, predictor="own")


@some
@given(st.integers(2, 6), st.integers(0, 1000), st.sampled_from([0.0, 0.9]), st.sampled_from([0.1, 0.7, None]))
def test_own_is_dm_asgd_where_nobody_is_reliable(n, seed, momentum, gain):
    """With no reliable neighbour W~ is the identity, and theta W_ii + theta b_i + (1 - theta) = 1 remains of line 8.

    All messages must be there from the start: where some are missing, PC-ASGD divides by the weights of the others.
    """
    smooth, ages = Smooth(n, 3, seed), np.random.default_rng(seed).integers(1, 7, (n, n))
    net = gm.network(f"complete:{n}", ages, startup="full")
    rules = [
        gm.algorithm("pc-asgd", predictor="own", theta=gain or "auto"),
        gm.algorithm("dm-asgd", gain=gain or "auto"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gm.StabilityWarning)
        paths = [
            gm.trajectory(rule, net, smooth.gradient, smooth.x0, lr=0.05, steps=20, momentum=momentum) for rule in rules
        ]
    torch.testing.assert_close(*paths, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("predictor", "plain", "momentum"), [("gradient", "xg", "xvg"), ("trend", "xd", "xd"), ("own", "x", "x")]
)
def test_a_predictor_sends_what_it_needs(predictor, plain, momentum):
    net, size = gm.network("clusters:1,1", 3), 10
    for beta, parts in ((0.0, plain), (0.9, momentum)):
        world = World(n=2, d=size, num_steps=1, largest=3, num_clusters=None)
        run = simulation(gm.algorithm("pc-asgd", predictor=predictor), world, momentum=beta)
        assert net.num_agents == 2 and int(run.step().sent[0]) == len(parts) * size * 8


# ---- hindsight


@many
@given(worlds(), MOMENTA, st.sampled_from(["gradient", "trend", "own"]))
def test_kalman_takes_the_gain_of_what_was_right_in_hindsight(world, momentum, predictor):
    check(world, momentum, theta="kalman", predictor=predictor)


@many
@given(worlds(), st.sampled_from([0.0, 0.9]), st.sampled_from(["gradient", "own"]))
def test_hindsight_predicts_where_that_was_better_than_clipping(world, momentum, predictor):
    check(world, momentum, theta="pv", predictor=predictor)


@pytest.mark.parametrize("theta", [0.0, 1.0])
def test_hindsight_tells_a_good_prediction_from_a_bad_one(theta):
    """Linear losses are predicted exactly; with the same gradients for all, clipping is exact instead."""
    net = gm.network("clusters:1,1", 4)
    slopes = torch.tensor([[1.0], [-1.0]], dtype=torch.float64) if theta else torch.ones(2, 1, dtype=torch.float64)
    noise = torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = []

    class Spy(type(gm.algorithm("pc-asgd"))):
        def step(self, own, inbox, weights, noise):
            update = super().step(own, inbox, weights, noise)
            seen.append(update.predict)
            return update

    rule = Spy(theta="pv", criterion="hindsight", lam=0.0)
    steady = 0.0 if theta else 1.0
    gm.trajectory(rule, net, lambda x, t: slopes + steady * noise[t], [0.0], lr=0.1, steps=60)
    shares = torch.stack(seen)[8:28]  # after the first answer, and before the agents have met
    auto = slow.theta_at(4, rho=0.5, momentum=0.0)
    torch.testing.assert_close(shares, torch.full_like(shares, theta * auto))


def test_hindsight_never_takes_a_whole_predicting_step():
    """A whole step is P-ASGD's, which diverges where eta h tau is above 2; theta=auto is stable."""
    net, x0 = gm.network("paper-1", 20), np.arange(8.0)[:, None]
    ends = {}
    for rule in ("p-asgd/lam=0", "pc-asgd/lam=0/theta=pv/criterion=hindsight"):
        ends[rule[:2]] = float(gm.trajectory(rule, net, lambda x, t: x, x0, lr=0.3, steps=300)[-1].abs().max())
    assert ends["p-"] > 1e3 and ends["pc"] < 1e-3


def test_with_one_theta_for_the_network_hindsight_is_a_vote():
    world = World(n=5, d=2, num_steps=12, largest=3, num_clusters=3, seed=1)
    rule = gm.algorithm("pc-asgd", theta="pv", criterion="hindsight", scope="network")
    votes = []
    for call in calls(rule, world):
        if call.inbox.late:
            (late,) = call.inbox.late
            gained = call.update.state["clipping_error"] - call.update.state["predicting_error"]
            by_agent = gained.new_zeros(5).index_add(0, late.weights.links.receivers, late.weights.values * gained)
            votes.append((by_agent > 0).double().mean())
            assert ((call.update.predict > 0) == (votes[-1] >= 0.5)).all()
    assert {float(vote) for vote in votes} - {0.0, 1.0}  # no agreement before the vote


def test_memory_is_bounded_by_a_fixed_choice_of_parameters():
    few_columns, many_columns = (columns_of(size, torch.device("cpu")) for size in (5, 10**6))
    assert few_columns.tolist() == [0, 1, 2, 3, 4]
    assert len(many_columns) == COLUMNS == len(many_columns.unique()) and int(many_columns.max()) < 10**6
    world = World(n=3, d=2 * COLUMNS, num_steps=30, largest=7, num_clusters=3)
    for call in calls(gm.algorithm("pc-asgd", theta="kalman"), world):
        assert sum(tensor.numel() for tensor in call.update.state.values()) == 6 * (2 * COLUMNS + 3)  # six links


@few
@given(
    worlds(kinds=("fixed", "matrix", "lossy"), smallest=1),
    st.sampled_from(["kalman", "pv/criterion=hindsight"]),
    st.integers(1, 10),
)
def test_a_resumed_run_goes_on_to_the_bit(world, theta, stop):
    theta, _, criterion = theta.partition("/criterion=")
    options = {"criterion": criterion} if criterion else {}
    rule = gm.algorithm("pc-asgd", theta=theta, predictor="trend", damping=0.1, **options)
    straight, first, second = (simulation(rule, world, momentum=0.9) for _ in range(3))
    for _ in range(stop):
        straight.step(), first.step()
    second.load_state_dict(first.state_dict())
    for _ in range(8):
        straight.step(), second.step()
    assert torch.equal(straight.x, second.x)
    assert all(torch.equal(straight.state[name], value) for name, value in second.state.items())


# ---- damping


@some
@given(worlds(), MOMENTA, st.floats(0, 1), st.floats(0, 30))
def test_the_damping_is_sdm_asgds(world, momentum, damping, lag):
    check(world, momentum, damping=damping, lag=lag)


def test_without_damping_nothing_is_kept():
    world = World(n=3, d=2, num_steps=3)
    assert [not call.update.state for call in calls(gm.algorithm("pc-asgd"), world)] == [True] * 3


# ---- warnings


@pytest.mark.parametrize(
    ("options", "delay", "warned"),
    [
        ({"theta": 0.3}, 6, False),  # 1/(tau rho) is 0.344
        ({"theta": 0.3}, 7, True),  # and 0.295
        ({"theta": "linear:0.01,0.3,9"}, 20, True),
        ({"theta": "piecewise:0=0.01,9=0.2"}, 20, True),
        ({"theta": 0.3, "horizon": "none"}, 20, False),  # nothing is multiplied by the delay
        ({}, 20, False),
        ({"theta": "auto:1.41"}, 60, False),
        ({"theta": "auto:1.5"}, 60, True),
        ({"theta": "kalman"}, 20, False),
        ({"theta": "pv"}, 20, False),
        ({"theta": "bernoulli:0.09"}, 20, False),  # 1/(tau rho) is 0.103
        ({"theta": "bernoulli:0.11"}, 20, True),
        ({"theta": "uniform"}, 4, False),  # 0.5 on average; 1/(tau rho) is 0.516
        ({"theta": "uniform"}, 5, True),
        ({"predictor": "trend", "theta": "auto:1.9"}, 20, False),  # the margin is a half
        ({"predictor": "trend", "theta": "auto:2.1"}, 20, True),
        ({"predictor": "own", "theta": 0.07}, 20, False),  # DM-ASGD's limit is 0.077
        ({"predictor": "own", "theta": 0.08}, 20, True),
    ],
)
def test_a_theta_beyond_the_limit_is_warned_about(options, delay, warned):
    told = gm.algorithm("pc-asgd", **options).check(gm.network("paper-1", delay))
    assert (told is not None) == warned
    if told:
        assert "above the limit" in told and "theta=auto" in told and "\n" not in told


@pytest.mark.parametrize("theta", [0.04, "auto:1.5"])
def test_a_momentum_lowers_the_limit(theta):
    """sqrt(0.1) / (21 rho) is 0.0311 at delay 20; without a momentum it is 1 / (20 rho) = 0.103."""
    net = gm.network("paper-1", 20)
    rule = gm.algorithm("pc-asgd", theta=theta)
    assert "above the limit 0.0311 of delay 20 and momentum 0.9" in rule.check(net, momentum=0.9)
    assert gm.algorithm("pc-asgd", theta=0.031).check(net, momentum=0.9) is None
    assert gm.algorithm("pc-asgd", theta=0.04).check(net) is None


def test_a_run_is_warned_about_its_own_momentum():
    net, rule = gm.network("paper-1", 20), gm.algorithm("pc-asgd", theta=0.04)
    with pytest.warns(gm.StabilityWarning, match="momentum 0.9"):
        gm.trajectory(rule, net, lambda x, t: x, [1.0], steps=1, momentum=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gm.StabilityWarning)
        gm.trajectory(rule, net, lambda x, t: x, [1.0], steps=1)
