"""Which theta is best for PC-ASGD: a linear model and digits, beside the formula of theta=auto.

theta is a multiple c of 1/(tau + 1). The linear model is two clusters of 3 and 5 on a quadratic loss: for each c it
gives the stability and the variance of the gradient noise over that of a synchronous run. Digits gives accuracies.
Every result is one line of a file, so that a stopped sweep goes on where it was.

Run from the root of the repository:
python benchmarks/theta_sweep.py --out theta.jsonl            # everything: half an hour on one core
python benchmarks/theta_sweep.py --out theta.jsonl --quick    # a small part: minutes
python benchmarks/theta_sweep.py --out theta.jsonl --draw docs/images/theta.png
python benchmarks/theta_sweep.py --out family.jsonl --family  # every predictor and the rules at the corners
python benchmarks/theta_sweep.py --out family.jsonl --family --draw docs/images/pc-asgd-family.png
"""

import argparse
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gossamer as gm
from gossamer.algorithms.theta import stable_theta

SIZES = (3, 5)
RHO = math.sqrt(SIZES[0] * SIZES[1]) / sum(SIZES)
MULTIPLES = (0.125, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
TAUS = (5, 20, 60)
RATES = {0.0: 0.3, 0.9: 0.1}  # learning rate on digits by momentum
PARTITIONS = ("iid", "dirichlet:0.3")
SEEDS = (5, 6, 7)
EPOCHS = 40
QUICK = {"taus": (20,), "multiples": (0.25, 0.7, 2.0, 4.0), "momenta": (0.9,), "partitions": ("iid",), "seeds": (5,)}
CURVATURES = np.geomspace(1e-3, 1.0, 13)  # eta h / (1 - beta): as far as the formula promises stability
FREQUENCY = np.geomspace(1e-5, np.pi, 20_000)

# The family: PC-ASGD over theta, for each predictor, and the rules that it joins, by the multiple that they stand at.
FAMILY_TAU, FAMILY_SEEDS = 20, (5, 6, 7)
FAMILY_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 21.0)
PREDICTORS = {
    "predictor=gradient": ("tab:blue", "o"),
    "predictor=trend": ("tab:green", "s"),
    "predictor=own": ("tab:red", "^"),
    "horizon=none": ("tab:orange", "v"),  # no prediction
}
CORNERS = {"c-asgd": 0.125, "dm-asgd": 1.0, "p-asgd": 21.0, "d-asgd": 21.0, "sync": None}

Row = dict[str, Any]


def radius(theta: float, tau: int, beta: float, curvature: float) -> float:
    """Return the spectral radius of the two clusters on curvature eta h."""
    return float(np.abs(np.linalg.eigvals(companion(theta, tau, beta, curvature))).max())


def companion(theta: float, tau: int, beta: float, k: float) -> np.ndarray:
    """Return the matrix of (x_A, x_B, m_A, m_B) and its past."""
    late = theta * np.array([[0, SIZES[1]], [SIZES[0], 0]]) / sum(SIZES)
    gain = late.sum(axis=1)
    # m' = beta m + k x; x' = (1 - a) x - m' + late (x - tau m') of tau steps ago
    now, eye = np.zeros((4, 4)), np.eye(2)
    now[2:, :2], now[2:, 2:] = k * eye, beta * eye
    now[:2] = -now[2:]
    now[:2, :2] += np.diag(1 - gain)
    old = np.zeros((4, 4))
    old[:2, :2], old[:2, 2:] = late * (1 - tau * k), -tau * beta * late
    whole = np.zeros((4 * (tau + 1), 4 * (tau + 1)))
    whole[:4, :4], whole[:4, -4:] = now, old if tau else now + old
    whole[4:, :-4] = np.eye(4 * tau)
    return whole


def variance(theta: float, tau: int, beta: float, k: float) -> float:
    """Return the mean variance of an agent under gradient noise, over that of a synchronous run."""
    z = np.exp(1j * FREQUENCY)
    step, late = z / (z - beta), z**-tau
    heard = [theta * size / sum(SIZES) for size in SIZES[::-1]]
    alone = [z - 1 + gain + k * step for gain in heard]
    determinant = alone[0] * alone[1] - heard[0] * heard[1] * (late * (1 - tau * k * step)) ** 2
    total = np.zeros_like(FREQUENCY)
    for i, j in ((0, 1), (1, 0)):
        feedback = heard[i] * late * (1 - tau * k * step)
        brought = heard[i] * tau * late * step  # the other cluster's late gradients, at i
        back = heard[j] * tau * late * step  # and i's own, at j
        of_own = (alone[j] * step + feedback * back) / determinant
        of_other = (alone[j] * brought + feedback * step) / determinant
        share = SIZES[i] / sum(SIZES)
        total += share * (np.abs(of_own) ** 2 / SIZES[i] + np.abs(of_other) ** 2 / SIZES[j])
    together = np.abs(step / (z - 1 + k * step)) ** 2 / sum(SIZES)
    return float(np.trapezoid(total, FREQUENCY) / np.trapezoid(together, FREQUENCY))


