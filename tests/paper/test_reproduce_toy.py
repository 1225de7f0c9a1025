import copy
import functools
import json

import matplotlib.image
import numpy as np
import pytest
import torch

from gossamer.paper import toy
from gossamer.paper.toy import PRINTED_LR, SCALE, ToyCase, run_case, run_toy, starts
from gossamer.paper.toy_figures import running_average, running_bound, write_toy_figures
from gossamer.paper.toy_page import toy_claims, toy_page
from gossamer.theory.bounds import FORMS
from gossamer.theory.functions import rosenbrock

STEPS, DELAYS, SEEDS = 10, (1, 2), 2


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Limits of stability and constants of a bound take seconds; their own tests look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "stable_eta_h", lambda delay: 1 / delay)
        patch.setattr(toy, "estimate_constants", functools.partial(toy.estimate_constants, draws=2, probes=2))
        yield


@pytest.fixture(scope="module")
def calls():
    return []


@pytest.fixture(scope="module")
def results(calls):
    return run_toy(seeds=SEEDS, steps=STEPS, delays=DELAYS, on_case=lambda done, total: calls.append((done, total)))


def of(results, function, scale, **wanted):
    rows = [row for row in results if (row["function"], row["scale"]) == (function, scale)]
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def verdict(results, text):
    return next(claim.verdict for claim in toy_claims(results) if text in claim.text)


def test_rows_are_plain_values_and_progress_is_told(results, calls):
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert calls == [(done, len(results)) for done in range(1, len(results) + 1)]
    assert {row["delay"] for row in results} == set(DELAYS) and {row["steps"] for row in results} == {STEPS}


def test_the_printed_step_diverges_on_rosenbrock_and_the_scaled_problem_does_not(results):
    for row in of(results, "rosenbrock", 1.0, lr=PRINTED_LR):
        assert row["status"].startswith("diverged at step") and all(step <= 5 for step in row["diverged_at"])
        assert row["average_gradient_squared"] is None and row["path"] is None
        assert {form: bound["value"] for form, bound in row["bounds"].items()} == dict.fromkeys(FORMS)
        assert "not below 1/gamma" in row["bounds"]["derived"]["reason"]
    for row in of(results, "rosenbrock", SCALE):
        assert row["status"] == "finished" and row["diverged_at"] == [None] * SEEDS
        assert row["lr"] == PRINTED_LR < row["theorem_step_limit"]
        assert row["final_gradient_squared"] < 0.5 * row["gradient_squared"][0]
        assert all(bound["value"] > 0 and bound["reason"] is None for bound in row["bounds"].values())


def test_the_limit_of_a_run_that_diverged_is_that_of_its_start(results):
    (row,) = of(results, "rosenbrock", 1.0, lr=PRINTED_LR, delay=1)
    points = [x for seed in range(SEEDS) for x in starts(rosenbrock(), seed)]
    hessians = [torch.autograd.functional.hessian(rosenbrock().value, x) for x in points]
    gamma = max(float(torch.linalg.eigvalsh(matrix).max()) for matrix in hessians)
    assert row["gamma"] == pytest.approx(gamma, rel=1e-4)
    assert row["theorem_step_limit"] == pytest.approx(1 / gamma, rel=1e-4)
    assert row["eta_tau_h"] == pytest.approx(PRINTED_LR * gamma, rel=1e-4)


def test_the_smaller_steps_are_below_the_theorems_limit(results):
    smaller = [row for row in results if row["lr"] != PRINTED_LR]
    assert smaller and all(row["lr"] < row["theorem_step_limit"] for row in smaller)


def test_a_case_is_a_function_of_its_settings():
    case = ToyCase("rastrigin", SCALE, PRINTED_LR, 2)
    first, again, longer = (run_case(case, seeds, 4) for seeds in (2, 2, 1))
    assert first == again
    assert first["average_by_seed"][0] == longer["average_by_seed"][0] != first["average_by_seed"][1]


