"""Tests check all annotations of the package, shapes and all."""

from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeException

from gossamer.data.sources import load_digits
from gossamer.seeding import generator
from gossamer.shapes import Float, Tensor
from gossamer.state.local import LocalOptimizer

check = jaxtyping.jaxtyped(typechecker=beartype)


@check
def product(a: Float[Tensor, "n k"], b: Float[Tensor, "k m"], turned: bool = False) -> Float[Tensor, "n m"]:
    return (a @ b).T if turned else a @ b


@check
def one_of(parts: "dict[str, Float[Tensor, 'n d']]", other: list[Float[Tensor, " n"]] | None = None) -> int:
    return len(parts)


@check
def longer(number: int) -> int:
    return number + 0.5 if number == 2 else number


@check
@dataclass
class Pair:
    x: Float[Tensor, "n d"]
    weights: Float[Tensor, " n"]


def test_what_fits_passes():
    assert product(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
    assert one_of({"a": torch.ones(2, 3)}, [torch.ones(2)]) == 1 and longer(1) == 1
    Pair(torch.ones(2, 3), torch.ones(2))


@pytest.mark.parametrize(
    "call",
    [
        lambda: product(torch.ones(2, 3), torch.ones(4, 5)),  # two arguments that do not fit each other
        lambda: product(torch.ones(2, 3), torch.ones(3, 4), turned=True),  # a result that does not fit the arguments
        lambda: product(torch.ones(2), torch.ones(3, 4)),
        lambda: product(torch.ones(2, 3, dtype=torch.int64), torch.ones(3, 4)),
        lambda: one_of({"a": torch.ones(2, 3)}, [torch.ones(3)]),
        lambda: longer(1.0),
        lambda: longer(2),  # a result
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises((BeartypeException, jaxtyping.TypeCheckError)):
        call()


def test_fields_are_checked_too():
    with pytest.raises(jaxtyping.TypeCheckError):
        Pair(torch.ones(2, 3), torch.ones(3))


def test_the_package_is_checked():
    with pytest.raises(BeartypeException):
        generator("0", "digits-split")
    with pytest.raises(BeartypeException):
        load_digits(1)
    with pytest.raises(BeartypeException):
        LocalOptimizer().direction(torch.ones(3), [1.0], None)
