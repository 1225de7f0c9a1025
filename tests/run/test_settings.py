import dataclasses
import json
import tomllib
from pathlib import Path

import pytest

from gossamer.algorithms import algorithm_class, algorithm_names
from gossamer.algorithms.options import describe_options
from gossamer.engine import make_training
from gossamer.errors import UserError
from gossamer.paper.cells import command_of, key_of
from gossamer.run.merge_settings import PRESETS, merge_settings, preset_values, with_file
from gossamer.run.settings import (
    IGNORED,
    SETTING_NAMES,
    Settings,
    is_stale,
    make_settings,
    read_settings,
    stored_settings,
)


def defaults(algorithm):
    return {
        **{name: field["default"] for name, field in describe_options(Settings).items()},
        **{name: field["default"] for name, field in describe_options(algorithm_class(algorithm)).items()},
    }


def test_the_default_preset_is_the_defaults():
    assert preset_values("default", "pc-asgd") == {}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("algorithm", algorithm_names())
def test_every_preset_makes_settings_for_every_algorithm(preset, algorithm):
    settings = make_settings({"algorithm": algorithm, **preset_values(preset, algorithm)})
    for name, value in preset_values(preset, algorithm).items():
        found = getattr(settings, name) if name in SETTING_NAMES else settings.options[name]
        assert str(found) == str(value)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_name_in_a_preset_is_a_setting_or_an_option_of_pc_asgd(preset):
    assert set(PRESETS[preset]) <= set(defaults("pc-asgd"))


def test_the_papers_preset_is_what_the_paper_prints():
    training = make_training(make_settings({"algorithm": "pc-asgd", **preset_values("paper", "pc-asgd")}))
    at = training.plan.schedule.at
    epoch = training.steps_per_epoch
    assert (at(0), at(160 * epoch - 1), at(160 * epoch)) == pytest.approx((0.01, 0.01, 0.001))
    assert training.settings.epochs == 200 and training.settings.batch == 128 and training.network.delay.spec() == "20"
    assert training.algorithm.theta == "pv" and training.algorithm.lam == 1.0


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_settings_survive_toml(algorithm, tmp_path):
    training = make_training(make_settings({"algorithm": algorithm, "epochs": 3, "clusters": "4,4", "lr": 1e-5}))
    path = tmp_path / "config.toml"
    path.write_text(training.settings.to_toml(), encoding="utf-8")
    again = make_settings(read_settings(path))
    assert dataclasses.asdict(again) == dataclasses.asdict(training.settings)
    assert again.to_toml() == training.settings.to_toml()


def test_text_and_numbers_mean_the_same():
    words = {"lr": "0.1", "epochs": "3", "nesterov": "yes", "momentum": "0.9", "theta": "0.4", "batch": "8.0"[:1]}
    numbers = {"lr": 0.1, "epochs": 3.0, "nesterov": True, "momentum": 0.9, "theta": 0.4, "batch": 8}
    one, two = make_settings(words), make_settings(numbers)
    assert (one.lr, one.epochs, one.nesterov, one.batch) == (two.lr, two.epochs, two.nesterov, two.batch)
    assert make_training(one).algorithm == make_training(two).algorithm


def test_an_option_given_by_itself_wins_over_the_table():
    assert make_settings({"options": {"theta": 0.1}, "theta": "0.9"}).options["theta"] == "0.9"


def test_names_in_a_file_may_be_strange(tmp_path):
    settings = make_settings({"network": 'file:a "b" ü\n.json', "partition": "iid"})
    assert tomllib.loads(settings.to_toml())["network"] == settings.network


def test_a_file_is_looked_for_beside_the_settings_then_in_the_present_folder(tmp_path, monkeypatch):
    (tmp_path / "set").mkdir()
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "set/run.toml"
    path.write_text('network = "file:net.json"\ndelay = "trace:t.csv"\n')
    (tmp_path / "t.csv").touch()
    (tmp_path / "net.json").touch()
    (tmp_path / "set/net.json").touch()
    assert read_settings(path) == {"network": f"file:{tmp_path / 'set/net.json'}", "delay": "trace:t.csv"}


@pytest.mark.parametrize("name", ["epochs", "batch", "threads"])
def test_counts_are_1_or_more(name):
    with pytest.raises(UserError, match=f"{name} must be 1 or more, got 0"):
        make_settings({name: 0})


def test_every_setting_has_a_line_of_help():
    for name, field in describe_options(Settings).items():
        assert name == "options" or field["help"], name


# What makes two runs the same.

STORED = Path(__file__).parents[2] / "docs/results/data"


@pytest.mark.parametrize("file", ["full.jsonl", "quick.jsonl"])
def test_the_keys_of_stored_runs_never_change(file):
    for line in (STORED / file).read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if is_stale(run["settings"]):
            continue
        settings = stored_settings(run["settings"])
        assert (key_of(settings), settings.identity("experiment")) == (run["key"], run["settings"])


