"""The paper's Table 1 as a page: the asynchronous algorithms it compares, as printed, and what holds of each rate."""

from pathlib import Path

from gossamer.state.checkpoint import write_text

HEADINGS = (
    *("method", "f", "gradient", "delay", "rate as printed", "decentralised", "compensates", "alternates"),
    *("rule here", "what holds"),
)
_TO_A_POINT = "to a stationary point, with a step that shrinks as 1/sqrt(T)"
_NEIGHBOURHOOD = (
    "to a neighbourhood whose radius does not vanish with the step; the term in T is only the way there, so it cannot "
    "be compared with the rows above"
)
ROWS = (
    ("ASGD", "non-convex", "Lipschitz", "bounded", "O(1/sqrt(T))", "no", "no", "no", "`asgd`", _TO_A_POINT),
    (
        *(
            "DC-ASGD",
            "strongly convex",
            "Lipschitz",
            "bounded",
            "O(1/T)",
            "no",
            "yes",
            "no",
            "`dc-asgd-c`, `dc-asgd-a`",
        ),
        "to the minimum, with a step that shrinks as 1/T",
    ),
    (
        *("DC-ASGD", "non-convex", "Lipschitz", "bounded", "O(1/sqrt(T))", "no", "yes", "no"),
        *("`dc-asgd-c`, `dc-asgd-a`", _TO_A_POINT),
    ),
    (
        *("AD-PSGD", "non-convex", "Lipschitz and bounded", "bounded", "O(1/sqrt(T))", "yes", "no", "no"),
        *("`ad-psgd`", f"{_TO_A_POINT}; what the experiments call AD-PSGD is `d-asgd`"),
    ),
    (
        *("DC-S3GD (printed DC-s3dg)", "non-convex", "Lipschitz", "unbounded", "none", "yes", "yes", "no", "`dc-s3gd`"),
        "no rate is given in its paper either",
    ),
    (
        *("PC-ASGD", "weakly strongly convex", "Lipschitz", "bounded", "O(eps^T)", "yes", "yes", "yes", "`pc-asgd`"),
        f"linear, {_NEIGHBOURHOOD}",
    ),
    (
        *("PC-ASGD", "non-convex", "Lipschitz", "bounded", "O(1/T)", "yes", "yes", "yes", "`pc-asgd`"),
        f"1/T, {_NEIGHBOURHOOD}",
    ),
)
NOTES = """\
The rates of PC-ASGD are for a constant step, the others for steps that shrink: they answer different questions.
Reading the proofs closely shows further gaps, so that the bounds are no guarantee for the algorithm as it is run:

* The analysis replaces a late state by the current one by definition: the staleness of states is not analysed.
* The mixing matrix of the clipping step is block diagonal for clusters that do not overlap; then its second eigenvalue
  is 1, and the bounds ask for less than 1 as soon as one step clips.
* The squared-gradient bound at small steps is no smaller than the trivial bound that its own assumptions give.
* That a larger delay speeds the convergence up is a consequence of an index shift, not of the algorithm.

`gossamer algorithms NAME` describes each rule; docs/readings.md lists what the paper leaves open.
"""


def write_table_1(folder: Path) -> list[Path]:
    """Write the page, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "table-1.md"
    write_text(page, to_table_1())
    return [page]


def to_table_1() -> str:
    """Return the page as Markdown."""
    lines = ["# table-1: asynchronous algorithms and their convergence rates", ""]
    lines += ["As printed, but for the last two columns.", ""]
    lines += [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(row)} |" for row in ROWS]
    return "\n".join([*lines, "", NOTES])
