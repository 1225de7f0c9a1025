"""Every result of the paper by name, and one that goes beyond it."""

import dataclasses
import itertools

from gossamer.algorithms import algorithm_names, parse_algorithm
from gossamer.errors import unknown_name
from gossamer.paper import paper_tables as printed
from gossamer.paper.cells import BEYOND, CEILING, FAMILY, Cell, has_case, make_cell
from gossamer.paper.findings import Claim, Recipe, beats
from gossamer.paper.recommended import PARTS, recommended_cells
from gossamer.paper.scales import FIRST_PART, SCALES, Scale, Setting, skewed_trial, trial_settings

RIVALS = ("PC-ASGD", "D-ASGD", "AD-PSGD", "DC-S3GD", "DASGD-IS", "Adaptive Braking")
THETAS = {
    "theta 0.3": "pc-asgd/theta=0.3",
    "theta 0.5": "pc-asgd/theta=0.5",
    "theta 0.7": "pc-asgd/theta=0.7",
    "theta Bernoulli 0.3": "pc-asgd/theta=bernoulli:0.3",
    "theta Bernoulli 0.5": "pc-asgd/theta=bernoulli:0.5",
    "theta Bernoulli 0.7": "pc-asgd/theta=bernoulli:0.7",
    "theta uniform": "pc-asgd/theta=uniform",
    "PC-ASGD-PV": "pc-asgd/theta=pv",
    "D-ASGD": "d-asgd",
}
READINGS = ("PC-ASGD, descent", "PC-ASGD, theta 0.3")
CRITERIA = ("literal", "descent", "decrease", "loss", "public-code")
NETWORKS = {5: "paper-2", 8: "paper-1", 20: "paper-3"}
DELAYS, SYNCHRONOUS = (5, 20, 60), "no delay"
ATLAS_DELAYS = (20, 0, 60, 5, 100, 10, 40, 2, 1)  # those that tell most first
ATLAS_SMOKE_DELAYS = (20, 5)
ATLAS_TUNED = (0, 5, 20, 60, 100)  # delays at which rates are looked for; those between take the next larger one's
ATLAS_FIRST = ("pc-asgd/theta=pv", "d-asgd", "p-asgd", "c-asgd", "dm-asgd", "sync")
SAME_WITHOUT_DELAY = (*(name for name in ATLAS_FIRST if name != "sync"), "feddelavg")  # as the synchronous run
SAME_WITH_EQUAL_DATA = {"asgd": "dasgd-is"}  # where delays are fixed, as they are there
TIMED_EPOCHS = 6
CRITERION_NOTE = (
    "The criterion as printed prefers the step with *less* descent, so that PC-ASGD nearly always predicts; the words "
    "ask for the opposite (docs/readings.md, first row)."
)
NORM_NOTE = (
    "With skewed labels BatchNorm's statistics are taken anew before each evaluation (`norm_stats=recalibrated`), from "
    "an agent's own data, as that is what an agent has. So all rules lose some points to the averaged model, whose "
    "statistics are of all data (`accuracy_average_model` of a run), and seeds differ by how data were dealt out. "
    "Rates are looked for with skewed labels too, from that of equal data on, as some rules fall apart there; one with "
    "a question mark is still that of equal data."
)
PACE_NOTE = (
    "Averaging with late states holds D-ASGD back to eta / (1 + tau b), a tenth of eta with 8 agents at tau 20, so "
    "that a common rate decides much of the order (docs/algorithms.md)."
)


def _cases(scale: Scale, protocol: str, rows: tuple[str, ...], agents: int) -> list[Cell]:
    """Return these rows for all cases of model and data that the scale has; other readings of one in the first only."""
    return [
        make_cell(scale, protocol, Setting(*case, NETWORKS[agents]), row, printed.column(*case, agents))
        for case in printed.CASES
        if has_case(scale, *case)
        for row in rows
        if row not in READINGS or case == printed.CASES[0]
    ]


def _table_2(scale: Scale, protocol: str) -> list[Cell]:
    return [cell for agents in (8, 20) for cell in _cases(scale, protocol, (*FAMILY, *BEYOND), agents)]


