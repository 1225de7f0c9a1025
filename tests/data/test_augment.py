import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from executions import padded_crop
from gossamer.data import AugmentDraws, Normalize, crop_flip

quick = settings(deadline=None, max_examples=40)


@quick
@given(
    n=st.integers(1, 3),
    b=st.integers(1, 4),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    seed=st.integers(0, 2**20),
)
def test_crops_and_flips_are_those_of_a_loop_over_images(n, b, shape, seed):
    chance = torch.Generator().manual_seed(seed)
    images = torch.randint(1, 256, (n, b, *shape), generator=chance, dtype=torch.uint8)
    draws = AugmentDraws(seed, n, b).at(seed % 1000)
    found = crop_flip(images, draws)
    assert found.dtype == torch.uint8 and found.shape == images.shape
    for i in range(n):
        for j in range(b):
            assert torch.equal(found[i, j], padded_crop(images[i, j], *draws[i, j].tolist()))


def test_every_offset_and_both_directions_on_an_image_that_is_not_square():
    image = torch.arange(1, 2 * 5 * 7 + 1, dtype=torch.uint8).view(2, 5, 7)
    draws = torch.cartesian_prod(torch.arange(9), torch.arange(9), torch.arange(2))[None]
    found = crop_flip(image.expand(1, len(draws[0]), 2, 5, 7), draws)
    for one, draw in zip(found[0], draws[0].tolist(), strict=True):
        assert torch.equal(one, padded_crop(image, *draw))
    middle = torch.tensor([[[4, 4, 0]]])
    assert torch.equal(crop_flip(image[None, None], middle)[0, 0], image)


@quick
@given(
    n=st.integers(1, 4),
    b=st.integers(1, 5),
    seed=st.integers(0, 2**40),
    index=st.integers(0, 3),
)
def test_draws_are_a_function_of_seed_agent_and_step_alone(n, b, seed, index):
    draws = AugmentDraws(seed, n, b)
    block = draws.block(index)
    assert block.shape == (64, n, b, 3)
    for offset in (0, 31, 63):
        assert torch.equal(AugmentDraws(seed, n, b).at(64 * index + offset), block[offset])
        # An agent draws the same whoever else there is.
        assert torch.equal(AugmentDraws(seed, n + 1, b).at(64 * index + offset)[:n], block[offset])
    assert torch.equal(draws.at(64 * index), block[0])


def test_draws_differ_between_steps_blocks_agents_seeds_and_purposes():
    draws = AugmentDraws(0, 2, 30)
    first = draws.at(0)[0]
    others = (draws.at(1)[0], draws.at(64)[0], draws.at(0)[1], AugmentDraws(1, 1, 30).at(0)[0])
    others += (AugmentDraws(0, 1, 30, "fresh-augment").at(0)[0],)
    assert not any(torch.equal(first, other) for other in others)


def test_draws_are_uniform_and_independent_of_one_another():
    source = AugmentDraws(3, 4, 50)
    draws = torch.cat([source.block(index) for index in range(5)]).reshape(-1, 3).long()
    codes = (draws[:, 0] * 9 + draws[:, 1]) * 2 + draws[:, 2]
    counts = codes.bincount(minlength=162).double()
    expected = len(codes) / 162
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert len(counts) == 162 and 85 < chi_squared < 260  # 161 degrees of freedom: 161 +- 18


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_normalisation_is_its_definition(dtype):
    mean, std = (0.5, 0.25, 0.1), (0.2, 0.3, 0.7)
    images = torch.randint(0, 256, (2, 4, 3, 5, 6), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    found = Normalize(mean, std)(images, dtype)
    expected = torch.stack([(images[:, :, c].double() / 255 - mean[c]) / std[c] for c in range(3)], dim=2)
    assert found.dtype == dtype
    # No more than the rounding of the result: bytes in bfloat16 arithmetic would be off by several times that.
    close = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), expected, rtol=close if dtype != torch.float32 else 1e-6, atol=1e-6)


def test_zeros_are_padded_before_normalisation():
    normalize = Normalize((0.5,), (0.25,))
    white = torch.full((1, 1, 1, 6, 6), 255, dtype=torch.uint8)
    moved = normalize(crop_flip(white, torch.tensor([[[0, 4, 0]]])), torch.float32)
    assert moved[0, 0, 0, :4].flatten().tolist() == pytest.approx([-2.0] * 24)
    assert moved[0, 0, 0, 4:].flatten().tolist() == pytest.approx([2.0] * 12)


def test_one_normalisation_serves_several_types_in_turn():
    normalize, images = Normalize((0.5,), (0.25,)), torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    for dtype in (torch.float64, torch.float32, torch.float64):
        assert normalize(images, dtype).dtype == dtype
    assert normalize == Normalize((0.5,), (0.25,))


def test_no_decision_is_taken_in_python():
    # Tensors without data: whatever looked at a value, as a CUDA graph forbids, would fail.
    images, draws = torch.empty(2, 3, 3, 8, 8, dtype=torch.uint8, device="meta"), AugmentDraws(0, 2, 3).at(0).to("meta")
    found = Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))(crop_flip(images, draws), torch.float32)
    assert found.shape == images.shape and found.dtype == torch.float32
