"""The numbers that the paper prints, as data. Accuracies are in per cent; ± is called variance there, and read as a
standard deviation over 6 runs. The columns "o.p." disagree with the differences of the accuracies and are left out.
"""

from dataclasses import dataclass

Place = tuple[str, str]  # row and column of a table


@dataclass(frozen=True)
class Reported:
    """A mean, and the standard deviation where one is printed."""

    mean: float
    std: float | None = None


CASES = (
    *(("PreResNet-110", "CIFAR-10"), ("PreResNet-110", "CIFAR-100")),
    *(("DenseNet", "CIFAR-10"), ("DenseNet", "CIFAR-100")),
)


def column(model: str, data: str, agents: int) -> str:
    """Return the name of a column."""
    return f"{model}, {data}, {agents} agents"


COLUMNS_8, COLUMNS_20 = (tuple(column(*case, agents) for case in CASES) for agents in (8, 20))
FIRST = COLUMNS_8[0]


def _table(columns: tuple[str, ...], rows: dict[str, str]) -> dict[Place, Reported]:
    """Read rows of 'mean±std' with spaces between them."""
    return {
        (row, name): Reported(*(float(part) for part in text.split("±")))
        for row, line in rows.items()
        for name, text in zip(columns, line.split(), strict=True)
    }


# Table 2: PC-ASGD is the variant PV, the baseline is D-ASGD.
TABLE_2 = {
    **_table(
        COLUMNS_8,
        {
            "PC-ASGD": "87.3±1.1 67.4±1.4 86.9±0.9 68.6±0.6",
            "P-ASGD": "84.9±0.9 64.8±1.3 84.4±0.6 66.8±1.5",
            "C-ASGD": "86.0±1.0 66.4±1.2 85.9±0.9 66.8±1.6",
            "D-ASGD": "84.0±0.3 64.5±1.5 83.3±0.9 66.1±1.9",
        },
    ),
    **_table(
        COLUMNS_20,
        {
            "PC-ASGD": "84.7±0.9 62.4±0.8 82.9±0.9 64.5±0.7",
            "P-ASGD": "83.3±0.9 61.7±1.0 82.0±0.7 62.5±1.3",
            "C-ASGD": "82.5±1.0 61.5±1.0 81.8±0.6 62.0±1.5",
            "D-ASGD": "80.4±0.7 59.3±1.7 80.1±0.9 60.4±1.7",
        },
    ),
}

# Table 3. The row AD-PSGD has D-ASGD's numbers of Table 2, and the text says that the two are one.
_D_ASGD = "84.0±0.3 64.5±1.5 83.3±0.9 66.1±1.9"
TABLE_3 = _table(
    COLUMNS_8,
    {
        "PC-ASGD": "87.3±1.1 67.4±1.4 86.9±0.6 68.6±0.6",
        "D-ASGD": _D_ASGD,
        "AD-PSGD": _D_ASGD,
        "DC-S3GD": "86.3±0.8 63.5±1.7 85.7±0.8 66.2±1.3",
        "DASGD-IS": "85.0±0.3 64.6±1.2 84.6±0.4 66.2±0.8",
        "Adaptive Braking": "86.8±0.9 66.5±1.2 85.3±1.0 67.3±1.1",
    },
)

# Table 4 prints means only.
TABLE_4 = _table(
    (FIRST,),
    {
        "theta 0.3": "86.3",
        "theta 0.5": "85.0",
        "theta 0.7": "84.5",
        "theta Bernoulli 0.3": "85.6",
        "theta Bernoulli 0.5": "85.0",
        "theta Bernoulli 0.7": "84.1",
        "theta uniform": "85.2",
        "PC-ASGD-PV": "87.3",
        "D-ASGD": "84.0",
    },
)

# The text: "the value of 0.625 and 0.375", in which order the two choices are meant is not clear.
CHOICE_SHARES = (0.375, 0.625)
# The text: PC-ASGD costs 17 % more time an epoch than D-ASGD.
EXTRA_TIME = 0.17
