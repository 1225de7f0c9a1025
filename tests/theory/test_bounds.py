"""The paper's bounds, against its formulas written out once more, term by term."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.errors import UserError
from gossamer.theory import FORMS, Constants, consensus_bound, nonconvex_bound, pl_bound
from gossamer.theory.estimate import delta_2, theta_range

positive = st.floats(0.01, 10)
shares = {"theta_m": st.floats(0.01, 1), "delta_2": st.floats(0, 0.9), "lam": st.floats(0.01, 1)}
constants = st.builds(Constants, **{**{field.name: positive for field in dataclasses.fields(Constants)}, **shares})


def c_1(c, tau):
    return (c.G + (tau - 1) * c.B * c.theta_m) / (1 - c.delta_2)


def c_r(c, r):
    return (2 * c.G + (r - 1) * c.B * c.theta_m) / (1 - c.delta_2)


def q_of(c, eta, tau, form):
    """Q of Theorem 1; the derived one squares C_r and keeps gamma eta^2 / 2 ||g + sum g_dc||^2."""
    square = 2 if form == "derived" else 1
    q = 2 * (1 - 2 * c.mu * eta * tau) * c.G * eta * c_1(c, tau)
    q += eta**3 * c.xi * c.G / 2 * sum(c_r(c, r) ** square for r in range(1, tau))
    q += 2 * eta**2 * c.G * c.gamma * c_1(c, tau) + c.G * eta * tau * c.sigma
    q += (
        eta**2
        * c.G
        * (c.gamma + c.epsilon_D + c.epsilon + (1 - c.lam) * c.G**2)
        * sum(c_r(c, r) for r in range(1, tau))
    )
    q += eta * c.G**2 + eta**2 * c.gamma * c.G * tau * c_r(c, tau)
    if form == "derived":
        q += c.gamma * eta**2 / 2 * (c.G + tau * c.B) ** 2
    return q


def r_over_eta(c, eta, tau, form):
    """The constant part of Theorem 2's bound, from the three places that print it."""
    first, moment, smooth, factor = {
        "main-text": (2 * c.G * c_1(c, tau), tau**2, eta, 1),
        "appendix": (2 * c.G * eta**2 * c_1(c, tau), tau, eta**2, 1),
        "derived": (2 * eta * c.G * c_1(c, tau), tau**2, eta**2, 2),
    }[form]
    r = first + moment * eta**2 * c.gamma * c.M / 2 + eta * c.sigma**2 / 2 + eta * c.sigma * tau * c.B
    return factor * (r + 2 * smooth * c.gamma * (tau * c.B + c.G) * c_1(c, tau)) / eta


@given(constants, st.integers(1, 30), st.sampled_from(FORMS))
@settings(deadline=None)
def test_the_bounds_are_the_formulas(c, tau, form):
    eta = 0.9 / max(c.gamma, 2 * c.mu * tau)
    assert math.isclose(consensus_bound(c, eta, tau, form).value, eta * c_1(c, tau))
    floor = q_of(c, eta, tau, form) / (2 * c.mu * eta * tau)
    expected = (1 - 2 * c.mu * eta * tau) ** 7 * (c.initial_gap - floor) + floor  # x_8, seven steps after x_1
    assert math.isclose(pl_bound(c, eta, tau, 7, form).value, expected, rel_tol=1e-9)
    expected = 2 * c.initial_gap / (500 * eta) + r_over_eta(c, eta, tau, form)
    assert math.isclose(nonconvex_bound(c, eta, tau, 500, form).value, expected, rel_tol=1e-9)


@given(constants, st.integers(1, 30))
def test_the_derived_bound_does_not_vanish_with_the_learning_rate(c, tau):
    """2 R / eta -> 4 G C_1 + sigma^2 + 2 sigma tau B, which is above the trivial G^2."""
    value = nonconvex_bound(c, 1e-9, tau, 10**15, "derived").value
    limit = 4 * c.G * c_1(c, tau) + c.sigma**2 + 2 * c.sigma * tau * c.B
    assert math.isclose(value, limit, rel_tol=1e-3)
    assert value > c.G**2


