"""The spectral radius on a reduced past: against all eigenvalues of the whole companion matrix, and closed forms."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gossamer as gm
from gossamer.state.local import LocalOptimizer
from gossamer.theory import stability
from gossamer.theory.linear import LinearUpdate, linearise, over_rates
from gossamer.theory.reduced_past import ReducedPast, spectral_radius
from predictions import RULES, random_network

SEEDS = st.integers(0, 10_000)


def companion(update):
    """The matrix of the whole stacked past."""
    depth, size = max(update.matrices), len(update.matrices[0])
    matrix = np.eye(size * (depth + 1), k=-size)
    for age, block in update.matrices.items():
        matrix[:size, age * size : (age + 1) * size] = block.numpy()
    return matrix


def largest(update):
    return np.abs(np.linalg.eigvals(companion(update))).max()


def random_update(seed):
    """Up to 6 agents with one or two kept vectors and up to 4 ages; low ranks, empty matrices and equal agents."""
    chance = np.random.default_rng(seed)
    agents, kept = int(chance.integers(1, 7)), int(chance.integers(1, 3))
    size = agents * kept
    ages = sorted({0, *chance.integers(1, 12, int(chance.integers(0, 4))).tolist()})
    matrices = {}
    for age in ages:
        rank = int(chance.integers(0, size + 1)) if age else size
        matrix = chance.normal(size=(size, rank)) @ chance.normal(size=(rank, size)) / size
        if chance.random() < 0.3:  # agents that only their own past and the mean of all move
            own, mean = chance.normal(size=(2, kept, kept))
            matrix = np.kron(own, np.eye(agents)) + np.kron(mean, np.full((agents, agents), 1 / agents))
        matrices[age] = torch.from_numpy(matrix * chance.choice([0.0, 1e-6, 0.3, 1.0], p=[0.1, 0.1, 0.4, 0.4]))
    return LinearUpdate(matrices, agents)


@given(SEEDS)
@settings(deadline=None, max_examples=60)
def test_the_reduced_past_has_the_largest_eigenvalue_of_the_whole(seed):
    update = random_update(seed)
    expected = largest(update)
    # A defective eigenvalue moves by a root of the rounding errors, in both computations.
    assert spectral_radius(update) == pytest.approx(expected, rel=1e-6, abs=1e-3 if expected < 1e-2 else 1e-6)


@given(SEEDS, st.sampled_from(RULES), st.floats(0.01, 2), st.sampled_from([0.0, 0.9]))
@settings(deadline=None, max_examples=30)
def test_real_rules_have_the_largest_eigenvalue_of_the_whole(seed, rule, lr, momentum):
    update = linearise(rule, random_network(seed), lr, 1.0, LocalOptimizer(momentum=momentum), check=False)
    assert spectral_radius(update) == pytest.approx(largest(update), abs=1e-10)


def test_a_pure_delay():
    """y(t + 1) = y(t - 599) / 2 has 600 eigenvalues of size 0.5^(1/600)."""
    update = LinearUpdate({0: torch.zeros(1, 1).double(), 599: torch.full((1, 1), 0.5).double()}, 1)
    assert spectral_radius(update) == pytest.approx(0.5 ** (1 / 600), rel=1e-9)


@pytest.mark.parametrize(("spec", "kinds"), [("paper-1", 4), ("paper-3", 4), ("clusters:4,4", 3)])
def test_equal_agents_count_once(spec, kinds):
    """A number for the mean of each kind of cluster, and one for the differences inside it."""
    past = ReducedPast(linearise(gm.algorithm("dm-asgd"), gm.network(spec, delay=6), 0.1, 1.0))
    assert past.size <= kinds * 7


def test_only_what_is_read_is_remembered():
    """The late weights between two equal clusters have rank 2."""
    network = gm.network("paper-1", delay=30)
    assert ReducedPast(linearise(gm.algorithm("d-asgd"), network, 0.1, 1.0)).size <= 4 + 2 * 30


@pytest.mark.parametrize(("value", "radius"), [(0.0, 0.9), (1.0, 1.0)])
def test_a_conserved_value_counts_only_if_a_run_can_have_it(value, radius):
    """y_1 stays as it starts, y_0 shrinks to 0.9."""
    matrix = torch.tensor([[0.9, 0.3], [0.0, 1.0]], dtype=torch.float64)
    starts = torch.tensor([[1.0], [value]], dtype=torch.float64)
    assert spectral_radius(LinearUpdate({0: matrix}, 1, lambda: starts)) == pytest.approx(radius, abs=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_tracking_is_stable_up_to_the_limit_of_plain_descent(momentum):
    """The mean obeys z^2 - (1 + b - k) z + b: stable for k < 2 (1 + b), with pace 1 / (1 - b)."""
    network, local = gm.network("paper-1", delay=20), LocalOptimizer(momentum=momentum)
    found = stability(gm.algorithm("dsgt"), network, 0.1, 1.0, local)
    assert found.stable and found.smallest_stable_lr == 0
    assert found.largest_stable_lr == pytest.approx(2 * (1 + momentum), rel=1e-4)
    assert found.pace == pytest.approx(1 / (1 - momentum), rel=1e-3)


@pytest.mark.parametrize("name", ["sync", "d-asgd", "p-asgd", "dm-asgd", "sdm-asgd", "dsgt"])
def test_all_rates_follow_from_two(name):
    network, rule = gm.network("clusters:2,3", delay=4), gm.algorithm(name)
    at_rate = over_rates(rule, network, 2.0)
    for lr in (1e-5, 0.03, 0.7, 5.0):
        measured = linearise(rule, network, lr, 2.0, check=False)
        for age, matrix in at_rate(lr).matrices.items():
            torch.testing.assert_close(matrix, measured.matrices[age], rtol=1e-9, atol=1e-9)


class TwoSteps(type(gm.algorithm("d-asgd"))):
    """Descends twice, so that the rate occurs squared."""

    def step(self, own, inbox, weights, noise):
        x = super().step(own, inbox, weights, noise).x
        return gm.Update(x - own.lr**2 * own.g)


def test_a_rule_that_is_not_affine_in_the_rate_is_measured_at_each():
    network = gm.network("complete:3", delay=0, clusters="3")
    assert over_rates(TwoSteps(), network, 1.0)(0.25).matrices[0].sum(dim=1)[0] == pytest.approx(1 - 0.25 - 0.0625)
    # 1 - k - k^2 = -1 for the mean, at k = 1.
    assert stability(TwoSteps(), network, 0.1, 1.0).largest_stable_lr <= 1


def test_one_thread_within_and_the_former_number_after():
    seen = []

    class Spying(type(gm.algorithm("d-asgd"))):
        def step(self, own, inbox, weights, noise):
            seen.append(torch.get_num_threads())
            return super().step(own, inbox, weights, noise)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        stability(Spying(), gm.network("complete:3", delay=0, clusters="3"), 0.1, 1.0)
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
