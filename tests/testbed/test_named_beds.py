"""Testbeds by name, text, file and object, and the measurements behind them."""

import importlib

import numpy as np
import pytest

import gossamer as gm
from gossamer.testbed.measurements import DATA, SPOTS, aws_regions, cloud_regions, phone_rates, planet_latency
from link_play import pair_links, refusal


def times(bed):
    return bed.links(pair_links(bed.agents), 0)


def between(bed, sender, receiver):
    """Latency in seconds and bandwidth in bytes a second of a link."""
    links = pair_links(bed.agents)
    pairs = list(zip(links.senders.tolist(), links.receivers.tolist(), strict=True))
    found, link = times(bed), pairs.index((sender, receiver))
    return found.base_latency[link] / 1e9, found.bandwidth[link]


def test_regions_have_the_numbers_of_their_source():
    bed = gm.testbed("aws:oregon*3,virginia*3,tokyo*2")
    assert bed.agents == 8 and bed.places == ("oregon",) * 3 + ("virginia",) * 3 + ("tokyo",) * 2
    assert between(bed, 0, 3) == between(bed, 5, 2) == pytest.approx((0.067, 0.79e9 / 8))
    assert between(bed, 7, 1) == pytest.approx((0.096, 0.523e9 / 8))
    assert between(bed, 0, 1) == (1e-4, 1.25e9)  # a LAN


def test_a_cloud_link_has_half_the_round_trip_and_its_own_direction():
    bed = gm.testbed("clouds:aws:af-south-1,aws:ap-east-1*2")
    assert between(bed, 0, 1) == pytest.approx((0.24878 / 2, 1.871e9 / 8), rel=1e-3)
    assert between(bed, 1, 0)[1] != between(bed, 0, 1)[1]
    assert gm.testbed("clouds:GCP:us-central1-a*2").places == ("gcp:us-central1",) * 2


def test_phones_send_at_the_slower_of_up_and_down_and_share_the_way_up():
    up, down = phone_rates()
    bed = gm.testbed("phones:19")
    users = [int(place.removeprefix("user")) for place in bed.places]
    assert sorted(users) == list(range(19))  # nobody twice
    assert between(bed, 2, 5)[1] == min(up[users[2]], down[users[5]])
    assert times(bed).uplink[2] == up[users[2]]


def test_machines_are_drawn_by_the_seed_of_the_testbed():
    assert gm.testbed("planet:16").places == gm.testbed("planet:16,seed=0").places
    assert gm.testbed("planet:16").places != gm.testbed("planet:16", seed=1).places
    latency = planet_latency()
    bed = gm.testbed("planet:3")
    nodes = [int(place.removeprefix("node")) for place in bed.places]
    assert between(bed, 2, 0)[0] == pytest.approx(latency[nodes[2], nodes[0]], abs=1e-9)


def test_measurements_are_whole_and_in_range():
    for names, latency, rate in (aws_regions(), cloud_regions()):
        others = ~np.eye(len(names), dtype=bool)
        assert ((latency[others] > 5e-4) & (latency[others] < 0.5)).all()
        assert ((rate[others] > 10e6 / 8) & (rate[others] < 50e9 / 8)).all()
    nodes = planet_latency()[~np.eye(227, dtype=bool)]
    assert ((nodes > 0) & (nodes < 1)).all() and np.median(nodes) == pytest.approx(0.067, abs=1e-3)
    assert (len(aws_regions()[0]), len(cloud_regions()[0]), len(phone_rates()[0])) == (10, 61, 19)


def test_each_measurement_has_its_licence_and_origin():
    folders = [folder for folder in DATA.iterdir() if folder.is_dir()]
    assert len(folders) == 5
    for folder in folders:
        origin = (folder / "ORIGIN.md").read_text(encoding="utf-8")
        assert "github.com/" in origin and "licence" in origin and len((folder / "LICENSE").read_text()) > 900
        assert all(f"`{path.name}`" in origin for path in folder.glob("*.csv"))
    assert sum(path.stat().st_size for folder in folders for path in folder.iterdir()) < 1e6
    assert {path.stem for path in (DATA / "spot").glob("*.csv")} == set(SPOTS)


