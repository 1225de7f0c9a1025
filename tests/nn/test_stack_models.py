"""The models that can be named, stacked, against a loop over the agents."""

import pytest
import torch

from gossamer.nn import make_model
from stacks import agents, assert_same_as_a_loop, normal

IMAGES = (3, 8, 8)


@pytest.mark.parametrize("text", ["preresnet:20", "densenet:40", "cnn", "mlp:8,8", "linear"])
def test_a_model_of_images(text):
    assert_same_as_a_loop(agents(lambda: make_model(text, IMAGES, 4), 2), normal(2, 2, *IMAGES))


def test_a_model_of_text():
    def make():
        return make_model("transformer:layers=2,width=8,heads=2", (6,), 256)

    assert_same_as_a_loop(agents(make, 3), lambda: (torch.randint(0, 256, (3, 2, 6)),))
