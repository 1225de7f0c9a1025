import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from delays import MODELS, ages, draws
from gossamer.errors import UserError
from gossamer.network import (
    Fixed,
    Geometric,
    Gilbert,
    PerLink,
    Trace,
    Uniform,
    graph,
    network,
    parse_delay,
)

steady = settings(deadline=None, max_examples=50)

RING = graph.adjacency(graph.ring(4))


# ---- the models


@steady
@given(MODELS, st.integers(0, 1000))
def test_delays_are_whole_bounded_and_a_function_of_the_seed(delay, seed):
    first = draws(delay, 5, RING, seed)
    assert first.dtype == torch.int64
    assert first.min() >= 0 and first.max() <= delay.largest
    assert torch.equal(first, draws(delay, 5, RING, seed))


@steady
@given(MODELS)
def test_the_text_of_a_model_makes_it_again(delay):
    assert parse_delay(delay.spec()) == delay


def test_models_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    for delay in (Uniform(0, 9), Geometric(0.3), Gilbert(0.1, 0.5, 4)):
        draws(delay, 3)
    assert torch.equal(before, torch.get_rng_state())


def test_uniform_delays_take_every_value_equally_often():
    seen = draws(Uniform(3, 7), 20).flatten()
    shares = torch.bincount(seen, minlength=8) / len(seen)
    torch.testing.assert_close(shares[3:], torch.full((5,), 0.2), rtol=0, atol=0.01)
    assert shares[:3].sum() == 0


def test_geometric_delays_follow_their_law():
    seen = draws(Geometric(0.3), 30).flatten()
    for value in range(6):
        assert (seen == value).double().mean().item() == pytest.approx(0.3 * 0.7**value, abs=0.006)


@pytest.mark.parametrize(("p", "largest"), [(1.0, 0), (0.9, 6), (0.5, 20), (0.1, 132)])
def test_geometric_tail_is_cut_where_it_is_negligible(p, largest):
    assert Geometric(p).largest == largest
    if p < 1:
        assert (1 - p) ** largest <= 1e-6 * (1 + 1e-9) < (1 - p) ** (largest - 1)


def test_geometric_with_certain_arrival_is_never_late():
    assert draws(Geometric(1.0), 3).sum() == 0


def test_gilbert_starts_and_stays_stationary():
    seen = draws(Gilbert(0.05, 0.2, bad_delay=40, good_delay=2), 60)
    assert set(seen.unique().tolist()) == {2, 40}
    share_bad = (seen == 40).double().mean(dim=(1, 2))
    assert share_bad[0].item() == pytest.approx(0.2, abs=0.03)
    assert share_bad.mean().item() == pytest.approx(0.2, abs=0.02)


def test_gilbert_moves_with_its_two_probabilities():
    bad = draws(Gilbert(0.05, 0.2, bad_delay=1), 60) == 1
    before, after = bad[:-1], bad[1:]
    assert after[~before].double().mean().item() == pytest.approx(0.05, abs=0.005)
    assert (~after)[before].double().mean().item() == pytest.approx(0.2, abs=0.01)


def test_gilbert_directions_are_independent():
    bad = (draws(Gilbert(0.3, 0.3, bad_delay=1), 40) == 1).double()
    both = (bad * bad.transpose(1, 2)).mean().item()
    # 1/4 for independent directions, 1/2 if the two were one; the diagonal adds 1/60 of 1/4
    assert both == pytest.approx(0.25, abs=0.02)


def test_a_matrix_is_indexed_by_receiver_and_sender():
    matrix = torch.zeros(4, 4, dtype=torch.int64)
    matrix[1, 0] = 5
    matrix[2, 2] = 99
    delay = PerLink(matrix)
    assert delay.largest == 5
    seen = ages(network("ring:4", delay), 9)
    assert seen[8, 1, 0] == 5 and seen[8, 0, 1] == 0


# ---- traces


def trace_file(tmp_path, text: str) -> str:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    return str(file)


def test_a_trace_holds_values_and_starts_again(tmp_path):
    path = trace_file(tmp_path, "step,from,to,delay\n5,0,1,3\n2,0,1,7\n\n1,2,3,4\n")
    delay = parse_delay(f"trace:{path}")
    assert delay.spec() == f"trace:{path}" and delay.largest == 7
    seen = draws(delay, 13, RING)
    # Before the first row its value; then held; the last recorded step of all is 5, so step 6 is step 0.
    one_replay = [7, 7, 7, 7, 7, 3]
    assert seen[:, 1, 0].tolist() == (one_replay * 3)[:13]
    assert seen[:, 3, 2].tolist() == [4] * 13
    assert seen.sum() == seen[:, 1, 0].sum() + seen[:, 3, 2].sum()