def test_a_scaled_function_is_the_same_run_at_another_step_and_lambda():
    scaled = run_case(ToyCase("rosenbrock", SCALE, PRINTED_LR, 2, lam=1.0), 1, 8)
    whole = run_case(ToyCase("rosenbrock", 1.0, SCALE * PRINTED_LR, 2, lam=SCALE), 1, 8)
    assert np.allclose(scaled["gradient_squared"], SCALE**2 * np.array(whole["gradient_squared"]), rtol=1e-4)
    assert scaled["distance_to_minimum"] == pytest.approx(whole["distance_to_minimum"])


def test_averages_are_of_the_gradients_on_the_path(results):
    row = run_case(ToyCase("rosenbrock", SCALE, PRINTED_LR, 2), 1, 8)
    path = torch.tensor(row["path"], dtype=torch.float64)
    assert torch.allclose(path[0], starts(rosenbrock(), 0), rtol=1e-5)
    squared = rosenbrock(SCALE).gradient(path).square().sum(dim=(1, 2))
    assert squared.tolist() == pytest.approx(row["gradient_squared"], rel=1e-2)
    assert row["average_gradient_squared"] == pytest.approx(float(squared[:-1].mean()), rel=1e-3)
    for row in of(results, "rastrigin", SCALE):
        assert running_average(row)[-1] == pytest.approx(row["average_gradient_squared"], rel=1e-4)


def test_the_bound_falls_to_its_value_at_the_last_step(results):
    for row in of(results, "rosenbrock", SCALE):
        bound = running_bound(row)
        assert bound[-1] == pytest.approx(row["bounds"]["derived"]["value"]) and bool((np.diff(bound) < 0).all())
    assert running_bound(of(results, "rosenbrock", 1.0, lr=PRINTED_LR)[0]) is None


@pytest.mark.parametrize(
    "steps, said",
    [
        ([None, None], "finished"),
        ([7, 7], "diverged at step 7"),
        ([9, 7], "diverged at steps 7 to 9"),
        ([None, 7], "diverged at step 7 in 1 of 2 seeds"),
    ],
)
def test_the_status_says_when_and_how_often(steps, said):
    assert toy._status(steps) == said


def test_figures_are_written_and_not_empty(results, tmp_path):
    paths = write_toy_figures(results, tmp_path / "new")
    names = ["rosenbrock", "rosenbrock-printed-step", "rastrigin", "rastrigin-printed-step"]
    assert [path.name for path in paths] == [f"{name}.png" for name in names]
    for path in paths:
        assert 0.02 < float((matplotlib.image.imread(path)[..., :3] < 0.9).any(axis=2).mean()) < 0.5


def test_the_page_has_every_run_and_picture(results):
    page = toy_page(results, images="images/")
    assert page.count("\n| Ro") + page.count("\n| Ra") == len(results)
    assert page.count("](images/") == 4
    assert max(len(line) for line in page.splitlines() if not line.startswith(("|", "!"))) <= 120


def test_verdicts_follow_the_numbers(results):
    assert verdict(results, "according to Theorem 2") == "Does not hold"
    assert verdict(results, "nearly tight") == "Does not hold"
    changed = copy.deepcopy(results)
    for row in of(changed, "rosenbrock", SCALE):
        row["bounds"]["derived"]["value"] = 2 * row["average_gradient_squared"]
    assert verdict(changed, "nearly tight") == "Holds"
    near, far = of(changed, "rosenbrock", SCALE)
    for factors, said in (((2, 2), "Holds"), ((0.5, 2), "Holds in part"), ((0.5, 0.5), "Does not hold")):
        for name, factor in zip(("average_by_seed", "final_by_seed"), factors, strict=True):
            far[name] = [factor * value for value in near[name]]
        assert verdict(changed, "Rosenbrock: when delay is large") == said
    for name in ("average_by_seed", "final_by_seed"):
        far[name] = [2 * near[name][0], 0.5 * near[name][1]]
    assert verdict(changed, "Rosenbrock: when delay is large") == "Does not hold"  # seeds that disagree
    far["final_gradient_squared"], near["final_gradient_squared"] = 0.0, 100.0
    assert verdict(changed, "Rosenbrock: the trajectories converge") == "Holds in part"
