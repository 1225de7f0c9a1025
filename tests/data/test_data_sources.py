"""IDX files, text, made-up data, and the tasks that are made of all of them."""

import gzip
import struct

import numpy as np
import pytest
import torch
from torch import nn

import gossamer as gm
from gossamer.data import SOURCES, load_data, partition
from gossamer.data import idx as idx_module
from gossamer.tasks import TASKS, correct, cross_entropy, make_task

IDX_NAMES = ("mnist", "fashion-mnist")
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No test reaches for the network."""

    def refuse(*args, **kwargs):
        raise ConnectionError("no route to host\nat all")

    monkeypatch.setattr("pooch.retrieve", refuse)


def refusal(name, place=None):
    with pytest.raises(gm.UserError) as error:
        load_data(name, None if place is None else str(place))
    assert "\n" not in str(error.value)
    return str(error.value)


def idx_bytes(array):
    """The format: two zeros, 8 for unsigned bytes, the number of dimensions, the dimensions, the bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture(params=[(name, packed) for name in IDX_NAMES for packed in (False, True)], ids=str)
def idx(request, tmp_path):
    """A set of 12 training and 5 test images of 28 x 28 pixels."""
    name, packed = request.param
    rng, arrays = np.random.default_rng(0), {}
    (tmp_path / name).mkdir()
    for part, count in (("train", 12), ("t10k", 5)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(256, size=(count, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = rng.integers(10, size=count, dtype=np.uint8)
    for file, array in arrays.items():
        content = idx_bytes(array)
        path = tmp_path / name / (f"{file}.gz" if packed else file)
        path.write_bytes(gzip.compress(content) if packed else content)
    return name, tmp_path, arrays


def test_idx_files_are_read_plain_and_compressed(idx):
    name, place, arrays = idx
    data = load_data(name, str(place))
    for part, examples in (("train", data.train), ("t10k", data.test)):
        images, labels = arrays[f"{part}-images-idx3-ubyte"], arrays[f"{part}-labels-idx1-ubyte"]
        assert examples.x.dtype == torch.uint8 and np.array_equal(examples.x[:, 0].numpy(), images)
        assert examples.y.dtype == torch.int64 and examples.y.tolist() == labels.tolist()
    assert data.shape == (1, 28, 28) and data.num_classes == 10 and not data.augments and len(data.prepare.mean) == 1


DAMAGES = {
    "empty": (lambda raw: b"", "starts with '', not '00000803'"),
    "cut in the header": (lambda raw: raw[:9], "is no IDX file"),
    "cut in the pixels": (lambda raw: raw[:-1], f"{12 * 784 - 1} bytes follow its header, which announces {12 * 784}"),
    "too long": (lambda raw: raw + b"\0", f"{12 * 784 + 1} bytes follow its header"),
    "of floats": (lambda raw: b"\0\0\x0d\x03" + raw[4:], "starts with '00000d03', not '00000803'"),
    "of labels": (lambda raw: idx_bytes(np.zeros(12, np.uint8)), "starts with '00000801', not '00000803'"),
    "of another count": (lambda raw: idx_bytes(np.zeros((11, 28, 28), np.uint8)), "11 images in train-images"),
    "of another size": (lambda raw: idx_bytes(np.zeros((12, 9, 8), np.uint8)), "training images of 9 x 8 pixels"),
    "without pixels": (lambda raw: idx_bytes(np.zeros((12, 0, 28), np.uint8)), "12 images"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("idx", [("mnist", False)], indirect=True, ids=["plain"])
def test_damaged_idx_files_are_refused_in_one_line(idx, damage):
    name, place, _ = idx
    change, says = DAMAGES[damage]
    file = place / name / IMAGES
    file.write_bytes(change(file.read_bytes()))
    assert says in refusal(name, place)


@pytest.mark.parametrize("change", [lambda raw: raw[:-5], lambda raw: b"plain", lambda raw: raw[:10] + b"\xff" * 50])
@pytest.mark.parametrize("idx", [("mnist", True)], indirect=True, ids=["compressed"])
def test_a_damaged_compressed_file_is_refused_in_one_line(idx, change):
    name, place, _ = idx
    file = place / name / f"{IMAGES}.gz"
    file.write_bytes(change(file.read_bytes()))
    assert f"'{file}' is damaged: it cannot be decompressed" in refusal(name, place)


@pytest.mark.parametrize("idx", [("mnist", False)], indirect=True, ids=["plain"])
def test_a_label_beyond_the_classes_is_refused(idx):
    name, place, _ = idx
    (place / name / LABELS).write_bytes(idx_bytes(np.arange(12, dtype=np.uint8)))
    assert "holds the label 11; use labels 0 to 9" in refusal(name, place)


@pytest.mark.parametrize("name", IDX_NAMES)
def test_a_missing_idx_file_is_downloaded_with_its_checksum_or_asked_for(name, tmp_path, monkeypatch):
    says = refusal(name, tmp_path)
    assert says.startswith(f"{name} is not in '{tmp_path / name}' and cannot be downloaded (ConnectionError)")
    assert f"put {IMAGES} or {IMAGES}.gz there" in says
    asked = []

    def retrieve(url, known_hash, fname, path, progressbar):
        asked.append((fname, known_hash, path))
        raise TimeoutError

    monkeypatch.setattr("pooch.retrieve", retrieve)
    assert "(TimeoutError)" in refusal(name, tmp_path)
    assert asked == [(f"{IMAGES}.gz", f"md5:{idx_module.MD5[name][IMAGES]}", tmp_path / name)]


@pytest.mark.parametrize("context", [None, 1, 7])
def test_text_is_cut_into_windows_with_the_next_bytes_as_targets(tmp_path, context):
    text = bytes(np.random.default_rng(2).integers(256, size=1999, dtype=np.uint8))
    (tmp_path / "some, text.bin").write_bytes(text)
    length = context or 64
    data = load_data(f"text:{tmp_path / 'some, text.bin'}" + (f",context={context}" if context else ""))
    assert data.num_classes == 256 and data.shape == (length,) and data.prepare is None and not data.augments
    for examples, part in ((data.train, text[:1800]), (data.test, text[1800:])):
        assert examples.x.dtype == examples.y.dtype == torch.int64
        starts = range(0, len(part) - length, length)
        assert examples.x.tolist() == [list(part[at : at + length]) for at in starts]
        assert examples.y.tolist() == [list(part[at + 1 : at + 1 + length]) for at in starts]


def test_text_that_is_just_long_enough(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").write_bytes(b"x" * 650)
    data = load_data("text:t")
    assert (len(data.train), len(data.test)) == (9, 1)
    (tmp_path / "t").write_bytes(b"x" * 649)
    assert "'t' has 649 bytes, too few for a context of 64; use 650 bytes or more" in refusal("text:t")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("text", "names no file; write text:FILE"),
        ("text:", "names no file"),
        ("text:none.txt", "cannot read text 'none.txt' (No such file or directory)"),
        ("text:.", "cannot read text '.' (Is a directory)"),
        ("text:empty", "'empty' has 0 bytes, too few"),
        ("text:empty,context=0", "a context of 0 bytes; use 1 or more"),
        ("text:empty,context=long", "must be a whole number, got 'long'"),
        ("synthetic:clases=3", "'clases'; did you mean 'classes'?"),
        ("synthetic:classes=1", "classes of a synthetic task must be 2 or more, got 1"),
        ("synthetic:classes=2.5", "must be a whole number, got '2.5'"),
        ("synthetic:classes", "must be a whole number, got ''"),
        ("synthetic:features=0", "features of a synthetic task must be 1 or more, got 0"),
        ("synthetic:examples=5", "examples of a synthetic task must be 6 or more, got 5"),
        ("synthetic:classes=7,examples=6", "too large: use at most a class an example"),
        ("synthetic:features=1000000000", "too large"),
        ("synthetic:noise=1.5", "noise of a synthetic task must lie in [0, 1], got 1.5"),
        ("synthetic:noise=nan", "must lie in [0, 1], got nan"),
        ("synthetic:seed=-1", "seed of a synthetic task must be 0 or more, got -1"),
        ("digits:3", "task 'digits:3' takes no parameter; write digits"),
        ("cifar10:", "takes no parameter; write cifar10"),
        ("cifar", "unknown task 'cifar'; did you mean 'cifar10'?"),
    ],
)
def test_tasks_that_cannot_be_are_refused_in_one_line(name, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    assert says in refusal(name, tmp_path)


def test_synthetic_examples_repeat_and_have_the_size_that_was_asked_for():
    data, again = load_data("synthetic"), load_data("synthetic")
    assert torch.equal(data.train.x, again.train.x) and torch.equal(data.test.y, again.test.y)
    assert data.train.x.shape == (5000, 40) and data.test.x.shape == (1000, 40) and data.num_classes == 10
    assert data.train.x.dtype == torch.float32 and sorted(data.test.y.unique().tolist()) == list(range(10))
    assert not torch.equal(data.train.x, load_data("synthetic:seed=1").train.x)
    small = load_data("synthetic:classes=3,features=5,examples=60")
    assert small.train.x.shape == (50, 5) and small.test.x.shape == (10, 5) and small.num_classes == 3


def test_label_noise_draws_that_share_of_the_labels_anew():
    clean, noisy = load_data("synthetic:noise=0"), load_data("synthetic")
    assert torch.equal(clean.train.x, noisy.train.x)
    # 5 % are drawn anew, and a tenth of those falls on the old label.
    changed = float((clean.train.y != noisy.train.y).double().mean())
    assert changed == pytest.approx(0.045, abs=0.01)
    counts = torch.cat([clean.train.y, clean.test.y]).bincount()
    assert counts.tolist() == [600] * 10


def test_classes_of_the_clean_synthetic_set_can_be_told_apart_but_not_by_their_means():
    data = load_data("synthetic:noise=0")
    means = torch.stack([data.train.x[data.train.y == label].mean(dim=0) for label in range(10)])
    by_means = torch.cdist(data.test.x, means).argmin(dim=1)
    assert 0.7 < float((by_means == data.test.y).double().mean()) < 0.85
    nearest = torch.cdist(data.test.x, data.train.x).topk(15, largest=False).indices
    votes = data.train.y[nearest].mode(dim=1).values
    assert 0.85 < float((votes == data.test.y).double().mean()) < 1


def test_every_task_has_a_line_of_help():
    assert set(TASKS) == set(SOURCES) and all(line and "\n" not in line for line in TASKS.values())


def test_the_loss_is_the_mean_over_all_targets_and_right_ones_are_counted_one_by_one():
    chance = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(3, 4, 6, generator=chance), torch.randint(0, 6, (3, 4), generator=chance)
    single = [nn.functional.cross_entropy(outputs[i, j], targets[i, j]) for i in range(3) for j in range(4)]
    torch.testing.assert_close(cross_entropy(outputs, targets), torch.stack(single).mean())
    assert torch.equal(cross_entropy(outputs[0], targets[0]), nn.functional.cross_entropy(outputs[0], targets[0]))
    assert torch.equal(correct(outputs, targets), outputs.argmax(-1) == targets)
    many = torch.stack([outputs, outputs.flip(-1)])  # two agents
    assert torch.equal(correct(many, targets)[1], outputs.flip(-1).argmax(-1) == targets)
    outputs[0, 0, 0] = torch.nan
    assert not correct(outputs, torch.zeros_like(targets))[0, 0]


def test_a_task_prepares_its_inputs(tmp_path, idx):
    name, place, arrays = idx
    task = make_task(name, "linear", str(place))
    assert task.name == name and task.model_name == "linear" and not task.augments
    inputs = task.inputs(task.train.x, torch.float64)
    mean, std = task.prepare.mean[0], task.prepare.std[0]
    np.testing.assert_allclose(inputs[:, 0].numpy(), (arrays[IMAGES] / 255 - mean) / std, rtol=1e-12)
    assert task.model()(inputs.float()).shape == (12, 10)
    digits = make_task("digits")
    assert torch.equal(digits.inputs(digits.train.x, torch.float64), digits.train.x.double())
    codes = torch.zeros(2, 3, dtype=torch.int64)
    assert digits.inputs(codes, torch.float64) is codes


def test_a_text_task_scores_every_byte(tmp_path):
    (tmp_path / "t").write_bytes(b"some text " * 20)
    task = make_task(f"text:{tmp_path / 't'},context=8", "transformer:layers=1,width=8,heads=2")
    raw, targets = task.train.x[:3], task.train.y[:3]
    outputs = task.fresh_module(0).module.eval()(task.inputs(raw, torch.float32))
    assert outputs.shape == (3, 8, 256) and correct(outputs, targets).shape == (3, 8)
    expected = nn.functional.cross_entropy(outputs.reshape(24, 256), targets.reshape(24))
    torch.testing.assert_close(task.loss(outputs, targets), expected)


def test_making_a_task_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    make_task("synthetic:examples=60", "mlp:4")
    assert torch.equal(before, torch.random.get_rng_state())


def test_windows_of_text_are_dealt_out_but_not_by_class(tmp_path):
    (tmp_path / "t").write_bytes(b"some text " * 200)
    data = load_data(f"text:{tmp_path / 't'},context=8")
    for text in ("iid", "shares:1,2,3", "replicate"):
        assert len(partition(text, data.train.y, 3, 0)) == 3
    for text in ("dirichlet:1", "classes:2"):
        with pytest.raises(gm.UserError, match="deals by class, but these examples have none; use iid"):
            partition(text, data.train.y, 3, 0)


def test_text_is_read_by_a_transformer_alone(tmp_path):
    (tmp_path / "book.txt").write_text("once upon a time " * 100)
    for model in ("mlp", "linear", "cnn"):
        with pytest.raises(gm.UserError, match="use --model transformer"):
            make_task(f"text:{tmp_path}/book.txt", model)


def test_a_download_that_fails_leaves_no_folder_behind(tmp_path, monkeypatch):
    def fails(*_, path, **__):
        path.mkdir(parents=True)
        raise OSError

    monkeypatch.setattr("pooch.retrieve", fails)
    with pytest.raises(gm.UserError, match="cannot be downloaded"):
        make_task("cifar10", "cnn", str(tmp_path / "misspelt" / "folder"))
    assert not list(tmp_path.iterdir())
