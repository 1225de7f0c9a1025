"""What settings and rules there are, from a file: importing them imports torch, which takes a second and a half.

After a change of a setting, a rule or an option write the file again: `python -m gossamer.cli.descriptions`.
"""

import functools
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("descriptions.json")


@functools.cache
def read_descriptions() -> dict[str, Any]:
    """Return the settings, the settings of processes, and gossamer's own rules, with their options."""
    descriptions: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return descriptions


def collect_descriptions() -> dict[str, Any]:
    """Return what the file has to contain."""
    from gossamer.algorithms import algorithm_class, describe_algorithms
    from gossamer.algorithms.options import describe_options
    from gossamer.run.process_settings import ProcessSettings
    from gossamer.run.settings import Settings

    settings = describe_options(Settings)
    del settings["options"]
    own = [rule for rule in describe_algorithms() if algorithm_class(rule["name"]).__module__.startswith("gossamer.")]
    return {"settings": settings, "processes": describe_options(ProcessSettings), "algorithms": own}


if __name__ == "__main__":
    FILE.write_text(json.dumps(collect_descriptions(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