def linear(tau: int, beta: float, multiple: float) -> Row:
    """Return what the linear model says of one theta."""
    theta = min(1.0, multiple / (tau + 1))
    grown = [radius(theta, tau, beta, k * (1 - beta)) for k in CURVATURES]
    stable = max(grown) < 1
    noise = [variance(theta, tau, beta, k * (1 - beta)) for k in CURVATURES] if stable else None
    row = {"stable": stable, "noise": noise and float(np.exp(np.mean(np.log(noise)))), "radius": max(grown)}
    return row | {"injected": 1 + (theta * tau * RHO) ** 2 * 8 / sum(SIZES) / 2}


def digits(tau: int, beta: float, multiple: float, partition: str, seed: int, rule: str = "pc-asgd") -> Row:
    """Return the accuracy of one run: of PC-ASGD at this theta, or of another rule."""
    if rule.startswith("pc-asgd"):
        rule += f"/theta={min(1.0, multiple / (tau + 1))}"
    settings = {"lr": RATES[beta], "momentum": beta, "partition": partition, "seed": seed, "epochs": EPOCHS}
    result = gm.simulate("digits", "paper-1", rule, delay=tau, eval_every=1_000_000, **settings)
    return {"accuracy": result.summary["accuracy_mean"]}


def wanted(quick: bool) -> Iterator[Row]:
    """List the cells of the sweep, the linear ones first."""
    chosen = QUICK if quick else {}
    taus, momenta = chosen.get("taus", TAUS), chosen.get("momenta", tuple(RATES))
    for tau, beta, multiple in itertools.product(TAUS, RATES, MULTIPLES):
        yield {"part": "linear", "tau": tau, "beta": beta, "multiple": multiple}
    runs = (chosen.get("seeds", SEEDS), chosen.get("partitions", PARTITIONS), momenta, taus)
    for seed, partition, beta, tau in itertools.product(*runs):
        for multiple in chosen.get("multiples", MULTIPLES):
            cell = {"part": "digits", "tau": tau, "beta": beta, "multiple": multiple}
            yield cell | {"partition": partition, "seed": seed}


def family() -> Iterator[Row]:
    """List the runs of the family: plain SGD and skewed labels."""
    rules: list[tuple[str, float | None]] = [*CORNERS.items()]
    rules += [(f"pc-asgd/{name}", m) for name in PREDICTORS for m in FAMILY_MULTIPLES]
    for seed, (rule, multiple) in itertools.product(FAMILY_SEEDS, rules):
        cell = {"part": "digits", "tau": FAMILY_TAU, "beta": 0.0, "multiple": multiple}
        yield cell | {"partition": PARTITIONS[1], "seed": seed, "rule": rule}


def sweep(path: Path, cells: Iterator[Row]) -> None:
    """Fill the file with what is missing."""
    done = {key(row) for row in read(path)}
    with path.open("a", encoding="utf-8") as file:
        for cell in cells:
            if key(cell) in done:
                continue
            told = {name: value for name, value in cell.items() if name != "part"}
            row = cell | (linear(**told) if cell["part"] == "linear" else digits(**told))
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(row)


def key(row: Row) -> tuple[Any, ...]:
    """Return what makes a cell."""
    return tuple(row.get(name) for name in ("part", "tau", "beta", "multiple", "partition", "seed", "rule"))