@steady
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 3), st.booleans(), st.integers(0, 9)),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 40),
)
def test_a_trace_agrees_with_a_search_row_by_row(recorded, step):
    rows = [(at, sender, (sender + (1 if up else 3)) % 4, delay) for at, sender, up, delay in recorded]
    now = step % (1 + max(row[0] for row in rows))
    expected = torch.zeros(4, 4, dtype=torch.int64)
    for sender, receiver in {row[1:3] for row in rows}:
        mine = {row[0]: row[3] for row in rows if row[1:3] == (sender, receiver)}
        past = [at for at in mine if at <= now]
        expected[receiver, sender] = mine[max(past) if past else min(mine)]
    seen, _ = Trace(rows).sample(step, torch.empty(0), RING, torch.Generator())
    assert torch.equal(seen, expected)


def test_of_two_rows_for_one_step_the_later_wins():
    seen = draws(Trace([(0, 0, 1, 3), (0, 0, 1, 8)]), 2, RING)
    assert seen[:, 1, 0].tolist() == [8, 8]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "starts with 'an empty file'; its first line must be step,from,to,delay"),
        ("step,to,from,delay\n0,0,1,3\n", "starts with 'step,to,from,delay'; its first line must be"),
        ("step,from,to,delay\n", "has no rows; record at least one"),
        ("step,from,to,delay\n0,0,1,3\n1,0,1\n", "line 3 has 3 of 4 values; complete it"),
        ("step,from,to,delay\n0,0,1,late\n", "line 2 is '0,0,1,late'; it must hold four whole numbers"),
        ("step,from,to,delay\n0,0,1,1.5\n", "line 2 is '0,0,1,1.5'"),
        ("step,from,to,delay\n-1,0,1,3\n", "line 2: step is -1; it must be 0 or more"),
        ("step,from,to,delay\n0,-2,1,3\n", "line 2: from is -2"),
        ("step,from,to,delay\n0,0,-1,3\n", "line 2: to is -1"),
        ("step,from,to,delay\n0,0,1,-3\n", "line 2: delay is -3"),
    ],
)
def test_broken_traces_are_refused_with_the_line(tmp_path, text, words):
    path = trace_file(tmp_path, text)
    with pytest.raises(UserError, match=words) as caught:
        parse_delay(f"trace:{path}")
    assert "\n" not in str(caught.value)


def test_missing_and_binary_traces_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read trace '.*none.csv'.*check the path"):
        Trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not text; write it as CSV"):
        Trace(tmp_path / "binary.csv")
    with pytest.raises(UserError, match=r"trace row 1 is .*four whole numbers"):
        Trace([(0, 0, 1)])
    with pytest.raises(UserError, match="has no rows"):
        Trace([])


@pytest.mark.parametrize("row", [(0, 0, 2, 3), (0, 0, 9, 3), (0, 1, 1, 3)])
def test_a_trace_that_names_a_pair_without_a_link_is_refused(row):
    with pytest.raises(UserError, match=rf"names {row[1]}->{row[2]}, which is no link .* remove its rows"):
        network("ring:4", Trace([row]))


# ---- refusals


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Fixed(-1), "must be 0 steps or more, got -1; use 0"),
        (lambda: Uniform(-2, 4), "lowest delay must be 0 steps or more, got -2"),
        (lambda: Uniform(5, 4), "from 5 to 4 is empty; give the lower number first"),
        (lambda: Geometric(0.0), "above 0 and at most at 1, got 0.0; try 0.1"),
        (lambda: Geometric(1.5), "got 1.5"),
        (lambda: Geometric(math.nan), "got nan"),
        (lambda: Gilbert(0.0, 0.5, 3), "turning bad .*got 0.0"),
        (lambda: Gilbert(0.5, 1.1, 3), "turning good .*got 1.1"),
        (lambda: Gilbert(0.5, 0.5, -3), "bad link must be 0 steps or more, got -3"),
        (lambda: Gilbert(0.5, 0.5, 3, -1), "good link must be 0 steps or more, got -1"),
        (lambda: PerLink(torch.tensor([[0, -4], [0, 0]])), "matrix must be 0 steps or more, got -4"),
        (lambda: network("ring:4", [[0, 1], [1, 0]]), r"shape \(2, 2\) but the network has 4 agents; give"),
    ],
)
def test_impossible_delays_are_refused_with_value_and_remedy(make, words):
    with pytest.raises(UserError, match=words):
        make()