def test_a_changed_default_renames_no_stored_run():
    """Stored runs of PC-ASGD without theta had 0.3; a run with the new default is another experiment."""
    former, now = Settings(options={"theta": 0.3}), Settings()
    assert "theta" not in former.identity("experiment") and now.identity("experiment")["theta"] == "auto"
    assert key_of(former) != key_of(now) == key_of(Settings(options={"theta": "auto"}))
    assert stored_settings(former.identity("experiment")).options == {"theta": 0.3}
    assert stored_settings(now.identity("experiment")).options == {"theta": "auto"}
    assert "--theta 0.3" in command_of(former) and "--theta auto" in command_of(now)
    assert former.changed_options() == {"theta": 0.3} and now.changed_options() == {}


def test_a_changed_default_continues_no_checkpoint_of_another_rule():
    assert Settings().digest() == Settings(options={"theta": "auto"}).digest()
    # What runs without theta wrote when the default was 0.3.
    assert Settings().digest().hex() != "3170c2be65465cf3bb5a1100498c135d14d9179053c269f1d194cbfeecda7820"


def test_an_option_that_came_later_leaves_older_checkpoints_valid():
    before = Settings(options={"theta": 0.3, "criterion": "literal"})
    later = {"predictor": "gradient", "damping": 0.0, "lag": 10.0}
    assert dataclasses.replace(before, options={**before.options, **later}).digest() == before.digest()
    for name, value in {"predictor": "own", "damping": 0.2, "lag": 5.0}.items():
        assert dataclasses.replace(before, options={**before.options, name: value}).digest() != before.digest()
    damped = Settings(algorithm="sdm-asgd", options={"lag": 10.0})
    assert damped.digest() != Settings(algorithm="sdm-asgd").digest()  # as ever


def test_results_of_a_former_revision_of_a_rule_match_nothing(monkeypatch):
    settings = Settings(algorithm="sync")
    before, digest = settings.identity("experiment"), settings.digest()
    assert not is_stale(before) and "revision" not in before
    monkeypatch.setattr(algorithm_class("sync"), "revision", 2)
    after = settings.identity("experiment")
    assert after == before | {"revision": 2} and settings.digest() != digest
    assert is_stale(before) and not is_stale(after)
    assert "revision" not in command_of(settings)


def test_the_digest_in_checkpoints_never_changes():
    settings = Settings(lr=0.05, clusters="3,5", options={"theta": "pv"})
    assert settings.digest().hex() == "5841fa1c12e9a65ac3d4b2aea7b4aa92c17e70b7ee35c3b7f5e129b45f244e2c"
    moved = dataclasses.replace(settings, network="file:network.json", clusters=None, delay="trace:t.csv", log="csv")
    assert moved.digest() == settings.digest()


def test_what_only_measures_or_saves_renames_nothing_stored():
    """Stored runs saved every 10 epochs and knew no eval_examples."""
    stored = Settings(checkpoint_every=10)
    assert stored.digest() == Settings().digest() and stored.identity("seeds") == Settings().identity("seeds")
    assert "eval_examples" not in stored.identity("checkpoint")
    sampled = Settings(eval_examples=100)
    for purpose in ("rate", "experiment"):
        assert sampled.identity(purpose) == stored.identity(purpose)
    assert sampled.digest() != stored.digest() and sampled.identity("seeds") != stored.identity("seeds")


@pytest.mark.parametrize("purpose", IGNORED)
def test_a_purpose_ignores_what_the_table_says_and_nothing_else(purpose):
    valid = {"algorithm": "c-asgd", "target": "0.5"}
    for name in SETTING_NAMES:
        settings = Settings(testbed="lan:8") if name.endswith("seconds") else Settings()
        value = getattr(settings, name)
        other = {bool: True, int: 7, float: 0.5}.get(type(value), valid.get(name, "other"))
        same = dataclasses.replace(settings, **{name: other}).identity(purpose) == settings.identity(purpose)
        assert same == (name in IGNORED[purpose]), name


def test_the_default_delay_may_be_left_out():
    given, left_out = Settings(delay="20"), Settings()
    for purpose in ("rate", "experiment"):
        assert given.identity(purpose) == left_out.identity(purpose)
        assert Settings(network="file:net.json").identity(purpose)["delay"] is None  # it may hold its own


def test_the_text_wins_over_flags_flags_over_the_file_and_the_file_over_the_preset(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('lr = 0.2\nbatch = 32\n[options]\nlam = 0.5\ntheta = "linear:0,1,9"\n')
    given = {"batch": "64", "theta": "uniform", "algorithm": "pc-asgd/theta=pv"}
    found = merge_settings(with_file(file, given), "paper")
    assert (found.epochs, found.lr, found.batch) == (200, 0.2, 64)
    assert (found.options["horizon"], found.options["lam"], found.options["theta"]) == ("sum", 0.5, "pv")
    assert merge_settings({}) == Settings()
