"""The data of the report page as one dict for JSON."""

import statistics
from collections.abc import Sequence
from typing import Any

from gossamer.report.agent_spells import FILLS as SPELL_FILLS
from gossamer.report.agent_spells import MESSAGES, MOST_ON_PAGE, as_columns
from gossamer.report.axes import Axis, offered_axes, usual_axis
from gossamer.report.curves import axes_of, charts_of, places
from gossamer.report.grouping import RunGroup, commands_of, configuration_table, settings_of, text_of
from gossamer.report.network_picture import network_title
from gossamer.report.network_view import drawings_of, latest_ages, mean_ages
from gossamer.report.read_runs import MetricsRow, RunRecord
from gossamer.report.runs import QUANTITIES, thinned, tidy, tidy_all
from gossamer.report.style import COLOURS, DASHES, FILLS, MARKERS
from gossamer.report.time_columns import TIME_COLUMNS, time_cells
from gossamer.run.metric_rows import ORDERLY, as_list, mean, short
from gossamer.version import __version__

# Curves of single agents keep at most this many rows, and fewer with many agents or runs.
MOST_ROWS, FEWEST_ROWS, NUMBERS_OF_A_RUN, NUMBERS_OF_ALL = 300, 20, 40_000, 600_000
MOST_NAMES = 5  # of algorithms in the heading
OF_AGENTS = ("accuracy", "loss", "consensus", "predict", "bytes_sent", "train_loss", "iterations", "waiting", "down")
MAY_BE_ZERO = ("waiting", "down")  # left out of a run that has nothing else
SYMBOLS = dict(
    zip("osD^vPX*", ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"), strict=True)
)

NOTED = 5  # columns of the table of runs before those of time and target
# They are: key, heading, digits after the point (None for text), meaning.
COLUMNS: tuple[tuple[str, str, int | None, str], ...] = (
    ("name", "Run", None, "the run's folder"),
    ("setting", "Setting", None, "its differences from the other settings"),
    ("seed", "Seed", 0, ""),
    ("status", "Status", None, "how the run ended"),
    ("accuracy", "Accuracy %", 2, "mean over agents at the last evaluation"),
    ("worst", "Worst %", 2, "the least accurate agent at the last evaluation"),
    ("best", "Best %", 2, "the highest mean over agents at any evaluation"),
    ("average", "Average %", 2, "accuracy of the average of all models"),
    ("loss", "Loss", 4, "mean test loss over agents"),
    ("consensus", "Distance", 4, "mean distance of an agent from the average model"),
    ("predict", "Predicts %", 1, "share of predicting in the steps with a choice"),
    ("age", "Age", 2, "mean age of the messages held, in iterations"),
    ("sent", "MB sent", 1, "sum over the agents"),
    ("seconds", "Seconds", 1, "training time"),
    ("iterations", "Iterations", 0, ""),
)


def make_model(runs: Sequence[RunRecord], warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the data of the page for these runs, finished or not; `warnings` name the runs left out."""
    settings = settings_of(runs)
    drawings, numbers = drawings_of(runs)
    owner = {k: number for number, setting in enumerate(settings) for k in setting.members}
    rows = [_table_row(run, settings[owner[k]].label) for k, run in enumerate(runs)]
    axes = offered_axes(run.rows for run in runs)
    told = [column for column in TIME_COLUMNS if any(row[column[0]] is not None for row in rows)]
    columns = (*COLUMNS[:NOTED], *told, *COLUMNS[NOTED:])
    return {
        "version": __version__,
        "header": _header(runs, settings, rows),
        "axes": axes_of(runs, axes),
        "axis": usual_axis(run.rows for run in runs).key,
        "charts": charts_of(runs, settings, axes),
        "settings": [_setting(runs, setting, number) for number, setting in enumerate(settings)],
        "columns": [{"key": k, "title": t, "digits": d, "about": a} for k, t, d, a in columns],
        "runs": [
            {**row, "setting_number": owner[k], "network": numbers[k], **_detail(run, len(runs), axes)}
            for k, (run, row) in enumerate(zip(runs, rows, strict=True))
        ],
        "networks": drawings,
        "fills": list(FILLS),
        "timeline_fills": {**SPELL_FILLS, "message": MESSAGES},
        "configuration": configuration_table(runs, settings),
        "warnings": list(warnings),
    }


def _setting(runs: Sequence[RunRecord], setting: RunGroup, number: int) -> dict[str, Any]:
    dashes = DASHES[number % len(DASHES)][1]
    return {
        "label": setting.label,
        "colour": COLOURS[number % len(COLOURS)],
        "dash": ",".join(f"{2 * length:g}px" for length in dashes) or "solid",
        "symbol": SYMBOLS[MARKERS[number % len(MARKERS)]],
        "runs": setting.members,
        "seeds": [runs[k].values["seed"] for k in setting.members],
        **commands_of(runs, setting),
    }


def _table_row(run: RunRecord, label: str) -> dict[str, Any]:
    """Return the cells of a run; without a summary they come from its last row."""
    last: MetricsRow = run.rows[-1] if run.rows else {}
    accuracy = as_list(last.get("accuracy"))
    predict = run.summary.get("predict_fraction", mean(as_list(last.get("predict"))))
    age = run.summary.get("message_age", mean(as_list(last.get("message_age"))))
    consensus = mean(as_list(last.get("consensus")))
    sent = as_list(last.get("bytes_sent"))
    numbers = {
        "accuracy": _percent(mean(accuracy)),
        "worst": _percent(min((value for value in accuracy if value is not None), default=None)),
        "best": _percent(max((mean(as_list(row["accuracy"])) or 0.0 for row in run.rows), default=None)),
        "average": _percent(run.summary.get("accuracy_average_model", last.get("accuracy_average_model"))),
        "loss": mean(as_list(last.get("loss"))),
        "consensus": run.summary.get("consensus_distance") if consensus is None else consensus,
        "predict": _percent(predict),
        "age": age,
        "sent": sum(value or 0 for value in sent) / 1e6 if sent else None,
        "seconds": run.summary.get("seconds", mean(as_list(last.get("seconds")))),
        "iterations": last.get("step"),
    }
    words = {"name": run.name, "path": str(run.path), "setting": label, "status": run.status}
    return {
        **words,
        "seed": int(run.values["seed"]),
        **{name: tidy(value) for name, value in numbers.items()},
        **time_cells(run),
    }


def _percent(share: float | int | None) -> float | None:
    return None if share is None else 100.0 * share


def _detail(run: RunRecord, num_runs: int, axes: Sequence[Axis]) -> dict[str, Any]:
    """Return the details of one run: the curves of its agents, the ages of its messages, its timeline."""
    numbers = min(NUMBERS_OF_A_RUN, NUMBERS_OF_ALL // num_runs) // run.network.num_agents
    kept = [run.rows[k] for k in thinned(len(run.rows), min(MOST_ROWS, max(FEWEST_ROWS, numbers)))]
    agents = {}
    for name in OF_AGENTS:
        factor, values = QUANTITIES[name].factor if name in QUANTITIES else 1.0, [row.get(name) for row in kept]
        if name in MAY_BE_ZERO and not any(any(value) for value in values if isinstance(value, list)):
            continue
        if any(isinstance(value, list) for value in values):
            agents[name] = [
                tidy_all(_scaled(value[k], factor) if isinstance(value, list) else None for value in values)
                for k in range(run.network.num_agents)
            ]
    return {
        "orderly": run.status in (*ORDERLY, "running", "unfinished"),
        "places": places(kept, axes),
        "agents": agents,
        "link_ages": latest_ages(run),
        "mean_ages": mean_ages(run),
        "no_ages": _why_no_ages(run),
        "timeline": None if run.timeline is None else as_columns(run.timeline, MOST_ON_PAGE // num_runs),
    }


def _scaled(value: float | int | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _why_no_ages(run: RunRecord) -> str:
    if any("ages" in row for row in run.rows):
        return "This run has no ages per agent: it has more than 128 agents, or no message has arrived yet."
    return "This run was written by an older version, without ages per agent; train it again to see them."


def _header(runs: Sequence[RunRecord], settings: Sequence[RunGroup], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the title and the main facts of the page."""
    networks = list(dict.fromkeys(run.network_name for run in runs))
    algorithms = list(dict.fromkeys(str(setting.values["algorithm"]) for setting in settings))
    several = ", ".join(algorithms) if len(algorithms) <= MOST_NAMES else f"{len(algorithms)} algorithms"
    what = settings[0].label if len(settings) == 1 else several
    best = max(settings, key=lambda setting: _accuracy(setting, rows))
    seeds = len({run.values["seed"] for run in runs})
    place, delay = _place(runs, networks)
    tasks = (f"{run.values['task']}, {run.values.get('model', '')}" for run in runs)
    facts = [
        {"name": "Best accuracy" if len(settings) > 1 else "Accuracy", "value": _accuracy_text(best, rows)},
        {"name": "Network", "value": _network_text(runs[0]) if len(networks) == 1 else ", ".join(networks)},
        delay,
        {"name": "Task", "value": "; ".join(dict.fromkeys(tasks))},
        {"name": "Runs", "value": f"{len(runs)} run{_s(len(runs))}, {seeds} seed{_s(seeds)}"},
    ]
    if len(settings) > 1:
        facts[0]["note"] = best.label
    targets = list(dict.fromkeys(str(run.values["target"]) for run in runs if run.values.get("target") is not None))
    if targets:
        facts.append({"name": "Target", "value": ", ".join(map(_target_text, targets))})
    return {"title": f"{what} {place}", "facts": facts}


def _place(runs: Sequence[RunRecord], networks: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return what the title says of network and delay, and the fact about the delay; on a testbed, both are its."""
    testbeds = [short(testbed) for testbed in _different(runs, "testbed")]
    if all(run.values.get("testbed") is not None for run in runs):
        place = testbeds[0] if len(testbeds) == 1 else f"{len(testbeds)} testbeds"
        return f"on {place}", {"name": "Testbed", "value": ", ".join(testbeds)}
    delays = _different(runs, "delay")
    place = f"on {short(networks[0])}" if len(networks) == 1 else f"on {len(networks)} networks"
    delay = f"delay {short(delays[0])}" if len(delays) == 1 else f"{len(delays)} delays"
    return f"{place}, {delay}", {"name": "Delay", "value": ", ".join(dict.fromkeys(map(_delay_text, runs)))}


def _target_text(target: str) -> str:
    kind, _, value = target.rpartition(":")
    return f"loss {value}" if kind == "loss" else f"accuracy {value}"


def _network_text(run: RunRecord) -> str:
    """Return the caption of the network under the name that the user gave."""
    return network_title(run.network).replace(short(run.network.spec), short(run.network_name), 1)


def _delay_text(run: RunRecord) -> str:
    """Return the delay, with its unit if it is a number; or the testbed."""
    if run.values.get("testbed") is not None:
        return f"testbed {short(text_of(run.values['testbed']))}"
    delay = short(text_of(run.values.get("delay")))
    return (
        f"{delay} {run.values.get('delay_unit', 'step')}{'' if delay == '1' else 's'}" if delay.isdecimal() else delay
    )


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _different(runs: Sequence[RunRecord], name: str) -> list[str]:
    return list(dict.fromkeys(text_of(run.values.get(name)) for run in runs))


def _accuracy(setting: RunGroup, rows: Sequence[dict[str, Any]]) -> float:
    return mean(rows[k]["accuracy"] for k in setting.members) or 0.0


def _accuracy_text(setting: RunGroup, rows: Sequence[dict[str, Any]]) -> str:
    values = [rows[k]["accuracy"] for k in setting.members if rows[k]["accuracy"] is not None]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread} %" if values else "-"
