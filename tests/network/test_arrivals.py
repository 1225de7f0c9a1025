"""The age of the newest message on every link: start-ups, losses, clusters, and the law of random delays."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from delays import MODELS, ages, draws
from dense_arrivals import dense_ages
from gossamer.errors import UserError
from gossamer.network import (
    NOTHING,
    Arrivals,
    Geometric,
    Trace,
    Uniform,
    network,
)
from gossamer.network import delay as delay_models

steady = settings(deadline=None, max_examples=50)


def test_a_fixed_delay_is_the_age_from_step_tau_on():
    net = network("ring:4", 3)
    seen = ages(net, 8)
    assert (seen[:3] == NOTHING).all()
    assert (seen[3:, net.links] == 3).all()
    assert (seen[:, ~net.links] == NOTHING).all()


@pytest.mark.parametrize(
    ("startup", "expected"),
    [("wait", [-1, -1, -1, 3, 3]), ("min", [0, 1, 2, 3, 3]), ("full", [3, 3, 3, 3, 3])],
)
def test_the_three_start_ups(startup, expected):
    seen = ages(network("ring:4", 3, startup=startup), 5)
    assert seen[:, 0, 1].tolist() == expected


def test_clusters_exempt_their_links_from_the_delay_but_not_from_their_own():
    net = network("clusters:2,2", 4, reliable_delay=1)
    seen = ages(net, 8)
    assert seen[:, 0, 1].tolist() == [-1, 1, 1, 1, 1, 1, 1, 1]
    assert seen[:, 0, 2].tolist() == [-1] * 4 + [4] * 4
    assert Arrivals(network("clusters:2,2", 0, reliable_delay=3), 0).largest_age == 3


def test_a_matrix_covers_the_links_inside_clusters_too():
    matrix = torch.full((4, 4), 2)
    assert (ages(network("clusters:2,2", matrix), 5)[4][~torch.eye(4, dtype=torch.bool)] == 2).all()


@pytest.mark.parametrize("delay", [Uniform(0, 6), Geometric(0.25)])
def test_the_age_follows_the_law_of_the_newest_of_independent_delays(delay):
    """age(t) > a exactly when the delay at t - j exceeds a - j for every j <= a, so the product law holds."""
    net = network("complete:20", delay)
    seen = ages(net, 500)[60:, net.links].double()
    one = draws(delay, 200)
    for bound in range(5):
        law = math.prod((one > j).double().mean().item() for j in range(bound + 1))
        assert (seen > bound).double().mean().item() == pytest.approx(law, abs=0.006)


@steady
@given(MODELS, st.sampled_from(["wait", "min", "full"]), st.floats(0.0, 0.6), st.integers(0, 99))
def test_an_age_grows_by_at_most_one_and_stays_in_bounds(delay, startup, loss, seed):
    net = network("clusters:2,2", delay, startup=startup, loss=loss)
    seen = ages(net, 12, seed)[:, net.links]
    assert seen.min() >= NOTHING and seen.max() <= Arrivals(net, seed).largest_age
    before, after = seen[:-1], seen[1:]
    held = (before >= 0) & (after >= 0)
    assert ((after - before)[held] <= 1).all()


def test_loss_only_ages_and_spares_the_clusters():
    lossy = ages(network("paper-1", 2, loss=0.5), 400)
    net = network("paper-1", 2)
    sure = ages(net, 400)
    inside, between = net.links & net.same_cluster, net.links & ~net.same_cluster
    assert torch.equal(lossy[:, inside], sure[:, inside])
    held = lossy[:, between] >= 0
    assert (lossy[:, between][held] >= sure[:, between][held]).all()
    # P(age = 2 + m) = loss^m (1 - loss)
    settled = lossy[50:, between]
    for extra in range(4):
        assert (settled == 2 + extra).double().mean().item() == pytest.approx(0.5 ** (extra + 1), abs=0.015)


@pytest.mark.parametrize(("loss", "more"), [(0.0, 0), (0.1, 6), (0.5, 20), (0.9, 132)])
def test_the_largest_age_leaves_room_for_losses(loss, more):
    assert Arrivals(network("ring:5", 7, loss=loss), 0).largest_age == 7 + more


def test_an_age_above_the_largest_is_no_message():
    net = network("ring:4", 0, loss=0.99)
    arrivals = Arrivals(net, 0)
    arrivals.load_state_dict({"newest": torch.zeros(4, 4, dtype=torch.int64), "delay": torch.empty(0).long()})
    past = arrivals.largest_age + 1
    assert set(arrivals.advance(past)[net.links].tolist()) <= {0, NOTHING}


@pytest.mark.parametrize("delay", ["3", "uniform:0,5", "gilbert:0.2,0.4,6"])
def test_resumed_arrivals_go_on_as_if_never_stopped(delay):
    net = network("paper-2", delay, loss=0.2)
    whole = ages(net, 20, seed=5)
    first = Arrivals(net, 5)
    for step in range(9):
        first.advance(step)
    saved = first.state_dict()
    first.advance(9)
    again = Arrivals(net, 5)
    again.load_state_dict(saved)
    assert torch.equal(torch.stack([again.advance(step) for step in range(9, 20)]), whole[9:])


def test_saved_arrivals_of_another_network_are_refused():
    with pytest.raises(UserError, match=r"for 8 links .* resume with the network they came from, not one of 10"):
        Arrivals(network("ring:5"), 0).load_state_dict(Arrivals(network("ring:4"), 0).state_dict())


def test_seed_and_purpose_change_the_arrivals():
    net = network("ring:8", "uniform:0,9")
    assert torch.equal(ages(net, 10), ages(net, 10))
    assert not torch.equal(ages(net, 10), ages(net, 10, seed=1))
    assert not torch.equal(ages(net, 10), ages(net, 10, purpose="broadcast"))


def test_nothing_is_newer_than_a_reliable_neighbours_message():
    # At step 5 the link turns fast, but the state of step 4 never left the sender: it must not be used.
    rows = [(t, k, 1 - k, 9 if t < 5 else 0) for t in range(8) for k in range(2)]
    net = network("complete:2", Trace(rows), reliable_delay=1)
    found = ages(net, 8)[:, 0, 1].tolist()
    assert found == [NOTHING] * 5 + [1, 1, 1]


# ---- lists of links


@settings(deadline=None, max_examples=30)
@given(
    st.one_of(MODELS, st.just(Trace([(0, 0, 1, 3), (4, 0, 1, 0), (2, 3, 2, 5)]))),
    st.sampled_from(["wait", "min", "full"]),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from([(1, 1), (3, 3), (4, 1)]),
    st.sampled_from([None, "2,2"]),
    st.integers(0, 99),
)
def test_ages_on_lists_are_those_of_every_pair(delay, startup, loss, periods, clusters, seed):
    net = network("complete:4", delay, startup=startup, loss=loss, clusters=clusters, reliable_delay=seed % 2)
    period, inside = periods
    arrivals = Arrivals(net, seed, period=period, period_inside=inside)
    expected = dense_ages(net, seed, 14, period=period, inside=inside, largest=arrivals.largest_age)
    assert torch.equal(torch.stack([arrivals.advance(step) for step in range(14)]), expected)


def test_arrivals_that_were_saved_as_matrices_go_on():
    net = network("ring:6", "gilbert:0.2,0.4,6", loss=0.2)
    first, again = (Arrivals(net, 3, period=4) for _ in range(2))
    for step in range(10):
        first.advance(step)
    saved = first.state_dict()
    assert saved["newest"].shape == (12,) and any(name.startswith("under_way.") for name in saved)
    matrices = {
        name: value if name == "delay" else net.pattern.matrix(value, elsewhere=7) for name, value in saved.items()
    }
    again.load_state_dict(matrices)
    for step in range(10, 20):
        assert torch.equal(again.advance_list(step), first.advance_list(step))


@pytest.mark.parametrize("delay", ["uniform:0,8", "geometric:0.4", "gilbert:0.1,0.2,40,2"])
def test_a_large_network_draws_for_its_links_alone_by_the_same_law(delay, monkeypatch):
    """The draws differ from those for every pair, and follow the same law."""
    net = network("regular:300,k=4", delay, loss=0.3)
    means = []
    for most in (300, 299):
        monkeypatch.setattr(delay_models, "MOST_PAIRS_DRAWN", most)
        arrivals = Arrivals(net, 0)
        seen = torch.stack([arrivals.advance_list(step) for step in range(90)])[60:]
        means.append(seen.double().mean().item())
        if most == 299 and delay.startswith("gilbert"):
            assert arrivals.state_dict()["delay"].shape == (1200,)
    assert means[0] != means[1] and means[0] == pytest.approx(means[1], rel=0.06)


# ---- messages that are sent now and then


@pytest.mark.parametrize("loss", [0.3, 0.9])
def test_a_lost_message_is_made_up_for_a_period_later(loss):
    """With period H, the age at a time of sending is H m with probability loss^m (1 - loss)."""
    period, steps = 4, 4000
    arrivals = Arrivals(network("complete:6", 0, loss=loss, clusters=None), 1, period=period)
    links = arrivals.network.links
    rows = [arrivals.advance(t)[links] for t in range(steps)]
    counted = torch.cat(rows[400::period])
    assert (counted % period == 0).all()
    for m in range(3):
        share = float((counted == m * period).double().mean())
        assert share == pytest.approx(loss**m * (1 - loss), abs=0.015)


@pytest.mark.parametrize("startup", ["wait", "min", "full"])
@pytest.mark.parametrize(("delay", "period"), [(0, 3), (2, 3), (5, 2), (7, 4)])
def test_a_message_arrives_once_its_delay_after_it_was_sent(delay, period, startup):
    net = network("complete:3", delay, clusters=None, startup=startup)
    arrivals = Arrivals(net, 0, period=period)
    for t in range(40):
        sent = [s for s in range(0, t + 1, period) if s + delay <= t]
        before = {"wait": None, "min": 0, "full": (t - delay) // period * period}[startup]
        newest = sent[-1] if sent else before
        expected = NOTHING if newest is None else t - newest
        ages = arrivals.advance(t)
        assert set(ages[net.links].tolist()) == {expected}
        assert expected <= arrivals.largest_age


def test_each_message_keeps_the_delay_it_was_sent_with():
    """uniform:1,9 at period 4: every message arrives, and a share of 1/9 after each delay."""
    arrivals = Arrivals(network("complete:6", "uniform:1,9", clusters=None), 2, period=4)
    links, first_seen = arrivals.network.links, []
    for t in range(3000):
        ages = arrivals.advance(t)
        first_seen.append(ages[links])
    ages = torch.stack(first_seen[40:])
    assert int(ages.max()) <= arrivals.largest_age == 12
    # At t = 4m + 1 the message of 4m is there with probability 1/9.
    at_one = torch.cat([row for t, row in enumerate(first_seen) if t % 4 == 1 and t > 40])
    assert float((at_one == 1).double().mean()) == pytest.approx(1 / 9, abs=0.02)


def test_what_is_under_way_is_in_the_state():
    net = network("complete:4", "uniform:1,9", clusters=None, loss=0.2)
    whole, first = (Arrivals(net, 3, period=3) for _ in range(2))
    for t in range(20):
        whole.advance(t)
        first.advance(t)
    second = Arrivals(net, 3, period=3)
    second.load_state_dict(first.state_dict())
    assert all(torch.equal(whole.advance(t), second.advance(t)) for t in range(20, 60))
