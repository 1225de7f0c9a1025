"""One short training of every rule, reduced to numbers; run it to freeze them: `python tests/support/golden.py`.

It calls nothing but `gm.simulate`, so that it runs on old versions too. Freeze the numbers again only on purpose, and
say why in the change log.
"""

import json
from pathlib import Path

import torch

import gossamer as gm
from gossamer.algorithms import algorithm_names

FILE = Path(__file__).parents[1] / "rules" / "golden" / "trajectories.json"

# Every rule by name, and the ways of pc-asgd and p-asgd that have code of their own.
RULES = [
    *algorithm_names(),
    *(
        f"pc-asgd/theta={theta}"
        for theta in (
            "0.3",
            "kalman",
            "pv",
            "pv/criterion=hindsight",
            "uniform",
            "pv/criterion=loss",
            "pv/test_batch=fresh",
        )
    ),
    *(f"pc-asgd/{more}" for more in ("predictor=trend", "predictor=own", "damping=0.2")),
    "p-asgd/horizon=last",
    "p-asgd/source=recompute",
    "d-asgd/gradient_at=mixed",
]

# 30 steps: more than the 20 between two averages of diloco. Messages of mixed ages, some of them lost.
SETTINGS = {
    "task": "digits",
    "model": "mlp:8",
    "network": "complete:6",  # a rule with a server needs a link with every agent
    "clusters": "2,4",
    "delay": "uniform:1,8",
    "loss": 0.2,
    "partition": "dirichlet:1",
    "lr": 0.1,
    "epochs": 2,
    "eval_every": 10,
    "seed": 3,
    "dtype": "float64",
    "execution": "vmap",  # auto takes whichever is fastest on this machine
}


def trajectory(rule: str) -> dict[str, list]:
    """Train with the rule; the losses on the way and the last parameters, for each agent.

    A model's parameters become their absolute sum and two sums with fixed signs, which also notice an exchange of two.
    """
    result = gm.simulate(algorithm=rule, **SETTINGS)
    x = result.x
    signs = torch.randint(0, 2, (x.shape[1], 2), generator=torch.Generator().manual_seed(0)).to(x) * 2 - 1
    return {
        "steps": [row["step"] for row in result.history],
        "losses": [row["loss"] for row in result.history],
        "distances": [row["consensus"] for row in result.history],
        "absolute_sums": x.abs().sum(dim=1).tolist(),
        "signed_sums": (x @ signs).tolist(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines = [f"{json.dumps(rule)}: {json.dumps(trajectory(rule))}" for rule in RULES]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