def _table_3(scale: Scale, protocol: str) -> list[Cell]:
    return _cases(scale, protocol, (*RIVALS, CEILING, "DM-ASGD"), 8)


def _table_4(scale: Scale, protocol: str) -> list[Cell]:
    cells = [make_cell(scale, protocol, Setting(), row, printed.FIRST, text) for row, text in THETAS.items()]
    return [*cells, make_cell(scale, protocol, Setting(), "PC-ASGD, descent", printed.FIRST)]


def _fig_accuracy(scale: Scale, protocol: str) -> list[Cell]:
    return _cases(scale, protocol, (*FAMILY, *BEYOND), 8)


def _fig_delay(scale: Scale, protocol: str) -> list[Cell]:
    late = [
        make_cell(scale, protocol, Setting(delay=delay), row, f"tau {delay}")
        for delay in (20, 60, 5)
        for row in (*FAMILY, "DM-ASGD")
    ]
    ceiling = make_cell(scale, protocol, Setting(), CEILING, SYNCHRONOUS)
    return [*late, dataclasses.replace(ceiling, extra=False)]  # the paper has it


def _fig_size(scale: Scale, protocol: str) -> list[Cell]:
    return [
        make_cell(scale, protocol, Setting(network=NETWORKS[agents]), row, f"{agents} agents")
        for agents in (8, 20, 5)
        for row in (*FAMILY, "DM-ASGD", CEILING)
    ]


def _fig_choice(scale: Scale, protocol: str) -> list[Cell]:
    """Return a cell a reading, all at the rate of the printed one, so that only the criterion differs."""
    as_printed = make_cell(scale, protocol, Setting(), "PC-ASGD", printed.FIRST)
    readings = [
        make_cell(
            *(scale, protocol, Setting(), f"{criterion}, {granularity}", printed.FIRST),
            f"pc-asgd/theta=pv/criterion={criterion}/granularity={granularity}",
        )
        for granularity in ("model", "tensor")
        for criterion in CRITERIA
        if (criterion, granularity) != ("loss", "tensor")  # whole models have a loss, tensors have none
    ]
    return [dataclasses.replace(cell, tune_on=as_printed.tune_on) for cell in readings]


def _fig_time(scale: Scale, protocol: str) -> list[Cell]:
    cells = [make_cell(scale, protocol, Setting(), row, "seconds an epoch") for row in (*FAMILY, "DM-ASGD")]
    return [
        dataclasses.replace(cell, settings=dataclasses.replace(cell.settings, epochs=TIMED_EPOCHS), timed=True)
        for cell in cells
    ]


def _atlas(scale: Scale, protocol: str) -> list[Cell]:
    first = [parse_algorithm(text)[0] for text in ATLAS_FIRST]
    everyone = [*ATLAS_FIRST, *(name for name in algorithm_names() if name not in first)]
    small = scale.name == "smoke"
    short = dataclasses.replace(scale, epochs=scale.short_epochs)
    return [
        _atlas_cell(short, protocol, Setting(delay=delay, partition=part), text)
        for part in PARTS
        for delay in (ATLAS_SMOKE_DELAYS if small else ATLAS_DELAYS)
        for text in (ATLAS_FIRST if small else everyone)
    ]


def _atlas_cell(scale: Scale, protocol: str, where: Setting, text: str) -> Cell:
    """Return a cell whose rate is one for a delay that is no smaller, so that it is stable here too."""
    rule = "sync" if where.delay == 0 and text in SAME_WITHOUT_DELAY else text
    with_equal_data = SAME_WITH_EQUAL_DATA.get(rule, rule)
    here = with_equal_data if where.partition == FIRST_PART else rule
    cell = make_cell(scale, protocol, where, text, f"tau {where.delay}, {where.partition}", here)
    tuned_at = dataclasses.replace(where, delay=min(delay for delay in ATLAS_TUNED if delay >= where.delay))
    tune_on, refine_on = trial_settings(scale, tuned_at, with_equal_data), skewed_trial(scale, tuned_at, rule)
    return dataclasses.replace(cell, tune_on=tune_on, refine_on=refine_on)


