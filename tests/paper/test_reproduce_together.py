"""Several programs that work on one folder of results."""

import subprocess
import sys
import threading
import time
from collections import Counter

from gossamer.paper import campaign as campaigns
from gossamer.paper.campaign import Campaign, claim, forget, unique
from gossamer.paper.cells import chosen
from gossamer.paper.store import Store, read_records
from reproducing import TINY, cells_of, made_up, record


def cells():
    """Some that need no search for a rate, and some that share one."""
    found = cells_of("table-4", "smoke", ["paper"]) + cells_of("fig-choice", "smoke", ["tuned"])
    return unique(chosen(found, ["theta 0."]) + chosen(found, ["model", "tuned"]))


def campaign_in(folder, seeds=2):
    return Campaign(cells(), seeds, TINY, Store(folder), folder)


def work(folder, made, patch):
    """Make runs of 20 ms until all are there; tell which."""

    def slow(job, *rest):
        time.sleep(0.02)
        made.append(job.name)
        return made_up(job, *rest)

    patch(campaigns, "make_run", slow)
    patch(campaigns, "WAIT", 0.01)
    assert campaign_in(folder).run(lambda *_: None, lambda: None)[0] == "finished"


def test_programs_share_the_runs_and_all_end_with_all_of_them(tmp_path, monkeypatch):
    made = []
    workers = [threading.Thread(target=work, args=(tmp_path, made, monkeypatch.setattr)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    alone = []
    work(tmp_path / "alone", alone, monkeypatch.setattr)
    assert Counter(made) == Counter(alone) and set(Counter(made).values()) == {1}
    assert len(read_records(tmp_path / "data/smoke.jsonl")) == len(alone)
    assert not list((tmp_path / ".claims").iterdir())


def test_a_claim_ends_with_the_program_that_holds_it(tmp_path):
    code = "import sys, pathlib, time; from gossamer.paper.campaign import claim\n"
    code += "with claim(pathlib.Path(sys.argv[1]), 'a'): print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with claim(tmp_path, "a") as ours:
            assert not ours
        other.kill()
    with claim(tmp_path, "a") as ours:
        assert ours


def test_what_another_gives_up_is_made_after_all(tmp_path, monkeypatch):
    held = campaign_in(tmp_path)
    (_, job) = next(held._missing(lambda: None))
    claims, made = tmp_path / ".claims", []
    with claim(claims, job.name) as ours:
        assert ours
        worker = threading.Thread(target=work, args=(tmp_path, made, monkeypatch.setattr))
        worker.start()
        time.sleep(0.3)
        assert worker.is_alive() and made and job.name not in made
    worker.join(timeout=60)
    assert not worker.is_alive() and made[-1] != made[0] and made.count(job.name) == 1


def test_who_waits_for_another_ends_at_the_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(campaigns, "make_run", made_up)
    campaign = campaign_in(tmp_path, seeds=1)
    (_, job) = next(campaign._missing(lambda: None))
    with claim(tmp_path / ".claims", job.name):
        end = time.monotonic() + 0.3
        status, made = campaign.run(lambda *_: None, lambda: "time limit" if time.monotonic() > end else None)
    assert status == "time limit" and made > 0 and campaign.done() == campaign.total() - 1


def test_a_claim_is_one_programs_and_ends_with_its_block(tmp_path):
    with claim(tmp_path, "a") as first, claim(tmp_path, "a") as second, claim(tmp_path, "b") as other:
        assert (first, second, other) == (True, False, True)
    with claim(tmp_path, "a") as again:
        assert again
    forget(tmp_path, "a")
    forget(tmp_path, "never claimed")
    assert [path.name for path in tmp_path.iterdir()] == ["b.lock"]


def test_a_line_on_its_way_to_the_disk_is_read_when_it_is_whole(tmp_path):
    first, second, third = cells_of("table-4", "quick", ["paper"])[:3]
    mine, theirs = Store(tmp_path), Store(tmp_path)
    theirs.add(record(first, 0, 0.5))
    mine.refresh()
    assert mine.find(first.key, 0) is not None
    path = tmp_path / "data/quick.jsonl"
    whole = path.read_bytes()
    theirs.add(record(second, 0, 0.6))
    both = path.read_bytes()
    path.write_bytes(both[: len(whole) + 40])
    mine.refresh()
    assert mine.find(second.key, 0) is None
    path.write_bytes(both)
    mine.refresh()
    mine.add(record(third, 0, 0.7))
    mine.refresh()
    assert mine.find(second.key, 0) == theirs.find(second.key, 0)
    assert len(mine.all()) == len(Store(tmp_path).all()) == 3