def test_text_file_and_object_say_the_same(folder):
    text = "wan:3,latency=30ms,bandwidth=1Gbit/s;compute=lognormal:1,0.3;slow=2*4;loss=0.1;tolerance=1"
    (folder / "bed.toml").write_text(
        'testbed = "wan:3"\nlatency = "30ms"\nbandwidth = "1Gbit/s"\ncompute = "lognormal:1,0.3"\n'
        "loss = 0.1\ntolerance = 1\n[slow]\n2 = 4\n"
    )
    (folder / "numbers.toml").write_text(
        'agents = 3\nlatency = [[0, "30ms", 0.03], ["30ms", 0, 0.03], [0.03, 0.03, 0]]\nbandwidth = 125e6\n'
        'compute = "lognormal:1,0.3"\nslow = [1, 1, 4]\nloss = 0.1\ntolerance = 1\n'
    )
    told = {"compute": "lognormal:1,0.3", "slow": {2: 4}, "loss": 0.1, "tolerance": 1}
    beds = [
        gm.testbed(text),
        gm.testbed("bed.toml"),
        gm.testbed("numbers.toml"),
        gm.testbed(agents=3, latency="30ms", bandwidth="1Gbit/s", **told),
        gm.testbed(gm.testbed("wan:3"), latency=0.03, bandwidth=1.25e8, **told),
    ]
    for bed in beds:
        clock, found = bed.iterations(3), times(bed)
        assert [clock.end(2, 0, 0), found.base_latency.tolist(), found.bandwidth.tolist(), bed.tolerance] == [
            beds[0].iterations(3).end(2, 0, 0),
            [30_000_000] * 6,
            [1.25e8] * 6,
            1,
        ]
        assert [found.lost(1, k) for k in range(50)] == [times(beds[0]).lost(1, k) for k in range(50)]


def test_what_is_given_beside_a_text_replaces_what_it_says():
    bed = gm.testbed("spot:4;step_seconds=2", schedule=[(1, 0, 0)], step_seconds="0.5s", returning="adopt", max_age=9)
    assert next(bed.schedule.changes(4, pair_links(4), 0)).time_ns == 10**9
    assert (bed.step_seconds, bed.returning, bed.max_age, bed.deadline) == (0.5, "adopt", 9, "auto")
    assert gm.testbed(bed, deadline="1min").deadline == 60 and gm.testbed(bed, deadline=1).max_age == 9


def test_the_package_does_not_take_the_place_of_the_function():
    importlib.import_module("gossamer.testbed.testbed")
    assert callable(gm.testbed) and isinstance(gm.testbed("lan:2"), gm.Testbed)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("lna:8", "unknown testbed 'lna'; did you mean 'lan'?"),
        ("lan", "cannot read testbed lan; write it like lan:8"),
        ("lan:8,9", "write it like lan:8"),
        ("lan:0", "must have 1 to 1000000 agents"),
        ("aws:oregn*3", "unknown region of aws 'oregn'; did you mean 'oregon'?"),
        ("aws:oregon*no", "region 'oregon*no' needs a number of agents after the star"),
        ("aws", "cannot read testbed aws; write it like aws:oregon*3,virginia*3,tokyo*2"),
        ("clouds:gcp:us-centrl1", "did you mean 'gcp:us-central1'? docs/testbeds.md lists all 61"),
        ("lan:8,bandwith=5", "unknown setting of a testbed 'bandwith'; did you mean 'bandwidth'?"),
        ("lan:8;loss=0.1;loss=0.2", "says loss twice"),
        ("lan:8,seed=1", "testbed lan draws no machines"),
        ("lan:8;tolerance=-1", "tolerance must be 0 or more own iterations, got -1"),
        ("lan:8;tolerance=many", "tolerance must be a whole number, got 'many'"),
        ("lan:8;max_age=0", "max_age must be 1 or more own iterations, got 0"),
        ("lan:8;deadline=later", "deadline must be a time, got 'later'"),
        ("lan:8;returning=adpt", "unknown returning 'adpt'; did you mean 'adopt'?"),
        ("none.toml", "cannot read testbed 'none.toml'"),
        ("broken.toml", "'broken.toml' is not valid TOML"),
        ("key.toml", "unknown setting of a testbed 'latncy'; did you mean 'latency'?"),
        ("small.toml", "bandwidth has shape (2, 2); give one number, or a matrix [3, 3]"),
    ],
)
def test_a_bad_name_is_refused_in_one_line(folder, spec, says):
    (folder / "broken.toml").write_text("agents = \n")
    (folder / "key.toml").write_text("agents = 3\nlatncy = 1\n")
    (folder / "small.toml").write_text("agents = 3\nbandwidth = [[1, 1], [1, 1]]\n")
    assert says in refusal(spec)


def test_a_testbed_without_agents_is_refused():
    assert "say agents=8" in refusal()
    assert "testbed lan has 8 agents, and agents is 9" in refusal("lan:8", agents=9)
    assert "cannot be changed" in refusal(gm.testbed("lan:8"), agents=9)
