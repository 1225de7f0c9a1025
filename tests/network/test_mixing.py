import json
import math

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dense_mixing as dense
from gossamer.errors import UserError
from gossamer.network import LinkMatrix, Links, check_assumption_2, graph, mixing

# The first call pays for imports and run-time checks, so a deadline would be flaky.
steady = settings(deadline=None, max_examples=50)


@st.composite
def link_masks(draw):
    """Any symmetric mask without a diagonal, connected or not."""
    n = draw(st.integers(1, 9))
    upper = torch.tensor(draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))).reshape(n, n).triu(1)
    return upper | upper.T


KINDS = st.sampled_from(["metropolis", "uniform"])


@steady
@given(link_masks(), KINDS, st.booleans())
def test_both_kinds_are_symmetric_doubly_stochastic_and_live_on_the_links(links, kind, lazy):
    w = mixing.mixing_matrix(links, kind, lazy)
    n = len(links)
    assert w.dtype == torch.float64
    torch.testing.assert_close(w, w.T, rtol=0, atol=1e-15)
    torch.testing.assert_close(w.sum(dim=1), torch.ones(n, dtype=torch.float64))
    assert (w >= 0).all() and (w.diagonal() > 0).all()
    off_diagonal = ~torch.eye(n, dtype=torch.bool)
    assert torch.equal((w > 0) & off_diagonal, links)


def test_metropolis_weights_of_a_star_by_hand():
    w = mixing.mixing_matrix(graph.adjacency(graph.star(4)), "metropolis", False)
    expected = [[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]]
    torch.testing.assert_close(w, torch.tensor(expected).double() / 4)


def test_metropolis_uses_the_larger_degree_of_the_two():
    w = mixing.mixing_matrix(graph.adjacency(graph.path(4)), "metropolis", False)
    assert w[0, 1].item() == w[1, 2].item() == pytest.approx(1 / 3)
    assert w[0, 0].item() == pytest.approx(2 / 3)


def test_uniform_is_one_over_n_on_a_complete_graph_and_inside_each_clique():
    everyone = mixing.mixing_matrix(graph.adjacency(graph.complete(6)), "uniform", False)
    torch.testing.assert_close(everyone, torch.full((6, 6), 1 / 6, dtype=torch.float64))
    cliques = nx.disjoint_union(nx.complete_graph(3), nx.complete_graph(5))
    w = mixing.mixing_matrix(graph.adjacency(cliques), "uniform", False)
    expected = torch.block_diag(torch.full((3, 3), 1 / 3), torch.full((5, 5), 1 / 5))
    torch.testing.assert_close(w, expected.double(), check_dtype=False, rtol=0, atol=1e-7)


@steady
@given(link_masks(), KINDS)
def test_lazy_is_half_way_to_the_identity(links, kind):
    w, lazy = (mixing.mixing_matrix(links, kind, value) for value in (False, True))
    torch.testing.assert_close(2 * lazy - torch.eye(len(links), dtype=torch.float64), w)


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(UserError, match="unknown mixing 'metropolys'; did you mean 'metropolis'"):
        mixing.mixing_matrix(graph.adjacency(graph.ring(3)), "metropolys", False)