# ---- text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (20, Fixed(20)),
        (20.0, Fixed(20)),
        (np.int64(3), Fixed(3)),
        ("20", Fixed(20)),
        ("fixed:4", Fixed(4)),
        ("uniform:5,60", Uniform(5, 60)),
        ("geometric:0.1", Geometric(0.1)),
        ("gilbert:0.05,0.5,40", Gilbert(0.05, 0.5, 40)),
        ("gilbert:0.05,0.5,40,2", Gilbert(0.05, 0.5, 40, 2)),
        (Fixed(7), Fixed(7)),
    ],
)
def test_delays_from_text_and_numbers(value, expected):
    assert parse_delay(value) == expected


@pytest.mark.parametrize("wrap", [list, np.array, torch.tensor])
def test_delays_from_a_matrix(wrap):
    delay = parse_delay(wrap([[0, 3], [1, 0]]))
    assert isinstance(delay, PerLink) and delay.spec() == "matrix"
    assert delay.matrix.tolist() == [[0, 3], [1, 0]]


def test_delays_from_matrix_files(tmp_path):
    (tmp_path / "d.csv").write_text("0,3\n1,0\n")
    np.save(tmp_path / "d.npy", np.array([[0, 3], [1, 0]]))
    for name in ("d.csv", "d.npy"):
        delay = parse_delay(f"matrix:{tmp_path / name}")
        assert delay.matrix.tolist() == [[0, 3], [1, 0]]
        assert delay.spec() == f"matrix:{tmp_path / name}"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("unifrom:5,60", "unknown delay 'unifrom'; did you mean 'uniform'"),
        ("late", "unknown delay 'late'"),
        ("2.5", "delay must be a whole number of steps, got '2.5'"),
        ("-3", "0 steps or more, got -3"),
        ("uniform:5", "'uniform:5' has 1 numbers; write it like uniform:5,60"),
        ("uniform:5,x", "number 2 of delay 'uniform:5,x' must be a whole number, got 'x'"),
        ("uniform:5,6.5", "must be a whole number, got '6.5'"),
        ("geometric:often", "must be a number, got 'often'"),
        ("geometric", "'geometric' lacks its parameters; write it like geometric:0.1"),
        ("trace", "lacks its parameters; write it like trace:FILE"),
        ("matrix:/no/such.csv", "cannot read delay matrix '/no/such.csv'.*check the path"),
        (True, "must be a number of steps, got True; write 0 or 1"),
        (2.5, "whole number of steps, got 2.5; try 2"),
        (math.inf, "whole number of steps, got inf; try 0"),
        ([[0, 1, 2]], r"shape \(1, 3\); it must be square"),
        ([], "it must be square"),
        ([[0, 1], [2]], "is no number of steps, text or square matrix"),
        ({"delay": 3}, "is no number of steps, text or square matrix; write it like 20"),
        ([[0, 1.5], [1, 0]], "matrix holds 1.5; delays are whole numbers of steps, so round it"),
        ([[0, math.inf], [1, 0]], "matrix holds inf"),
        ([[0, -1], [1, 0]], "0 steps or more, got -1"),
    ],
)
def test_unreadable_delays_are_refused_with_value_and_remedy(value, words):
    with pytest.raises(UserError, match=words) as caught:
        parse_delay(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "0,x\n1,0\n", "0,1\n2\n"])
def test_broken_matrix_files_are_refused(tmp_path, content):
    file = tmp_path / "d.csv"
    file.write_text(content)
    with pytest.raises(UserError, match=r"d\.csv'.*(square|whole numbers)"):
        parse_delay(f"matrix:{file}")
    (tmp_path / "d.npy").write_bytes(b"not numpy")
    with pytest.raises(UserError, match=r"d\.npy' is no delay matrix; write whole numbers"):
        parse_delay(f"matrix:{tmp_path / 'd.npy'}")
