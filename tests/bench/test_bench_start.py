"""The benchmark of starting agents."""

from gossamer.bench.start_case import StartTimes, to_start_rows


def test_starting_is_measured_forked_and_fresh(command, folder):
    (record,) = command("bench", "start", "--device", "cpu", "--quick", "--out", "b", "--json").document["cases"]
    rows = {row["label"]: row for row in record["rows"]}
    assert list(rows) == [
        *("forked, first step of all", "forked, return of one"),
        *("fresh, first step of all", "fresh, return of one"),
    ]
    for row in rows.values():
        assert 0.1 < row["low"] == row["seconds"] == row["high"]
    assert all(rows[f"{way}, return of one"]["seconds"] > 0.5 for way in ("forked", "fresh"))  # the pause
    assert "| forked, return of one |" in (folder / "b/RESULTS.md").read_text()


def test_rows_are_medians_with_their_range():
    first, back = to_start_rows(
        "forked", [StartTimes(3.0, 1.5, 8.0), StartTimes(5.0, 0.5, 7.0), StartTimes(4.0, 0.7, 9.0)]
    )
    assert first == {"label": "forked, first step of all", "seconds": 4.0, "low": 3.0, "high": 5.0, "cpu": 8000.0}
    assert back == {"label": "forked, return of one", "seconds": 0.7, "low": 0.5, "high": 1.5}
