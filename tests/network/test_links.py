"""Lists of links, and matrices on them, against the dense matrices that they stand for."""

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.algorithms.steps import add_product
from gossamer.network import LinkMatrix, Links

steady = settings(deadline=None, max_examples=60)


@st.composite
def patterns(draw, *, square=False):
    """Any mask: none, a few, or all of its entries are links."""
    a = draw(st.integers(1, 9))
    n = a if square else draw(st.integers(0, 9))
    share = draw(st.sampled_from([0.0, 0.1, 0.3, 1.0]))
    return torch.rand((a, n), generator=torch.Generator().manual_seed(draw(st.integers(0, 999)))) < share


@st.composite
def pairs(draw, *, square=False):
    """Two matrices on the same links, as lists and dense; some of their numbers are zero."""
    mask, seed = draw(patterns(square=square)), draw(st.integers(0, 999))
    links, generator = Links.from_mask(mask), torch.Generator().manual_seed(seed)
    made = []
    for _ in range(2):
        values = torch.randint(-2, 3, (len(links),), generator=generator).double() / 3
        dense = torch.zeros(mask.shape, dtype=torch.float64)
        dense[mask] = values
        made += [LinkMatrix(links, values), dense]
    return made


def random(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5


def same(result, expected):
    assert isinstance(result, LinkMatrix)
    assert result.dtype == expected.dtype and result.shape == expected.shape
    torch.testing.assert_close(result.dense(), expected, rtol=1e-14, atol=0)


@steady
@given(patterns(square=True))
def test_the_lists_are_those_of_the_mask(mask):
    links = Links.from_mask(mask)
    assert torch.equal(links.mask, mask) and len(links) == int(mask.sum())
    assert torch.equal(torch.stack([links.receivers, links.senders], dim=1), mask.nonzero())
    assert links.starts.tolist() == [int(mask[:i].sum()) for i in range(len(mask) + 1)]
    assert [links.senders_of(i) for i in range(len(mask))] == [row.nonzero()[:, 0].tolist() for row in mask]
    for number, (i, k) in enumerate(mask.nonzero().tolist()):
        back = int(links.reverse[number])
        assert back == -1 if not mask[k, i] else (links.receivers[back], links.senders[back]) == (k, i)


@steady
@given(st.integers(2, 7), st.data())
def test_undirected_pairs_become_both_directions(n, data):
    agents = st.integers(0, n - 1)
    wanted = data.draw(st.lists(st.tuples(agents, agents).filter(lambda pair: pair[0] != pair[1])))
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i, k in wanted:
        mask[i, k] = mask[k, i] = True
    links = Links.from_pairs(n, wanted)
    assert links.shape == (n, n) and torch.equal(links.mask, mask)


@steady
@given(patterns())
def test_sums_by_row_and_column(mask):
    links = Links.from_mask(mask)
    for values in (random(len(links)), torch.arange(len(links)), torch.arange(len(links)) % 2 == 0):
        dense = links.matrix(values)
        torch.testing.assert_close(links.row_sums(values), dense.sum(dim=1))
        torch.testing.assert_close(links.column_sums(values), dense.sum(dim=0))
    assert torch.equal(links.matrix(torch.arange(len(links)), -1)[~mask], torch.full((int((~mask).sum()),), -1))


@steady
@given(pairs(), st.integers(0, 3))
def test_products_with_rows(made, d):
    (w, dense, other, _), rows = made, random(made[1].shape[1], d)
    torch.testing.assert_close(w @ rows, dense @ rows)
    total = random(len(dense), d, seed=1)
    expected = total + 0.7 * (dense @ rows)
    add_product(total, w, rows, 0.7)
    torch.testing.assert_close(total, expected)
    mixed = other * 2 + w
    torch.testing.assert_close(mixed @ rows, mixed.dense() @ rows)


@steady
@given(pairs(square=True))
def test_products_with_a_diagonal(made):
    w, dense = (
        made[0] * ~torch.eye(len(made[1]), dtype=torch.bool),
        made[1] * ~torch.eye(len(made[1]), dtype=torch.bool),
    )
    own, rows = random(len(dense)), random(len(dense), 3, seed=1)
    whole = dense + torch.diag(own)
    assert torch.equal(w.with_diagonal(own), whole)
    total = torch.zeros(len(dense), 3, dtype=torch.float64)
    add_product(total, w, rows, -2.0, diagonal=own)
    torch.testing.assert_close(total, -2 * whole @ rows)


def test_large_matrices_take_the_same_products():
    """Large enough to be multiplied as a list, and one age of many, of which most numbers are zero."""
    links = Links.from_pairs(200, [(i, (i + 1) % 200) for i in range(200)])
    rows = random(200, 5)
    for values in (random(len(links)), random(len(links)) * (torch.arange(len(links)) % 9 == 0), torch.zeros(400)):
        w = LinkMatrix(links, values.double())
        torch.testing.assert_close(w @ rows, w.dense() @ rows)


@steady
@given(pairs())
def test_arithmetic_is_that_of_the_dense_matrices(made):
    v, dense_v, w, dense_w = made
    a, n = dense_v.shape
    column, row, full = random(a, 1), random(1, n, seed=1), random(a, n, seed=2)
    for factor in (3, -0.5, torch.tensor(0.25), column, row, row[0], full):
        same(v * factor, dense_v * factor)
        same(factor * v, factor * dense_v)
        same(v / factor, dense_v / factor)
    same(v * w, dense_v * dense_w)
    same(v + w, dense_v + dense_w)
    same(v - w, dense_v - dense_w)
    same(-v, -dense_v)
    same(v.clamp(max=0.4), dense_v.clamp(max=0.4))
    for tensor in (full, row, 1.0):
        torch.testing.assert_close(v + tensor, dense_v + tensor)
        torch.testing.assert_close(tensor + v, tensor + dense_v)
        torch.testing.assert_close(v - tensor, dense_v - tensor)
        torch.testing.assert_close(tensor - v, tensor - dense_v)


@steady
@given(pairs())
def test_comparisons_are_those_of_the_dense_matrices_at_the_links(made):
    v, dense_v, w, dense_w = made
    same(v != 0, dense_v != 0)
    same(v > 0, dense_v > 0)
    same(v > w, (dense_v > dense_w))
    column = random(len(dense_v), 1) > 1
    same((v != 0) & (w != 0), (dense_v != 0) & (dense_w != 0))
    same((v != 0) | (w != 0), (dense_v != 0) | (dense_w != 0))
    same((v != 0) & column, (dense_v != 0) & column)
    same(column & (v != 0), (dense_v != 0) & column)
    same((v != 0) * w, (dense_v != 0) * dense_w)
    same((v != 0).to(torch.float32), (dense_v != 0).to(torch.float32))


@steady
@given(pairs(), st.data())
def test_reductions_rows_and_columns(made, data):
    w, dense = made[:2]
    torch.testing.assert_close(w.sum(), dense.sum())
    assert bool(w.any()) == bool(dense.any())
    for dim in (0, 1):
        for keepdim in (False, True):
            torch.testing.assert_close(w.sum(dim=dim, keepdim=keepdim), dense.sum(dim=dim, keepdim=keepdim))
            assert torch.equal(w.any(dim=dim, keepdim=keepdim), dense.any(dim=dim, keepdim=keepdim))
    i = data.draw(st.integers(0, len(dense) - 1))
    assert torch.equal(w.row(torch.tensor([i])), dense[i : i + 1])
    if dense.shape[1]:
        k = data.draw(st.integers(0, dense.shape[1] - 1))
        assert torch.equal(w.column(k), dense[:, k])
    assert torch.equal(LinkMatrix.from_dense(w.links, dense).values, w.values)


def test_matrices_of_other_links_or_shapes_do_not_combine():
    ring, path = (Links.from_pairs(4, [(0, 1), (1, 2), (2, 3), *more]) for more in ([(3, 0)], []))
    w = LinkMatrix(ring, torch.ones(len(ring)))
    with pytest.raises(ValueError, match="different links"):
        w + LinkMatrix(path, torch.ones(len(path)))
    with pytest.raises(ValueError, match=r"shape \(4, 4\) does not combine with one of shape \(3, 1\)"):
        w * torch.ones(3, 1)
    again = Links.from_mask(ring.mask)
    same(w + LinkMatrix(again, w.values), 2 * w.dense())


@given(n=st.integers(1, 12), seed=st.integers(0, 999), share=st.floats(0, 0.4))
@settings(deadline=None, max_examples=40)
def test_components_are_those_of_the_graph(n, seed, share):
    graph = nx.gnp_random_graph(n, share, seed=seed)
    found = Links.from_pairs(n, list(graph.edges)).components().tolist()
    parts = list(nx.connected_components(graph))
    assert all(len({found[agent] for agent in part}) == 1 for part in parts) and len(set(found)) == len(parts)
