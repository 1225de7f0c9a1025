"""What the paper says of two algorithms, over all places where it does: its differences beside ours."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.paper.findings import Claim, Section
from gossamer.paper.verdict import FAILS, HOLDS, Judged, judged_claims

LEGEND = (
    "Of the comparisons that were made, how many have the paper's order, by more than one standard deviation over "
    "seeds, and how many of those its size too; then the smallest and the largest difference in points."
)
_ONE_NAME = {"PC-ASGD-PV": "PC-ASGD"}
_FALLS = {"delays": "accuracy falls with the delay", "sizes": "accuracy falls with the number of agents"}


@dataclass(frozen=True)
class Statement:
    """One sentence of the paper, and the comparisons that bear on it, by protocol."""

    text: str
    judged: dict[str, list[Judged]]

    @functools.cached_property
    def _all(self) -> list[Judged]:
        return [each for of_protocol in self.judged.values() for each in of_protocol]

    @property
    def share(self) -> float:
        """How many of the comparisons have the paper's order."""
        return sum(each.word != FAILS for each in self._all) / len(self._all)

    def line(self, protocols: Sequence[str]) -> str:
        """Return a line of the table."""
        printed = [each.paper for each in self._all if each.paper is not None]
        cells = [_cell(self.judged.get(protocol, [])) for protocol in protocols]
        return f"| {' | '.join([self.text, _span(printed), *cells])} |"


def find_statements(sections: Sequence[Section]) -> list[Statement]:
    """Return what the paper says in these results, what holds best first.

    Two experiments that meet in several results are compared once.
    """
    found: dict[str, dict[str, dict[tuple[str, str], Judged]]] = {}
    for section in sections:
        for judged in judged_claims(section):
            claim = judged.claim
            keys = (section.outcomes[claim.larger].cell.key, section.outcomes[claim.smaller].cell.key)
            by_protocol = found.setdefault(_text(section, claim), {})
            by_protocol.setdefault(section.protocol, {}).setdefault(keys, judged)
    statements = [
        Statement(text, {protocol: list(judged.values()) for protocol, judged in by_protocol.items()})
        for text, by_protocol in found.items()
    ]
    return sorted(statements, key=lambda statement: statement.share, reverse=True)


def to_table(statements: Sequence[Statement], protocols: Sequence[str]) -> list[str]:
    """Return a line for each statement and a column for each protocol."""
    heads = " | ".join(f"here, protocol {protocol}" for protocol in protocols)
    lines = [f"| the paper says | its difference | {heads} |", f"|---|---|{'---|' * len(protocols)}"]
    return [*lines, *(statement.line(protocols) for statement in statements)]


def _text(section: Section, claim: Claim) -> str:
    above, below = (_ONE_NAME.get(place[0], place[0]) for place in (claim.larger, claim.smaller))
    if above == below:
        return _FALLS[section.recipe.kind]
    return f"{above} is above {'any other choice of theta' if below.startswith('theta') else below}"


def _cell(judged: list[Judged]) -> str:
    """Return how many are in order, and in size, and the span of the differences."""
    if not judged:
        return "not run"
    order = sum(each.word != FAILS for each in judged)
    size = sum(each.word == HOLDS and each.paper is not None for each in judged)
    sized = f" ({size} in size)" if size else ""
    return f"{order} of {len(judged)}{sized}: {_span([each.ours for each in judged])}"


def _span(points: list[float]) -> str:
    """Return '+0.9 to +3.3', or one number, or nothing."""
    ends = list(dict.fromkeys(f"{end:+.1f}" for end in (min(points), max(points)))) if points else []
    return " to ".join(ends)