def read(path: Path) -> list[Row]:
    """Return the rows that are there."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def best(rows: list[Row], name: str, *, largest: bool) -> tuple[float, float, float] | None:
    """Return the best multiple, and the least and the largest that are nearly as good: 0.5 points, or 2 % of noise."""
    values: dict[float, list[float]] = {}
    for row in rows:
        if row[name] is not None:
            values.setdefault(row["multiple"], []).append(row[name])
    if not values:
        return None
    means = {multiple: float(np.mean(found)) for multiple, found in values.items()}
    top = max(means.values()) if largest else min(means.values())
    near = [m for m, mean in means.items() if (mean > top - 0.005 if largest else mean < 1.02 * top)]
    return next(m for m, mean in means.items() if mean == top), min(near), max(near)


def draw(rows: list[Row], path: Path) -> None:
    """Draw theta over the delay: the formula, and the best theta of the model and of the runs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, beta in zip(figure.subplots(1, 2, sharey=True), RATES, strict=True):
        taus = np.arange(3, 81)
        line = [stable_theta(int(tau), RHO, beta, "gradient") for tau in taus]
        axes.plot(taus, line, color="black", label="theta=auto")
        limit = [1 / (RHO * tau) for tau in taus]
        axes.plot(taus, limit, color="grey", linestyle=":", label="limit of plain SGD, 1/(rho tau)")
        kinds = [("linear model, least noise", "linear", None, "tab:blue", "o", 0.93)]
        kinds += [
            (f"digits, {p}", "digits", p, c, m, f)
            for p, c, m, f in zip(PARTITIONS, ("tab:green", "tab:red"), "s^", (1.0, 1.07), strict=True)
        ]
        for label, part, partition, colour, marker, shift in kinds:
            for tau in TAUS:
                of = [
                    r
                    for r in rows
                    if (r["part"], r["tau"], r["beta"], r.get("partition")) == (part, tau, beta, partition)
                ]
                found = best(of, "noise" if part == "linear" else "accuracy", largest=part == "digits")
                if found is None:
                    continue
                centre, low, high = (min(1.0, multiple / (tau + 1)) for multiple in found)
                error = [[centre - low], [high - centre]]
                axes.errorbar(
                    tau * shift,
                    centre,
                    error,
                    color=colour,
                    marker=marker,
                    capsize=3,
                    label=label if tau == TAUS[-1] else None,
                )
        axes.set(xscale="log", yscale="log", xlabel="delay tau", title=f"momentum {beta:g}")
        axes.set_xticks(TAUS, [str(tau) for tau in TAUS], minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("theta")
    figure.axes[1].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def draw_family(rows: list[Row], path: Path) -> None:
    """Draw the error over theta for each prediction, with the rules that the curves join."""
    from matplotlib.figure import Figure

    found: dict[tuple[str, float | None], list[float]] = {}
    for row in rows:
        found.setdefault((row["rule"], row["multiple"]), []).append(100 - 100 * row["accuracy"])
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, (colour, marker) in PREDICTORS.items():
        heights = [np.mean(found[f"pc-asgd/{name}", m]) for m in FAMILY_MULTIPLES]
        heights.insert(0, np.mean(found["c-asgd", CORNERS["c-asgd"]]))  # theta = 0, whatever the prediction
        axes.plot((CORNERS["c-asgd"], *FAMILY_MULTIPLES), heights, color=colour, marker=marker, label=f"pc-asgd/{name}")
    for rule, place in CORNERS.items():
        height = float(np.mean(found[rule, place]))
        if place is None:
            axes.axhline(height, color="grey", linestyle=":", label="synchronous")
        else:
            axes.plot(place, height, color="black", marker="*", markersize=13, linestyle="none")
            axes.annotate(rule.upper(), (place, height), (0, 9), textcoords="offset points", ha="center")
    axes.axvline(math.sqrt(0.5) / RHO, color="grey", linewidth=1, label="theta=auto of the gradient")
    axes.set(xscale="log", yscale="log", xlabel="theta (tau + 1); C-ASGD stands at 0", ylabel="error in %")
    axes.set_yticks((4, 6, 10, 20, 40, 80), ("4", "6", "10", "20", "40", "80"))
    axes.margins(x=0.08, y=0.08)
    ticks = (CORNERS["c-asgd"], *FAMILY_MULTIPLES)
    axes.set_xticks(ticks, ["0", *(f"{multiple:g}" for multiple in FAMILY_MULTIPLES)])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Sweep, or draw what has been swept."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="file of the results, one a line")
    parser.add_argument("--quick", action="store_true", help="the linear model, and four runs on digits")
    parser.add_argument("--draw", type=Path, help="draw the results into this file, and run nothing")
    parser.add_argument("--family", action="store_true", help="every predictor, and the rules that PC-ASGD joins")
    given = parser.parse_args()
    if given.draw:
        (draw_family if given.family else draw)(read(given.out), given.draw)
    else:
        sweep(given.out, family() if given.family else wanted(given.quick))


if __name__ == "__main__":
    main()
