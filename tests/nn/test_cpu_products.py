"""Products of the agents' matrices: both ways against float64, and which way a shape goes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.nn import cpu_products
from gossamer.nn.cpu_products import affine, by_agent, product

sizes = st.integers(1, 7)


@pytest.fixture(params=["batched", "by agent"])
def way(request, monkeypatch):
    """Send products of any size one way."""
    monkeypatch.setattr(cpu_products, "LARGE", 0 if request.param == "by agent" else 2**60)
    monkeypatch.setattr(cpu_products, "one_dnn_is_faster", lambda: True)
    return request.param


def drawn(*shape, seed=0, layout="rows"):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return matrix if layout == "rows" else matrix.mT.contiguous().mT


@given(
    n=sizes, m=sizes, k=sizes, p=sizes, layouts=st.tuples(*[st.sampled_from(["rows", "columns"])] * 2), gap=sizes,
    small=st.booleans(), turned=st.booleans(),
)  # fmt: skip
def test_a_product_is_that_of_each_agents_matrices_wherever_it_goes(n, m, k, p, layouts, gap, small, turned):
    a, b = drawn(n, m, k, seed=1, layout=layouts[0]), drawn(n, k, p, seed=2, layout=layouts[1])
    expected = torch.stack([x.double() @ y.double() for x, y in zip(a, b, strict=True)]).float()
    rows = torch.full((n, m * p + gap), 7.0)
    place = rows[:, : m * p].view(n, m, p)
    for limit in (0, 2**60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu_products, "LARGE", limit)
            patch.setattr(cpu_products, "SMALL", 2**60 if small else 0)
            patch.setattr(cpu_products, "one_dnn_is_faster", lambda: True)
            torch.testing.assert_close(product(a, b, turned=turned), expected)
            found = product(a, b, place.zero_())
        assert found.data_ptr() == place.data_ptr()
        torch.testing.assert_close(place, expected)
        assert (rows[:, m * p :] == 7).all()


@pytest.mark.parametrize("bias", [True, False])
def test_affine_adds_each_agents_bias(way, bias):
    x, weight, b = drawn(3, 5, 4, seed=1), drawn(3, 6, 4, seed=2), drawn(3, 6, seed=3)
    expected = [i.double() @ w.double().T + bias * c.double() for i, w, c in zip(x, weight, b, strict=True)]
    torch.testing.assert_close(affine(x, weight, b if bias else None), torch.stack(expected).float())
    same = x[:1].expand(3, 5, 4)  # as in an evaluation, where all agents see the same inputs
    torch.testing.assert_close(affine(same, weight, None)[2], (x[0].double() @ weight[2].double().T).float())


def test_only_large_products_in_float32_go_agent_by_agent(monkeypatch):
    monkeypatch.setattr(cpu_products, "one_dnn_is_faster", lambda: True)
    edge = cpu_products.LARGE // 2**10
    assert by_agent(torch.empty(2, 32, 32), torch.empty(2, 32, edge))
    assert not by_agent(torch.empty(2, 32, 32), torch.empty(2, 32, edge - 1))
    assert not by_agent(torch.empty(2, 32, 32).double(), torch.empty(2, 32, edge).double())
    monkeypatch.setattr(cpu_products, "one_dnn_is_faster", lambda: False)
    assert not by_agent(torch.empty(2, 32, 32), torch.empty(2, 32, edge))


@pytest.mark.parametrize(("vendor", "faster"), [("AuthenticAMD", True), ("GenuineIntel", False), ("", False)])
def test_the_processor_alone_decides(monkeypatch, vendor, faster):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(cpu_products, "_processor", lambda: f"vendor_id : {vendor}")
    assert cpu_products.one_dnn_is_faster.__wrapped__() is faster
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert not cpu_products.one_dnn_is_faster.__wrapped__()


def test_shapes_that_do_not_fit_are_refused_by_torch(way):
    with pytest.raises(RuntimeError, match="size"):
        product(drawn(2, 3, 4), drawn(2, 5, 6))