def some(shape, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5


@steady
@given(link_masks(), st.integers(0, 2**32))
def test_renormalised_keeps_ratios_and_makes_rows_sum_to_one(links, seed):
    w = mixing.mixing_matrix(links, "metropolis", False)
    keep, pattern = some(links.shape, seed), Links.from_mask(links)
    own, weights = mixing.renormalised(w.diagonal(), LinkMatrix.from_dense(pattern, w), pattern.at(keep))
    result = weights.with_diagonal(own)
    torch.testing.assert_close(result.sum(dim=1), torch.ones(len(links), dtype=torch.float64))
    allowed = (keep & links) | torch.eye(len(links), dtype=torch.bool)
    assert torch.equal(result > 0, allowed)
    ratio = result / result.diagonal()[:, None]
    torch.testing.assert_close(ratio[allowed], (w / w.diagonal()[:, None])[allowed])
    torch.testing.assert_close(result, dense.renormalised(w, keep))


@steady
@given(link_masks(), KINDS, st.booleans(), st.integers(0, 2**32))
def test_weights_on_lists_are_those_of_the_dense_formulas(links, kind, lazy, seed):
    """On all links, and on some of them: the others have no weight."""
    upper, pattern = some(links.shape, seed).triu(1), Links.from_mask(links)
    for used in (links, links & (upper | upper.T)):
        own, weights = mixing.mixing_weights(pattern, pattern.at(used), kind, lazy)
        torch.testing.assert_close(weights.with_diagonal(own), dense.mixing(used, kind, lazy), rtol=0, atol=1e-15)


# The spectrum is known in closed form for rings, complete graphs and disjoint cliques.


@steady
@given(st.integers(3, 30))
def test_ring_spectrum_in_closed_form(n):
    w = mixing.mixing_matrix(graph.adjacency(graph.ring(n)), "metropolis", False)
    spectrum = sorted((1 + 2 * math.cos(2 * math.pi * k / n)) / 3 for k in range(n))
    torch.testing.assert_close(torch.linalg.eigvalsh(w), torch.tensor(spectrum, dtype=torch.float64))
    check = check_assumption_2(w)
    assert check.e2 == pytest.approx(spectrum[-2], abs=1e-11)
    assert check.slem == pytest.approx(sorted(abs(value) for value in spectrum)[-2], abs=1e-11)
    assert check.spectral_gap == pytest.approx(1 - check.slem)
    assert check.stochastic and check.connected
    assert check.positive == (min(spectrum) > 1e-9)


def test_uniform_on_a_complete_graph_fails_clause_c_and_lazy_mends_it():
    links = graph.adjacency(graph.complete(8))
    check = check_assumption_2(mixing.mixing_matrix(links, "uniform", False))
    assert (check.stochastic, check.connected, check.positive, check.holds) == (True, True, False, False)
    assert check.e2 == check.slem == 0.0
    assert len(check.words) == 1 and "smallest eigenvalue is 0," in check.words[0]
    assert "lazy=True" in check.words[0]
    lazy = check_assumption_2(mixing.mixing_matrix(links, "uniform", True))
    assert lazy.holds and lazy.words == ()
    assert lazy.e2 == pytest.approx(0.5)


def test_disjoint_clusters_have_e2_one_and_the_words_say_what_that_means():
    links = graph.adjacency(nx.disjoint_union(nx.complete_graph(3), nx.complete_graph(5)))
    check = check_assumption_2(mixing.mixing_matrix(links, "metropolis", True))
    assert check.e2 == check.slem == 1.0 and check.spectral_gap == 0.0
    assert (check.stochastic, check.connected, check.positive, check.holds) == (True, False, True, False)
    words = " ".join(check.words)
    assert "block diagonal" in words and "2 groups of agents never meet" in words and "vacuous" in words


@steady
@given(link_masks(), KINDS)
def test_clause_b_is_connectedness(links, kind):
    check = check_assumption_2(mixing.mixing_matrix(links, kind, True))
    assert check.connected == nx.is_connected(nx.from_numpy_array(links.numpy()))
    assert check.holds == check.connected


def test_part_of_a_matrix_fails_everything_and_says_so():
    w = mixing.mixing_matrix(graph.adjacency(graph.complete(4)), "metropolis", False)
    w[:2, :2] = w[2:, 2:] = 0
    check = check_assumption_2(w)
    assert not (check.stochastic or check.connected or check.positive)
    words = " ".join(check.words)
    assert "rows sum to 0.5..0.5" in words and "smallest eigenvalue is -0.5" in words
    assert "lazy" not in words


def test_a_matrix_that_is_row_stochastic_only():
    check = check_assumption_2(torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.9, 0.0, 0.1]], dtype=torch.float64))
    assert not check.stochastic and check.connected and not check.positive
    assert "not symmetric" in " ".join(check.words)
    # trace 1.1 = 1 + 2 Re(e2); determinant 0.25 = |e2|^2
    assert check.e2 == pytest.approx(0.05) and check.slem == pytest.approx(0.5)


def test_growth_is_named():
    check = check_assumption_2(torch.tensor([[2.0, -1.0], [-1.0, 2.0]]).double())
    assert check.stochastic and check.connected and not check.positive
    assert "largest eigenvalue is 3, above 1" in check.words[0]


def test_a_single_agent_satisfies_the_assumption():
    check = check_assumption_2(torch.ones(1, 1, dtype=torch.float64))
    assert check.holds and check.e2 == 0.0 and check.spectral_gap == 1.0


def test_the_check_is_plain_json():
    check = check_assumption_2(mixing.mixing_matrix(graph.adjacency(graph.ring(5)), "metropolis", False))
    again = json.loads(json.dumps(check.as_dict()))
    assert again["holds"] is check.holds and again["e2"] == check.e2
    assert set(again) == {
        "stochastic", "connected", "positive", "e2", "slem", "spectral_gap", "holds", "words",
    }  # fmt: skip
