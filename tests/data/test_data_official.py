"""The real CIFAR sets, where $GOSSAMER_DATA holds them in the python layout."""

import dataclasses
import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from gossamer.data import cifar as module
from gossamer.data import load_data

FOLDER = Path(os.environ.get("GOSSAMER_DATA") or "/nonexistent")
PRESENT = [name for name, kind in module.SETS.items() if (FOLDER / kind.python.folder).is_dir()]

# The first training and the first test image: label, and red, green and blue of the upper left pixel.
FIRST = {
    "cifar10": ((6, [59, 62, 63]), (3, [158, 112, 49])),
    "cifar100": ((19, [255, 255, 255]), (49, [199, 215, 249])),
}


@pytest.fixture(scope="module", params=PRESENT)
def official(request):
    return request.param, load_data(request.param, str(FOLDER))


def test_sizes_classes_and_first_images(official):
    name, data = official
    classes = data.num_classes
    for examples, total, first in zip((data.train, data.test), (50_000, 10_000), FIRST[name], strict=True):
        assert examples.x.shape == (total, 3, 32, 32) and examples.x.dtype == torch.uint8
        assert examples.y.bincount().tolist() == [total // classes] * classes
        assert (int(examples.y[0]), examples.x[0, :, 0, 0].tolist()) == first


def test_the_normalisation_is_that_of_the_training_images(official):
    _, data = official
    for channel in range(3):
        counts = data.train.x[:, channel].flatten().bincount(minlength=256).double()
        shares, values = counts / counts.sum(), torch.arange(256) / 255
        mean = float((shares * values).sum())
        std = float((shares * (values - mean) ** 2).sum()) ** 0.5
        assert (data.prepare.mean[channel], data.prepare.std[channel]) == pytest.approx((mean, std), abs=1e-4)


def test_the_binary_layout_holds_the_same(official, tmp_path):
    """Records are written from the python layout; the official checksums say that they are the official files."""
    name, data = official
    layout = module.SETS[name].binary
    folder = tmp_path / layout.folder
    folder.mkdir()
    for files, examples in ((layout.train, data.train), (layout.test, data.test)):
        count = len(examples) // len(files)
        for number, (file, md5) in enumerate(files.items()):
            part = slice(number * count, (number + 1) * count)
            labels = [examples.y[part, None].numpy().astype(np.uint8)]
            if name == "cifar100":
                labels.insert(0, coarse_labels(file.removesuffix(".bin"))[:, None])
            records = np.hstack([*labels, examples.x[part].flatten(1).numpy()])
            (folder / file).write_bytes(records.tobytes())
            assert hashlib.md5(records.tobytes()).hexdigest() == md5
    again = load_data(name, str(tmp_path))
    for part in ("train", "test"):
        ours, theirs = getattr(data, part), getattr(again, part)
        assert all(torch.equal(getattr(ours, f.name), getattr(theirs, f.name)) for f in dataclasses.fields(ours))


def coarse_labels(file):
    layout = module.SETS["cifar100"].python
    content = module.read_checked(FOLDER / layout.folder / file, {**layout.train, **layout.test}[file])
    batch = module.ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    return np.array(batch[b"coarse_labels"], np.uint8)
