"""The search for the rate of a tuned cell: a function of the trials that are stored."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.paper import RESULTS
from gossamer.paper.cells import SCALES, Cell, Conditions, at_length, settings_for
from gossamer.paper.rates import STEPS, Missing, Rates
from gossamer.paper.store import Store
from reproducing import cells_of, record, section_of

QUICK = SCALES["quick"]
COARSE = dataclasses.replace(QUICK, rates=(0.01, 0.1, 1.0))
SHORT, FULL = 10, 30  # epochs of trials for a run of 30


def tuned_cell(name, label):
    """The tuned cell of a result whose label begins like this."""
    (cell,) = [cell for cell in cells_of(name, "quick", ["tuned"]) if cell.label.startswith(label)]
    return cell


D_ASGD = tuned_cell("table-3", "D-ASGD, PreResNet-110, CIFAR-100")


def search(folder, height, cell=D_ASGD, scale=COARSE, stop_before=()):
    """Make the trials that a cell asks for, of accuracy height(trial), until one that is not to be made."""
    store, tried = Store(folder), []
    while True:
        try:
            return Rates(scale, store).settled(cell), tried, store
        except Missing as missing:
            trial = missing.settings
            if (trial.epochs, trial.lr) in stop_before:
                return None, tried, store
            tried.append((trial.epochs, trial.lr))
            assert trial.validation == 0.2 and trial.task == "cifar10" and trial.seed == 0
            store.add(record(Cell("", "", "", trial), 0, height(trial)))


def peaks(short, full):
    """Accuracies that fall off on both sides of the best rates of short and long trials."""
    best = {SHORT: short, FULL: full}
    return lambda trial: 1 / (1 + abs(math.log10(trial.lr / best[trial.epochs])))


def test_all_rates_are_tried_for_a_third_and_then_those_below_the_best_at_full_length(tmp_path):
    settled, tried, _ = search(tmp_path, peaks(0.1, 0.01))
    assert tried[:3] == [(SHORT, 0.01), (SHORT, 0.1), (SHORT, 1.0)]
    assert tried[3:] == [(FULL, 0.1), (FULL, 0.01), (FULL, 0.001)] and settled.settings.lr == 0.01
    assert settled.settings.task == "cifar100" and settled.settings.validation == 0


def test_a_larger_rate_is_tried_where_it_did_better_in_the_short_run_than_the_smaller_one(tmp_path):
    settled, tried, _ = search(tmp_path, peaks(0.2, 3.0))
    assert tried[3:] == [(FULL, 0.1), (FULL, 0.01), (FULL, 1.0), (FULL, 10.0)] and settled.settings.lr == 1.0


def test_a_larger_rate_is_not_tried_where_it_did_worse_in_the_short_run_than_the_smaller_one(tmp_path):
    settled, tried, _ = search(tmp_path, peaks(0.05, 3.0))
    assert tried[3:] == [(FULL, 0.1), (FULL, 0.01)] and settled.settings.lr == 0.1


HEIGHTS = st.lists(st.integers(0, 9), min_size=24, max_size=24)
LADDER = [10.0**power for power in range(-12, 12)]


@given(short=HEIGHTS, full=HEIGHTS)
def test_what_is_found_is_no_worse_than_the_neighbours_that_it_is_compared_with(tmp_path_factory, short, full):
    """Whatever trials say: a second look at their numbers, from the rule in words."""
    heights = {SHORT: dict(zip(LADDER, short, strict=True)), FULL: dict(zip(LADDER, full, strict=True))}

    def height(trial):
        return heights[trial.epochs][min(LADDER, key=lambda rate: abs(math.log(rate / trial.lr)))] / 10

    settled, tried, _ = search(tmp_path_factory.mktemp("rates"), height)
    found = settled.settings.lr
    start = next(lr for epochs, lr in tried if epochs == FULL)  # the best of the short trials
    place = LADDER.index(min(LADDER, key=lambda rate: abs(math.log(rate / start))))
    end = LADDER.index(min(LADDER, key=lambda rate: abs(math.log(rate / found))))
    assert full[end] >= full[place] and (end == place or full[end] > full[place])
    way = 1 if end > place else -1
    assert abs(end - place) == STEPS or full[end + way] <= full[end] or end == place
    if end >= place:
        assert full[place - 1] <= full[place]
    if end == place and short[place + 1] > short[place - 1]:
        assert full[place + 1] <= full[place]
    if end > place:
        assert short[place + 1] > short[place - 1]


def test_trials_of_few_epochs_do_not_keep_a_larger_rate_from_being_tried(tmp_path):
    """Runs of the atlas are short, and a third of one tells little."""
    (cell,) = [
        cell for cell in cells_of("delay-atlas", "quick", ["tuned"]) if cell.label.startswith("sgp, tau 20, iid")
    ]
    best = {4: 0.05, 10: 3.0}
    settled, tried, _ = search(
        tmp_path, lambda trial: 1 / (1 + abs(math.log10(trial.lr / best[trial.epochs]))), cell, COARSE
    )
    assert tried[3:] == [(10, 0.1), (10, 0.01), (10, 1.0), (10, 10.0)] and settled.settings.lr == 1.0


def test_a_rule_with_a_server_may_do_without_its_momentum(tmp_path):
    cell = tuned_cell("table-3", "DASGD-IS, PreResNet-110, CIFAR-10,")
    for better in (0.9, 0.0):

        def height(trial, better=better):
            assert trial.momentum == 0
            return 0.6 if trial.options["server_momentum"] == better else 0.5

        settled, _, store = search(tmp_path / str(better), height, cell, QUICK)
        assert settled.settings.options["server_momentum"] == better and settled.settings.momentum == 0
        store.add(record(settled, 0, 0.7))
        page = RESULTS["table-3"].page([section_of("table-3", store, "tuned")])
        assert f"70.0 (1), lr {settled.settings.lr:g}, {'server m 0.9' if better else 'm 0'} |" in page


def test_a_rule_that_predicts_may_do_without_momentum(tmp_path):
    cell = tuned_cell("table-4", "PC-ASGD-PV")
    settled, _, _ = search(tmp_path, lambda trial: 0.5 if trial.momentum else 0.6, cell, QUICK)
    assert settled.settings.momentum == 0 and not settled.tune_on and not settled.tentative


def test_a_trial_that_diverges_is_no_choice(tmp_path):
    cell, store = tuned_cell("table-3", "DM-ASGD, PreResNet-110, CIFAR-10,"), Store(tmp_path)
    while Rates(QUICK, store).known(cell) is None:
        with pytest.raises(Missing) as asked:
            Rates(QUICK, store).settled(cell)
        trial = asked.value.settings
        status = "finished" if trial.lr < 0.2 else "the loss is nan"
        store.add(record(Cell("", "", "", trial), 0, trial.lr, status=status))
    assert Rates(QUICK, store).settled(cell).settings.lr == 0.1


# Searches that have not ended.


def test_nothing_is_known_so_far_before_a_trial_of_full_length(tmp_path):
    _, tried, store = search(tmp_path, peaks(0.1, 0.1), stop_before=[(FULL, 0.1)])
    assert len(tried) == 3 and Rates(COARSE, store).so_far(D_ASGD) is None


def test_the_best_so_far_is_taken_and_marked_until_the_search_ends(tmp_path):
    _, _, store = search(tmp_path, peaks(0.1, 0.01), stop_before=[(FULL, 0.001)])
    rates = Rates(COARSE, store)
    assert rates.known(D_ASGD) is None
    so_far = rates.so_far(D_ASGD)
    assert so_far.settings.lr == 0.01 and so_far.tentative
    settled, _, store = search(tmp_path, peaks(0.1, 0.01))
    assert Rates(COARSE, store).so_far(D_ASGD) == settled and not settled.tentative


def test_of_two_momenta_the_one_that_was_tried_is_taken_so_far(tmp_path):
    cell = tuned_cell("table-4", "PC-ASGD-PV")
    store = Store(tmp_path)
    while (so_far := Rates(QUICK, store).so_far(cell)) is None:
        with pytest.raises(Missing) as asked:
            Rates(QUICK, store).settled(cell)
        store.add(record(Cell("", "", "", asked.value.settings), 0, 0.5))
    assert so_far.tentative and so_far.settings.momentum == 0.9


def test_a_page_marks_rates_that_are_still_looked_for(tmp_path):
    result, cell = RESULTS["table-4"], tuned_cell("table-4", "D-ASGD")
    store = Store(tmp_path)
    for lr, epochs, accuracy in ((0.3, FULL, 0.6), (0.1, FULL, 0.5), *((lr, SHORT, lr) for lr in (0.01, 0.03, 0.1))):
        trial = dataclasses.replace(at_length(cell.tune_on[0], epochs), lr=lr)
        store.add(record(Cell("", "", "", trial), 0, accuracy))
    for lr, accuracy in ((0.3, 0.9), (1.0, 0.8)):
        trial = dataclasses.replace(at_length(cell.tune_on[0], SHORT), lr=lr)
        store.add(record(Cell("", "", "", trial), 0, accuracy))
    store.add(record(cell.at(0.3, 0.9), 0, 0.7))
    page = result.page([section_of("table-4", store, "tuned")])
    assert (
        "70.0 (1), lr 0.3?, m 0.9" in page
        and "The learning-rate search is unfinished for 1 cell (marked `?`)" in " ".join(page.split())
    )
    trial = dataclasses.replace(cell.tune_on[0], lr=1.0)
    store.add(record(Cell("", "", "", trial), 0, 0.55))
    page = result.page([section_of("table-4", store, "tuned")])
    assert "70.0 (1), lr 0.3, m 0.9" in page and "unfinished" not in page


# With skewed labels the search goes on from the rate of equal data.


def atlas_cell(label):
    (cell,) = [cell for cell in cells_of("delay-atlas", "quick", ["tuned"]) if cell.label.startswith(label)]
    return cell


def search_both(folder, equal, skewed, label="sgp, tau 20, dirichlet"):
    """Search with accuracies that fall off on both sides of the best rate of equal and of skewed data."""

    def height(trial):
        best = equal if trial.partition == "iid" else skewed
        return 1 / (1 + abs(math.log10(trial.lr / best)))

    trials = []

    def told(trial):
        if trial.partition != "iid":
            trials.append(trial)
        return height(trial)

    settled, _, store = search(folder, told, atlas_cell(label))
    return settled.settings, trials, store


@pytest.mark.parametrize(
    ("skewed", "rates", "found"),
    [
        (0.1, [0.1, 0.01, 1.0], 0.1),
        (0.01, [0.1, 0.01, 0.001], 0.01),
        (0.001, [0.1, 0.01, 0.001, 0.0001], 0.001),
        (1.0, [0.1, 0.01, 1.0, 10.0], 1.0),
    ],
)
def test_with_skewed_labels_a_rate_is_looked_for_from_that_of_equal_data_on(tmp_path, skewed, rates, found):
    settings, trials, _ = search_both(tmp_path, 0.1, skewed)
    assert [trial.lr for trial in trials] == rates and settings.lr == found
    assert settings.partition == "dirichlet:0.3" and settings.validation == 0
    for trial in trials:
        assert (trial.partition, trial.norm_stats) == ("dirichlet:0.3", "recalibrated")
        assert (trial.epochs, trial.validation, trial.delay, trial.momentum) == (10, 0.2, "20", 0.9)


@pytest.mark.parametrize(
    ("holds_from", "rates", "found"),
    [
        (0.01, [0.1, 0.01, 0.001], 0.01),  # at chance above
        (0.001, [0.1, 0.01, 0.001, 0.0001], 0.001),
        (0.0, [0.1, 0.01, 0.001, 0.0001, 0.00001], 0.1),  # at chance everywhere: nothing to choose
    ],
)
def test_with_skewed_labels_a_rule_that_has_fallen_apart_is_tried_at_smaller_rates_until_it_holds(
    tmp_path, holds_from, rates, found
):
    tried = []

    def height(trial):
        if trial.partition == "iid":
            return 1 / (1 + abs(math.log10(trial.lr / 0.1)))
        tried.append(trial.lr)
        return 0.7 - abs(math.log10(trial.lr / holds_from)) / 50 if trial.lr <= 1.01 * holds_from else 0.1

    settled, _, _ = search(tmp_path, height, atlas_cell("sgp, tau 20, dirichlet"))
    assert tried == rates and settled.settings.lr == found


def test_a_rate_at_the_edge_of_what_can_be_reached_leaves_room_for_a_search_with_skewed_labels(tmp_path):
    settings, trials, _ = search_both(tmp_path, 1e-12, 1e-30)
    assert settings.lr < 1e-6 and [trial.lr for trial in trials] == sorted((t.lr for t in trials), reverse=True)


def test_searches_that_have_ended_are_not_counted(tmp_path):
    cell = atlas_cell("sgp, tau 20, dirichlet")
    assert Rates(COARSE, Store(tmp_path)).open_searches(cell) == [*cell.tune_on, cell.refine_on]
    _, _, store = search_both(tmp_path, 0.1, 0.01)
    assert Rates(COARSE, store).open_searches(cell) == []
    equal = Store(tmp_path / "equal")
    for one in store.all():
        if one["settings"]["partition"] == "iid":
            equal.add(one)
    assert Rates(COARSE, equal).open_searches(cell) == [cell.refine_on]


def test_a_rule_is_itself_with_skewed_labels_where_equal_data_make_it_another(tmp_path):
    for rule in ("asgd", "dasgd-is"):
        settings, trials, _ = search_both(tmp_path / rule, 0.1, 0.01, f"{rule}, tau 20, dirichlet")
        assert settings.algorithm == rule and settings.lr == 0.01
        assert {trial.algorithm for trial in trials} == {rule}
        assert {trial.options["server_momentum"] for trial in trials} == {settings.options["server_momentum"]}


def test_until_the_search_with_skewed_labels_has_ended_the_rate_of_equal_data_is_taken(tmp_path):
    cell = atlas_cell("sgp, tau 20, dirichlet")
    _, trials, whole = search_both(tmp_path / "whole", 0.1, 0.01)
    store, seen = Store(tmp_path / "part"), []
    skewed = [one for one in whole.all() if one["settings"]["partition"] != "iid"]
    for one in [one for one in whole.all() if one["settings"]["partition"] == "iid"]:
        store.add(one)
    for one in [*skewed, None]:
        so_far = Rates(COARSE, store).so_far(cell)
        seen.append((so_far.settings.lr, so_far.tentative))
        if one is not None:
            store.add(one)
    assert seen == [(0.1, True), (0.1, True), (0.1, True), (0.01, False)] and len(trials) == 3


# Where a rate is looked for.


def test_a_trial_of_other_length_keeps_its_shape():
    settings = settings_for(QUICK, "tuned", Conditions(), "d-asgd")
    assert at_length(settings, 10).warmup == pytest.approx(0.5) and settings.warmup == pytest.approx(1.5)


def test_a_rate_is_looked_for_with_the_first_model_whatever_the_net():
    trials = {trial.model for cell in cells_of("table-2", "quick", ["tuned"]) for trial in cell.tune_on}
    models = {cell.settings.model for cell in cells_of("table-2", "quick", ["tuned"])}
    assert trials == {"preresnet:20"} < models


def test_the_atlas_takes_rates_of_a_delay_that_is_no_smaller():
    seen = {}
    for cell in cells_of("delay-atlas", "quick", ["tuned"]):
        if cell.row == "sgp":
            (trial,) = cell.tune_on
            seen[int(cell.settings.delay)] = int(trial.delay)
            assert trial.epochs == cell.settings.epochs == QUICK.short_epochs
            assert trial.warmup == cell.settings.warmup
    assert seen == {0: 0, 1: 5, 2: 5, 5: 5, 10: 20, 20: 20, 40: 60, 60: 60, 100: 100}
