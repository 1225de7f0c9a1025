"""What settings and rules there are, from a file: importing them imports torch, which takes a second and a half.

After a change of a setting, a rule or an option write the file again: `python -m gossamer.cli.descriptions`.
"""

import functools
import json
from pathlib import Path
from typing import Any

SET_BY_LAUNCHER = ("rank", "folder", "record", "restarts", "launcher")  # for each agent
FILE = Path(__file__).with_name("descriptions.json")


@functools.cache
def read_descriptions() -> dict[str, Any]:
    """Return what `collect_descriptions` has found."""
    descriptions: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return descriptions


def collect_descriptions() -> dict[str, Any]:
    """Return what the file has to contain: all that the help of a command says about the code beneath it."""
    from gossamer.algorithms import algorithm_class, describe_algorithms
    from gossamer.algorithms.options import describe_options
    from gossamer.bench import CASES
    from gossamer.paper.cells import SCALES
    from gossamer.run.process_settings import ProcessSettings
    from gossamer.run.settings import Settings
    from gossamer.runtime.environment import FIELDS, Run
    from gossamer.runtime.launch.ray_cluster import RayResources

    settings = describe_options(Settings)
    del settings["options"]
    own = [rule for rule in describe_algorithms() if algorithm_class(rule["name"]).__module__.startswith("gossamer.")]
    run = describe_options(Run)
    return {
        "settings": settings,
        "processes": describe_options(ProcessSettings),
        "algorithms": own,
        "launch": {name: run[name] for name in FIELDS if name not in SET_BY_LAUNCHER},
        "ray": describe_options(RayResources),
        "cases": list(CASES),
        "scales": {scale.name: scale.seeds for scale in SCALES.values()},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(collect_descriptions(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
