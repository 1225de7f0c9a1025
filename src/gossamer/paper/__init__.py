"""Every table and figure of the paper, repeated by one command.

| module         | what is inside                                                                    |
|----------------|-----------------------------------------------------------------------------------|
| `cells`        | scales, protocols, and the cells of a result with the settings of their runs      |
| `campaign`     | the order of all runs, shared between programs; `make_run` makes one              |
| `rates`        | the search for the learning rate of a tuned cell                                  |
| `store`        | finished runs on disk, and mean and standard deviation of a cell                  |
| `findings`     | what was run of a result, and how it compares with the paper                      |
| `time_study`   | seconds to an accuracy on testbeds; `time_page` writes its page                   |
| `paper_result` | what all results share: page, table, picture                                      |
| `paper_tables` | Tables 1 to 4; `figures`, `toy_page`, `atlas` and `recommended` have the rest     |
| `summary_page` | writes all pages                                                                  |
"""

import dataclasses
from collections.abc import Iterable

from gossamer.errors import unknown_name
from gossamer.paper.atlas import ATLAS
from gossamer.paper.cells import Cell, Scale
from gossamer.paper.figures import FIGURES
from gossamer.paper.paper_result import MeasuredResult, PaperResult
from gossamer.paper.paper_tables import TABLES
from gossamer.paper.recommended import RECOMMENDED
from gossamer.paper.time_page import TIME
from gossamer.paper.toy_page import TOY

RESULTS: dict[str, PaperResult] = {result.name: result for result in (*TABLES, *FIGURES, TOY, ATLAS, RECOMMENDED, TIME)}


def find_results(text: str) -> list[PaperResult]:
    """Return the results of a text such as 'table-2,fig-delay' or 'all', each once."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    names = [name for part in names or [""] for name in (RESULTS if part == "all" else [part])]
    for name in names:
        if name not in RESULTS:
            raise unknown_name("result", name, [*RESULTS, "all"])
    return [RESULTS[name] for name in dict.fromkeys(names)]


def cells_for(results: Iterable[PaperResult], scale: Scale, protocols: Iterable[str]) -> list[Cell]:
    """Return the cells of some results. Cells that any result draws over time are watched: a run is made once for all.

    The keys are those before a rate is found: two results may search it in different places and find the same.
    """
    protocols = list(protocols)
    pictures = [result for result in RESULTS.values() if isinstance(result, MeasuredResult) and result.over_time]
    drawn = {cell.key for result in pictures for cell in result.cells_of(scale, protocols)}
    cells = [cell for result in results for cell in result.cells_of(scale, protocols)]
    return [dataclasses.replace(cell, watched=cell.key in drawn) for cell in cells]
