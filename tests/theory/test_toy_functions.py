import math

import pytest
import torch

from gossamer.theory.functions import FUNCTIONS, quadratic, rastrigin, rosenbrock

every_function = pytest.mark.parametrize("name", sorted(FUNCTIONS))


def points(*shape):
    return 3 * torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1.5


def curvatures(function, x):
    return torch.linalg.eigvalsh(torch.autograd.functional.hessian(function.value, x))


@every_function
@pytest.mark.parametrize("size", [2, 5])
def test_the_gradient_is_that_of_the_value(name, size):
    function, x = FUNCTIONS[name](0.7), points(4, 3, size)
    leaf = x.clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad(function.value(leaf).sum(), leaf)
    torch.testing.assert_close(function.gradient(x), by_autograd, rtol=1e-12, atol=1e-12)
    for place in range(size):
        ahead = torch.zeros(size, dtype=torch.float64)
        ahead[place] = 1e-6
        slope = (function.value(x + ahead) - function.value(x - ahead)) / 2e-6
        torch.testing.assert_close(function.gradient(x)[..., place], slope, rtol=1e-6, atol=1e-6)


@every_function
def test_the_minimum_is_a_minimum(name):
    function = FUNCTIONS[name](1.0)
    lowest = function.value(function.minimum)
    assert float(lowest) == 0 and torch.equal(function.gradient(function.minimum), torch.zeros(2, dtype=torch.float64))
    for size in (1e-3, 0.1, 1.0):
        assert bool((function.value(function.minimum + size * points(200, 2)) > lowest).all())
    assert float(curvatures(function, function.minimum).min()) > 0
    assert float(function.value(function.start)) > float(lowest)


@every_function
def test_the_argument_multiplies(name):
    whole, part, x = FUNCTIONS[name](1.0), FUNCTIONS[name](0.01), points(6, 2)
    torch.testing.assert_close(100 * part.value(x), whole.value(x))
    torch.testing.assert_close(100 * part.gradient(x), whole.gradient(x))
    assert part.name == name and torch.equal(part.minimum, whole.minimum) and torch.equal(part.start, whole.start)


def test_known_values():
    assert float(rosenbrock().value(torch.tensor([-1.2, 1.0], dtype=torch.float64))) == pytest.approx(24.2)
    assert float(rastrigin().value(torch.tensor([0.5, 1.0], dtype=torch.float64))) == pytest.approx(0.25 + 20 + 1)
    assert float(quadratic(3.0).value(torch.tensor([1.0, 2.0], dtype=torch.float64))) == pytest.approx(7.5)


def test_known_curvatures():
    low, high = curvatures(rosenbrock(), torch.ones(2, dtype=torch.float64)).tolist()
    assert high == pytest.approx(1001.6, abs=0.1) and high / low == pytest.approx(2508, abs=1)
    assert curvatures(rastrigin(), torch.zeros(2, dtype=torch.float64)).tolist() == pytest.approx(
        [2 + 40 * math.pi**2] * 2
    )
    assert curvatures(quadratic(3.0), points(2)).tolist() == pytest.approx([3.0, 3.0])