@given(constants, st.integers(2, 30), st.sampled_from(FORMS))
@settings(deadline=None)
def test_terms_add_up_and_a_longer_delay_never_tightens_the_bounds_of_disagreement(c, tau, form):
    eta = 0.9 / max(c.gamma, 2 * c.mu * (tau + 1))
    for bound in (consensus_bound(c, eta, tau, form), nonconvex_bound(c, eta, tau, 100, form)):
        assert math.isclose(sum(bound.terms.values()), bound.value)
    assert consensus_bound(c, eta, tau + 1, form).value >= consensus_bound(c, eta, tau, form).value
    assert nonconvex_bound(c, eta, tau + 1, 9, form).value >= nonconvex_bound(c, eta, tau, 9, form).value


SOUND = Constants(
    **dict.fromkeys(("G", "sigma", "B", "M", "gamma", "xi", "epsilon", "epsilon_D", "initial_gap"), 1.0),
    mu=0.1,
    theta_m=0.3,
    delta_2=0.7,
    lam=1.0,
)


@pytest.mark.parametrize("form", FORMS)
def test_no_guarantee_is_never_a_number(form):
    def reason(bound):
        assert bound.value is None
        assert str(bound).startswith("no guarantee: ")
        return bound.reason

    apart = dataclasses.replace(SOUND, delta_2=1.0)
    for bound in (
        consensus_bound(apart, 0.1, 5, form),
        pl_bound(apart, 0.1, 5, 10, form),
        nonconvex_bound(apart, 0.1, 5, 10, form),
    ):
        assert "delta_2 is 1, not below 1" in reason(bound)
    assert "1/(2 mu tau) = 1" in reason(pl_bound(SOUND, 1.01, 5, 10, form))
    assert pl_bound(SOUND, 1.0, 5, 10, form).value is not None  # the condition includes its limit
    assert "not below 1/gamma = 1" in reason(nonconvex_bound(SOUND, 1.0, 5, 10, form))  # this one does not
    assert "delays of 1 step or more" in reason(consensus_bound(SOUND, 0.1, 0, form))
    assert "PL condition" in reason(pl_bound(dataclasses.replace(SOUND, mu=0.0), 0.1, 5, 10, form))
    assert "(0, 1]" in reason(pl_bound(dataclasses.replace(SOUND, lam=1.5), 0.1, 5, 10, form))
    assert "0 iterations or more" in reason(pl_bound(SOUND, 0.1, 5, -1, form))
    assert "1 iteration or more" in reason(nonconvex_bound(SOUND, 0.1, 5, 0, form))
    assert reason(nonconvex_bound(Constants(G=1.0), 0.1, 5, 10, form)) == (
        "sigma, B, M, gamma, theta_m, delta_2, initial_gap are unknown"
    )


def test_wrong_values_are_refused():
    with pytest.raises(UserError, match="constant gamma must be 0 or more and finite, got -1"):
        Constants(gamma=-1.0)
    with pytest.raises(UserError, match="constant G must be 0 or more and finite, got inf"):
        Constants(G=math.inf)
    with pytest.raises(UserError, match="theta_m must be at most 1, got 2"):
        Constants(theta_m=2.0)
    with pytest.raises(UserError, match="unknown form 'derive'; did you mean 'derived'"):
        consensus_bound(SOUND, 0.1, 5, "derive")
    with pytest.raises(UserError, match="lr must lie above 0 and be finite, got 0"):
        consensus_bound(SOUND, 0.0, 5)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("c-asgd", (0, 0)),
        ("p-asgd", (1, 1)),
        ("pc-asgd/theta=0.3", (0.3, 0.3)),
        ("pc-asgd/theta=pv", (0, 1)),
        ("pc-asgd/theta=bernoulli:0.3", (0, 1)),
        ("pc-asgd/theta=uniform", (0, 1)),
        ("pc-asgd/theta=linear:0.2,0.5,100", (0.2, 0.5)),
        ("pc-asgd/theta=piecewise:0=0.3,500=0.7", (0.3, 0.7)),
        ("pc-asgd/theta=piecewise:0=0.3,50000=0.7", (0.3, 0.7)),
        ("dm-asgd", None),
        ("d-asgd", None),
    ],
)
def test_theta_of_a_rule(rule, expected):
    name, _, option = rule.partition("/theta=")
    assert theta_range(gm.algorithm(name, **({"theta": option} if option else {}))) == expected