def _downwards(rows: tuple[str, ...], columns: tuple[str, ...]) -> tuple[Claim, ...]:
    """Return the claims that accuracy falls from column to column."""
    return tuple(Claim((row, first), (row, then)) for first, then in itertools.pairwise(columns) for row in rows)


_HEARING = tuple(row for row in FAMILY if row != "C-ASGD")
_TAUS = tuple(f"tau {delay}" for delay in DELAYS)
_SIZES = tuple(f"{agents} agents" for agents in NETWORKS)
_ABOVE_BASELINE = tuple(
    Claim((row, column), ("D-ASGD", column))
    for column in (*printed.COLUMNS_8, *printed.COLUMNS_20)
    for row in ("P-ASGD", "C-ASGD")
)
_FIRST_CASE = "CIFAR-10 at quick and full"

_ALL = (
    Recipe(
        "table-1",
        "asynchronous algorithms and their convergence rates, with what holds of each",
        "document",
        needs="nothing",
    ),
    Recipe(
        "table-2",
        "accuracy of PC-, P-, C- and D-ASGD: two models, two data sets, 8 and 20 agents, tau 20",
        "table",
        _table_2,
        reported=printed.TABLE_2,
        claims=(*beats("PC-ASGD", FAMILY, (*printed.COLUMNS_8, *printed.COLUMNS_20)), *_ABOVE_BASELINE),
        reading=f"{CRITERION_NOTE} {PACE_NOTE}",
    ),
    Recipe(
        "table-3",
        "accuracy of PC-ASGD and four delay-tolerant rivals: two models, two data sets, 8 agents, tau 20",
        "table",
        _table_3,
        reported=printed.TABLE_3,
        claims=beats("PC-ASGD", RIVALS, printed.COLUMNS_8),
        reading=f"{CRITERION_NOTE} {PACE_NOTE} The paper's AD-PSGD is its D-ASGD; both are given. DASGD-IS and "
        "Adaptive Braking take no weight decay, and the latter has its own momentum of 0.9 under either protocol.",
    ),
    Recipe(
        "table-4",
        "accuracy for every choice of theta: fixed, by chance, by the criterion; PreResNet-110, CIFAR-10, 8 agents",
        "table",
        _table_4,
        needs=_FIRST_CASE,
        reported=printed.TABLE_4,
        claims=beats("PC-ASGD-PV", tuple(THETAS), (printed.FIRST,)),
        reading=CRITERION_NOTE,
    ),
    Recipe(
        "fig-accuracy",
        "accuracy against epochs of PC-, P-, C- and D-ASGD in the four cases, 8 agents, tau 20",
        "curves",
        _fig_accuracy,
        reported={place: number for place, number in printed.TABLE_2.items() if place[1] in printed.COLUMNS_8},
        claims=beats("PC-ASGD", FAMILY, printed.COLUMNS_8),
        reading=f"{CRITERION_NOTE} {PACE_NOTE}",
    ),
    Recipe(
        "fig-delay",
        "accuracy at tau 5, 20 and 60 and without delay, PreResNet-110, CIFAR-10, 8 agents",
        "delays",
        _fig_delay,
        needs=_FIRST_CASE,
        claims=(*beats("PC-ASGD", FAMILY, _TAUS), *_downwards(_HEARING, _TAUS)),
        reading=f"{CRITERION_NOTE} C-ASGD never hears a late message, so that one run stands for every tau.",
    ),
    Recipe(
        "fig-size",
        "accuracy with 5, 8 and 20 agents, PreResNet-110, CIFAR-10, tau 20",
        "sizes",
        _fig_size,
        needs=_FIRST_CASE,
        claims=(*beats("PC-ASGD", FAMILY, _SIZES), *_downwards(FAMILY, _SIZES)),
        reading=f"{CRITERION_NOTE} The more agents, the fewer data each has, and the fewer steps an epoch has.",
    ),
    Recipe(
        "fig-choice",
        "share of predicting steps over the epochs, by cluster, for every reading of the criterion",
        "choices",
        _fig_choice,
        needs=_FIRST_CASE,
        reading=f"{CRITERION_NOTE} By the tuned protocol all readings take the rate of the printed one, so that only "
        "the criterion differs; at its own rate one may end elsewhere (table-4).",
    ),
    Recipe(
        "fig-time",
        "time of an epoch of D-, P-, C- and PC-ASGD, PreResNet-110, CIFAR-10, 8 agents",
        "times",
        _fig_time,
        needs=_FIRST_CASE,
        protocols=("paper",),
        reading="The paper's agents had a GPU each and a network between them; here one device computes all of them.",
    ),
    Recipe("toy", "Rosenbrock and Rastrigin with 3 agents: paths and the bounds of the theory", "toy", needs="nothing"),
    Recipe(
        "delay-atlas",
        "beyond the paper: accuracy of every algorithm against tau, equal and skewed data, each at its own rate",
        "atlas",
        _atlas,
        needs=_FIRST_CASE,
        protocols=("tuned",),
        reading=f"Runs are short, {SCALES['quick'].short_epochs} epochs at scale quick, and short runs lose more to "
        f"delay than long ones do. Rates are looked for at tau {', '.join(map(str, ATLAS_TUNED))}; a delay between "
        "takes the rate of the next larger one. A quick run is 490 steps: at tau 100 a fifth of it is over before the "
        "first late message comes, which spares those whom late messages harm. local-sgd and diloco exchange at every "
        "H-th step only, and delays within that are one to them. "
        f"Without delay {', '.join(SAME_WITHOUT_DELAY)} are the synchronous run and share it; sync and cdmsgd wait for "
        "everyone, and one run of each stands for all delays. "
        f"{' and '.join(*SAME_WITH_EQUAL_DATA.items())} are the same with equal data. "
        f"{NORM_NOTE}",
    ),
    Recipe(
        "recommended",
        "beyond the paper: how near the recommended algorithm comes to no delay at all, beside tuned rivals",
        "target",
        recommended_cells,
        needs=_FIRST_CASE,
        protocols=("tuned",),
        reading="The mean of all agents moves as if nothing were late: matched differences add up to nothing over the "
        "agents, and a difference of two states of the same age has no drift in it. What delay leaves is noise: what "
        "other clusters know comes too late for curved directions, where an agent has the noise of its own cluster. "
        "SDM-ASGD damps that (docs/algorithms/sdm-asgd.md), which a run without delay gains from too: the row without "
        "delay says how much. With skewed labels losses differ between seeds by more than the limits, so that three "
        "seeds cannot say whether a limit is kept. "
        f"{NORM_NOTE}",
    ),
)
RECIPES = {recipe.name: recipe for recipe in _ALL}
_OVER_TIME = ("curves", "choices")  # kinds of pictures that show how runs went, and not only how they ended


def cells_for(recipes: list[Recipe], scale: Scale, protocols: list[str]) -> list[Cell]:
    """Return the cells of some results; what any result draws over time is watched, as a run is made once for all.

    The keys are those before a rate is found: two results may look for it in different places and find the same.
    """
    pictures = [recipe for recipe in _ALL if recipe.kind in _OVER_TIME]
    drawn = {cell.key for recipe in pictures for cell in recipe.cells_of(scale, protocols)}
    cells = [cell for recipe in recipes for cell in recipe.cells_of(scale, protocols)]
    return [dataclasses.replace(cell, watched=cell.key in drawn) for cell in cells]


def find_recipes(text: str) -> list[Recipe]:
    """Return the results of a text such as 'table-2,fig-delay' or 'all', each once."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    names = [name for part in names or [""] for name in (RECIPES if part == "all" else [part])]
    for name in names:
        if name not in RECIPES:
            raise unknown_name("result", name, [*RECIPES, "all"])
    return [RECIPES[name] for name in dict.fromkeys(names)]
