"""The slow truth for what PC-ASGD has beyond the paper: theta by age, other predictors, hindsight and damping.

Written from the equations for one agent's `oracle.View`, as oracle.py is. A rule that remembers keeps a memory for each
agent.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from oracle import Matrix, Vector, View, clip, compensated_gradient, gain_at, heard_weights, own_state


def late_radius(W: Matrix, late: Matrix) -> float:
    """rho, the spectral radius of the symmetric part of W'; 1e-12 for an agent without links."""
    return max(float(np.abs(np.linalg.eigvalsh((W * late + (W * late).T) / 2)).max()), 1e-12)


def theta_at(
    age: int, *, rho: float, momentum: float, predictor: str = "gradient", multiple: float = 1.0, lag: float = 10.0
) -> float:
    """theta(age) = C sqrt((1 - beta) / 2) / (rho (age + 1)) <= 1; own has DM's gain.

    For trends the root is 1/2, or with a short lag sqrt(1 - beta + ((1 - beta) (1 + L))^2) / 2.
    """
    trend = min(1.0, math.sqrt(1 - momentum + ((1 - momentum) * (1 + lag)) ** 2)) / 2
    limit = {
        "gradient": math.sqrt((1 - momentum) / 2) / (rho * (age + 1)),
        "trend": trend / (rho * (age + 1)),
        "own": gain_at(age, momentum),
    }[predictor]
    return min(1.0, multiple * limit)


@dataclass
class PcAsgd:
    """x_i(t+1) = sum_{late k} theta_k w_k x^_k + theta sum_{j in R} w_j x_j + (1 - theta) x_cli, less the damping."""

    rho: float
    theta: str = "auto"  # or "kalman", or "pv" with the criterion of hindsight
    multiple: float = 1.0
    predictor: str = "gradient"
    compensation: dict = field(default_factory=dict)
    damping: float = 0.0
    lag: float = 10.0
    smooth: dict[int, Vector] = field(default_factory=dict)
    smoother: dict[int, Vector] = field(default_factory=dict)
    notes: dict[tuple[int, int], tuple[int, Vector, Vector]] = field(default_factory=dict)
    errors: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)  # of predicting, of clipping
    columns: Vector | None = None
    paths: dict[int, list[Vector]] = field(default_factory=dict)  # what each agent has told so far

    def __call__(self, view: View) -> Vector:
        self.paths[view.i] = view.past
        believed = {k: self.predict(view, k) for k in view.late}
        if self.theta != "auto":
            self.look_back(view, believed)
        share = {k: self.share(view, k) for k in view.late}
        new = self.mix(view, believed, share)
        return new - self.damping * self.deviation(view)

    def predict(self, view: View, k: int) -> Vector:
        message = view.late[k]
        if self.predictor == "own":
            return message.x + view.x - own_state(view, message.step)
        if self.predictor == "trend":
            return message.x + message.age * self.trend_of(k, message.step, np.zeros_like(view.x))
        return message.x - view.lr * compensated_gradient(view, k, **self.compensation)

    def trend_of(self, k: int, step: int, total: Vector) -> Vector:
        """The mean of k's displacements until a step, the newest with weight 1/(1+L), each older one L/(1+L) less."""
        b = 1 / (1 + self.lag)
        for r in range(1, step + 1):
            total = (1 - b) * total + b * (self.paths[k][r] - self.paths[k][r - 1])
        return total

    def deviation(self, view: View) -> Vector:
        i, b = view.i, 1 / (1 + self.lag)
        self.smooth[i] = b * view.x + (1 - b) * self.smooth.get(i, view.past[0])
        self.smoother[i] = b * self.smooth[i] + (1 - b) * self.smoother.get(i, view.past[0])
        return view.x - 2 * self.smooth[i] + self.smoother[i]

    def look_back(self, view: View, believed: dict[int, Vector]) -> None:
        columns = slice(None) if self.columns is None else self.columns
        for k, message in view.late.items():
            noted = self.notes.get((view.i, k))
            if noted is not None and noted[0] == message.step:
                predicting, clipping = self.errors.get((view.i, k), (0.0, 0.0))
                new = [float(np.mean((guess - message.x[columns]) ** 2)) for guess in noted[1:]]
                self.errors[view.i, k] = 0.9 * predicting + 0.1 * new[0], 0.9 * clipping + 0.1 * new[1]
            if noted is None or noted[0] <= message.step:
                self.notes[view.i, k] = view.t, believed[k][columns].copy(), view.x[columns].copy()

    def share(self, view: View, k: int) -> float:
        setting = {"rho": self.rho, "momentum": view.momentum, "predictor": self.predictor, "lag": self.lag}
        limit = theta_at(view.late[k].age, multiple=self.multiple, **setting)
        if self.theta == "pv":
            gained = 0.0
            for other in view.late:
                predicting, clipping = self.errors.get((view.i, other), (0.0, 0.0))
                gained += view.w_row[other] * (clipping - predicting)
            return limit if gained > 0 else 0.0
        if self.theta == "auto":
            return limit
        predicting, clipping = self.errors.get((view.i, k), (0.0, 0.0))
        gain = clipping / (clipping + predicting) if clipping + predicting > 0 else 1.0
        return min(limit, gain)

    def mix(self, view: View, believed: dict[int, Vector], share: dict[int, float]) -> Vector:
        cli = clip(view)
        if not view.late:
            return cli
        w = heard_weights(view)
        late_mass = sum(w[k] for k in view.late)
        theta = sum(w[k] * share[k] for k in view.late) / late_mass
        reliable = w[view.i] * view.x - view.lr * view.v
        for j, x_j in view.fresh.items():
            reliable = reliable + w[j] * x_j
        late = np.zeros_like(view.x)
        for k in view.late:
            late = late + w[k] * share[k] * believed[k]
        return theta * reliable + late + (1 - theta) * cli
