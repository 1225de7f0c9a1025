"""The constants of the bounds, on problems where they are known in closed form."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gossamer as gm
from gossamer.engine import make_training
from gossamer.errors import UserError
from gossamer.run.settings import make_settings
from gossamer.tasks import make_task
from gossamer.theory import Function, FunctionProblem, TaskProblem, estimate_constants
from gossamer.theory.problem import diagonal, exact_gradient, hessian, spectral_norm

AGENTS = 3
NETWORK = gm.network("clusters:1,2", delay=4)
RULE = gm.algorithm("pc-asgd", theta=0.3, lam=1.0)


def quadratic_form(matrix):
    """x^T A x / 2 with its minimum at 0."""
    size = len(matrix)
    return Function(
        "form",
        value=lambda x: 0.5 * ((x @ matrix) * x).sum(dim=-1),
        gradient=lambda x: x @ matrix,
        minimum=torch.zeros(size, dtype=torch.float64),
        start=torch.ones(size, dtype=torch.float64),
    )


def random_symmetric(size, seed, *, positive=True):
    chance = torch.Generator().manual_seed(seed)
    matrix = torch.randn(size, size, generator=chance, dtype=torch.float64)
    return matrix @ matrix.T / size + 0.1 * torch.eye(size) if positive else matrix + matrix.T


def run_on(problem, size, *, lr=0.02, steps=60):
    start = torch.linspace(-1, 2, AGENTS * size, dtype=torch.float64).reshape(AGENTS, size)
    return gm.trajectory(RULE, NETWORK, problem.gradient, start, lr, steps)


@given(st.integers(1, 6), st.integers(0, 100))
@settings(deadline=None, max_examples=8)
def test_constants_of_a_quadratic(size, seed):
    matrix = random_symmetric(size, seed)
    problem = FunctionProblem(quadratic_form(matrix), AGENTS)
    path = run_on(problem, size)
    found = estimate_constants(problem, path, network=NETWORK, algorithm=RULE, tau=4, draws=2, probes=61).constants
    values = torch.linalg.eigvalsh(matrix)
    assert found.gamma == pytest.approx(float(values[-1]), rel=0.02)
    assert float(values[0]) * (1 - 1e-9) <= found.mu <= float(values[-1]) * (1 + 1e-9)
    assert found.xi == pytest.approx(0, abs=1e-9 * float(values[-1]))
    assert found.sigma == pytest.approx(0, abs=1e-12)
    off = matrix - torch.diag(matrix.diag())
    assert found.epsilon_D == pytest.approx(float(torch.linalg.matrix_norm(off, 2)), rel=0.02, abs=1e-12)
    gradients = path @ matrix
    assert pytest.approx(float(gradients.flatten(1).norm(dim=1).max())) == found.G
    outer = gradients[..., :, None] * gradients[..., None, :] - matrix
    assert found.epsilon == pytest.approx(float(torch.linalg.matrix_norm(outer, 2).max()), rel=0.05)
    assert found.initial_gap == pytest.approx(0.5 * float((gradients[0] * path[0]).sum()))
    # ||g_dc,r|| over every step and every r < tau, written out.
    ahead = [
        float((gradients[s] + gradients[s] ** 2 * (path[min(s + r, 60)] - path[s])).norm())
        for s in range(61)
        for r in range(4)
    ]
    assert pytest.approx(max(ahead)) == found.B
    assert pytest.approx(max(ahead) ** 2) == found.M
    assert (found.theta_m, found.lam) == (0.3, 1.0)
    assert found.delta_2 == pytest.approx(0.7)


def test_mu_is_the_smallest_ratio_along_a_path_that_turns():
    """Along an axis of curvature h the ratio is h, so that the smallest of all is that of the flat axis."""
    matrix = torch.diag(torch.tensor([0.5, 7.0, 3.0], dtype=torch.float64))
    problem = FunctionProblem(quadratic_form(matrix), AGENTS)
    path = torch.eye(3, dtype=torch.float64)[[2, 1, 0, 1], None, :].expand(-1, AGENTS, -1)
    found = estimate_constants(problem, path, network=NETWORK, algorithm=RULE, tau=1).constants
    assert found.mu == pytest.approx(0.5)
    assert found.gamma == pytest.approx(7.0, rel=1e-3)


def test_sigma_is_the_noise_of_all_agents_together():
    """Normal noise s on each of N d coordinates: sigma^2 = N d s^2, here to within chance (200 draws, 4 probes)."""
    problem = FunctionProblem(quadratic_form(torch.eye(4, dtype=torch.float64)), AGENTS, noise=0.5, seed=3)
    path = run_on(problem, 4)
    found = estimate_constants(problem, path, network=NETWORK, algorithm=RULE, tau=4, draws=200, probes=4).constants
    assert found.sigma == pytest.approx(0.5 * math.sqrt(AGENTS * 4), rel=0.1)
    # At the end g is almost all noise and B is that of the start; M there is ||grad F||^2 + sigma^2, to within chance.
    first = float(path[0].norm()) ** 2 + 0.25 * AGENTS * 4
    assert pytest.approx(first, rel=0.1) == found.M


def test_the_largest_variance_counts():
    """Noise that grows with the distance from the minimum is largest at the first step."""

    class Growing(FunctionProblem):
        def gradient(self, x, draw):
            exact = self.function.gradient(x)
            return exact + (super().gradient(x, draw) - exact) * x.abs().max()

    problem = Growing(quadratic_form(torch.eye(2, dtype=torch.float64)), AGENTS, noise=0.5)
    path = torch.tensor([4.0, 1.0, 0.1], dtype=torch.float64)[:, None, None].expand(-1, AGENTS, 2)
    found = estimate_constants(problem, path, network=NETWORK, algorithm=RULE, tau=1, draws=400).constants
    assert found.sigma == pytest.approx(4 * 0.5 * math.sqrt(AGENTS * 2), rel=0.1)


def test_a_path_that_has_diverged_is_refused():
    problem = FunctionProblem(quadratic_form(torch.eye(2, dtype=torch.float64)), AGENTS)
    path = torch.full((3, AGENTS, 2), math.nan, dtype=torch.float64)
    with pytest.raises(UserError, match="has diverged"):
        estimate_constants(problem, path, network=NETWORK, algorithm=RULE, tau=1)


def test_xi_bounds_the_change_of_curvature():
    """x^3 + 3 y^3: the Hessian is diag(6 x, 18 y), so that it changes by 6 along x and by 18 along y."""
    weights = torch.tensor([1.0, 3.0], dtype=torch.float64)
    cubic = Function(
        "cubic",
        value=lambda x: (weights * x.pow(3)).sum(dim=-1),
        gradient=lambda x: 3 * weights * x.square(),
        minimum=torch.zeros(2, dtype=torch.float64),
        start=torch.ones(2, dtype=torch.float64),
    )
    path = torch.tensor([[[1.0, 0.0]], [[2.0, 0.0]], [[2.0, 0.1]]], dtype=torch.float64).repeat(1, 2, 1)
    path[1, 1] = path[0, 1]  # one agent rests for a step, which says nothing
    network = gm.network("complete:2", delay=2, clusters="1,1")
    found = estimate_constants(FunctionProblem(cubic, 2), path, network=network, algorithm=RULE, tau=2).constants
    assert found.xi == pytest.approx(18, rel=1e-3)
    assert found.gamma == pytest.approx(12, rel=1e-3)


@given(st.integers(1, 7), st.integers(0, 50))
@settings(deadline=None, max_examples=20)
def test_products_with_the_hessian(size, seed):
    matrix = random_symmetric(size, seed, positive=False)
    problem = FunctionProblem(quadratic_form(matrix), 2)
    x = torch.randn(2, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    product = hessian(problem, x)
    torch.testing.assert_close(product(x), x @ matrix)
    torch.testing.assert_close(diagonal(product, x), matrix.diag().expand(2, -1))
    expected = torch.linalg.matrix_norm(matrix, 2).expand(2)
    torch.testing.assert_close(
        spectral_norm(product, x, tolerance=0.0, iterations=2000), expected, rtol=1e-3, atol=1e-9
    )


def test_a_large_model_leaves_the_diagonal_out(monkeypatch):
    monkeypatch.setattr("gossamer.theory.estimate.LARGEST_DIAGONAL", 1)
    problem = FunctionProblem(quadratic_form(torch.eye(2, dtype=torch.float64)), AGENTS)
    found = estimate_constants(problem, run_on(problem, 2), network=NETWORK, algorithm=RULE, tau=4)
    assert found.constants.epsilon_D is None
    assert found.how["epsilon_D"].startswith("not estimated: 2 parameters, above the limit of 1")


def test_a_training_run_is_a_problem_like_any_other():
    """The problem's loss is the mean over an agent's shard, and its draws average to the gradient."""
    training = make_training(
        make_settings({"task": "digits", "network": "clusters:1,2", "delay": 2, "dtype": "float64"})
    )
    problem = TaskProblem(training, examples=64)
    x = training.simulation.x
    loss, g = exact_gradient(problem, x)
    task, module = training.task, training.task.fresh_module(0)
    module.module.double()
    shard = training.plan.shards[1][:64]
    expected = task.loss(module(x[1], task.train.x[shard].double()), task.train.y[shard])
    assert float(loss[1]) == pytest.approx(float(expected))
    step = 1e-6 * torch.randn_like(x)
    assert float((exact_gradient(problem, x + step)[0] - loss).sum()) == pytest.approx(
        float((g * step).sum()), rel=1e-3
    )
    whole = TaskProblem(training, examples=10_000)
    draws = torch.stack([whole.gradient(x, draw) for draw in range(400)])
    exact = exact_gradient(whole, x)[1]
    scatter = float((draws - exact).flatten(1).norm(dim=1).square().mean()) ** 0.5
    assert float((draws.mean(dim=0) - exact).norm()) < 4 * scatter / math.sqrt(400)


def test_frozen_parameters_and_dropout_leave_a_loss_without_noise():
    def model():
        net = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 10))
        net[0].weight.requires_grad_(False)
        return net

    digits = make_task("digits", "linear")
    task = gm.Task("digits", model, digits.train, digits.test, prepare=digits.prepare)
    training = make_training(make_settings({"network": "clusters:1,2", "delay": 2}), task=task)
    problem, x = TaskProblem(training, examples=64), training.simulation.x
    (loss, g), (again, _) = exact_gradient(problem, x), exact_gradient(problem, x)
    assert torch.equal(loss, again)
    assert not g[:, :512].any() and bool(g[:, 512:].any())