def test_delta_2_joins_the_two_matrices():
    """On the paper's network W = 1/8 has e_2 = 0, and W~ never joins the clusters: e_2 = 1."""
    network = gm.network("paper-1", delay=20, mixing="uniform")
    assert math.isclose(delta_2(network, (0.3, 0.3)), 0.7)
    assert delta_2(network, (0.0, 1.0)) == 1
    ring = gm.network("ring:5", delay=2, clusters="2,3")
    assert math.isclose(delta_2(ring, (1.0, 1.0)), (1 + 2 * math.cos(2 * math.pi / 5)) / 3)


QUICK = (
    "--model",
    "linear",
    "--epochs",
    "2",
    "--delay",
    "2",
    "--lr",
    "0.02",
    "--probes",
    "2",
    "--draws",
    "2",
    "--examples",
    "16",
)


def test_the_command_prints_bounds_beside_what_was_measured(command):
    document = command.well("bounds", *QUICK, "--json").document
    assert set(document["bounds"]) == {"consensus", "pl", "nonconvex"}
    assert set(document["bounds"]["pl"]) == set(FORMS)
    assert document["constants"]["theta_m"]["value"] == pytest.approx(
        math.sqrt(1 / 2) / (math.sqrt(15) / 8 * 3)
    )  # theta auto at delay 2
    for name, forms in document["bounds"].items():
        assert 0 <= document["measured"][name] <= forms["derived"]["value"]
    shown = command.well("bounds", *QUICK).out
    assert "power iteration" in shown
    assert "not guarantees" in shown


def test_the_command_says_when_there_is_no_guarantee(command):
    clipped = command.well("bounds", *QUICK, "--algorithm", "c-asgd", "--json").document
    assert clipped["constants"]["delta_2"]["value"] == 1
    assert all(form["value"] is None for forms in clipped["bounds"].values() for form in forms.values())
    other = command.well("bounds", *QUICK, "--algorithm", "d-asgd", "--json").document
    assert "neither predicts nor clips" in other["bounds"]["pl"]["derived"]["reason"]
    driven = command.well("bounds", *QUICK, "--momentum", "0.9", "--json").document
    assert "plain SGD" in driven["bounds"]["pl"]["derived"]["reason"]
    other = command.well("bounds", *QUICK, "--horizon", "none", "--json").document
    assert "horizon=sum, the run has none" in other["bounds"]["pl"]["derived"]["reason"]
    uneven = ("--network", "star:6", "--clusters", "3,3", "--clip-weights", "renormalised")
    other = command.well("bounds", *QUICK, *uneven, "--json").document
    assert "not doubly stochastic" in other["bounds"]["pl"]["derived"]["reason"]
    by_hand = command.well("bounds", *QUICK, "--constant", "gamma=100", "--json").document
    assert "1/gamma = 0.01" in by_hand["bounds"]["nonconvex"]["derived"]["reason"]
    assert by_hand["constants"]["gamma"]["how"] == "given by hand"


def test_the_command_takes_a_run_folder(command, tmp_path):
    folder = tmp_path / "run"
    gm.simulate(network="paper-1", model="linear", delay=3, epochs=2, lr=0.03, theta=0.5, out=folder)
    document = command.well("bounds", str(folder), *QUICK[8:], "--json").document
    assert (document["tau"], document["lr"], document["constants"]["theta_m"]["value"]) == (3, 0.03, 0.5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--constant", "gama=1"), "unknown constant 'gama'; did you mean 'gamma'?"),
        (("--constant", "gamma"), "constant 'gamma' has no value"),
        (("--constant", "gamma=x"), "constant gamma must be a number, got 'x'"),
        (("--probes", "0"), "probes must be 1 or more, got 0"),
        (("--algorithm", "p-asgd", "--lr", "50", "--delay", "9", "--epochs", "3"), "there is nothing to estimate from"),
        (("nowhere.toml",), "cannot read settings 'nowhere.toml'"),
    ],
)
def test_bad_input_gets_one_line(command, arguments, words):
    assert words in command.refused("bounds", *arguments)
