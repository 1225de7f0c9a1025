"""What the tests of reports on testbeds share: runs whose events can be worked out by hand."""

from pathlib import Path

from gossamer.engine import make_training
from gossamer.run.folder import RunFolder
from gossamer.run.settings import make_settings

SECONDS = 12.0
LATENCY = 0.5
COMPUTE = [1.0, 2.0, 1.0]  # one agent takes twice as long
EVERY = 0.5  # seconds between two evaluations


def make_timed_run(path: Path, algorithm: str = "sync", seed: int = 0, target: str = "0.18") -> Path:
    """Make a run of three agents. The links are so fast that only their latency counts."""
    bed = path.parent / "bed.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    bed.write_text(f"agents = 3\ncompute = {COMPUTE}\nlatency = {LATENCY}\nbandwidth = 1e15\n")
    values = {
        "testbed": str(bed),
        "network": "complete:3",
        "model": "linear",
        "lr": 0.1,
        "seconds": SECONDS,
        "eval_seconds": EVERY,
    }
    settings = make_settings({**values, "algorithm": algorithm, "seed": seed, "target": target})
    run = make_training(settings)
    run.run(RunFolder.create(path, run.settings, run.network))
    return path
